package law

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strings"
)

// Fuzzed finds fuzz tests of the product that have no inputs beside them: every go test tries what was found
// once again, and of these nothing.
func Fuzzed(tree Tree) []string {
	kept := map[string]bool{}
	for name := range tree.Texts {
		kept[path.Dir(name)] = true
	}
	var found []string
	for _, p := range tree.Packages {
		if p.Module != productPath(tree) {
			continue // the sandbox reads nothing that a peer sends
		}
		for _, file := range p.Files {
			for _, d := range file.Syntax.Decls {
				f, ok := d.(*ast.FuncDecl)
				if !ok || !file.Test || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Fuzz") {
					continue
				}
				if inputs := path.Join(p.Dir, "testdata/fuzz", f.Name.Name); !kept[inputs] {
					found = append(found, fmt.Sprintf("%s: nothing is in %s; run: go run ./test/corpora -time 30s ./%s", file.Path, inputs, p.Dir))
				}
			}
		}
	}
	slices.Sort(found)
	return found
}
