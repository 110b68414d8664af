package test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// withoutHome cuts home off both providers, whose pods go on as if nothing had happened, and then heals that.
func (d *direct) withoutHome(t *testing.T) {
	heal := func() {
		for _, provider := range talking {
			d.Run(t, "link", "heal", "rome", provider)
		}
	}
	t.Cleanup(heal)
	for _, provider := range talking {
		d.Run(t, "link", "cut", "rome", provider)
	}
	d.eventually(t, patience, "providers and home do not see each other", func() error {
		for _, provider := range talking {
			p, err := get[v1alpha1.Peering](d.continuum, "rome", "", provider)
			if err != nil {
				return err
			}
			if got := condition(p.Status.Conditions, v1alpha1.ConditionReachable); !strings.HasPrefix(got, "Reachable=False") {
				return errors.New(provider + ": " + got)
			}
			if node, err := d.gateway(provider, v1alpha1.NetworkKey(v1alpha1.TenantNamespace("rome"))); err == nil {
				return fmt.Errorf("the tunnel of %s is alive, says %s", provider, node)
			}
		}
		return nil
	})
	d.reads(t)
	if _, server, err := d.ask("milan", d.caller, d.address["milan"], webPort); err != nil || server != "data" {
		t.Errorf("without home a new connection of caller's ends with %q, %v", server, err)
	}
	t.Logf("direct: without home a round trip takes %s", d.roundTrip(t))
	d.silence(t, "cutting home off")
	heal()
	for _, provider := range talking {
		d.nodeReady(t, "rome", provider)
		d.eventually(t, patience, "the tunnel of "+provider+" is alive", func() error {
			_, err := d.gateway(provider, v1alpha1.NetworkKey(v1alpha1.TenantNamespace("rome")))
			return err
		})
	}
	d.made(t)
	d.moves(t, "milan", "oslo")
	d.silence(t, "home coming back")
}

// withoutPath cuts the path, whose packets go by home until it has come back.
func (d *direct) withoutPath(t *testing.T) {
	heal := func() { d.Run(t, "link", "heal", "milan", "oslo") }
	t.Cleanup(heal)
	d.reads(t)
	d.silence(t, "using the path")
	d.Run(t, "link", "cut", "milan", "oslo")
	d.moves(t, "milan", "rome")
	d.silence(t, "cutting the path")
	heal()
	begin := time.Now()
	t.Logf("direct: the stream went by the path %s after its link was healed", d.moves(t, "milan", "oslo").Sub(begin).Round(100*time.Millisecond))
	d.silence(t, "the path coming back")
	d.made(t)
}

// strangers holds that nobody takes the path who may not go by home.
func (d *direct) strangers(t *testing.T) {
	there := d.continuum.shop(t, "milan")
	node := slices.DeleteFunc(d.nodes(t, "milan"), func(name string) bool { return name == d.busy })[0]
	there.create(t, whoPod("", "stranger", node))
	stranger := there.running(t, "stranger")
	d.misses(t, "milan", stranger, d.address["milan"])
	d.misses(t, "oslo", d.data, seen(t, d.views(t, "milan", "oslo"), stranger.Status.PodIP))
}

