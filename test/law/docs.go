package law

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// PackageDocs finds packages without exactly one package comment of at least a
// sentence. A package of tests alone has it in one of its tests.
func PackageDocs(tree Tree) []string {
	var found []string
	for _, p := range tree.Packages {
		var documented []string
		for _, file := range p.Files {
			if file.Test && !testsOnly(p) {
				continue
			}
			if doc := file.Syntax.Doc.Text(); doc != "" {
				documented = append(documented, file.Path)
				if !strings.Contains(doc, ".") {
					found = append(found, file.Path+": the package comment is not a sentence; say what the package is for")
				}
			}
		}
		switch len(documented) {
		case 0:
			found = append(found, p.Dir+": no package comment; say what it is for and what it never does")
		case 1:
		default:
			found = append(found, fmt.Sprintf("%s: %d package comments (%s); keep one", p.Dir, len(documented), strings.Join(documented, ", ")))
		}
	}
	slices.Sort(found)
	return found
}

func testsOnly(p Package) bool {
	return !slices.ContainsFunc(p.Files, func(f Source) bool { return !f.Test })
}

// Documented finds exported names without a comment, tests and generated files
// excepted. A comment on a group of constants or variables serves all of them.
func Documented(tree Tree) []string {
	var found []string
	for _, p := range tree.Packages {
		for _, file := range p.Files {
			if file.Test || file.Generated {
				continue
			}
			for _, name := range undocumented(file.Syntax) {
				found = append(found, fmt.Sprintf("%s: %s has no comment", file.Path, name))
			}
		}
	}
	slices.Sort(found)
	return found
}

func undocumented(file *ast.File) []string {
	var names []string
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && exportedReceiver(d) && d.Doc.Text() == "" {
				names = append(names, d.Name.Name)
			}
		case *ast.GenDecl:
			names = append(names, undocumentedSpecs(d)...)
		}
	}
	return names
}

func undocumentedSpecs(d *ast.GenDecl) []string {
	var names []string
	grouped := d.Doc.Text() != ""
	for _, spec := range d.Specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			alone := grouped && !d.Lparen.IsValid()
			if s.Name.IsExported() && !alone && s.Doc.Text() == "" && s.Comment.Text() == "" {
				names = append(names, s.Name.Name)
			}
		case *ast.ValueSpec:
			if grouped || s.Doc.Text() != "" || s.Comment.Text() != "" || d.Tok == token.IMPORT {
				continue
			}
			for _, name := range s.Names {
				if name.IsExported() {
					names = append(names, name.Name)
				}
			}
		}
	}
	return names
}

// exportedReceiver reports whether a function is no method, or a method that users
// of the package can see.
func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return true
	}
	receiver := d.Recv.List[0].Type
	for {
		switch t := receiver.(type) {
		case *ast.StarExpr:
			receiver = t.X
		case *ast.IndexExpr:
			receiver = t.X
		case *ast.IndexListExpr:
			receiver = t.X
		case *ast.ParenExpr:
			receiver = t.X
		case *ast.Ident:
			return t.IsExported()
		default:
			return true
		}
	}
}
