package agent

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kube"
	"github.com/pelago-dev/pelago/network/netns"
	"github.com/pelago-dev/pelago/network/plan"
)

// facts are what is known now. It also has those virtual nodes and namespaces followed that matter.
//
// A node that becomes gateway where others were, without having been one of the next ones, has not read
// them. It waits for that, as an agent does that begins: else it would take away what the one before let pass.
func (c *cluster) facts() facts {
	was := c.standing()
	f := c.gather()
	c.mu.Lock()
	ctx := c.context
	c.mu.Unlock()
	if was == isIdle && f.is == isGateway && ctx != nil {
		return c.settle(ctx)
	}
	return f
}

// gather is what of that is read already.
func (c *cluster) gather() facts {
	f := facts{self: c.options.Node, namespace: c.options.Namespace, now: time.Now(), away: map[string][]corev1.Pod{}, home: map[string][]discoveryv1.EndpointSlice{}, inside: map[string][]corev1.Pod{}, labelled: map[string][]corev1.Pod{}, services: map[string][]corev1.Service{}, keys: map[string][]byte{}}
	before := c.versions.begin()
	var nodes corev1.NodeList
	var configs v1alpha1.NetworkConfigList
	var mapped v1alpha1.NamespaceMapList
	var secrets corev1.SecretList
	var pods corev1.PodList
	var given discoveryv1.EndpointSliceList
	var offloaded v1alpha1.NamespaceOffloadingList
	var mappings v1alpha1.IPMappingList
	var namespaces corev1.NamespaceList
	var rules v1alpha1.NetworkRulesList
	var paths v1alpha1.NetworkPathList
	for _, list := range []kube.List{&nodes, &configs, &mapped, &secrets, &pods, &given, &offloaded, &mappings, &namespaces, &rules, &paths} {
		if err := c.main.List(context.Background(), list); err != nil { // the cache is not there
			c.options.Log.V(1).Info("a cache cannot be read", "error", err.Error())
		}
	}
	f.nodes, f.configs, f.maps, f.hosted, f.given = nodes.Items, configs.Items, mapped.Items, pods.Items, given.Items
	f.offloaded, f.mappings, f.namespaces, f.paths = offloaded.Items, mappings.Items, namespaces.Items, paths.Items
	f.rule(&c.book, rules.Items)
	for _, s := range secrets.Items {
		if s.Name == v1alpha1.NetworkKeysName {
			f.keys = s.Data
		}
	}
	f.alive, f.serves = c.living()
	f.is = f.standing()
	c.stands(f.is)
	f.home = c.slices()
	c.follow(f.subjects())
	f.home = map[string][]discoveryv1.EndpointSlice{}
	for s, on := range c.followed() {
		if !on.Synced() {
			continue
		}
		var pods corev1.PodList
		var home discoveryv1.EndpointSliceList
		var services corev1.ServiceList
		if s.node != "" {
			if err := on.List(context.Background(), &pods); err == nil {
				f.away[s.node] = pods.Items
			}
		} else if s.pods != "" {
			if err := on.List(context.Background(), &pods); err == nil {
				f.inside[s.pods] = pods.Items
			}
		} else if s.callers != "" {
			if err := on.List(context.Background(), &pods); err == nil {
				f.labelled[s.callers] = pods.Items
			}
		} else if s.services != "" {
			if err := on.List(context.Background(), &services); err == nil {
				f.services[s.services] = services.Items
			}
		} else if err := on.List(context.Background(), &home); err == nil {
			switch s {
			case apiSubject:
				f.api = home.Items
			case managerSubject:
				f.managers = home.Items
			case authSubject:
				f.auth = home.Items
			default:
				f.home[s.namespace] = home.Items
			}
		}
	}
	for _, key := range f.heralded(&c.heralds) {
		c.versions.forget(stream{peer: key})
	}
	f.read = f.progress(before)
	f.expel()
	return f
}

// slices are those of namespaces that are followed already.
func (c *cluster) slices() map[string][]discoveryv1.EndpointSlice {
	all := map[string][]discoveryv1.EndpointSlice{}
	for s, on := range c.followed() {
		var list discoveryv1.EndpointSliceList
		if s.namespace != "" && s.service == "" && on.Synced() && on.List(context.Background(), &list) == nil {
			all[s.namespace] = list.Items
		}
	}
	return all
}

