package shadow

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

var update = flag.Bool("update", false, "write docs/offloading-fields.md")

// passing calls visit for every field of every type of core/v1 that is reached from t
// without passing a field that is dropped or always refused.
func passing(t reflect.Type, visit func(owner reflect.Type, f reflect.StructField)) {
	seen := map[reflect.Type]bool{}
	var down func(reflect.Type)
	down = func(t reflect.Type) {
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct || t.PkgPath() != core || seen[t] {
			return
		}
		seen[t] = true
		for i := range t.NumField() {
			f := t.Field(i)
			if f.Anonymous {
				continue
			}
			visit(t, f)
		}
		for i := range t.NumField() {
			f := t.Field(i)
			r := table[t.Name()+"."+f.Name]
			if f.Anonymous || r.fate == kept || r.fate == translated || r.fate == refused && r.bad != nil {
				down(f.Type)
			}
		}
	}
	down(t)
}

func TestTableIsComplete(t *testing.T) {
	reached := map[string]bool{}
	passing(reflect.TypeOf(corev1.PodSpec{}), func(owner reflect.Type, f reflect.StructField) {
		key := owner.Name() + "." + f.Name
		reached[key] = true
		r, ok := table[key]
		switch {
		case !ok:
			t.Errorf("%s (%s) has no rule: decide in table.go whether it is kept, and then with a +, translated, dropped or refused", key, f.Type)
		case r.fate != kept && r.why == "":
			t.Errorf("%s is %s without a reason", key, r.fate)
		case r.fate == translated && r.change == nil, r.fate != translated && r.change != nil, r.fate != refused && r.bad != nil:
			t.Errorf("%s: the rule's function does not fit its fate", key)
		}
	})
	for key := range table {
		if !reached[key] {
			t.Errorf("%s has a rule, but cannot be reached: remove the rule", key)
		}
	}
	if len(reached) < 250 {
		t.Errorf("only %d fields reached, so the walk is broken", len(reached))
	}
}

// A rule's bad and change are for the type that the field has: calling them must not panic.
func TestRulesFitTheirTypes(t *testing.T) {
	passing(reflect.TypeOf(corev1.PodSpec{}), func(owner reflect.Type, f reflect.StructField) {
		r := table[owner.Name()+"."+f.Name]
		v := reflect.New(f.Type).Elem()
		if f.Type.Kind() == reflect.Pointer {
			v.Set(reflect.New(f.Type.Elem()))
		}
		w := &walk{shown: map[string]string{}}
		if r.bad != nil {
			r.bad(w, v)
		}
		if r.change != nil {
			r.change(w, "", v)
		}
	})
}

func TestUnknownFieldsAreRefused(t *testing.T) {
	w := &walk{}
	w.field("spec.new", table["PodSpec.New"], reflect.ValueOf("x"))
	if err := w.verdict(); err == nil {
		t.Error("a field without a rule passed")
	}
}

// TestDocument keeps docs/offloading-fields.md as the table is: go test -update.
func TestDocument(t *testing.T) {
	const file = "../../docs/offloading-fields.md"
	want := document()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s is not as the table, run go test ./offloading/shadow -update (-want +got):\n%s", file, diff)
	}
}

func document() string {
	var b strings.Builder
	b.WriteString(`# What becomes of a pod's fields

When a pod is bound to a virtual node, the provider runs a pod made of it by this table. The provider applies the table
to whatever it is asked to run, so a consumer that writes its requests by hand gets nothing more.

- **kept**: the pod at the provider has it too.
- **translated**: it has something else instead.
- **dropped**: it has none, and runs.
- **refused**: the pod does not run there; the home pod says which field it was. Where a value is named, only that value
  is refused. What the Pod Security Standard baseline forbids is refused unless the Tenant's podSecurity is privileged.

What is below a dropped or refused field is not listed, as nothing of it passes. Labels are kept, but for those under
pelago.dev/ and the region and zone of the node. Annotations are kept if they have no prefix, or prometheus.io/ or
kubectl.kubernetes.io/, and at most 16 KiB.

This page is written by a test from the table in ` + "`offloading/shadow/table.go`" + `.
`)
	last := ""
	passing(reflect.TypeOf(corev1.PodSpec{}), func(owner reflect.Type, f reflect.StructField) {
		if owner.Name() == "EphemeralContainerCommon" {
			return
		}
		if owner.Name() != last {
			last = owner.Name()
			fmt.Fprintf(&b, "\n## %s\n\n", last)
			if last == "Container" {
				b.WriteString("The same for ephemeral containers. One in which a value is refused is left out, and the pod runs without it.\n\n")
			}
			b.WriteString("| field | what happens | why |\n|---|---|---|\n")
		}
		r := table[owner.Name()+"."+f.Name]
		fmt.Fprintf(&b, "| %s | %s | %s |\n", jsonName(f), r.fate, r.why)
	})
	return b.String()
}
