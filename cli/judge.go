package cli

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/chain"
	"github.com/pelago-dev/pelago/cli/setup"
)

// report makes of a snapshot what is shown. It decides alone what a problem is.
func (s *snapshot) report(now time.Time) Report {
	r := Report{
		Problems: []Problem{}, Pending: []Problem{}, Components: []ComponentReport{}, Peerings: []PeeringReport{},
		Tenants: []TenantReport{}, Invitations: []InvitationReport{}, Tombstones: []string{},
		VirtualNodes: []VirtualNodeReport{}, OffloadedNamespaces: []OffloadedReport{}, Objects: []ObjectReport{}, Networks: []NetworkReport{},
		Cluster: ClusterReport{Name: s.settings.Cluster.Name, ID: s.id, KubernetesVersion: s.kubernetes, ServerURL: s.settings.APIServer.URL},
	}
	for name, at := range s.heard {
		if at.After(now) {
			s.heard[name] = now // it is in part the consumer's word
		}
	}
	s.judgeHome(&r)
	for _, p := range s.peerings {
		s.judgePeering(&r, p, now)
	}
	s.strays(&r)
	s.judgeNodes(&r)
	s.judgeOffloadings(&r)
	s.judgeObjects(&r)
	s.judgeMappings(&r)
	s.judgePods(&r, now)
	for _, t := range s.tenants {
		s.judgeTenant(&r, t, now)
	}
	s.judgeNetworks(&r, now)
	for _, i := range s.invitations {
		if i.Status.BoundTo == nil && now.Before(i.Spec.Expires.Time) {
			r.Invitations = append(r.Invitations, InvitationReport{Name: i.Name, Consumer: i.Spec.Consumer, Expires: i.Spec.Expires})
		}
	}
	r.Tombstones = append(r.Tombstones, s.tombstones...)
	slices.Sort(r.Tombstones)
	if s.stonesUnread {
		r.Pending = append(r.Pending, Problem{Object: "tombstones", Message: "who may not list Secrets in namespace " + v1alpha1.SystemNamespace +
			" does not see which clusters have not been told that a peering is over"})
	}
	for _, name := range r.Tombstones {
		r.Problems = append(r.Problems, Problem{Object: "tombstone " + name, Message: "that cluster has not been told that the peering is over",
			Remedy: "nothing, if it comes back; else: pelago unpeer " + name + " --forget"})
	}
	return r
}

func (s *snapshot) judgeHome(r *Report) {
	for i := range s.deployments {
		d := &s.deployments[i]
		c := ComponentReport{Name: d.Name, Ready: setup.RolledOut(d)}
		if containers := d.Spec.Template.Spec.Containers; len(containers) > 0 {
			c.Image = containers[0].Image
		}
		r.Components = append(r.Components, c)
		if !c.Ready {
			r.Problems = append(r.Problems, Problem{Object: d.Name, Message: "is not ready: " + s.trouble[d.Name]})
		}
	}
	s.judgeAgents(r)
	if !slices.ContainsFunc(r.Components, func(c ComponentReport) bool { return c.Name == managerDeployment }) {
		r.Problems = append(r.Problems, Problem{Object: managerDeployment, Message: "is not there", Remedy: "run pelago install"})
	}
	if s.id == "" {
		r.Problems = append(r.Problems, Problem{Object: "cluster", Message: "it has no id yet", Remedy: "pelago-manager makes it when it starts"})
	}
}

func (s *snapshot) judgePeering(r *Report, p v1alpha1.Peering, now time.Time) {
	report := PeeringReport{Name: p.Name, ClusterID: p.Spec.ClusterID, Roles: p.Status.Roles, Remote: p.Status.Remote, Contact: contactOf(&p, s.heard)}
	if len(report.Roles) == 0 {
		report.Roles = []v1alpha1.Role{}
	}
	report.Ready, report.Reason = readiness(p.Status.Conditions)
	report.InBand = s.inBand(&p)
	if credential := p.Status.Credential; credential != nil {
		report.Expires = &credential.NotAfter
	}
	for _, offer := range s.offers {
		if offer.Namespace == v1alpha1.PeeringNamespace(p.Name) {
			report.Offers = append(report.Offers, OfferReport{Name: offer.Name, Resources: offer.Spec.Resources,
				Accepted: meta.IsStatusConditionTrue(offer.Status.Conditions, v1alpha1.ConditionAccepted)})
		}
	}
	report.Requests = s.requestsIn(v1alpha1.PeeringNamespace(p.Name))
	report.InContact = s.watched() && (meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionReachable) ||
		p.Spec.Provide != nil && meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionConsumerAlive) && !overdue(s.heard[p.Spec.Provide.Tenant], now))
	r.Peerings = append(r.Peerings, report)
	object, unmet := "peering "+p.Name, resourcesOnly(p)
	if said := s.judgeRequests(r, p, report.Ready || unmet); said && unmet {
		return
	}
	if problem := conditionProblem(object, p.Name, p.Status.Conditions); problem != nil {
		if problem.Reason == v1alpha1.ReasonTunnelDown {
			problem.Remedy = "see where it is called: pelago explain peering " + p.Name
		}
		r.Problems = append(r.Problems, *problem)
		return
	}
	if accepted := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionResourcesAccepted); accepted != nil && accepted.Status == metav1.ConditionFalse {
		r.Problems = append(r.Problems, problemOf(object, p.Name, accepted))
	}
	if report.Expires != nil && p.Status.Credential.RenewAfter.Add(time.Hour).Before(now) {
		r.Problems = append(r.Problems, Problem{Object: object, Reason: v1alpha1.ReasonRenewing,
			Message: "its credential should have been renewed " + p.Status.Credential.RenewAfter.UTC().Format("2006-01-02 15:04 MST"),
			Remedy:  "see why: pelago explain peering " + p.Name})
	}
}

