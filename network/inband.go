package network

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/status"
	"github.com/pelago-dev/pelago/network/mapping"
	"github.com/pelago-dev/pelago/network/tunnel"
)

// +kubebuilder:rbac:groups=pelago.dev,resources=invitations,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get,namespace=pelago-system

const (
	// tokenEntry is the key of a token in its Secret.
	tokenEntry = "token"
	// tokenWait is how soon is looked again for a token that is not there.
	tokenWait = 5 * time.Second
)

// opening is a tunnel before there is a peering: of an Invitation at the provider, and of the
// Peering that uses it at the consumer. Clusters speak with each other through it, and nothing else does.
type opening struct {
	// name is that of its NetworkConfig, and its key.
	name     string
	consumes bool
	// peering is the name of the Peering of a consumer, and token that of the Secret with its token.
	peering, token string
	since          time.Time
	// public is the other side's key, and endpoints where that may be.
	public    string
	endpoints []string
	// have is the object there is.
	have *v1alpha1.NetworkConfig
}

// gatherOpenings finds the invitations in band that are open, and the peerings in band that have no
// tunnel of their own yet, and takes their objects out of have.
func (r *decider) gatherOpenings(ctx context.Context, f *facts, peerings []v1alpha1.Peering, have map[types.NamespacedName]*v1alpha1.NetworkConfig) error {
	invitations := &v1alpha1.InvitationList{}
	if err := r.client.List(ctx, invitations); err != nil {
		return fmt.Errorf("listing invitations: %w", err)
	}
	for i := range invitations.Items {
		n := &invitations.Items[i]
		if n.Spec.InBand == nil || n.DeletionTimestamp != nil || n.Status.BoundTo == nil && !f.now.Before(n.Spec.Expires.Time) {
			continue
		}
		f.openings = append(f.openings, &opening{
			name: v1alpha1.InvitationPrefix + n.Name, since: n.CreationTimestamp.Time, public: n.Spec.InBand.PublicKey, endpoints: n.Spec.InBand.Endpoints,
		})
	}
	for i := range peerings {
		p := &peerings[i]
		if p.Spec.Consume == nil || p.Spec.Consume.InBand == nil {
			continue
		}
		f.openings = append(f.openings, &opening{
			name: v1alpha1.IntroductionPrefix + p.Name, consumes: true, peering: p.Name, token: p.Spec.Consume.TokenSecret,
			since: p.CreationTimestamp.Time, public: p.Spec.Consume.InBand.PublicKey, endpoints: p.Spec.Consume.InBand.Endpoints,
		})
	}
	f.openings = slices.DeleteFunc(f.openings, func(o *opening) bool { return o.consumes && f.leads(o.peering) })
	slices.SortFunc(f.openings, func(a, b *opening) int { return strings.Compare(a.name, b.name) })
	for _, o := range f.openings {
		at := types.NamespacedName{Namespace: r.network.options.Namespace, Name: o.name}
		o.have = have[at]
		delete(have, at)
	}
	return r.gatherMapped(ctx, f)
}

// gatherMapped reads which addresses of the external range stand for what is mapped.
func (r *decider) gatherMapped(ctx context.Context, f *facts) error {
	if !slices.ContainsFunc(f.pairs, func(p *pair) bool { return p.consumes && p.inBand }) {
		return nil
	}
	list := &v1alpha1.IPMappingList{}
	if err := r.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing mappings: %w", err)
	}
	for i := range list.Items {
		if a, err := netip.ParseAddr(list.Items[i].Status.Address); err == nil {
			f.mapped = append(f.mapped, a)
		}
	}
	return nil
}

// leads says whether the tunnel of a peering itself leads to its provider: that is stored, so that
// the one of its introduction may go. It stays so.
func (f *facts) leads(peering string) bool {
	return slices.ContainsFunc(f.pairs, func(p *pair) bool {
		return p.consumes && p.peering == peering && p.own() != nil && p.own().Spec.InBand != nil && p.own().Spec.InBand.Address != ""
	})
}

// led says whether some tunnel leads to a provider as it is stored, whatever can be decided now.
func (f *facts) led(peering string) bool {
	return f.leads(peering) || slices.ContainsFunc(f.openings, func(o *opening) bool { return o.consumes && o.peering == peering && o.have != nil })
}

