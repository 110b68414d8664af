package network

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
	"github.com/pelago-dev/pelago/network/mapping"
)

// board is a mapper on a real API server, that knows its network.
type board struct {
	t         *testing.T
	client    client.WithWatch
	namespace string
	network   *Network
	mapper    *mapper
}

func newBoard(t *testing.T) *board {
	t.Helper()
	server := kubetest.Server(t)
	b := &board{t: t, client: server.Client(t), namespace: server.Namespace(t), network: New(Options{})}
	b.restart()
	b.learn(mapping.Ground{
		External: ranges("10.255.255.0/24"), Mappable: ranges("192.0.2.0/24", "2001:db8::/64"),
		Taken: []mapping.Part{{Prefix: ranges("10.42.0.0/16")[0], What: "in the range of the pods here"}},
	})
	return b
}

func ranges(texts ...string) []netip.Prefix { return prefixes(texts) }

func (b *board) restart() { b.mapper = newMapper(b.network, b.client, b.client) }

func (b *board) learn(g mapping.Ground) {
	p := *nothing
	p.ground = g
	p.describe(nil, nil)
	b.network.learn(&p)
}

func (b *board) add(name, address string) *v1alpha1.IPMapping {
	b.t.Helper()
	o := &v1alpha1.IPMapping{ObjectMeta: at(b.namespace, name), Spec: v1alpha1.IPMappingSpec{
		Address: address, Ports: []v1alpha1.IPMappingPort{{Name: "sql", Port: 5432}, {Name: "dns", Protocol: v1alpha1.IPMappingUDP, Port: 53}},
	}}
	if err := b.client.Create(ctx, o); err != nil {
		b.t.Fatal(err)
	}
	return b.look(name)
}

// look reconciles a mapping and returns what became of it, nil if it is gone.
func (b *board) look(name string) *v1alpha1.IPMapping {
	b.t.Helper()
	key := client.ObjectKey{Namespace: b.namespace, Name: name}
	if _, err := b.mapper.Reconcile(ctx, ctrl.Request{NamespacedName: key}); err != nil {
		b.t.Fatal(err)
	}
	o := &v1alpha1.IPMapping{}
	if err := b.client.Get(ctx, key, o); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		b.t.Fatal(err)
	}
	return o
}

func (b *board) has(name string, o client.Object) bool {
	b.t.Helper()
	err := b.client.Get(ctx, client.ObjectKey{Namespace: b.namespace, Name: name}, o)
	if client.IgnoreNotFound(err) != nil {
		b.t.Fatal(err)
	}
	return err == nil
}

func (b *board) ready(o *v1alpha1.IPMapping, reason, part string) {
	b.t.Helper()
	c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionReady)
	if c == nil || c.Reason != reason || (c.Status == metav1.ConditionTrue) != (reason == v1alpha1.ReasonReady) || !strings.Contains(c.Message, part) || c.ObservedGeneration != o.Generation {
		b.t.Errorf("%s is %+v, want %s with %q", o.Name, c, reason, part)
	}
}

