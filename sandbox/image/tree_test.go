package image

import (
	"archive/tar"
	"bytes"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func link(target string) *entry { return &entry{kind: symlink, mode: 0o777, target: target} }

func TestPut(t *testing.T) {
	type step struct {
		path string
		e    *entry
	}
	file := text(0o644, []byte("x"))
	dir := &entry{kind: folder, mode: 0o700}
	for _, c := range []struct {
		reason string
		steps  []step
		want   []string // keys
		err    string
	}{
		{"folders on the way are made", []step{{"/a/b/c", file}}, []string{"a", "a/b", "a/b/c"}, ""},
		{"paths cannot leave the root", []step{{"../../a", file}}, []string{"a"}, ""},
		{"merged /usr: a link to a folder is followed, and a folder leaves it", []step{{"bin", link("usr/bin")}, {"./bin/", dir}, {"./bin/sh", file}},
			[]string{"bin", "usr", "usr/bin", "usr/bin/sh"}, ""},
		{"an absolute link stays inside", []step{{"var/run", link("/run")}, {"var/run/x.pid", file}}, []string{"run", "run/x.pid", "var", "var/run"}, ""},
		{"links may go up inside", []step{{"a/l", link("../b")}, {"a/l/f", file}}, []string{"a", "a/l", "b", "b/f"}, ""},
		{"a link is replaced by a file, not written through", []step{{"l", link("/etc/passwd")}, {"l", file}}, []string{"l"}, ""},
		{"a ring of links ends", []step{{"a", link("b")}, {"b", link("a")}, {"a/f", file}}, []string{"a", "b"}, "too many symbolic links"},
		{"a file is no folder", []step{{"a", file}, {"a/b", file}}, []string{"a"}, "is a file"},
		{"a folder is no file", []step{{"a/b", file}, {"a", file}}, []string{"a", "a/b"}, "at once"},
		{"a file is not turned into a folder", []step{{"a", file}, {"a", dir}}, []string{"a"}, "at once"},
	} {
		tr, err := newTree(), error(nil)
		for _, s := range c.steps {
			if err == nil {
				err = tr.put(s.path, s.e)
			}
		}
		if diff := cmp.Diff(c.want, slices.Sorted(maps.Keys(tr.entries))); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", c.reason, diff)
		}
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: error %v, want %q", c.reason, err, c.err)
		}
	}
}

func TestPutKeepsModes(t *testing.T) {
	tr := newTree()
	for _, s := range []struct {
		path string
		mode int64
	}{{"a/b", 0o700}, {"a", 0o710}, {"a", 0o777}} {
		if err := tr.put(s.path, &entry{kind: folder, mode: s.mode}); err != nil {
			t.Fatal(err)
		}
	}
	if got := tr.entries["a"].mode; got != 0o710 {
		t.Errorf("mode %o: the first who describes a folder decides, so want 0710", got)
	}
}

func TestFollow(t *testing.T) {
	tr := newTree()
	for p, e := range map[string]*entry{
		"usr/bin/redis-check": text(0o755, []byte("program")),
		"usr/bin/redis":       link("redis-check"),
		"bin":                 link("usr/bin"),
		"ring":                link("ring"),
		"gone":                link("/nowhere"),
	} {
		if err := tr.put(p, e); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		path, reason string
		kind         byte
	}{
		{"/bin/redis", "through a folder link and a file link", regular},
		{"/ring", "a ring ends", 0},
		{"/gone", "a link to nothing", 0},
		{"/usr/bin/redis/x", "below a file", 0},
		{"/usr", "a folder", folder},
	} {
		var kind byte
		if e := tr.follow(c.path); e != nil {
			kind = e.kind
		}
		if kind != c.kind {
			t.Errorf("follow(%s) is %q, want %q: %s", c.path, kind, c.kind, c.reason)
		}
	}
	if e := tr.find("/bin/redis"); e == nil || e.kind != symlink {
		t.Errorf("find follows the last link: %+v", e)
	}
	if _, err := tr.read("/bin/redis", 3); err == nil {
		t.Error("reading 7 bytes with a limit of 3 works")
	}
}

// TestLayer checks what a folder cannot show: a file under two names is stored
// once, and a file that shrinks while it is read is told.
func TestLayer(t *testing.T) {
	tr, file := newTree(), text(0o644, []byte("x"))
	for _, p := range []string{"b", "a/c"} {
		if err := tr.put(p, file); err != nil {
			t.Fatal(err)
		}
	}
	var layer bytes.Buffer
	if err := writeTree(t.Context(), tr, &layer); err != nil {
		t.Fatal(err)
	}
	var got []string
	for r := tar.NewReader(&layer); ; {
		h, err := r.Next()
		if err != nil {
			break
		}
		got = append(got, h.Name+" "+string(h.Typeflag)+" "+h.Linkname)
	}
	if diff := cmp.Diff([]string{"a/ 5 ", "a/c 0 ", "b 1 a/c"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	file.size = 2
	if err := writeTree(t.Context(), tr, io.Discard); err == nil || !strings.Contains(err.Error(), "build again") {
		t.Errorf("a file that shrank: %v", err)
	}
}
