package test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/reach"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

const transitFile = `clusters:
- name: rome
  nodes: 2
  addons: [coredns]
- name: milan
  nodes: 1
  addons: [coredns]
- name: oslo
  nodes: 1
  addons: [coredns]
`

// TestTransit has pods of one namespace of rome's, at two providers with the same addresses, reach
// each other through rome.
func TestTransit(t *testing.T) { inBoth(t, transitFile, transitHolds) }

func transitHolds(t *testing.T, file string) {
	s := kubetest.Sandbox(t, kubetest.Options{Name: "transit", File: sandboxFile(t, file), Pelago: true})
	c := newContinuum(t, s, "rome", "milan", "oslo")
	box(t, s, "rome", "milan", "oslo")
	for _, provider := range []string{"milan", "oslo"} {
		c.peer(t, "rome", provider)
		c.nodeReady(t, "rome", provider)
	}
	t.Run("TestNetwork", func(t *testing.T) {
		if r := c.TryPelago(t, "rome", "test", "network", "--settle", "90s"); r.Code != 0 {
			t.Errorf("not all ways are good: exit %d\n%s%s", r.Code, r.Out, r.Errs)
		}
	})
	t.Run("Broken", func(t *testing.T) { transitBroken(t, c) })
	t.Run("Pods", func(t *testing.T) { transit(t, c) })
}

// transitBroken has a firewall of milan's stop calls to addresses of oslo's pods, which "pelago test network"
// tells from all other ways.
func transitBroken(t *testing.T, c *continuum) {
	view := "" // by which milan sees what rome sees oslo's pods by
	theirs, err := get[v1alpha1.NetworkConfig](c, "rome", v1alpha1.PeeringNamespace("oslo"), v1alpha1.NetworkProvider)
	if err != nil {
		t.Fatal(err)
	}
	ours, err := get[v1alpha1.NetworkConfig](c, "rome", v1alpha1.PeeringNamespace("milan"), v1alpha1.NetworkConsumer)
	if err != nil {
		t.Fatal(err)
	}
	for _, far := range theirs.Status.Views {
		for _, near := range ours.Status.Views {
			if far.Real == theirs.Spec.Pods[0] && near.Real == far.View {
				view = near.View
			}
		}
	}
	prefix, err := netip.ParsePrefix(view)
	if err != nil {
		t.Fatalf("milan has no view of oslo's pods: oslo's %v, rome's at milan %v", theirs.Status.Views, ours.Status.Views)
	}
	family := "ip"
	if prefix.Addr().Is6() {
		family = "ip6"
	}
	const table = "damage"
	on := func(words ...string) {
		c.Run(t, append([]string{"run", "milan", "--node", "milan-1", "--", "nft"}, words...)...)
	}
	on("add", "table", "inet", table)
	t.Cleanup(func() { on("delete", "table", "inet", table) })
	on(fmt.Sprintf("add chain inet %s calls { type filter hook prerouting priority -350; }", table))
	on(fmt.Sprintf(`add rule inet %s calls iifname != "pelago*" %s daddr %s tcp dport %d drop`, table, family, prefix, reach.Port))
	broken := 0
	for _, way := range c.testWays(t, 1, "--settle", "12s") {
		if way.Untried != "" {
			continue
		}
		hit := way.From == "milan" && way.To == "oslo" && (way.By == "pod address" || way.By == "pod name")
		if hit {
			broken++
		}
		if way.OK == hit || hit && !strings.Contains(way.Why, "no answer") {
			t.Errorf("from %s to %s by %s (%s): good is %t, %q", way.From, way.To, way.By, way.Host, way.OK, way.Why)
		}
	}
	if broken != 2 {
		t.Errorf("%d ways lead from milan to oslo by addresses of pods, want 2", broken)
	}
}

