package reflection

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/offloading/content"
)

// EndpointSlices travel with their Service, each by itself, as far as its endpoints are
// not at the provider already and have an address there. Only their metadata is in the
// cache, and not even that while no address means anything elsewhere.

// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=get;list;watch

var sliceKind = discoveryv1.SchemeGroupVersion.WithKind("EndpointSliceList")

// Addresses says by which addresses providers reach what has one here. It may be asked at
// any time, by many at once; a new answer is noticed within a minute where there was none,
// else within ten.
type Addresses interface {
	// Translate is the address by which pods at the provider of a peering reach what has an
	// address here; false if they cannot.
	Translate(peering string, here netip.Addr) (there netip.Addr, ok bool)
	// Carries says whether pods at the provider of a peering reach anything here by IPv4, or by
	// IPv6: if not, that an address of it is missing means nothing.
	Carries(peering string, ipv4 bool) bool
	// Known says whether anything is known: if not, that an address is missing means nothing.
	Known() bool
	// ViewSource tells of the peerings of which Translate says something else.
	ViewSource(mapper func(peering string) []reconcile.Request) source.Source
}

// Allowed says which addresses a tenant may give its Services here. It may be asked at any
// time, by many at once.
type Allowed interface {
	// Allows says whether an address is one by which this cluster reaches what is a tenant's,
	// and nothing else.
	Allows(tenant string, address netip.Addr) bool
	// TenantViews are the prefixes of the addresses that are a tenant's.
	TenantViews(tenant string) []netip.Prefix
	// Known says whether anything is known: if not, that an address is not allowed means
	// nothing.
	Known() bool
	// TenantViewSource tells of the tenants of which Allows and TenantViews say something else.
	TenantViewSource(mapper func(tenant string) []reconcile.Request) source.Source
}

// abroad is what one provider is told of a slice: the endpoints that are not there, by
// their addresses there, in the order of these. That of an IPMapping has another address for that. On is, for each endpoint, the peering on
// whose virtual node it is, "" here; away are peerings that are not reached, whose endpoints
// are not ready. Names are no addresses, and stay for the check to refuse.
func abroad(s *discoveryv1.EndpointSlice, peering string, on []string, away map[string]bool, of Addresses) *discoveryv1.EndpointSlice {
	if s.AddressType == discoveryv1.AddressTypeFQDN {
		return s
	}
	told := &discoveryv1.EndpointSlice{ObjectMeta: s.ObjectMeta, AddressType: s.AddressType, Ports: s.Ports}
	for i, e := range s.Endpoints {
		if on[i] == peering || len(e.Addresses) == 0 {
			continue
		}
		there, ok := translated(peering, s.AddressType, cmp.Or(s.Annotations[v1alpha1.AnnotationExternal], e.Addresses[0]), of)
		if !ok {
			continue
		}
		next := discoveryv1.Endpoint{Addresses: []string{there}, Hostname: e.Hostname, Conditions: e.Conditions}
		if away[on[i]] {
			next.Conditions.Ready, next.Conditions.Serving = new(false), new(false)
		}
		told.Endpoints = append(told.Endpoints, next)
	}
	slices.SortStableFunc(told.Endpoints, func(a, b discoveryv1.Endpoint) int { return cmp.Compare(a.Addresses[0], b.Addresses[0]) })
	return told
}

// translated is an address as a provider is told it, of the same type.
func translated(peering string, kind discoveryv1.AddressType, address string, of Addresses) (string, bool) {
	here, err := netip.ParseAddr(address)
	if err != nil {
		return "", false
	}
	there, ok := of.Translate(peering, here.Unmap())
	there = there.Unmap()
	if !ok || content.Special(there) || there.Zone() != "" || there.Is4() != (kind == discoveryv1.AddressTypeIPv4) {
		return "", false
	}
	return there.String(), true
}

// abroad says what a provider is told of an object, nil if nothing: of most kinds, all.
// Of a slice it notes in the facts whether endpoints are left out, of a budget whether it was counted.
func (r *consumer) abroad(ctx context.Context, peering string, obj client.Object, f *facts) (client.Object, error) {
	if b, ok := obj.(*policyv1.PodDisruptionBudget); ok {
		return r.counted(ctx, peering, b, f)
	}
	s, ok := obj.(*discoveryv1.EndpointSlice)
	if !ok {
		return obj, nil
	}
	on, away, err := r.whereabouts(ctx, s)
	if err != nil {
		return nil, err
	}
	if err := r.bereft(ctx, s, peering, on, f); err != nil {
		return nil, err
	}
	told := abroad(s, peering, on, away, r.addresses)
	if len(told.Endpoints) == 0 {
		return nil, nil
	}
	return told, nil
}

