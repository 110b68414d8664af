package peering

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
	"github.com/pelago-dev/pelago/internal/status"
)

// present keeps true at the provider who this cluster is, and here who the provider is.
func (r *reconciler) present(ctx context.Context, v *visit) (bool, error) {
	identity := &v1alpha1.Identity{}
	key := client.ObjectKey{Namespace: v.peer.TenantNamespace(), Name: v1alpha1.IdentityName}
	err := v.peer.Reader().Get(ctx, key, identity)
	switch {
	case errors.Is(err, fleet.ErrNotSynced):
		return false, nil // the watch set tells when it is there
	case err != nil && !apierrors.IsNotFound(err) && !isTrue(v.Peering, v1alpha1.ConditionReachable):
		return false, nil // it shows too much, and this one too late: the next heartbeat looks again
	case err != nil && !apierrors.IsNotFound(err):
		v.no(v1alpha1.ConditionCompatible, v1alpha1.ReasonInvalid, "the provider's Identity of this cluster cannot be read; ask its owner which version of Pelago runs there")
		return false, nil
	case err != nil || over(identity):
		return false, r.ended(ctx, v)
	}
	v.identity = identity
	// What the provider says of itself must not keep it from hearing who this is.
	if err := r.tell(ctx, v); err != nil {
		r.later(ctx, v, err)
		return false, nil
	}
	if err := checkInfo(identity.Status.Cluster, v.Spec.ClusterID); err != nil && identity.Status.Cluster != nil {
		v.no(v1alpha1.ConditionCompatible, v1alpha1.ReasonInvalid, "what the provider says of itself is not usable: "+err.Error())
		return false, nil
	} else if err == nil {
		v.Status.Remote = identity.Status.Cluster.DeepCopy()
	}
	moved, err := r.follow(ctx, v)
	return !moved && err == nil, err
}

// over says whether a provider has ended the peering.
func over(i *v1alpha1.Identity) bool {
	return i.DeletionTimestamp != nil || status.IsTrue(i.Status.Conditions, v1alpha1.ConditionRevoked)
}

// ended takes the consumer's part out of the Peering; the farewell follows from that.
func (r *reconciler) ended(ctx context.Context, v *visit) error {
	v.over = true
	r.memory.tell(v.UID)
	v.no(v1alpha1.ConditionReady, v1alpha1.ReasonEndedByProvider, "the provider has ended the peering; what belongs to it here is being removed")
	v.working = v1alpha1.ReasonEndedByProvider
	r.event(v.Peering, corev1.EventTypeWarning, v1alpha1.ReasonEndedByProvider, "Unpeer", "the provider has ended the peering")
	ctrl.LoggerFrom(ctx).Info("peering ended by the provider")
	if v.Spec.Provide != nil {
		v.Spec.Consume = nil
		return nil
	}
	return r.remove(ctx, v.DeepCopy())
}

// tell patches what the provider knows of this cluster, if that has changed.
func (r *reconciler) tell(ctx context.Context, v *visit) error {
	info := r.home.Info()
	if equality.Semantic.DeepEqual(info, v.identity.Spec.Cluster) {
		return nil
	}
	return r.patchIdentity(ctx, v, map[string]any{"cluster": info})
}

// patchIdentity writes some fields of the spec at the provider, and no others.
func (r *reconciler) patchIdentity(ctx context.Context, v *visit, spec map[string]any) error {
	text, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		return fmt.Errorf("encoding the identity: %w", err)
	}
	// The watch brings what was written; the answer need not repeat it.
	only := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: v.peer.TenantNamespace(), Name: v1alpha1.IdentityName}}
	only.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Identity"))
	if err := v.peer.Client().Patch(ctx, only, client.RawPatch(types.MergePatchType, text)); err != nil {
		return fmt.Errorf("writing this cluster's identity at the provider: %w", err)
	}
	return nil
}

