package dataplane

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/network/netns"
)

// space is a network namespace as this process works on it.
type space struct {
	name   string // for errors
	file   *os.File
	kernel *netlink.Handle
	filter *filter
	// cuts are those of a gateway.
	cuts cuts
	// writes counts what was changed, in all namespaces of a Kernel.
	writes *atomic.Int64
	watch  *watcher
	// laid is what was made here when it was last looked at, nil if that is not known.
	laid *laid
}

// openSpace takes over the file.
func openSpace(name string, file *os.File, writes *atomic.Int64) (*space, error) {
	kernel, err := netns.Netlink(file)
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &space{name: name, file: file, kernel: kernel, filter: &filter{at: file, name: name}, writes: writes}, nil
}

func (s *space) close() {
	if s.watch != nil {
		s.watch.close()
	}
	s.filter.close()
	s.kernel.Close()
	_ = s.file.Close()
}

// same holds when the file is of the namespace that is open.
func (s *space) same(file *os.File) bool {
	a, errA := s.file.Stat()
	b, errB := file.Stat()
	return errA == nil && errB == nil && os.SameFile(a, b)
}

// wrote counts a change, and says where and at what an error was.
func (s *space) wrote(what fmt.Stringer, verb string, err error) error {
	s.writes.Add(1)
	if err != nil {
		return fmt.Errorf("%s in %s: %s: %w", verb, s.name, what, err)
	}
	return nil
}

// links returns all devices by name.
func (s *space) links() (map[string]netlink.Link, error) {
	list, err := netns.Whole(s.kernel.LinkList)
	if err != nil {
		return nil, fmt.Errorf("listing devices of %s: %w", s.name, err)
	}
	byName := make(map[string]netlink.Link, len(list))
	for _, l := range list {
		byName[l.Attrs().Name] = l
	}
	return byName, nil
}

// applySettings writes those sysctls that have another value.
func (s *space) applySettings(wanted []setting) error {
	if len(wanted) == 0 {
		return nil
	}
	return netns.In(s.file, func() error {
		for _, w := range wanted {
			path := filepath.Join("/proc/sys/net", w.key)
			have, err := os.ReadFile(path)
			if err != nil {
				return fmt.Errorf("reading sysctl %s in %s: %w", w.key, s.name, err)
			}
			if strings.TrimSpace(string(have)) == w.value {
				continue
			}
			if err := s.wrote(w, "writing", os.WriteFile(path, []byte(w.value), 0)); err != nil {
				return err
			}
		}
		return nil
	})
}

// gone holds for the errors about what is not there any more.
func gone(err error) bool {
	var missing netlink.LinkNotFoundError
	return errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) ||
		errors.Is(err, unix.EADDRNOTAVAIL) || errors.As(err, &missing)
}
