package law

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The layers of the product's module, each may import those below it only.
const (
	layerAPI = iota
	layerInternal
	layerRoom
	layerTop // cmd and test
)

// Imports finds breaches of the import law: cmd and test → rooms → internal → api,
// deploy being a leaf like api, no room imports another, the kinds need nothing but
// apimachinery, nothing imports the sandbox, and the sandbox imports nothing of the
// product. Tests obey it as well.
func Imports(tree Tree) []string {
	product := productPath(tree)
	own := map[string]Package{}
	for _, p := range tree.Packages {
		own[p.ImportPath()] = p
	}
	var found []string
	for _, p := range tree.Packages {
		for _, file := range p.Files {
			for _, spec := range file.Syntax.Imports {
				target, err := strconv.Unquote(spec.Path.Value)
				if err != nil {
					continue // the parser accepts quoted strings only
				}
				if why := illegal(product, p, own[target], target, file.Test); why != "" {
					found = append(found, fmt.Sprintf("%s: imports %s: %s", file.Path, target, why))
				}
			}
		}
	}
	slices.Sort(found)
	return found
}

// productPath is the path of the module at the root of the repository.
func productPath(tree Tree) string {
	for _, m := range tree.Modules {
		if m.File == "go.mod" {
			return m.Path
		}
	}
	return ""
}

// illegal says why package from may not import target, "" when it may. To is the
// package of this repository that target names, if it is one.
func illegal(product string, from, to Package, target string, test bool) string {
	ours := target == product || strings.HasPrefix(target, product+"/")
	if !ours {
		if from.Module == product && strings.HasPrefix(from.Inner, "api/v") && !test && !kindsMayImport(target) {
			return "the kinds import the standard library and k8s.io/apimachinery only"
		}
		return ""
	}
	if to.Module == "" { // no such package: the compiler says so
		to = Package{Module: product, Inner: strings.TrimPrefix(strings.TrimPrefix(target, product), "/")}
	}
	switch {
	case from.Module == to.Module && from.Module != product:
		return ""
	case from.Module != product:
		return "this module imports none of the product's code"
	case to.Module != product || room(to) == "sandbox":
		return "nothing imports the sandbox; run its program instead"
	case room(from) == room(to):
		return ""
	case layer(from) == layerRoom && layer(to) == layerRoom:
		return "rooms never import rooms; declare the interface you want and let cmd plug it in, or read the API object"
	case layer(from) <= layer(to):
		return "imports go cmd, test → rooms → internal → api only"
	}
	return ""
}

// room is the first directory of a package inside its module.
func room(p Package) string {
	first, _, _ := strings.Cut(p.Inner, "/")
	return first
}

func layer(p Package) int {
	switch room(p) {
	case "api", "deploy": // leaves: the kinds, and the chart as it is embedded
		return layerAPI
	case "internal":
		return layerInternal
	case "cmd", "test", "bench":
		return layerTop
	}
	return layerRoom
}

// kindsMayImport holds for what the packages of our kinds may need, so that others can
// import the kinds without taking anything else.
func kindsMayImport(target string) bool {
	first, _, _ := strings.Cut(target, "/")
	return !strings.Contains(first, ".") || strings.HasPrefix(target, "k8s.io/apimachinery/")
}
