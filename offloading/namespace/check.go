package namespace

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

const (
	// maxMessage bounds what is repeated of a peer's words.
	maxMessage = 256
	// maxMessages bounds all that is repeated of what one says of namespaces, in bytes.
	maxMessages = 64 << 10
	// maxAnswers bounds how many namespaces that were not asked for a provider may speak
	// of: those of earlier times that it keeps.
	maxAnswers = 512
)

var reasonWord = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,63}$`)

// answers is what a provider says of a NamespaceMap.
type answers struct {
	generation int64 // of its copy, as it is now
	observed   int64 // that it speaks of
	namespaces map[string]v1alpha1.MappedNamespace
}

// received checks what a provider wrote. wanted are the namespaces asked for, tenant
// is this cluster's name there. What breaks a rule is left out or replaced.
func received(obj map[string]any, wanted map[string]v1alpha1.NamespaceMapping, tenant string) answers {
	a := answers{namespaces: map[string]v1alpha1.MappedNamespace{}}
	a.generation, _, _ = unstructured.NestedInt64(obj, "metadata", "generation")
	a.observed, _, _ = unstructured.NestedInt64(obj, "status", "observedGeneration")
	a.observed = max(a.observed, 0)
	said := field(field(obj, "status"), "namespaces")
	room := maxMessages
	for _, name := range slices.Sorted(maps.Keys(wanted)) { // in order, so that the same is left out each time
		mapped, ok := receivedOne(said[name])
		if !ok {
			continue
		}
		mapped = verifyName(name, wanted[name], tenant, mapped)
		if room -= len(mapped.Message); room < 0 {
			room, mapped.Message = room+len(mapped.Message), ""
		}
		a.namespaces[name] = mapped
	}
	var others []string
	for name := range said {
		if _, ok := wanted[name]; !ok && len(name) <= validation.DNS1123LabelMaxLength {
			others = append(others, name)
		}
	}
	slices.Sort(others)
	for _, name := range others[:min(len(others), maxAnswers)] {
		mapped, ok := receivedOne(said[name])
		if !ok || len(validation.IsDNS1123Label(name)) > 0 {
			continue
		}
		a.namespaces[name] = unasked(mapped)
	}
	return a
}

// unasked is what is kept of an answer that nobody asked for: where the namespace is, and what becomes of it. The
// words are our own.
func unasked(m v1alpha1.MappedNamespace) v1alpha1.MappedNamespace {
	m.Reason, m.Message = "", ""
	switch m.Phase {
	case v1alpha1.MappingReady: // the provider has not seen yet that it is not wanted
		m.Phase = v1alpha1.MappingTerminating
	case v1alpha1.MappingKept:
		m.Reason = v1alpha1.ReasonVolumesKept
	case v1alpha1.MappingRefused:
		m.Reason = v1alpha1.ReasonRefused
	}
	if m.Phase == v1alpha1.MappingTerminating {
		m.Reason = v1alpha1.ReasonTerminating
	}
	return m
}

// keptWords says why a namespace is kept that is not wanted any more, and what to do.
func keptWords(name string) string {
	const why = "it holds volume claims and is kept"
	if name == "" {
		return why
	}
	return why + "; to delete it with them, its owner runs: kubectl delete namespace " + name
}

// receivedOne checks what a provider says of one namespace.
func receivedOne(said any) (v1alpha1.MappedNamespace, bool) {
	fields, ok := said.(map[string]any)
	if !ok {
		return v1alpha1.MappedNamespace{}, false
	}
	text := func(key string) string { s, _ := fields[key].(string); return s }
	m := v1alpha1.MappedNamespace{Phase: v1alpha1.MappingPhase(text("phase")), Reason: text("reason"), Message: oneLine(text("message"), maxMessage)}
	m.Onward, _ = fields["onward"].(bool)
	switch m.Phase {
	case v1alpha1.MappingReady, v1alpha1.MappingPending, v1alpha1.MappingRefused, v1alpha1.MappingTerminating, v1alpha1.MappingKept:
	default:
		return v1alpha1.MappedNamespace{}, false
	}
	if name := text("name"); len(name) <= validation.DNS1123LabelMaxLength && len(validation.IsDNS1123Label(name)) == 0 {
		m.Name = name
	}
	switch {
	case m.Reason == "" && m.Phase != v1alpha1.MappingRefused:
	case !reasonWord.MatchString(m.Reason),
		// These words mean something of our own in the status of an offloading.
		m.Phase == v1alpha1.MappingRefused && slices.Contains([]string{v1alpha1.ReasonPending, v1alpha1.ReasonWaiting, v1alpha1.ReasonReady, v1alpha1.ReasonVolumesKept}, m.Reason):
		m.Reason = v1alpha1.ReasonRefused
	}
	return m, true
}

// verifyName lets a namespace be Ready only by the name that was asked for.
func verifyName(home string, m v1alpha1.NamespaceMapping, tenant string, said v1alpha1.MappedNamespace) v1alpha1.MappedNamespace {
	if said.Phase != v1alpha1.MappingReady || said.Name == expectedName(home, m, tenant) {
		return said
	}
	return v1alpha1.MappedNamespace{Phase: v1alpha1.MappingRefused, Reason: v1alpha1.ReasonInvalid,
		Message: "the provider answers with a name that was not asked for; ask its owner which version of Pelago runs there"}
}

// field is a field that is an object, nil if it is not.
func field(obj map[string]any, name string) map[string]any {
	f, _ := obj[name].(map[string]any)
	return f
}

// oneLine is text as it may stand in a condition: short, one line, printable.
func oneLine(text string, limit int) string {
	runes := []rune(strings.ToValidUTF8(text[:min(len(text), 4*limit)], "?"))
	for i, r := range runes {
		if !unicode.IsPrint(r) {
			runes[i] = ' '
		}
	}
	return string(runes[:min(len(runes), limit)])
}
