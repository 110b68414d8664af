package shadow

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

var nameServer = netip.MustParseAddr("169.254.77.53")

func many(n int, format string) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf(format, i))
	}
	return all
}

// servers are the one, or none.
func servers(one netip.Addr) []netip.Addr {
	if !one.IsValid() {
		return nil
	}
	return []netip.Addr{one}
}

func TestResolve(t *testing.T) {
	homes := []string{"shop.svc.cluster.local", "svc.cluster.local", "cluster.local"}
	option := func(name string, value ...string) corev1.PodDNSConfigOption {
		o := corev1.PodDNSConfigOption{Name: name}
		if len(value) > 0 {
			o.Value = ptr.To(value[0])
		}
		return o
	}
	plain := &corev1.PodDNSConfig{Nameservers: []string{"169.254.77.53"}, Searches: homes, Options: []corev1.PodDNSConfigOption{option("ndots", "5")}}
	long := strings.Repeat("a", 60) + "."
	for _, c := range []struct {
		reason     string
		policy     corev1.DNSPolicy
		own        *corev1.PodDNSConfig
		server     netip.Addr
		want       *corev1.PodDNSConfig
		wantPolicy corev1.DNSPolicy
	}{
		{"the default", "", nil, nameServer, plain, corev1.DNSNone},
		{"the default, said", corev1.DNSClusterFirst, nil, nameServer, plain, corev1.DNSNone},
		{"the same without the host's network", corev1.DNSClusterFirstWithHostNet, nil, nameServer, plain, corev1.DNSNone},
		{"a server of IPv6", "", nil, netip.MustParseAddr("fd77::53"), &corev1.PodDNSConfig{Nameservers: []string{"fd77::53"}, Searches: homes, Options: plain.Options}, corev1.DNSNone},
		{"nobody knows home's names", corev1.DNSClusterFirst, nil, netip.Addr{}, nil, corev1.DNSClusterFirst},
		{"and what the pod wants goes as it is", "", plain, netip.Addr{}, plain, ""},
		{"the node's names", corev1.DNSDefault, nil, nameServer, nil, corev1.DNSDefault},
		{"its own names", corev1.DNSNone, &corev1.PodDNSConfig{Nameservers: []string{"192.0.2.1"}}, nameServer, &corev1.PodDNSConfig{Nameservers: []string{"192.0.2.1"}}, corev1.DNSNone},
		{"something beside home's", "", &corev1.PodDNSConfig{Nameservers: []string{"192.0.2.1", "169.254.77.53"}, Searches: []string{"example.org", "svc.cluster.local"},
			Options: []corev1.PodDNSConfigOption{option("timeout", "1"), option("rotate")}}, nameServer,
			&corev1.PodDNSConfig{Nameservers: []string{"169.254.77.53", "192.0.2.1"}, Searches: append(slices.Clone(homes), "example.org"),
				Options: []corev1.PodDNSConfigOption{option("ndots", "5"), option("timeout", "1"), option("rotate")}}, corev1.DNSNone},
		{"other dots", "", &corev1.PodDNSConfig{Options: []corev1.PodDNSConfigOption{option("edns0"), option("ndots", "1"), option("ndots", "2")}}, nameServer,
			&corev1.PodDNSConfig{Nameservers: plain.Nameservers, Searches: homes, Options: []corev1.PodDNSConfigOption{option("ndots", "2"), option("edns0")}}, corev1.DNSNone},
		{"too many servers and domains", "", &corev1.PodDNSConfig{Nameservers: []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"}, Searches: many(32, "d%d.example.org")}, nameServer,
			&corev1.PodDNSConfig{Nameservers: []string{"169.254.77.53", "192.0.2.1", "192.0.2.2"}, Searches: append(slices.Clone(homes), many(29, "d%d.example.org")...), Options: plain.Options}, corev1.DNSNone},
		{"too long domains", "", &corev1.PodDNSConfig{Searches: many(10, long+long+long+long+"d%d")}, nameServer,
			&corev1.PodDNSConfig{Nameservers: plain.Nameservers, Searches: append(slices.Clone(homes), many(8, long+long+long+long+"d%d")...), Options: plain.Options}, corev1.DNSNone},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{DNSPolicy: c.policy, DNSConfig: c.own.DeepCopy()}}
		Resolve(pod, "shop", v1alpha1.DefaultDomain, servers(c.server)...)
		if diff := cmp.Diff(c.want, pod.Spec.DNSConfig); diff != "" || pod.Spec.DNSPolicy != c.wantPolicy {
			t.Errorf("%s: %q (-want +got):\n%s", c.reason, pod.Spec.DNSPolicy, diff)
		}
	}
}

