package image

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseAlternatives(t *testing.T) {
	for _, c := range []struct {
		reason, script string
		want           []alternative
	}{
		{"one line", "update-alternatives --install /usr/bin/awk awk /usr/bin/mawk 5\n",
			[]alternative{{5, map[string]string{"/usr/bin/awk": "/usr/bin/mawk"}, "/usr/bin/awk"}}},
		{"several lines, with what goes with it, in quotes, in an if", `
if [ "$1" = configure ]; then
	update-alternatives --quiet --install "/usr/bin/awk" awk \
	  /usr/bin/gawk 10 \
	  --slave /usr/bin/nawk nawk /usr/bin/gawk || true
fi`,
			[]alternative{{10, map[string]string{"/usr/bin/awk": "/usr/bin/gawk", "/usr/bin/nawk": "/usr/bin/gawk"}, "/usr/bin/awk"}}},
		{"an end with semicolon", "update-alternatives --install /a a /b 1; then", []alternative{{1, map[string]string{"/a": "/b"}, "/a"}}},
		{"variables are for a shell", "update-alternatives --install /usr/bin/$tool $tool $dir/$tool 10", nil},
		{"a comment", "# update-alternatives --install /a a /b 1", nil},
		{"removal", "update-alternatives --remove awk /usr/bin/gawk", nil},
		{"too few words", "update-alternatives --install /a a /b", nil},
		{"no number", "update-alternatives --install /a a /b c", nil},
		{"relative", "update-alternatives --install a a b 1", nil},
		{"nothing", "", nil},
	} {
		got := parseAlternatives([]byte(c.script))
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(alternative{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.reason, diff)
		}
	}
}

// TestLongScript holds that no part of a script is taken for the whole.
func TestLongScript(t *testing.T) {
	requireDebian(t)
	const call = "update-alternatives --install /usr/bin/awk awk /usr/bin/mawk 5\n"
	for size, want := range map[int]string{maxText: "", maxText + 1: "postinst has 1048577 bytes, at most 1048576 are read"} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "in", "DEBIAN", "control"), "Package: long\nVersion: 1\nArchitecture: all\nMaintainer: nobody <nobody@example.org>\nDescription: long\n", 0o644)
		write(t, filepath.Join(dir, "in", "DEBIAN", "postinst"), "#!/bin/sh\n#"+strings.Repeat("x", size-len(call)-len("#!/bin/sh\n#\n"))+"\n"+call, 0o755)
		file := filepath.Join(dir, "long.deb")
		if _, err := output(command(t.Context(), "dpkg-deb", "--build", filepath.Join(dir, "in"), file)); err != nil {
			t.Fatal(err)
		}
		found, err := readAlternatives(t.Context(), file)
		switch {
		case want == "" && (err != nil || len(found) != 1):
			t.Errorf("of a script of %d bytes: %v, %v", size, found, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("of a script of %d bytes: %v, %v", size, found, err)
		}
	}
}

func TestLinkAlternatives(t *testing.T) {
	tr := newTree()
	for _, p := range []string{"usr/bin/mawk", "usr/bin/gawk", "usr/bin/vi", "usr/bin/vim"} {
		if err := tr.put(p, text(0o755, nil)); err != nil {
			t.Fatal(err)
		}
	}
	offer := func(priority int, link, target string) alternative {
		return alternative{priority, map[string]string{link: target, link + ".also": target}, link}
	}
	if err := linkAlternatives(tr, []alternative{
		offer(5, "/usr/bin/awk", "/usr/bin/mawk"),
		offer(10, "/usr/bin/awk", "/usr/bin/gawk"),
		offer(99, "/usr/bin/awk", "/usr/bin/gone"),
		offer(1, "/usr/bin/vi", "/usr/bin/vim"),
	}); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for key, e := range tr.entries {
		if e.kind == symlink {
			got[key] = e.target
		}
	}
	want := map[string]string{
		"usr/bin/awk": "/usr/bin/gawk", "usr/bin/awk.also": "/usr/bin/gawk", // the best that is there
		"usr/bin/vi.also": "/usr/bin/vim", // vi itself is a package's file
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
