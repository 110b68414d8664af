package reflection

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
	"github.com/pelago-dev/pelago/offloading/content"
)

// Secrets and ConfigMaps that no pod refers to travel if a rule of their namespace says
// All, or their annotation. They are in no cache: they are found by a list of metadata, in
// namespaces that are offloaded alone. Services that travel without a pod are found so, too, in the
// cache, should no event have done it.

// listEvery is when the names in a namespace are listed again.
const listEvery = time.Minute

// chosen says whether a rule, or the object's annotation, alone sends an object of a namespace
// with a pod there, or of a Service: that is mapped there. What is known of it need not be read.
func (r *consumer) chosen(ctx context.Context, peering string, kind content.Kind, home v1alpha1.HomeObject, of *known) (want, error) {
	rules, err := r.rules(ctx, home.Namespace)
	if err != nil || slices.Contains(kind.Never, home.Name) {
		return want{}, err
	}
	if in, err := offloaded(ctx, r.client, home.Namespace); err != nil || !in {
		return want{is: true, ruled: true}, err // what is there stays
	}
	terms, err := r.terms(ctx, peering, kind, home.Namespace)
	if err != nil {
		return want{}, err
	}
	now := r.clock.Now()
	if kind.Referred && of.good(terms, now, 0) {
		return wantedBy(of.policy), nil
	}
	m, err := r.metadata(kind)
	if err != nil {
		return want{}, err
	}
	reader := r.live
	if !kind.Referred { // its metadata is in the cache
		reader = r.client
	}
	switch err := reader.Get(ctx, client.ObjectKey{Namespace: home.Namespace, Name: home.Name}, m); {
	case apierrors.IsNotFound(err):
		return want{found: absent}, nil
	case apierrors.IsForbidden(err): // the right comes with the label, or a moment later
		return want{is: true, ruled: true}, nil
	case err != nil:
		return want{}, plain("reading the metadata of the object", err)
	}
	policy, _ := v1alpha1.Reflected(rules, kind.Name, m)
	if kind.Referred {
		*of = of.again(m, policy, terms, now)
	}
	return wantedBy(policy), nil
}

// wantedBy says the same of an object that is at home, by the policy that is its own.
func wantedBy(policy v1alpha1.ReflectionPolicy) want {
	switch policy {
	case v1alpha1.ReflectAll:
		return want{is: true, ruled: true}
	case v1alpha1.ReflectDeny:
		return want{found: present}
	}
	return want{}
}

// metadata is an empty object of a kind that reads no content.
func (r *consumer) metadata(kind content.Kind) (*metav1.PartialObjectMetadata, error) {
	gvk, err := r.client.GroupVersionKindFor(kind.New())
	if err != nil {
		return nil, fmt.Errorf("finding the kind %s: %w", kind.Name, err)
	}
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(gvk)
	return m, nil
}

// lister finds what rules and annotations send and is not at its providers yet, and what was carried there
// and has changed. Its requests are NamespaceOffloadings.
type lister struct {
	client client.Client
	live   client.Reader
	fleet  Fleet
	spaces spaceFinder
	mapped spaceFinder
	clock  clock.PassiveClock
	notes  *notes[note] // the consumer's
	events events.EventRecorder
	// wake asks the consumer to look at something.
	wake func(context.Context, reconcile.Request)
}

// Reconcile looks at one namespace, which is listed unless a rule keeps all of a kind home.
func (r *lister) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	o := &v1alpha1.NamespaceOffloading{}
	if err := r.client.Get(ctx, req.NamespacedName, o); err != nil || req.Name != v1alpha1.OffloadingName {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	var kinds []content.Kind
	for _, name := range carried {
		if kind, _ := kindOf(name); (kind.Referred || name == kindService) && !keepsAll(o.Spec.Reflection, name) {
			kinds = append(kinds, kind)
		}
	}
	if len(kinds) == 0 {
		return ctrl.Result{}, nil // a change of the rules brings us back
	}
	again := ctrl.Result{RequeueAfter: spread(listEvery)}
	for _, kind := range kinds {
		there := r.spaces
		if !kind.Referred {
			there = r.mapped
		}
		peers, err := r.providers(ctx, o.Namespace, there)
		if err != nil {
			return again, err
		}
		if len(peers) == 0 {
			continue
		}
		if err := r.list(ctx, o, kind, peers); err != nil && !apierrors.IsForbidden(err) { // the right comes with the label, or a moment later
			return again, plain("listing the names of objects", err)
		}
	}
	return again, nil
}

