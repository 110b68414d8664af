package chain

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestWay holds that the chain of a provider in band begins with the tunnel, and stops there when
// that is what is wrong.
func TestWay(t *testing.T) {
	down := func(kind string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonTunnelDown, Message: "nothing comes back"}
	}
	issued := metav1.Condition{Type: v1alpha1.ConditionIdentityReady, Status: metav1.ConditionTrue, Reason: "Ready"}
	unreachable := metav1.Condition{Type: v1alpha1.ConditionReachable, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonPeerUnreachable, Message: "i/o timeout"}
	cases := []struct {
		reason     string
		way        Way
		credential bool
		conditions []metav1.Condition
		fact       string // where it stops
		state      State
		evidence   string
		remedy     string
	}{
		{"the network is off", Way{Off: true}, false, nil, "the tunnel leads to the provider", Broken, "the network of this cluster is off", "network.enabled=true"},
		{"nobody has tried", Way{}, false, nil, "the tunnel leads to the provider", Waiting, "not tried yet", "pelago-manager"},
		{"no endpoint answers", Way{Dead: true, Evidence: "the invitation's"}, false, []metav1.Condition{down(v1alpha1.ConditionIdentityReady)}, "the tunnel leads to the provider", Broken,
			"the invitation's; TunnelDown: nothing comes back", "UDP passes from the nodes here to 192.0.2.1:7100 or milan.example:7100, and that the invitation is not over"},
		{"the manager alone says so", Way{}, false, []metav1.Condition{down(v1alpha1.ConditionIdentityReady)}, "the tunnel leads to the provider", Broken, "TunnelDown: nothing comes back", "pelago unpeer milan --force"},
		{"it died later", Way{Dead: true, Evidence: "the peering's own"}, true, []metav1.Condition{issued, unreachable}, "the tunnel leads to the provider", Broken, "the peering's own: nothing comes back", "if all its addresses have changed: pelago unpeer milan --force"},
		{"it died later, and the manager says so", Way{}, true, []metav1.Condition{issued, down(v1alpha1.ConditionReachable)}, "the tunnel leads to the provider", Broken, "TunnelDown", "pelago status milan"},
		{"it leads, and the API server is what is away", Way{Up: true, Evidence: "the peering's own"}, true, []metav1.Condition{issued, unreachable}, "the provider's API server answers", Broken, "PeerUnreachable: i/o timeout", "heals by itself"},
		{"it leads, and the manager has not heard of that", Way{Up: true}, false, []metav1.Condition{down(v1alpha1.ConditionIdentityReady)}, "the provider's endpoint answers", Broken, "TunnelDown", "192.0.2.1:7100"},
		{"who may not see it goes on", Way{}, true, []metav1.Condition{issued, unreachable}, "the provider's API server answers", Broken, "PeerUnreachable", ""},
	}
	for _, c := range cases {
		p := &v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: "milan"}}
		p.Spec.Consume = &v1alpha1.Consume{InBand: &v1alpha1.InBand{Endpoints: []string{"192.0.2.1:7100", "milan.example:7100"}}}
		p.Status.Conditions = c.conditions
		if c.credential {
			p.Status.Credential = &v1alpha1.CredentialStatus{NotAfter: metav1.NewTime(now.Add(1))}
		}
		got := Peering(Facts{Now: now, Peering: p, Token: true, Way: &c.way})[0].First()
		if got == nil || got.Fact != c.fact || got.State != c.state || !strings.Contains(got.Evidence, c.evidence) || !strings.Contains(got.Remedy, c.remedy) {
			t.Errorf("%s: it stops at %+v, want %q %s, %q, %q", c.reason, got, c.fact, c.state, c.evidence, c.remedy)
		}
	}
}