// whereabouts is, for each endpoint of a slice, the peering on whose virtual node it is,
// and which of these peerings do not answer, or not through their tunnels.
func (r *consumer) whereabouts(ctx context.Context, s *discoveryv1.EndpointSlice) (on []string, away map[string]bool, err error) {
	of, away := map[string]string{"": ""}, map[string]bool{}
	for i := range s.Endpoints {
		node, err := r.nodeOf(ctx, s.Namespace, &s.Endpoints[i])
		if err != nil {
			return nil, nil, err
		}
		if _, known := of[node]; !known {
			if of[node], err = peeringOf(ctx, r.client, node); err != nil {
				return nil, nil, err
			}
		}
		on = append(on, of[node])
	}
	for _, peering := range of {
		if peering == "" {
			continue
		}
		peer, ok := r.fleet.Peer(peering)
		away[peering] = !ok || !peer.State().Reachable || r.tunnels != nil && cut(r.tunnels.Alive(peering))
	}
	return on, away, nil
}

// nodeOf is the node of an endpoint, "" if it says none and its pod is not known.
func (r *consumer) nodeOf(ctx context.Context, namespace string, e *discoveryv1.Endpoint) (string, error) {
	if e.NodeName != nil || e.TargetRef == nil || e.TargetRef.Kind != "Pod" {
		return ptr.Deref(e.NodeName, ""), nil
	}
	pod := &corev1.Pod{}
	err := r.client.Get(ctx, client.ObjectKey{Namespace: cmp.Or(e.TargetRef.Namespace, namespace), Name: e.TargetRef.Name}, pod)
	if client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("reading the pod of an endpoint: %w", err)
	}
	return pod.Spec.NodeName, nil
}

// sliceWanted says whether a slice should be at a provider, where a pod of its namespace is in, or
// its Service may be alone. One that should not goes at once: what it says would go on to be believed.
func (r *consumer) sliceWanted(ctx context.Context, peering string, home v1alpha1.HomeObject, in bool) (want, error) {
	if !in {
		if is, err := mapped(r.client)(ctx, peering, home.Namespace); err != nil || !is {
			return want{}, err
		}
	}
	if r.addresses == nil {
		return want{found: present}, nil
	}
	kind, _ := kindOf(kindSlice)
	m, err := r.metadata(kind)
	if err != nil {
		return want{}, err
	}
	if err := r.client.Get(ctx, client.ObjectKey{Namespace: home.Namespace, Name: home.Name}, m); apierrors.IsNotFound(err) {
		return want{found: absent}, nil
	} else if err != nil {
		return want{}, fmt.Errorf("reading the metadata of the slice: %w", err)
	}
	service := v1alpha1.HomeObject{Kind: kindService, Namespace: home.Namespace, Name: m.Labels[discoveryv1.LabelServiceName]}
	n := &corev1.Namespace{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: home.Namespace}, n); client.IgnoreNotFound(err) != nil {
		return want{}, fmt.Errorf("reading the namespace: %w", err)
	}
	if !goesBy(m, n) || badName(service) != "" {
		return want{found: present}, nil
	}
	if !in {
		if alone, err := r.alone(ctx, peering, service); err != nil || !alone.is {
			return want{found: alone.found}, err
		}
	}
	if is, err := r.serviceTravels(ctx, peering, service); err != nil || is {
		return want{is: is}, err
	}
	return want{found: present}, nil
}

// madeByUs says whether Pelago has made a slice, on whichever side. That of an IPMapping stands
// for what is at home.
func madeByUs(slice client.Object) bool {
	if slice.GetAnnotations()[v1alpha1.AnnotationExternal] != "" {
		return slice.GetLabels()[v1alpha1.LabelTenant] != ""
	}
	return slice.GetLabels()[discoveryv1.LabelManagedBy] == v1alpha1.GroupVersion.Group || slice.GetLabels()[v1alpha1.LabelManagedBy] != ""
}