// providers are those that answer and where a namespace is, if it is offloaded.
func (r *lister) providers(ctx context.Context, namespace string, there spaceFinder) (map[string]Peer, error) {
	if in, err := offloaded(ctx, r.client, namespace); err != nil || !in {
		return nil, err
	}
	nodes := &corev1.NodeList{}
	if err := r.client.List(ctx, nodes, client.MatchingLabels{v1alpha1.LabelType: v1alpha1.TypeVirtualNode}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing virtual nodes: %w", err)
	}
	all := map[string]Peer{}
	for i := range nodes.Items {
		name := virtual(&nodes.Items[i])
		peer, ok := r.fleet.Peer(name)
		if !ok || all[name] != nil || !peer.State().Reachable {
			continue
		}
		in, err := there(ctx, name, namespace)
		if err != nil {
			return nil, err
		}
		if in {
			all[name] = peer
		}
	}
	return all, nil
}

// list wakes the consumer for what is to travel and has no ShadowObject, and for what is not as the consumer knows it.
func (r *lister) list(ctx context.Context, o *v1alpha1.NamespaceOffloading, kind content.Kind, peers map[string]Peer) error {
	gvk, err := r.client.GroupVersionKindFor(kind.NewList())
	if err != nil {
		return fmt.Errorf("finding the kind of lists of %s: %w", kind.Name, err)
	}
	if sendsAll(o.Spec.Reflection, kind.Name) {
		r.warn(o, kind.Name)
	}
	began, versions, next := r.clock.Now(), map[string]string{}, ""
	for range sweepPages {
		list := metadataList(gvk)
		if err := r.names(ctx, kind, list, o.Namespace, next); err != nil {
			return err
		}
		for i := range list.Items {
			home := v1alpha1.HomeObject{Kind: kind.Name, Namespace: o.Namespace, Name: list.Items[i].Name}
			versions[home.Name] = list.Items[i].ResourceVersion
			policy, _ := v1alpha1.Reflected(o.Spec.Reflection, kind.Name, &list.Items[i])
			if _, tokens := tokensOf(home); tokens || policy != v1alpha1.ReflectAll || slices.Contains(kind.Never, home.Name) {
				continue
			}
			for peering, peer := range peers {
				err := peer.Reader().Get(fleet.Kept(ctx), client.ObjectKey{Namespace: peer.TenantNamespace(), Name: v1alpha1.ShadowObjectName(home)}, &v1alpha1.ShadowObject{})
				if apierrors.IsNotFound(err) {
					r.wake(ctx, at(peering, home))
				}
			}
		}
		if next = list.Continue; next == "" {
			break
		}
	}
	if !kind.Referred { // its changes are events
		return nil
	}
	for peering := range peers {
		for _, changed := range compare(r.notes, peering, o.Namespace, kind.Name, versions, next == "", began) {
			r.wake(ctx, changed)
		}
	}
	return nil
}

// names lists metadata: a page of that of a kind that is in no cache, else all.
func (r *lister) names(ctx context.Context, kind content.Kind, list *metav1.PartialObjectMetadataList, namespace, next string) error {
	if kind.Referred {
		return r.live.List(ctx, list, client.InNamespace(namespace), client.Limit(sweepPage), client.Continue(next))
	}
	return r.client.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy)
}

// warn says that nothing travels by a rule that cannot be read, nor by those after it.
func (r *lister) warn(o *v1alpha1.NamespaceOffloading, kind string) {
	for i, rule := range o.Spec.Reflection {
		if rule.Kind != kind || rule.Selector == nil {
			continue
		}
		if _, err := metav1.LabelSelectorAsSelector(rule.Selector); err != nil {
			rule := &corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NamespaceOffloading", Namespace: o.Namespace, Name: o.Name, FieldPath: fmt.Sprintf("spec.reflection[%d].selector", i)}
			r.events.Eventf(o, rule, corev1.EventTypeWarning, "NotReflected", "Reflect", "spec.reflection[%d].selector cannot be read, so no %s travels by it or by a rule after it; correct it", i, kind)
			return
		}
	}
}

// wakeBy wakes by a channel, unless the time is over.
func wakeBy(to chan<- event.TypedGenericEvent[reconcile.Request]) func(context.Context, reconcile.Request) {
	return func(ctx context.Context, r reconcile.Request) {
		select {
		case to <- event.TypedGenericEvent[reconcile.Request]{Object: r}:
		case <-ctx.Done():
		}
	}
}

// passOn asks for what comes by such a channel.
var passOn = handler.TypedFuncs[reconcile.Request, reconcile.Request]{
	GenericFunc: func(_ context.Context, e event.TypedGenericEvent[reconcile.Request], q queue) { q.Add(e.Object) },
}

// there asks for what of a namespace is at a provider.
func (w wakers) there(ctx context.Context, peering, namespace string) []reconcile.Request {
	peer, ok := w.fleet.Peer(peering)
	if !ok {
		return nil
	}
	list := &v1alpha1.ShadowObjectList{}
	if err := peer.Reader().List(ctx, list); err != nil {
		return nil // not read from the provider yet, which brings them
	}
	var all []reconcile.Request
	for i := range list.Items {
		home := list.Items[i].Spec.Home
		if home.Namespace == namespace {
			all = append(all, ofShadow(peering, &list.Items[i])...)
		}
	}
	return all
}
