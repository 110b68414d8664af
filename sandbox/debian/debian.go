// Package debian installs the Debian packages a sandbox needs and nothing else.
// It asks for a package only if a file it brings is missing, starts none of the
// services packages contain, and never upgrades or removes what is there.
package debian

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// needs maps a file to the package that brings it.
var needs = []struct{ file, pkg string }{
	{"/usr/bin/containerd", "containerd"},
	{"/usr/bin/ctr", "containerd"},
	{"/usr/sbin/runc", "runc"},
	{"/usr/lib/cni/bridge", "containernetworking-plugins"},
	{"/usr/sbin/iptables", "iptables"},
	{"/usr/sbin/nft", "nftables"},
	{"/usr/sbin/conntrack", "conntrack"},
	{"/usr/bin/nsenter", "util-linux"},
}

// elsewhere is where packages of others have a file: containerd.io, which comes with Docker CE
// and conflicts with runc, brings runc itself. Both folders are on the path of machines.
var elsewhere = map[string]string{"/usr/sbin/runc": "/usr/bin/runc"}

// policyFile, while it exists and exits with 101, keeps packages from starting
// their services (Debian Policy 9.3.3.1).
const policyFile = "/usr/sbin/policy-rc.d"

const policy = "#!/bin/sh\n# Made while packages for a sandbox are installed.\nexit 101\n"

// lockFile is locked by who installs and so by who has made the policy file.
const lockFile = "/run/pelago-sandbox.packages"

// removalRefused is how apt-get says that it keeps --no-remove.
const removalRefused = "Packages need to be removed but remove is disabled"

const (
	lockPatience = 5 * time.Minute // with others that use apt or dpkg
	lockPause    = time.Second
	killAfter    = 10 * time.Second
)

// Missing lists the packages the host lacks.
func Missing() []string {
	packages, _ := missing()
	return packages
}

// missing lists the packages the host lacks, and the files for which it needs them.
func missing() (packages, files []string) {
	for _, need := range needs {
		if exists(need.file) || exists(elsewhere[need.file]) {
			continue
		}
		files = append(files, need.file)
		if !slices.Contains(packages, need.pkg) {
			packages = append(packages, need.pkg)
		}
	}
	return packages, files
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// Install installs what is Missing with apt-get, after refreshing the lists, and
// removes the policy file that a crash of an installation has left. Who comes
// while another one installs waits. Say is told what goes on. When ctx ends this
// ends, too, but not before packages are whole that apt-get has begun to unpack.
func Install(ctx context.Context, say func(string)) error {
	if len(Missing()) == 0 && !policyIsOurs() {
		return nil
	}
	lock, err := awaitLock(ctx, say)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := removePolicy(); err != nil {
		return err
	}
	packages, files := missing()
	if len(packages) == 0 {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("this host lacks what the packages %s of Debian contain, and has no apt-get; install the same by its own means", strings.Join(packages, ", "))
	}
	say(fmt.Sprintf("installing Debian packages %v", packages))
	a := apt{lock: lock, say: say}
	install := append([]string{"install", "-y", "-qq", "--no-install-recommends", "--no-upgrade", "--no-remove"}, packages...)
	if err := a.run(ctx, true, "update", "-qq"); err != nil {
		return err
	}
	if err := a.run(ctx, true, append(install, "--download-only")...); err != nil {
		if strings.Contains(err.Error(), removalRefused) {
			return fmt.Errorf("nothing was installed, since apt-get would remove packages of this host for that; \"apt-get -s install %s\" names them. Bring %s by the means by which those came, or remove them",
				strings.Join(packages, " "), strings.Join(files, ", "))
		}
		return err
	}
	if _, err := os.Stat(policyFile); errors.Is(err, fs.ErrNotExist) {
		if err := os.WriteFile(policyFile, []byte(policy), 0o755); err != nil {
			return fmt.Errorf("keeping services from starting: %w", err)
		}
		defer os.Remove(policyFile)
	}
	defer context.AfterFunc(ctx, func() { say("interrupted; apt-get finishes what it has begun, which may take a minute") })()
	return a.run(ctx, false, install...)
}

// Tidy removes the policy file that a crash of an installation has left.
func Tidy() error {
	if !policyIsOurs() {
		return nil
	}
	lock, err := openLock()
	if err != nil {
		return err
	}
	defer lock.Close()
	if !tryLock(lock) {
		return nil // it is needed
	}
	return removePolicy()
}

func policyIsOurs() bool {
	text, err := os.ReadFile(policyFile)
	return err == nil && string(text) == policy
}

// removePolicy removes the policy file if it is ours. The caller has the lock.
func removePolicy() error {
	if !policyIsOurs() {
		return nil
	}
	if err := os.Remove(policyFile); err != nil {
		return fmt.Errorf("letting services start again: %w", err)
	}
	return nil
}

// openLock opens the lock's file, which none but its owner may open and so lock.
func openLock() (*os.File, error) {
	lock, err := os.OpenFile(lockFile, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the installation of packages: %w", err)
	}
	return lock, nil
}

func tryLock(lock *os.File) bool {
	return syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}

func awaitLock(ctx context.Context, say func(string)) (*os.File, error) {
	lock, err := openLock()
	if err != nil {
		return nil, err
	}
	for first := true; !tryLock(lock); first = false {
		if first {
			say("waiting for another command that installs Debian packages")
		}
		select {
		case <-ctx.Done():
			lock.Close()
			return nil, fmt.Errorf("waiting for another command that installs Debian packages: %w", ctx.Err())
		case <-time.After(lockPause / 10):
		}
	}
	return lock, nil
}

// apt runs apt-get.
type apt struct {
	// lock is open in every apt-get, so that it stays locked until that ends, whatever
	// ends this program.
	lock *os.File
	say  func(string)
}

// run runs apt-get once nobody else uses it or dpkg. Its own option for that
// waits for dpkg alone, and not for who refreshes the lists. Unless it may be
// interrupted, the end of ctx counts when it has ended.
func (a apt) run(ctx context.Context, interruptible bool, args ...string) error {
	for end := time.Now().Add(lockPatience); ; {
		output, err := a.once(ctx, interruptible, args)
		if err == nil {
			return ctx.Err()
		}
		text := strings.TrimSpace(output)
		failure := fmt.Errorf("running apt-get %s: %w\n%s", strings.Join(args, " "), err, text[max(0, len(text)-2000):])
		if !busy(text) || time.Now().After(end) {
			return failure
		}
		a.say("waiting for another program that uses apt or dpkg")
		select {
		case <-ctx.Done():
			return failure
		case <-time.After(lockPause):
		}
	}
}

// busy tells whether apt-get, or dpkg below it, did nothing because of a lock.
func busy(text string) bool {
	return strings.Contains(text, "Could not get lock") || strings.Contains(text, "Unable to acquire the dpkg frontend lock")
}

func (a apt) once(ctx context.Context, interruptible bool, args []string) (string, error) {
	if !interruptible {
		ctx = context.WithoutCancel(ctx)
	}
	command := exec.CommandContext(ctx, "apt-get", args...)
	command.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
	command.ExtraFiles = []*os.File{a.lock}
	// A session of its own: who interrupts this program at its terminal does not interrupt dpkg.
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGTERM) }
	if interruptible {
		command.WaitDelay = killAfter
	}
	output, err := command.CombinedOutput()
	return string(output), err
}
