// Package law keeps the shape of this repository: who may import whom, what a
// package is called and says about itself, what a module may require, and which
// words never appear in a file. The laws are pure functions over a Tree of parsed
// files, so that each of them is proven able to fail on made-up input; the test of
// this package applies all of them to the repository itself. Nothing here runs a
// program or changes a file.
package law

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strings"
)

// Tree is a repository: its modules and its Go packages.
type Tree struct {
	Modules  []Module
	Packages []Package
	// Texts holds every file by its slash-separated path from the root.
	Texts map[string]string
}

// Package is one directory of Go files, with its tests.
type Package struct {
	// Module is the path of the module it belongs to, Dir its directory from the
	// root of the repository ("." for the root), Inner its directory inside the module.
	Module, Dir, Inner string
	// Name is the name in the package clause, without the _test of outside tests.
	Name  string
	Files []Source
}

// Source is one parsed Go file.
type Source struct {
	Path      string
	Syntax    *ast.File
	Test      bool
	Generated bool
	Lines     int
}

// ImportPath returns the path others import the package by.
func (p Package) ImportPath() string {
	if p.Inner == "." {
		return p.Module
	}
	return p.Module + "/" + p.Inner
}

// Parse builds the tree of the given files: path from the root to content. It fails
// when a Go file does not parse, a module file has no module line, or a Go file
// belongs to no module. Files below testdata are texts only.
func Parse(texts map[string]string) (Tree, error) {
	tree := Tree{Texts: texts}
	for _, name := range sortedKeys(texts) {
		if path.Ext(name) != ".mod" {
			continue
		}
		module, err := parseModule(name, texts[name])
		if err != nil {
			return Tree{}, err
		}
		tree.Modules = append(tree.Modules, module)
	}
	packages := map[string]*Package{}
	for _, name := range sortedKeys(texts) {
		if path.Ext(name) != ".go" || inTestdata(name) {
			continue
		}
		if err := addSource(packages, tree.Modules, name, texts[name]); err != nil {
			return Tree{}, err
		}
	}
	for _, dir := range sortedKeys(packages) {
		tree.Packages = append(tree.Packages, *packages[dir])
	}
	return tree, nil
}

// addSource parses one Go file into the package of its directory.
func addSource(packages map[string]*Package, modules []Module, name, text string) error {
	syntax, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("parsing %s: %w", name, err)
	}
	dir := path.Dir(name)
	pkg := packages[dir]
	if pkg == nil {
		module, inner, ok := owner(modules, dir)
		if !ok {
			return fmt.Errorf("finding the module of %s: no go.mod above it", name)
		}
		pkg = &Package{Module: module, Dir: dir, Inner: inner}
		packages[dir] = pkg
	}
	source := Source{
		Path:      name,
		Syntax:    syntax,
		Test:      strings.HasSuffix(name, "_test.go"),
		Generated: ast.IsGenerated(syntax),
		Lines:     strings.Count(text, "\n"),
	}
	clause := syntax.Name.Name
	if source.Test {
		clause = strings.TrimSuffix(clause, "_test")
	}
	if pkg.Name == "" || !source.Test {
		pkg.Name = clause
	}
	pkg.Files = append(pkg.Files, source)
	return nil
}

// owner finds the module with the deepest go.mod at or above dir.
func owner(modules []Module, dir string) (modulePath, inner string, ok bool) {
	best := -1
	for _, m := range modules {
		if path.Base(m.File) != "go.mod" {
			continue
		}
		root := path.Dir(m.File)
		within, below := inside(dir, root)
		if !within || len(root) <= best {
			continue
		}
		best, modulePath, inner, ok = len(root), m.Path, below, true
		if root == "." {
			best = 0
		}
	}
	return modulePath, inner, ok
}

// inside reports whether dir is root or below it, and its path from there.
func inside(dir, root string) (bool, string) {
	switch {
	case root == ".":
		return true, dir
	case dir == root:
		return true, "."
	case strings.HasPrefix(dir, root+"/"):
		return true, dir[len(root)+1:]
	}
	return false, ""
}

func inTestdata(name string) bool {
	return slices.Contains(strings.Split(name, "/"), "testdata")
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
