// Package setup puts rendered objects into a cluster and takes them out again: it
// applies in order, removes what an earlier version had and this one has not, says why
// something does not start, and on the way out leaves nothing. It does not know what
// the objects are for.
package setup

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kube"
)

// Owner is the field owner of everything that is installed.
const Owner = client.FieldOwner("pelago-install")

// Installed is the value of LabelManagedBy on everything that is installed.
const Installed = "install"

// pollEvery is how often a cluster is looked at while something is awaited.
const pollEvery = 250 * time.Millisecond

// Site is a cluster to install into.
type Site struct {
	// Client of the cluster.
	Client client.Client
	// Clock paces waits.
	Clock clock.WithDelayedExecution
	// Say tells what is going on.
	Say func(format string, args ...any)
}

// Changes counts what applying did.
type Changes struct{ Created, Changed, Unchanged, Removed int }

// None reports whether nothing was different.
func (c Changes) None() bool { return c.Created+c.Changed+c.Removed == 0 }

// Namespace is Pelago's own namespace.
func Namespace() *unstructured.Unstructured {
	labels := map[string]string{
		v1alpha1.LabelManagedBy:                      Installed,
		"app.kubernetes.io/part-of":                  "pelago",
		"pod-security.kubernetes.io/enforce":         "restricted",
		"pod-security.kubernetes.io/audit":           "restricted",
		"pod-security.kubernetes.io/warn":            "restricted",
		"pod-security.kubernetes.io/enforce-version": "latest",
	}
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("v1")
	u.SetKind("Namespace")
	u.SetName(v1alpha1.SystemNamespace)
	u.SetLabels(labels)
	return u
}

// Apply applies objects in their order, waiting for kinds to be served before the first
// object that is no definition. What others own in the objects stays.
func (s Site) Apply(ctx context.Context, objects []*unstructured.Unstructured) (Changes, error) {
	var changes Changes
	var kinds []*unstructured.Unstructured
	for _, object := range objects {
		if object.GetKind() == "CustomResourceDefinition" {
			kinds = append(kinds, object)
		} else if len(kinds) > 0 {
			if err := s.established(ctx, kinds); err != nil {
				return changes, err
			}
			kinds = nil
		}
		s.Say("Applying %s %s", object.GetKind(), object.GetName())
		if err := s.apply(ctx, object, &changes); err != nil {
			if object.GetKind() == daemonSetKind.Kind && apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) &&
				!kube.DenialOf(err).ByQuota() && !kube.Uncounted(err) {
				err = fmt.Errorf("%w; its pods have to be privileged: %s", err, withoutAgents)
			}
			return changes, fmt.Errorf("applying %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return changes, s.established(ctx, kinds)
}

func (s Site) apply(ctx context.Context, object *unstructured.Unstructured, changes *Changes) error {
	before := &metav1.PartialObjectMetadata{}
	before.SetGroupVersionKind(object.GroupVersionKind())
	missing := s.Client.Get(ctx, client.ObjectKeyFromObject(object), before)
	if client.IgnoreNotFound(missing) != nil {
		return missing
	}
	applied := object.DeepCopy()
	if err := s.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), Owner, client.ForceOwnership); err != nil {
		return err
	}
	switch {
	case missing != nil:
		changes.Created++
	case applied.GetResourceVersion() != before.ResourceVersion:
		changes.Changed++
	default:
		changes.Unchanged++
	}
	return nil
}

// established waits until definitions are served.
func (s Site) established(ctx context.Context, definitions []*unstructured.Unstructured) error {
	for _, definition := range definitions {
		s.Say("Waiting for kind %s", definition.GetName())
		current := &unstructured.Unstructured{}
		current.SetGroupVersionKind(definition.GroupVersionKind())
		err := s.until(ctx, func() (bool, error) {
			err := s.Client.Get(ctx, client.ObjectKeyFromObject(definition), current)
			return err == nil && isTrue(current, "Established"), client.IgnoreNotFound(err)
		})
		if err != nil {
			return fmt.Errorf("waiting until kind %s is served: %w", definition.GetName(), err)
		}
	}
	return nil
}

// isTrue reads a condition of any object.
func isTrue(object *unstructured.Unstructured, kind string) bool {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		m, ok := c.(map[string]any)
		return ok && m["type"] == kind && m["status"] == "True"
	})
}

// until asks again and again until done, or until the context ends.
func (s Site) until(ctx context.Context, done func() (bool, error)) error {
	for {
		if over, err := done(); over || err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.after(pollEvery):
		}
	}
}

// after is a channel that closes after a while.
func (s Site) after(d time.Duration) <-chan struct{} {
	done := make(chan struct{})
	s.Clock.AfterFunc(d, func() { close(done) })
	return done
}

