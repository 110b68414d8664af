package kubelet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
)

// home is what this cluster knows of its pods: which are bound to a virtual node, and
// where they run.
type home struct {
	client client.Reader
	fleet  Fleet
}

// refusal is why a request is not carried, in words that kubectl shows.
type refusal struct {
	code int
	text string
	// theirs: the text is the provider's.
	theirs bool
}

// Error is the text.
func (r refusal) Error() string { return r.text }

func refuse(code int, format string, args ...any) error {
	return refusal{code: code, text: fmt.Sprintf(format, args...)}
}

// words are what those who ask for a pod are told of where it runs.
type words struct {
	cluster, node string // which run it
	// foreign: the pod is here for a tenant, who is not told where it went onward.
	foreign bool
}

// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch

// about are the words for pods of a namespace. A namespace of which nothing is known is nobody's
// to be told of.
func (h home) about(ctx context.Context, namespace, peering, node string) words {
	n := &corev1.Namespace{}
	if err := h.client.Get(ctx, client.ObjectKey{Name: namespace}, n); err != nil || n.Labels[v1alpha1.LabelTenant] != "" || n.Labels[v1alpha1.LabelHomeNamespace] != "" {
		return words{cluster: "the cluster", node: "its node", foreign: true}
	}
	return words{cluster: "cluster " + peering, node: "node " + node}
}

// list is the pods that are bound to a node.
func (h home) list(ctx context.Context, node string) ([]corev1.Pod, error) {
	var found corev1.PodList
	if err := h.client.List(ctx, &found, client.MatchingFields{podsOfNode: node}); err != nil {
		return nil, fmt.Errorf("listing the pods of node %s: %w", node, err)
	}
	return found.Items, nil
}

// where is the pod at the provider that a target stands for: it must be bound to this
// very node, and have been made there.
func (h home) where(ctx context.Context, node, peering string, t target) (Peer, v1alpha1.PodRef, error) {
	var none v1alpha1.PodRef
	say := h.about(ctx, t.namespace, peering, node)
	pod := &corev1.Pod{}
	err := h.client.Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: t.pod}, pod)
	switch {
	case apierrors.IsNotFound(err) || err == nil && pod.Spec.NodeName != node:
		return nil, none, refuse(http.StatusNotFound, "pod %q does not exist on %s", t.pod, say.node)
	case err != nil:
		return nil, none, fmt.Errorf("reading the pod: %w", err)
	case t.uid != "" && t.uid != string(pod.UID):
		return nil, none, refuse(http.StatusNotFound, "pod %q has another UID", t.pod)
	}
	peer, ok := h.fleet.Peer(peering)
	if !ok {
		return nil, none, refuse(unanswered, "there is no connection to %s, which runs the pods of %s", say.cluster, say.node)
	}
	shadow := &v1alpha1.ShadowPod{}
	err = peer.Reader().Get(ctx, client.ObjectKey{Namespace: peer.TenantNamespace(), Name: string(pod.UID)}, shadow)
	switch {
	case errors.Is(err, fleet.ErrNotSynced):
		return nil, none, refuse(unanswered, "nothing is known yet of the pods at %s", say.cluster)
	case apierrors.IsNotFound(err):
		return nil, none, t.waiting("it is not known to " + say.cluster + " yet")
	case err != nil:
		return nil, none, fmt.Errorf("reading the shadow pod: %w", err)
	}
	ref := shadow.Status.Ref
	if ref == nil {
		return nil, none, t.waiting(reason(shadow, say))
	}
	// What a provider says becomes part of an address.
	if len(validation.IsDNS1123Label(ref.Namespace)) > 0 || len(validation.IsDNS1123Subdomain(ref.Name)) > 0 {
		return nil, none, refuse(http.StatusBadGateway, "%s names no valid pod for %q", say.cluster, t.pod)
	}
	return peer, *ref, nil
}

// waiting is what kubelets say of containers that do not run yet.
func (t target) waiting(why string) error {
	switch t.part {
	case "log":
		return refuse(http.StatusBadRequest, "container %q in pod %q is waiting to start: %s", t.container, t.pod, why)
	case "portforward":
		return refuse(http.StatusNotFound, "pod %q is not running: %s", t.pod, why)
	}
	return refuse(http.StatusNotFound, "container not found (%q): pod %q is not running: %s", t.container, t.pod, why)
}

// reason is why the provider has made no pod, in its own words.
func reason(shadow *v1alpha1.ShadowPod, say words) string {
	c := meta.FindStatusCondition(shadow.Status.Conditions, v1alpha1.ConditionAccepted)
	switch {
	case c == nil:
		return say.cluster + " has not made it yet"
	case say.foreign:
		return "it has not been made there yet"
	}
	return clip(fmt.Sprintf("%s: %s", c.Reason, c.Message))
}

// plainRefusal is what kubelets say of containers that are not there, or not yet: names of the
// pod's own and nothing of where it runs.
var plainRefusal = regexp.MustCompile(`^(container|previous terminated container|a container name must be specified|unable to upgrade connection: container not found)[ (][-a-zA-Z0-9 "()\[\],.:]*$`)

// telling is a refusal as it is told of a pod: to a tenant none of the provider's own words but
// plain ones.
func (w words) telling(err error) error {
	refused := refusal{}
	if !w.foreign || !errors.As(err, &refused) || !refused.theirs || plainRefusal.MatchString(refused.text) {
		return err
	}
	return refuse(refused.code, "the cluster that runs the pod refused: %s", http.StatusText(refused.code))
}
