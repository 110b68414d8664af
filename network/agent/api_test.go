package agent

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/plan"
)

// apiSlice is one of the Service kubernetes.
func apiSlice(port int32, addrs ...string) discoveryv1.EndpointSlice {
	s := sliceOf(labelled("default", "kubernetes", discoveryv1.LabelServiceName, "kubernetes"), "", addrs...)
	s.Ports = []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: ptr.To(port)}}
	return s
}

func tokens(namespace string, policy v1alpha1.TokenPolicy) v1alpha1.NamespaceOffloading {
	return v1alpha1.NamespaceOffloading{ObjectMeta: labelled(namespace, "offloading"), Spec: v1alpha1.NamespaceOffloadingSpec{ServiceAccountTokens: policy}}
}

// apiFacts are those of a cluster that gives its API server to milan's pods of shop, and whose
// tenant gives its own.
func apiFacts() facts {
	f := someFacts()
	f.configs[0].Spec.APIServer = "10.43.0.2:443"
	f.api = []discoveryv1.EndpointSlice{apiSlice(6443, "192.168.0.9", "192.168.0.8")}
	f.offloaded = []v1alpha1.NamespaceOffloading{tokens("shop", v1alpha1.TokensAllow), tokens("bank", v1alpha1.TokensDeny)}
	f.away["milan"] = append(f.away["milan"], podAt(labelled("bank", "web"), "milan", "10.81.3.5"))
	turin := &f.configs[3]
	turin.Spec.External, turin.Spec.APIServer = []string{"10.51.0.0/24"}, "10.51.0.2:443"
	turin.Status.Views = append(turin.Status.Views, v1alpha1.NetworkView{Real: "10.51.0.0/24", View: "10.82.0.0/24"})
	return f
}

