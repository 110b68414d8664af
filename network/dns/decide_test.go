package dns

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	wire "github.com/miekg/dns"
)

// rome is a tenant whose namespaces shop and default are mapped.
var rome = Client{Tenant: "rome", Namespaces: map[string]string{"shop": "shop-rome", "default": "default-rome"}}

// other is rome with another domain at home.
var other = Client{Tenant: "rome", Domain: "Home.Example", Namespaces: rome.Namespaces}

func TestDecide(t *testing.T) {
	label := strings.Repeat("a", 63)
	long := strings.Join([]string{label, label, label, strings.Repeat("b", 36)}, ".") // home's name fits, the one here does not
	asks := func(name string) verdict { return verdict{action: forward, name: name, home: true} }
	no, there := verdict{action: missing, home: true}, verdict{action: empty, home: true}
	for _, c := range []struct {
		reason string
		client Client
		name   string
		want   verdict
	}{
		{"a Service of a mapped namespace", rome, "db.shop.svc.cluster.local.", asks("db.shop-rome.svc.cluster.local.")},
		{"in whatever case", rome, "dB.sHOp.SVC.Cluster.LOCAL.", asks("dB.shop-rome.svc.cluster.local.")},
		{"a pod of a headless Service", rome, "pod-0.db.shop.svc.cluster.local.", asks("pod-0.db.shop-rome.svc.cluster.local.")},
		{"a port of a Service", rome, "_sql._tcp.db.shop.svc.cluster.local.", asks("_sql._tcp.db.shop-rome.svc.cluster.local.")},
		{"a dot inside of a label is no border", rome, `a\.shop.svc.svc.cluster.local.`, no},
		{"odd bytes go on as they are", rome, `\000\.\032.shop.svc.cluster.local.`, asks(`\000\.\032.shop-rome.svc.cluster.local.`)},
		{"what the first search domain makes of db.shop", rome, "db.shop.shop.svc.cluster.local.", asks("db.shop.shop-rome.svc.cluster.local.")},
		{"the provider's own namespace of a name that home has not mapped", rome, "dns.kube-system.svc.cluster.local.", no},
		{"the mapped namespace by its name here", rome, "db.shop-rome.svc.cluster.local.", no},
		{"another tenant's namespace", rome, "db.shop-naples.svc.cluster.local.", no},
		{"the namespace itself has names below", rome, "shop.svc.cluster.local.", there},
		{"one that is not mapped has none", rome, "kube-system.svc.cluster.local.", no},
		{"svc has names below", rome, "svc.cluster.local.", there},
		{"so has the domain", rome, "cluster.local.", there},
		{"addresses as names of pods", rome, "10-42-0-5.shop.pod.cluster.local.", no},
		{"what else home's domain has", rome, "dns-version.cluster.local.", no},
		{"the API here is not home's", rome, "kubernetes.default.svc.cluster.local.", no},
		{"nor are its ports", rome, "_https._tcp.KUBERNETES.default.svc.cluster.local.", no},
		{"another Service of the namespace default", rome, "web.default.svc.cluster.local.", asks("web.default-rome.svc.cluster.local.")},
		{"a name that gets too long here", rome, long + ".shop.svc.cluster.local.", no},
		{"the world", rome, "www.example.org.", verdict{}},
		{"a domain that only ends alike", rome, "db.shop.svc.mycluster.local.", verdict{}},
		{"the root", rome, ".", verdict{}},
		{"an address", rome, "5.0.42.10.in-addr.arpa.", verdict{}},
		{"an IPv6 address", rome, "1.0.d.f.ip6.arpa.", verdict{}},
		{"home's own domain", other, "db.shop.svc.home.example.", asks("db.shop-rome.svc.cluster.local.")},
		{"the provider's domain, if that is another", other, "db.shop-rome.svc.cluster.local.", verdict{action: missing}},
		{"all of it", other, "cluster.local.", verdict{action: missing}},
		{"not mapped, in home's own domain", other, "db.bank.svc.home.example.", no},
		{"without namespaces nothing is home's", Client{Tenant: "rome"}, "db.shop.svc.cluster.local.", no},
	} {
		got := decide(c.client, "cluster.local", wire.Question{Name: c.name, Qtype: wire.TypeA, Qclass: wire.ClassINET})
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(verdict{})); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", c.reason, c.name, diff)
		}
	}
}

func TestDecideByType(t *testing.T) {
	for _, c := range []struct {
		kind, class uint16
		want        action
	}{
		{wire.TypeA, wire.ClassINET, forward}, {wire.TypeAAAA, wire.ClassINET, forward}, {wire.TypeSRV, wire.ClassINET, forward},
		{wire.TypeHTTPS, wire.ClassINET, forward}, {wire.TypeCAA, wire.ClassINET, forward}, {65280, wire.ClassINET, forward},
		{wire.TypeANY, wire.ClassINET, refuse}, {wire.TypeAXFR, wire.ClassINET, refuse}, {wire.TypeIXFR, wire.ClassINET, refuse},
		{wire.TypeMAILB, wire.ClassINET, refuse}, {wire.TypeTSIG, wire.ClassINET, refuse}, {wire.TypeTKEY, wire.ClassINET, refuse},
		{wire.TypeOPT, wire.ClassINET, refuse}, {wire.TypeNone, wire.ClassINET, refuse},
		{wire.TypeTXT, wire.ClassCHAOS, refuse}, {wire.TypeA, wire.ClassANY, refuse}, {wire.TypeA, 0, refuse},
	} {
		for _, name := range []string{"db.shop.svc.cluster.local.", "www.example.org."} {
			if got := decide(rome, "", wire.Question{Name: name, Qtype: c.kind, Qclass: c.class}); got.action != c.want {
				t.Errorf("%s of type %d and class %d: action %d, want %d", name, c.kind, c.class, got.action, c.want)
			}
		}
	}
}

func TestDomains(t *testing.T) {
	for given, want := range map[string]string{
		"": "cluster.local.", ".": "cluster.local.", "Home.Example": "home.example.", "home.example.": "home.example.",
		"a..b": "cluster.local.", strings.Repeat("a.", 130) + "b": "cluster.local.",
	} {
		if got := domainOf(given); got != want {
			t.Errorf("%q is %q, want %q", given, got, want)
		}
	}
}
