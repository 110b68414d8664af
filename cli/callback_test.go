package cli

import (
	"context"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// introductions plays pelago-manager: each Peering in band gets a tunnel that is called at these endpoints.
func (s *stage) introductions(endpoints ...string) (stop func()) {
	return s.play(func(ctx context.Context) {
		var peerings v1alpha1.PeeringList
		if s.c.List(ctx, &peerings) != nil {
			return
		}
		for i := range peerings.Items {
			p := &peerings.Items[i]
			if p.Spec.Consume == nil || p.Spec.Consume.InBand == nil {
				continue
			}
			c := &v1alpha1.NetworkConfig{
				ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NetworkNamespace, Name: v1alpha1.IntroductionPrefix + p.Name},
				Spec:       v1alpha1.NetworkConfigSpec{PublicKey: publicKey, Endpoints: endpoints, Port: 7100, InBand: &v1alpha1.NetworkInBand{Address: "10.255.255.254"}},
			}
			_ = s.c.Create(ctx, c)
		}
	})
}

// TestCallBack holds that a provider is told where it may call the consumer: by the program if that has
// its kubeconfig, else by people, who are told what to do once nothing has been heard of it for a while.
func TestCallBack(t *testing.T) {
	rome, milan := newStage(t, 0), newStage(t, 1)
	rome.install("rome", id2)
	milan.install("milan", id1)
	rome.network()
	milan.network()
	called := func() []string {
		if i := milan.onlyInvitation(); i != nil && i.Spec.InBand != nil {
			return i.Spec.InBand.Endpoints
		}
		return nil
	}
	down := []metav1.Condition{isNot(v1alpha1.ConditionIdentityReady, v1alpha1.ReasonTunnelDown, "nothing comes back"), isNot(v1alpha1.ConditionReady, v1alpha1.ReasonTunnelDown, "nothing comes back")}

	t.Run("both", func(t *testing.T) {
		work := func(*v1alpha1.Peering) []metav1.Condition {
			if len(called()) == 0 {
				return nil
			}
			return well()
		}
		stops := []func(){rome.manager(work), milan.tunnels("192.0.2.2:7100"), rome.introductions("192.0.2.1:7100", "$(reboot):7100", "rome.example:7100")}
		if got := rome.run("peer", "--remote-kubeconfig", milan.access.Kubeconfig, "--in-band"); got.code != 0 || got.out != "Peered with milan.\n" {
			t.Errorf("a provider that has to be told: %+v", got)
		}
		if got := strings.Join(called(), " "); got != "192.0.2.1:7100 rome.example:7100" {
			t.Errorf("it calls at %q", got)
		}
		for _, stop := range stops {
			stop()
		}
		for _, s := range []*stage{rome, milan} {
			s.forget()
			s.swept()
		}
	})
	t.Run("moved", func(t *testing.T) {
		moved := false
		work := func(p *v1alpha1.Peering) []metav1.Condition {
			switch at := strings.Join(called(), " "); {
			case at == "192.0.2.9:7100":
				return well()
			case at == "192.0.2.1:7100" && !moved: // after the program knows the first one
				key := client.ObjectKey{Namespace: v1alpha1.NetworkNamespace, Name: v1alpha1.IntroductionPrefix + p.Name}
				n := &v1alpha1.NetworkConfig{}
				if rome.c.Get(context.Background(), key, n) == nil {
					n.Spec.Endpoints = []string{"192.0.2.9:7100"}
					moved = rome.c.Update(context.Background(), n) == nil
				}
			}
			return nil
		}
		stops := []func(){rome.manager(work), milan.tunnels("192.0.2.2:7100"), rome.introductions("192.0.2.1:7100")}
		if got := rome.run("peer", "--remote-kubeconfig", milan.access.Kubeconfig, "--in-band", "--timeout", "1m"); got.code != 0 {
			t.Errorf("a cluster that is called elsewhere meanwhile: %+v; the provider was told %v", got, called())
		}
		for _, stop := range stops {
			stop()
		}
		for _, s := range []*stage{rome, milan} {
			s.forget()
			s.swept()
		}
	})
	t.Run("line", func(t *testing.T) {
		for _, after := range []time.Duration{0, silenceLimit + 2*time.Second} { // that a gateway may take to begin
			begin := time.Now()
			work := func(*v1alpha1.Peering) []metav1.Condition {
				if time.Since(begin) < after {
					return nil
				}
				return down
			}
			stops := []func(){rome.manager(work), rome.introductions("192.0.2.1:7100")}
			const want = `kubectl patch invitation invitation-%s --type=merge -p '{"spec":{"inBand":{"endpoints":["192.0.2.1:7100"]}}}'`
			if got := rome.run(tunnelArgs(whole, "--timeout", (after + 20*time.Second).String())...); got.code != 1 || !strings.Contains(got.err, "Nothing is heard of milan at milan.example:7100 yet.") ||
				!strings.Contains(got.err, strings.Replace(want, "%s", v1alpha1.TokenHash(whole)[:12], 1)) {
				t.Errorf("a line of a provider that does not answer, of which home's gateway says so after %s: %+v", after, got)
			}
			for _, stop := range stops {
				stop()
			}
			if err := rome.c.DeleteAllOf(t.Context(), &v1alpha1.NetworkConfig{}, client.InNamespace(v1alpha1.NetworkNamespace)); err != nil {
				t.Fatal(err)
			}
			rome.forget()
			rome.swept()
		}
	})
	t.Run("nowhere", func(t *testing.T) {
		for _, both := range []bool{false, true} {
			stops := []func(){rome.manager(func(*v1alpha1.Peering) []metav1.Condition { return down }), milan.tunnels("192.0.2.2:7100"), rome.introductions()}
			args := tunnelArgs(whole, "--timeout", "20s")
			if both {
				args = []string{"peer", "--remote-kubeconfig", milan.access.Kubeconfig, "--in-band", "--timeout", "20s"}
			}
			if got := rome.run(args...); got.code != 1 || !strings.Contains(got.err, "which nobody can yet: no node that may be gateway has an address; see the agents:") || strings.Contains(got.err, "kubectl patch") {
				t.Errorf("a cluster that has no address: %+v", got)
			}
			for _, stop := range stops {
				stop()
			}
			if err := rome.c.DeleteAllOf(t.Context(), &v1alpha1.NetworkConfig{}, client.InNamespace(v1alpha1.NetworkNamespace)); err != nil {
				t.Fatal(err)
			}
			for _, s := range []*stage{rome, milan} {
				s.forget()
				s.swept()
			}
		}
	})
}
