package dns

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	wire "github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// The words for milan and turin, two tenants of rome's.
const milan, turin = "0123456789abcdef", "fedcba9876543210"

// from is a mapped namespace whose pods were made at a third cluster.
func from(name, tenant, home, origin, owner string) *corev1.Namespace {
	n := space(name, tenant, home, 0, false)
	n.Labels[v1alpha1.LabelOriginNamespace], n.Labels[v1alpha1.LabelOriginOwner] = origin, owner
	return n
}

// oslo is a provider of rome's, with pods of rome's own, of two of its tenants, and of naples, which
// says of a namespace of its that it is milan's.
func oslo() *Index {
	x := NewIndex("oslo-1")
	for address, n := range map[string]*corev1.Namespace{
		"10.42.0.1": space("shop-rome", "rome", "shop", 0, false),
		"10.42.0.2": from("shop-milan-rome", "rome", "shop-milan", "shop", milan),
		"10.42.0.3": from("bank-milan-rome", "rome", "bank-milan", "bank", milan),
		"10.42.0.4": from("shop-turin-rome", "rome", "shop-turin", "shop", turin),
		"10.42.0.5": from("vault-milan-naples", "naples", "vault-milan", "vault", milan),
		"10.42.0.6": space("shop-naples", "naples", "shop", 0, false),
	} {
		x.SetNamespace(n)
		x.SetPod(podOf(n.Name, "web", "oslo-1", nil, address))
	}
	return x
}

func TestIndexOnward(t *testing.T) {
	x := oslo()
	rome := map[string]string{"shop": "shop-rome", "shop-milan": "shop-milan-rome", "bank-milan": "bank-milan-rome", "shop-turin": "shop-turin-rome"}
	ofMilan := map[string]string{"shop": "shop-milan-rome", "bank": "bank-milan-rome"}
	x.want(t, "rome's own know all that is at rome, by its names there", "10.42.0.1", rome)
	x.want(t, "milan's know milan's by its names", "10.42.0.2", ofMilan)
	x.want(t, "from each of its namespaces", "10.42.0.3", ofMilan)
	x.want(t, "turin's know turin's", "10.42.0.4", map[string]string{"shop": "shop-turin-rome"})
	x.want(t, "another tenant that says the same word is another", "10.42.0.5", map[string]string{"vault": "vault-milan-naples"})
	x.want(t, "and its own are its own", "10.42.0.6", map[string]string{"shop": "shop-naples", "vault-milan": "vault-milan-naples"})
	for address, tenant := range map[string]string{"10.42.0.1": "rome", "10.42.0.2": "rome", "10.42.0.5": "naples"} {
		if c, _ := x.Client(netip.MustParseAddr(address)); c.Tenant != tenant {
			t.Errorf("%s counts as %q's", address, c.Tenant)
		}
	}

	x.SetNamespace(from("bank-milan-rome", "rome", "bank-milan", "bank", turin))
	x.want(t, "one that has become turin's is milan's no more", "10.42.0.2", map[string]string{"shop": "shop-milan-rome"})
	x.want(t, "but turin's", "10.42.0.4", map[string]string{"shop": "shop-turin-rome", "bank": "bank-milan-rome"})
	x.want(t, "for its own pods too", "10.42.0.3", map[string]string{"shop": "shop-turin-rome", "bank": "bank-milan-rome"})
	x.SetNamespace(space("bank-milan-rome", "rome", "bank-milan", 0, false))
	x.want(t, "without an origin it is rome's own", "10.42.0.3", rome)
	x.want(t, "and turin's no more", "10.42.0.4", map[string]string{"shop": "shop-turin-rome"})
	for _, name := range []string{"shop-rome", "shop-milan-rome", "bank-milan-rome", "shop-turin-rome", "vault-milan-naples", "shop-naples"} {
		x.DeleteNamespace(name)
		x.DeletePod(name, "web")
	}
	if len(x.pods)+len(x.addresses)+len(x.namespaces)+len(x.clients) != 0 {
		t.Errorf("something is left: %+v", x)
	}
}

