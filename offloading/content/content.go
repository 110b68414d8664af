// Package content says of each kind that is reflected how its objects travel: what of
// a home object a provider is told, what the provider makes of what it is told, and how
// that is put into an object that is there. Every function is pure and holds whoever
// wrote what it reads: fields that do not travel have no place in what is read, so a
// text that holds one is refused. Nothing here ever puts content of a Secret into a
// sentence, and nothing reads or writes an API server.
package content

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kjson "sigs.k8s.io/json"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

const (
	// MaxContent is the most bytes of data that a Secret or ConfigMap may have, as in Kubernetes.
	MaxContent = 1 << 20
	// MaxText is the most bytes of a text that carries an object, or a part of one: a tenant has up to a
	// thousand of them in the provider's database.
	MaxText = 90 << 10
	// MaxWhole is the same of a text in parts: the content in base64, and a bit more than that.
	MaxWhole = v1alpha1.MaxShadowObjectParts * (MaxText - utf8.UTFMax)
	// maxKeys is how many keys data may have: many short ones take much more memory than one that is as long.
	maxKeys = 4096
	// maxQuote is how much of what somebody wrote is repeated.
	maxQuote = 80
)

// Kind is how objects of one kind travel.
type Kind struct {
	// Name of the kind, as in HomeObject.kind.
	Name string
	// New makes an empty object, NewList an empty list.
	New     func() client.Object
	NewList func() client.ObjectList
	// Referred kinds travel only if a pod refers to them, or a rule says so.
	Referred bool
	// Secret kinds are never cached and never logged.
	Secret bool
	// Long kinds may be in parts.
	Long bool
	// Never are names that do not travel: every namespace has its own, or they mean the
	// cluster itself.
	Never []string
	// Encode is the text that carries a home object; wrong, if not empty, is why it does
	// not travel, for the owner of the object.
	Encode func(obj client.Object) (text, wrong string)
	// Cut says what of a home object that travels is otherwise over there, for its owner: what there
	// is no room for of its labels and annotations, or what is read otherwise; "" if there is nothing.
	Cut func(obj client.Object) string
	// Decode is the object that a text asks for, without name and namespace; wrong, if not
	// empty, is why there is none, for its writer. It repeats nothing of Secrets.
	Decode func(text string, rules Rules) (obj client.Object, wrong string)
	// Lacks says what the provider's cluster cannot give of what a text asks for, so that its
	// object is another one, in a word of conditions and a sentence; "" if nothing is missing, or
	// it is no text of this kind.
	Lacks func(text string, rules Rules) (reason, message string)
	// Merge puts what is wanted into a copy of what is there, and leaves what others own.
	// Changed says whether the copy differs; replace, that the API server would not take
	// the change, so the object has to be made anew.
	Merge func(have, want client.Object) (next client.Object, changed, replace bool)
}

// Kinds are all kinds by name.
var Kinds = map[string]Kind{
	"Secret":              secrets.kind(),
	"ConfigMap":           configMaps.kind(),
	"Service":             services.kind(),
	"PodDisruptionBudget": budgets.kind(),
	"Ingress":             ingresses.kind(),
	"EndpointSlice":       slicesOfEndpoints.kind(),
	"NetworkPolicy":       networkPolicies.kind(),
}

