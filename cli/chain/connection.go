package chain

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// ConnectionFacts is what is known of the way from a pod of home to another one.
type ConnectionFacts struct {
	// From and To are pods of this cluster's API, wherever they run.
	From, To *corev1.Pod
	// At is the peering of each virtual node, by its name.
	At map[string]string
	// Links are the networks with the providers, by peering.
	Links map[string]Link
	// Slices are those of the namespace of To.
	Slices []discoveryv1.EndpointSlice
	// FromSpace and ToSpace are what the namespaces of both say of the reachability of their pods.
	FromSpace, ToSpace v1alpha1.Reachability
	// Mapped are the peerings at which a namespace is known, by its name.
	Mapped map[string][]string
	// Policies are those of the namespaces of both, and Spaces the labels of these.
	Policies []networkingv1.NetworkPolicy
	Spaces   map[string]map[string]string
	// Rules are what the gateways of this cluster go by, for the namespaces of both.
	Rules []v1alpha1.NetworkRules
}

// Link is the network with one provider.
type Link struct {
	// Up says that the tunnel carries packets; if not, Problem and Remedy say why.
	Up              bool
	Problem, Remedy string
	// Gateway is the node here that has the tunnel.
	Gateway string
	// Views are by which prefixes this cluster sees the provider's, SeenAs those by which the
	// provider sees this cluster's.
	Views, SeenAs []v1alpha1.NetworkView
	// Reach is which pods of this cluster take part, by its own choice.
	Reach v1alpha1.Reachability
	// Policies says that the provider's gateways go by NetworkPolicies of this cluster.
	Policies bool
}

// way is a way by addresses of one family: its name, "" if it is the only one, and what facts of
// it end with.
type way struct {
	family, suffix string
	// from and to are the addresses of both pods, as home numbers them.
	from, to netip.Addr
}

// Connection walks the way from a pod to another one, and says where it breaks.
func Connection(f ConnectionFacts) Chain {
	from, to := f.At[f.From.Spec.NodeName], f.At[f.To.Spec.NodeName]
	c := Chain{Title: fmt.Sprintf("From pod %s to pod %s", f.From.Name, f.To.Name)}
	crosses := from != to
	c.add(runs(f.From, from, crosses))
	c.add(runs(f.To, to, crosses))
	if from == to {
		where := "here"
		if from != "" {
			where = "at " + from
		}
		c.add(Step{Fact: "the way is within one cluster", State: Done, Evidence: "both are " + where + ", whose own network carries it"})
		whole := c.First() == nil
		for _, w := range ways(f) {
			c.branch(func(c *Chain) { c.add(policed(f, from, to, w)) }, whole)
		}
		return c
	}
	for _, peering := range []string{from, to} {
		if peering != "" {
			c.add(linked(peering, f.Links))
		}
	}
	for _, peering := range []string{from, to} {
		if peering != "" {
			c.add(carries(peering, f.Links[peering]))
		}
	}
	// Home takes the pods of a provider for not ready while there is no way to it.
	for _, one := range []struct {
		pod *corev1.Pod
		at  string
	}{{f.From, from}, {f.To, to}} {
		if one.at != "" && !ready(one.pod) {
			c.add(runs(one.pod, one.at, false))
		}
	}
	c.add(chosen(f, from, to))
	whole, all := c.First() == nil, ways(f)
	if len(all) == 0 {
		c.add(unaddressed(f, to))
	}
	for _, w := range all {
		c.branch(func(c *Chain) {
			c.add(addressed(f, from, to, w))
			c.add(mayPass(f, from, to, w))
			c.add(policed(f, from, to, w))
		}, whole)
	}
	return c
}

// ways are those by the families of which both pods have an address.
func ways(f ConnectionFacts) (all []way) {
	from, to := addresses(f.From), addresses(f.To)
	for i, family := range []string{"IPv4", "IPv6"} {
		if from[i].IsValid() && to[i].IsValid() {
			all = append(all, way{family: family, suffix: ", by " + family, from: from[i], to: to[i]})
		}
	}
	if len(all) == 1 {
		all[0].family, all[0].suffix = "", ""
	}
	return all
}