// TestIndexOnwardTwice holds which of two namespaces of one origin is meant, as of one home.
func TestIndexOnwardTwice(t *testing.T) {
	aged := func(n *corev1.Namespace, after time.Duration, ending bool) *corev1.Namespace {
		n.CreationTimestamp.Time = begin.Add(after)
		if ending {
			n.DeletionTimestamp = &n.CreationTimestamp
		}
		return n
	}
	for _, c := range []struct {
		reason   string
		old, new *corev1.Namespace
		want     string
	}{
		{"the younger one", aged(from("a", "rome", "shop-milan", "shop", milan), 0, false), aged(from("b", "rome", "shop-2", "shop", milan), time.Hour, false), "b"},
		{"the one that stays", aged(from("a", "rome", "shop-milan", "shop", milan), 0, false), aged(from("b", "rome", "shop-2", "shop", milan), time.Hour, true), "a"},
		{"a younger one of another owner is nothing to it", aged(from("a", "rome", "shop-milan", "shop", milan), 0, false), aged(from("b", "rome", "shop-2", "shop", turin), time.Hour, false), "a"},
	} {
		x := NewIndex("oslo-1")
		x.SetPod(podOf("a", "web", "oslo-1", nil, "10.42.0.5"))
		x.SetNamespace(c.old)
		x.SetNamespace(c.new)
		x.want(t, c.reason, "10.42.0.5", map[string]string{"shop": c.want})
	}
}

// TestIndexWrongOrigin holds that a namespace that says wrongly where its pods were made is nobody's,
// and these pods are nobody.
func TestIndexWrongOrigin(t *testing.T) {
	for reason, labels := range map[string]map[string]string{
		"no owner":             {v1alpha1.LabelOriginNamespace: "bank"},
		"no namespace":         {v1alpha1.LabelOriginOwner: milan},
		"both empty":           {v1alpha1.LabelOriginNamespace: "", v1alpha1.LabelOriginOwner: ""},
		"an owner by name":     {v1alpha1.LabelOriginNamespace: "bank", v1alpha1.LabelOriginOwner: "milan"},
		"no name of namespace": {v1alpha1.LabelOriginNamespace: "bank.svc", v1alpha1.LabelOriginOwner: milan},
	} {
		x := oslo()
		n := space("bank-milan-rome", "rome", "bank-milan", 0, false)
		for key, value := range labels {
			n.Labels[key] = value
		}
		x.SetNamespace(n)
		x.want(t, reason+": its own pods", "10.42.0.3", nil)
		x.want(t, reason+": milan's", "10.42.0.2", map[string]string{"shop": "shop-milan-rome"})
		x.want(t, reason+": rome's own", "10.42.0.1", map[string]string{"shop": "shop-rome", "shop-milan": "shop-milan-rome", "shop-turin": "shop-turin-rome"})
	}
}

