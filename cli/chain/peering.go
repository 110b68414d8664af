package chain

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// Facts is what is known of a peering here.
type Facts struct {
	// Now is the time to judge by.
	Now time.Time
	// Peering is nil if there is none.
	Peering *v1alpha1.Peering
	// Token says that the Secret with the invitation's token is there.
	Token bool
	// TokenUnread says that nobody may read whether it is.
	TokenUnread bool
	// Way is the tunnel to the provider, nil unless it is reached in band.
	Way *Way
	// Requests and Offers are those in the peering's own namespace.
	Requests []v1alpha1.ResourceRequest
	Offers   []v1alpha1.ResourceOffer
	// Tenant is nil if this cluster does not provide, or has lost it.
	Tenant *v1alpha1.Tenant
	// TenantRequests and TenantOffers are those in the tenant namespace.
	TenantRequests []v1alpha1.ResourceRequest
	TenantOffers   []v1alpha1.ResourceOffer
}

// Peering returns a chain per direction: what this cluster uses of the remote one,
// and what it gives.
func Peering(f Facts) []Chain {
	var chains []Chain
	if f.Peering.Spec.Consume != nil {
		chains = append(chains, consume(f))
	}
	if f.Peering.Spec.Provide != nil {
		chains = append(chains, provide(f))
	}
	return chains
}

func consume(f Facts) Chain {
	p, spec, status := f.Peering, f.Peering.Spec.Consume, f.Peering.Status
	c := Chain{Title: "This cluster uses " + p.Name}
	c.add(wanted(p))
	if f.Way != nil {
		c.add(leads(f))
	}
	c.add(invited(f))
	c.add(answers(p))
	issued := step("the provider has issued a credential", p.Name, status.Conditions, p.Generation, v1alpha1.ConditionIdentityReady, "")
	if status.Credential != nil {
		issued.Evidence = strings.TrimSpace(strings.Join([]string{issued.Evidence, string(status.Credential.Type) + " until " + stamp(status.Credential.NotAfter)}, " "))
	}
	c.add(issued)
	c.add(valid(p, f.Now))
	c.add(step("the provider's API server answers", p.Name, status.Conditions, p.Generation, v1alpha1.ConditionReachable, status.ServerURL))
	c.add(step("both sides know what they need of each other", p.Name, status.Conditions, p.Generation, v1alpha1.ConditionCompatible, shared(p)))
	if len(f.Requests) == 0 && spec.DefaultRequest != nil && !*spec.DefaultRequest {
		return c // peered without asking for anything
	}
	c.add(requested(f))
	whole := c.First() == nil
	for _, request := range f.Requests {
		c.branch(func(b *Chain) { negotiation(b, request, f) }, whole)
	}
	return c
}

// shared is what both sides know, and what this one does without.
func shared(p *v1alpha1.Peering) string {
	said := strings.Join(p.Status.Features, ", ")
	if c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionCompatible); c != nil && c.Message != "" {
		said += "; " + c.Message
	}
	return said
}

// wanted says whether the Peering can be acted upon at all.
func wanted(p *v1alpha1.Peering) Step {
	fact := "Peering " + p.Name + " is valid"
	if !p.DeletionTimestamp.IsZero() {
		return Step{Fact: fact, State: Broken, Evidence: "it is being removed", Remedy: Remedy(v1alpha1.ReasonTerminating, p.Name)}
	}
	stalled := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionStalled)
	if stalled != nil && stalled.Status == metav1.ConditionTrue &&
		(stalled.Reason == v1alpha1.ReasonInvalid || stalled.Reason == v1alpha1.ReasonDuplicate) {
		return Step{Fact: fact, State: Broken, Evidence: evidenceOf(stalled), Remedy: Remedy(stalled.Reason, p.Name)}
	}
	return Step{Fact: fact, State: Done, Evidence: "cluster " + p.Spec.ClusterID}
}

