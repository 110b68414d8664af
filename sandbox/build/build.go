// Package build compiles what a sandbox runs (Kubernetes and the add-ons) from
// Go modules, once, into a cache. A program's place in the cache is named by
// its version and by a hash of its sources and module files, so a cache is
// never stale and several versions live side by side.
package build

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/sandbox"
)

// CacheVariable names the environment variable that moves the cache.
const CacheVariable = "PELAGO_SANDBOX_CACHE"

// Cache is a folder of built programs and images, safe for use by several
// processes at once.
type Cache struct {
	Dir string
	// Progress is told, about once a second, what is going on. It may be nil.
	Progress func(line string)
}

// DefaultDir is the cache's place: $PELAGO_SANDBOX_CACHE, or pelago-sandbox in
// the user's cache folder.
func DefaultDir() (string, error) {
	if dir := os.Getenv(CacheVariable); dir != "" {
		return filepath.Abs(dir)
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding a folder for the cache; set %s: %w", CacheVariable, err)
	}
	return filepath.Join(base, "pelago-sandbox"), nil
}

// Entry runs make, once, to fill the folder of an entry, and returns the
// folder. Whoever comes second waits. A failed attempt leaves nothing, and neither
// does one that a power cut ends.
func (c Cache) Entry(ctx context.Context, name string, make func(ctx context.Context, dir string) error) (string, error) {
	final := filepath.Join(c.Dir, name)
	if _, err := os.Stat(final); err == nil {
		return final, nil
	}
	if err := os.MkdirAll(filepath.Dir(final), 0o755); err != nil {
		return "", fmt.Errorf("making the cache: %w", err)
	}
	unlock, err := lock(ctx, final+".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(final); err == nil {
		return final, nil
	}
	dir := final + ".new"
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return "", fmt.Errorf("making the cache: %w", err)
	}
	err = make(ctx, dir)
	if err == nil {
		err = flush(dir)
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		return "", err
	}
	return final, os.Rename(dir, final)
}

// flush has the file system of a folder write what it keeps in memory; tests replace it.
var flush = func(dir string) error {
	folder, err := os.Open(dir)
	if err == nil {
		err = errors.Join(unix.Syncfs(int(folder.Fd())), folder.Close())
	}
	if err != nil {
		return fmt.Errorf("writing the cache to disk: %w", err)
	}
	return nil
}

// lock takes an exclusive lock on a file, waiting for it as long as ctx lasts.
func lock(ctx context.Context, path string) (func(), error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("locking the cache: %w", err)
	}
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { file.Close() }, nil
		}
		select {
		case <-ctx.Done():
			file.Close()
			return nil, fmt.Errorf("waiting for another build: %w", ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (c Cache) say(format string, args ...any) {
	if c.Progress != nil {
		c.Progress(fmt.Sprintf(format, args...))
	}
}

// Fingerprint is a short hash of texts, for the name of an entry.
func Fingerprint(texts ...string) string {
	sum := sha256.New()
	for _, text := range texts {
		fmt.Fprintf(sum, "%d:%s", len(text), text)
	}
	return hex.EncodeToString(sum.Sum(nil))[:12]
}

// sources lists the embedded files below the given names, as path and text in
// turn.
func sources(names ...string) ([]string, error) {
	var texts []string
	for _, name := range names {
		err := fs.WalkDir(sandbox.Source, name, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			text, err := sandbox.Source.ReadFile(path)
			texts = append(texts, path, string(text))
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("reading embedded sources: %w", err)
		}
	}
	return texts, nil
}

// unpack writes path-and-text pairs below dir.
func unpack(dir string, texts []string) error {
	for i := 0; i+1 < len(texts); i += 2 {
		path := filepath.Join(dir, texts[i])
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("unpacking sources: %w", err)
		}
		if err := os.WriteFile(path, []byte(texts[i+1]), 0o644); err != nil {
			return fmt.Errorf("unpacking sources: %w", err)
		}
	}
	return nil
}

// compile runs the go command in dir and reports how many packages it has
// compiled.
func (c Cache) compile(ctx context.Context, what, dir string, args ...string) error {
	if _, err := exec.LookPath("go"); err != nil {
		return fmt.Errorf("building %s needs Go 1.26 or later on the PATH: %w", what, err)
	}
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = dir
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = 5 * time.Second
	output, err := command.StderrPipe()
	if err != nil {
		return err
	}
	start := time.Now()
	if err := command.Start(); err != nil {
		return fmt.Errorf("building %s: %w", what, err)
	}
	var problems bytes.Buffer
	compiled, downloaded, said := 0, 0, start
	lines := bufio.NewReader(output)
	for {
		line, err := lines.ReadString('\n') // of any length: a linker may print its whole command
		if line = strings.TrimSuffix(line, "\n"); line == "" && err != nil {
			break
		}
		switch {
		case strings.HasPrefix(line, "go: downloading"):
			downloaded++
		case isPackage(line):
			compiled++
		default:
			fmt.Fprintln(&problems, line)
		}
		if time.Since(said) >= time.Second {
			said = time.Now()
			c.say("%s: %d modules fetched, %d packages compiled, %s", what, downloaded, compiled, time.Since(start).Round(time.Second))
		}
	}
	if err := command.Wait(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", what, err, strings.TrimSpace(problems.String()))
	}
	c.say("%s: built in %s", what, time.Since(start).Round(time.Second))
	return nil
}

// isPackage tells the lines of go build -v that name a package from others.
func isPackage(line string) bool {
	return line != "" && !strings.HasPrefix(line, "#") && !strings.ContainsAny(line, " \t:")
}
