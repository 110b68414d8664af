package network

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/home"
	"github.com/pelago-dev/pelago/internal/status"
	"github.com/pelago-dev/pelago/network/ipam"
)

// pair is the two NetworkConfigs of a peering, and what is known of that.
type pair struct {
	namespace, key string
	// consumes says that this cluster is the consumer.
	consumes bool
	// peering is the name of the Peering here, "" if there is none, and peer how the other side
	// is called.
	peering, peer string
	since         time.Time
	// asked is the value of AnnotationRotate.
	asked string
	// wanted says that both sides have their network on and nothing is ending.
	wanted bool
	// unsure says that it is not known whether the other side has: what exists stays then, and
	// nothing is made.
	unsure bool
	// begun is when this process saw first that it is wanted, or that it may be.
	begun time.Time
	// reach is what this cluster's owner says of its pods, nothing if he does not.
	reach v1alpha1.Reachability
	// callers are pods of this cluster's own that may call a tenant's Services.
	callers *metav1.LabelSelector
	// inBand says that the consumer reaches the provider's API server through the tunnel.
	inBand bool
	// direct says that this cluster's owner lets there be direct paths, and able whether the other
	// side knows them.
	direct bool
	able   ability
	// unnamed says why pods at the provider do not find what is below home's own domain; empty if they do.
	unnamed string
	// ableBehind is the same of paths between a tenant and a provider.
	ableBehind ability
	// uid is that of a consumer's Peering, or of the Tenant.
	uid types.UID
	// front is the name of the Service in front of the tunnel, if it does not follow from the key.
	front string
	// spaces are the namespaces whose pods may run at the provider, and hosts those that are here
	// for the tenant.
	spaces, hosts map[string]bool
	// owners are the words for tenants that a provider has of some of spaces, and guarded those of hosts
	// for which the tenant has NetworkRules.
	owners  map[string]string
	guarded map[string]bool
	// shut says that one of spaces lets none of its pods be reached, which gateways of this cluster alone
	// know.
	shut bool
	// translate says that no range of the other side's is its own view.
	translate bool
	// consumer and provider are the objects there are.
	consumer, provider *v1alpha1.NetworkConfig
}

// own is the object whose spec is of this cluster.
func (p *pair) own() *v1alpha1.NetworkConfig {
	if p.consumes {
		return p.consumer
	}
	return p.provider
}

// theirs is the object whose spec is of the other side.
func (p *pair) theirs() *v1alpha1.NetworkConfig {
	if p.consumes {
		return p.provider
	}
	return p.consumer
}

func (p *pair) ownName() string {
	if p.consumes {
		return v1alpha1.NetworkConsumer
	}
	return v1alpha1.NetworkProvider
}

func (p *pair) theirName() string {
	if p.consumes {
		return v1alpha1.NetworkProvider
	}
	return v1alpha1.NetworkConsumer
}

// awaited says whether a consumer may say in a moment where his API server is, that has not
// said yet that he has none.
func (p *pair) awaited(now time.Time) bool {
	if p.consumes || !p.wanted && !p.unsure || !now.Before(p.begun.Add(comingFor)) {
		return false
	}
	theirs := p.theirs()
	return theirs == nil || theirs.Spec.PublicKey == "" || theirs.Spec.APIServer != ""
}