func (s *snapshot) judgeTenant(r *Report, t v1alpha1.Tenant, now time.Time) {
	report := TenantReport{Name: t.Name, ClusterID: t.Spec.ClusterID, State: t.Spec.State, Used: t.Status.Used, Contact: heardOf(&t, s.heard), InBand: t.Spec.InBand}
	if report.State == "" {
		report.State = v1alpha1.TenantActive
	}
	report.Ready, report.Reason = readiness(t.Status.Conditions)
	if t.Spec.Limits != nil {
		report.Limits = t.Spec.Limits.Resources
	}
	report.Requests = s.requestsIn(v1alpha1.TenantNamespace(t.Name))
	report.InContact = s.watched() && meta.IsStatusConditionTrue(t.Status.Conditions, v1alpha1.ConditionConsumerAlive) && !overdue(s.heard[t.Name], now)
	r.Tenants = append(r.Tenants, report)
	pending := Problem{Object: "tenant " + t.Name, Remedy: "to lift that: pelago uncordon tenant " + t.Name}
	switch report.State {
	case v1alpha1.TenantCordoned:
		pending.Reason, pending.Message = v1alpha1.ReasonCordoned, "is cordoned: it keeps what it has and gets nothing new"
		r.Pending = append(r.Pending, pending)
	case v1alpha1.TenantDrained:
		pending.Reason, pending.Message = v1alpha1.ReasonDrained, "is drained: it gets nothing here"
		r.Pending = append(r.Pending, pending)
	}
	if problem := conditionProblem("tenant "+t.Name, t.Name, t.Status.Conditions); problem != nil {
		if problem.Reason == v1alpha1.ReasonNameRefused { // what is said to do of it otherwise is for consumers
			problem.Remedy = "see: pelago explain peering " + t.Name
			if t.Status.Cluster == nil && t.Annotations[v1alpha1.AnnotationInvitation] != "" {
				problem.Remedy = "it goes by itself when who was invited has heard of it, a minute later; at once: kubectl delete tenant " + t.Name
			}
		}
		r.Problems = append(r.Problems, *problem)
	}
	if c := meta.FindStatusCondition(t.Status.Conditions, v1alpha1.ConditionReaderAnswering); c != nil && c.Reason != v1alpha1.ReasonReady {
		r.Problems = append(r.Problems, problemOf("tenant "+t.Name, t.Name, c))
	}
}

// inBand reports whether this cluster and a peer speak with each other through the tunnel: what
// it uses decides, then what it gives.
func (s *snapshot) inBand(p *v1alpha1.Peering) bool {
	if p.Spec.Consume != nil {
		return p.Spec.Consume.InBand != nil
	}
	return p.Spec.Provide != nil && slices.ContainsFunc(s.tenants, func(t v1alpha1.Tenant) bool { return t.Name == p.Spec.Provide.Tenant && t.Spec.InBand })
}

// watched reports whether somebody keeps conditions true.
func (s *snapshot) watched() bool {
	return slices.ContainsFunc(s.deployments, func(d appsv1.Deployment) bool { return d.Name == managerDeployment && setup.RolledOut(&d) })
}

// readiness is the condition Ready in two words.
func readiness(conditions []metav1.Condition) (bool, string) {
	c := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady)
	if c == nil {
		return false, v1alpha1.ReasonPending
	}
	return c.Status == metav1.ConditionTrue, c.Reason
}

// conditionProblem is what Stalled or Ready say is wrong.
func conditionProblem(object, name string, conditions []metav1.Condition) *Problem {
	c := meta.FindStatusCondition(conditions, v1alpha1.ConditionStalled)
	if c == nil || c.Status != metav1.ConditionTrue {
		c = meta.FindStatusCondition(conditions, v1alpha1.ConditionReady)
		if c != nil && c.Status == metav1.ConditionTrue {
			return nil
		}
	}
	if c == nil {
		return &Problem{Object: object, Reason: v1alpha1.ReasonPending, Message: "nobody has looked at it yet",
			Remedy: "wait a moment; if it stays so, see whether " + managerDeployment + " runs"}
	}
	problem := problemOf(object, name, c)
	return &problem
}

func problemOf(object, name string, c *metav1.Condition) Problem {
	p := Problem{Object: object, Reason: c.Reason, Message: chain.Plain(c.Reason, c.Message), Remedy: chain.Remedy(c.Reason, name)}
	if p.Message == "" {
		p.Message = fmt.Sprintf("%s is %s", c.Type, c.Status)
	}
	return p
}