// transit has a pod at milan call one at oslo, by name and address, and nobody else of milan's.
func transit(t *testing.T, c *continuum) {
	x := &crossing{shop: c.offloaded(t, "rome")}
	for _, name := range []string{"caller", "data"} {
		x.create(t, whoService(name, name, nil))
	}
	x.create(t, whoPod("", "caller", "milan"))
	x.create(t, whoPod("", "data", "oslo"))
	there := c.shop(t, "milan")
	there.create(t, whoPod("", "stranger", "milan-1"))
	x.running(t, "caller")
	x.running(t, "data")
	x.stranger = there.running(t, "stranger")
	var caller, data *corev1.Pod
	views := map[string][]v1alpha1.NetworkView{} // by which addresses providers see what rome publishes
	x.eventually(t, 2*networkLimit, "both pods have addresses, and each provider sees the other one's pods", func() (err error) {
		for name, pod := range map[string]**corev1.Pod{"caller": &caller, "data": &data} {
			if *pod, err = get[corev1.Pod](c, "rome", x.name, name); err != nil {
				return err
			}
			if (*pod).Status.PodIP == "" {
				return fmt.Errorf("%s has no address", name)
			}
		}
		for provider, of := range map[string]*corev1.Pod{"milan": data, "oslo": caller} {
			n, err := get[v1alpha1.NetworkConfig](c, "rome", v1alpha1.PeeringNamespace(provider), v1alpha1.NetworkConsumer)
			if err != nil {
				return err
			}
			views[provider] = n.Status.Views
			if !covers(n.Status.Views, of.Status.PodIP) {
				return fmt.Errorf("%s has no view of %s, it has %v of %v", provider, of.Status.PodIP, n.Status.Views, n.Spec.Pods)
			}
		}
		return nil
	})
	as := seen(t, views["oslo"], caller.Status.PodIP)
	for _, host := range []string{"data", "data." + x.name + ".svc.cluster.local"} {
		x.eventually(t, 3*networkLimit, "caller reaches data by "+host, func() error { // an address that is new is noticed within a minute
			_, _, err := x.ask("rome", caller, host, 80)
			return err
		})
		x.reaches(t, caller, host, 80, as, "data")
	}
	address := seen(t, views["milan"], data.Status.PodIP)
	x.reaches(t, caller, address, webPort, as, "data")
	x.misses(t, "milan", x.stranger, address)
	x.reaches(t, data, "caller", 80, seen(t, views["milan"], data.Status.PodIP), "caller")
	explained(t, x)
}

// explained has "pelago explain connection" find the way from caller to data good, and where it breaks when a policy
// of home's forbids it, and when the link to oslo is cut.
func explained(t *testing.T, x *crossing) {
	t.Helper()
	says := func(words ...string) {
		t.Helper()
		x.eventually(t, 2*networkLimit, fmt.Sprintf("explain connection says %q", words), func() error {
			r := x.TryPelago(t, "rome", "explain", "connection", "caller", "data", "-n", x.name)
			text := strings.Join(strings.Fields(r.Out), " ")
			for _, word := range words {
				if !strings.Contains(text, word) {
					return fmt.Errorf("exit %d\n%s%s", r.Code, r.Out, r.Errs)
				}
			}
			return nil
		})
	}
	says("All is well.")
	quiet := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "quiet"}, Spec: networkingv1.NetworkPolicySpec{
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}}}
	x.create(t, quiet)
	says("It stops where", "NetworkPolicy quiet in namespace "+x.name+" does not let caller begin it")
	if err := x.Clients["rome"].Delete(t.Context(), quiet); err != nil {
		t.Fatal(err)
	}
	says("All is well.")
	t.Cleanup(func() { x.Run(t, "link", "heal", "rome", "oslo") })
	x.Run(t, "link", "cut", "rome", "oslo")
	says(`It stops where "the tunnel to oslo carries packets" is not so`)
	x.Run(t, "link", "heal", "rome", "oslo")
	says("All is well.")
}

// covers says whether an address is in a range that has a view.
func covers(views []v1alpha1.NetworkView, address string) bool {
	a, err := netip.ParseAddr(address)
	if err != nil {
		return false
	}
	_, ok := v1alpha1.ViewOf(views, a)
	return ok
}
