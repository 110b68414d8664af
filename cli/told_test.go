package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// toldCommand is a command of ours in prose: what follows it ends with the clause.
var toldCommand = regexp.MustCompile(`\bpelago ((?:[a-z][a-z-]* ?)*)([^,;:()\n]*)`)

// argument is what commands have after them, and prose has not.
var argument = regexp.MustCompile(`^(--[a-z]|%|[A-Z]+$)`)

// TestToldCommands holds that the commands which programs tell people to run, in remedies, refusals and
// conditions, exist with their flags.
func TestToldCommands(t *testing.T) {
	seen := 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			literal, is := n.(*ast.BasicLit)
			if !is || literal.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Errorf("%s: %v", path, err)
			}
			for _, m := range toldCommand.FindAllStringSubmatch(text, -1) {
				command, _, err := New(environment(nil, nil)).Find(strings.Fields(m[1]))
				words := strings.Fields(m[2])
				if err != nil || !command.HasParent() {
					if m[1] != "" && len(words) > 0 && argument.MatchString(words[0]) {
						t.Errorf("%s: %q is no command: %v", path, m[0], err)
					}
					continue // prose
				}
				seen++
				for _, word := range words {
					if !has(command, word) {
						t.Errorf("%s: %q: %s has no such flag", path, m[0], command.CommandPath())
					}
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 200 {
		t.Errorf("only %d commands were found", seen)
	}
}

// has says whether a word is no flag, or one of the command's.
func has(command *cobra.Command, word string) bool {
	name, flag := strings.CutPrefix(word, "--")
	name, _, _ = strings.Cut(name, "=")
	if !flag || name == "" {
		return true
	}
	command.InheritedFlags() // which merges them
	return command.Flag(name) != nil
}
