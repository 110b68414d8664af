package shadow

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// onward is a cluster that a pod goes to: its name servers, and what it calls the namespace.
type onward struct {
	servers   []netip.Addr
	names     string // the namespace in which the pod was made
	domain    string // of the cluster where it was made
	namespace string
	tenant    string
	tokens    bool
}

// made is a pod as a cluster makes it of one that another cluster has.
func (o onward) made(t *testing.T, of *corev1.Pod) (*corev1.Pod, error) {
	t.Helper()
	s, _, err := Forge(of, Place{Node: "virtual", Request: "default", Address: "10.0.0.9", Tokens: o.tokens})
	if err != nil {
		return nil, err
	}
	pod, _, err := Make(s, Ground{Namespace: o.namespace, Tenant: o.tenant})
	if err != nil {
		t.Fatal(err)
	}
	Resolve(pod, o.names, v1alpha1.DomainOf(o.domain), o.servers...)
	pod.UID = "0a1b2c3d-0000-4000-8000-0000000000ff"
	return pod, nil
}

// TestOnwardNames holds that a pod that went on finds names as if it had come straight from where
// it was made, whatever name servers both clusters have, and that what it says itself stays.
func TestOnwardNames(t *testing.T) {
	four, six := netip.MustParseAddr("169.254.77.53"), netip.MustParseAddr("fd46:c73d:1b8d::53")
	all := map[string][]netip.Addr{"none": nil, "IPv4": {four}, "IPv6": {six}, "both": {four, six}}
	config := func(servers, searches, dots string) *corev1.PodDNSConfig {
		c := &corev1.PodDNSConfig{Nameservers: strings.Fields(servers), Searches: strings.Fields(searches)}
		if dots != "" {
			c.Options = []corev1.PodDNSConfigOption{{Name: "ndots", Value: ptr.To(dots)}, {Name: "edns0"}}
		}
		return c
	}
	const homes = "shop.svc.cluster.local svc.cluster.local cluster.local"
	for _, c := range []struct {
		reason string
		policy corev1.DNSPolicy
		own    *corev1.PodDNSConfig
	}{
		{"the default", corev1.DNSClusterFirst, nil},
		{"the same without the host's network", corev1.DNSClusterFirstWithHostNet, nil},
		{"something beside", corev1.DNSClusterFirst, config("192.0.2.1", "example.org", "2")},
		{"another namespace that is looked through", corev1.DNSClusterFirst, config("", "bank.svc.cluster.local", "")},
		{"the node's names", corev1.DNSDefault, nil},
		{"the node's names, and more", corev1.DNSDefault, config("192.0.2.1", "example.org", "5")},
		{"its own names", corev1.DNSNone, config("192.0.2.1", homes, "5")},
		{"its own names, by our server", corev1.DNSNone, config("169.254.77.53", homes, "5")},
	} {
		for between, first := range all {
			for there, second := range all {
				domain := []string{"", "milan.example"}[len(first)%2]
				home := homePod()
				home.Spec.DNSPolicy, home.Spec.DNSConfig = c.policy, c.own
				rome := onward{servers: first, names: "shop", namespace: "shop-milan", tenant: "milan", domain: domain}
				oslo := onward{servers: second, names: "shop", namespace: "shop-milan-rome", tenant: "rome", domain: domain}
				pod, err := rome.made(t, home)
				if err != nil {
					t.Fatal(err)
				}
				got, err := oslo.made(t, pod)
				if err != nil {
					t.Fatal(err)
				}
				want, err := oslo.made(t, home)
				if err != nil {
					t.Fatal(err)
				}
				for _, p := range []*corev1.Pod{got, want} {
					if clusterNames(p.Spec.DNSPolicy) { // the same, without name servers
						p.Spec.DNSPolicy = ""
					}
				}
				if d := cmp.Diff(want.Spec.DNSConfig, got.Spec.DNSConfig); d != "" || got.Spec.DNSPolicy != want.Spec.DNSPolicy {
					t.Errorf("%s, %s and then %s: %q, want %q (-want +got):\n%s", c.reason, between, there, got.Spec.DNSPolicy, want.Spec.DNSPolicy, d)
				}
				if got.Annotations[v1alpha1.AnnotationNameServers] != want.Annotations[v1alpha1.AnnotationNameServers] {
					t.Errorf("%s, %s and then %s: it says %q", c.reason, between, there, got.Annotations[v1alpha1.AnnotationNameServers])
				}
				if got.Annotations[v1alpha1.AnnotationHomeDomain] != want.Annotations[v1alpha1.AnnotationHomeDomain] {
					t.Errorf("%s, %s and then %s: its domain is %q", c.reason, between, there, got.Annotations[v1alpha1.AnnotationHomeDomain])
				}
			}
		}
	}
}

