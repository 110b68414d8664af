package chain

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// Way is the tunnel by which a provider in band is reached, as this cluster sees it.
type Way struct {
	// Off says that the network of this cluster is off.
	Off bool
	// Up says that packets come back through it, Dead that they do not. Neither is known at first,
	// and to who may not see it.
	Up, Dead bool
	// Evidence names the tunnel and its ends.
	Evidence string
}

// leads says whether the tunnel to a provider in band carries what the clusters say to each
// other: as its gateway measures it, else as the Peering says.
func leads(f Facts) Step {
	p, way := f.Peering, *f.Way
	s := Step{Fact: "the tunnel leads to the provider", State: Done, Evidence: way.Evidence}
	down := tunnelDown(p)
	switch {
	case way.Off:
		s.State, s.Evidence = Broken, "the network of this cluster is off"
		s.Remedy = "switch it on: pelago install --set network.enabled=true"
	case way.Up:
		return s
	case down != nil || way.Dead:
		s.State = Broken
		if down != nil {
			s.Evidence = strings.TrimPrefix(s.Evidence+"; "+evidenceOf(down), "; ")
		} else {
			s.Evidence += ": nothing comes back"
		}
		s.Remedy = wayRemedy(p)
	case p.Status.Credential == nil && way.Evidence == "":
		s.State, s.Evidence, s.Remedy = Waiting, "not tried yet", managerRemedy
	}
	return s
}

// tunnelDown is the condition that says that there is no way to the provider, nil if none does.
func tunnelDown(p *v1alpha1.Peering) *metav1.Condition {
	for _, kind := range []string{v1alpha1.ConditionIdentityReady, v1alpha1.ConditionReachable} {
		c := meta.FindStatusCondition(p.Status.Conditions, kind)
		if c != nil && c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonTunnelDown {
			return c
		}
	}
	return nil
}

// wayRemedy is what to do about a tunnel that does not lead to the provider.
func wayRemedy(p *v1alpha1.Peering) string {
	const udp = "see that UDP passes from the nodes here to "
	if p.Status.Credential != nil {
		return udp + "the provider, or from it to here: pelago status " + p.Name + "; if all its addresses have changed: pelago unpeer " + p.Name + " --force, then peer with a new line (pelago generate peer-command --in-band)"
	}
	return udp + strings.Join(p.Spec.Consume.InBand.Endpoints, " or ") + ", and that the invitation is not over (pelago status there); if nobody can call the provider, as behind NAT, have it call this cluster (spec.inBand.endpoints of its invitation); else: pelago unpeer " + p.Name + " --force, then peer with a new line (pelago generate peer-command --in-band)"
}
