package deploy

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// schema is the part of JSON Schema that values.schema.json uses.
type schema struct {
	Type       string            `json:"type"`
	Enum       []string          `json:"enum,omitempty"`
	Properties map[string]schema `json:"properties,omitempty"`
	// Additional is false where only Properties may be.
	Additional *bool `json:"additionalProperties,omitempty"`
}

// readSchema reads values.schema.json.
func readSchema() (schema, error) {
	var s schema
	text, err := chart.ReadFile("chart/values.schema.json")
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return s, fmt.Errorf("reading values.schema.json: %w", err)
	}
	return s, nil
}

// CheckValues finds what the chart would not understand: unknown keys and wrong types,
// all at once, each with its path. What is below config is not checked here.
func CheckValues(values map[string]any) error {
	s, err := readSchema()
	if err != nil {
		return err
	}
	return errors.Join(s.check("", values)...)
}

func (s schema) check(path string, value any) []error {
	if value == nil { // takes the chart's own value away
		return nil
	}
	if !s.accepts(value) {
		return []error{fmt.Errorf("%s: holds %.50v and must hold %s", path, value, words[s.Type])}
	}
	if text, ok := value.(string); ok && s.Enum != nil && !slices.Contains(s.Enum, text) {
		return []error{fmt.Errorf("%s: %.50q is unknown; use %s", path, text, choices(s.Enum))}
	}
	held, _ := value.(map[string]any)
	var found []error
	for _, key := range slices.Sorted(maps.Keys(held)) {
		below := strings.TrimPrefix(path+"."+key, ".")
		if property, known := s.Properties[key]; known {
			found = append(found, property.check(below, held[key])...)
		} else if s.Additional != nil && !*s.Additional {
			found = append(found, fmt.Errorf("%s: there is no such value; there is %s", below, choices(slices.Sorted(maps.Keys(s.Properties)))))
		}
	}
	return found
}

// words are the types of values as users call them.
var words = map[string]string{
	"object": "a map", "array": "a list", "string": "a string", "boolean": "true or false", "integer": "a whole number",
}

func (s schema) accepts(value any) bool {
	switch v := value.(type) {
	case map[string]any:
		return s.Type == "object"
	case []any:
		return s.Type == "array"
	case string:
		return s.Type == "string"
	case bool:
		return s.Type == "boolean"
	case int, int32, int64:
		return s.Type == "integer"
	case float64:
		return s.Type == "integer" && v == math.Trunc(v)
	}
	return false
}

func choices(names []string) string {
	shown := slices.DeleteFunc(slices.Clone(names), func(s string) bool { return s == "" })
	return strings.Join(shown, ", ")
}

// merge lays values over the chart's own: maps are merged, everything else replaces,
// and null takes away.
func merge(own, values map[string]any) map[string]any {
	merged := maps.Clone(own)
	for key, value := range values {
		over, isMap := value.(map[string]any)
		under, wasMap := own[key].(map[string]any)
		switch {
		case value == nil:
			delete(merged, key)
		case isMap && wasMap:
			merged[key] = merge(under, over)
		default:
			merged[key] = value
		}
	}
	return merged
}