func TestInputAPI(t *testing.T) {
	const to = "192.168.0.8:6443"
	reached := []string{"10.50.1.1", "10.51.0.2"}
	for _, c := range []struct {
		reason  string
		facts   func(*facts)
		to      string // "" is no door
		from    []string
		there   []string // at turin
		problem string
	}{
		{reason: "pods of namespaces that allow it, and no others", to: to, from: []string{"10.42.3.4"}, there: reached},
		{reason: "none allows it any more", facts: func(f *facts) { f.offloaded[0].Spec.ServiceAccountTokens = v1alpha1.TokensDeny }, to: to, there: reached},
		{reason: "none says anything", facts: func(f *facts) { f.offloaded = []v1alpha1.NamespaceOffloading{tokens("shop", "")} }, to: to, there: reached},
		{reason: "something that is not the namespace's", facts: func(f *facts) { f.offloaded[0].Name = "other" }, to: to, there: reached},
		{reason: "a pod that has ended", facts: func(f *facts) { f.away["milan"][0].Status.Phase = corev1.PodFailed }, to: to, there: reached},
		{reason: "a pod that is seen by nothing of milan's", facts: func(f *facts) { f.away["milan"][0].Status.PodIPs[0].IP = "10.42.1.5" }, to: to, there: reached},
		{reason: "a pod at another provider", facts: func(f *facts) {
			f.away["genoa"] = []corev1.Pod{podAt(labelled("shop", "x"), "genoa", "10.81.3.9")}
		}, to: to, from: []string{"10.42.3.4"}, there: reached},
		// What it leads to.
		{reason: "nothing is published", facts: func(f *facts) { f.configs[0].Spec.APIServer = "" }, there: reached},
		{reason: "what is published is no address", facts: func(f *facts) { f.configs[0].Spec.APIServer = "x:443" }, there: reached, problem: "is no HOST:PORT"},
		{reason: "the first server is not ready", facts: func(f *facts) { f.api[0].Endpoints[1].Conditions.Ready = ptr.To(false) }, to: "192.168.0.9:6443", from: []string{"10.42.3.4"}, there: reached},
		{reason: "another slice has the first server", facts: func(f *facts) { f.api = append(f.api, apiSlice(443, "192.168.0.7")) }, to: "192.168.0.7:443", from: []string{"10.42.3.4"}, there: reached},
		{reason: "no server is ready", facts: func(f *facts) {
			for i := range f.api[0].Endpoints {
				f.api[0].Endpoints[i].Conditions.Ready = ptr.To(false)
			}
		}, there: reached, problem: "has no ready endpoint"},
		{reason: "nothing that leads anywhere", facts: func(f *facts) {
			six, names, none, other := apiSlice(6443, "fd00::1"), apiSlice(6443, "x"), apiSlice(0, "192.168.0.1"), apiSlice(6443, "192.168.0.1")
			six.AddressType, names.AddressType, other.Ports[0].Name = discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeFQDN, ptr.To("metrics")
			f.api = []discoveryv1.EndpointSlice{six, names, none, other, apiSlice(6443, "x", "::ffff:192.168.0.1"), {AddressType: discoveryv1.AddressTypeIPv4, Endpoints: make([]discoveryv1.Endpoint, 1)}}
		}, there: reached, problem: "has no ready endpoint"},
		// What a tenant says of his.
		{reason: "a tenant without one", facts: func(f *facts) { f.configs[3].Spec.APIServer = "" }, to: to, from: []string{"10.42.3.4"}, there: reached[:1]},
		{reason: "one of the tenant's pods", facts: func(f *facts) { f.configs[3].Spec.APIServer = "10.50.1.2:443" }, to: to, from: []string{"10.42.3.4"}, there: reached[:1], problem: "no HOST:PORT in its external range"},
		{reason: "something of this cluster", facts: func(f *facts) { f.configs[3].Spec.APIServer = "192.168.0.1:6443" }, to: to, from: []string{"10.42.3.4"}, there: reached[:1], problem: "no HOST:PORT in its external range"},
		{reason: "external addresses without a view", facts: func(f *facts) { f.configs[3].Status.Views = f.configs[3].Status.Views[:1] }, to: to, from: []string{"10.42.3.4"}, there: reached[:1], problem: "no HOST:PORT in its external range"},
		{reason: "all addresses there are", facts: func(f *facts) {
			f.configs[3].Spec.External, f.configs[3].Spec.APIServer = []string{"0.0.0.0/0"}, "192.168.0.1:443"
		}, to: to, from: []string{"10.42.3.4"}, there: reached[:1], problem: "no HOST:PORT in its external range"},
		{reason: "a book", facts: func(f *facts) { f.configs[3].Spec.APIServer = strings.Repeat("x", 5000) }, to: to, from: []string{"10.42.3.4"}, there: reached[:1], problem: "no HOST:PORT in its external range"},
		{reason: "a provider that says one", facts: func(f *facts) {
			f.configs[1].Spec.External, f.configs[1].Spec.APIServer = []string{"10.42.0.0/16"}, "10.42.9.9:443"
		}, to: to, from: []string{"10.42.3.4"}, there: reached},
	} {
		f := apiFacts()
		if c.facts != nil {
			c.facts(&f)
		}
		k := input(f)
		milan, turin := k.input.Peerings[0], k.input.Peerings[1]
		var want []dataplane.Door
		if c.to != "" {
			want = []dataplane.Door{{At: netip.MustParseAddrPort("10.43.0.2:443"), To: netip.MustParseAddrPort(c.to), From: addrs(c.from...)}}
		}
		if d := cmp.Diff(want, milan.Doors, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})); d != "" || len(turin.Doors) != 0 {
			t.Errorf("%s: %d doors for turin; for milan (-want +got):\n%s", c.reason, len(turin.Doors), d)
		}
		if !slices.Equal(turin.There, addrs(c.there...)) || slices.Contains(milan.There, addrs("10.42.9.9")[0]) {
			t.Errorf("%s: of turin %v may be reached, of milan %v", c.reason, turin.There, milan.There)
		}
		for _, p := range k.problems {
			if c.problem == "" || !strings.Contains(p.Text, c.problem) || len(p.Text) > 300 {
				t.Errorf("%s: problem %s", c.reason, p)
			}
		}
		if c.problem != "" && len(k.problems) != 1 {
			t.Errorf("%s: %d problems", c.reason, len(k.problems))
		}
		// The plan takes it as it is.
		p := plan.Compute(k.input)
		at := slices.IndexFunc(p.Config.Gateways, func(g dataplane.Gateway) bool { return g.Peering == "peering-milan" })
		if err := p.Config.Check(); err != nil || at < 0 || len(p.Config.Gateways[at].Doors) != len(want) {
			t.Errorf("%s: the plan has other doors: %+v, %v", c.reason, p.Config.Gateways, err)
		}
	}
}

