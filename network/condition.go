package network

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/plan"
)

// maxSaid bounds what is repeated of a peer's words.
const maxSaid = 256

// describe makes the condition NetworkReady of every Peering. One that is consumer and
// provider has two tunnels, and both have to be well.
func (d *decision) describe(f *facts) {
	for _, name := range f.peerings {
		d.conditions[name] = nil
	}
	for _, p := range f.pairs {
		if !p.wanted || p.peering == "" {
			continue
		}
		c := d.ready(f, p)
		if before, known := d.conditions[p.peering]; known && (before == nil || before.Status == metav1.ConditionTrue) {
			d.conditions[p.peering] = &c
		}
	}
}

// ready says how the network of one peering is: the first thing that is wrong.
func (d *decision) ready(f *facts, p *pair) metav1.Condition {
	not := func(reason, format string, args ...any) metav1.Condition {
		return metav1.Condition{Type: v1alpha1.ConditionNetworkReady, Status: metav1.ConditionFalse, Reason: reason, Message: clean(fmt.Sprintf(format, args...))}
	}
	refused, lacking := complaints(d.results[p.key])
	theirs, said := p.theirs(), readyOf(p.own())
	switch {
	case f.property.problem != "":
		return not(f.property.reason, "%s", f.property.problem)
	case f.stray != "":
		return not(v1alpha1.ReasonRangesUnknown, "%s", f.stray)
	case f.locks[p.key].key.IsZero() && f.unread != "":
		return not(v1alpha1.ReasonWaiting, "the private key of the tunnel is not known: %s", f.unread)
	case f.locks[p.key].key.IsZero():
		return not(v1alpha1.ReasonWaiting, "the private key of the tunnel is not there yet: does namespace %s exist?", v1alpha1.NetworkNamespace)
	case f.refused[p.peering] != "" && p.consumes:
		return not(v1alpha1.ReasonInvalid, "what %s publishes is not taken, what was before goes on: %s", p.peer, f.refused[p.peering])
	case d.picture.lacking[p.key] != "":
		return not(v1alpha1.ReasonPoolExhausted, "in band %s cannot be called: %s", p.peer, d.picture.lacking[p.key])
	case theirs == nil || theirs.Spec.PublicKey == "":
		return not(v1alpha1.ReasonWaiting, "%s has published nothing yet", p.peer)
	case len(refused) > 0:
		return not(v1alpha1.ReasonRangesRefused, "of %s: %s", p.peer, strings.Join(refused, "; "))
	case len(lacking) > 0:
		return not(v1alpha1.ReasonPoolExhausted, "%s", detail(d, p))
	case said != nil && said.Status != metav1.ConditionTrue && slices.Contains([]string{v1alpha1.ReasonRangesRefused, v1alpha1.ReasonPoolExhausted}, said.Reason):
		return not(said.Reason, "%s says: %s", p.peer, oneLine(said.Message, maxSaid))
	}
	c := tunnelReady(f, p, d.waits[p], not)
	if p.consumes && c.Status == metav1.ConditionTrue && p.unnamed != "" {
		c.Message = clean(fmt.Sprintf("pods at %s do not find names that end in %s, this cluster's own domain, as %s; there its Services are called db, db.shop or db.shop.svc.%s; use one of the first two, which are good on both sides", p.peer, f.domain, p.unnamed, v1alpha1.DefaultDomain))
	}
	if more := unreached(f.agents, p.key); c.Status == metav1.ConditionTrue && more > 0 {
		c.Message = fmt.Sprintf("%d addresses, the highest, are not reached: of the pods and endpoints on one side of the peering with %s only %d count; let fewer namespaces take part, or divide them between peerings", more, p.peer, maxReached)
	}
	if left := d.bare[p]; c.Status == metav1.ConditionTrue && len(left) > 0 {
		c.Message = clean(fmt.Sprintf("%s is not told of the pods at %s, whose addresses this cluster sees as they are: set spec.translate, of the Peering with a provider and the Tenant of a consumer", p.peer, strings.Join(left, ", ")))
	}
	if p.consumes && c.Status == metav1.ConditionTrue && f.astray != "" {
		c.Message = clean(f.astray)
	}
	if left := d.untold[p]; c.Status == metav1.ConditionTrue && len(left) > 0 {
		c.Message = clean(fmt.Sprintf("%s is told of at most %d ranges, so that its pods do not reach all those at %s: let network.pods and those of providers be fewer, larger ranges", p.peer, maxPublished, strings.Join(left, ", ")))
	}
	return c
}

