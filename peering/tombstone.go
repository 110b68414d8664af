package peering

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

const (
	tombstonePrefix = "tombstone-"
	// tombstoneMin and tombstoneMax bound the wait between goodbyes that failed.
	tombstoneMin = time.Second
	tombstoneMax = 5 * time.Minute
	// tombstoneRefused bounds it while goodbyes are refused.
	tombstoneRefused = 20 * time.Second
)

// bury keeps in a Secret what is needed to say goodbye later.
func (r *reconciler) bury(ctx context.Context, v *visit) error {
	c := *v.cred
	c.NextKey, c.NextRequest, c.Invitation, c.Used = nil, nil, "", ""
	conn := c.connection(v.Name, v.Spec.Consume)
	c.Server, c.Proxy, c.OwnServer, c.OwnProxy = conn.ServerURL, conn.ProxyURL, "", ""
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.namespace, Name: fmt.Sprintf("%s%s-%.8s", tombstonePrefix, v.Name, c.peeringUID()),
			Labels: map[string]string{v1alpha1.LabelManagedBy: component, v1alpha1.LabelTombstone: v.Name},
		},
		Type: corev1.SecretTypeOpaque,
		Data: c.store(),
	}
	if err := r.client.Create(ctx, s); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("storing the tombstone: %w", err)
	}
	return nil
}

// registerTombstones adds the controller that delivers what was left unsaid.
func (r *reconciler) registerTombstones(mgr ctrl.Manager) error {
	marked := predicate.NewPredicateFuncs(func(obj client.Object) bool {
		return obj.GetNamespace() == r.namespace && obj.GetLabels()[v1alpha1.LabelTombstone] != ""
	})
	err := ctrl.NewControllerManagedBy(mgr).Named("tombstone").
		WithOptions(controller.Options{MaxConcurrentReconciles: workers / 2, RateLimiter: retries()}).
		For(&corev1.Secret{}, builder.WithPredicates(marked)).
		Complete(&tombstones{r})
	if err != nil {
		return fmt.Errorf("setting up the controller of tombstones: %w", err)
	}
	return nil
}

// tombstones reconciles the Secrets that keep saying goodbye.
type tombstones struct{ *reconciler }

// Reconcile tries to deliver one goodbye. Its Secret goes when it is delivered, or
// when it cannot be any more.
func (t *tombstones) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	defer t.count(ctx)
	s := &corev1.Secret{}
	if err := t.live.Get(ctx, req.NamespacedName, s); err != nil || s.DeletionTimestamp != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if s.Labels[v1alpha1.LabelTombstone] == "" {
		return ctrl.Result{}, nil
	}
	logger := ctrl.LoggerFrom(ctx).WithValues("peering", s.Labels[v1alpha1.LabelTombstone])
	now := t.clock.Now()
	c, err := load(s)
	if err != nil || !c.issued() {
		logger.Info("tombstone dropped, it is damaged")
		return t.drop(ctx, s)
	}
	if wait := t.memory.pause(s.UID, "", now); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	most := tombstoneMax
	err = t.deliver(ctx, c, s.Labels[v1alpha1.LabelTombstone])
	if !turnedAway(err) {
		t.memory.unrefused(s.UID)
	} else if _, lasting := t.memory.refuse(s.UID, now); lasting {
		t.event(s, corev1.EventTypeWarning, v1alpha1.ReasonForbidden, "Goodbye", unknown(err))
		logger.Info("tombstone dropped, the provider refuses it", "error", printable(err.Error()))
		return t.drop(ctx, s)
	} else {
		most = tombstoneRefused
	}
	switch {
	case client.IgnoreNotFound(err) == nil:
		logger.Info("goodbye delivered")
		return t.drop(ctx, s)
	case c.over(now):
		t.event(s, corev1.EventTypeWarning, v1alpha1.ReasonExpired, "Goodbye", "the goodbye was not delivered before the credential expired; the provider's owner has to remove the tenant")
		logger.Info("tombstone dropped, its credential has expired")
		return t.drop(ctx, s)
	}
	logger.V(1).Info("goodbye not delivered", "error", printable(err.Error()))
	return ctrl.Result{RequeueAfter: t.memory.failed(s.UID, "", now, tombstoneMin, most, 0, t.jitter())}, nil
}

// deliver says goodbye over a connection of its own.
func (t *tombstones) deliver(ctx context.Context, c *credential, peering string) error {
	peer, closePeer, err := t.fleet.Client(c.connection(peering, nil))
	if err != nil {
		return err
	}
	defer closePeer()
	return peer.Delete(ctx, &v1alpha1.Identity{ObjectMeta: metav1.ObjectMeta{Namespace: c.TenantNamespace, Name: v1alpha1.IdentityName}})
}

func (t *tombstones) drop(ctx context.Context, s *corev1.Secret) (ctrl.Result, error) {
	t.memory.forget(s.UID)
	return ctrl.Result{}, t.remove(ctx, s)
}

// count shows how many goodbyes are left.
func (t *tombstones) count(ctx context.Context) {
	list := &corev1.SecretList{}
	if err := t.client.List(ctx, list, client.InNamespace(t.namespace), client.HasLabels{v1alpha1.LabelTombstone}); err == nil {
		t.meter.tombstones.Set(float64(len(list.Items)))
	}
}