// TestInputAPI6 holds that what is published of IPv6 leads to an API server of IPv6, for the pods
// that have an address of it.
func TestInputAPI6(t *testing.T) {
	f := apiFacts()
	f.configs[0].Spec.External, f.configs[0].Spec.APIServer = append(f.configs[0].Spec.External, "fd78::/120"), "[fd78::2]:443"
	if k := input(f); len(k.input.Peerings[0].Doors) != 0 || len(k.problems) != 1 || !strings.Contains(k.problems[0].Text, "no ready endpoint of IPv6") {
		t.Errorf("without an API server of IPv6: %+v, %v", k.input.Peerings[0].Doors, k.problems)
	}
	six := apiSlice(6443, "fd00::9", "fd00::8")
	six.AddressType = discoveryv1.AddressTypeIPv6
	f.api = append(f.api, six)
	f.configs[1].Spec.Pods = append(f.configs[1].Spec.Pods, "fd42::/56")
	f.configs[1].Status.Views = append(f.configs[1].Status.Views, v1alpha1.NetworkView{Real: "fd42::/56", View: "fd81::/56"})
	pod := &f.away["milan"][0]
	pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: "fd81::5"})
	k := input(f)
	want := []dataplane.Door{{At: netip.MustParseAddrPort("[fd78::2]:443"), To: netip.MustParseAddrPort("[fd00::8]:6443"), From: addrs("10.42.3.4", "fd42::5")}}
	if d := cmp.Diff(want, k.input.Peerings[0].Doors, cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})); d != "" || len(k.problems) != 0 {
		t.Errorf("problems %v (-want +got):\n%s", k.problems, d)
	}
}

// TestSubjectsAPI holds that the API server is followed where it is published to a provider.
func TestSubjectsAPI(t *testing.T) {
	f := apiFacts()
	want := map[subject]bool{{node: "milan"}: true, {namespace: "shop"}: true, {namespace: "default", service: "kubernetes"}: true}
	if d := cmp.Diff(want, f.subjects(), cmp.AllowUnexported(subject{})); d != "" {
		t.Error(d)
	}
	f.configs[0].Spec.APIServer = ""
	if f.subjects()[apiSubject] {
		t.Error("the API server is followed for nobody")
	}
}

// TestTrimAPI holds that what doors are made of is left, and no more of other Services.
func TestTrimAPI(t *testing.T) {
	partly := func() facts {
		f := apiFacts()
		f.api[0].Endpoints[1].Conditions.Ready = ptr.To(false)
		return f
	}
	f, want := partly(), input(partly())
	for i := range f.configs {
		f.configs[i] = *trimmed(t, &f.configs[i])
	}
	for i := range f.api {
		f.api[i] = *trimmed(t, &f.api[i])
	}
	for i := range f.offloaded {
		f.offloaded[i].Spec.Reflection = make([]v1alpha1.ReflectionRule, 3)
		f.offloaded[i] = *trimmed(t, &f.offloaded[i])
		if f.offloaded[i].Spec.Reflection != nil {
			t.Errorf("of a NamespaceOffloading is left %+v", f.offloaded[i].Spec)
		}
	}
	if d := cmp.Diff(want.input, input(f).input, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}, netip.AddrPort{})); d != "" {
		t.Error(d)
	}
	for _, meta := range []metav1.ObjectMeta{
		labelled("shop", "kubernetes", discoveryv1.LabelServiceName, "kubernetes"), labelled("default", "x", discoveryv1.LabelServiceName, "x"),
	} {
		s := apiSlice(6443, "10.42.1.1")
		s.ObjectMeta, s.Endpoints[0].Conditions.Ready = meta, ptr.To(true)
		if got := trimmed(t, &s); got.Ports != nil || got.Endpoints[0].Conditions.Ready != nil {
			t.Errorf("of %s/%s is left %+v", meta.Namespace, meta.Name, got)
		}
	}
}

func TestSameAPI(t *testing.T) {
	f := apiFacts()
	for _, c := range []struct {
		reason string
		of     client.Object
		change func(client.Object)
		want   bool
	}{
		{"a namespace", &f.offloaded[0], func(client.Object) {}, true},
		{"whether it allows tokens", &f.offloaded[0], func(o client.Object) {
			o.(*v1alpha1.NamespaceOffloading).Spec.ServiceAccountTokens = v1alpha1.TokensDeny
		}, false},
		{"a server", &f.api[0], func(client.Object) {}, true},
		{"a server's port", &f.api[0], func(o client.Object) { o.(*discoveryv1.EndpointSlice).Ports = nil }, false},
		{"whether a server is ready", &f.api[0], func(o client.Object) { o.(*discoveryv1.EndpointSlice).Endpoints[0].Conditions.Ready = ptr.To(false) }, false},
	} {
		other := c.of.DeepCopyObject().(client.Object)
		c.change(other)
		if got := same(c.of, other); got != c.want {
			t.Errorf("%s: the same is %t", c.reason, got)
		}
	}
}
