package debian

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The test binary is also a host of its own: a process whose /usr/sbin is
// empty and not the machine's.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "test-install" {
		if err := installApart(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// installApart covers /usr/sbin, where the policy file goes, and installs two
// packages. If policy is not empty the host has such a policy file already.
func installApart(policy string) error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := syscall.Mount("tmpfs", "/usr/sbin", "tmpfs", 0, ""); err != nil {
		return err
	}
	if policy != "none" {
		if err := os.WriteFile(policyFile, []byte(policy), 0o755); err != nil {
			return err
		}
	}
	fmt.Println("missing", slices.Contains(Missing(), "nftables"))
	err := Install(context.Background(), []string{"nftables", "runc"})
	text, _ := os.ReadFile(policyFile)
	fmt.Printf("after %q\n", text)
	return err
}

// fakeApt makes the PATH a folder with a script named apt-get.
func fakeApt(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "apt-get"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
}

// install runs installApart in a mount namespace of its own.
func install(t *testing.T, policy string) (string, error) {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("needs root to cover /usr/sbin")
		}
		t.Skip("needs root to cover /usr/sbin; run as root")
	}
	command := exec.Command("/proc/self/exe", "test-install", policy)
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	out, err := command.CombinedOutput()
	return string(out), err
}

func TestInstallStartsNoServices(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	fakeApt(t, `echo "$DEBIAN_FRONTEND: $*; policy $(/usr/sbin/policy-rc.d; echo $?)" >> `+log)
	out, err := install(t, "none")
	if d := cmp.Diff("missing true\nafter \"\"\n", out); err != nil || d != "" {
		t.Errorf("%v: Missing, and the policy afterwards (-want +got):\n%s", err, d)
	}
	text, err := os.ReadFile(log)
	want := "noninteractive: update -qq; policy 101\n" +
		"noninteractive: install -y -qq --no-install-recommends --no-upgrade nftables runc; policy 101\n"
	if d := cmp.Diff(want, string(text)); err != nil || d != "" {
		t.Errorf("%v: what apt-get was asked (-want +got):\n%s", err, d)
	}
}

func TestInstallKeepsThePolicyOfTheHost(t *testing.T) {
	fakeApt(t, "exit 0")
	const own = "#!/bin/sh\nexit 42\n"
	out, err := install(t, own)
	if d := cmp.Diff(fmt.Sprintf("missing true\nafter %q\n", own), out); err != nil || d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
}

func TestInstallFails(t *testing.T) {
	fakeApt(t, `echo "E: Unable to locate package" >&2; exit 100`)
	out, err := install(t, "none")
	for _, want := range []string{"running apt-get update -qq", "E: Unable to locate package", "after \"\""} {
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("the error is %q, %v, want %q", out, err, want)
		}
	}
}

func TestInstallNothing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if err := Install(context.Background(), nil); err != nil {
		t.Errorf("installing nothing: %v", err)
	}
}

func TestInstallWithoutApt(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := Install(context.Background(), []string{"containerd", "runc"})
	for _, want := range []string{"containerd, runc", "no apt-get"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("without apt-get: %v, want %q", err, want)
		}
	}
}

func TestMissing(t *testing.T) {
	before := needs
	t.Cleanup(func() { needs = before })
	there := filepath.Join(t.TempDir(), "there")
	if err := os.WriteFile(there, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	needs = []struct{ file, pkg string }{
		{there, "present"}, {there + "-not", "absent"}, {there + "-neither", "absent"}, {"/no/such/file", "another"},
	}
	if d := cmp.Diff([]string{"absent", "another"}, Missing()); d != "" {
		t.Errorf("each missing package is named once (-want +got):\n%s", d)
	}
}

func TestNeedsAreOnADebianHost(t *testing.T) {
	for _, need := range needs {
		if !filepath.IsAbs(need.file) || need.pkg == "" {
			t.Errorf("a need is incomplete: %+v", need)
		}
		if _, err := os.Stat(need.file); err != nil {
			continue
		}
		out, err := exec.Command("dpkg-query", "--search", need.file).Output()
		if err != nil {
			continue // no Debian, or a merged /usr under which dpkg knows another path
		}
		if owner, _, _ := strings.Cut(string(out), ":"); owner != need.pkg {
			t.Errorf("%s is in %s, not in %s", need.file, owner, need.pkg)
		}
	}
}
