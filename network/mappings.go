package network

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/status"
	"github.com/pelago-dev/pelago/internal/throttle"
	"github.com/pelago-dev/pelago/network/ipam"
	"github.com/pelago-dev/pelago/network/mapping"
)

// +kubebuilder:rbac:groups=pelago.dev,resources=ipmappings,verbs=get;list;watch
// +kubebuilder:rbac:groups=pelago.dev,resources=ipmappings/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=get;list;watch;create;patch;delete

const (
	// groundKey is that of what mappings follow from, among the keys of peerings.
	groundKey = "mappings"
	// mappingEvery is how often a mapping is looked at when nothing has changed.
	mappingEvery = 10 * time.Minute
	// unknownWait is how soon it is looked at again while nothing is known.
	unknownWait = 2 * time.Second
)

// ground is what mappings may follow from: what is this cluster's own, and how it sees others.
func ground(f *facts, views map[string]ipam.Result) mapping.Ground {
	g := mapping.Ground{External: f.property.External, Mappable: prefixes(f.settings.Mappable)}
	take := func(what string, all []netip.Prefix) {
		for _, p := range all {
			g.Taken = append(g.Taken, mapping.Part{Prefix: p, What: what})
		}
	}
	take("in the range of the pods here", f.property.Pods)
	take("in the range of the Services here", f.property.Services)
	for _, name := range slices.Sorted(maps.Keys(f.nodes)) { // always the same of the same facts: what changes has all mappings compared
		take("in the range of the pods of a node here", podRanges(f.nodes[name]))
	}
	take("in the external range of this cluster, which stands for other things", f.property.External)
	take("the address of a node or API server here", f.property.hosts)
	for _, key := range slices.Sorted(maps.Keys(views)) {
		for _, v := range views[key].Views {
			g.Taken = append(g.Taken, mapping.Part{Prefix: v.View, What: fmt.Sprintf("by what a peer is seen here, as %s,", v.View),
				Remedy: "give another address, or have the owner of this cluster add it to network.reserved: then this peer is seen by others, and what it has of connections ends"})
		}
	}
	return g
}

// mapper makes of IPMappings what they ask for.
type mapper struct {
	client  client.Client
	live    client.Reader
	network *Network
	// given are the addresses that mappings have, by UID, as the cache may be behind, and left
	// those that were given up, the last one last. Names are of those in given.
	given map[types.UID]netip.Addr
	names map[types.NamespacedName]types.UID
	left  []netip.Addr
	// verdicts are of the ground that mappings were looked at with.
	verdicts verdicts
}

func newMapper(n *Network, c client.Client, live client.Reader) *mapper {
	return &mapper{client: c, live: live, network: n, given: map[types.UID]netip.Addr{}, names: map[types.NamespacedName]types.UID{}}
}

