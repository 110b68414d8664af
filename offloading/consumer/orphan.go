package consumer

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/throttle"
)

// orphans ends ShadowPods whose home pod is gone, deleted by force or while this program
// or the provider was away, and those that outlive the mapping of their namespace. Its
// requests are PEERING/UID.
type orphans struct {
	client client.Client
	live   client.Reader
	fleet  Fleet
	meter  *meter
	turns  *throttle.Turns // at providers, by peering
}

// Reconcile looks at one ShadowPod.
func (o *orphans) Reconcile(ctx context.Context, key ctrl.Request) (ctrl.Result, error) {
	defer o.turns.Pass(key)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	peer, ok := o.fleet.Peer(key.Namespace)
	if !ok || !peer.State().Reachable {
		return ctrl.Result{}, nil // its state brings us back
	}
	s := &v1alpha1.ShadowPod{}
	where := client.ObjectKey{Namespace: peer.TenantNamespace(), Name: key.Name}
	if err := peer.Reader().Get(ctx, where, s); err != nil || !s.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil // gone, going, or not read yet
	}
	home := client.ObjectKey{Namespace: s.Spec.Home.Namespace, Name: s.Spec.Home.Name}
	for _, reader := range []client.Reader{o.client, o.live} {
		pod, err := living(ctx, reader, home, key.Name)
		if err != nil {
			return ctrl.Result{}, err
		}
		if pod == nil {
			continue
		}
		if ours, err := belongs(ctx, reader, key.Namespace, pod); err != nil || ours {
			return ctrl.Result{}, err
		}
	}
	if !o.turns.Take(key.Namespace, key) {
		return ctrl.Result{}, nil // it is called when there is a turn
	}
	defer o.turns.Give(key.Namespace)
	o.meter.calls.WithLabelValues("delete").Inc()
	remote, cancel := context.WithTimeout(ctx, remoteLimit)
	defer cancel()
	err := peer.Client().Delete(remote, &v1alpha1.ShadowPod{ObjectMeta: objectMeta(where)}, client.Preconditions{UID: &s.UID})
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return ctrl.Result{}, nil
	case denied(err):
		return after(spread(2 * time.Minute)), nil
	}
	return ctrl.Result{}, fmt.Errorf("deleting a shadow pod without a home pod: %w", err)
}

// living is the home pod of a UID, nil if it is not there.
func living(ctx context.Context, reader client.Reader, home client.ObjectKey, uid string) (*corev1.Pod, error) {
	// The names are the provider's word: they become part of a path.
	if len(validation.IsDNS1123Label(home.Namespace)) > 0 || len(validation.IsDNS1123Subdomain(home.Name)) > 0 {
		return nil, nil
	}
	pod := &corev1.Pod{}
	err := reader.Get(ctx, home, pod)
	if apierrors.IsNotFound(err) || apierrors.IsBadRequest(err) || apierrors.IsInvalid(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the home pod: %w", err)
	}
	if string(pod.UID) != uid {
		return nil, nil
	}
	return pod, nil
}

// of lists what a provider has, for when it begins to answer.
func (o *orphans) of(peering string) []reconcile.Request {
	peer, ok := o.fleet.Peer(peering)
	if !ok || !peer.State().Reachable {
		return nil
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ShadowPodList"))
	if err := peer.Reader().List(context.Background(), list); err != nil {
		return nil // what is read later is told one by one
	}
	var all []reconcile.Request
	for i := range list.Items {
		all = append(all, shadowAt(peering, list.Items[i].GetName()))
	}
	return all
}
