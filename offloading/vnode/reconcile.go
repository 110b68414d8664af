package vnode

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/status"
)

const (
	// callLimit bounds what one look at a request does at the API server.
	callLimit = 20 * time.Second
	// lookEvery is how often a node is looked at though nothing is known to have changed.
	lookEvery = 30 * time.Second
	// soon is when to look again at what others are about to do.
	soon = time.Second
	// nameRetry is how often is looked whether a name has become free.
	nameRetry = 10 * time.Second
)

// +kubebuilder:rbac:groups=pelago.dev,resources=resourcerequests,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=pelago.dev,resources=resourcerequests/status,verbs=patch
// +kubebuilder:rbac:groups=pelago.dev,resources=resourceoffers;peerings,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=nodes/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups="",resources=pods/eviction,verbs=create
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// reconciler keeps the virtual node of a request.
type reconciler struct {
	client    client.Client
	live      client.Reader // past the cache, where staleness could do harm
	events    events.EventRecorder
	home      Home
	fleet     Fleet
	clock     clock.PassiveClock
	first     sync.Once
	began     time.Time // of leading, when connections are made
	address   string
	version   string
	namespace string
	ports     func(node string) int32
	gauge     *gauge
}

func newReconciler(c client.Client, live client.Reader, recorder events.EventRecorder, o Options) *reconciler {
	return &reconciler{
		client: c, live: live, events: recorder, home: o.Home, fleet: o.Fleet, clock: o.Clock,
		address: o.Address, version: o.Version, namespace: o.Namespace, ports: o.Ports, gauge: newGauge(),
	}
}

// Reconcile brings the virtual node of one request further.
func (r *reconciler) Reconcile(ctx context.Context, key ctrl.Request) (ctrl.Result, error) {
	r.first.Do(func() { r.began = r.clock.Now() })
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	f, err := r.gather(ctx, r.client, key.NamespacedName)
	if apierrors.IsNotFound(err) { // of one without a node there was no end to see
		r.gauge.forget(strings.TrimPrefix(key.Namespace, v1alpha1.PeeringNamespacePrefix), key.Name)
		return ctrl.Result{}, nil
	} else if err != nil {
		return ctrl.Result{}, err
	}
	o := decide(f)
	if o.course == end && (f.ours() || held(f.request)) && !draining(f.node) {
		// The end of a node is the end of its pods: it must not come of an old view.
		if f, err = r.gather(ctx, r.live, key.NamespacedName); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
		o = decide(f)
	}
	var res ctrl.Result
	switch o.course {
	case end:
		res, err = r.end(ctx, f, o)
	case keepUp:
		res, err = r.keep(ctx, f)
	default:
		r.gauge.forget(f.peeringName(), f.request.Name)
		err = r.say(ctx, f, "", metav1.ConditionFalse, o.reason, o.message)
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return ctrl.Result{RequeueAfter: 50 * time.Millisecond}, nil
	}
	return res, err
}

func held(request *v1alpha1.ResourceRequest) bool {
	return slices.Contains(request.Finalizers, v1alpha1.FinalizerNode)
}

// gather reads what a decision needs. The error is NotFound if the request is gone.
func (r *reconciler) gather(ctx context.Context, from client.Reader, key client.ObjectKey) (facts, error) {
	f := facts{
		now: r.clock.Now(), began: r.began, request: &v1alpha1.ResourceRequest{},
		address: r.address, version: r.version, kubernetes: r.home.Info().KubernetesVersion,
	}
	if err := from.Get(ctx, key, f.request); err != nil {
		return f, fmt.Errorf("reading the request: %w", err)
	}
	peering := strings.TrimPrefix(key.Namespace, v1alpha1.PeeringNamespacePrefix)
	namespace, p, offer, node := &corev1.Namespace{}, &v1alpha1.Peering{}, &v1alpha1.ResourceOffer{}, &corev1.Node{}
	there := map[client.Object]bool{}
	for obj, name := range map[client.Object]client.ObjectKey{
		namespace: {Name: key.Namespace}, p: {Name: peering}, offer: key, node: {Name: f.name()},
	} {
		err := from.Get(ctx, name, obj)
		if client.IgnoreNotFound(err) != nil {
			return f, fmt.Errorf("reading %T: %w", obj, err)
		}
		there[obj] = err == nil
	}
	if there[p] && there[namespace] && namespace.Labels[v1alpha1.LabelPeering] == peering {
		f.peering = p
	}
	if there[offer] && offer.DeletionTimestamp.IsZero() {
		f.offer = offer
	}
	if there[node] {
		f.node = node
	}
	if peer, ok := r.fleet.Peer(peering); ok {
		s := peer.State()
		f.state = &s
	}
	f.port = r.ports(f.name())
	return f, nil
}