// progress is up to where pods are read: those on the virtual nodes that are followed, and those
// of all tenants.
func (f facts) progress(before map[stream]progress) map[stream]progress {
	pods := map[stream][]*corev1.Pod{}
	for s := range before {
		if s.tenant != "" || s.peer != "" { // it may have none any more
			pods[s] = nil
		}
	}
	for i := range f.hosted {
		s := hostedStream(&f.hosted[i])
		pods[s] = append(pods[s], &f.hosted[i])
	}
	for node, away := range f.away {
		pods[stream{node: node}] = nil
		for i := range away {
			pods[stream{node: node}] = append(pods[stream{node: node}], &away[i])
		}
	}
	return read(before, pods)
}

// subjects are the virtual nodes of providers with a network, the namespaces that these
// have part in, and the API server if it is published to one. Where no gateway is, nor may be soon, the last
// alone: what is known of pods is for gateways, and a node's routes, and who answers for names, need none of it.
func (f facts) subjects() map[subject]bool {
	all, pairs := map[subject]bool{}, f.pairs()
	for _, p := range pairs {
		if p.role == plan.Consumer && p.own.Spec.APIServer != "" {
			all[apiSubject] = true
		}
	}
	speaking := f.speaking()
	all[managerSubject] = speaking[plan.Consumer]
	all[authSubject] = speaking[plan.Provider]
	if speaking[plan.Provider] {
		all[apiSubject] = true
	}
	if f.standing() >= isNext || f.serves {
		f.behindGateways(pairs, all)
	}
	maps.DeleteFunc(all, func(_ subject, wanted bool) bool { return !wanted })
	return all
}

// behindGateways adds what gateways alone have to know, of all peerings: what a gateway lets pass leads
// to pods of others' namespaces too.
func (f facts) behindGateways(pairs map[string]*pair, all map[subject]bool) {
	astray := f.astray()
	for i := range f.nodes {
		if peering, is := virtual(&f.nodes[i]); is && pairs[v1alpha1.PeeringNamespace(peering)] != nil {
			all[subject{node: f.nodes[i].Name}] = true
		}
	}
	for i := range f.maps {
		if p := pairs[f.maps[i].Namespace]; p == nil || p.role != plan.Consumer {
			continue
		}
		for namespace := range f.maps[i].Spec.Namespaces {
			all[subject{namespace: namespace}] = true
			all[subject{pods: namespace}] = astray
		}
	}
	opening := f.opening()
	for i := range f.maps {
		if p := pairs[f.maps[i].Namespace]; p == nil || p.role != plan.Consumer {
			continue
		}
		for namespace := range f.maps[i].Spec.Namespaces {
			if opening[namespace] != nil {
				all[subject{services: namespace}], all[subject{pods: namespace}] = true, true
			}
		}
	}
	for key := range f.rules {
		if p := pairs[key.peering]; p != nil && f.unread(p, key.home) {
			all[subject{pods: key.home}] = true
		}
	}
	for _, p := range pairs {
		if selector, is, _ := p.callers(); is {
			all[subject{callers: selector}] = true
		}
	}
	for namespace := range f.spaces() {
		all[subject{pods: namespace}] = len(pairs) > 0 // whatever is astray
	}
}

