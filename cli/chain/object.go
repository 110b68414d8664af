package chain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// mostObjectWords are the objects that are told of one namespace at one cluster.
const mostObjectWords = 5

// objectRemedy is for objects of which nothing else is said.
const objectRemedy = "see docs/reflection.md, when something does not travel"

// ObjectWords says what is wrong with an object at a provider, and what to do.
func ObjectWords(o v1alpha1.ReflectedObject) (message, remedy string) {
	if o.Reason == "" {
		return "", ""
	}
	message, remedy, _ = strings.Cut(Plain(o.Reason, o.Message), "; ")
	return message, cmp.Or(remedy, objectRemedy)
}

// ObjectsOf are the objects of a namespace that NamespaceMaps speak of, by the name of the
// peering.
func ObjectsOf(maps []v1alpha1.NamespaceMap, namespace string) map[string][]v1alpha1.ReflectedObject {
	all := map[string][]v1alpha1.ReflectedObject{}
	for _, m := range maps {
		peering, ours := strings.CutPrefix(m.Namespace, v1alpha1.PeeringNamespacePrefix)
		for _, o := range m.Status.Objects {
			if ours && o.Namespace == namespace {
				all[peering] = append(all[peering], o)
			}
		}
	}
	return all
}

// objectsStep says which objects of a namespace a cluster refuses or has otherwise; it is
// empty if there are none.
func objectsStep(f NamespaceFacts, name string) Step {
	s := Step{Fact: "its objects are at " + name + " as they are here", State: Aside}
	var words, remedies []string
	for _, o := range f.Objects[name] {
		message, remedy := ObjectWords(o)
		if message == "" {
			continue
		}
		if words = append(words, fmt.Sprintf("%s %s: %s", o.Kind, o.Name, message)); o.Refused {
			s.State = Broken
		}
		if !slices.Contains(remedies, remedy) {
			remedies = append(remedies, remedy)
		}
	}
	if len(words) == 0 {
		return Step{}
	}
	s.Evidence = few(words)
	s.Remedy = few(remedies)
	return s
}

// addressesStep says where the load balancers and Ingresses of a namespace are reached at a
// cluster; it is empty if there are none.
func addressesStep(f NamespaceFacts, name string) Step {
	var words []string
	for _, o := range f.Objects[name] {
		if len(o.Addresses) > 0 {
			words = append(words, fmt.Sprintf("%s %s by %s", o.Kind, o.Name, strings.Join(o.Addresses, ", ")))
		}
	}
	if len(words) == 0 {
		return Step{}
	}
	return Step{Fact: name + " says where it is reached", State: Done, Evidence: few(words)}
}

// few puts some of many things into one line.
func few(all []string) string {
	text := strings.Join(all[:min(len(all), mostObjectWords)], "; ")
	if more := len(all) - mostObjectWords; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}
