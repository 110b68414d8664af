package cli

import (
	"os"
	"strings"
	"testing"
)

// TestGuide holds that the commands of pages that people begin with exist, with their flags.
func TestGuide(t *testing.T) {
	seen := 0
	for _, page := range []string{"../README.md", "../docs/guide.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		code := false
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "```") {
				code = !code
			}
			line, _, _ = strings.Cut(strings.TrimSpace(line), " #")
			words := strings.Fields(strings.ReplaceAll(line, "…", "x"))
			if !code || len(words) == 0 || words[0] != "pelago" {
				continue
			}
			seen++
			command, rest, err := New(environment(nil, nil)).Find(words[1:])
			if err == nil {
				err = command.ParseFlags(rest)
			}
			if err == nil && command.Args != nil {
				err = command.Args(command, command.Flags().Args())
			}
			if err != nil {
				t.Errorf("%s: %s: %v", page, line, err)
			}
		}
	}
	if seen < 25 {
		t.Errorf("only %d commands were found", seen)
	}
}