// trim leaves of an object what agents read.
func trim(obj any) (any, error) {
	o, ok := obj.(kube.Object)
	if !ok {
		return obj, nil
	}
	meta := metav1.ObjectMeta{
		Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(),
		CreationTimestamp: o.GetCreationTimestamp(), DeletionTimestamp: o.GetDeletionTimestamp(), Labels: some(o.GetLabels()),
	}
	switch o := obj.(type) {
	case *corev1.Node:
		addrs := slices.DeleteFunc(slices.Clone(o.Status.Addresses), func(a corev1.NodeAddress) bool {
			return a.Type != corev1.NodeInternalIP && a.Type != corev1.NodeExternalIP
		})
		return &corev1.Node{
			ObjectMeta: meta, Spec: corev1.NodeSpec{PodCIDR: o.Spec.PodCIDR, PodCIDRs: o.Spec.PodCIDRs},
			Status: corev1.NodeStatus{Addresses: addrs},
		}, nil
	case *corev1.Namespace:
		return &corev1.Namespace{ObjectMeta: meta}, nil
	case *corev1.Pod:
		if text := o.Annotations[v1alpha1.AnnotationHomeDomain]; v1alpha1.Unusual(text) != "" {
			meta.Annotations = map[string]string{v1alpha1.AnnotationHomeDomain: text}
		}
		return &corev1.Pod{
			ObjectMeta: meta, Spec: corev1.PodSpec{NodeName: o.Spec.NodeName, HostNetwork: o.Spec.HostNetwork},
			Status: corev1.PodStatus{Phase: o.Status.Phase, PodIPs: o.Status.PodIPs},
		}, nil
	case *discoveryv1.EndpointSlice:
		s := &discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: o.AddressType}
		of := subject{namespace: o.Namespace, service: o.Labels[discoveryv1.LabelServiceName]}
		api := of == apiSubject || of == authSubject
		for _, e := range o.Endpoints {
			kept := discoveryv1.Endpoint{Addresses: e.Addresses[:min(len(e.Addresses), 1)], NodeName: e.NodeName}
			if api {
				kept.Conditions.Ready = e.Conditions.Ready
			}
			s.Endpoints = append(s.Endpoints, kept)
		}
		if api {
			s.Ports = o.Ports
		}
		return s, nil
	case *coordinationv1.Lease:
		if text := o.Annotations[v1alpha1.AnnotationMTU]; mtuIn(text) > 0 {
			meta.Annotations = map[string]string{v1alpha1.AnnotationMTU: text}
		}
		return &coordinationv1.Lease{ObjectMeta: meta, Spec: coordinationv1.LeaseSpec{
			HolderIdentity: o.Spec.HolderIdentity, LeaseDurationSeconds: o.Spec.LeaseDurationSeconds,
		}}, nil
	case *corev1.Secret:
		return &corev1.Secret{ObjectMeta: meta, Data: o.Data}, nil
	case *v1alpha1.NamespaceMap:
		m := &v1alpha1.NamespaceMap{ObjectMeta: meta}
		if strings.HasPrefix(o.Namespace, v1alpha1.PeeringNamespacePrefix) {
			m.Spec.Namespaces = map[string]v1alpha1.NamespaceMapping{}
			for name := range o.Spec.Namespaces {
				m.Spec.Namespaces[name] = v1alpha1.NamespaceMapping{}
			}
		}
		return m, nil
	case *v1alpha1.NamespaceOffloading:
		spec := trimOpening(&o.Spec)
		spec.ServiceAccountTokens, spec.Reachability = o.Spec.ServiceAccountTokens, o.Spec.Reachability
		return &v1alpha1.NamespaceOffloading{ObjectMeta: meta, Spec: spec}, nil
	case *corev1.Service:
		return trimService(o, meta), nil
	case *v1alpha1.IPMapping:
		meta.Generation = o.Generation
		m := &v1alpha1.IPMapping{ObjectMeta: meta, Spec: o.Spec, Status: v1alpha1.IPMappingStatus{Address: o.Status.Address}}
		if c := apimeta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionReady); c != nil {
			m.Status.Conditions = []metav1.Condition{{Type: c.Type, Status: c.Status, ObservedGeneration: c.ObservedGeneration}}
		}
		return m, nil
	case *v1alpha1.NetworkRules:
		return trimRules(o, meta), nil
	case *v1alpha1.NetworkPath:
		return trimPath(o, meta), nil
	case *v1alpha1.NetworkConfig:
		return &v1alpha1.NetworkConfig{ObjectMeta: meta, Spec: o.Spec, Status: v1alpha1.NetworkConfigStatus{Views: o.Status.Views, ConsumerPaths: trimPaths(o.Status.ConsumerPaths)}}, nil
	}
	return obj, nil
}

// some are the labels that agents read.
func some(all map[string]string) map[string]string {
	var kept map[string]string
	for _, key := range []string{v1alpha1.LabelTenant, v1alpha1.LabelPeering, v1alpha1.LabelType, v1alpha1.LabelHomeNamespace,
		v1alpha1.LabelOriginNamespace, v1alpha1.LabelOriginOwner, v1alpha1.LabelHomeUID, discoveryv1.LabelServiceName} {
		if value, ok := all[key]; ok {
			if kept == nil {
				kept = map[string]string{}
			}
			kept[key] = value
		}
	}
	return kept
}