// TestResolveIsNoChange holds that a pod that has home's names, or was made before there
// were any, is as wanted, and that another change does not bring them up.
func TestResolveIsNoChange(t *testing.T) {
	c := kubetest.Server(t).Client(t)
	ground := Ground{Namespace: kubetest.Server(t).Namespace(t), Tenant: "rome"}
	for i, policy := range []corev1.DNSPolicy{corev1.DNSClusterFirst, corev1.DNSClusterFirstWithHostNet} {
		for _, server := range []netip.Addr{{}, nameServer} {
			home := homePod()
			home.Name = fmt.Sprintf("web-%d-%v", i, server.IsValid())
			home.Spec.DNSPolicy = policy
			home.Spec.DNSConfig = &corev1.PodDNSConfig{Nameservers: many(3, "192.0.2.%d"), Searches: many(32, "d%d.example.org")}
			want, _, err := Make(forged(t, home), ground)
			if err != nil {
				t.Fatal(err)
			}
			made := want.DeepCopy()
			Resolve(made, "shop", v1alpha1.DefaultDomain, servers(server)...)
			now := create(t, c, made)
			if (now.Spec.DNSPolicy == corev1.DNSNone) != server.IsValid() {
				t.Errorf("it has the policy %s", now.Spec.DNSPolicy)
			}
			none(t, now, want)
			home.Spec.Hostname = "other"
			if want, _, err = Make(forged(t, home), ground); err != nil {
				t.Fatal(err)
			}
			got := Compare(now, want).Impossible
			if len(got) != 1 || !strings.HasPrefix(got[0], "spec.hostname") {
				t.Errorf("%s, %s: impossible is %v", policy, server, got)
			}
		}
	}
}

// TestResolvedOtherwise holds that a pod which asks for other names than it did is told so.
func TestResolvedOtherwise(t *testing.T) {
	for _, policy := range []corev1.DNSPolicy{corev1.DNSDefault, corev1.DNSNone} {
		home := homePod()
		now, _, err := Make(forged(t, home), there)
		if err != nil {
			t.Fatal(err)
		}
		Resolve(now, "shop", v1alpha1.DefaultDomain, nameServer)
		home.Spec.DNSPolicy, home.Spec.DNSConfig = policy, &corev1.PodDNSConfig{Nameservers: []string{"192.0.2.1"}}
		want, _, err := Make(forged(t, home), there)
		if err != nil {
			t.Fatal(err)
		}
		if got := Compare(now, want).Impossible; !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "spec.dns") }) {
			t.Errorf("%s: impossible is %v", policy, got)
		}
	}
}

// TestResolveDomain holds that a pod of a home with a domain of its own has names of that, says so, and is
// as wanted with them, the API server's names too.
func TestResolveDomain(t *testing.T) {
	for _, c := range []struct{ domain, said string }{{v1alpha1.DefaultDomain, ""}, {"rome.example", "rome.example"}} {
		home := homePod()
		want, _, err := Make(forged(t, home), there)
		if err != nil {
			t.Fatal(err)
		}
		now := want.DeepCopy()
		Resolve(now, "shop", c.domain, nameServer)
		ReachHome(now, "shop", c.domain, homeAPI)
		if diff := cmp.Diff([]string{"shop.svc." + c.domain, "svc." + c.domain, c.domain}, now.Spec.DNSConfig.Searches); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.domain, diff)
		}
		aliases := now.Spec.HostAliases[len(now.Spec.HostAliases)-1].Hostnames
		if !slices.Contains(aliases, "kubernetes.default.svc."+c.domain) || now.Annotations[v1alpha1.AnnotationHomeDomain] != c.said {
			t.Errorf("%s: %v, %v", c.domain, aliases, now.Annotations)
		}
		if got := Compare(now, want); len(got.Impossible) > 0 || got.Pod {
			t.Errorf("%s: it is to change: %+v", c.domain, got)
		}
	}
}