func TestMapping(t *testing.T) {
	b := newBoard(t)
	db := b.add("db", "192.0.2.50")
	b.ready(db, v1alpha1.ReasonReady, "")
	service, slice := &corev1.Service{}, &discoveryv1.EndpointSlice{}
	if !b.has("db", service) || !b.has("db", slice) {
		t.Fatal("there is no Service or no EndpointSlice")
	}
	if db.Status.Address != "10.255.255.4" || slice.Annotations[v1alpha1.AnnotationExternal] != "10.255.255.4" || slice.Endpoints[0].Addresses[0] != "192.0.2.50" {
		t.Errorf("it has %s, and the slice is of %+v with %v", db.Status.Address, slice.Endpoints, slice.Annotations)
	}
	if service.Spec.ClusterIP == "" || service.Spec.Selector != nil || len(service.Spec.Ports) != 2 || service.Spec.Ports[1].Protocol != corev1.ProtocolUDP ||
		len(slice.Ports) != 2 || *slice.Ports[0].Port != 5432 || slice.Labels[discoveryv1.LabelServiceName] != "db" || !metav1.IsControlledBy(service, db) || !metav1.IsControlledBy(slice, db) {
		t.Errorf("its Service is %+v, its slice %+v", service.Spec, slice)
	}
	b.look("db") // nothing is written anew
	again := &corev1.Service{}
	if b.has("db", again); again.ResourceVersion != service.ResourceVersion {
		t.Error("a second look writes the Service again")
	}

	// What is changed comes back, and follows the mapping.
	for _, change := range []struct {
		of   client.Object
		text string
	}{
		{service, `{"spec":{"selector":{"app":"evil"},"ports":[{"port":1}]}}`},
		{slice, `{"endpoints":[{"addresses":["192.0.2.66"]}],"metadata":{"annotations":{"pelago.dev/external-address":"10.255.255.9"}}}`},
		{db, `{"spec":{"address":"192.0.2.51","ports":[{"name":"sql","port":5433}]}}`},
	} {
		if err := b.client.Patch(ctx, change.of, client.RawPatch("application/merge-patch+json", []byte(change.text))); err != nil {
			t.Fatal(err)
		}
	}
	db = b.look("db")
	b.has("db", service)
	b.has("db", slice)
	if service.Spec.Selector != nil || len(service.Spec.Ports) != 1 || service.Spec.Ports[0].Port != 5433 || slice.Endpoints[0].Addresses[0] != "192.0.2.51" ||
		slice.Annotations[v1alpha1.AnnotationExternal] != "10.255.255.4" || db.Status.Address != "10.255.255.4" {
		t.Errorf("after changes the Service is %+v, the slice %+v, the address %s", service.Spec, slice, db.Status.Address)
	}

	// A manager that begins anew keeps what mappings have, and gives it to no other.
	b.restart()
	if other := b.add("other", "192.0.2.51"); other.Status.Address != "10.255.255.5" {
		t.Errorf("another one has %s", other.Status.Address)
	}
	if db = b.look("db"); db.Status.Address != "10.255.255.4" {
		t.Errorf("it has %s after a restart", db.Status.Address)
	}

	// One that goes leaves its address, which is not the next that is given.
	if err := b.client.Delete(ctx, db); err != nil {
		t.Fatal(err)
	}
	b.look("db")
	third := b.add("third", "192.0.2.52")
	if third.Status.Address != "10.255.255.6" {
		t.Errorf("a third one has %s", third.Status.Address)
	}
	if err := b.client.Delete(ctx, third); err != nil {
		t.Fatal(err)
	}
	if third = b.add("third", "192.0.2.52"); third.Status.Address != "10.255.255.7" {
		t.Errorf("one that is made anew under its name has %s", third.Status.Address)
	}

	// A manager that begins anew knows of what mappings have, and of nothing that was left.
	if err := b.client.Delete(ctx, third); err != nil {
		t.Fatal(err)
	}
	b.look("third")
	b.restart()
	if last := b.add("last", "192.0.2.53"); last.Status.Address != "10.255.255.6" {
		t.Errorf("after a restart with 10.255.255.5 as the highest another one has %s", last.Status.Address)
	}
}

func TestMappingRefused(t *testing.T) {
	b := newBoard(t)
	pod := b.add("pod", "10.42.0.7")
	b.ready(pod, v1alpha1.ReasonNotMappable, "in the range of the pods here")
	beside := b.add("beside", "198.51.100.1")
	b.ready(beside, v1alpha1.ReasonNotMappable, "network.mappable")
	six := b.add("six", "2001:db8::7")
	b.ready(six, v1alpha1.ReasonPoolExhausted, "no external range of the family")
	for _, name := range []string{"pod", "beside", "six"} {
		if b.has(name, &corev1.Service{}) || b.has(name, &discoveryv1.EndpointSlice{}) || b.look(name).Status.Address != "" {
			t.Errorf("%s was refused, and has something", name)
		}
	}

	// What others made under the name stays as it is.
	own := &corev1.Service{ObjectMeta: at(b.namespace, "mine"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	if err := b.client.Create(ctx, own); err != nil {
		t.Fatal(err)
	}
	b.ready(b.add("mine", "192.0.2.1"), v1alpha1.ReasonNameTaken, "Service mine")
	if got := (&corev1.Service{}); !b.has("mine", got) || got.ResourceVersion != own.ResourceVersion || b.has("mine", &discoveryv1.EndpointSlice{}) {
		t.Error("somebody else's Service was touched, or leads to what is mapped")
	}

	// One that may not be mapped any more loses what leads to it, and has its address when it may again.
	db := b.add("db", "192.0.2.50")
	before := db.Status.Address
	ground := b.network.look().ground
	b.learn(mapping.Ground{External: ground.External})
	db = b.look("db")
	b.ready(db, v1alpha1.ReasonNotMappable, "network.mappable")
	if b.has("db", &corev1.Service{}) || b.has("db", &discoveryv1.EndpointSlice{}) || db.Status.Address != before {
		t.Errorf("it goes on, or has lost its address: %+v", db.Status)
	}
	b.add("next", "192.0.2.50")
	b.learn(ground)
	if next := b.look("next"); next.Status.Address == before {
		t.Error("another one has its address")
	}
	if db = b.look("db"); db.Status.Address != before || !b.has("db", &corev1.Service{}) {
		t.Errorf("it is not as before: %+v", db.Status)
	}
	b.ready(db, v1alpha1.ReasonReady, "")
}

// TestMappingUncounted: a quota that has not counted yet refuses no mapping, and one that is full does.
func TestMappingUncounted(t *testing.T) {
	for why, refused := range map[string]bool{"status unknown for quota: objects, resources: services": false, "exceeded quota: objects": true} {
		b := newBoard(t)
		o := &v1alpha1.IPMapping{ObjectMeta: at(b.namespace, "db"), Spec: v1alpha1.IPMappingSpec{Address: "192.0.2.50", Ports: []v1alpha1.IPMappingPort{{Name: "sql", Port: 5432}}}}
		if err := b.client.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
		failing := interceptor.NewClient(b.client, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, made client.Object, options ...client.CreateOption) error {
			if _, is := made.(*discoveryv1.EndpointSlice); is {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "endpointslices"}, made.GetName(), errors.New(why))
			}
			return c.Create(ctx, made, options...)
		}})
		b.mapper = newMapper(b.network, failing, failing)
		_, err := b.mapper.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o)})
		if (err == nil) != refused {
			t.Errorf("%s: tried again for %v", why, err)
		}
		if refused {
			b.ready(b.look("db"), v1alpha1.ReasonInvalid, why)
			continue
		}
		b.restart()
		b.ready(b.look("db"), v1alpha1.ReasonReady, "")
	}
}