// invited says whether there is, or was, an invitation to show.
func invited(f Facts) Step {
	p := f.Peering
	s := Step{Fact: "there is an invitation to show", State: Done}
	identity := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionIdentityReady)
	switch {
	case p.Status.Credential != nil || identity != nil && identity.Status == metav1.ConditionTrue:
		s.Evidence = "accepted; its token is gone"
	case f.TokenUnread && (identity == nil || identity.Reason != v1alpha1.ReasonInvitationMissing):
		s.State = Aside // what comes after it tells
		s.Evidence = fmt.Sprintf("not known: who may not read Secret %s/%s does not see whether it is there", v1alpha1.SystemNamespace, p.Spec.Consume.TokenSecret)
	case identity != nil && identity.Reason == v1alpha1.ReasonInvitationMissing, !f.Token:
		s.State, s.Remedy = Broken, Remedy(v1alpha1.ReasonInvitationMissing, p.Name)
		s.Evidence = "no token and no credential"
		if name := p.Spec.Consume.TokenSecret; identity != nil && identity.Reason == v1alpha1.ReasonInvitationMissing {
			s.Evidence = evidenceOf(identity) // it knows of an earlier credential, too
		} else if name != "" {
			s.Evidence = fmt.Sprintf("the Secret %s/%s does not exist", v1alpha1.SystemNamespace, name)
		}
	default:
		s.Evidence = "Secret " + p.Spec.Consume.TokenSecret
	}
	return s
}

// answers says whether the provider's endpoint can be reached and is the one that was
// meant. It is evident from what came after it.
func answers(p *v1alpha1.Peering) Step {
	s := Step{Fact: "the provider's endpoint answers", State: Done, Evidence: p.Spec.Consume.AuthURL}
	if p.Spec.Consume.InBand != nil {
		s.Evidence = "in the tunnel"
	}
	identity := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionIdentityReady)
	if p.Status.Credential != nil || identity == nil || identity.Status == metav1.ConditionTrue {
		if identity == nil && p.Status.Credential == nil {
			s.State, s.Evidence, s.Remedy = Waiting, "not tried yet", managerRemedy
		}
		return s
	}
	switch identity.Reason {
	case v1alpha1.ReasonAuthUnreachable, v1alpha1.ReasonUntrusted:
		s.State, s.Evidence, s.Remedy = Broken, evidenceOf(identity), Remedy(identity.Reason, p.Name)
	case v1alpha1.ReasonTunnelDown:
		s.State, s.Evidence, s.Remedy = Broken, evidenceOf(identity), wayRemedy(p)
	case v1alpha1.ReasonPending:
		s.State, s.Evidence = Waiting, evidenceOf(identity)
	}
	return s
}

// valid says whether the credential is within its life.
func valid(p *v1alpha1.Peering, now time.Time) Step {
	s := Step{Fact: "the credential is valid", State: Done}
	credential := p.Status.Credential
	switch {
	case credential == nil:
		s.Evidence = "its life is not known yet"
	case now.After(credential.NotAfter.Time):
		s.State, s.Remedy = Broken, RemedyAt(v1alpha1.ReasonExpired, p)
		s.Evidence = "it ended " + stamp(credential.NotAfter)
	default:
		s.Evidence = "it is renewed " + stamp(credential.RenewAfter)
	}
	return s
}

// requested says whether anything was asked for.
func requested(f Facts) Step {
	s := Step{Fact: "resources are asked for", State: Done}
	if len(f.Requests) == 0 {
		s.State, s.Evidence = Waiting, "no ResourceRequest in "+v1alpha1.PeeringNamespace(f.Peering.Name)
		s.Remedy = managerRemedy
		return s
	}
	var names []string
	for _, request := range f.Requests {
		names = append(names, request.Name)
	}
	s.Evidence = strings.Join(names, ", ")
	return s
}

// negotiation adds the way of one request.
func negotiation(c *Chain, r v1alpha1.ResourceRequest, f Facts) {
	conditions, offered := r.Status.Conditions, ""
	for _, offer := range f.Offers {
		if offer.Name == r.Name {
			offered = Amounts(offer.Spec.Resources)
		}
	}
	name := f.Peering.Name
	sent := step("request "+r.Name+" has reached the provider", name, conditions, r.Generation, v1alpha1.ConditionSent, "")
	answer := step("request "+r.Name+" has an offer", name, conditions, r.Generation, v1alpha1.ConditionOffered, offered)
	decision := step("offer "+r.Name+" is accepted", name, conditions, r.Generation, v1alpha1.ConditionAccepted, "")
	advise(&sent, v1alpha1.ConditionSent, r, f)
	advise(&answer, v1alpha1.ConditionOffered, r, f)
	advise(&decision, v1alpha1.ConditionAccepted, r, f)
	c.add(sent)
	c.add(answer)
	c.add(decision)
}

