package kubelet

import (
	"context"
	"errors"
	"fmt"
	"net/http"

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
}

// Error is the text.
func (r refusal) Error() string { return r.text }

func refuse(code int, format string, args ...any) error {
	return refusal{code: code, text: fmt.Sprintf(format, args...)}
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
	pod := &corev1.Pod{}
	err := h.client.Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: t.pod}, pod)
	switch {
	case apierrors.IsNotFound(err) || err == nil && pod.Spec.NodeName != node:
		return nil, none, refuse(http.StatusNotFound, "pod %q does not exist on node %s", t.pod, node)
	case err != nil:
		return nil, none, fmt.Errorf("reading the pod: %w", err)
	case t.uid != "" && t.uid != string(pod.UID):
		return nil, none, refuse(http.StatusNotFound, "pod %q has another UID", t.pod)
	}
	peer, ok := h.fleet.Peer(peering)
	if !ok {
		return nil, none, refuse(unanswered, "there is no connection to cluster %s, which runs the pods of node %s", peering, node)
	}
	shadow := &v1alpha1.ShadowPod{}
	err = peer.Reader().Get(ctx, client.ObjectKey{Namespace: peer.TenantNamespace(), Name: string(pod.UID)}, shadow)
	switch {
	case errors.Is(err, fleet.ErrNotSynced):
		return nil, none, refuse(unanswered, "nothing is known yet of the pods at cluster %s", peering)
	case apierrors.IsNotFound(err):
		return nil, none, t.waiting("it is not known to cluster " + peering + " yet")
	case err != nil:
		return nil, none, fmt.Errorf("reading the shadow pod: %w", err)
	}
	ref := shadow.Status.Ref
	if ref == nil {
		return nil, none, t.waiting(reason(shadow, peering))
	}
	// What a provider says becomes part of an address.
	if len(validation.IsDNS1123Label(ref.Namespace)) > 0 || len(validation.IsDNS1123Subdomain(ref.Name)) > 0 {
		return nil, none, refuse(http.StatusBadGateway, "cluster %s names no valid pod for %q", peering, t.pod)
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
func reason(shadow *v1alpha1.ShadowPod, peering string) string {
	c := meta.FindStatusCondition(shadow.Status.Conditions, v1alpha1.ConditionAccepted)
	if c == nil {
		return "cluster " + peering + " has not made it yet"
	}
	return clip(fmt.Sprintf("%s: %s", c.Reason, c.Message))
}