// TestMappingsTooMany holds that what gateways leave out is not Ready, and is when there is room.
func TestMappingsTooMany(t *testing.T) {
	b := newBoard(t)
	peering := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PeeringNamespace(b.namespace)}}
	m := &v1alpha1.NamespaceMap{ObjectMeta: at(peering.Name, v1alpha1.NamespaceMapName), Spec: v1alpha1.NamespaceMapSpec{
		Namespaces: map[string]v1alpha1.NamespaceMapping{b.namespace: {Strategy: v1alpha1.MappingDefaultName}}}}
	for _, o := range []client.Object{peering, m} {
		if err := b.client.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	last := b.add("last", "192.0.2.50")
	b.ready(last, v1alpha1.ReasonReady, "")
	var crowd []client.Object
	for i := range v1alpha1.MaxIPMappings {
		o := last.DeepCopy()
		o.Name, o.Status.Address, o.CreationTimestamp = fmt.Sprintf("a%d", i), fmt.Sprintf("10.254.%d.%d", i/256, i%256), metav1.NewTime(last.CreationTimestamp.Add(-time.Hour))
		crowd = append(crowd, o)
	}
	b.mapper.client = among{b.client, crowd}
	b.ready(b.look("last"), v1alpha1.ReasonTooMany, b.namespace+" have 256 older")
	if !b.has("last", &corev1.Service{}) {
		t.Error("pods at home have lost it")
	}
	if _, right := mappedTo(b.look("last")); !right {
		t.Error("gateways to other providers let nobody through to it")
	}
	if all := b.mapper.waiting(ctx); len(all) != 1 || all[0].Name != "last" {
		t.Errorf("where one goes, %v are looked at", all)
	}
	crowd[7].(*v1alpha1.IPMapping).Status.Conditions = nil
	b.ready(b.look("last"), v1alpha1.ReasonReady, "")
	crowd[7].(*v1alpha1.IPMapping).Status.Conditions = last.Status.Conditions
	if err := b.client.Delete(ctx, m); err != nil {
		t.Fatal(err)
	}
	b.ready(b.look("last"), v1alpha1.ReasonReady, "")
}

// among lists more mappings than there are.
type among struct {
	client.Client
	more []client.Object
}

func (a among) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	err := a.Client.List(ctx, list, opts...)
	if all, is := list.(*v1alpha1.IPMappingList); is {
		for _, o := range a.more {
			all.Items = append(all.Items, *o.(*v1alpha1.IPMapping))
		}
	}
	return err
}

// TestMappingUnknown holds that nothing is taken away while nothing is known.
func TestMappingUnknown(t *testing.T) {
	b := newBoard(t)
	b.add("db", "192.0.2.50")
	b.learn(mapping.Ground{})
	b.ready(b.look("db"), v1alpha1.ReasonReady, "")
	if !b.has("db", &discoveryv1.EndpointSlice{}) {
		t.Error("its slice has gone")
	}
	b.ready(b.add("new", "192.0.2.51"), v1alpha1.ReasonWaiting, "not known yet")
}

