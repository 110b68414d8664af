package deploy

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"text/template"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// functions are all that the chart's templates may use beside those of text/template.
// They mean what Helm means by them.
func functions(all *template.Template) template.FuncMap {
	return template.FuncMap{
		"default":  defaultTo,
		"quote":    func(v any) string { return strconv.Quote(fmt.Sprint(v)) },
		"required": required,
		"nindent": func(spaces int, text string) string {
			pad := strings.Repeat(" ", spaces)
			return "\n" + pad + strings.ReplaceAll(text, "\n", "\n"+pad)
		},
		"toYaml": func(v any) (string, error) {
			text, err := yaml.Marshal(v)
			return strings.TrimSuffix(string(text), "\n"), err
		},
		"include": func(name string, data any) (string, error) {
			var out strings.Builder
			err := all.ExecuteTemplate(&out, name, data)
			return out.String(), err
		},
	}
}

// defaultTo returns value, or fallback if value is empty.
func defaultTo(fallback, value any) any {
	if v := reflect.ValueOf(value); !v.IsValid() || v.IsZero() || isEmpty(v) {
		return fallback
	}
	return value
}

func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Map, reflect.Slice:
		return v.Len() == 0
	}
	return false
}

// refusal is an error of required: a sentence of the chart's author for the user.
type refusal struct{ message string }

func (r refusal) Error() string { return r.message }

func required(message string, value any) (any, error) {
	if value == nil || value == "" {
		return nil, refusal{message}
	}
	return value, nil
}

// plain takes the position in a template out of an error meant for the user.
func plain(err error) error {
	if r, found := errors.AsType[refusal](err); found {
		return r
	}
	return err
}

// order is the kinds in the order in which to apply them; others follow, and last those
// by which the API server asks our programs or refuses what others do.
var order = []string{
	"Namespace", "CustomResourceDefinition", "PriorityLevelConfiguration", "FlowSchema", "PriorityClass", "ServiceAccount",
	"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ConfigMap", "Secret",
	"NetworkPolicy", "PodDisruptionBudget", "Service", "Deployment", "DaemonSet",
}

var last = []string{
	"RuntimeClass", "APIService", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "MutatingWebhookConfiguration",
}

// inOrder compares objects by when to apply them, then by name and kind.
func inOrder(a, b *unstructured.Unstructured) int {
	return cmp.Or(rank(a.GetKind())-rank(b.GetKind()), strings.Compare(a.GetName(), b.GetName()), strings.Compare(a.GetKind(), b.GetKind()))
}

func rank(kind string) int {
	for i, k := range order {
		if k == kind {
			return i
		}
	}
	for i, k := range last {
		if k == kind {
			return len(order) + 1 + i
		}
	}
	return len(order)
}
