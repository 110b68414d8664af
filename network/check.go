package network

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/home"
)

// What the definition of the kind says, which is the provider's API server's to hold, and so
// is not believed.
const (
	maxPods      = 16
	maxExternal  = 2
	maxTheirs    = 16 // endpoints
	maxRange     = 43 // characters
	maxHost      = 261
	maxViews     = 18
	maxGen       = 1 << 40
	maxReasonLen = 64
)

var (
	keyText    = regexp.MustCompile(`^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw480]=$`)
	reasonWord = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,63}$`)
)

// receivedSpec checks what a provider publishes. Ranges that cannot be carried are taken as they
// are written, as long as they are short and few: they are refused where all are, and the
// provider is told why. All else that breaks a rule has nothing of it taken.
func receivedSpec(obj map[string]any) (v1alpha1.NetworkConfigSpec, error) {
	var s v1alpha1.NetworkConfigSpec
	fields := field(obj, "spec")
	var err error
	if s.Pods, err = receivedList(fields, "spec.pods", maxPods, maxRange); err != nil {
		return s, err
	}
	if s.Transit, err = receivedList(fields, "spec.transit", maxPods, maxRange); err != nil {
		return s, err
	}
	if s.External, err = receivedList(fields, "spec.external", maxExternal, maxRange); err != nil {
		return s, err
	}
	if s.Endpoints, err = receivedList(fields, "spec.endpoints", maxTheirs, maxHost); err != nil {
		return s, err
	}
	for _, e := range s.Endpoints {
		if _, port, err := home.ParseEndpoint(e); err != nil || port == 0 {
			return s, fmt.Errorf("spec.endpoints: %.80q is not HOST:PORT", e)
		}
	}
	if s.PublicKey, err = receivedKey(fields, "spec.publicKey"); err != nil {
		return s, err
	}
	if s.NextPublicKey, err = receivedKey(fields, "spec.nextPublicKey"); err != nil {
		return s, err
	}
	if s.ConsumerPaths, err = receivedConsumerPaths(fields); err != nil {
		return s, err
	}
	switch port := fields["port"].(type) {
	case nil:
	case int64:
		if port < 0 || port > 65535 {
			return s, fmt.Errorf("spec.port: %d is not between 0 and 65535", port)
		}
		s.Port = int32(port)
	default:
		return s, fmt.Errorf("spec.port: is no number")
	}
	return s, nil
}

// receivedList checks a list of short texts: that at a place, of which fields are the part.
func receivedList(fields map[string]any, at string, most, longest int) ([]string, error) {
	_, name, _ := strings.Cut(at, ".")
	if fields[name] == nil {
		return nil, nil
	}
	items, ok := fields[name].([]any)
	if !ok {
		return nil, fmt.Errorf("%s: is no list", at)
	}
	if len(items) > most {
		return nil, fmt.Errorf("%s: there are %d, at most %d", at, len(items), most)
	}
	var all []string
	for _, item := range items {
		text, ok := item.(string)
		if !ok || len(text) > longest || oneLine(text, longest) != text {
			return nil, fmt.Errorf("%s: one is no text of at most %d characters", at, longest)
		}
		all = append(all, text)
	}
	return all, nil
}

func receivedKey(fields map[string]any, at string) (string, error) {
	_, name, _ := strings.Cut(at, ".")
	text, ok := fields[name].(string)
	if fields[name] == nil || ok && text == "" {
		return "", nil
	}
	if !ok || !keyText.MatchString(text) {
		return "", fmt.Errorf("%s: is no public key", at)
	}
	return text, nil
}

// receivedStatus is what a provider makes of our own object, as far as it makes sense; current
// says that the provider has our spec as it is. What breaks a rule is left out.
func receivedStatus(obj map[string]any, own *v1alpha1.NetworkConfig, current bool) v1alpha1.NetworkConfigStatus {
	fields := field(obj, "status")
	s := v1alpha1.NetworkConfigStatus{Conditions: slices.Clone(own.Status.Conditions)}
	generation, _, _ := unstructured.NestedInt64(obj, "metadata", "generation")
	observed, _, _ := unstructured.NestedInt64(obj, "status", "observedGeneration")
	s.ObservedGeneration = min(own.Status.ObservedGeneration, own.Generation)
	if current && observed == generation && observed > 0 {
		s.ObservedGeneration = own.Generation
	}
	views, _ := fields["views"].([]any)
	for _, item := range views[:min(len(views), maxViews)] {
		v, _ := item.(map[string]any)
		real, _ := v["real"].(string)
		view, _ := v["view"].(string)
		if plain(real) && plain(view) {
			s.Views = append(s.Views, v1alpha1.NetworkView{Real: real, View: view})
		}
	}
	if next, err := receivedKey(fields, "status.nextPublicKey"); err == nil {
		s.NextPublicKey = next
	}
	conditions, _ := fields["conditions"].([]any)
	for _, item := range conditions[:min(len(conditions), maxViews)] {
		c, _ := item.(map[string]any)
		if c["type"] != v1alpha1.ConditionReady {
			continue
		}
		text := func(name string) string { t, _ := c[name].(string); return t }
		said := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionUnknown, Reason: text("reason"),
			Message: oneLine(text("message"), maxText), ObservedGeneration: s.ObservedGeneration}
		if st := metav1.ConditionStatus(text("status")); st == metav1.ConditionTrue || st == metav1.ConditionFalse {
			said.Status = st
		}
		if !reasonWord.MatchString(said.Reason) {
			said.Reason = v1alpha1.ReasonInvalid
		}
		meta.SetStatusCondition(&s.Conditions, said)
		break
	}
	return s
}

// plain reports whether a text is a prefix as it is written.
func plain(text string) bool {
	if len(text) > maxRange {
		return false
	}
	p, err := netip.ParsePrefix(text)
	return err == nil && p.String() == text && p == p.Masked()
}

// field is a field that is an object, nil if it is not.
func field(obj map[string]any, name string) map[string]any {
	f, _ := obj[name].(map[string]any)
	return f
}