// keep makes the node or keeps it true.
func (r *reconciler) keep(ctx context.Context, f facts) (ctrl.Result, error) {
	wait := func(again time.Duration, node, reason, message string) (ctrl.Result, error) {
		r.gauge.set(f.peeringName(), f.request.Name, false)
		return ctrl.Result{RequeueAfter: again}, r.say(ctx, f, node, metav1.ConditionFalse, reason, message)
	}
	if f.node != nil && !f.ours() {
		return wait(nameRetry, "", v1alpha1.ReasonNameTaken, nameTaken(f))
	}
	if f.node != nil && !f.node.DeletionTimestamp.IsZero() {
		return wait(soon, f.name(), v1alpha1.ReasonTerminating, "somebody has deleted the node; it is made again when it is gone")
	}
	if !held(f.request) {
		if err := r.hold(ctx, f.request, controllerutil.AddFinalizer); err != nil {
			return ctrl.Result{}, err
		}
	}
	if f.node == nil {
		if listed, err := r.listed(ctx, f.name()); err != nil {
			return ctrl.Result{}, err
		} else if !listed {
			return wait(soon, "", v1alpha1.ReasonWaiting, "waiting until admission knows the node")
		}
	}
	node, err := r.write(ctx, f)
	if err != nil {
		return ctrl.Result{}, err
	}
	ready := nodeReady(node)
	r.gauge.set(f.peeringName(), f.request.Name, ready.Status == corev1.ConditionTrue)
	again := lookEvery
	if f.port == 0 || f.state == nil {
		again = soon
	} else if f.state.Reason == v1alpha1.ReasonPending {
		again = max(soon, f.state.Since.Add(connectingFor).Sub(f.now))
	}
	return ctrl.Result{RequeueAfter: again}, r.say(ctx, f, node.Name, metav1.ConditionStatus(ready.Status), ready.Reason, ready.Message)
}

func nameTaken(f facts) string {
	return fmt.Sprintf("a node named %s is there that was not made for this request; remove it, or write the request under another name", f.name())
}

// write makes the node, or patches what differs.
func (r *reconciler) write(ctx context.Context, f facts) (*corev1.Node, error) {
	if f.node == nil {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.name()}}
		describe(node, f)
		state(node, f)
		if err := r.client.Create(ctx, node); err != nil {
			return nil, fmt.Errorf("making the node: %w", err)
		}
		ctrl.LoggerFrom(ctx).Info("virtual node made", "node", node.Name, "peering", f.peeringName(), "request", f.request.Name)
		return node, nil
	}
	node := f.node.DeepCopy()
	describe(node, f)
	if !equality.Semantic.DeepEqual(f.node.ObjectMeta, node.ObjectMeta) || !equality.Semantic.DeepEqual(f.node.Spec, node.Spec) {
		// Taints are replaced as a whole, and others write them too.
		if err := r.client.Patch(ctx, node, locked(f.node)); err != nil {
			return nil, fmt.Errorf("changing the node: %w", err)
		}
	}
	before := node.DeepCopy()
	if state(node, f); !equality.Semantic.DeepEqual(before.Status, node.Status) {
		if err := r.writeStatus(ctx, before, node); err != nil {
			return nil, fmt.Errorf("writing the node's status: %w", err)
		}
	}
	return node, nil
}

// writeStatus patches a node's status. If the API server does not take it, the node keeps the
// size it has: whether the provider can be reached is to be known whatever it offers.
func (r *reconciler) writeStatus(ctx context.Context, before, node *corev1.Node) error {
	next := node.Status.DeepCopy()
	err := r.client.Status().Patch(ctx, node, client.StrategicMergeFrom(before))
	if !apierrors.IsInvalid(err) {
		return err
	}
	ctrl.LoggerFrom(ctx).Error(err, "size of the node not taken", "node", before.Name)
	next.Capacity, next.Allocatable = before.Status.Capacity, before.Status.Allocatable
	if node.Status = *next; equality.Semantic.DeepEqual(before.Status, node.Status) {
		return nil
	}
	return r.client.Status().Patch(ctx, node, client.StrategicMergeFrom(before))
}

func locked(before client.Object) client.Patch {
	return client.MergeFromWithOptions(before.DeepCopyObject().(client.Object), client.MergeFromWithOptimisticLock{})
}

// hold puts the finalizer on or takes it off.
func (r *reconciler) hold(ctx context.Context, request *v1alpha1.ResourceRequest, change func(client.Object, string) bool) error {
	before := request.DeepCopy()
	if !change(request, v1alpha1.FinalizerNode) {
		return nil
	}
	if err := r.client.Patch(ctx, request, locked(before)); err != nil {
		return fmt.Errorf("writing the request's finalizers: %w", err)
	}
	return nil
}

// listed says whether admission knows a node already.
func (r *reconciler) listed(ctx context.Context, name string) (bool, error) {
	list := &rbacv1.Role{}
	err := r.live.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: v1alpha1.AdmissionName}, list)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading the list of nodes for admission: %w", err)
	}
	return slices.Contains(strings.Fields(list.Annotations[v1alpha1.AnnotationAdmissionNodes]), name), nil
}

// say writes into the request which node it has and how that is. Others write conditions
// of the request as well: the lock keeps this from undoing what they wrote.
func (r *reconciler) say(ctx context.Context, f facts, node string, is metav1.ConditionStatus, reason, message string) error {
	before := f.request.DeepCopy()
	f.request.Status.Node = node
	if is == metav1.ConditionTrue {
		message = "" // as all is well
	}
	meta.SetStatusCondition(&f.request.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionNodeReady, Status: is, Reason: reason, Message: message, ObservedGeneration: f.request.Generation,
	})
	if equality.Semantic.DeepEqual(before.Status, f.request.Status) {
		return nil
	}
	if err := r.client.Status().Patch(ctx, f.request, locked(before)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the request's status: %w", err)
	}
	was, now := status.IsTrue(before.Status.Conditions, v1alpha1.ConditionNodeReady), is == metav1.ConditionTrue
	switch {
	case now && !was:
		r.events.Eventf(f.request, nil, corev1.EventTypeNormal, "NodeReady", "Serve", "virtual node %s is ready", node)
	case was && !now:
		r.events.Eventf(f.request, nil, corev1.EventTypeWarning, reason, "Serve", "virtual node %s is not ready: %s", f.name(), message)
	}
	return nil
}
