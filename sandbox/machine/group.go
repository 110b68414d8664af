package machine

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// groupRoot is the control group that holds all sandboxes of a host.
const groupRoot = "/pelago-sandbox"

func (s Spec) group() string { return groupRoot + "/" + s.Sandbox + "/" + s.Name }

// hierarchy is one mounted control-group file system: several in version 1, one
// in version 2, both kinds in the hybrid layout.
type hierarchy struct {
	Mount   string // where the host has it
	Type    string // cgroup or cgroup2
	Options string // mount options that choose it, such as cpu,cpuacct
}

// hierarchies reads the host's control-group mounts.
func hierarchies() ([]hierarchy, error) {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("reading mounts: %w", err)
	}
	defer file.Close()
	var found []hierarchy
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		if h, ok := parseHierarchy(scanner.Text()); ok {
			found = append(found, h)
		}
	}
	return found, scanner.Err()
}

// parseHierarchy reads a line of mountinfo, see proc(5).
func parseHierarchy(line string) (hierarchy, bool) {
	before, after, ok := strings.Cut(line, " - ")
	fields, rest := strings.Fields(before), strings.Fields(after)
	if !ok || len(fields) < 5 || len(rest) < 3 || (rest[0] != "cgroup" && rest[0] != "cgroup2") {
		return hierarchy{}, false
	}
	var options []string
	for option := range strings.SplitSeq(rest[2], ",") {
		if option != "rw" && option != "ro" && option != "" {
			options = append(options, option)
		}
	}
	return hierarchy{Mount: fields[4], Type: rest[0], Options: strings.Join(options, ",")}, true
}

// makeGroups makes a control group in every hierarchy.
func makeGroups(group string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return errors.New("no control-group file system is mounted; mount one at /sys/fs/cgroup")
	}
	for _, h := range all {
		if err := makeGroup(h, group); err != nil {
			return err
		}
	}
	return nil
}

func makeGroup(h hierarchy, group string) error {
	path := h.Mount
	for part := range strings.SplitSeq(strings.Trim(group, "/"), "/") {
		parent := path
		path = filepath.Join(path, part)
		if h.Type == "cgroup2" {
			delegate(parent)
		}
		if err := makeChild(h, parent, path); err != nil {
			return err
		}
	}
	return nil
}

// makeChild makes the group path in its parent, with what that hands on.
func makeChild(h hierarchy, parent, path string) error {
	if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	// A new cpuset is empty and refuses processes until it is filled.
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		if text, err := os.ReadFile(filepath.Join(parent, name)); err == nil && h.Type == "cgroup" {
			if err := os.WriteFile(filepath.Join(path, name), text, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// delegate lets the children of a version 2 group use its controllers, one at
// a time because one that cannot be had must not spoil the others.
func delegate(path string) {
	text, err := os.ReadFile(filepath.Join(path, "cgroup.controllers"))
	if err != nil {
		return
	}
	for _, controller := range strings.Fields(string(text)) {
		_ = os.WriteFile(filepath.Join(path, "cgroup.subtree_control"), []byte("+"+controller), 0o644)
	}
}

// joinGroups moves the calling process into the group in every hierarchy.
func joinGroups(group string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		if err := os.WriteFile(filepath.Join(h.Mount, group, "cgroup.procs"), []byte("0"), 0o644); err != nil {
			return fmt.Errorf("joining control group: %w", err)
		}
	}
	return nil
}

// stepAside moves the calling process to a leaf of a machine's group, as a service manager has it:
// the programs of a node then count as one beside its pods in the sharing of processors, not each
// thread of theirs as much as all pods; and a group of version 2 with processes of its own cannot
// hand controllers on to others, as the kubelet wants of the one it sees as the root. The move comes
// first: a group that has processes can hand on controllers of threads, and then its children are
// threaded and take none.
func stepAside(h hierarchy, group string) error {
	parent := filepath.Join(h.Mount, group)
	leaf := filepath.Join(parent, "init")
	if err := makeChild(h, parent, leaf); err != nil {
		return fmt.Errorf("making control group of the init: %w", err)
	}
	if err := os.WriteFile(filepath.Join(leaf, "cgroup.procs"), []byte("0"), 0o644); err != nil {
		return fmt.Errorf("joining control group of the init: %w", err)
	}
	if h.Type == "cgroup2" {
		delegate(parent)
	}
	return nil
}

// busyFor is how long groups may be busy after their processes have ended: these leave them a moment later.
const busyFor = 2 * time.Second

// removeGroups removes a group and all below it in every hierarchy, deepest
// first, and the group of all sandboxes if it was the last.
func removeGroups(group string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	var failures []error
	patience := time.Now().Add(busyFor)
	for _, h := range all {
		var dirs []string
		root := filepath.Join(h.Mount, group)
		_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for i := len(dirs) - 1; i >= 0; i-- {
			err := os.Remove(dirs[i])
			for errors.Is(err, unix.EBUSY) && time.Now().Before(patience) {
				<-time.After(busyFor / 100)
				err = os.Remove(dirs[i])
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				failures = append(failures, err)
			}
		}
		_ = os.Remove(filepath.Join(h.Mount, groupRoot))
	}
	return errors.Join(failures...)
}

// Processes lists the host PIDs of everything that runs in the machine,
// containers included.
func (m *Machine) Processes() ([]int, error) {
	if m.Bare {
		return processes(func(marker string) bool { return marker == m.Sandbox+"/"+m.Name }), nil
	}
	return groupProcesses(m.group())
}

// groupProcesses lists the processes in a group and all below it.
func groupProcesses(group string) ([]int, error) {
	all, err := hierarchies()
	if err != nil {
		return nil, err
	}
	seen := map[int]bool{}
	var pids []int
	for _, h := range all {
		_ = filepath.WalkDir(filepath.Join(h.Mount, group), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.Name() != "cgroup.procs" {
				return nil
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return nil
			}
			for _, word := range strings.Fields(string(text)) {
				if pid, err := strconv.Atoi(word); err == nil && !seen[pid] {
					seen[pid] = true
					pids = append(pids, pid)
				}
			}
			return nil
		})
	}
	return pids, nil
}

// isMember tells whether a process is in a machine's control group, or in the leaf of its init, in
// any hierarchy: it joins one after the other.
func isMember(group string, pid int) bool {
	all, err := hierarchies()
	if err != nil {
		return false
	}
	want := strconv.Itoa(pid)
	for _, h := range all {
		for _, dir := range []string{group, group + "/init"} {
			text, err := os.ReadFile(filepath.Join(h.Mount, dir, "cgroup.procs"))
			if err == nil && slices.Contains(strings.Fields(string(text)), want) {
				return true
			}
		}
	}
	return false
}

// Memory returns the machine's proportional set size in bytes: memory shared
// by n processes counts one n-th for each.
func (m *Machine) Memory() (int64, error) {
	pids, err := m.Processes()
	if err != nil {
		return 0, err
	}
	var total int64
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			continue
		}
		for line := range strings.SplitSeq(string(text), "\n") {
			fields := strings.Fields(line)
			if len(fields) == 3 && fields[0] == "Pss:" {
				kib, _ := strconv.ParseInt(fields[1], 10, 64)
				total += kib << 10
			}
		}
	}
	return total, nil
}