// same says whether nothing has changed of what is read.
func same(before, after any) bool {
	a, ok := before.(kube.Object)
	b, ok2 := after.(kube.Object)
	if !ok || !ok2 || (a.GetDeletionTimestamp() == nil) != (b.GetDeletionTimestamp() == nil) || !maps.Equal(a.GetLabels(), b.GetLabels()) {
		return false
	}
	switch a := before.(type) {
	case *corev1.Node:
		b, ok := after.(*corev1.Node)
		return ok && reflect.DeepEqual(a.Spec, b.Spec) && reflect.DeepEqual(a.Status, b.Status)
	case *corev1.Pod:
		b, ok := after.(*corev1.Pod)
		return ok && reflect.DeepEqual(a.Spec, b.Spec) && reflect.DeepEqual(a.Status, b.Status)
	case *discoveryv1.EndpointSlice:
		b, ok := after.(*discoveryv1.EndpointSlice)
		return ok && a.AddressType == b.AddressType && reflect.DeepEqual(a.Endpoints, b.Endpoints) && reflect.DeepEqual(a.Ports, b.Ports)
	case *corev1.Service: // of which labels, too, are read
		return maps.Equal(a.Annotations, b.GetAnnotations())
	case *corev1.Secret:
		b, ok := after.(*corev1.Secret)
		return ok && reflect.DeepEqual(a.Data, b.Data)
	case *v1alpha1.NamespaceMap:
		b, ok := after.(*v1alpha1.NamespaceMap)
		return ok && reflect.DeepEqual(a.Spec, b.Spec)
	case *v1alpha1.NamespaceOffloading:
		b, ok := after.(*v1alpha1.NamespaceOffloading)
		return ok && reflect.DeepEqual(a.Spec, b.Spec)
	case *v1alpha1.IPMapping:
		b, ok := after.(*v1alpha1.IPMapping)
		return ok && a.Generation == b.Generation && reflect.DeepEqual(a.Status, b.Status)
	case *v1alpha1.NetworkRules:
		b, ok := after.(*v1alpha1.NetworkRules)
		return ok && reflect.DeepEqual(a.Spec, b.Spec)
	case *v1alpha1.NetworkPath:
		b, ok := after.(*v1alpha1.NetworkPath)
		return ok && reflect.DeepEqual(a.Spec, b.Spec) && reflect.DeepEqual(a.Status, b.Status)
	case *corev1.Namespace:
		return true // of which labels are read
	case *v1alpha1.NetworkConfig:
		b, ok := after.(*v1alpha1.NetworkConfig)
		return ok && reflect.DeepEqual(a.Spec, b.Spec) && reflect.DeepEqual(a.Status, b.Status)
	}
	return false
}

// linkMTU remembers for a while the MTU of the device with this node's address.
type linkMTU struct {
	mu    sync.Mutex
	at    time.Time
	of    netip.Addr
	known int
}

// mtuFor is how long an MTU is believed.
const mtuFor = 5 * time.Second

// find is the MTU of the device with an address, 0 if none has it.
func (l *linkMTU) find(host *os.File, a netip.Addr) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == a && time.Since(l.at) < mtuFor {
		return l.known, nil
	}
	mtu, err := mtuOf(host, a)
	if err == nil {
		l.at, l.of, l.known = time.Now(), a, mtu
	}
	return l.known, err
}

func mtuOf(host *os.File, a netip.Addr) (int, error) {
	kernel, err := netns.Netlink(host)
	if err != nil {
		return 0, err
	}
	defer kernel.Close()
	family := netlink.FAMILY_V4
	if a.Is6() {
		family = netlink.FAMILY_V6
	}
	addrs, err := netns.Whole(func() ([]netlink.Addr, error) { return kernel.AddrList(nil, family) })
	if err != nil {
		return 0, fmt.Errorf("listing addresses: %w", err)
	}
	for _, has := range addrs {
		if at, ok := netip.AddrFromSlice(has.IP); ok && at.Unmap() == a {
			link, err := kernel.LinkByIndex(has.LinkIndex)
			if err != nil {
				return 0, fmt.Errorf("finding the device of %s: %w", a, err)
			}
			return link.Attrs().MTU, nil
		}
	}
	return 0, nil
}

// mtuHere is that of this node's device, as far as it can be found.
func (c *cluster) mtuHere(nodes []corev1.Node) int {
	for i := range nodes {
		if nodes[i].Name != c.options.Node {
			continue
		}
		for _, a := range addressesOf(&nodes[i]) {
			mtu, err := c.mtu.find(c.options.Host, a)
			if err != nil {
				c.options.Log.V(1).Info("the MTU of this node's device is not known", "error", err.Error())
			}
			if mtu > 0 {
				return mtu
			}
		}
	}
	return 0
}
