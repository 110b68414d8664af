package build

import (
	"bufio"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// filling returns a maker that writes one file and counts its calls.
func filling(calls *atomic.Int32, text string) func(context.Context, string) error {
	return func(_ context.Context, dir string) error {
		calls.Add(1)
		return os.WriteFile(filepath.Join(dir, "file"), []byte(text), 0o644)
	}
}

// content is the text of every file of a cache but locks, by relative path.
func content(t *testing.T, cache Cache) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(cache.Dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() && path == cache.Dir || strings.HasSuffix(path, ".lock") {
			return err
		}
		name, _ := filepath.Rel(cache.Dir, path)
		if entry.IsDir() {
			found[name+"/"] = ""
			return nil
		}
		text, err := os.ReadFile(path)
		found[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestEntryIsMadeOnce(t *testing.T) {
	cache := Cache{Dir: filepath.Join(t.TempDir(), "not", "there", "yet")}
	var calls atomic.Int32
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			dir, err := cache.Entry(context.Background(), "kind/name", filling(&calls, "text"))
			if err != nil {
				t.Errorf("filling the entry: %v", err)
				return
			}
			if text, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(text) != "text" {
				t.Errorf("an entry was handed out before it was whole: %q, %v", text, err)
			}
		})
	}
	group.Wait()
	if n := calls.Load(); n != 1 {
		t.Errorf("the entry was made %d times", n)
	}
	want := map[string]string{"kind/": "", "kind/name/": "", "kind/name/file": "text"}
	if d := cmp.Diff(want, content(t, cache)); d != "" {
		t.Errorf("the cache (-want +got):\n%s", d)
	}
}

func TestEntriesAreApart(t *testing.T) {
	cache := Cache{Dir: t.TempDir()}
	var calls atomic.Int32
	for _, name := range []string{"a", "b"} {
		dir, err := cache.Entry(context.Background(), name, filling(&calls, name))
		if want := filepath.Join(cache.Dir, name); err != nil || dir != want {
			t.Errorf("entry %s is in %s, %v, want %s", name, dir, err, want)
		}
	}
	if d := cmp.Diff(map[string]string{"a/": "", "a/file": "a", "b/": "", "b/file": "b"}, content(t, cache)); d != "" {
		t.Errorf("the cache (-want +got):\n%s", d)
	}
}

func TestFailedEntryLeavesNothing(t *testing.T) {
	cache := Cache{Dir: t.TempDir()}
	broken := errors.New("the disk is full")
	_, err := cache.Entry(context.Background(), "name", func(_ context.Context, dir string) error {
		return errors.Join(os.WriteFile(filepath.Join(dir, "half"), nil, 0o644), broken)
	})
	if !errors.Is(err, broken) {
		t.Errorf("the error is %v, want %v", err, broken)
	}
	if d := cmp.Diff(map[string]string{}, content(t, cache)); d != "" {
		t.Errorf("after a failure (-want +got):\n%s", d)
	}
	var calls atomic.Int32
	if _, err := cache.Entry(context.Background(), "name", filling(&calls, "text")); err != nil || calls.Load() != 1 {
		t.Errorf("the next attempt: %v, made %d times", err, calls.Load())
	}
}

// TestEntryIsOnDiskBeforeItIsThere: after a power cut an entry that is there would be taken for whole.
func TestEntryIsOnDiskBeforeItIsThere(t *testing.T) {
	before := flush
	t.Cleanup(func() { flush = before })
	cache := Cache{Dir: t.TempDir()}
	full := errors.New("the disk is full")
	for _, fails := range []error{full, nil} {
		var seen []map[string]string
		flush = func(dir string) error {
			seen = append(seen, content(t, cache))
			return errors.Join(before(dir), fails)
		}
		var calls atomic.Int32
		if _, err := cache.Entry(context.Background(), "name", filling(&calls, "text")); !errors.Is(err, fails) {
			t.Errorf("the error is %v, want %v", err, fails)
		}
		if d := cmp.Diff([]map[string]string{{"name.new/": "", "name.new/file": "text"}}, seen); d != "" {
			t.Errorf("the cache when it is written to disk (-want +got):\n%s", d)
		}
		if got := content(t, cache); fails != nil && len(got) != 0 {
			t.Errorf("what could not be written has left %v", got)
		}
	}
	if d := cmp.Diff(map[string]string{"name/": "", "name/file": "text"}, content(t, cache)); d != "" {
		t.Errorf("the cache (-want +got):\n%s", d)
	}
}

