package dns

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func space(name, tenant, home string, after time.Duration, ending bool) *corev1.Namespace {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(begin.Add(after)),
		Labels: map[string]string{v1alpha1.LabelTenant: tenant, v1alpha1.LabelHomeNamespace: home}}}
	if ending {
		n.DeletionTimestamp = &n.CreationTimestamp
	}
	return n
}

func podOf(namespace, name, node string, change func(*corev1.Pod), addresses ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: metav1.NewTime(begin)}, Spec: corev1.PodSpec{NodeName: node}}
	for _, a := range addresses {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: a})
	}
	if change != nil {
		change(p)
	}
	return p
}

func (x *Index) want(t *testing.T, reason, address string, want map[string]string) {
	t.Helper()
	c, ok := x.Client(netip.MustParseAddr(address))
	if diff := cmp.Diff(want, c.Namespaces); diff != "" || ok != (want != nil) {
		t.Errorf("%s: known is %v (-want +got):\n%s", reason, ok, diff)
	}
}

func TestIndex(t *testing.T) {
	x := NewIndex("milan-1")
	shop := map[string]string{"shop": "shop-rome"}
	x.SetPod(podOf("shop-rome", "web", "milan-1", nil, "10.42.0.5", "fd42::5"))
	x.want(t, "a pod without its namespace is nobody's", "10.42.0.5", nil)
	x.SetNamespace(space("shop-rome", "rome", "shop", 0, false))
	x.want(t, "with it, it is the tenant's", "10.42.0.5", shop)
	x.want(t, "by each of its addresses", "fd42::5", shop)
	x.want(t, "also as an IPv6 socket shows it", "::ffff:10.42.0.5", shop)
	x.SetNamespace(space("bank-naples", "naples", "bank", 0, false))
	x.want(t, "another tenant's namespaces are not told", "10.42.0.5", shop)
	before, _ := x.Client(netip.MustParseAddr("10.42.0.5"))
	x.SetNamespace(space("bank-rome", "rome", "bank", 0, false))
	x.want(t, "one more namespace", "10.42.0.5", map[string]string{"shop": "shop-rome", "bank": "bank-rome"})
	if !cmp.Equal(before.Namespaces, shop) {
		t.Error("what was told has changed afterwards")
	}
	x.DeleteNamespace("bank-rome")

	for reason, p := range map[string]*corev1.Pod{
		"on another node":           podOf("shop-rome", "web", "milan-2", nil, "10.42.0.5"),
		"with the node's address":   podOf("shop-rome", "web", "milan-1", func(p *corev1.Pod) { p.Spec.HostNetwork = true }, "10.42.0.5"),
		"that has ended":            podOf("shop-rome", "web", "milan-1", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, "10.42.0.5"),
		"that has failed":           podOf("shop-rome", "web", "milan-1", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, "10.42.0.5"),
		"that has no addresses now": podOf("shop-rome", "web", "milan-1", nil),
		"that says it is a tenant's, in a namespace that is not": podOf("kube-system", "web", "milan-1",
			func(p *corev1.Pod) { p.Labels = map[string]string{v1alpha1.LabelTenant: "rome"} }, "10.42.0.5"),
	} {
		x.DeletePod("kube-system", "web")
		x.SetPod(podOf("shop-rome", "web", "milan-1", nil, "10.42.0.5", "fd42::5"))
		x.want(t, "again", "10.42.0.5", shop)
		if p.Namespace != "shop-rome" {
			x.DeletePod("shop-rome", "web")
		}
		x.SetPod(p)
		x.want(t, "a pod "+reason, "10.42.0.5", nil)
		x.want(t, "a pod "+reason, "fd42::5", nil)
	}
	x.DeletePod("shop-rome", "nobody")
	x.SetNamespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop-rome"}})
	x.DeletePod("kube-system", "web")
	x.DeleteNamespace("bank-naples")
	if len(x.pods)+len(x.addresses)+len(x.namespaces)+len(x.tenants)+len(x.clients) != 0 {
		t.Errorf("something is left: %+v", x)
	}
}

func TestIndexOfOneAddress(t *testing.T) {
	x := NewIndex("milan-1")
	x.SetNamespace(space("shop-rome", "rome", "shop", 0, false))
	x.SetNamespace(space("bank-naples", "naples", "bank", 0, false))
	later := func(p *corev1.Pod) { p.CreationTimestamp.Time = begin.Add(time.Minute) }
	x.SetPod(podOf("bank-naples", "new", "milan-1", later, "10.42.0.5"))
	x.SetPod(podOf("shop-rome", "old", "milan-1", nil, "10.42.0.5"))
	x.want(t, "the address is the younger pod's", "10.42.0.5", map[string]string{"bank": "bank-naples"})
	x.DeletePod("bank-naples", "new")
	x.want(t, "and the other's again", "10.42.0.5", map[string]string{"shop": "shop-rome"})
}

func TestIndexOfOneNamespace(t *testing.T) {
	for _, c := range []struct {
		reason string
		all    []*corev1.Namespace
		want   string
	}{
		{"the one that stays", []*corev1.Namespace{space("a", "rome", "shop", 0, false), space("b", "rome", "shop", time.Hour, true)}, "a"},
		{"the younger one", []*corev1.Namespace{space("a", "rome", "shop", 0, false), space("b", "rome", "shop", time.Hour, false)}, "b"},
		{"the younger one, whatever the names", []*corev1.Namespace{space("a", "rome", "shop", time.Hour, false), space("b", "rome", "shop", 0, false)}, "a"},
		{"the first by name, in the end", []*corev1.Namespace{space("b", "rome", "shop", 0, false), space("a", "rome", "shop", 0, false)}, "a"},
		{"one that ends, if there is no other", []*corev1.Namespace{space("a", "rome", "shop", 0, true)}, "a"},
	} {
		x := NewIndex("milan-1")
		x.SetPod(podOf(c.all[0].Name, "web", "milan-1", nil, "10.42.0.5"))
		for _, n := range c.all {
			x.SetNamespace(n)
		}
		x.want(t, c.reason, "10.42.0.5", map[string]string{"shop": c.want})
	}
}

// TestIndexOfDomains holds that a pod has the domain that it was given, not that of others of its namespace.
func TestIndexOfDomains(t *testing.T) {
	x := NewIndex("milan-1")
	x.SetNamespace(space("shop-rome", "rome", "shop", 0, false))
	said := func(domain string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Annotations = map[string]string{v1alpha1.AnnotationHomeDomain: domain} }
	}
	x.SetPod(podOf("shop-rome", "old", "milan-1", nil, "10.42.0.5"))
	x.SetPod(podOf("shop-rome", "new", "milan-1", said("rome.example"), "10.42.0.6"))
	x.SetPod(podOf("shop-rome", "wrong", "milan-1", said("rome..example"), "10.42.0.7"))
	for address, want := range map[string]string{"10.42.0.5": "", "10.42.0.6": "rome.example", "10.42.0.7": ""} {
		c, ok := x.Client(netip.MustParseAddr(address))
		if !ok || c.Domain != want || c.Namespaces["shop"] != "shop-rome" {
			t.Errorf("%s: %+v, %v", address, c, ok)
		}
	}
}
