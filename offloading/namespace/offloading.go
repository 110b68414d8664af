package namespace

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/status"
)

const (
	// reconcileLimit bounds one look, all its requests together.
	reconcileLimit = 30 * time.Second
	// soon is when something is looked at again that is about to change.
	soon = 50 * time.Millisecond
)

// +kubebuilder:rbac:groups=pelago.dev,resources=namespaceoffloadings,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=pelago.dev,resources=namespaceoffloadings/status,verbs=patch
// +kubebuilder:rbac:groups=pelago.dev,resources=namespacemaps,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=pelago.dev,resources=peerings,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups="",resources=pods/eviction,verbs=create
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// offloader turns a NamespaceOffloading into entries of NamespaceMaps, and at its end
// brings the pods home.
type offloader struct {
	client client.Client
	live   client.Reader // past the cache
	clock  clock.PassiveClock
	fleet  Fleet
	events events.EventRecorder
	system string
	domain string // as it is exchanged: v1alpha1.Unusual
	memory memory
}

// Reconcile looks at one NamespaceOffloading.
func (r *offloader) Reconcile(ctx context.Context, req ctrl.Request) (res ctrl.Result, err error) {
	if req.Name != v1alpha1.OffloadingName {
		return ctrl.Result{}, nil
	}
	bounded, cancel := context.WithTimeout(ctx, reconcileLimit)
	defer cancel()
	o := &v1alpha1.NamespaceOffloading{}
	if err := r.client.Get(bounded, req.NamespacedName, o); apierrors.IsNotFound(err) {
		r.memory.forget(req.Namespace)
		return r.orphan(bounded, req.Namespace)
	} else if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading the namespace offloading: %w", err)
	}
	if o.DeletionTimestamp != nil && !controllerutil.ContainsFinalizer(o, v1alpha1.FinalizerOffloading) {
		return ctrl.Result{}, nil
	}
	before := o.DeepCopy()
	w := status.Begin(r.client, o)
	defer w.Commit(ctx, &res, &err)
	if o.DeletionTimestamp == nil && controllerutil.AddFinalizer(o, v1alpha1.FinalizerOffloading) {
		return ctrl.Result{}, nil // its being stored brings us back
	}
	f, err := r.gather(bounded, o)
	if err != nil {
		return ctrl.Result{}, err
	}
	p := decide(f)
	refusals, err := r.apply(bounded, f, p)
	k := r.memory.get(before)
	summarize(f, p, refusals, o, k.steady(f, p))
	if again := r.announce(k, f, o, p); again > 0 {
		p.in(again)
	}
	switch {
	case err != nil:
		return ctrl.Result{}, err
	case p.done && o.DeletionTimestamp != nil:
		controllerutil.RemoveFinalizer(o, v1alpha1.FinalizerOffloading)
		return ctrl.Result{}, nil
	case len(refusals) > 0:
		p.in(retryRefused)
	}
	return ctrl.Result{RequeueAfter: p.again}, nil
}

// orphan takes away what a NamespaceOffloading left that went without its finalizer.
func (r *offloader) orphan(ctx context.Context, namespace string) (ctrl.Result, error) {
	n, err := read(ctx, r.client, "", namespace, &corev1.Namespace{})
	if err != nil {
		return ctrl.Result{}, err
	}
	maps, err := r.maps(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	var held []string
	for peering, m := range maps {
		if _, ok := m.Spec.Namespaces[namespace]; ok {
			held = append(held, peering)
		}
	}
	marked := n != nil && n.Labels[v1alpha1.LabelOffloaded] != ""
	var rights []*rbacv1.RoleBinding
	for name, role := range map[string]string{managerBinding: managerHomeRole, managerTokensRole: managerTokensRole} {
		b, err := read(ctx, r.client, namespace, name, &rbacv1.RoleBinding{})
		if err != nil {
			return ctrl.Result{}, err
		}
		if own(b) && b.RoleRef.Name == role {
			rights = append(rights, b)
		}
	}
	if len(held) == 0 && !marked && len(rights) == 0 {
		return ctrl.Result{}, nil
	}
	// What follows ends pods, so it must be true now, not when the cache was filled.
	o, err := read(ctx, r.live, namespace, v1alpha1.OffloadingName, &v1alpha1.NamespaceOffloading{})
	if err != nil || o != nil {
		return ctrl.Result{RequeueAfter: time.Second}, err
	}
	var failed []error
	if marked {
		failed = append(failed, r.mark(ctx, namespace, ""))
	}
	for _, b := range rights {
		failed = append(failed, r.disarm(ctx, b))
	}
	for _, peering := range held {
		failed = append(failed, r.drop(ctx, peering, namespace))
	}
	return ctrl.Result{}, errors.Join(failed...)
}
