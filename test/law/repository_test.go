package law

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestRepository applies every law to this repository: all files that are committed
// or would be by `git add`.
func TestRepository(t *testing.T) {
	tree, err := Parse(repositoryFiles(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(tree.Packages) == 0 || len(tree.Modules) < 2 {
		t.Fatalf("read %d packages and %d modules: this is not the repository", len(tree.Packages), len(tree.Modules))
	}
	for _, law := range []struct {
		name string
		find func(Tree) []string
	}{
		{"imports", Imports}, {"modules", Modules}, {"names", Names}, {"lengths", Lengths},
		{"words", Words}, {"packagedocs", PackageDocs}, {"documented", Documented},
		{"metrics", Metrics}, {"fuzzed", Fuzzed}, {"limiters", Limiters},
	} {
		t.Run(law.name, func(t *testing.T) {
			for _, finding := range law.find(tree) {
				t.Error(finding)
			}
		})
	}
}

// repositoryFiles reads the files git knows or would take, path from the root to text.
func repositoryFiles(t *testing.T) map[string]string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	list := exec.Command("git", "-c", "safe.directory="+root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir, list.Stderr = root, os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatalf("listing the files of the repository with git: %v", err)
	}
	texts := map[string]string{}
	for name := range bytes.SplitSeq(bytes.TrimSuffix(out, []byte{0}), []byte{0}) {
		text, err := os.ReadFile(filepath.Join(root, string(name)))
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted, and not yet committed so
		}
		if err != nil {
			t.Fatal(err)
		}
		texts[string(name)] = string(text)
	}
	return texts
}