// inBand gives each provider in band the addresses by which it is called here, one of each family: the
// one that it has, else, where pods here have that family or theirs is not known, the highest that is
// free, as mappings have the lowest. A mapping gives way.
func (d *decision) inBand(f *facts) {
	d.lines = map[string][]netip.Addr{}
	held, lines := map[netip.Addr]bool{}, map[netip.Addr]bool{}
	for _, a := range f.mapped {
		held[a] = true
	}
	for _, four := range []bool{true, false} {
		var without []*pair
		for _, p := range f.pairs {
			if !p.consumes || !p.inBand {
				continue
			}
			if has := f.lineOf(p, four); mapping.Giveable(f.property.External, has) && !lines[has] {
				held[has], lines[has] = true, true
				d.lines[p.key] = append(d.lines[p.key], has)
				continue
			}
			without = append(without, p)
		}
		if len(f.property.Pods) > 0 && !hasFamily(f.property.Pods, four) {
			continue
		}
		for _, p := range without {
			if a, ok := mapping.Highest(f.property.External, four, held); ok {
				held[a] = true
				d.lines[p.key] = append(d.lines[p.key], a)
			}
		}
	}
}

// families are those of which there is a prefix, as it is said.
func families(all []netip.Prefix) string {
	switch {
	case !hasFamily(all, true) && hasFamily(all, false):
		return "IPv6"
	case hasFamily(all, true) && hasFamily(all, false):
		return "IPv4 or IPv6"
	}
	return "IPv4"
}

// lineOf is the address of a family by which the provider of a pair is called so far.
func (f *facts) lineOf(p *pair, four bool) netip.Addr {
	var said []*v1alpha1.NetworkConfig
	if own := p.own(); own != nil {
		said = append(said, own)
	}
	for _, o := range f.openings {
		if o.consumes && o.peering == p.peering && o.have != nil {
			said = append(said, o.have)
		}
	}
	for _, c := range said {
		if c.Spec.InBand == nil {
			continue
		}
		for _, text := range []string{c.Spec.InBand.Address, c.Spec.InBand.OtherAddress} {
			if a, err := netip.ParseAddr(text); err == nil && a.Is4() == four {
				return a
			}
		}
	}
	return netip.Addr{}
}

// by says by which addresses a provider is called.
func by(lines []netip.Addr) *v1alpha1.NetworkInBand {
	said := &v1alpha1.NetworkInBand{Address: lines[0].String()}
	if len(lines) > 1 {
		said.OtherAddress = lines[1].String()
	}
	return said
}

// speaks is what a pair's tunnel is to carry between the clusters: nothing until it is alive at the
// consumer, which is called by way of its introduction until then.
func (d *decision) speaks(f *facts, p *pair) *v1alpha1.NetworkInBand {
	switch {
	case !p.inBand:
		return nil
	case !p.consumes:
		return &v1alpha1.NetworkInBand{}
	}
	if lines := d.lines[p.key]; len(lines) > 0 && (f.leads(p.peering) || alive(f.agents, p.key)) {
		return by(lines)
	}
	return nil
}

// open is what is said of tunnels before there is a peering. Without a key nothing is.
func (d *decision) open(f *facts, ports map[*opening]int32) {
	d.openings, d.silent = map[*opening]v1alpha1.NetworkConfigSpec{}, map[*opening]wait{}
	for _, o := range f.openings {
		l := f.locks[o.name]
		if l.key.IsZero() {
			continue
		}
		spec := v1alpha1.NetworkConfigSpec{
			Pods: texts(f.property.Pods), External: texts(f.property.External), // for agents here
			PublicKey: l.key.Public().String(), InBand: &v1alpha1.NetworkInBand{},
		}
		if o.consumes {
			lines := d.lines[consumerKey(o.peering)]
			if len(lines) == 0 {
				continue
			}
			spec.InBand = by(lines)
		} else if ports[o] == 0 {
			continue
		}
		// A consumer calls, and may be called as well: by a provider that nobody can call.
		if spec.Port = ports[o]; spec.Port > 0 {
			p := &pair{key: o.name, peer: o.name, wanted: true}
			spec.Endpoints = d.called(f, p, spec.Port)
			if w := d.waits[p]; w.text != "" {
				d.silent[o] = w
			}
		}
		if len(spec.Endpoints) == 0 && d.silent[o].text == "" {
			d.silent[o] = wait{v1alpha1.ReasonWaiting, "nobody can call this tunnel yet: no node that may be gateway has an address or port that is known"}
		}
		spec.InBand.PublicKey, spec.InBand.Endpoints = o.public, o.endpoints
		d.openings[o] = spec
		d.picture.tunnels[o.name] = true
	}
}