// unnamed says why a provider does not tell pods what home is called in its own DNS; "" if it does.
func unnamed(domain string, there *v1alpha1.ClusterInfo) string {
	switch {
	case domain == "" || strings.EqualFold(strings.TrimSuffix(domain, "."), v1alpha1.DefaultDomain):
		return ""
	case v1alpha1.Unusual(domain) == "":
		return "that is no name of at most 63 characters"
	case there == nil || slices.Contains(there.Features, v1alpha1.FeatureDomains):
		return ""
	}
	return "the Pelago there is older than this one, until its owner upgrades it"
}

// detail is what is wrong with pools here, with the names of other peerings: for this side only.
func detail(d *decision, p *pair) string {
	var all []string
	for _, err := range d.results[p.key].Errs {
		all = append(all, err.Error())
	}
	return strings.Join(all, "; ")
}

// tunnelReady says how the tunnel is, by the report of its gateway.
func tunnelReady(f *facts, p *pair, w wait, not func(reason, format string, args ...any) metav1.Condition) metav1.Condition {
	var live []string
	reports := map[string]v1alpha1.TunnelReport{}
	for _, a := range f.agents {
		if a.alive {
			live = append(live, a.node)
			if r, ok := a.reports[p.key]; ok {
				reports[a.node] = r
			}
		}
	}
	if len(live) == 0 {
		return not(v1alpha1.ReasonAgentsMissing, "no node here has an agent that lives, and so none can be gateway: see kubectl -n %s get pods", v1alpha1.NetworkNamespace)
	}
	gateway := plan.Gateway(p.key, live, f.told(p))
	r, reported := reports[gateway]
	switch {
	case alive(f.agents, p.key): // while a gateway moves, the one before may be it still
	case r.Problem != "":
		return not(v1alpha1.ReasonTunnelDown, "%s has no tunnel to %s: %s", gateway, p.peer, oneLine(r.Problem, maxSaid))
	case w.text != "":
		return not(w.reason, "%s", w.text)
	case !reported:
		return not(v1alpha1.ReasonWaiting, "waiting for %s to say how the tunnel to %s is", gateway, p.peer)
	case r.Since == nil:
		return not(v1alpha1.ReasonTunnelDown, "nothing has come back yet through the tunnel from %s to %s", gateway, p.peer)
	default:
		return not(v1alpha1.ReasonTunnelDown, "nothing has come back through the tunnel from %s to %s since %s", gateway, p.peer, r.Since.UTC().Format(time.RFC3339))
	}
	// Who can call the peer has a tunnel, also while he cannot be called.
	return metav1.Condition{Type: v1alpha1.ConditionNetworkReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady, Message: clean(w.text)}
}

// maxReached is how many addresses agents let be reached on one side of a peering.
const maxReached = 1 << 15

// unreached is how many more there are, by what the gateway says.
func unreached(agents []agent, key string) (more int) {
	for _, a := range agents {
		if a.alive {
			more = max(more, a.reports[key].Unreached)
		}
	}
	return more
}

// clean is text as it may stand in a condition of ours.
func clean(text string) string { return oneLine(text, maxText) }

// oneLine is text as it may stand in a condition: short, one line, printable.
func oneLine(text string, limit int) string {
	runes := []rune(strings.ToValidUTF8(text[:min(len(text), 4*limit)], "?"))
	for i, r := range runes {
		if !unicode.IsPrint(r) {
			runes[i] = ' '
		}
	}
	return string(runes[:min(len(runes), limit)])
}
