package image

import (
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// busyboxPath is where Debian's busybox lies after /bin has become /usr/bin.
const busyboxPath = "/usr/bin/busybox"

// addApplets links busybox's commands to it, except those that another package
// brings: it fills gaps, it replaces nothing.
func (b *builder) addApplets(ctx context.Context) error {
	e := b.tree.find(busyboxPath)
	if e == nil || e.kind != regular {
		return nil
	}
	program := filepath.Join(b.work, "busybox")
	if err := writeProgram(program, e); err != nil {
		return fmt.Errorf("unpacking busybox: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	list, err := output(command(ctx, program, "--list-full"))
	if err != nil {
		return fmt.Errorf("asking busybox for its commands: %w", err)
	}
	for _, applet := range strings.Fields(list) {
		if b.provides(path.Base(applet)) {
			continue
		}
		if err := b.tree.put(applet, &entry{kind: symlink, mode: 0o777, target: busyboxPath}); err != nil {
			return fmt.Errorf("linking busybox: %w", err)
		}
	}
	return nil
}

// provides reports whether a command is there already.
func (b *builder) provides(command string) bool {
	return b.tree.find("/usr/bin/"+command) != nil || b.tree.find("/usr/sbin/"+command) != nil
}

// writeProgram writes a file that is run next. Nothing else may fork meanwhile:
// a child would hold the file open for writing, and then it cannot be run.
func writeProgram(file string, e *entry) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	r, err := e.open()
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o700)
	if err != nil {
		return err
	}
	if _, err := io.Copy(f, r); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}