// TestRespondOnward asks as the pods at oslo do, by names, ports and addresses.
func TestRespondOnward(t *testing.T) {
	x := oslo()
	zone := []string{
		"db.shop-rome.svc.cluster.local. 5 IN A 10.96.0.1", "db.shop-milan-rome.svc.cluster.local. 5 IN A 10.96.0.2",
		"api.bank-milan-rome.svc.cluster.local. 5 IN A 10.96.0.3", "db.shop-turin-rome.svc.cluster.local. 5 IN A 10.96.0.4",
		"db.shop-naples.svc.cluster.local. 5 IN A 10.96.0.6", "db.shop.svc.cluster.local. 5 IN A 10.96.0.9",
		"_sql._tcp.db.shop-milan-rome.svc.cluster.local. 5 IN SRV 0 100 5432 10-42-0-2.db.shop-milan-rome.svc.cluster.local.",
		"1.0.96.10.in-addr.arpa. 5 IN PTR db.shop-rome.svc.cluster.local.", "2.0.96.10.in-addr.arpa. 5 IN PTR db.shop-milan-rome.svc.cluster.local.",
		"4.0.96.10.in-addr.arpa. 5 IN PTR db.shop-turin-rome.svc.cluster.local.",
		"ext.shop-milan-rome.svc.cluster.local. 5 IN CNAME api.bank-milan-rome.svc.cluster.local.",
		"bad.shop-milan-rome.svc.cluster.local. 5 IN CNAME db.shop-turin-rome.svc.cluster.local.",
	}
	const rome, ofMilan, ofTurin, naples = "10.42.0.1", "10.42.0.2", "10.42.0.4", "10.42.0.6"
	const no = "NXDOMAIN"
	for _, c := range []struct {
		reason, from, name string
		kind               uint16
		want               string
	}{
		{"milan's own", ofMilan, "db.shop.svc.cluster.local.", wire.TypeA, "db.shop.svc.cluster.local. 5 IN A 10.96.0.2"},
		{"milan's other namespace", ofMilan, "api.bank.svc.cluster.local.", wire.TypeA, "api.bank.svc.cluster.local. 5 IN A 10.96.0.3"},
		{"by the name that rome has for it", ofMilan, "db.shop-milan.svc.cluster.local.", wire.TypeA, no},
		{"by the name that it has here", ofMilan, "db.shop-milan-rome.svc.cluster.local.", wire.TypeA, no},
		{"turin's, by rome's name", ofMilan, "db.shop-turin.svc.cluster.local.", wire.TypeA, no},
		{"rome's own, by its name here", ofMilan, "db.shop-rome.svc.cluster.local.", wire.TypeA, no},
		{"a port", ofMilan, "_sql._tcp.db.shop.svc.cluster.local.", wire.TypeSRV, "_sql._tcp.db.shop.svc.cluster.local. 5 IN SRV 0 100 5432 10-42-0-2.db.shop.svc.cluster.local."},
		{"an address", ofMilan, "2.0.96.10.in-addr.arpa.", wire.TypePTR, "2.0.96.10.in-addr.arpa. 5 IN PTR db.shop.svc.cluster.local."},
		{"an address of rome's own", ofMilan, "1.0.96.10.in-addr.arpa.", wire.TypePTR, no},
		{"an address of turin's", ofMilan, "4.0.96.10.in-addr.arpa.", wire.TypePTR, no},
		{"a name that stands for another", ofMilan, "ext.shop.svc.cluster.local.", wire.TypeCNAME, "ext.shop.svc.cluster.local. 5 IN CNAME api.bank.svc.cluster.local."},
		{"a name that stands for one of turin's", ofMilan, "bad.shop.svc.cluster.local.", wire.TypeCNAME, no},
		{"an API server", ofMilan, "kubernetes.default.svc.cluster.local.", wire.TypeA, no},
		{"turin's own", ofTurin, "db.shop.svc.cluster.local.", wire.TypeA, "db.shop.svc.cluster.local. 5 IN A 10.96.0.4"},
		{"milan's other namespace", ofTurin, "api.bank.svc.cluster.local.", wire.TypeA, no},
		{"rome's own", rome, "db.shop.svc.cluster.local.", wire.TypeA, "db.shop.svc.cluster.local. 5 IN A 10.96.0.1"},
		{"milan's, as at rome", rome, "db.shop-milan.svc.cluster.local.", wire.TypeA, "db.shop-milan.svc.cluster.local. 5 IN A 10.96.0.2"},
		{"milan's address, as at rome", rome, "2.0.96.10.in-addr.arpa.", wire.TypePTR, "2.0.96.10.in-addr.arpa. 5 IN PTR db.shop-milan.svc.cluster.local."},
		{"milan's other namespace, by milan's name", rome, "api.bank.svc.cluster.local.", wire.TypeA, no},
		{"naples' own", naples, "db.shop.svc.cluster.local.", wire.TypeA, "db.shop.svc.cluster.local. 5 IN A 10.96.0.6"},
		{"an address of milan's", naples, "2.0.96.10.in-addr.arpa.", wire.TypePTR, no},
	} {
		r := responder{clients: func() (Client, bool) { return x.Client(netip.MustParseAddr(c.from)) }, exchange: (&world{t: t, zone: zone}).exchange}
		packet, _ := r.respond(context.Background(), packed(t, ask(c.name, c.kind)), true)
		m := unpacked(t, packet)
		got := wire.RcodeToString[m.Rcode]
		if len(m.Answer) > 0 {
			got = lines(m.Answer)[0]
		}
		if d := cmp.Diff(c.want, got); d != "" || len(m.Answer) > 1 {
			t.Errorf("%s asks for %s (-want +got):\n%s", c.from, c.reason, d)
		}
	}
}

// TestBetween holds that what a tenant lets go onward is here by the names that it always had.
func TestBetween(t *testing.T) {
	x := NewIndex("rome-1")
	n := space("shop-milan", "milan", "shop", 0, false)
	n.Labels[v1alpha1.LabelOnward] = "true"
	x.SetNamespace(n)
	x.SetPod(podOf("shop-milan", "web", "rome-1", nil, "10.42.0.5"))
	x.want(t, "at rome, milan's pods call each other as at milan", "10.42.0.5", map[string]string{"shop": "shop-milan"})
}
