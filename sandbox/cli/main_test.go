package cli

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares a text with testdata/NAME.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; run the test with -update", err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got):\n%s", path, d)
	}
}

// output is what the program left behind.
type output struct {
	code        int
	out, stderr string
}

// program runs the whole program with arguments.
func program(args ...string) output {
	var out, stderr bytes.Buffer
	args = append([]string{}, args...) // nil would mean the test's own
	code := Main("v1.2.3", args, strings.NewReader(""), &out, &stderr)
	return output{code, out.String(), stderr.String()}
}

// tree is the tree of all commands.
func tree() *cobra.Command {
	return New("v1.2.3", strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{})
}

// visible lists every command that help shows, the root first.
func visible(root *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{root}
	for _, child := range root.Commands() {
		if !child.Hidden && child.Name() != "help" && child.Name() != "completion" {
			all = append(all, visible(child)...)
		}
	}
	return all
}

// nobody is the name of a sandbox that nobody has.
func nobody(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("needs root to look for a sandbox")
		}
		t.Skip("needs root to look for a sandbox; run as root")
	}
	raw := make([]byte, 4)
	_, _ = rand.Read(raw)
	return "test-" + hex.EncodeToString(raw)
}