// policy holds that NetworkPolicies of home's are in force on the path, and only as long as they are.
func (d *direct) policy(t *testing.T) {
	calls := func() error {
		_, _, err := d.ask("milan", d.caller, d.address["milan"], webPort)
		return err
	}
	d.create(t, policyOf("reader-alone", networkingv1.NetworkPolicySpec{PodSelector: labelled("data"),
		Ingress: []networkingv1.NetworkPolicyIngressRule{{From: peersOf("reader")}}}))
	d.eventually(t, networkLimit, "caller does not reach data, as a policy says", func() error {
		if calls() == nil {
			return errors.New("it does")
		}
		return nil
	})
	d.moves(t, "milan", "oslo")
	if out, err := d.kubectl(t, "delete", "networkpolicy", "reader-alone"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	d.eventually(t, networkLimit, "caller reaches data without the policy", calls)
	d.moves(t, "milan", "oslo")
	d.silence(t, "a policy came and went")
}

// views is how pods at one provider are seen at the other one: by rome's view of them.
func (d *direct) views(t *testing.T, of, at string) (all []v1alpha1.NetworkView) {
	t.Helper()
	theirs, err := get[v1alpha1.NetworkConfig](d.continuum, "rome", v1alpha1.PeeringNamespace(of), v1alpha1.NetworkProvider)
	if err != nil {
		t.Fatal(err)
	}
	ours, err := get[v1alpha1.NetworkConfig](d.continuum, "rome", v1alpha1.PeeringNamespace(at), v1alpha1.NetworkConsumer)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range theirs.Status.Views {
		for _, w := range ours.Status.Views {
			if w.Real == v.View {
				v.View = w.View
			}
		}
		all = append(all, v)
	}
	return all
}

// identity is which objects the path is.
func (d *direct) identity(t *testing.T) (all string) {
	t.Helper()
	paths := d.paths(t)
	for _, name := range slices.Sorted(maps.Keys(paths)) {
		all += fmt.Sprintf("%s %s;", name, paths[name].UID)
	}
	return all
}

// faults hurts what a path needs: the stream goes on after a moment, and by the path again.
func (d *direct) faults(t *testing.T) {
	managers := func(cluster string) {
		d.Run(t, "kubectl", cluster, "--", "delete", "pods", "-n", v1alpha1.SystemNamespace, "-l", "app.kubernetes.io/name=pelago-manager", "--now")
		d.Run(t, "kubectl", cluster, "--", "rollout", "status", "-n", v1alpha1.SystemNamespace, "deployment/pelago-manager", "--timeout=3m")
	}
	for _, f := range []fault{
		{name: "milan's data plane killed", strike: func(t *testing.T) { d.killWork(t, "milan", d.gatewayOf(t, "milan")) }},
		{name: "oslo's data plane killed", strike: func(t *testing.T) { d.killWork(t, "oslo", d.gatewayOf(t, "oslo")) }},
		{name: "milan's table deleted", strike: func(t *testing.T) {
			d.Run(t, "run", "milan", "--node", d.gatewayOf(t, "milan"), "--", "nft", "delete", "table", "inet", "pelago")
		}},
		{name: "oslo's agent deleted", strike: func(t *testing.T) { d.deleteAgent(t, "oslo", d.gatewayOf(t, "oslo")) }},
		{name: "rome's managers deleted", limit: outageLimit, strike: func(*testing.T) { managers("rome") }},
		{name: "milan's managers deleted", limit: outageLimit, strike: func(*testing.T) { managers("milan") }},
		{name: "milan's gateway node stopped", strike: func(t *testing.T) {
			d.Run(t, "node", "stop", "milan", d.busy)
			t.Cleanup(func() { d.Run(t, "node", "start", "milan", d.busy) })
			d.eventually(t, healLimit, "milan's gateway is elsewhere", func() error {
				now, err := d.gateway("milan", v1alpha1.NetworkKey(v1alpha1.TenantNamespace("rome")))
				if err == nil && now == d.busy {
					err = errors.New("it is not")
				}
				return err
			})
		}},
	} {
		t.Run(f.name, func(t *testing.T) {
			before := d.identity(t)
			d.silence(t, "nothing was wrong")
			f.strike(t)
			d.moves(t, "milan", "oslo")
			if most := d.silence(t, f.name); f.limit > 0 && most > f.limit {
				t.Errorf("the stream was silent for %s, want %s at most", most, f.limit)
			}
			d.made(t)
			if now := d.identity(t); now != before {
				t.Errorf("there is another path: %s, and before %s", now, before)
			}
		})
	}
	d.moves(t, "milan", "oslo")
	d.silence(t, "milan's gateway node came back")
	d.made(t)
}
