package reflection

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/offloading/content"
)

// lookEvery is when is looked again whether what was made is still there.
const lookEvery = 5 * time.Minute

// place is where an object belongs.
type place struct {
	// name of the namespace, if it is ready.
	name string
	// over: there is none, and none is being made.
	over bool
}

// claim is what is known of one ShadowObject.
type claim struct {
	shadow *v1alpha1.ShadowObject
	tenant string
	place  place
	kind   content.Kind // if it travels
	rules  content.Rules
	have   client.Object // of the name that is wanted, in the place
	unseen bool          // nobody has looked whether there is such a one: we have made none
	runs   bool          // of tokens: the pod does, here
	// service is the metadata of the one that a slice names, in the place.
	service client.Object
	// past is where the object was made before, if not in the place.
	past *v1alpha1.ObjectRef
	// broken: parts of the text are missing, or of another one.
	broken bool
	// unknown: nobody can say yet which addresses are the tenant's.
	unknown bool
}

// deed is what to do for a ShadowObject, and what to say.
type deed struct {
	// remove this one, which is not the one in the place unless that is refused.
	remove *v1alpha1.ObjectRef
	// create want, after the one that is there is gone if replace, or patch that to next.
	create, replace, patch bool
	want, next             client.Object
	reason, message        string // of Accepted; True if the reason is Ready
	lacks, lacking         string // what the one that is wanted should have, and has not: a word, and a sentence
	ends                   bool   // the one before, which has to be gone first
}

// judge says what to do for a ShadowObject, whoever wrote it.
func judge(c claim) deed {
	home := c.shadow.Spec.Home
	d := deed{remove: c.past}
	refuse := func(reason, message string) deed {
		if c.have != nil && d.remove == nil && owned(c.have, c.tenant, home.Namespace) {
			d.remove = &v1alpha1.ObjectRef{Namespace: c.have.GetNamespace(), Name: c.have.GetName()}
		}
		d.reason, d.message = reason, message
		return d
	}
	if bad := badHome(c.shadow); bad != "" {
		d.reason, d.message = v1alpha1.ReasonRefused, bad
		return d
	}
	missing := func() deed {
		if !c.place.over { // what was made before stays until it is known
			d.remove = nil
		}
		d.reason, d.message = v1alpha1.ReasonNamespaceMissing, "the namespace mapped for "+home.Namespace+" is not ready"
		return d
	}
	if c.broken { // what it says is not known, but what it is
		switch {
		case slices.Contains(c.rules.Deny, c.kind.Name):
			return refuse(v1alpha1.ReasonRefused, fmt.Sprintf("the provider takes no %s of this tenant", c.kind.Name))
		case !c.kind.Long:
			return refuse(v1alpha1.ReasonRefused, "spec.parts: a "+c.kind.Name+" has none")
		case c.place.name == "":
			return missing()
		}
		d.reason, d.message = v1alpha1.ReasonWaiting, "spec.parts: not all parts are there, or they are of another text; what was made before stays"
		return d
	}
	if c.kind.Name == kindService && c.place.name == "" {
		return missing() // what one of the type ExternalName means is not known without it
	}
	want, wrong := c.kind.Decode(c.shadow.Spec.Object, c.rules)
	switch {
	case wrong != "":
		return refuse(v1alpha1.ReasonRefused, wrong)
	case misplaced(c, want) != "":
		return refuse(v1alpha1.ReasonRefused, misplaced(c, want))
	case c.place.name == "":
		return missing()
	}
	if reason, message := unserved(c, want); reason != "" {
		return refuse(reason, message)
	}
	want.SetNamespace(c.place.name)
	want.SetName(home.Name)
	mark(want, c.tenant, home.Namespace)
	d.want, d.reason = want, v1alpha1.ReasonReady
	d.lacks, d.lacking = c.kind.Lacks(c.shadow.Spec.Object, c.rules)
	switch {
	case c.have == nil:
		d.create = true
	case !owned(c.have, c.tenant, home.Namespace):
		d.want, d.reason = nil, v1alpha1.ReasonNameTaken
		d.message = fmt.Sprintf("namespace %s has a %s %s that is not yours; give yours another name", c.place.name, home.Kind, home.Name)
	case c.have.GetDeletionTimestamp() != nil: // somebody's finalizer holds it
		d.ends, d.reason, d.message = true, v1alpha1.ReasonPending, "the one before it is still ending at the provider"
	default:
		d.next, d.patch, d.replace = c.kind.Merge(c.have, want)
		if d.replace {
			d.create, d.patch = true, false
		}
	}
	return d
}

// badHome says what is wrong with what a ShadowObject is of.
func badHome(s *v1alpha1.ShadowObject) string {
	home := s.Spec.Home
	kind, ok := kindOf(home.Kind)
	if !ok {
		return fmt.Sprintf("spec.home.kind %.63q does not travel; %s do", home.Kind, strings.Join(carried, ", "))
	}
	if bad := badName(home); bad != "" {
		return bad
	}
	if slices.Contains(kind.Never, home.Name) {
		return fmt.Sprintf("spec.home.name: a %s of the name %s does not travel; give yours another name", home.Kind, home.Name)
	}
	if want := v1alpha1.ShadowObjectName(home); s.Name != want {
		return "metadata.name must be " + want + ", which follows from spec.home"
	}
	return ""
}

// mark says on an object that it was made here, where it is, for a tenant's namespace at
// home.
func mark(o client.Object, tenant, home string) {
	labels, annotations := o.GetLabels(), o.GetAnnotations()
	if labels == nil {
		labels = map[string]string{}
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	labels[v1alpha1.LabelManagedBy], labels[v1alpha1.LabelTenant], labels[v1alpha1.LabelHomeNamespace] = manager, tenant, home
	annotations[v1alpha1.AnnotationPlace] = client.ObjectKeyFromObject(o).String()
	o.SetLabels(labels)
	o.SetAnnotations(annotations)
}

// owned says whether an object was made here for a tenant's namespace at home.
func owned(o client.Object, tenant, home string) bool {
	return madeFor(o, tenant) && o.GetLabels()[v1alpha1.LabelHomeNamespace] == home
}

// madeFor says whether an object was made here for a tenant.
func madeFor(o client.Object, tenant string) bool {
	return !copied(o) && o.GetLabels()[v1alpha1.LabelManagedBy] == manager && o.GetLabels()[v1alpha1.LabelTenant] == tenant
}

// same says whether two places are one.
func same(a, b *v1alpha1.ObjectRef) bool { return reflect.DeepEqual(a, b) }
