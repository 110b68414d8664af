package namespace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// apply does what a plan says. It returns the entries that could not be written until
// something changes, by peering.
func (r *offloader) apply(ctx context.Context, f *facts, p *plan) (map[string]verdict, error) {
	if p.mark != nil {
		if err := r.mark(ctx, f.name, *p.mark); err != nil {
			return nil, err // no cluster is left while pods are still let through
		}
	}
	var failed []error
	for _, b := range p.disarm {
		failed = append(failed, r.disarm(ctx, b))
	}
	for _, b := range p.arm {
		failed = append(failed, apply(ctx, r.client, b))
	}
	refusals := map[string]verdict{}
	for _, c := range p.put {
		peering := c.name
		err := r.put(ctx, peering, f.name, f.mapping(c))
		switch {
		case err == nil:
		case leaving(err):
			refusals[peering] = verdict{v1alpha1.ReasonWaiting, "waiting for namespace " + v1alpha1.PeeringNamespace(peering)}
		case apierrors.IsInvalid(err):
			refusals[peering] = verdict{v1alpha1.ReasonLimitExceeded, "the namespace map of " + peering + " takes no more namespaces; unoffload others, or leave this cluster out by spec.clusterSelector"}
		default:
			failed = append(failed, fmt.Errorf("writing the namespace map of %s: %w", peering, err))
		}
	}
	slow := 0
	for _, pod := range p.evict {
		err := r.evict(ctx, pod)
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			if slow++; slow == maxSlow {
				break // the next look goes on
			}
			continue
		}
		failed = append(failed, err)
	}
	for _, pod := range p.remove {
		err := r.client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID})
		if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			failed = append(failed, fmt.Errorf("deleting pod %s: %w", pod.Name, err))
		}
	}
	for _, peering := range p.drop {
		failed = append(failed, r.drop(ctx, peering, f.name))
	}
	return refusals, errors.Join(failed...)
}

// evict asks a pod to leave; a disruption budget may say not yet. Clients wait by
// themselves where a server says when to come again, so the call has its own deadline.
func (r *offloader) evict(ctx context.Context, pod *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, evictLimit)
	defer cancel()
	as := &metav1.Preconditions{UID: &pod.UID}
	if pod.Spec.NodeName == "" {
		as.ResourceVersion = &pod.ResourceVersion // it may be bound by now
	}
	err := r.client.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: as},
	})
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil
	case apierrors.IsTooManyRequests(err), apierrors.IsInternalError(err): // a budget, or more than one for a pod
		return nil
	case apierrors.IsForbidden(err):
		return nil // the namespace's end deletes it, or it is deleted when it has not left in time
	}
	return fmt.Errorf("evicting pod %s: %w", pod.Name, err)
}

// mark gives the label that admission goes by a value, or takes it off if that is empty.
func (r *offloader) mark(ctx context.Context, namespace, label string) error {
	var value any
	if label != "" {
		value = label
	}
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	err := r.client.Patch(ctx, n, merge("metadata", map[string]any{"labels": map[string]any{v1alpha1.LabelOffloaded: value}}))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("labelling the namespace: %w", err)
	}
	return nil
}

// disarm takes the manager's own rights in a namespace.
func (r *offloader) disarm(ctx context.Context, b *rbacv1.RoleBinding) error {
	if err := r.client.Delete(ctx, b, client.Preconditions{UID: &b.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("taking the manager's rights in %s: %w", b.Namespace, err)
	}
	return nil
}

// put writes one entry and nothing else: many write into the same NamespaceMap.
func (r *offloader) put(ctx context.Context, peering, namespace string, entry v1alpha1.NamespaceMapping) error {
	m := homeMap(peering)
	err := r.client.Patch(ctx, m, merge("spec", map[string]any{"namespaces": map[string]any{namespace: entryJSON(entry)}}))
	if !apierrors.IsNotFound(err) {
		return err
	}
	m = homeMap(peering)
	m.Labels = map[string]string{v1alpha1.LabelManagedBy: component, v1alpha1.LabelPeering: peering}
	m.Spec.Namespaces = map[string]v1alpha1.NamespaceMapping{namespace: entry}
	err = r.client.Create(ctx, m)
	if apierrors.IsAlreadyExists(err) {
		return apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("namespacemaps").GroupResource(), m.Name, err)
	}
	return err
}

// entryFields are the fields of an entry, the empty ones too.
func entryFields(m v1alpha1.NamespaceMapping) map[string]string {
	return map[string]string{"strategy": string(m.Strategy), "remoteName": m.RemoteName,
		"onward": string(m.Onward), "originNamespace": m.OriginNamespace, "originOwner": m.OriginOwner, "domain": m.Domain}
}

// entryJSON is an entry in which what is empty is taken out.
func entryJSON(m v1alpha1.NamespaceMapping) map[string]any {
	out := map[string]any{}
	for key, value := range entryFields(m) {
		if out[key] = value; value == "" {
			out[key] = nil
		}
	}
	return out
}

// drop takes one entry out.
func (r *offloader) drop(ctx context.Context, peering, namespace string) error {
	err := r.client.Patch(ctx, homeMap(peering), merge("spec", map[string]any{"namespaces": map[string]any{namespace: nil}}))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("taking the namespace out of the map of %s: %w", peering, err)
	}
	return nil
}

func homeMap(peering string) *v1alpha1.NamespaceMap {
	return &v1alpha1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: v1alpha1.PeeringNamespace(peering), Name: v1alpha1.NamespaceMapName}}
}

// merge is a JSON merge patch of one field.
func merge(field string, value any) client.Patch {
	text, err := json.Marshal(map[string]any{field: value})
	if err != nil {
		panic(err) // maps of strings
	}
	return client.RawPatch(types.MergePatchType, text)
}
