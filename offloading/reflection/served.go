package reflection

import (
	"context"
	"fmt"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// A slice of a tenant is made only beside a Service of that tenant and namespace: nobody
// else's gets endpoints by it.

// serviceOf finds the Service that a slice of a tenant names, nil if there is none. That it
// was looked for is remembered before, so that no Service comes or goes unseen.
func (r *provider) serviceOf(ctx context.Context, c *claim, n *made) (client.Object, error) {
	want, wrong := c.kind.Decode(c.shadow.Spec.Object, c.rules)
	if wrong != "" {
		return nil, nil
	}
	n.service = types.NamespacedName{Namespace: c.place.name, Name: want.GetLabels()[discoveryv1.LabelServiceName]}
	r.notes.set(client.ObjectKeyFromObject(c.shadow), *n)
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(serviceKind.GroupVersion().WithKind(kindService))
	if err := r.client.Get(ctx, n.service, m); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading the Service of a slice: %w", err)
	} else if err != nil {
		return nil, nil
	}
	return m, nil
}

// unserved says why a slice is not made that belongs to no Service of its tenant and
// namespace.
func unserved(c claim, want client.Object) (reason, message string) {
	if c.kind.Name != kindSlice {
		return "", ""
	}
	name := want.GetLabels()[discoveryv1.LabelServiceName]
	switch {
	case c.service == nil:
		return v1alpha1.ReasonWaiting, "spec.object: content: service: no Service " + name + " has come from " + c.shadow.Spec.Home.Namespace + " yet; send it"
	case !owned(c.service, c.tenant, c.shadow.Spec.Home.Namespace):
		return v1alpha1.ReasonRefused, "spec.object: content: service: the Service " + name + " in namespace " + c.place.name + " is not yours; give yours another name"
	}
	return "", ""
}

// services asks for the slices of Services of tenants that come, go, or change hands, and for the Service that waits until
// one has gone.
func (w *watcher) services(of *notes[made]) handler.EventHandler {
	wake := func(obj client.Object, q queue) {
		tenant := obj.GetLabels()[v1alpha1.LabelTenant]
		if tenant == "" || !madeFor(obj, tenant) {
			return
		}
		here := v1alpha1.ObjectRef{Namespace: obj.GetNamespace(), Name: obj.GetName()}
		for _, key := range of.find(func(m made) bool {
			return m.service == client.ObjectKeyFromObject(obj) || m.ends > 0 && m.kind == kindService && same(m.ref, &here)
		}) {
			w.add(&v1alpha1.ShadowObject{ObjectMeta: objectMeta(key.Namespace, key.Name)}, q)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { wake(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			a, b := e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()
			for _, key := range []string{v1alpha1.LabelManagedBy, v1alpha1.LabelTenant, v1alpha1.LabelHomeNamespace} {
				if a[key] != b[key] {
					wake(e.ObjectOld, q)
					wake(e.ObjectNew, q)
					return
				}
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { wake(e.Object, q) },
	}
}