// TestOnwardHost holds that what a pod says of its own name goes with it, and that what follows its
// life by the first cluster's word sees nothing to change.
func TestOnwardHost(t *testing.T) {
	home := homePod()
	home.Spec.Hostname, home.Spec.Subdomain, home.Spec.SetHostnameAsFQDN, home.Spec.EnableServiceLinks = "web-0", "web", ptr.To(true), ptr.To(false)
	home.Spec.HostAliases = []corev1.HostAlias{{IP: "192.0.2.1", Hostnames: []string{"db", "kubernetes.default"}}}
	rome := onward{servers: []netip.Addr{nameServer}, names: "shop", namespace: "shop-milan", tenant: "milan"}
	oslo := onward{servers: []netip.Addr{nameServer}, names: "shop", namespace: "shop-milan-rome", tenant: "rome"}
	pod, err := rome.made(t, home)
	if err != nil {
		t.Fatal(err)
	}
	got, err := oslo.made(t, pod)
	if err != nil {
		t.Fatal(err)
	}
	s := got.Spec
	if s.Hostname != "web-0" || s.Subdomain != "web" || !ptr.Deref(s.SetHostnameAsFQDN, false) || ptr.Deref(s.EnableServiceLinks, true) || !cmp.Equal(s.HostAliases, home.Spec.HostAliases) {
		t.Errorf("it is %s", text(t, s))
	}
	again, _, err := Forge(pod, Place{Node: "virtual", Request: "default", Address: "10.0.0.9"})
	if err != nil {
		t.Fatal(err)
	}
	want, _, err := Make(again, Ground{Namespace: oslo.namespace, Tenant: oslo.tenant})
	if err != nil {
		t.Fatal(err)
	}
	none(t, got, want)
}

// TestOnwardTokens holds that no token goes further than the first provider, whatever that one's
// namespace allows, and that nothing of the provider between comes in its place.
func TestOnwardTokens(t *testing.T) {
	rome := onward{servers: []netip.Addr{nameServer}, names: "shop", namespace: "shop-milan", tenant: "milan", tokens: true}
	pod, err := rome.made(t, withTokens())
	if err != nil {
		t.Fatal(err)
	}
	ReachHome(pod, "shop", v1alpha1.DefaultDomain, homeAPI)
	for _, tokens := range []bool{false, true} {
		oslo := onward{names: "shop", namespace: "shop-milan-rome", tenant: "rome", tokens: tokens}
		if _, err := oslo.made(t, pod); err == nil || !strings.Contains(err.Error(), "tokens of the cluster where the pod was made go no further than here") {
			t.Errorf("tokens are allowed at rome: %v: %v", tokens, err)
		}
		rome.tokens = false
		without, err := rome.made(t, homePod())
		if err != nil {
			t.Fatal(err)
		}
		without.Spec.ServiceAccountName = "default" // as an API server writes it
		s, _, err := Forge(without, Place{Node: "virtual", Request: "default", Tokens: tokens})
		if err != nil {
			t.Fatal(err)
		}
		last, err := oslo.made(t, without)
		if err != nil {
			t.Fatal(err)
		}
		if HasTokens(s) || len(Tokens(&last.Spec)) > 0 || ptr.Deref(last.Spec.AutomountServiceAccountToken, true) || last.Spec.ServiceAccountName != "default" {
			t.Errorf("tokens are allowed at rome: %v: it has some: %s", tokens, text(t, last.Spec))
		}
		for _, container := range last.Spec.Containers {
			if slices.ContainsFunc(container.Env, func(e corev1.EnvVar) bool { return strings.HasPrefix(e.Name, "KUBERNETES_") }) {
				t.Errorf("%s is told of an API server: %s", container.Name, text(t, container.Env))
			}
		}
	}
}