// addresses are the IPv4 and the IPv6 address of a pod, as far as it has them.
func addresses(p *corev1.Pod) (a [2]netip.Addr) {
	for _, text := range append([]corev1.PodIP{{IP: p.Status.PodIP}}, p.Status.PodIPs...) {
		switch ip := parsed(text.IP); {
		case ip.Is4():
			a[0] = ip
		case ip.Is6():
			a[1] = ip
		}
	}
	return a
}

// unaddressed is why there is no way at all.
func unaddressed(f ConnectionFacts, to string) Step {
	s := Step{Fact: fmt.Sprintf("%s has an address where %s runs", f.To.Name, f.From.Name), State: Broken}
	for _, p := range []*corev1.Pod{f.To, f.From} {
		if addresses(p) == ([2]netip.Addr{}) {
			s.Evidence, s.Remedy = p.Name+" has none here yet", "wait a moment; if it stays so: pelago status "+to
			return s
		}
	}
	s.Evidence = "one has addresses of IPv4 only, the other one of IPv6 only"
	s.Remedy = "they need a family in common: run both in clusters that have it"
	return s
}

// runs says whether a pod runs and is ready; of one at a provider that another cluster calls it only says
// whether it runs, as the way to there makes it not ready too.
func runs(p *corev1.Pod, at string, crosses bool) Step {
	s := Step{Fact: "pod " + p.Name + " runs and is ready", State: Done, Evidence: "on node " + p.Spec.NodeName}
	if at != "" {
		s.Evidence = "at " + at
		if crosses {
			s.Fact = "pod " + p.Name + " runs"
		}
	}
	switch {
	case p.Status.Phase != corev1.PodRunning:
		s.State, s.Evidence = Broken, fmt.Sprintf("its phase is %s", p.Status.Phase)
	case at != "" && crosses, ready(p):
		return s
	default:
		s.State, s.Evidence = Broken, "it runs, and is not ready"
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady && c.Reason != "" {
				s.Evidence += ": " + c.Reason
				if said := Plain(c.Reason, c.Message); said != "" {
					s.Evidence += ", " + said
				}
			}
		}
	}
	s.Remedy = fmt.Sprintf("pelago explain pod %s -n %s", p.Name, p.Namespace)
	return s
}

