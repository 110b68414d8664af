package addon

import (
	"bytes"
	"embed"
	"fmt"
	"strings"
	"text/template"
)

//go:embed manifests/*.yaml
var manifests embed.FS

// templates are parsed once; a mistake in one is a mistake in this package.
var templates = template.Must(template.New("").Option("missingkey=error").Funcs(template.FuncMap{
	"family": family,
	"base64": encode,
	"image":  imageRef,
}).ParseFS(manifests, "manifests/*.yaml"))

// Manifests returns the YAML documents of the add-on in stages. Apply a stage
// when the one before it has been accepted; CustomResourceDefinitions of a
// stage may take a moment until their objects are accepted, so a refused last
// stage is worth another try. An error names the value that is missing.
func (a Addon) Manifests(v Values) ([][]string, error) {
	if a.check != nil {
		if err := a.check(v); err != nil {
			return nil, fmt.Errorf("rendering %s: %w", a.Name, err)
		}
	}
	var stages [][]string
	for _, file := range a.stages {
		var text bytes.Buffer
		if err := templates.ExecuteTemplate(&text, file, v); err != nil {
			return nil, fmt.Errorf("rendering %s: %w", a.Name, err)
		}
		stages = append(stages, documents(text.String()))
	}
	return stages, nil
}

// documents splits a YAML stream, leaving out what is empty.
func documents(stream string) []string {
	var all []string
	for document := range strings.SplitSeq("\n"+stream, "\n---\n") {
		if document = strings.TrimSpace(document); document != "" {
			all = append(all, document+"\n")
		}
	}
	return all
}

// imageRef finds the reference of an image by its name without tag, so that
// manifests do not repeat versions.
func imageRef(name string) (string, error) {
	for _, image := range Images {
		if strings.HasPrefix(image.Ref, "pelago.local/"+name+":") {
			return image.Ref, nil
		}
	}
	return "", fmt.Errorf("no image is called %s", name)
}
