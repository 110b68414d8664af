package reflection

import (
	"fmt"
	"maps"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
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
	have   *corev1.Secret // of the name that is wanted, in the place
	// past is where the object was made before, if not in the place.
	past *v1alpha1.ObjectRef
}

// deed is what to do for a ShadowObject, and what to say.
type deed struct {
	// remove these, of which the Secret in the place is none.
	remove *v1alpha1.ObjectRef
	// create it, after the one that is there if replace, or patch it.
	create, replace, patch bool
	want                   *corev1.Secret
	reason, message        string // of Accepted; True if the reason is Ready
}

// judge says what to do for a ShadowObject, whoever wrote it.
func judge(c claim) deed {
	home := c.shadow.Spec.Home
	d := deed{remove: c.past}
	refuse := func(reason, message string) deed {
		if c.have != nil && d.remove == nil && owned(c.have, c.tenant, home.Namespace) {
			d.remove = &v1alpha1.ObjectRef{Namespace: c.have.Namespace, Name: c.have.Name}
		}
		d.reason, d.message = reason, message
		return d
	}
	if bad := badHome(c.shadow); bad != "" {
		d.reason, d.message = v1alpha1.ReasonRefused, bad
		return d
	}
	got, err := decode(c.shadow.Spec.Object)
	switch {
	case err != nil:
		return refuse(v1alpha1.ReasonRefused, err.Error())
	case c.place.name == "":
		if !c.place.over { // what was made before stays until it is known
			d.remove = nil
		}
		d.reason, d.message = v1alpha1.ReasonNamespaceMissing, "the namespace mapped for "+home.Namespace+" is not ready"
		return d
	}
	d.want = &corev1.Secret{ObjectMeta: objectMeta(c.place.name, home.Name), Type: got.Type, Data: got.Data}
	d.want.Labels = map[string]string{
		v1alpha1.LabelManagedBy: manager, v1alpha1.LabelTenant: c.tenant, v1alpha1.LabelHomeNamespace: home.Namespace,
	}
	d.reason = v1alpha1.ReasonReady
	switch {
	case c.have == nil:
		d.create = true
	case !owned(c.have, c.tenant, home.Namespace):
		d.want, d.reason = nil, v1alpha1.ReasonNameTaken
		d.message = fmt.Sprintf("namespace %s has a Secret %s that is not yours; give yours another name", c.place.name, home.Name)
	case c.have.Type != got.Type || c.have.Immutable != nil && *c.have.Immutable:
		d.create, d.replace = true, true
	case !maps.EqualFunc(c.have.Data, got.Data, func(a, b []byte) bool { return string(a) == string(b) }):
		d.patch = true
	}
	return d
}

// badHome says what is wrong with what a ShadowObject is of.
func badHome(s *v1alpha1.ShadowObject) string {
	home := s.Spec.Home
	if home.Kind != kindSecret {
		return fmt.Sprintf("spec.home.kind %.63q is not carried; only Secret is", home.Kind)
	}
	if bad := badName(home); bad != "" {
		return bad
	}
	if want := v1alpha1.ShadowObjectName(home); s.Name != want {
		return "metadata.name must be " + want + ", which follows from spec.home"
	}
	return ""
}

// owned says whether a Secret was made here for a tenant's namespace at home.
func owned(s *corev1.Secret, tenant, home string) bool {
	return s.Labels[v1alpha1.LabelManagedBy] == manager && s.Labels[v1alpha1.LabelTenant] == tenant && s.Labels[v1alpha1.LabelHomeNamespace] == home
}

// same says whether two places are one.
func same(a, b *v1alpha1.ObjectRef) bool { return reflect.DeepEqual(a, b) }