// applyOpenings writes what was decided of them, and whether the other side can be told where to call.
func (r *decider) applyOpenings(ctx context.Context, d *decision, note func(error)) {
	for o, spec := range d.openings {
		c, err := r.writeOpening(ctx, o, spec)
		if err == nil {
			err = r.writeStatus(ctx, c, openingStatus(c, d.silent[o]))
		}
		note(err)
	}
}

// writeOpening makes the object of an opening, or what it says, and returns it as it is then.
func (r *decider) writeOpening(ctx context.Context, o *opening, spec v1alpha1.NetworkConfigSpec) (*v1alpha1.NetworkConfig, error) {
	if o.have == nil {
		c := &v1alpha1.NetworkConfig{ObjectMeta: metav1.ObjectMeta{
			Namespace: r.network.options.Namespace, Name: o.name, Labels: map[string]string{v1alpha1.LabelManagedBy: component},
		}, Spec: spec}
		return c, r.create(ctx, c)
	}
	if equality.Semantic.DeepEqual(o.have.Spec, spec) {
		return o.have, nil
	}
	after := o.have.DeepCopy()
	after.Spec = spec
	if err := r.client.Patch(ctx, after, client.MergeFrom(o.have)); err != nil {
		return nil, fmt.Errorf("writing the network config %s: %w", o.name, err)
	}
	r.note(after)
	return after, nil
}

// openingStatus says why nobody can call the tunnel of an opening as its owner wants it, if that is so.
// There is no other side yet that could say anything.
func openingStatus(c *v1alpha1.NetworkConfig, w wait) v1alpha1.NetworkConfigStatus {
	s := v1alpha1.NetworkConfigStatus{ObservedGeneration: c.Generation, Conditions: slices.Clone(c.Status.Conditions)}
	if w.text != "" {
		status.False(&s.Conditions, c.Generation, v1alpha1.ConditionReady, w.reason, clean(w.text))
	} else {
		status.True(&s.Conditions, c.Generation, v1alpha1.ConditionReady, v1alpha1.ReasonReady, "")
	}
	return s
}

// openingLock is the lock of an opening: the one there is, a new one at the provider, and at the
// consumer what follows from the token. There is none while that is not to be had.
func (r *decider) openingLock(ctx context.Context, o *opening, have lock, now time.Time) (lock, error) {
	if !o.consumes {
		if !have.key.IsZero() {
			return have, nil
		}
		l, _, err := have.turn("", false, now, maker(r.network.options.Rand))
		return l, err
	}
	was := lock{}
	if have.made.Equal(o.since) { // of an earlier Peering it would be another one
		was = have
	}
	if o.token == "" {
		return was, nil
	}
	s := &corev1.Secret{}
	err := r.live.Get(ctx, client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: o.token}, s)
	if client.IgnoreNotFound(err) != nil {
		return was, fmt.Errorf("reading the token of the invitation for %s: %w", o.peering, err)
	}
	private, _, err := v1alpha1.InBandKey(strings.TrimSpace(string(s.Data[tokenEntry])))
	if err != nil { // it was used; or whose Secret it is, and what is wrong with it, the Peering says
		return was, nil
	}
	key, err := tunnel.SecretOf(private)
	return lock{key: key, made: o.since}, err
}

// lacksToken says whether some opening waits for its key.
func (f *facts) lacksToken() bool {
	return slices.ContainsFunc(f.openings, func(o *opening) bool { return f.locks[o.name].key.IsZero() })
}

// InBand are the addresses by which the provider of a peering in band is called, at the ports
// v1alpha1.InBandAPIPort and v1alpha1.InBandAuthPort: one of each family, of which the provider may have
// one alone. If it cannot be called, it says why.
func (n *Network) InBand(peering string) (at []netip.Addr, why string) {
	p, key := n.look(), consumerKey(peering)
	at, known := p.lines[key]
	switch {
	case p == nothing:
		return nil, "the network of this cluster is not known yet"
	case !known && p.lacking[key] != "":
		return nil, p.lacking[key]
	case !known:
		return nil, "the tunnel of the invitation is not there yet"
	}
	for _, key := range []string{key, v1alpha1.IntroductionPrefix + peering} {
		if !p.tunnels[key] {
			continue
		}
		if alive, known := n.tunnels.state(key); alive || !known {
			return at, ""
		}
		why = "nothing comes back through the tunnel to the provider: is one of its endpoints in reach over UDP, and its invitation not over?"
	}
	return at, why
}