// follow stores where the provider's API server is now, once this cluster's Identity
// has been read there: an address that is wrong must not replace one that works.
func (r *reconciler) follow(ctx context.Context, v *visit) (bool, error) {
	s := &v.identity.Status
	if s.ServerURL == "" || s.TenantNamespace != v.cred.TenantNamespace {
		return false, nil // nothing said: what works stays
	}
	c := *v.cred
	c.Server, c.Proxy, c.CA = s.ServerURL, s.ProxyURL, []byte(s.ServerCA)
	c.inside(v.Spec.Consume)
	if c.Server == v.cred.Server && c.Proxy == v.cred.Proxy && bytes.Equal(c.CA, v.cred.CA) {
		return false, nil
	}
	if err := checkPlace(s); err != nil {
		v.stay("the address or authority that the provider announces is not usable: "+err.Error()+"; what works is kept", seldom)
		return false, nil
	}
	var rest time.Duration
	var stay string
	r.memory.of(v.UID, func(m *recollection) { rest, stay = m.moved.Add(seldom).Sub(v.now), m.stay })
	if rest > 0 {
		v.stay(stay, rest)
		return false, nil
	}
	stay = ""
	if err := r.try(ctx, v, &c); err != nil {
		stay = "the provider announces the address " + s.ServerURL + ", which does not work from here; the one that works is kept"
		ctrl.LoggerFrom(ctx).V(1).Info("new address of the provider does not work", "error", printable(err.Error()))
	}
	r.memory.of(v.UID, func(m *recollection) { m.moved, m.stay = v.now, stay })
	if stay != "" {
		v.stay(stay, seldom)
		return false, nil
	}
	if err := r.save(ctx, v, &c); err != nil {
		return false, err
	}
	v.soon(time.Millisecond)
	return true, nil
}

// stay shows why the address was not replaced, and looks again.
func (v *visit) stay(why string, again time.Duration) {
	if why != "" && isTrue(v.Peering, v1alpha1.ConditionReachable) {
		v.yes(v1alpha1.ConditionReachable, v1alpha1.ReasonPeerReachable, why)
	}
	v.soon(again)
}

// try reads this cluster's Identity over another connection.
func (r *reconciler) try(ctx context.Context, v *visit, c *credential) error {
	peer, closePeer, err := r.fleet.Client(r.connection(v.Name, v.Spec.Consume, c))
	if err != nil {
		return err
	}
	defer closePeer()
	there := &metav1.PartialObjectMetadata{}
	there.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Identity"))
	if err := peer.Get(ctx, client.ObjectKeyFromObject(v.identity), there); err != nil {
		return fmt.Errorf("reading this cluster's identity there: %w", err)
	}
	if there.UID != v.identity.UID {
		return errors.New("this cluster's identity there is another one")
	}
	return nil
}

// compare finds what both sides know, and says whether that is enough. If not, the
// credential is kept all the same: it is needed to say goodbye.
func (r *reconciler) compare(_ context.Context, v *visit) (bool, error) {
	return v.compatible(r.home.Info()), nil
}

// compatible is the decision of compare.
func (v *visit) compatible(home v1alpha1.ClusterInfo) bool {
	if v.Status.Remote == nil {
		v.no(v1alpha1.ConditionCompatible, v1alpha1.ReasonPending, "the provider has not said yet what it knows")
		return false
	}
	v.Status.Features = both(home.Features, v.Status.Remote.Features)
	if !slices.Contains(v.Status.Features, v1alpha1.FeaturePeering) {
		v.no(v1alpha1.ConditionCompatible, v1alpha1.ReasonUnsupported, fmt.Sprintf(
			"this cluster runs Pelago %s, %s runs %s, and only one of them knows %s; upgrade the older one",
			known(home.Version), v.Status.Remote.Name, known(v.Status.Remote.Version), v1alpha1.FeaturePeering))
		return false
	}
	v.yes(v1alpha1.ConditionCompatible, v1alpha1.ReasonReady, unused(home.Features, v.Status.Remote))
	return true
}

// unused says what this cluster does not do with a provider that is older.
func unused(features []string, there *v1alpha1.ClusterInfo) string {
	missing := v1alpha1.MissingFeatures(features, there.Features)
	if len(missing) == 0 {
		return ""
	}
	return fmt.Sprintf("%s runs Pelago %s, which does not know %s: not used with it until it is upgraded",
		there.Name, known(there.Version), strings.Join(missing, ", "))
}

func known(version string) string {
	if version == "" {
		return "of an unknown version"
	}
	return version
}

// both is what two lists have in common, sorted.
func both(a, b []string) []string {
	var common []string
	for _, x := range a {
		if slices.Contains(b, x) {
			common = append(common, x)
		}
	}
	slices.Sort(common)
	return slices.Compact(common)
}

// remote sorts an error of a call to the provider: what an unreachable or refusing
// peer answers is a condition, not an error of ours, and is tried again.
func (r *reconciler) remote(ctx context.Context, v *visit, err error) (bool, error) {
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		return false, err
	}
	r.later(ctx, v, err)
	return false, nil
}

// later looks again after a call to the provider that failed, be it a refusal: what
// else is to be done goes on.
func (r *reconciler) later(ctx context.Context, v *visit, err error) {
	ctrl.LoggerFrom(ctx).V(1).Info("call to the provider failed", "error", printable(err.Error()))
	v.soon(backoff(2, time.Second, 5*time.Second, r.jitter()))
}