// pruned are the kinds that versions of Pelago have installed, besides definitions of
// kinds, which go with --purge only, in the order in which to remove them: what the API
// server asks our programs for goes before they do, so that nothing waits for an answer
// that does not come. A kind that the cluster does not know is no error.
var pruned = []schema.GroupVersionKind{
	{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "MutatingWebhookConfiguration"},
	{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicyBinding"},
	{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicy"},
	{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"},
	deploymentKind,
	daemonSetKind,
	{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
	{Group: "monitoring.coreos.com", Version: "v1", Kind: "ServiceMonitor"},
	{Group: "monitoring.coreos.com", Version: "v1", Kind: "PrometheusRule"},
	{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"},
	{Version: "v1", Kind: "Service"},
	{Version: "v1", Kind: "ConfigMap"},
	{Version: "v1", Kind: "Secret"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRoleBinding"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"},
	{Version: "v1", Kind: "ServiceAccount"},
	{Group: "flowcontrol.apiserver.k8s.io", Version: "v1", Kind: "FlowSchema"},
	{Group: "flowcontrol.apiserver.k8s.io", Version: "v1", Kind: "PriorityLevelConfiguration"},
	{Group: "node.k8s.io", Version: "v1", Kind: "RuntimeClass"},
	{Group: "scheduling.k8s.io", Version: "v1", Kind: "PriorityClass"},
	{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"},
	{Group: "certificates.k8s.io", Version: "v1", Kind: "CertificateSigningRequest"},
}

// identity tells objects apart.
type identity struct {
	kind            schema.GroupKind
	namespace, name string
}

func identify(object client.Object, kind schema.GroupKind) identity {
	return identity{kind, object.GetNamespace(), object.GetName()}
}

// Prune deletes what an earlier installation made and the given objects do not hold.
func (s Site) Prune(ctx context.Context, keep []*unstructured.Unstructured) (int, error) {
	kept := map[identity]bool{}
	for _, object := range keep {
		kept[identify(object, object.GroupVersionKind().GroupKind())] = true
	}
	removed := 0
	for _, kind := range pruned {
		found, err := s.labelled(ctx, kind, client.MatchingLabels{v1alpha1.LabelManagedBy: Installed})
		if err != nil {
			return removed, err
		}
		for i := range found {
			object := &found[i]
			if kept[identify(object, kind.GroupKind())] {
				continue
			}
			s.Say("Removing %s %s of an earlier version", kind.Kind, object.GetName())
			if err := s.delete(ctx, object); err != nil {
				return removed, err
			}
			removed++
			if kind == daemonSetKind {
				if err := s.ended(ctx, object.GetNamespace()); err != nil {
					return removed, err
				}
			}
		}
	}
	space := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.NetworkNamespace}}
	space.SetGroupVersionKind(namespaceKind)
	if kept[identify(space, namespaceKind.GroupKind())] {
		return removed, nil
	}
	// It goes when it is empty, for which nobody waits.
	switch err := s.Client.Get(ctx, client.ObjectKeyFromObject(space), space); {
	case apierrors.IsNotFound(err) || err == nil && (space.Labels[v1alpha1.LabelManagedBy] != Installed || space.DeletionTimestamp != nil):
		return removed, nil
	case err != nil:
		return removed, fmt.Errorf("reading namespace %s: %w", space.Name, err)
	}
	return removed + 1, s.delete(ctx, space)
}

// labelled lists the objects of a kind in all namespaces.
func (s Site) labelled(ctx context.Context, kind schema.GroupVersionKind, opts ...client.ListOption) ([]metav1.PartialObjectMetadata, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind)
	err := s.Client.List(ctx, list, opts...)
	switch {
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("listing objects of kind %s: %w", kind.Kind, err)
	}
	for i := range list.Items {
		list.Items[i].SetGroupVersionKind(kind)
	}
	return list.Items, nil
}

// delete deletes an object with all that belongs to it; one that is gone is no error. It is
// named without a type: the client reads what is answered, and knows few of the kinds.
func (s Site) delete(ctx context.Context, object client.Object) error {
	named := &unstructured.Unstructured{}
	named.SetGroupVersionKind(object.GetObjectKind().GroupVersionKind())
	named.SetNamespace(object.GetNamespace())
	named.SetName(object.GetName())
	err := s.Client.Delete(ctx, named, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if err := client.IgnoreNotFound(err); err != nil && !meta.IsNoMatchError(err) {
		return fmt.Errorf("deleting %s %s: %w", object.GetObjectKind().GroupVersionKind().Kind, object.GetName(), err)
	}
	return nil
}