// serviceTravels says whether a Service goes to a provider: it may, and its ShadowObject is
// there and not refused. What a provider shows is not enough, as it can show anything.
func (r *consumer) serviceTravels(ctx context.Context, peering string, home v1alpha1.HomeObject) (bool, error) {
	kind, _ := kindOf(kindService)
	peer, ok := r.fleet.Peer(peering)
	if !ok || slices.Contains(kind.Never, home.Name) {
		return false, nil
	}
	m, err := r.metadata(kind)
	if err != nil {
		return false, err
	}
	if err := r.client.Get(ctx, client.ObjectKey{Namespace: home.Namespace, Name: home.Name}, m); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	rules, err := r.rules(ctx, home.Namespace)
	if err != nil {
		return false, err
	}
	if policy, _ := v1alpha1.Reflected(rules, kindService, m); policy == v1alpha1.ReflectDeny {
		return false, nil
	}
	s := &v1alpha1.ShadowObject{}
	if err := peer.Reader().Get(ctx, client.ObjectKey{Namespace: peer.TenantNamespace(), Name: v1alpha1.ShadowObjectName(home)}, s); err != nil {
		return false, nil // not there, or not known yet: when it comes, its slices are looked at
	}
	is := answer(kindService, s)
	return s.DeletionTimestamp == nil && !is.refused && is.reason != v1alpha1.ReasonFamilyMissing, nil
}

// ofShadow asks for the object of a ShadowObject that a provider shows and, of a Service,
// for its slices.
func (w wakers) ofShadow(peering string, obj client.Object) []reconcile.Request {
	all := ofShadow(peering, obj)
	if s, ok := obj.(*v1alpha1.ShadowObject); ok && len(all) > 0 && s.Spec.Home.Kind == kindService {
		for _, home := range w.slicesOf(context.Background(), s.Spec.Home.Namespace, []string{s.Spec.Home.Name}) {
			all = append(all, at(peering, home))
		}
	}
	return all
}

// slices are those of a namespace that travel, perhaps.
func (w wakers) slices(ctx context.Context, namespace string, some ...client.ListOption) []v1alpha1.HomeObject {
	list := metadataList(sliceKind)
	if err := w.cache.List(ctx, list, append(some, client.InNamespace(namespace), client.UnsafeDisableDeepCopy)...); err != nil {
		return nil // the cache is not there yet: its first events come
	}
	n := &corev1.Namespace{}
	if err := w.cache.Get(ctx, client.ObjectKey{Name: namespace}, n); err != nil {
		return nil // likewise, or it is gone
	}
	var all []v1alpha1.HomeObject
	_ = apimeta.EachListItem(list, func(o runtime.Object) error {
		if m, ok := o.(*metav1.PartialObjectMetadata); ok && goesBy(m, n) {
			all = append(all, v1alpha1.HomeObject{Kind: kindSlice, Namespace: namespace, Name: m.Name})
		}
		return nil
	})
	return all
}

// seen asks for the slices that a provider is or may be told, when it reaches by other addresses
// what is here.
func (w wakers) seen(peering string) []reconcile.Request {
	return slices.DeleteFunc(w.ofPeer(peering), func(r reconcile.Request) bool {
		_, home, _ := split(r)
		return home.Kind != kindSlice
	})
}

// beyond asks, when a provider or its tunnel begins or ceases to answer, for the slices that tell others
// of pods that are there.
func (w wakers) beyond(peering string) []reconcile.Request {
	ctx := context.Background()
	nodes := &corev1.NodeList{}
	if !w.addresses || w.cache.List(ctx, nodes, client.MatchingLabels{v1alpha1.LabelType: v1alpha1.TypeVirtualNode}, client.UnsafeDisableDeepCopy) != nil {
		return nil
	}
	others, spaces := map[string]bool{}, map[string]bool{}
	for i := range nodes.Items {
		if of := virtual(&nodes.Items[i]); of != peering {
			others[of] = true
			continue
		}
		pods := &corev1.PodList{}
		if err := w.cache.List(ctx, pods, client.MatchingFields{byNode: nodes.Items[i].Name}, client.UnsafeDisableDeepCopy); err != nil {
			return nil // the cache is ending
		}
		for i := range pods.Items {
			spaces[pods.Items[i].Namespace] = true
		}
	}
	var all []reconcile.Request
	for namespace := range spaces {
		for _, home := range w.slices(ctx, namespace) {
			for other := range others {
				all = append(all, at(other, home))
			}
		}
	}
	return all
}
