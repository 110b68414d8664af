package debian

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// scenes are played on a host of their own: the test binary in a process whose /usr/sbin and
// /run are empty and not the machine's. What they print is compared.
var scenes = map[string]func() error{
	"bare host": func() error { return installAndTell(context.Background()) },
	"host with a policy": func() error {
		return errors.Join(os.WriteFile(policyFile, []byte(ownPolicy), 0o755), installAndTell(context.Background()))
	},
	"leftovers":   leftovers,
	"Docker CE":   dockerCE,
	"two at once": twoAtOnce,
	"killed":      killed,
	"interrupted": func() error {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go func() {
			if await("/run/begun") == nil {
				cancel()
			}
		}()
		return installAndTell(ctx)
	},
}

const ownPolicy = "#!/bin/sh\nexit 42\n"

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "test-scene" {
		if err := play(scenes[os.Args[2]]); err != nil {
			fmt.Println("error:", err)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func play(scene func() error) error {
	needs = []struct{ file, pkg string }{{"/usr/sbin/nft", "nftables"}, {"/usr/sbin/runc", "runc"}}
	if os.Getenv("TEST_INSIDE") != "" {
		return scene()
	}
	err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "")
	for _, dir := range []string{"/usr/sbin", "/run"} {
		err = errors.Join(err, syscall.Mount("tmpfs", dir, "tmpfs", 0, ""))
	}
	return errors.Join(err, scene())
}

func installAndTell(ctx context.Context) error {
	err := Install(ctx, func(doing string) { fmt.Println(doing) })
	fmt.Println("policy:", policyNow())
	return err
}

func policyNow() string {
	text, err := os.ReadFile(policyFile)
	switch {
	case err != nil:
		return "none"
	case string(text) == policy:
		return "ours"
	default:
		return "the host's"
	}
}

func await(file string) error {
	return until("there is no "+file, func() bool {
		_, err := os.Stat(file)
		return err == nil
	})
}

// until waits for a condition, 20 seconds at most, and otherwise says what is wrong.
func until(wrong string, met func() bool) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range 1000 {
		if met() {
			return nil
		}
		<-tick.C
	}
	return errors.New(wrong)
}

var allNeeds = needs

// dockerCE is a host on which containerd.io, which Docker CE brings, is what has containerd and runc.
func dockerCE() error {
	needs = allNeeds
	var err error
	for _, dir := range []string{"/usr/bin", "/usr/lib"} {
		err = errors.Join(err, syscall.Mount("tmpfs", dir, "tmpfs", 0, ""))
	}
	err = errors.Join(err, os.Mkdir("/usr/lib/cni", 0o755))
	for _, file := range []string{"bin/containerd", "bin/ctr", "bin/runc", "bin/nsenter", "lib/cni/bridge", "sbin/iptables", "sbin/nft", "sbin/conntrack"} {
		err = errors.Join(err, os.WriteFile("/usr/"+file, nil, 0o755))
	}
	fmt.Println("missing:", Missing())
	return err
}

// leftovers are looked at with all packages there.
func leftovers() error {
	needs = nil
	for _, tidy := range []func() error{func() error { return Install(context.Background(), nil) }, Tidy} {
		for _, text := range []string{policy, ownPolicy} {
			if err := errors.Join(os.WriteFile(policyFile, []byte(text), 0o755), tidy()); err != nil {
				return err
			}
			fmt.Println("policy:", policyNow())
		}
	}
	return os.Remove(policyFile)
}

func twoAtOnce() error {
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			if err := Install(context.Background(), func(string) {}); err != nil {
				fmt.Println("error:", err)
			}
		})
	}
	group.Wait()
	fmt.Println("policy:", policyNow())
	return nil
}

// killed is an installation whose apt-get outlives it.
func killed() error {
	command := exec.Command("/proc/self/exe", "test-scene", "bare host")
	command.Env = append(os.Environ(), "TEST_INSIDE=1")
	if err := errors.Join(command.Start(), await("/run/begun"), command.Process.Kill()); err != nil {
		return err
	}
	_ = command.Wait()
	fmt.Println("apt-get runs:", Tidy(), policyNow())
	if err := errors.Join(os.WriteFile("/run/go-on", nil, 0o600), await("/run/ended")); err != nil {
		return err
	}
	var err error
	ended := until("the policy stays", func() bool { // it ends soon after it has said so
		err = Tidy()
		return err != nil || policyNow() == "none"
	})
	fmt.Println("apt-get has ended:", err, policyNow())
	return ended
}

