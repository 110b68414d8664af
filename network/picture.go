package network

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/ipam"
	"github.com/pelago-dev/pelago/network/mapping"
)

// picture is what is known at one moment, by key of the peering. It never changes.
type picture struct {
	// views are by which addresses peers are seen here, there by which this cluster is seen
	// by them.
	views, there *ipam.Table
	// tunnels are those that there are to be.
	tunnels map[string]bool
	// apis are where this cluster reaches the API servers of its consumers, and coming those
	// of which that is not known yet, with the time until which they are worth waiting for.
	apis   map[string]netip.AddrPort
	coming map[string]time.Time
	// lines are by which addresses providers in band are called here, and lacking why one of them
	// cannot be.
	lines   map[string][]netip.Addr
	lacking map[string]string
	// nameServers are where pods here ask for names; none while that is not known.
	nameServers []netip.Addr
	// ground is what mappings follow from.
	ground mapping.Ground
	// words are all that is answered of a peering, so that changes are seen.
	words map[string]string
}

// call takes over by which addresses providers in band are called: those of which a tunnel is said.
func (p *picture) call(f *facts, d *decision) {
	p.lines, p.lacking = map[string][]netip.Addr{}, map[string]string{}
	note := func(key, text string) { p.words[key] += text + ";" }
	for _, of := range f.pairs {
		line := d.lines[of.key]
		switch {
		case !of.consumes || !of.inBand:
			continue
		case len(line) == 0:
			p.lacking[of.key] = "this cluster has no external range of " + families(f.property.Pods) + ", or none of its addresses is free: have its owner set network.external"
		case p.tunnels[v1alpha1.IntroductionPrefix+of.peering] || d.specs[of].InBand != nil || f.led(of.peering):
			p.lines[of.key] = line
		}
		note(of.key, fmt.Sprint("in band ", p.lines[of.key], p.lacking[of.key]))
	}
}

// comingFor is how long the API server of a consumer is waited for whose network is wanted. He
// may never say where it is.
const comingFor = 5 * time.Second

// describe writes the words of a picture.
func (p *picture) describe(views, there map[string]ipam.Result) {
	p.words = map[string]string{}
	note := func(key string, of any) { p.words[key] += fmt.Sprintf("%v;", of) }
	for _, all := range []map[string]ipam.Result{views, there} {
		for _, key := range slices.Sorted(maps.Keys(p.tunnels)) {
			texts := written(all[key].Views)
			slices.SortFunc(texts, byRange)
			note(key, texts)
		}
	}
	for key, at := range p.apis {
		note(key, at)
	}
	for key := range p.coming {
		note(key, "coming")
	}
	note(groundKey, p.ground)
}

var nothing = &picture{views: ipam.NewTable(nil), there: ipam.NewTable(nil)}

// consumerKey and providerKey are the keys of what this cluster is consumer or provider in.
func consumerKey(peering string) string {
	return v1alpha1.NetworkKey(v1alpha1.PeeringNamespace(peering))
}
func providerKey(tenant string) string { return v1alpha1.NetworkKey(v1alpha1.TenantNamespace(tenant)) }

// parsed reads views as they are written in a status. What is none is left out.
func parsed(views []v1alpha1.NetworkView) []ipam.View {
	var all []ipam.View
	for _, v := range views {
		real, err := netip.ParsePrefix(v.Real)
		if err != nil {
			continue
		}
		view, err := netip.ParsePrefix(v.View)
		if err != nil {
			continue
		}
		all = append(all, ipam.View{Real: real, View: view})
	}
	return all
}

// written is the opposite of parsed.
func written(views []ipam.View) []v1alpha1.NetworkView {
	var all []v1alpha1.NetworkView
	for _, v := range views {
		all = append(all, v1alpha1.NetworkView{Real: v.Real.String(), View: v.View.String()})
	}
	return all
}

// byRange sorts views by what they are of.
func byRange(a, b v1alpha1.NetworkView) int { return cmp.Compare(a.Real, b.Real) }

// believed are views of ours, as a peer says he sees us, as far as they can be: of ranges that
// we have, one each.
func believed(said []ipam.View, ranges []netip.Prefix) []ipam.View {
	var all []ipam.View
	for _, r := range ranges {
		for _, v := range said {
			if v.Real == r && v.View.Bits() == r.Bits() && v.View == v.View.Masked() && v.View.Addr().Is4() == r.Addr().Is4() {
				all = append(all, v)
				break
			}
		}
	}
	return all
}
