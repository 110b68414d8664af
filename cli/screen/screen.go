// Package screen is how the command line speaks: tables that fit a terminal of 80
// columns, colours where somebody can see them, one line that tells what is going on
// while a command waits, and documents in JSON and YAML. It knows nothing of clusters.
package screen

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
	"sigs.k8s.io/yaml"
)

// Terminal reports whether somebody looks at w, on a terminal that can be written
// on in place.
func Terminal(w io.Writer, getenv func(string) string) bool {
	file, ok := w.(*os.File)
	return ok && getenv("TERM") != "dumb" && term.IsTerminal(int(file.Fd()))
}

// Colour is one of the few colours in use.
type Colour string

// The colours: what is well, what needs attention, what is broken, what matters less.
const (
	Plain  Colour = ""
	Green  Colour = "32"
	Yellow Colour = "33"
	Red    Colour = "31"
	Faint  Colour = "2"
)

// Paint colours text, or leaves it alone.
type Paint bool

// Text returns s in colour c.
func (p Paint) Text(c Colour, s string) string {
	if !p || c == Plain || s == "" {
		return s
	}
	return "\x1b[" + string(c) + "m" + s + "\x1b[0m"
}

// Document writes a value as "json" or "yaml".
func Document(w io.Writer, format string, value any) error {
	switch format {
	case "json":
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(value)
	case "yaml":
		text, err := yaml.Marshal(value)
		if err != nil {
			return fmt.Errorf("writing YAML: %w", err)
		}
		_, err = w.Write(text)
		return err
	}
	return fmt.Errorf("the output format %q is unknown; use json or yaml", format)
}

// Documents writes several values: a stream of YAML documents, or a JSON list that
// kubectl applies.
func Documents[T any](w io.Writer, format string, values []T) error {
	if format == "json" {
		return Document(w, format, map[string]any{"apiVersion": "v1", "kind": "List", "items": values})
	}
	for i, value := range values {
		if i > 0 {
			fmt.Fprintln(w, "---")
		}
		if err := Document(w, format, value); err != nil {
			return err
		}
	}
	return nil
}

// Wrap breaks text into lines of at most width characters, each but the first
// behind an indent, without control characters.
func Wrap(text, indent string, width int) string {
	var out strings.Builder
	column := 0
	for i, word := range strings.Fields(line(text)) {
		length := len([]rune(word))
		switch {
		case i == 0:
		case column+1+length > width:
			out.WriteString("\n" + indent)
			column = len(indent)
		default:
			out.WriteByte(' ')
			column++
		}
		out.WriteString(word)
		column += length
	}
	return out.String()
}
