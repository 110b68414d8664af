package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxFile is the largest file that is read, in bytes.
const maxFile = 1 << 20

// Parse reads a sandbox.yaml. Name is the file's name, used in errors only. The
// error joins every mistake of the file, each a *Mistake with its line; the
// sandbox is then empty.
func Parse(name string, text []byte) (Sandbox, error) {
	root, mistake := document(text)
	if mistake != nil {
		mistake.File = name
		return Sandbox{}, join([]*Mistake{mistake})
	}
	r := &reader{lines: map[string]int{}, broken: map[string]bool{}}
	s := r.sandbox(root)
	for _, m := range s.mistakes() {
		if r.isBroken(m.Field) || r.isBroken(m.with) {
			continue // its cause has been reported
		}
		m.Line = r.line(m.Field)
		r.mistakes = append(r.mistakes, m)
	}
	if len(r.mistakes) == 0 {
		return s, nil
	}
	for _, m := range r.mistakes {
		m.File = name
	}
	return Sandbox{}, join(r.mistakes)
}

// document returns the one document of a file.
func document(text []byte) (*yaml.Node, *Mistake) {
	if len(text) > maxFile {
		return nil, &Mistake{
			Problem: fmt.Sprintf("is %d bytes long, more than %d", len(text), maxFile),
			Remedy:  "give a sandbox.yaml",
		}
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	var doc, second yaml.Node
	if err := d.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, &Mistake{Line: 1, Field: "clusters", Problem: "is missing, the file is empty", Remedy: "list at least one cluster"}
	} else if err != nil {
		return nil, syntax(err, text)
	}
	if err := d.Decode(&second); err == nil {
		return nil, &Mistake{Line: second.Line, Problem: "a second document begins here", Remedy: "put all clusters into one list"}
	} else if !errors.Is(err, io.EOF) {
		return nil, syntax(err, text)
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		return nil, &Mistake{Line: 1, Problem: "is not one YAML document", Remedy: "begin with clusters:"}
	}
	return doc.Content[0], nil
}

var (
	syntaxLine = regexp.MustCompile(`^line (\d+): `)
	// offByOne are the errors for which the parser counts lines from 0.
	offByOne = regexp.MustCompile(`^did not find expected (node content|key|'-'|','|<)`)
	tabbed   = regexp.MustCompile(`(?m)^ *\t+ *[^\s#]`)
)

// syntax turns an error of the YAML parser into a mistake. The parser's line is
// often that of the block around the error; a tab, the usual cause, is found here.
func syntax(err error, text []byte) *Mistake {
	m := &Mistake{Line: 1, Problem: strings.TrimPrefix(err.Error(), "yaml: "), Remedy: "mend the YAML here or in the lines below"}
	if at := tabbed.FindIndex(text); at != nil {
		m.Line += bytes.Count(text[:at[0]], []byte("\n"))
		m.Problem, m.Remedy = "is indented with a tab, which YAML does not take", "use spaces"
		return m
	}
	if at := syntaxLine.FindStringSubmatch(m.Problem); at != nil {
		m.Line, _ = strconv.Atoi(at[1])
		if m.Problem = m.Problem[len(at[0]):]; offByOne.MatchString(m.Problem) {
			m.Line++
		}
	}
	m.Problem = "is not YAML: " + m.Problem
	return m
}
