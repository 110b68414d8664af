package namespace

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kube"
	"github.com/pelago-dev/pelago/internal/status"
)

// remoteLimit bounds what one look does at a provider.
const remoteLimit = 15 * time.Second

// +kubebuilder:rbac:groups=pelago.dev,resources=namespacemaps,verbs=get;list;watch
// +kubebuilder:rbac:groups=pelago.dev,resources=namespacemaps/status,verbs=patch
// +kubebuilder:rbac:groups=pelago.dev,resources=namespaceoffloadings,verbs=get;list;watch

// carrier brings NamespaceMaps to their providers, and the answers home.
type carrier struct {
	client  client.Client
	live    client.Reader // past the cache
	clock   clock.PassiveClock
	fleet   Fleet
	sent    pace    // writes at providers
	copied  pace    // writes at home
	answers *ration // the same, in the long run
	missing times   // since when there is no map, by its namespace
}

func newCarrier(c client.Client, live client.Reader, k clock.PassiveClock, f Fleet) *carrier {
	return &carrier{client: c, live: live, clock: k, fleet: f, answers: newRation()}
}

// Reconcile carries one NamespaceMap.
func (c *carrier) Reconcile(ctx context.Context, req ctrl.Request) (res ctrl.Result, err error) {
	peering, ok := strings.CutPrefix(req.Namespace, v1alpha1.PeeringNamespacePrefix)
	if !ok || req.Name != v1alpha1.NamespaceMapName {
		return ctrl.Result{}, nil
	}
	m := &v1alpha1.NamespaceMap{}
	if err := c.client.Get(ctx, req.NamespacedName, m); apierrors.IsNotFound(err) {
		c.copied.forget(req.Namespace)
		c.answers.forget(req.Namespace)
		return c.lost(ctx, req.Namespace, peering)
	} else if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading the namespace map: %w", err)
	}
	c.missing.forget(req.Namespace)
	if m.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	before := m.DeepCopy()
	res, err = c.carry(ctx, m, peering)
	now := c.clock.Now()
	c.answers.asks(req.Namespace, m.Spec.Namespaces)
	if wait := max(c.copied.wait(req.Namespace, now), c.answers.wait(req.Namespace, now)); wait > 0 && statusDiffers(before, m) {
		if err == nil && (res.RequeueAfter == 0 || res.RequeueAfter > wait) {
			res = ctrl.Result{RequeueAfter: wait}
		}
		return res, err
	}
	if statusDiffers(before, m) {
		c.copied.note(req.Namespace, now)
		c.answers.note(req.Namespace, now)
		w := status.Begin(c.client, before)
		m.DeepCopyInto(before)
		w.Commit(ctx, &res, &err)
	}
	return res, err
}

func statusDiffers(a, b *v1alpha1.NamespaceMap) bool {
	said := func(m *v1alpha1.NamespaceMap) string {
		if r := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady); r != nil {
			return string(r.Status) + " " + r.Reason + " " + r.Message
		}
		return ""
	}
	return a.Status.ObservedGeneration != b.Status.ObservedGeneration || said(a) != said(b) || !maps.Equal(a.Status.Namespaces, b.Status.Namespaces)
}

// carry sends what is wanted and takes what is answered.
func (c *carrier) carry(ctx context.Context, m *v1alpha1.NamespaceMap, peering string) (ctrl.Result, error) {
	not := func(reason, message string) {
		status.False(&m.Status.Conditions, m.Generation, v1alpha1.ConditionReady, reason, message)
	}
	peer, ok := c.fleet.Peer(peering)
	if !ok {
		not(v1alpha1.ReasonWaiting, "waiting for the peering to be ready")
		return ctrl.Result{}, nil // the connection brings us back
	}
	if reachable, _, _ := peer.Reachable(); !reachable {
		not(v1alpha1.ReasonPeerUnreachable, peering+" does not answer")
		return ctrl.Result{}, nil
	}
	there := remoteMap(peer.TenantNamespace())
	err := peer.Reader().Get(ctx, client.ObjectKeyFromObject(there), there)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		not(v1alpha1.ReasonPending, "reading what is at "+peering)
		return ctrl.Result{}, nil // being read brings us back
	}
	want, err := c.desired(ctx, m, peering, there)
	if err != nil {
		return ctrl.Result{}, err
	}
	sent, res, err := c.send(ctx, m, peer, there, missing, want)
	switch {
	case apierrors.IsForbidden(err) && !kube.Uncounted(err), apierrors.IsUnauthorized(err):
		not(kube.DenialOf(err).Reason(), peering+" refuses the namespace map: "+oneLine(err.Error(), maxMessage))
		return ctrl.Result{RequeueAfter: retryRefused}, nil
	case apierrors.IsInvalid(err):
		not(v1alpha1.ReasonInvalid, peering+" finds the namespace map invalid: "+oneLine(err.Error(), maxMessage))
		return ctrl.Result{RequeueAfter: retryRefused}, nil
	case err != nil:
		not(v1alpha1.ReasonPending, peering+" does not take the namespace map now")
		return ctrl.Result{}, fmt.Errorf("sending the namespace map: %w", err)
	}
	tenant := strings.TrimPrefix(peer.TenantNamespace(), v1alpha1.TenantNamespacePrefix)
	a := received(there.Object, m.Spec.Namespaces, tenant)
	m.Status.ObservedGeneration, m.Status.Namespaces = a.observed, a.namespaces
	if sent || a.observed != a.generation {
		not(v1alpha1.ReasonPending, "waiting for "+peering+" to answer")
		return res, nil
	}
	status.True(&m.Status.Conditions, m.Generation, v1alpha1.ConditionReady, v1alpha1.ReasonReady, "")
	return res, nil
}

