package machine

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

func readSpec(path string) (Spec, error) {
	var spec Spec
	text, err := os.ReadFile(path)
	if err != nil {
		return spec, fmt.Errorf("reading machine: %w", err)
	}
	if err := json.Unmarshal(text, &spec); err != nil {
		return spec, fmt.Errorf("reading machine %s: %w", path, err)
	}
	return spec, nil
}

// Init is the first process of a machine. Its arguments are the file of the
// machine's Spec and, on the second pass, the word "ready". The first pass
// finishes the machine's surroundings and executes the program again, because
// a control-group namespace belongs to one thread and every unit must inherit
// it; the second supervises units until it is killed.
func Init(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("usage: %s FILE", InitCommand)
	}
	spec, err := readSpec(args[0])
	if err != nil {
		return err
	}
	if spec.Bare {
		// The first process of a PID namespace gets the orphans of its units anyhow.
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("preparing machine %s: %w", spec.Name, err)
		}
		if err := os.Chdir(spec.Dir); err != nil {
			return fmt.Errorf("preparing machine %s: %w", spec.Name, err)
		}
		return supervise(spec)
	}
	if len(args) == 2 && args[1] == "ready" {
		return supervise(spec)
	}
	runtime.LockOSThread()
	if err := surround(spec); err != nil {
		return fmt.Errorf("preparing machine %s: %w", spec.Name, err)
	}
	return syscall.Exec(spec.Program, []string{spec.Program, InitCommand, args[0], "ready"}, os.Environ())
}

// surround gives the machine its control groups, root, host name and settings.
func surround(spec Spec) error {
	groups, err := hierarchies()
	if err != nil {
		return err
	}
	if err := joinGroups(spec.group()); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("making a control-group namespace: %w", err)
	}
	for _, h := range groups {
		if err := stepAside(h, spec.group()); err != nil {
			return err
		}
	}
	// What the machine mounts is never seen on the host. What the host unmounts goes from a
	// machine that sees the host's files, too, or it would keep the host's disks in use.
	var detached uintptr = unix.MS_SLAVE
	if spec.PrivateRoot {
		detached = unix.MS_PRIVATE
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|detached, ""); err != nil {
		return fmt.Errorf("detaching mounts: %w", err)
	}
	if spec.PrivateRoot {
		err = privateRoot(spec, groups)
	} else {
		err = mount("proc", "/proc", "proc", 0, "")
	}
	if err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(spec.Name)); err != nil {
		return fmt.Errorf("setting host name: %w", err)
	}
	for key, value := range spec.Sysctls {
		if err := os.WriteFile(filepath.Join("/proc/sys", key), []byte(value), 0o644); err != nil {
			return fmt.Errorf("setting %s: %w", key, err)
		}
	}
	return loopbackUp()
}

func mount(source, target, kind string, flags uintptr, data string) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return fmt.Errorf("making mount point %s: %w", target, err)
	}
	if err := unix.Mount(source, target, kind, flags, data); err != nil {
		return fmt.Errorf("mounting %s on %s: %w", kind, target, err)
	}
	return nil
}

// hostMounts are folders that often are file systems of their own.
var hostMounts = []string{"/usr", "/usr/local", "/var", "/var/lib", "/var/cache", "/opt", "/home", "/root", "/srv"}

// covered are the folders of the host that a private root shows where they are
// file systems of their own, each before those in it. An overlay shows only the
// file system it lies on, so each of them gets one.
func covered(spec Spec) []string {
	dirs := slices.Clone(hostMounts)
	for _, own := range []string{spec.Dir, spec.Program} {
		for dir := filepath.Dir(own); dir != "/" && dir != "."; dir = filepath.Dir(dir) {
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs)
	return slices.DeleteFunc(slices.Compact(dirs), func(dir string) bool { return !isMount(dir) })
}

// privateRoot moves the machine onto a root of its own: the host's root below,
// a layer in memory above, fresh kernel file systems, and its disk.
func privateRoot(spec Spec, groups []hierarchy) error {
	base := filepath.Join(spec.Dir, "root")
	if err := mount("tmpfs", base, "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	root := filepath.Join(base, "merged")
	for i, dir := range append([]string{"/"}, covered(spec)...) {
		if err := cover(dir, filepath.Join(root, dir), filepath.Join(base, strconv.Itoa(i))); err != nil {
			return err
		}
	}
	if err := fillRoot(spec, root, groups); err != nil {
		return err
	}
	old := filepath.Join(root, ".host")
	if err := os.Mkdir(old, 0o700); err != nil {
		return err
	}
	if err := unix.PivotRoot(root, old); err != nil {
		return fmt.Errorf("moving to the new root: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if err := unix.Unmount("/.host", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leaving the host's root: %w", err)
	}
	// Volumes that containers mount must be seen by the kubelet and others.
	return unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "")
}

// cover shows a folder of the host at target; changes go to memory.
func cover(dir, target, memory string) error {
	upper, work := filepath.Join(memory, "upper"), filepath.Join(memory, "work")
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("covering %s: %w", dir, err)
	}
	for _, path := range []string{memory, upper, work} {
		if err := os.Mkdir(path, 0o755); err != nil {
			return fmt.Errorf("covering %s: %w", dir, err)
		}
	}
	if err := os.Chmod(upper, info.Mode()); err != nil {
		return fmt.Errorf("covering %s: %w", dir, err)
	}
	return mount("overlay", target, "overlay", 0, "lowerdir="+dir+",upperdir="+upper+",workdir="+work)
}

