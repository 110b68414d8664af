package offer

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kube"
	"github.com/pelago-dev/pelago/internal/status"
)

// remoteLimit bounds what one reconcile does at a provider.
const remoteLimit = 15 * time.Second

// refusedRetry is when a provider that refused is asked again.
const refusedRetry = 30 * time.Second

// consumer carries the requests of this cluster to its providers, and their offers
// home.
type consumer struct {
	client client.Client
	clock  clock.PassiveClock
	fleet  Fleet
	events events.EventRecorder
	copies pace // changes of the copies of offers
	// known are the copies as they were written last, *unstructured.Unstructured by key of
	// their requests.
	known sync.Map
}

// +kubebuilder:rbac:groups=pelago.dev,resources=resourcerequests,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=pelago.dev,resources=resourcerequests/status,verbs=patch
// +kubebuilder:rbac:groups=pelago.dev,resources=peerings,verbs=get;list;watch

// Reconcile carries one request.
func (c *consumer) Reconcile(ctx context.Context, key ctrl.Request) (res ctrl.Result, err error) {
	request := &v1alpha1.ResourceRequest{}
	if err := c.client.Get(ctx, key.NamespacedName, request); apierrors.IsNotFound(err) {
		c.known.Delete(key.NamespacedName)
		return ctrl.Result{}, nil
	} else if err != nil {
		return ctrl.Result{}, err
	}
	peering, err := c.peering(ctx, request.Namespace)
	if err != nil {
		return ctrl.Result{}, err
	}
	before := request.DeepCopy()
	w := status.Begin(c.client, request)
	defer w.Commit(ctx, &res, &err)
	request.Status.ObservedGeneration = request.Generation
	switch {
	case peering == nil || !peering.DeletionTimestamp.IsZero() || peering.Spec.Consume == nil:
		orphan(request, peering)
		return ctrl.Result{}, nil
	case !request.DeletionTimestamp.IsZero():
		return c.withdraw(ctx, request, peering.Name)
	case controllerutil.AddFinalizer(request, v1alpha1.FinalizerWithdraw):
		return ctrl.Result{}, nil // its being stored brings us back
	}
	res, err = c.carry(ctx, request, peering.Name)
	conclude(request)
	announce(c.events, before, request)
	return res, err
}

// peering finds the Peering of a namespace, nil if there is none.
func (c *consumer) peering(ctx context.Context, namespace string) (*v1alpha1.Peering, error) {
	name := strings.TrimPrefix(namespace, v1alpha1.PeeringNamespacePrefix)
	labelled := &corev1.Namespace{}
	if err := c.client.Get(ctx, client.ObjectKey{Name: namespace}, labelled); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading the namespace: %w", err)
	}
	if labelled.Labels[v1alpha1.LabelPeering] != name {
		return nil, nil
	}
	peering := &v1alpha1.Peering{}
	if err := c.client.Get(ctx, client.ObjectKey{Name: name}, peering); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading the peering: %w", err)
	}
	return peering, nil
}

// orphan releases a request that goes to nobody: there is no provider to tell, or the
// end of the peering takes away there all that is ours.
func orphan(request *v1alpha1.ResourceRequest, peering *v1alpha1.Peering) {
	controllerutil.RemoveFinalizer(request, v1alpha1.FinalizerWithdraw)
	if !request.DeletionTimestamp.IsZero() {
		return
	}
	name := strings.TrimPrefix(request.Namespace, v1alpha1.PeeringNamespacePrefix)
	conditions, generation := &request.Status.Conditions, request.Generation
	reason, message := v1alpha1.ReasonWaiting, "there is no peering "+name+" to consume from; peer with that cluster, or delete this request and write it in the namespace of another peering"
	switch {
	case peering == nil:
	case !peering.DeletionTimestamp.IsZero():
		reason, message = v1alpha1.ReasonTerminating, "the peering is being removed"
	default:
		message = "peering " + name + " consumes nothing: set its spec.consume, or delete this request"
	}
	status.False(conditions, generation, v1alpha1.ConditionSent, reason, message)
	conclude(request)
	if reason != v1alpha1.ReasonTerminating {
		status.True(conditions, generation, v1alpha1.ConditionStalled, reason, message)
	}
}

// withdraw takes the copies of a deleted request away, the provider's first.
func (c *consumer) withdraw(ctx context.Context, request *v1alpha1.ResourceRequest, peering string) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(request, v1alpha1.FinalizerWithdraw) {
		return ctrl.Result{}, nil
	}
	wait := func(reason, message string) {
		status.False(&request.Status.Conditions, request.Generation, v1alpha1.ConditionReady, reason, message)
	}
	if controllerutil.ContainsFinalizer(request, v1alpha1.FinalizerNode) {
		wait(v1alpha1.ReasonTerminating, "waiting until the virtual node is drained and gone")
		return ctrl.Result{}, nil // its finalizer brings us back
	}
	peer, ok := c.fleet.Peer(peering)
	if !ok {
		wait(v1alpha1.ReasonTerminating, "waiting for the connection to "+peering+" to withdraw the request there; ends with the peering")
		return ctrl.Result{}, nil // the connection brings us back
	}
	if reachable, _, _ := peer.Reachable(); !reachable {
		wait(v1alpha1.ReasonPeerUnreachable, peering+" does not answer; waiting to withdraw the request there; ends with the peering")
		return ctrl.Result{}, nil
	}
	remote, cancel := context.WithTimeout(ctx, remoteLimit)
	defer cancel()
	err := peer.Client().Delete(remote, remoteRequest(peer, request.Name))
	switch {
	case err == nil, apierrors.IsNotFound(err):
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		wait(kube.DenialOf(err).Reason(), peering+" refuses to withdraw the request; ends with the peering")
		return ctrl.Result{RequeueAfter: refusedRetry}, nil
	default:
		wait(v1alpha1.ReasonTerminating, "waiting for "+peering+" to withdraw the request; ends with the peering")
		return ctrl.Result{}, fmt.Errorf("withdrawing the request at the provider: %w", err)
	}
	if err := c.dropCopy(ctx, request); err != nil {
		return ctrl.Result{}, err
	}
	controllerutil.RemoveFinalizer(request, v1alpha1.FinalizerWithdraw)
	return ctrl.Result{}, nil
}
