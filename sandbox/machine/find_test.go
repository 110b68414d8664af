package machine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// impostor starts a process that looks like the init of a machine, as some user. It ends with the
// test.
func impostor(t *testing.T, spec Spec, user uint32) int {
	t.Helper()
	if err := os.WriteFile(filepath.Join(spec.Dir, InitCommand), []byte("echo begun; read line\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	command := exec.Command("/bin/sh", InitCommand)
	command.Dir = spec.Dir
	command.Env = []string{"PATH=/usr/bin:/bin", Marker + "=" + spec.Sandbox + "/" + spec.Name}
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = command.Wait()
	})
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return command.Process.Pid
}

// TestProcessesOfOthersAreNoMachines: any user may choose the environment and the words of a
// process of his.
func TestProcessesOfOthersAreNoMachines(t *testing.T) {
	requireRoot(t)
	spec := Spec{Sandbox: "test-" + random(), Name: "one", Dir: shortDir(t)}
	if err := os.Chmod(spec.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	bare := spec
	bare.Bare = true
	theirs := impostor(t, spec, 65534)
	for _, s := range []Spec{spec, bare} {
		if pid := findInit(s); pid != 0 {
			t.Errorf("bare %t: process %d of another user is taken for the machine's init", s.Bare, pid)
		}
	}
	if left := Remaining(spec.Sandbox); len(left) > 0 {
		t.Errorf("processes %v of another user are taken for the sandbox's", left)
	}
	if err := KillSandbox(spec.Sandbox); err != nil || !alive(theirs) {
		t.Errorf("killing the sandbox killed another user's process: %v", err)
	}

	ours := impostor(t, spec, 0)
	if pid := findInit(spec); pid != 0 {
		t.Errorf("process %d is outside the machine's control group and taken for its init", pid)
	}
	if pid := findInit(bare); pid != ours {
		t.Errorf("a machine without control groups has the init %d, want %d", pid, ours)
	}
	if left := Remaining(spec.Sandbox); !slices.Equal(left, []int{ours}) {
		t.Errorf("the sandbox has the processes %v, want %d alone", left, ours)
	}
}

// TestProcessWithMoreRights: what is executed with the rights of its file's owner has the
// environment of whoever executes it.
func TestProcessWithMoreRights(t *testing.T) {
	requireRoot(t)
	spec := Spec{Sandbox: "test-" + random(), Name: "one", Dir: shortDir(t), Bare: true}
	program := filepath.Join(spec.Dir, "cat")
	cat, err := os.ReadFile("/bin/cat")
	err = errors.Join(err, os.WriteFile(program, cat, 0o755), os.Chmod(program, 0o755|os.ModeSetuid), os.Chmod(spec.Dir, 0o755),
		syscall.Mkfifo(filepath.Join(spec.Dir, InitCommand), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(program, InitCommand) // opens the pipe, which nobody writes to
	command.Dir = spec.Dir
	command.Env = []string{Marker + "=" + spec.Sandbox + "/" + spec.Name}
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = command.Process.Kill(), command.Wait() })
	info, err := os.Stat(fmt.Sprintf("/proc/%d", command.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	if info.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Fatalf("the file system of %s gives no rights to programs; set TMPDIR to a folder of one that does", spec.Dir)
	}
	if pid := findInit(spec); pid != 0 {
		t.Errorf("process %d, which another user started, is taken for the machine's init", pid)
	}
}