// onHost plays a scene with a script for apt-get and returns what it printed.
func onHost(t *testing.T, scene, script string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("needs root to cover /usr/sbin; run as root")
	}
	dir := t.TempDir()
	path := dir
	if script != "" {
		path += ":/bin"
		if err := os.WriteFile(filepath.Join(dir, "apt-get"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.Command("/proc/self/exe", "test-scene", scene)
	command.Env = append(os.Environ(), "PATH="+path)
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

func TestInstall(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	const say = "installing Debian packages [nftables runc]\n"
	for _, c := range []struct{ reason, scene, script, said, log string }{
		{
			"no service starts", "bare host",
			`echo "$DEBIAN_FRONTEND: $*; policy $(/usr/sbin/policy-rc.d 2>/dev/null; echo $?)" >> ` + log,
			say + "policy: none\n",
			`noninteractive: update -qq; policy 127
noninteractive: install -y -qq --no-install-recommends --no-upgrade --no-remove nftables runc --download-only; policy 127
noninteractive: install -y -qq --no-install-recommends --no-upgrade --no-remove nftables runc; policy 101
`,
		},
		{"the host keeps its policy", "host with a policy", "exit 0", say + "policy: the host's\n", ""},
		{
			"a failure", "bare host", `echo "E: Unable to locate package" >&2; exit 100`,
			say + "policy: none\nerror: running apt-get update -qq: exit status 100\nE: Unable to locate package\n", "",
		},
		{
			"no apt-get", "bare host", "",
			"policy: none\nerror: this host lacks what the packages nftables, runc of Debian contain, and has no apt-get; install the same by its own means\n", "",
		},
		{
			"packages of the host stay", "bare host",
			`case "$*" in *--no-remove*) echo "E: Packages need to be removed but remove is disabled." >&2; exit 100; esac; echo "$1" >> ` + log,
			say + `policy: none
error: nothing was installed, since apt-get would remove packages of this host for that; "apt-get -s install nftables runc" names them. ` +
				"Bring /usr/sbin/nft, /usr/sbin/runc by the means by which those came, or remove them\n", "update\n",
		},
		{"runc of Docker CE will do", "Docker CE", "exit 1", "missing: []\n", ""},
		{"what a crash left goes, what is the host's stays", "leftovers", "exit 1", "policy: none\npolicy: the host's\npolicy: none\npolicy: the host's\n", ""},
		{
			"two at once: the second finds all there, and takes no policy away from the first", "two at once",
			`case "$*" in update*|*--download-only) exit;; esac; sleep 0.5; : > /usr/sbin/nft; sleep 0.5; : > /usr/sbin/runc; /usr/sbin/policy-rc.d; echo "policy $?" >> ` + log,
			"policy: none\n", "policy 101\n",
		},
		{
			"apt-get that outlives the program keeps its policy", "killed",
			`case "$*" in update*|*--download-only) exit;; esac; : > /run/begun; until test -e /run/go-on; do sleep 0.05; done; : > /run/ended`,
			"apt-get runs: <nil> ours\napt-get has ended: <nil> none\n", "",
		},
		{
			"packages become whole after an interrupt", "interrupted",
			`case "$*" in update*|*--download-only) exit;; esac; : > /run/begun; sleep 1; /usr/sbin/policy-rc.d; echo "whole, policy $?" >> ` + log,
			say + "interrupted; apt-get finishes what it has begun, which may take a minute\npolicy: none\nerror: context canceled\n", "whole, policy 101\n",
		},
		{
			"before anything is unpacked an interrupt is obeyed", "interrupted",
			`echo "$1" >> ` + log + `; : > /run/begun; exec sleep 1000`,
			say + "policy: none\nerror: running apt-get update -qq: signal: terminated\n\n", "update\n",
		},
		{
			"others use apt and dpkg for a while", "bare host",
			`if mkdir /run/$1 2>/dev/null; then echo "E: Could not get lock /var/lib/x. It is held by process 7 (apt-get)" >&2; exit 100; fi; echo "$1" >> ` + log,
			say + "waiting for another program that uses apt or dpkg\nwaiting for another program that uses apt or dpkg\npolicy: none\n", "update\ninstall\ninstall\n",
		},
		{
			"an interrupt ends the wait for others", "interrupted",
			`: > /run/begun; echo "E: Could not get lock /var/lib/x" >&2; exit 100`, "error: running apt-get update -qq: ", "",
		},
	} {
		_ = os.Remove(log)
		start := time.Now()
		got := onHost(t, c.scene, c.script)
		if d := cmp.Diff(c.said, got); d != "" && !(strings.HasPrefix(c.said, "error: ") && strings.Contains(got, c.said)) {
			t.Errorf("%s: what is said (-want +got):\n%s", c.reason, d)
		}
		text, _ := os.ReadFile(log)
		if d := cmp.Diff(c.log, string(text)); d != "" {
			t.Errorf("%s: what apt-get was asked (-want +got):\n%s", c.reason, d)
		}
		if took := time.Since(start); took > time.Minute {
			t.Errorf("%s: it took %s", c.reason, took)
		}
	}
}

func TestInstallNothing(t *testing.T) {
	before := needs
	t.Cleanup(func() { needs = before })
	needs = nil
	t.Setenv("PATH", t.TempDir())
	if err := Install(context.Background(), nil); err != nil {
		t.Errorf("installing nothing: %v", err)
	}
}