// Names are the names of all kinds, in order.
func Names() []string {
	var names []string
	for name := range Kinds {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// envelope is what a text holds. Content is what the kind itself says.
type envelope[C any] struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Content     C                 `json:"content"`
}

// form is what makes a Kind: the object's type O, and the type C of its content on the
// way.
type form[O client.Object, C any] struct {
	name             string
	referred, secret bool
	never            []string
	empty            func() O
	list             func() client.ObjectList
	// bare kinds leave their annotations at home: these are orders to controllers there.
	bare bool
	// plain kinds leave their labels there as well: controllers that look for them in every
	// namespace would load what has the right one.
	plain bool
	// long kinds may be in parts.
	long bool
	// pack takes the content out of a home object; wrong is why it cannot be.
	pack func(O) (content C, wrong string)
	// differs, if any, says what of a home object pack turns into something else.
	differs func(O) string
	// check says what is wrong with content, whoever it is of.
	check func(*C) string
	// unpack puts content into an empty object, as far as the rules allow.
	unpack func(*C, Rules, O) string
	// lacks, if any, says what is asked for in vain.
	lacks func(*C, Rules) (reason, message string)
	// put changes what is there into what is wanted; true if that takes a new object.
	put func(next, want O) bool
}

func (f form[O, C]) kind() Kind {
	return Kind{
		Name: f.name, Referred: f.referred, Secret: f.secret, Long: f.long, Never: f.never,
		New: func() client.Object { return f.empty() }, NewList: f.list,
		Encode: f.encode, Cut: f.cut, Decode: f.decode, Lacks: f.missing, Merge: f.merge,
	}
}

func (f form[O, C]) encode(obj client.Object) (string, string) {
	o, ok := obj.(O)
	if !ok {
		return "", "it is no " + f.name
	}
	c, wrong := f.pack(o)
	if wrong == "" {
		wrong = f.check(&c)
	}
	if wrong != "" {
		return "", wrong
	}
	e := envelope[C]{Content: c}
	if !f.plain {
		e.Labels = labelsOf(o)
	}
	if !f.plain && !f.bare {
		e.Annotations = annotationsOf(o)
	}
	return e.text(f.most())
}

// most is the most bytes that a text may have.
func (f form[O, C]) most() int {
	if f.long {
		return MaxWhole
	}
	return MaxText
}

// cut says what encode leaves out, or has otherwise.
func (f form[O, C]) cut(obj client.Object) string {
	if o, ok := obj.(O); ok && f.differs != nil {
		if differs := f.differs(o); differs != "" {
			return differs
		}
	}
	switch {
	case f.plain:
		return ""
	case f.bare:
		return cut(obj.GetLabels(), labelTravels, labelsOf(obj), "labels")
	}
	return cmp.Or(cut(obj.GetLabels(), labelTravels, labelsOf(obj), "labels"), cut(obj.GetAnnotations(), annotationTravels, annotationsOf(obj), "annotations"))
}

// text is what travels, of so many bytes at most.
func (e envelope[C]) text(most int) (string, string) {
	var text strings.Builder
	j := json.NewEncoder(&text)
	j.SetEscapeHTML(false)
	if err := j.Encode(e); err != nil {
		return "", "it cannot be written as JSON"
	}
	out := strings.TrimSuffix(text.String(), "\n")
	if len(out) > most {
		return "", fmt.Sprintf("it takes %d bytes as JSON, at most %d; split it, or use shorter keys and annotations", len(out), most)
	}
	return out, ""
}

func (f form[O, C]) decode(text string, rules Rules) (client.Object, string) {
	e, wrong := f.read(text)
	if wrong != "" {
		return nil, "spec.object: " + wrong
	}
	if slices.Contains(rules.Deny, f.name) {
		return nil, fmt.Sprintf("the provider takes no %s of this tenant", f.name)
	}
	o := f.empty()
	if !f.plain { // a build that is older than this sends them, and means no harm
		o.SetLabels(e.Labels)
		o.SetAnnotations(e.Annotations)
		remember(o)
	}
	if wrong := f.unpack(&e.Content, rules, o); wrong != "" {
		return nil, "spec.object: content: " + wrong
	}
	return o, ""
}

func (f form[O, C]) missing(text string, rules Rules) (reason, message string) {
	if f.lacks == nil {
		return "", ""
	}
	e, wrong := f.read(text)
	if wrong != "" {
		return "", ""
	}
	return f.lacks(&e.Content, rules)
}

// read takes a text apart, and says what is wrong with it.
func (f form[O, C]) read(text string) (*envelope[C], string) {
	switch {
	case len(text) > f.most():
		return nil, fmt.Sprintf("%d bytes, at most %d", len(text), f.most())
	case !strings.HasPrefix(strings.TrimLeft(text, " \t\r\n"), "{"):
		return nil, "not a JSON object with labels, annotations and content"
	}
	e := &envelope[C]{}
	strict, err := kjson.UnmarshalStrict([]byte(text), e)
	if err == nil && len(strict) > 0 {
		err = strict[0]
	}
	switch {
	case err != nil && f.secret:
		return nil, "not the JSON of a " + f.name + " with labels, annotations and content, and nothing else"
	case err != nil:
		return nil, fmt.Sprintf("not the JSON of what travels of a %s: %.*q", f.name, 2*maxQuote, err.Error())
	}
	if wrong := e.checkMetadata(f.bare); wrong != "" {
		return nil, wrong
	}
	if wrong := f.check(&e.Content); wrong != "" {
		return nil, "content: " + wrong
	}
	return e, ""
}

func (f form[O, C]) merge(have, want client.Object) (client.Object, bool, bool) {
	next, ok := have.DeepCopyObject().(O)
	w, ok2 := want.(O)
	if !ok || !ok2 {
		return have, false, false // the engine mixes up kinds, which a test would see
	}
	mergeMetadata(next, w)
	replace := f.put(next, w)
	return next, !same(have, client.Object(next)), replace
}

// same says whether two mean the same.
func same(a, b any) bool { return equality.Semantic.DeepEqual(a, b) }

// quote repeats the beginning of what somebody wrote.
func quote(s string) string { return fmt.Sprintf("%.*q", maxQuote, s) }
