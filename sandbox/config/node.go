package config

import (
	"slices"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"
)

// mapping calls read for each entry. With known names, others are reported;
// without, any name will do.
func (r *reader) mapping(path string, n *yaml.Node, known []string, read func(key, path string, v *yaml.Node)) {
	r.lines[path] = n.Line
	if !r.isKind(path, n, yaml.MappingNode) {
		return
	}
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		at := path
		if k.Kind != yaml.ScalarNode || k.ShortTag() == "!!merge" {
			r.wrong(at, k.Line, "has a key that is not a plain word", "write each field out as name: value")
			continue
		}
		switch {
		case known == nil:
			at = labelAt(path, k.Value)
		case path == "":
			at = k.Value
		default:
			at = path + "." + k.Value
		}
		if l, twice := first[k.Value]; twice {
			r.mistakes = append(r.mistakes, &Mistake{
				Line: k.Line, Field: path, Problem: quote(k.Value) + " is given twice, first on line " + strconv.Itoa(l), Remedy: "remove one",
			})
			continue
		}
		first[k.Value] = k.Line
		if known != nil && !slices.Contains(known, k.Value) {
			r.mistakes = append(r.mistakes, &Mistake{
				Line: k.Line, Field: path, Problem: quote(k.Value) + " is not a field of sandbox.yaml", Remedy: oneOf(k.Value, known),
			})
			continue
		}
		r.lines[at] = v.Line
		read(k.Value, at, v)
	}
}

// list calls read for each item.
func (r *reader) list(path string, n *yaml.Node, read func(path string, item *yaml.Node)) {
	if !r.isKind(path, n, yaml.SequenceNode) {
		return
	}
	for i, c := range n.Content {
		at := item(path, i)
		r.lines[at] = c.Line
		read(at, c)
	}
}

// text reads a scalar that YAML does not take for something else.
func (r *reader) text(path string, n *yaml.Node) string {
	if !r.isKind(path, n, yaml.ScalarNode) {
		return ""
	}
	if n.ShortTag() != "!!str" {
		r.wrong(path, n.Line, quote(n.Value)+" is read as "+kindName(n)+", not as text", "put it in quotes")
		return ""
	}
	return n.Value
}

// number reads a whole number in decimal.
func (r *reader) number(path string, n *yaml.Node) int {
	if !r.isKind(path, n, yaml.ScalarNode) {
		return 0
	}
	i, err := strconv.Atoi(n.Value)
	if err != nil || n.ShortTag() != "!!int" {
		r.wrong(path, n.Line, quote(n.Value)+" is "+kindName(n)+", not a whole number", "write it like 2, without quotes")
		return 0
	}
	return i
}

// duration reads a span of time as Go writes it.
func (r *reader) duration(path string, n *yaml.Node) time.Duration {
	text := r.text(path, n)
	d, err := time.ParseDuration(text)
	if err != nil && !r.broken[path] {
		r.wrong(path, n.Line, quote(text)+" is not a span of time", "write it like 1s or 250ms")
	}
	return d
}

// truth reads true or false.
func (r *reader) truth(path string, n *yaml.Node) bool {
	if !r.isKind(path, n, yaml.ScalarNode) {
		return false
	}
	if n.ShortTag() != "!!bool" {
		r.wrong(path, n.Line, quote(n.Value)+" is "+kindName(n), "write true or false, without quotes")
		return false
	}
	v, _ := strconv.ParseBool(n.Value)
	return v
}

// isKind reports whether a value has the shape its field needs, and says so if
// it has not.
func (r *reader) isKind(path string, n *yaml.Node, want yaml.Kind) bool {
	remedy := map[yaml.Kind]string{
		yaml.MappingNode: "write lines of name: value below it", yaml.SequenceNode: "write a list: [a, b]", yaml.ScalarNode: "write one value",
	}[want]
	switch {
	case n.Kind == yaml.AliasNode:
		r.wrong(path, n.Line, "is an alias, which sandbox.yaml does not have", "write the value out")
		return false
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null":
		r.wrong(path, n.Line, "has no value", "give one or remove the line")
		return false
	case n.Kind != want:
		r.wrong(path, n.Line, "is "+kindName(n), remedy)
		return false
	}
	return true
}

// kindName names what a value is, for people.
func kindName(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a group of fields"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.ShortTag() {
	case "!!str":
		return "a text"
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "a truth value"
	case "!!timestamp":
		return "a date"
	}
	return "of a kind YAML calls " + quote(n.ShortTag())
}
