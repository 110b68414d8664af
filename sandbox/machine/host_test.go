package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// startOnSharedHost is a host such as most are: its mounts are shared, and
// /srv is a file system of its own. It starts the machine that its argument
// describes, has it write, and says what is left of that on the host, and whether
// it keeps what the host unmounts: a private root has a /srv of its own.
func startOnSharedHost(args []string) error {
	var spec Spec
	if err := json.Unmarshal([]byte(args[0]), &spec); err != nil {
		return err
	}
	err := errors.Join(
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), // of the real host
		unix.Mount("tmpfs", "/srv", "tmpfs", 0, ""),
		os.WriteFile("/srv/of-the-host", []byte("seen"), 0o644),
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""),
	)
	if err != nil {
		return err
	}
	before, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	m, err := Start(ctx, spec)
	if err != nil {
		return err
	}
	script := "cat /srv/of-the-host; echo x > /srv/of-the-machine; rm /srv/of-the-host; mount -t tmpfs none /mnt"
	if err := m.Put(ctx, Unit{Name: "write", Once: true, Args: []string{"/bin/sh", "-ec", script}}); err != nil {
		return err
	}
	for ended := false; !ended && ctx.Err() == nil; {
		all, err := m.Units(ctx)
		if err != nil {
			return err
		}
		ended = all[0].PID == 0
	}
	entries, err := os.ReadDir("/srv")
	fmt.Println("srv", entries)
	after, readErr := os.ReadFile("/proc/self/mountinfo")
	fmt.Println("mounts equal", string(before) == string(after))
	if err := errors.Join(err, readErr, unix.Unmount("/srv", 0)); err != nil {
		return errors.Join(err, m.Kill())
	}
	inside, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", m.PID))
	fmt.Println("srv kept", strings.Contains(string(inside), " /srv ") && !spec.PrivateRoot)
	return errors.Join(err, m.Kill())
}

// startOnOwnBase is a host on which what sandboxes have lies on file systems of its own: a base, in it
// a sandbox, and what machines see beside their own. It starts the machine called one of a sandbox
// with the name that is its argument, and prints what that sees of them.
func startOnOwnBase(args []string) error {
	const base, visible = "/srv/base", "/srv/visible"
	box := filepath.Join(base, "box")
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	for _, dir := range []string{"/srv", base, box, visible} {
		err = errors.Join(err, os.MkdirAll(dir, 0o755), unix.Mount("tmpfs", dir, "tmpfs", 0, ""))
	}
	program := filepath.Join(box, "bin", "machine.test")
	self, readErr := os.ReadFile("/proc/self/exe")
	err = errors.Join(err, readErr, os.Mkdir(filepath.Dir(program), 0o755), os.WriteFile(program, self, 0o755))
	for _, dir := range []string{base, box, visible} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, "file"), []byte("of "+dir+"\n"), 0o644))
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	m, err := Start(ctx, Spec{
		Sandbox: args[0], Name: "one", Dir: filepath.Join(box, "one"), Program: program, PrivateRoot: true, Visible: []string{visible},
	})
	if err != nil {
		return err
	}
	script := "cat /srv/base/file /srv/base/box/file /srv/visible/file; echo x > /srv/base/box/more"
	err = m.Run(ctx, Unit{Name: "look", Args: []string{"/bin/sh", "-ec", script}})
	text, readErr := os.ReadFile(filepath.Join(m.logs(), "look.log"))
	fmt.Print(string(text))
	if _, err := os.Stat(filepath.Join(box, "more")); err == nil {
		fmt.Println("the machine has changed what is not its own")
	}
	return errors.Join(err, readErr, m.Kill())
}

func TestMachineOnFileSystemsOfTheirOwn(t *testing.T) {
	w := newWorld(t)
	command := exec.Command(w.program, "test-own-base", w.sandbox)
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	out, err := command.CombinedOutput()
	if d := cmp.Diff("of /srv/base\nof /srv/base/box\nof /srv/visible\n", string(out)); err != nil || d != "" {
		t.Errorf("what the machine sees: %v (-want +got):\n%s", err, d)
	}
}

func TestMachineOnAHostWithSharedMounts(t *testing.T) {
	w := newWorld(t)
	for _, private := range []bool{false, true} {
		spec := w.spec(fmt.Sprintf("private-%t", private), func(s *Spec) { s.PrivateRoot = private })
		text, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		command := exec.Command(w.program, "test-shared-host", string(text))
		command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
		out, err := command.CombinedOutput()
		want := "srv [- of-the-host]\nmounts equal true\nsrv kept false\n"
		if !private { // it sees the host's files
			want = "srv [- of-the-machine]\nmounts equal true\nsrv kept false\n"
		}
		if d := cmp.Diff(want, string(out)); err != nil || d != "" {
			t.Errorf("private root %t: %v (-want +got):\n%s", private, err, d)
		}
		log, err := os.ReadFile(filepath.Join(spec.logs(), "write.log"))
		if err != nil || strings.TrimSpace(string(log)) != "seen" {
			t.Errorf("private root %t: the machine reads %q in /srv, %v", private, log, err)
		}
	}
}
