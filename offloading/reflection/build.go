package reflection

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
)

// A provider's build may be older than this one: what it does not know stays home, and
// travels when it is upgraded.

// +kubebuilder:rbac:groups=pelago.dev,resources=peerings,verbs=get;list;watch

// unknown says why a kind does not travel to a build that does not know it; "" if it does.
func unknown(there v1alpha1.ClusterInfo, kind string) string {
	if v1alpha1.KeepsKind(there.Features, kind) {
		return ""
	}
	version := there.Version
	if version == "" {
		version = "of an unknown version"
	}
	return fmt.Sprintf("the provider runs Pelago %.64s, which does not know %s; it stays home until that is upgraded", version, v1alpha1.FeatureOfKind(kind))
}

// without is an object without what a provider's build would refuse it for.
func without(there v1alpha1.ClusterInfo, obj client.Object) client.Object {
	s, ok := obj.(*corev1.Service)
	if !ok || slices.Contains(there.Features, v1alpha1.FeatureServiceFamilies) {
		return obj
	}
	s = s.DeepCopy()
	s.Spec.IPFamilies = nil
	return s
}

// remote is what a provider says of itself; empty if it has not said it yet.
func (r *consumer) remote(ctx context.Context, peering string) (v1alpha1.ClusterInfo, error) {
	p := &v1alpha1.Peering{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: peering}, p); client.IgnoreNotFound(err) != nil {
		return v1alpha1.ClusterInfo{}, fmt.Errorf("reading the peering: %w", err)
	}
	return info(p), nil
}

func info(p *v1alpha1.Peering) v1alpha1.ClusterInfo {
	if p.Status.Remote == nil {
		return v1alpha1.ClusterInfo{}
	}
	return *p.Status.Remote
}

// builds asks for all that travels to a provider whose build is another one now.
func (w wakers) builds() handler.EventHandler {
	return handler.Funcs{UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
		old, ok := e.ObjectOld.(*v1alpha1.Peering)
		now, ok2 := e.ObjectNew.(*v1alpha1.Peering)
		if !ok || !ok2 || slices.Equal(info(old).Features, info(now).Features) {
			return
		}
		for _, r := range w.ofPeer(now.Name) {
			q.Add(r)
		}
	}}
}

// outgrown says whether a provider's definition of ShadowObjects lacks the kind of one, or
// a field: it is older than its build says, or than builds say such things.
func outgrown(err error) bool {
	status := apierrors.APIStatus(nil)
	if errors.Is(err, fleet.ErrOlder) {
		return true
	}
	return apierrors.IsInvalid(err) && errors.As(err, &status) && status.Status().Details != nil && slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool {
		return c.Field == "spec.home.kind" && c.Type == metav1.CauseTypeFieldValueNotSupported
	})
}