// desired is what the provider's copy should say: what the map here says and, lest a map
// that is being put together again takes namespaces away, what it lacks though an
// offloading requires it.
func (c *carrier) desired(ctx context.Context, m *v1alpha1.NamespaceMap, peering string, there *unstructured.Unstructured) (map[string]v1alpha1.NamespaceMapping, error) {
	want := maps.Clone(m.Spec.Namespaces)
	for name, entry := range remoteEntries(there) {
		if _, ok := want[name]; ok {
			continue
		}
		o, err := read(ctx, c.client, name, v1alpha1.OffloadingName, &v1alpha1.NamespaceOffloading{})
		if err != nil {
			return nil, err
		}
		if o != nil && requires(o, peering) {
			if want == nil {
				want = map[string]v1alpha1.NamespaceMapping{}
			}
			want[name] = entry
		}
	}
	return want, nil
}

func requires(o *v1alpha1.NamespaceOffloading, peering string) bool {
	for i := range o.Status.Clusters {
		if c := &o.Status.Clusters[i]; c.Name == peering {
			return status.IsTrue(c.Conditions, v1alpha1.ConditionOffloadingRequired)
		}
	}
	return false
}

// send makes the provider's copy, or changes the entries that differ. It says whether
// something is on its way.
func (c *carrier) send(ctx context.Context, m *v1alpha1.NamespaceMap, peer Peer, there *unstructured.Unstructured, missing bool, want map[string]v1alpha1.NamespaceMapping) (bool, ctrl.Result, error) {
	if missing && len(want) == 0 {
		return false, ctrl.Result{}, nil
	}
	changes := entryChanges(field(field(there.Object, "spec"), "namespaces"), want)
	if !missing && len(changes) == 0 {
		return false, ctrl.Result{}, nil
	}
	now := c.clock.Now()
	if wait := c.sent.wait(m.Namespace, now); wait > 0 {
		return true, ctrl.Result{RequeueAfter: wait}, nil
	}
	c.sent.note(m.Namespace, now)
	ctx, cancel := context.WithTimeout(ctx, remoteLimit)
	defer cancel()
	target := remoteMap(peer.TenantNamespace())
	if missing {
		target.SetLabels(map[string]string{v1alpha1.LabelManagedBy: component})
		target.Object["spec"] = map[string]any{"namespaces": changes}
		err := peer.Client().Create(ctx, target)
		if !apierrors.IsAlreadyExists(err) {
			return true, ctrl.Result{}, err
		}
		// Made, but not seen in the watch yet: that brings us back.
		return true, ctrl.Result{RequeueAfter: time.Second}, nil
	}
	text, err := json.Marshal(map[string]any{"spec": map[string]any{"namespaces": changes}})
	if err != nil {
		return false, ctrl.Result{}, err
	}
	return true, ctrl.Result{}, peer.Client().Patch(ctx, target, client.RawPatch(types.MergePatchType, text))
}

// entryChanges is the merge patch that makes entries as they should be.
func entryChanges(have map[string]any, want map[string]v1alpha1.NamespaceMapping) map[string]any {
	changes := map[string]any{}
	for name := range have {
		if _, ok := want[name]; !ok {
			changes[name] = nil
		}
	}
	for name, m := range want {
		there, ok := have[name].(map[string]any)
		if !ok {
			entry := entryJSON(m)
			maps.DeleteFunc(entry, func(_ string, value any) bool { return value == nil })
			changes[name] = entry
		} else if entryOf(there) != m {
			changes[name] = entryJSON(m)
		}
	}
	return changes
}

// remoteEntries are the entries of a provider's copy.
func remoteEntries(there *unstructured.Unstructured) map[string]v1alpha1.NamespaceMapping {
	found := map[string]v1alpha1.NamespaceMapping{}
	for name, value := range field(field(there.Object, "spec"), "namespaces") {
		if entry, ok := value.(map[string]any); ok && len(name) <= 63 {
			found[name] = entryOf(entry)
		}
	}
	return found
}

func entryOf(fields map[string]any) v1alpha1.NamespaceMapping {
	text := func(key string) string { s, _ := fields[key].(string); return s }
	return v1alpha1.NamespaceMapping{
		Strategy: v1alpha1.NamespaceMappingStrategy(text("strategy")), RemoteName: text("remoteName"), Onward: v1alpha1.OnwardPolicy(text("onward")),
		OriginNamespace: text("originNamespace"), OriginOwner: text("originOwner"),
		Domain: text("domain"),
	}
}

// remoteMap is an empty NamespaceMap: what is a peer's is never parsed into types
// before it has been checked.
func remoteMap(namespace string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("NamespaceMap"))
	if namespace != "" {
		u.SetNamespace(namespace)
		u.SetName(v1alpha1.NamespaceMapName)
	}
	return u
}
