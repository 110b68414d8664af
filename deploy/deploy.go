// Package deploy is how Pelago gets into a cluster: the Helm chart, embedded, and a
// renderer of it for the installer, so that pelago install needs no Helm and makes
// what Helm makes. It renders; it applies nothing, and imports no other part of
// Pelago.
package deploy

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"text/template"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// chart holds the chart as Helm reads it.
//
//go:embed all:chart
var chart embed.FS

// Release is what a chart is told of its installation.
type Release struct {
	// Name, pelago if empty.
	Name string
	// Namespace, pelago-system if empty; the chart accepts no other.
	Namespace string
	// Service is who installs, for the label app.kubernetes.io/managed-by; pelago if empty.
	Service string
}

// chartFile is what templates are told of the chart.
type chartFile struct {
	Name       string `json:"name"`
	Version    string `json:"version"`
	AppVersion string `json:"appVersion"`
}

// files are those of the chart that are no templates.
type files struct{}

// Get is the text of a file by its path in the chart, empty if there is none, as Helm has it.
func (files) Get(name string) string {
	text, err := chart.ReadFile("chart/" + name)
	if err != nil {
		return ""
	}
	return string(text)
}

// Values returns the chart's own values, which those given to Render are laid over.
func Values() (map[string]any, error) {
	text, err := chart.ReadFile("chart/values.yaml")
	if err != nil {
		return nil, fmt.Errorf("reading the chart: %w", err)
	}
	values := map[string]any{}
	if err := yaml.Unmarshal(text, &values); err != nil {
		return nil, fmt.Errorf("reading values.yaml: %w", err)
	}
	return values, nil
}

// Render makes the objects of the chart with values laid over its own, in the order in
// which to apply them. Mistakes in values are told all at once, each with its path.
// The namespace itself is not among the objects.
func Render(values map[string]any, release Release) ([]*unstructured.Unstructured, error) {
	if err := CheckValues(values); err != nil {
		return nil, err
	}
	own, err := Values()
	if err != nil {
		return nil, err
	}
	about, err := readChart()
	if err != nil {
		return nil, err
	}
	defaulted(&release.Name, "pelago")
	defaulted(&release.Namespace, "pelago-system")
	defaulted(&release.Service, "pelago")
	texts, err := execute(map[string]any{"Values": merge(own, values), "Release": release, "Chart": about, "Files": files{}})
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for _, t := range texts {
		found, err := decode(t.text)
		if err != nil {
			return nil, fmt.Errorf("reading what %s became: %w", t.name, err)
		}
		objects = append(objects, found...)
	}
	slices.SortStableFunc(objects, inOrder)
	return objects, nil
}

func defaulted(field *string, value string) {
	if *field == "" {
		*field = value
	}
}

func readChart() (chartFile, error) {
	var about chartFile
	text, err := chart.ReadFile("chart/Chart.yaml")
	if err == nil {
		err = yaml.Unmarshal(text, &about)
	}
	if err != nil {
		return about, fmt.Errorf("reading Chart.yaml: %w", err)
	}
	return about, nil
}

// rendered is what became of one template.
type rendered struct{ name, text string }

// execute fills in all templates, in the order of their names.
func execute(data map[string]any) ([]rendered, error) {
	all := template.New("chart").Option("missingkey=zero")
	all.Funcs(functions(all))
	var names []string
	err := fs.WalkDir(chart, "chart/templates", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := chart.ReadFile(name)
		if err != nil {
			return err
		}
		if path.Ext(name) == ".yaml" {
			names = append(names, name)
		}
		_, err = all.New(name).Parse(string(text))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the chart: %w", err)
	}
	var done []rendered
	for _, name := range names {
		var out bytes.Buffer
		if err := all.ExecuteTemplate(&out, name, data); err != nil {
			return nil, fmt.Errorf("rendering the chart: %w", plain(err))
		}
		// A value that is not there is empty, as it is for Helm.
		done = append(done, rendered{name, strings.ReplaceAll(out.String(), "<no value>", "")})
	}
	return done, nil
}

// decode splits a text into its YAML documents.
func decode(text string) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for _, document := range strings.Split("\n"+text, "\n---") {
		asJSON, err := yaml.YAMLToJSON([]byte(document))
		if err != nil {
			return nil, err
		}
		if string(asJSON) == "null" {
			continue
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(asJSON); err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
	return objects, nil
}