func TestLeftoversOfACrashAreCleared(t *testing.T) {
	cache := Cache{Dir: t.TempDir()}
	if err := os.MkdirAll(filepath.Join(cache.Dir, "name.new", "half"), 0o755); err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int32
	if _, err := cache.Entry(context.Background(), "name", filling(&calls, "text")); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]string{"name/": "", "name/file": "text"}, content(t, cache)); d != "" {
		t.Errorf("the cache (-want +got):\n%s", d)
	}
}

// TestOtherProcessIsWaitedFor has another process fill the entry meanwhile.
func TestOtherProcessIsWaitedFor(t *testing.T) {
	cache := Cache{Dir: t.TempDir()}
	other := exec.Command("/proc/self/exe", "test-entry", cache.Dir)
	other.Stderr = os.Stderr
	in, _ := other.StdinPipe()
	out, err := other.StdoutPipe()
	if err == nil {
		err = other.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = other.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "filling\n" {
		t.Fatalf("the other process says %q, %v", line, err)
	}
	never := func(context.Context, string) error { return errors.New("two fill the entry at once") }

	short, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if _, err := cache.Entry(short, "kind/name", never); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "waiting for another build") {
		t.Errorf("waiting for too long: %v", err)
	}
	long, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	type answer struct {
		dir string
		err error
	}
	second := make(chan answer, 1)
	go func() {
		dir, err := cache.Entry(long, "kind/name", never)
		second <- answer{dir, err}
	}()
	if _, err := in.Write([]byte("go on\n")); err != nil {
		t.Fatal(err)
	}
	got := <-second
	if got.err != nil {
		t.Fatal(got.err)
	}
	if text, err := os.ReadFile(filepath.Join(got.dir, "file")); err != nil || string(text) != "by the other process" {
		t.Errorf("the second caller has %q, %v", text, err)
	}
}

func TestCacheThatCannotBeMade(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := Cache{Dir: file}.Entry(context.Background(), "name", nil)
	if err == nil || !strings.Contains(err.Error(), "making the cache") {
		t.Errorf("a cache below a file: %v", err)
	}
}

func TestDefaultDir(t *testing.T) {
	t.Setenv("HOME", "/home/somebody")
	for _, c := range []struct{ reason, own, xdg, want string }{
		{"the user's cache folder", "", "", "/home/somebody/.cache/pelago-sandbox"},
		{"wherever that is", "", "/elsewhere", "/elsewhere/pelago-sandbox"},
		{"our own variable goes first, as it is", "/big/disk", "/elsewhere", "/big/disk"},
	} {
		t.Setenv(CacheVariable, c.own)
		t.Setenv("XDG_CACHE_HOME", c.xdg)
		if got, err := DefaultDir(); err != nil || got != c.want {
			t.Errorf("%s: %q, %v, want %q", c.reason, got, err, c.want)
		}
	}
	t.Setenv(CacheVariable, "relative")
	if got, err := DefaultDir(); err != nil || !filepath.IsAbs(got) {
		t.Errorf("a relative %s leads to %q, %v", CacheVariable, got, err)
	}
	t.Setenv(CacheVariable, "")
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", "")
	if _, err := DefaultDir(); err == nil || !strings.Contains(err.Error(), CacheVariable) {
		t.Errorf("without a home the error does not name the remedy: %v", err)
	}
}

func TestFingerprint(t *testing.T) {
	seen := map[string][]string{}
	for _, texts := range [][]string{
		nil, {""}, {"", ""}, {"a"}, {"a", ""}, {"", "a"}, {"ab"}, {"a", "b"}, {"b", "a"}, {"a", "b", ""},
		{"1:a"}, {"1", "a"}, {"a1:b"}, {"11:aaaaaaaaaaa"}, {"1:1:a", "1:"}, {"1:1:", "a1:"}, {"\x00"}, {"", "\x00"},
	} {
		sum := Fingerprint(texts...)
		if other, taken := seen[sum]; taken {
			t.Errorf("%q and %q have the same fingerprint", texts, other)
		}
		seen[sum] = texts
		if again := Fingerprint(texts...); again != sum || len(sum) != 12 {
			t.Errorf("the fingerprint of %q is %q, then %q", texts, sum, again)
		}
	}
}