func (n *Network) registerMapper(mgr ctrl.Manager) error {
	m := newMapper(n, mgr.GetClient(), mgr.GetAPIReader())
	all := func(context.Context) (all []reconcile.Request) {
		list := &v1alpha1.IPMappingList{}
		if err := m.client.List(context.Background(), list, client.UnsafeDisableDeepCopy); err != nil {
			return nil // the cache is not there yet: its first events come
		}
		for i := range list.Items {
			all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
		return all
	}
	service, slice := &metav1.PartialObjectMetadata{}, &metav1.PartialObjectMetadata{}
	service.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Service"))
	slice.SetGroupVersionKind(discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"))
	owner := handler.EnqueueRequestForOwner(mgr.GetScheme(), mgr.GetRESTMapper(), &v1alpha1.IPMapping{})
	return ctrl.NewControllerManagedBy(mgr).Named("ip-mapping").
		For(&v1alpha1.IPMapping{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesMetadata(service, owner).
		WatchesMetadata(slice, owner).
		Watches(&v1alpha1.NamespaceMap{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request { return all(ctx) }),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.IPMapping{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request { return m.waiting(ctx) }),
			builder.WithPredicates(predicate.Funcs{ // where one goes there is room
				CreateFunc: func(event.CreateEvent) bool { return false }, UpdateFunc: func(event.UpdateEvent) bool { return false }, GenericFunc: func(event.GenericEvent) bool { return false },
			})).
		WatchesRawSource(n.listeners.source(groundKey, func(string) []reconcile.Request { return m.moved(context.Background()) })).
		WithOptions(controller.Options{MaxConcurrentReconciles: 1, RateLimiter: &throttle.Rests{}}).
		Complete(m)
}

// Reconcile gives one mapping its address, its Service and the word about it.
func (m *mapper) Reconcile(ctx context.Context, req ctrl.Request) (res ctrl.Result, err error) {
	m.verdicts.forget(req.NamespacedName)
	o := &v1alpha1.IPMapping{}
	if err := m.client.Get(ctx, req.NamespacedName, o); err != nil {
		if apierrors.IsNotFound(err) {
			m.forget(req.NamespacedName, "")
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	m.forget(req.NamespacedName, o.UID)
	if o.DeletionTimestamp != nil {
		return ctrl.Result{}, nil // what was made for it goes with it
	}
	p := m.network.look()
	if p == nothing || len(p.ground.External) == 0 {
		// What there is stays: nothing was found to be wrong with it.
		w := status.Begin(m.client, o)
		defer w.Commit(ctx, &res, &err)
		if o.Status.ObservedGeneration != o.Generation {
			status.False(&o.Status.Conditions, o.Generation, v1alpha1.ConditionReady, v1alpha1.ReasonWaiting, "the network of this cluster is not known yet, or has no external range")
			o.Status.ObservedGeneration = o.Generation
		}
		return ctrl.Result{RequeueAfter: unknownWait}, nil
	}
	holders, err := m.holders(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	d := decideMapping(o, p.ground, holders, m.left)
	if d.address.IsValid() {
		m.given[o.UID], m.names[req.NamespacedName] = d.address, o.UID
		if stored, err := m.store(ctx, o, d.address, &res); !stored {
			return res, err
		}
	}
	w := status.Begin(m.client, o)
	defer w.Commit(ctx, &res, &err)
	o.Status.ObservedGeneration = o.Generation
	if d.reason == "" {
		if d.reason, d.text, err = m.make(ctx, o, d.to); err == nil && d.reason == "" {
			d.reason, d.text, err = m.crowded(ctx, o)
		}
	} else {
		err = m.unmake(ctx, o)
	}
	switch {
	case err != nil:
		return ctrl.Result{}, err
	case d.reason != "":
		status.False(&o.Status.Conditions, o.Generation, v1alpha1.ConditionReady, d.reason, clean(d.text))
	default:
		status.True(&o.Status.Conditions, o.Generation, v1alpha1.ConditionReady, v1alpha1.ReasonReady, "")
	}
	m.verdicts.set(req.NamespacedName, verdictOf(p.ground, o.Spec.Address))
	return ctrl.Result{RequeueAfter: mappingEvery}, nil
}

// store writes which address a mapping has before anything leads to that: who begins anew gives it to no other one.
func (m *mapper) store(ctx context.Context, o *v1alpha1.IPMapping, a netip.Addr, res *ctrl.Result) (stored bool, err error) {
	if o.Status.Address == a.String() {
		return true, nil
	}
	w := status.Begin(m.client, o)
	o.Status.Address = a.String()
	w.Commit(ctx, res, &err)
	o.ResourceVersion = w.Version()
	return o.ResourceVersion != "", err
}

// forget takes back what a name was given, unless that is still who has it.
func (m *mapper) forget(name types.NamespacedName, is types.UID) {
	had, known := m.names[name]
	if !known || had == is {
		return
	}
	m.left = append(slices.DeleteFunc(m.left, func(a netip.Addr) bool { return a == m.given[had] }), m.given[had])
	delete(m.given, had)
	delete(m.names, name)
}

// holders are all mappings with the addresses that they have.
func (m *mapper) holders(ctx context.Context) ([]mapping.Holder, error) {
	list := &v1alpha1.IPMappingList{}
	if err := m.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing mappings: %w", err)
	}
	var all []mapping.Holder
	for key, lines := range m.network.look().lines { // those came before all mappings
		for _, line := range lines {
			all = append(all, mapping.Holder{Key: "line of " + key, Has: line, Other: true})
		}
	}
	for i := range list.Items {
		o := &list.Items[i]
		has, ok := m.given[o.UID]
		if !ok {
			has, _ = netip.ParseAddr(o.Status.Address)
		}
		all = append(all, mapping.Holder{Key: string(o.UID), Since: o.CreationTimestamp.Time, Has: has})
	}
	return all, nil
}

// outcome is what becomes of a mapping: the address that stands for it, if it has one, what it
// leads to, and else why not.
type outcome struct {
	address, to  netip.Addr
	reason, text string
}

// decideMapping decides what becomes of a mapping. One that is refused keeps the address that it
// has, and gets none.
func decideMapping(o *v1alpha1.IPMapping, g mapping.Ground, holders []mapping.Holder, left []netip.Addr) (d outcome) {
	d.to, _ = netip.ParseAddr(o.Spec.Address)
	own := mapping.Holder{Key: string(o.UID), Since: o.CreationTimestamp.Time}
	for _, h := range holders {
		if h.Key == own.Key {
			own.Has = h.Has
		}
	}
	if mapping.Holds(g.External, own, d.to.Is4(), holders) {
		d.address = own.Has
	}
	if d.text = cmp.Or(refusePlace(o), mapping.Refuse(g, d.to)); d.text != "" {
		d.reason = v1alpha1.ReasonNotMappable
		return d
	}
	if d.address.IsValid() {
		return d
	}
	a, free, ranged := mapping.Choose(g.External, d.to.Is4(), holders, left)
	switch {
	case free:
		d.address = a
	case ranged:
		d.reason, d.text = v1alpha1.ReasonPoolExhausted, "all addresses of this cluster's external range stand for something: remove mappings, or have its owner set a wider range in network.external"
	default:
		d.reason, d.text = v1alpha1.ReasonPoolExhausted, "this cluster has no external range of the family of spec.address: give an address of the other family, or have its owner set one in network.external"
	}
	return d
}

// refusePlace says why nothing is mapped by a Service of a mapping's name and namespace; "" if it may be. The policy
// pelago-manager-services has the same names: the manager may make nothing there, and change nothing, but it may remove
// what an earlier build made.
func refusePlace(o *v1alpha1.IPMapping) string {
	if v1alpha1.OwnNamespace(o.Namespace) {
		return "namespaces kube-*, pelago-* and openshift-* are the cluster's: make the mapping in another one"
	}
	if o.Namespace == metav1.NamespaceDefault && o.Name == "kubernetes" {
		return "the Service kubernetes in default is the cluster's: give the mapping another name"
	}
	return ""
}

// children are the Service and the slice of a mapping. In the slice is the real address, for
// this cluster, and the one that stands for it elsewhere.
func children(o *v1alpha1.IPMapping, to netip.Addr) (*corev1.Service, *discoveryv1.EndpointSlice) {
	meta := metav1.ObjectMeta{
		Namespace: o.Namespace, Name: o.Name, Labels: map[string]string{v1alpha1.LabelManagedBy: component},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "IPMapping", Name: o.Name, UID: o.UID, Controller: new(true)}},
	}
	service := &corev1.Service{ObjectMeta: *meta.DeepCopy()}
	family, kind := corev1.IPv4Protocol, discoveryv1.AddressTypeIPv4
	if to.Is6() {
		family, kind = corev1.IPv6Protocol, discoveryv1.AddressTypeIPv6
	}
	service.Spec.IPFamilyPolicy, service.Spec.IPFamilies = new(corev1.IPFamilyPolicySingleStack), []corev1.IPFamily{family}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: *meta.DeepCopy(), AddressType: kind}
	slice.Labels[discoveryv1.LabelServiceName], slice.Labels[discoveryv1.LabelManagedBy] = o.Name, component
	slice.Annotations = map[string]string{v1alpha1.AnnotationExternal: o.Status.Address}
	slice.Endpoints = []discoveryv1.Endpoint{{
		Addresses: []string{to.String()}, Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
	}}
	for _, p := range o.Spec.Ports {
		protocol := corev1.Protocol(cmp.Or(p.Protocol, v1alpha1.IPMappingTCP))
		service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{Name: p.Name, Protocol: protocol, Port: p.Port})
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &p.Name, Protocol: &protocol, Port: &p.Port})
	}
	return service, slice
}