// facts is what a decision follows from.
type facts struct {
	now time.Time
	// id is that of this cluster.
	id       string
	settings home.Network
	property property
	// servers are those behind the Service of the API server here.
	servers []netip.Addr
	// pairs of all peerings, the oldest first.
	pairs []*pair
	// openings are the tunnels before there are peerings, by name, and mapped the addresses of the
	// external range that stand for what is mapped.
	openings []*opening
	mapped   []netip.Addr
	// locks are nil while the keys are not known, and unread says why they cannot be read now, if so.
	locks  map[string]lock
	unread string
	// paths are the direct paths that tenants want, by namespace and name.
	paths []*path
	// wishes are what is to be said of direct paths by the names of their ends, if that is known.
	wishes      map[string]map[string]wish
	wishesKnown bool
	// agents there are, the nodes that may be gateway, and those that may when their agents are back.
	agents     []agent
	candidates []string
	away       []string
	nodes      map[string]*corev1.Node
	// places are nodes by their addresses, nil until they are asked for.
	places map[netip.Addr]string
	// services and slices are those in the namespace of agents by name, and denied says why one
	// of the former could not be written.
	services map[string]*corev1.Service
	slices   map[string]*discoveryv1.EndpointSlice
	denied   map[string]string
	// stray says of pods that have addresses which are not published.
	stray string
	// astray says of pods that have addresses in other nodes' ranges, and get no answers from peers.
	astray string
	// domain is what this cluster is called in its own DNS; "" if that is not known.
	domain string
	// refused says why nothing more is taken from a provider, by peering.
	refused map[string]string
	// peerings are the names of all Peerings.
	peerings []string
}

// decision is what is to be written, and known.
type decision struct {
	// specs and statuses are by the pair they belong to: of its own object, and of the other's.
	specs    map[*pair]v1alpha1.NetworkConfigSpec
	statuses map[*pair]v1alpha1.NetworkConfigStatus
	// openings are what is said of tunnels before there are peerings, and silent why nobody can be told
	// where to call one of them. Lines are by which addresses providers in band are called, by key: at
	// most one of each family, that of IPv4 first.
	openings map[*opening]v1alpha1.NetworkConfigSpec
	silent   map[*opening]wait
	lines    map[string][]netip.Addr
	// paths are what is said of direct paths that tenants want, and couples the providers that may
	// have some between them.
	paths   map[*path]v1alpha1.NetworkPathStatus
	couples []couple
	// conditions NetworkReady are by Peering; nil is none.
	conditions map[string]*metav1.Condition
	events     []news
	// fronts are what tunnels are called through, and waits why one of them cannot be.
	fronts  []front
	waits   map[*pair]wait
	picture *picture
	results map[string]ipam.Result
	// transit are the views of others that a peer is told of, and untold those of whom it is not
	// told all, for want of room.
	transit map[*pair][]netip.Prefix
	untold  map[*pair][]string
	// bare are those of whom it is not told all, as this cluster sees them as they are.
	bare map[*pair][]string
}

// news is an event on a Peering.
type news struct {
	peering, kind, reason, action, text string
}

// maxText bounds a message.
const maxText = 1024

// decide looks at all peerings at once: what one gets another cannot have.
func decide(f *facts) *decision {
	d := &decision{
		specs: map[*pair]v1alpha1.NetworkConfigSpec{}, statuses: map[*pair]v1alpha1.NetworkConfigStatus{},
		conditions: map[string]*metav1.Condition{}, waits: map[*pair]wait{},
	}
	d.allocate(f)
	d.through(f)
	d.inBand(f)
	d.publish(f)
	d.join(f)
	d.picture.call(f, d)
	d.describe(f)
	return d
}