func fillRoot(spec Spec, root string, groups []hierarchy) error {
	bind := func(source, target string) error {
		return mount(source, filepath.Join(root, target), "", unix.MS_BIND|unix.MS_REC, "")
	}
	if err := bind("/dev", "/dev"); err != nil {
		return err
	}
	for target, kind := range map[string]string{"/proc": "proc", "/sys": "sysfs", "/run": "tmpfs", "/tmp": "tmpfs", "/dev/shm": "tmpfs"} {
		if err := mount(kind, filepath.Join(root, target), kind, 0, ""); err != nil {
			return err
		}
	}
	for _, open := range []string{"tmp", "dev/shm"} {
		if err := os.Chmod(filepath.Join(root, open), 0o777|os.ModeSticky); err != nil {
			return err
		}
	}
	if err := mountGroups(root, groups); err != nil {
		return err
	}
	for _, path := range spec.Disk {
		source := filepath.Join(spec.Dir, "disk", strings.ReplaceAll(strings.Trim(path, "/"), "/", "-"))
		if err := os.MkdirAll(source, 0o755); err != nil {
			return err
		}
		if err := bind(source, path); err != nil {
			return err
		}
	}
	for _, path := range spec.Visible {
		if err := bind(path, path); err != nil {
			return err
		}
	}
	if err := mount(spec.Dir, filepath.Join(root, spec.Dir), "", unix.MS_BIND, ""); err != nil {
		return err
	}
	return decorate(spec, root)
}

// decorate adds the symbolic links and the pretended files.
func decorate(spec Spec, root string) error {
	for from, to := range spec.Links {
		if err := os.MkdirAll(filepath.Join(root, to), 0o755); err != nil {
			return err
		}
		entries, err := os.ReadDir(from)
		if err != nil {
			return fmt.Errorf("reading %s: %w", from, err)
		}
		for _, entry := range entries {
			path := filepath.Join(root, to, entry.Name())
			if err := os.Symlink(filepath.Join(from, entry.Name()), path); err != nil && !os.IsExist(err) {
				return err
			}
		}
	}
	number := 0
	for path, text := range spec.Pretend {
		target := filepath.Join(root, path)
		if _, err := os.Stat(target); err != nil {
			continue
		}
		number++
		source := filepath.Join(root, "run", fmt.Sprintf(".pretend-%d", number))
		if err := os.WriteFile(source, []byte(text), 0o644); err != nil {
			return err
		}
		if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("covering %s: %w", path, err)
		}
	}
	return nil
}

// mountGroups mounts the host's control-group layout again, seen from the
// machine's own group.
func mountGroups(root string, groups []hierarchy) error {
	if len(groups) == 1 {
		return mount(groups[0].Type, filepath.Join(root, groups[0].Mount), groups[0].Type, 0, "")
	}
	if err := mount("tmpfs", filepath.Join(root, "/sys/fs/cgroup"), "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	for _, h := range groups {
		options := h.Options
		if h.Type == "cgroup2" {
			options = ""
		}
		if err := mount(h.Type, filepath.Join(root, h.Mount), h.Type, 0, options); err != nil {
			return err
		}
	}
	return nil
}

func isMount(path string) bool {
	var here, parent unix.Stat_t
	if unix.Lstat(path, &here) != nil || unix.Lstat(filepath.Dir(path), &parent) != nil {
		return false
	}
	return here.Mode&unix.S_IFMT == unix.S_IFDIR && here.Dev != parent.Dev
}
