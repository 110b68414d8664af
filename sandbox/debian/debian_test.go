package debian

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMissing(t *testing.T) {
	before := needs
	t.Cleanup(func() { needs = before })
	there := filepath.Join(t.TempDir(), "there")
	if err := os.WriteFile(there, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	needs = []struct{ file, pkg string }{
		{there, "present"}, {there + "-not", "absent"}, {there + "-neither", "absent"}, {"/no/such/file", "another"},
	}
	if d := cmp.Diff([]string{"absent", "another"}, Missing()); d != "" {
		t.Errorf("each missing package is named once (-want +got):\n%s", d)
	}
}

func TestNeedsAreOnADebianHost(t *testing.T) {
	for _, need := range needs {
		if !filepath.IsAbs(need.file) || need.pkg == "" {
			t.Errorf("a need is incomplete: %+v", need)
		}
		if _, err := os.Stat(need.file); err != nil {
			continue
		}
		out, err := exec.Command("dpkg-query", "--search", need.file).Output()
		if err != nil {
			continue // no Debian, or a merged /usr under which dpkg knows another path
		}
		if owner, _, _ := strings.Cut(string(out), ":"); owner != need.pkg {
			t.Errorf("%s is in %s, not in %s", need.file, owner, need.pkg)
		}
	}
}
