package admission

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// applyPatch applies the operations that patches of ours are made of.
func applyPatch(t *testing.T, raw string, patch []byte) []byte {
	t.Helper()
	var document any
	var operations []operation
	decoder := json.NewDecoder(strings.NewReader(raw))
	decoder.UseNumber() // what we do not look at may be any number
	if decoder.Decode(&document) != nil || json.Unmarshal(patch, &operations) != nil {
		t.Fatalf("not JSON: %s, %s", raw, patch)
	}
	for _, o := range operations {
		path := strings.Split(o.Path, "/")[1:]
		for i := range path {
			path[i] = strings.ReplaceAll(path[i], "~1", "/")
		}
		document = applyOne(t, document, path, o)
	}
	out, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func applyOne(t *testing.T, at any, path []string, o operation) any {
	t.Helper()
	switch at := at.(type) {
	case map[string]any:
		switch {
		case len(path) > 1:
			at[path[0]] = applyOne(t, at[path[0]], path[1:], o)
		case o.Op == "add":
			at[path[0]] = o.Value
		case at[path[0]] == nil:
			t.Fatalf("%s: there is nothing to remove", o.Path)
		default:
			delete(at, path[0])
		}
		return at
	case []any:
		if path[0] == "-" && o.Op == "add" {
			return append(at, o.Value)
		}
		i, err := strconv.Atoi(path[0])
		if err != nil || i >= len(at) || len(path) < 2 {
			t.Fatalf("%s: no such place", o.Path)
		}
		at = slices.Clone(at)
		at[i] = applyOne(t, at[i], path[1:], o)
		return at
	}
	t.Fatalf("%s: its parent is not there", o.Path)
	return nil
}

// normal is a document with every key once.
func normal(raw []byte) (string, bool) {
	var document any
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	if decoder.Decode(&document) != nil {
		return "", false
	}
	out, err := json.Marshal(document)
	return string(out), err == nil
}

func countFuture(raw []byte) int { return bytes.Count(raw, []byte(`"future"`)) }