func ready(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// linked says whether there is a network with a provider at all.
func linked(peering string, links map[string]Link) Step {
	s := Step{Fact: "there is a network with " + peering, State: Done}
	l, is := links[peering]
	switch {
	case !is:
		s.State, s.Evidence, s.Remedy = Broken, "none is known", "it has to be on at both sides: pelago status "+peering
	case len(l.Views) == 0:
		s.State, s.Evidence, s.Remedy = Broken, "its ranges have no view here", "pelago status "+peering
	case len(l.SeenAs) == 0:
		s.State, s.Evidence, s.Remedy = Broken, "it has no view of this cluster's ranges", "pelago status "+peering
	default:
		s.Evidence = "gateway " + l.Gateway
	}
	return s
}

// addressed says by which address the one that calls sees the other one.
func addressed(f ConnectionFacts, from, to string, w way) Step {
	s := Step{Fact: fmt.Sprintf("%s has an address where %s runs%s", f.To.Name, f.From.Name, w.suffix), State: Broken}
	a := w.to
	if from != "" {
		there, ok := v1alpha1.ViewOf(f.Links[from].SeenAs, a)
		if !ok && to == "" && f.To.Spec.HostNetwork {
			s.Evidence = fmt.Sprintf("it has hostNetwork, so that %s is its node's, and nothing stands for nodes at %s; Services are there without it, too", a, from)
			s.Remedy = "run it without hostNetwork, or have a pod without that in front of it"
			return s
		}
		if !ok {
			s.Evidence = fmt.Sprintf("%s is in no range that %s sees", a, from)
			s.Remedy = "see which are: pelago status " + from
			if to != "" {
				s.Remedy = fmt.Sprintf("it is told of those of %s while both share a namespace, as far as there is room: pelago explain peering %s", to, from)
			}
			return s
		}
		a = there
	}
	s.State, s.Evidence = Done, a.String()
	return s
}

func carries(peering string, l Link) Step {
	s := Step{Fact: "the tunnel to " + peering + " carries packets", State: Done, Evidence: "by node " + l.Gateway}
	if !l.Up {
		s.State, s.Evidence, s.Remedy = Broken, l.Problem, l.Remedy
	}
	return s
}

// chosen says whether this cluster holds the way closed itself.
func chosen(f ConnectionFacts, from, to string) Step {
	s := Step{Fact: "this cluster lets its pods take part", State: Broken}
	for _, peering := range []string{from, to} {
		if peering != "" && f.Links[peering].Reach == v1alpha1.ReachNone {
			s.Evidence = fmt.Sprintf("this cluster's own choice closes the way: Peering %s has spec.reachability none", peering)
			s.Remedy = "if that is not wanted: pelago peer " + peering + " --reachability offloaded-only"
			return s
		}
	}
	for namespace, said := range map[string]v1alpha1.Reachability{f.From.Namespace: f.FromSpace, f.To.Namespace: f.ToSpace} {
		if said == v1alpha1.ReachNone {
			s.Evidence = fmt.Sprintf("this cluster's own choice closes the way: the NamespaceOffloading of %s has spec.reachability none", namespace)
			s.Remedy = "if that is not wanted: pelago offload namespace " + namespace + " --reachability offloaded-only"
			return s
		}
	}
	s.State, s.Evidence = Done, "by spec.reachability of the Peering and of the namespaces"
	return s
}

// mayPass says whether the gateway here lets the connection begin: what was offloaded may be
// reached from home, and home's pods by what was offloaded elsewhere if they are behind a Service,
// or all of them by this cluster's choice. What the peer's gateway holds closed is not known here.
func mayPass(f ConnectionFacts, from, to string, w way) Step {
	s := Step{Fact: "the gateways let it begin" + w.suffix, State: Done}
	peer := to
	if from != "" {
		peer = from
	}
	switch {
	case from == "":
		s.Evidence = f.To.Name + " was offloaded from here"
	case to == "" && f.Links[from].Reach == v1alpha1.ReachFull:
		s.Evidence = "this cluster lets " + from + " reach all of its pods"
	case !slices.Contains(f.Mapped[f.To.Namespace], from):
		s.State, s.Evidence = Broken, fmt.Sprintf("namespace %s is not offloaded to %s", f.To.Namespace, from)
		s.Remedy = "pelago offload namespace " + f.To.Namespace
	case f.ToSpace == v1alpha1.ReachFull:
		s.Evidence = "namespace " + f.To.Namespace + " lets all of its pods be reached"
	case !behindService(f, w.to) && w.family != "" && slices.ContainsFunc(f.To.Status.PodIPs, func(ip corev1.PodIP) bool { return behindService(f, parsed(ip.IP)) }):
		s.State, s.Evidence = Aside, fmt.Sprintf("the Services that select %s have no address of %s, so nothing at %s may reach it so; one with spec.ipFamilyPolicy PreferDualStack would", f.To.Name, w.family, from)
	case !behindService(f, w.to):
		s.State, s.Evidence = Broken, "no Service selects "+f.To.Name+", so nothing at "+from+" may reach it"
		s.Remedy = fmt.Sprintf("make one in namespace %s that selects it, or let all of its pods be reached: pelago offload namespace %[1]s --reachability full", f.To.Namespace)
	default:
		s.Evidence = "a Service selects " + f.To.Name
	}
	if s.State == Done {
		s.Evidence += fmt.Sprintf("; the peer may let less pass, by the Tenant's spec.reachability at %s, which is not known here", peer)
	}
	return s
}

func behindService(f ConnectionFacts, at netip.Addr) bool {
	for i := range f.Slices {
		for _, e := range f.Slices[i].Endpoints {
			if slices.ContainsFunc(e.Addresses, func(text string) bool { return at.IsValid() && parsed(text) == at }) {
				return true
			}
		}
	}
	return false
}

// parsed is an address in the one form in which it can be compared, none if it is none.
func parsed(text string) netip.Addr {
	a, _ := netip.ParseAddr(text)
	return a.Unmap()
}
