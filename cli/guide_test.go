package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestGuide holds that the commands of pages that tell how things are exist, with their flags.
func TestGuide(t *testing.T) {
	pages := []string{"../README.md"}
	for _, pattern := range []string{"../docs/*.md", "../docs/kinds/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) < 10 {
			t.Fatalf("%s: %d pages, %v", pattern, len(found), err)
		}
		pages = append(pages, found...)
	}
	seen := 0
	for _, page := range pages {
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
			said := []string{line}
			if !code {
				said = nil
				for i, part := range strings.Split(line, "`") {
					if i%2 == 1 {
						said = append(said, part)
					}
				}
			}
			for _, text := range said {
				words := strings.Fields(strings.ReplaceAll(text, "…", "x"))
				if len(words) == 0 || words[0] != "pelago" {
					continue
				}
				seen++
				command, rest, err := New(environment(nil, nil)).Find(words[1:])
				if err == nil {
					err = command.ParseFlags(rest)
				}
				if err == nil && code && command.Args != nil {
					err = command.Args(command, command.Flags().Args())
				}
				if err != nil {
					t.Errorf("%s: %s: %v", page, text, err)
				}
			}
		}
	}
	if seen < 150 {
		t.Errorf("only %d commands were found", seen)
	}
}