func TestMappingKind(t *testing.T) {
	b := newBoard(t)
	usual := func(change func(*v1alpha1.IPMapping)) *v1alpha1.IPMapping {
		o := &v1alpha1.IPMapping{ObjectMeta: at(b.namespace, "db"), Spec: v1alpha1.IPMappingSpec{Address: "192.0.2.50", Ports: []v1alpha1.IPMappingPort{{Name: "sql", Port: 5432}}}}
		change(o)
		return o
	}
	port := func(p v1alpha1.IPMappingPort) *v1alpha1.IPMapping {
		return usual(func(o *v1alpha1.IPMapping) { o.Spec.Ports = append(o.Spec.Ports, p) })
	}
	address := func(text string) *v1alpha1.IPMapping {
		return usual(func(o *v1alpha1.IPMapping) { o.Spec.Address = text })
	}
	for _, c := range []struct {
		reason string
		o      *v1alpha1.IPMapping
		want   string // part of the answer; "" is none
	}{
		{"the usual one", usual(func(*v1alpha1.IPMapping) {}), ""},
		{"of IPv6", address("2001:db8::7"), ""},
		{"a port of both protocols", port(v1alpha1.IPMappingPort{Name: "sql-udp", Protocol: v1alpha1.IPMappingUDP, Port: 5432}), ""},
		{"a name of a host", address("db.example.org"), "is no address"},
		{"a prefix", address("192.0.2.0/24"), "is no address"},
		{"loopback", address("127.0.0.1"), "cannot be mapped"},
		{"the metadata of clouds", address("169.254.169.254"), "cannot be mapped"},
		{"multicast", address("224.0.0.1"), "cannot be mapped"},
		{"unspecified", address("0.0.0.0"), "cannot be mapped"},
		{"link-local of IPv6", address("fe80::1"), "cannot be mapped"},
		{"IPv4 in IPv6", address("::ffff:169.254.169.254"), "is no address"},
		{"no port", usual(func(o *v1alpha1.IPMapping) { o.Spec.Ports = []v1alpha1.IPMappingPort{} }), "spec.ports"},
		{"port 0", port(v1alpha1.IPMappingPort{Name: "x"}), "spec.ports[1].port"},
		{"SCTP", port(v1alpha1.IPMappingPort{Name: "x", Protocol: "SCTP", Port: 7}), "protocol"},
		{"a port twice", port(v1alpha1.IPMappingPort{Name: "x", Protocol: v1alpha1.IPMappingTCP, Port: 5432}), "Duplicate"},
		{"a name twice", port(v1alpha1.IPMappingPort{Name: "sql", Port: 7}), "a name of its own"},
		{"a port's name that a Service cannot have", port(v1alpha1.IPMappingPort{Name: "SQL", Port: 7}), "name"},
		{"a name that a Service cannot have", usual(func(o *v1alpha1.IPMapping) { o.Name = "db.example" }), "that of a Service"},
		{"a name with a digit first", usual(func(o *v1alpha1.IPMapping) { o.Name = "7db" }), "that of a Service"},
	} {
		err := b.client.Create(ctx, c.o, client.DryRunAll)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.reason, err, c.want)
		}
	}
}

// TestGround holds that what is this cluster's own, and what views cover, is never mapped.
func TestGround(t *testing.T) {
	rome := provided("rome", noon, "10.9.0.0/16")
	f := usual(rome)
	f.property = own(grounds{nodes: []*corev1.Node{{
		Spec:   corev1.NodeSpec{PodCIDRs: []string{"10.42.1.0/24"}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.7"}, {Type: corev1.NodeHostName, Address: "rome-1"}, {Type: corev1.NodeExternalIP, Address: "198.51.100.7"}}},
	}}, servers: []netip.Addr{netip.MustParseAddr("192.0.2.9")}})
	f.property.Services = ranges("10.43.0.0/16")
	f.settings.Mappable = []string{"0.0.0.0/0"}
	f.nodes["rome-2"] = &corev1.Node{Spec: corev1.NodeSpec{PodCIDRs: []string{"10.77.1.0/24"}}} // as agents refuse it
	for i := range 9 {
		f.nodes[fmt.Sprint("more-", i)] = &corev1.Node{Spec: corev1.NodeSpec{PodCIDRs: []string{fmt.Sprintf("10.78.%d.0/24", i)}}}
	}
	g := decide(f).picture.ground
	for range 9 {
		if !reflect.DeepEqual(decide(f).picture.ground, g) {
			t.Fatal("the same facts have two grounds: each look would wake all mappings")
		}
	}
	for address, want := range map[string]string{
		"192.0.2.8": "", "10.42.7.7": "pods here", "10.43.0.1": "Services here", "10.77.1.9": "pods of a node here", "192.0.2.7": "a node", "198.51.100.7": "a node", "192.0.2.9": "API server",
		f.property.External[0].Addr().Next().String(): "external range", "10.9.1.1": "by what a peer is seen here",
	} {
		if got := mapping.Refuse(g, netip.MustParseAddr(address)); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
	if !slices.Equal(g.External, f.property.External) {
		t.Errorf("external ranges are %v", g.External)
	}
}