// advise says what to do about a request in particular.
func advise(s *Step, kind string, r v1alpha1.ResourceRequest, f Facts) {
	c := meta.FindStatusCondition(r.Status.Conditions, kind)
	if c == nil || s.State == Done || c.ObservedGeneration < r.Generation && c.ObservedGeneration != 0 {
		return
	}
	s.Remedy = RemedyAt(c.Reason, f.Peering)
	switch c.Reason {
	case v1alpha1.ReasonInvalid:
		s.Remedy = Change(f.Peering.Name, r.Name)
	case v1alpha1.ReasonUndecided:
		s.Remedy = Decide(f.Peering.Name, r.Name)
	case v1alpha1.ReasonNothingFree:
		if others, remedy := Others(f.Peering.Name, r.Name, f.Requests, f.Offers); others != "" {
			s.Evidence += "; other requests of this cluster hold " + others
			s.Remedy = remedy
		}
	}
}

// provide is the chain of the other direction.
func provide(f Facts) Chain {
	p := f.Peering
	c := Chain{Title: p.Name + " uses this cluster"}
	if f.Tenant == nil {
		c.add(Step{Fact: "Tenant " + p.Spec.Provide.Tenant + " exists", State: Broken, Evidence: "it does not",
			Remedy: fmt.Sprintf("invite the cluster again: pelago unpeer %s, then pelago generate peer-command", p.Name)})
		return c
	}
	tenantSteps(&c, f)
	return c
}

// Tenant is the chain of a consumer as this cluster sees it.
func Tenant(f Facts) Chain {
	c := Chain{Title: f.Tenant.Name + " uses this cluster"}
	tenantSteps(&c, f)
	return c
}

func tenantSteps(c *Chain, f Facts) {
	t := f.Tenant
	exists := Step{Fact: "Tenant " + t.Name + " exists", State: Done, Evidence: "cluster " + t.Spec.ClusterID}
	if !t.DeletionTimestamp.IsZero() {
		exists.State, exists.Evidence = Broken, "it is being removed"
		exists.Remedy = Remedy(v1alpha1.ReasonTerminating, t.Name)
	}
	c.add(exists)
	conditions := t.Status.Conditions
	c.add(step("its namespace is ready", t.Name, conditions, t.Generation, v1alpha1.ConditionNamespaceReady, t.Status.Namespace))
	c.add(step("its user has its rights", t.Name, conditions, t.Generation, v1alpha1.ConditionRightsReady, v1alpha1.UserPrefix+t.Spec.PeeringUID))
	heard := ""
	if t.Status.LastContact != nil {
		heard = "last contact " + stamp(*t.Status.LastContact)
	}
	c.add(step("the consumer is heard of", t.Name, conditions, t.Generation, v1alpha1.ConditionConsumerAlive, heard))
	c.add(open(t))
	whole := c.First() == nil
	for _, r := range f.TenantRequests {
		offered := ""
		for _, offer := range f.TenantOffers {
			if offer.Name == r.Name {
				offered = Amounts(offer.Spec.Resources)
			}
		}
		c.branch(func(b *Chain) {
			b.add(step("request "+r.Name+" has an offer", t.Name, r.Status.Conditions, r.Generation, v1alpha1.ConditionOffered, offered))
			b.add(step("offer "+r.Name+" is accepted", t.Name, r.Status.Conditions, r.Generation, v1alpha1.ConditionAccepted, ""))
		}, whole)
	}
}

// open says whether the tenant may ask for more.
func open(t *v1alpha1.Tenant) Step {
	s := Step{Fact: "the tenant is active", State: Done}
	if t.Spec.State != "" && t.Spec.State != v1alpha1.TenantActive {
		s.State, s.Evidence = Broken, "spec.state is "+string(t.Spec.State)
		s.Remedy = "lift it with: pelago uncordon tenant " + t.Name
	}
	return s
}

func stamp(t metav1.Time) string { return t.UTC().Format("2006-01-02 15:04 MST") }
