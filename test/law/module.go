package law

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// maxDirect is how many modules the product may require directly.
const maxDirect = 30

// Module is what one module file says.
type Module struct {
	// File is the path of the module file from the root of the repository; besides
	// go.mod there are files for tools and add-ons.
	File string
	// Path is the name in the module line.
	Path string
	// Direct holds the modules required without the indirect mark.
	Direct []string
	// Replaced holds the left sides of replace directives.
	Replaced []string
}

// parseModule reads the lines of a module file that the laws speak about.
func parseModule(file, text string) (Module, error) {
	m := Module{File: file}
	block := ""
	for line := range strings.Lines(text) {
		code, comment, _ := strings.Cut(line, "//")
		words := strings.Fields(code)
		if len(words) == 0 {
			continue
		}
		verb := block
		switch {
		case words[0] == ")":
			block = ""
			continue
		case block == "" && len(words) == 2 && words[1] == "(":
			block = words[0]
			continue
		case block == "":
			verb, words = words[0], words[1:]
		}
		if len(words) == 0 {
			continue
		}
		switch verb {
		case "module":
			m.Path = words[0]
		case "require":
			if strings.TrimSpace(comment) != "indirect" {
				m.Direct = append(m.Direct, words[0])
			}
		case "replace":
			m.Replaced = append(m.Replaced, words[0])
		}
	}
	if m.Path == "" {
		return Module{}, fmt.Errorf("reading %s: no module line", file)
	}
	return m, nil
}

// Modules finds breaches of the rules for module files: no replace directive and no
// workspace file (both change what users of the module would get), few direct
// requirements of the product, and no Kubernetes server code in it.
func Modules(tree Tree) []string {
	var found []string
	for name := range tree.Texts {
		if path.Base(name) == "go.work" {
			found = append(found, name+": a workspace file raises versions silently; delete it")
		}
	}
	for _, m := range tree.Modules {
		for _, replaced := range m.Replaced {
			found = append(found, fmt.Sprintf("%s: replace of %s; require a version that works as it is", m.File, replaced))
		}
		if m.File != "go.mod" {
			continue
		}
		if n := len(m.Direct); n > maxDirect {
			found = append(found, fmt.Sprintf("%s: %d direct requirements, at most %d; do without one", m.File, n, maxDirect))
		}
		if slices.Contains(m.Direct, "k8s.io/kubernetes") {
			found = append(found, m.File+": requires k8s.io/kubernetes; server code belongs to sandbox/go.mod")
		}
	}
	slices.Sort(found)
	return found
}
