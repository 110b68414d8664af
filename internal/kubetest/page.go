package kubetest

import (
	"os"
	"strings"
	"testing"
)

// Scripts are the blocks of shell below a heading of a page of the documentation, up to the next
// heading, in their order: what a reader would paste.
func Scripts(t testing.TB, page, heading string) []string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, below, found := strings.Cut(string(text), "\n"+heading+"\n")
	if !found {
		t.Fatalf("%s has no heading %q", page, heading)
	}
	var blocks []string
	inside := false
	for line := range strings.Lines(below) {
		switch {
		case !inside && line == "```sh\n":
			inside, blocks = true, append(blocks, "")
		case inside && line == "```\n":
			inside = false
		case inside:
			blocks[len(blocks)-1] += line
		case strings.HasPrefix(line, "#"):
			return blocks
		}
	}
	return blocks
}
