package test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/pelago-dev/pelago/internal/kubetest"
)

// marker is the variable that every process of a sandbox carries in its environment:
// SANDBOX/MACHINE.
const marker = "PELAGO_SANDBOX_MACHINE="

// inventory is what this machine holds that a sandbox could leave behind: one line per
// thing, with a word that says what it is.
type inventory map[string]bool

// takeInventory counts mounts, namespaces, interfaces, routes, rules, firewall tables,
// settings of the kernel, control groups, and files where a container runtime and a
// sandbox write them.
func takeInventory(t *testing.T) inventory {
	t.Helper()
	seen := inventory{}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 4 {
			seen["mount "+fields[4]] = true
		}
	}
	for _, p := range processNumbers() {
		if othersSandbox(p) {
			continue // somebody may stop and start nodes in it meanwhile
		}
		for _, kind := range []string{"net", "mnt", "pid", "uts", "ipc", "cgroup"} {
			if link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", p, kind)); err == nil {
				seen["namespace "+link] = true
			}
		}
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range interfaces {
		seen["interface "+i.Name] = true
	}
	for word, command := range map[string]string{
		"route": "ip route show table all", "route6": "ip -6 route show table all",
		"rule": "ip rule", "rule6": "ip -6 rule", "nftables": "nft list tables",
	} {
		for _, line := range output(t, command) {
			seen[word+" "+line] = true
		}
	}
	for _, setting := range []string{"fs/inotify/max_user_instances", "fs/inotify/max_user_watches",
		"net/ipv4/ip_forward", "net/ipv4/conf/all/rp_filter", "net/ipv6/conf/all/forwarding", "net/bridge/bridge-nf-call-iptables"} {
		if value, err := os.ReadFile("/proc/sys/" + setting); err == nil {
			seen["setting "+setting+" "+strings.TrimSpace(string(value))] = true
		}
	}
	folders(seen, "control group", "/sys/fs/cgroup", 6)
	for _, root := range []string{"/run", "/var/lib", "/etc/cni", "/var/log", "/opt"} {
		folders(seen, "file", root, 2)
	}
	folders(seen, "file", "/tmp", 1)
	return seen
}

// othersSandbox tells whether a process is in the control group of a sandbox that no
// test made.
func othersSandbox(pid int) bool {
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	return err == nil && bytes.Contains(groups, []byte("/pelago-sandbox/")) && !bytes.Contains(groups, []byte("/pelago-sandbox/test-"))
}

// more lists what is in the inventory and was not in the earlier one.
func (now inventory) more(before inventory) []string {
	var added []string
	for thing := range now {
		if !before[thing] {
			added = append(added, thing)
		}
	}
	slices.Sort(added)
	return added
}

// folders notes everything below root, depth levels deep. For control groups that is
// folders, elsewhere files too; what this test binary and go test write is left out.
func folders(seen inventory, word, root string, depth int) {
	own := filepath.Clean(os.TempDir())
	filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil // gone while we looked
		}
		level := strings.Count(strings.TrimPrefix(path, root), "/")
		if path != root && filepath.Dir(path) == own && ours(entry.Name()) {
			return fs.SkipDir
		}
		if word == "control group" && !entry.IsDir() {
			return nil
		}
		seen[word+" "+path] = true
		if entry.IsDir() && level >= depth {
			return fs.SkipDir
		}
		return nil
	})
}

// ours reports whether a name in the folder for temporary files belongs to tests or to
// compilers, which may run beside this test.
func ours(name string) bool {
	return slices.ContainsFunc([]string{"Test", "go-", "cc", "pelago-apiserver-", "bash_jobs", "staticcheck"}, func(prefix string) bool {
		return strings.HasPrefix(name, prefix)
	})
}

func output(t *testing.T, command string) []string {
	t.Helper()
	words := strings.Fields(command)
	out, err := exec.Command(words[0], words[1:]...).Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) { // IPv6 may be off
		t.Fatalf("running %s: %v", command, err)
	}
	var lines []string
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// markedProcess is a process of a sandbox.
type markedProcess struct {
	pid  int
	name string
}

// marked lists the running processes of a sandbox.
func marked(sandbox string) []markedProcess {
	var found []markedProcess
	for _, pid := range processNumbers() {
		environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil || !bytes.Contains(append([]byte{0}, environment...), []byte("\x00"+marker+sandbox+"/")) {
			continue
		}
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if err == nil {
			found = append(found, markedProcess{pid, strings.TrimSpace(string(name))})
		}
	}
	return found
}

func processNumbers() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []int
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil {
			found = append(found, pid)
		}
	}
	return found
}

// killHard ends a process as kill -9 does.
func killHard(pid int) error { return syscall.Kill(pid, syscall.SIGKILL) }

// TestInventory holds that the inventory sees each kind of thing that can be left.
func TestInventory(t *testing.T) {
	kubetest.RequireClusters(t)
	before := takeInventory(t)
	dir, err := os.MkdirTemp("/var/lib", "pelago-inventory-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	holder := exec.Command("sleep", "60")
	holder.Env = []string{marker + "inventory/probe"}
	holder.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	defer holder.Wait()
	defer holder.Process.Kill()
	if err := exec.Command("ip", "link", "add", "pelagoinv0", "type", "veth", "peer", "name", "pelagoinv1").Run(); err != nil {
		t.Fatal(err)
	}
	defer exec.Command("ip", "link", "del", "pelagoinv0").Run()
	if err := exec.Command("nft", "add", "table", "inet", "pelagoinv").Run(); err != nil {
		t.Fatal(err)
	}
	defer exec.Command("nft", "delete", "table", "inet", "pelagoinv").Run()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	defer syscall.Unmount(dir, syscall.MNT_DETACH)

	added := strings.Join(takeInventory(t).more(before), "\n")
	for _, part := range []string{"namespace net:", "namespace uts:", "interface pelagoinv0", "nftables table inet pelagoinv", "mount " + dir, "file " + dir} {
		if !strings.Contains(added, part) {
			t.Errorf("the inventory does not see %q:\n%s", part, added)
		}
	}
	if len(marked("inventory")) != 1 {
		t.Errorf("marked processes: %v, want the one with the marker", marked("inventory"))
	}
	if len(marked("invent")) != 0 {
		t.Error("a sandbox whose name begins alike is taken for this one")
	}
}
