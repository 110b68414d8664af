package config

import (
	"os"
	"strings"
	"testing"
)

// TestParseTheManual reads the example that docs/sandbox.md shows.
func TestParseTheManual(t *testing.T) {
	page, err := os.ReadFile("../../docs/sandbox.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(page), "```yaml\n")
	example, _, closed := strings.Cut(rest, "```")
	if !ok || !closed {
		t.Fatal("docs/sandbox.md shows no YAML")
	}
	got, err := Parse("docs/sandbox.md", []byte(example))
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Clusters) != 4 || got.Clusters[3].CNI != CNIFlannel || !got.Clusters[2].BehindNAT {
		t.Errorf("the manual's example reads as %+v", got)
	}
}