// publish is what this cluster says of itself.
func (d *decision) publish(f *facts) {
	var wanted []*pair
	var have []int32
	for _, p := range f.pairs {
		if !p.wanted {
			continue
		}
		wanted = append(wanted, p)
		port := int32(0)
		if own := p.own(); own != nil {
			port = own.Spec.Port
		}
		have = append(have, port)
	}
	hosts := slices.Clone(f.openings)
	slices.SortStableFunc(hosts, func(a, b *opening) int { // who consumes calls, and so comes last where ports are scarce
		switch {
		case a.consumes == b.consumes:
			return 0
		case b.consumes:
			return -1
		}
		return 1
	})
	must := len(wanted)
	for _, o := range hosts {
		if !o.consumes {
			must++
		}
		port := int32(0)
		if o.have != nil {
			port = o.have.Spec.Port
		}
		have = append(have, port)
	}
	given, left := allotPaths(f.settings.Port, must, have, f.pathPorts())
	ports := map[*opening]int32{}
	for i, o := range hosts {
		ports[o] = given[len(wanted)+i]
	}
	d.open(f, ports)
	d.answerPaths(f, left)
	for i, port := range given[:len(wanted)] {
		p := wanted[i]
		l := f.locks[p.key]
		if l.key.IsZero() {
			continue // without a key nothing is said
		}
		spec := v1alpha1.NetworkConfigSpec{
			Pods: texts(slices.Concat(f.property.Pods, d.transit[p])), Transit: texts(d.transit[p]), External: texts(f.property.External), Port: port,
			Endpoints: d.called(f, p, port), Reachability: p.reach, Callers: p.callers, InBand: d.speaks(f, p),
		}
		if !p.consumes {
			spec.ConsumerPaths = f.consumerPaths(p)
		}
		if p.consumes {
			var there []netip.Prefix
			if theirs := p.theirs(); theirs != nil {
				there = prefixes(theirs.Spec.Pods)
			}
			spec.APIServer = apiServer(f.property.External, f.servers, there)
		}
		before, known := "", ""
		if own := p.own(); own != nil {
			before, known = own.Spec.PublicKey, own.Status.NextPublicKey
		}
		spec.PublicKey, spec.NextPublicKey = l.published(before, known)
		d.specs[p] = spec
	}
}

// allocate decides views, and what the others are told of their ranges.
func (d *decision) allocate(f *facts) {
	var peerings []ipam.Peering
	for _, p := range f.pairs {
		if theirs := p.theirs(); p.wanted && theirs != nil {
			peerings = append(peerings, common(f.property.Pods, ipam.Peering{
				Key: p.key, Since: p.since, Ranges: slices.Concat(theirs.Spec.Pods, theirs.Spec.External), Before: parsed(theirs.Status.Views), Translate: p.translate,
			}))
		}
	}
	if len(f.property.Pods) == 0 {
		d.results = unchanged(peerings) // a view could cover pods here
	} else {
		d.results = ipam.Allocate(f.property.Own, peerings)
	}
	pic := &picture{
		nameServers: nameServers(f.property.Own),
		views:       ipam.NewTable(d.results), tunnels: map[string]bool{}, apis: map[string]netip.AddrPort{}, coming: map[string]time.Time{},
	}
	there := map[string]ipam.Result{}
	for _, p := range f.pairs {
		if p.awaited(f.now) {
			pic.coming[p.key] = p.begun.Add(comingFor)
		}
		if !p.wanted {
			continue
		}
		pic.tunnels[p.key] = true
		if own := p.own(); own != nil {
			there[p.key] = ipam.Result{Views: believed(parsed(own.Status.Views), prefixes(slices.Concat(own.Spec.Pods, own.Spec.External)))}
		}
		theirs := p.theirs()
		if theirs == nil {
			continue
		}
		if api, ok := theirAPI(theirs.Spec, p.key, pic.views); ok {
			pic.apis[p.key] = api
			delete(pic.coming, p.key)
		}
		r := d.results[p.key]
		d.statuses[p] = answer(theirs, r, f.agents, p.key, len(f.property.Pods) == 0)
		for _, c := range r.Changes {
			now := "it has none now"
			if c.Now.IsValid() {
				now = "it is " + c.Now.String() + " now"
			}
			d.events = append(d.events, news{p.peering, corev1.EventTypeWarning, v1alpha1.ReasonViewMoved, "Allocate",
				clean(fmt.Sprintf("%s of %s was seen as %s: %s; %s", c.Real, p.peer, c.Was, c.Why, now))})
		}
	}
	pic.there = ipam.NewTable(there)
	pic.ground = ground(f, d.results)
	pic.describe(d.results, there)
	d.picture = pic
}

// common is a peering with those ranges alone that are of a family which pods here have: of the
// other one nothing here could be called, or call. Where there is none in common, all stay.
func common(pods []netip.Prefix, p ipam.Peering) ipam.Peering {
	foreign := func(r netip.Prefix) bool {
		return !slices.ContainsFunc(pods, func(own netip.Prefix) bool { return own.Addr().Is4() == r.Addr().Is4() })
	}
	ranges := slices.DeleteFunc(slices.Clone(p.Ranges), func(text string) bool {
		r, err := netip.ParsePrefix(text)
		return err == nil && foreign(r) // what is no prefix is refused
	})
	if len(pods) == 0 || len(ranges) == 0 {
		return p
	}
	p.Ranges, p.Before = ranges, slices.DeleteFunc(p.Before, func(v ipam.View) bool { return foreign(v.Real) })
	return p
}

// unchanged are the views there were.
func unchanged(peerings []ipam.Peering) map[string]ipam.Result {
	all := map[string]ipam.Result{}
	for _, p := range peerings {
		all[p.Key] = ipam.Result{Views: p.Before}
	}
	return all
}

// answer is the status of what the other side has said. It names nothing of ours but views.
func answer(theirs *v1alpha1.NetworkConfig, r ipam.Result, agents []agent, key string, undecided bool) v1alpha1.NetworkConfigStatus {
	s := v1alpha1.NetworkConfigStatus{
		ObservedGeneration: theirs.Generation, Views: written(r.Views), Conditions: slices.Clone(theirs.Status.Conditions),
	}
	if next := theirs.Spec.NextPublicKey; next != "" && (theirs.Status.NextPublicKey == next || knows(agents, key, next)) {
		s.NextPublicKey = next
	}
	slices.SortFunc(s.Views, byRange)
	not := func(reason, message string) {
		status.False(&s.Conditions, theirs.Generation, v1alpha1.ConditionReady, reason, clean(message))
	}
	refused, lacking := complaints(r)
	switch {
	case theirs.Spec.PublicKey == "":
		not(v1alpha1.ReasonWaiting, "nothing has been published yet")
	case undecided:
		not(v1alpha1.ReasonWaiting, "the ranges of this side are not known yet")
	case len(refused) > 0:
		not(v1alpha1.ReasonRangesRefused, strings.Join(refused, "; "))
	case len(lacking) > 0:
		not(v1alpha1.ReasonPoolExhausted, "no prefix is left by which to see "+strings.Join(texts(lacking), ", "))
	default:
		status.True(&s.Conditions, theirs.Generation, v1alpha1.ConditionReady, v1alpha1.ReasonReady, "")
	}
	return s
}

// complaints sorts what is wrong with ranges: the words about those that are refused, which
// speak of nothing else, and those without a view.
func complaints(r ipam.Result) (refused []string, lacking []netip.Prefix) {
	for _, err := range r.Errs {
		var pool *ipam.PoolError
		if errors.As(err, &pool) {
			lacking = append(lacking, pool.Range)
			continue
		}
		refused = append(refused, strings.Split(err.Error(), "\n")...)
	}
	return refused, lacking
}

// knows says whether the gateway's tunnel accepts a key already. While the gateway moves two agents have
// it, and the one that is left counts for nothing: all have to.
func knows(agents []agent, key, next string) (known bool) {
	for _, a := range agents {
		r, has := a.reports[key]
		if !a.alive || !has {
			continue
		}
		if r.Knows != next {
			return false
		}
		known = true
	}
	return known
}

// alive says whether the tunnel of a peering carries packets both ways.
func alive(agents []agent, key string) bool {
	return slices.ContainsFunc(agents, func(a agent) bool { return a.alive && a.reports[key].Alive })
}

// readyOf is the condition Ready of an object.
func readyOf(c *v1alpha1.NetworkConfig) *metav1.Condition {
	if c == nil {
		return nil
	}
	return meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionReady)
}
