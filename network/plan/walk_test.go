package plan

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/ipam"
	"github.com/pelago-dev/pelago/network/netnstest"
)

const (
	// seed says which addresses of ranges that are not tried whole are tried.
	seed = 20261124
	// few are tried of these, and whole of a range of IPv4 that is tried whole.
	few, whole = 256, 1 << 16
)

// every is how many addresses are tried of a range of IPv4 that is tried whole where PELAGO_TEST_ALL is
// 1, and else not.
func every() int {
	if os.Getenv("PELAGO_TEST_ALL") == "1" {
		return whole
	}
	return few
}

// attack is somebody who tries every address of a cluster from inside of its peer's.
type attack struct {
	name string
	*netnstest.Place
	from func(to netip.Addr) netip.Addr
	// of is the cluster it is in, and against the other one.
	of, against *side
	// guard is the side whose gateway it comes as far as, and the other one is open if it can be.
	guard *side
	// most is how many addresses of a range it tries.
	most int
	// allowed are the addresses of the other cluster that it may reach, and through those of doors it may begin
	// connections alone.
	allowed, doors []netip.Addr
	reason         string
	// bridges are those of its node, if it is a pod.
	bridges []netip.Addr
}

// walked is the world in which walks are.
type walked struct {
	*world
	other, host *foe
	door        netip.Addr
	next        uint32
}

// newWalked is rome, one of whose pods runs at milan and calls one of rome's, and a tenant more of milan's
// and a provider more of rome's, both hostile, with a pod each there.
func newWalked(t *testing.T) *walked {
	t.Helper()
	w := &walked{world: newWorld(t), door: netip.MustParseAddr("10.43.0.2")}
	rome, milan := w.rome, w.milan
	w.other = w.newFoe(milan, "other", "192.0.2", 60, listenPort+1, Provider)
	w.host = w.newFoe(rome, "host", "192.0.4", 42, listenPort+2, Consumer)
	milan.reallocate(w.other)
	rome.reallocate(w.host)
	r, m := &rome.in.Peerings[0], &milan.in.Peerings[0]
	door := netip.AddrPortFrom(w.door, netnstest.Port)
	rome.Nodes[0].Listen()
	for _, v4 := range netnstest.Families {
		r.There, m.Here = append(r.There, own(0, 5, v4)), append(m.Here, own(0, 5, v4))
		r.Here, m.There = append(r.Here, own(0, 5, v4)), append(m.There, own(0, 5, v4))
		o, h := w.other.peering(), w.host.peering()
		o.Here, o.There = append(o.Here, own(1, 5, v4)), append(o.There, netnstest.PodAddr(60, 0, 5, v4))
		h.Here, h.There = append(h.Here, own(1, 6, v4)), append(h.There, own(1, 7, v4))
	}
	r.Doors = []dataplane.Door{{At: door, To: netip.AddrPortFrom(netnstest.NodeAddr(0, true), netnstest.Port), From: r.There[:1]}}
	m.There = append(m.There, w.door)
	for _, s := range []*side{rome, milan} {
		for i, n := range s.Nodes {
			hasty(n)
			s.agents[i].unbounded = true // what is told apart here is not how fast it comes
		}
	}
	w.guard(t, nil)
	for _, f := range []*foe{w.other, w.host} {
		f.pods = f.peering().There
		f.begin(t)
	}
	w.everywhere(t, nil) // lets all of them say what is wrong, however often
	w.alive(t)
	return w
}

// guard has one side guard, or both if it is nil, and the other let pass all that it may.
func (w *walked) guard(t *testing.T, by *side) {
	t.Helper()
	for _, s := range []*side{w.rome, w.milan} {
		s.in.Peerings[0].Limited = by == nil || by == s
		s.apply(t)
	}
}

// gatewayTo is the namespace of a side's gateway.
func (w *walked) gatewayTo(t *testing.T, s *side, peering string) *netnstest.Place {
	t.Helper()
	for _, a := range s.agents {
		names, err := a.held.List()
		a.node.Must(err)
		if slices.Contains(names, peering) {
			file, err := a.held.Open(peering)
			a.node.Must(err)
			return netnstest.OpenPlace(t, "gateway of "+s.Name+" to "+peering, file)
		}
	}
	t.Fatalf("%s has no gateway to %s", s.Name, peering)
	return nil
}

// TestCampaignWalk has everybody who might try every address of the other cluster: what may be reached answers,
// and nothing else does or gets a packet.
func TestCampaignWalk(t *testing.T) {
	t.Parallel()
	w := newWalked(t)
	for _, a := range w.attacks(t) {
		t.Run(fmt.Sprintf("%s, guarded by %s", a.name, a.guard.Name), func(t *testing.T) { w.inside(t, a) })
	}
	w.guard(t, nil)
	t.Run("the gateway of a hostile tenant", func(t *testing.T) { w.outside(t, w.other, few, own(1, 5, true), own(1, 5, false)) })
	t.Run("the gateway of a hostile provider", func(t *testing.T) { w.outside(t, w.host, every(), own(1, 6, true), own(1, 6, false)) })
}

// attacks are all of them from inside of the two clusters.
func (w *walked) attacks(t *testing.T) (all []attack) {
	t.Helper()
	rome, milan := w.rome, w.milan
	served := []netip.Addr{milan.seen(t, own(0, 5, true)), milan.seen(t, own(0, 5, false))}
	offloaded := []netip.Addr{rome.seen(t, own(0, 5, true)), rome.seen(t, own(0, 5, false))}
	doors := []netip.Addr{milan.seen(t, w.door)}
	add := func(a attack, by *side, most int) {
		a.against, a.guard, a.most = a.of.against(w), by, most
		all = append(all, a)
	}
	pod := func(name, reason string, of *side, p *netnstest.Place, i, last int, allowed, doors []netip.Addr) attack {
		from := func(to netip.Addr) netip.Addr { return own(i, last, to.Is4()) }
		return attack{name: name, Place: p, from: from, of: of, allowed: allowed, doors: doors, reason: reason, bridges: []netip.Addr{own(i, 1, true), own(i, 1, false)}}
	}
	process := func(name, reason string, of *side, i int, allowed []netip.Addr) attack {
		return attack{name: name, Place: of.Nodes[i].Place, of: of, allowed: allowed, reason: reason, from: func(to netip.Addr) netip.Addr {
			if contains(w.publics(of.against(w)), to) {
				return netip.MustParseAddr(outside(of.network(w), i))
			}
			return netnstest.NodeAddr(i, to.Is4())
		}}
	}
	called := pod("the consumer's pod at the provider", "it was offloaded", milan, milan.Nodes[0].Pod, 0, 5, served, doors)
	third := pod("a third tenant's pod at the provider", "it is another tenant's", milan, milan.Nodes[1].Pod, 1, 5, nil, nil)
	stray := pod("a pod of the provider's own", "it is in no offloaded namespace", milan, milan.Nodes[0].Other, 0, 6, nil, nil)
	home := pod("a pod of home's in no offloaded namespace", "all of home may call what was offloaded", rome, rome.Nodes[1].Other, 1, 6, offloaded, nil)
	// Each as far as the other cluster's gateway, and as its own would keep it, were the other one open.
	for _, a := range []attack{third, stray} {
		add(a, rome, every())
		add(a, milan, few)
	}
	for _, a := range []attack{called, home, process("a process on home's node", "nodes of home may as its pods", rome, 1, offloaded)} {
		add(a, rome, few)
		add(a, milan, few)
	}
	// The provider's gateway never lets its nodes pass.
	add(process("a process on the provider's first node", "nodes of a provider never may", milan, 0, nil), milan, every())
	add(process("a process on the provider's second node", "nodes of a provider never may", milan, 1, nil), milan, few)
	return all
}

// against is the other side.
func (s *side) against(w *walked) *side {
	if s == w.rome {
		return w.milan
	}
	return w.rome
}

// network is that of a side's nodes.
func (s *side) network(w *walked) string {
	if s == w.rome {
		return "198.51.100"
	}
	return "203.0.113"
}

// publics are the addresses by which the internet calls a side's nodes.
func (w *walked) publics(s *side) []netip.Prefix { return prefixes(s.network(w) + ".0/24") }

// places are a side's, which must get nothing: its nodes, pods and gateways to others.
func (w *walked) places(t *testing.T, s *side, besides string) (all []*netnstest.Place) {
	t.Helper()
	for _, n := range s.Nodes {
		all = append(all, n.Place, n.Pod, n.Other)
	}
	for _, p := range s.in.Peerings {
		if p.Key != besides {
			all = append(all, w.gatewayTo(t, s, p.Key))
		}
	}
	return all
}

// addresses are those of a cluster by their own names.
func (w *walked) addresses(s *side, most int) []step {
	there := "10.43.0.1 10.43.0.2 fd43::1 fd43::2 192.168.0.1 192.168.0.2 fd19::1 fd19::2 10.96.0.1 10.96.0.10 fd96::1 fd96::a 169.254.0.1 169.254.0.2 169.254.0.4 169.254.0.5 fe80::1 fe80::2 " +
		"fd70:656c:6167:6f00::1 fd70:656c:6167:6f00::2 fd70:656c:6167:6f00::4 fd70:656c:6167:6f00::5 169.254.77.53 169.254.169.254 fd00:ec2::254 " + outside(s.network(w), 0) + " " + outside(s.network(w), 1)
	var besides []netip.Addr
	for _, text := range strings.Fields(there) {
		besides = append(besides, netip.MustParseAddr(text))
	}
	return steps(most, slices.Concat(ownPods, ownExternal, w.publics(s), nodeRanges(),
		prefixes("192.168.0.0/24", "fd19::/64", "10.96.0.0/16", "fd96::/112", "169.254.0.0/16", "fe80::/64", "fd70:656c:6167:6f00::/64")), append(besides, placesOfPods()...))
}

// nodeRanges are those of nodes, of IPv6: of IPv4 they are tried with all others.
func nodeRanges() []netip.Prefix {
	return []netip.Prefix{netnstest.NodeRange(0, false), netnstest.NodeRange(1, false)}
}

// placesOfPods are a cluster's bridges and pods, and one that is not.
func placesOfPods() (all []netip.Addr) {
	for _, v4 := range netnstest.Families {
		for i := range 2 {
			for _, last := range []int{1, 5, 6, 77} {
				all = append(all, own(i, last, v4))
			}
		}
	}
	return all
}

// views are the addresses of the other cluster as one of this is to call them.
func (a attack) views(t *testing.T) []step {
	t.Helper()
	var ranges []netip.Prefix
	for _, v := range a.of.in.Peerings[0].Views {
		ranges = append(ranges, v.View)
	}
	for _, p := range nodeRanges() {
		ranges = append(ranges, netip.PrefixFrom(a.of.seen(t, p.Addr()), p.Bits()))
	}
	var besides []netip.Addr
	for _, real := range append(placesOfPods(), ownExternal[0].Addr().Next(), ownExternal[0].Addr().Next().Next(), ownExternal[1].Addr().Next()) {
		besides = append(besides, a.of.seen(t, real))
	}
	return steps(a.most, ranges, besides)
}

// inside is the walk of an attacker in one of the clusters.
func (w *walked) inside(t *testing.T, a attack) {
	begun := time.Now()
	w.guard(t, a.guard)
	all := a.views(t)
	views := len(all)
	x := w.walk(slices.Concat(all, w.addresses(a.against, a.most)))
	var ends []func()
	for _, p := range w.places(t, a.against, a.of.Name) {
		ends = append(ends, x.ears.listen(t, p))
	}
	defer watch(t, w.gatewayTo(t, a.guard, a.guard.against(w).Name), x)()
	for _, bridge := range a.bridges { // both know each other's hardware address: answers to the first many would be lost
		if err := a.Ping(a.from(bridge), bridge, 32, netnstest.Patience); err != nil {
			t.Fatalf("%s, before its walk: %v", a.name, err)
		}
	}
	m := newMouth(t, a.Place)
	m.hears(t, x)
	tracking := []*netnstest.Place{a.of.Nodes[0].Place, a.of.Nodes[1].Place, w.gatewayTo(t, a.of, a.against.Name), w.gatewayTo(t, a.against, a.of.Name)}
	const most = 20000 // are tracked at once
	for i := 0; i < len(x.steps); i += most {
		x.say(t, a.from, i, min(i+most, views), true, m.say)
		x.say(t, a.from, max(i, views), min(i+most, len(x.steps)), false, m.say)
		w.settle(t) // answers find their way by what is tracked
		forgetConnections(tracking)
	}
	for range 3 { // on a busy machine answers are lost, as anywhere
		lost := a.unanswered(x, views)
		for _, i := range lost {
			x.met[i].Store(false)
			x.say(t, a.from, i, i+1, true, m.say)
		}
		if len(lost) == 0 {
			break
		}
		w.settle(t)
		forgetConnections(tracking)
	}
	for _, end := range ends {
		end()
	}
	t.Logf("%d addresses by %d manners, %d of these to the guard, %d refused by the kernel there, in %s", len(x.steps)/int(manners), manners, views, m.refused, time.Since(begun).Round(time.Millisecond))
	a.judge(t, w, x, views)
}

// walk is the next one.
func (w *walked) walk(all []step) *walk {
	x := newWalk(&ears{heard: map[uint32]map[string]bool{}}, w.next, all)
	w.next += uint32(len(all))
	return x
}

// settle waits until what was said before has come as far as it does.
func (w *walked) settle(t *testing.T) {
	t.Helper()
	for _, v4 := range netnstest.Families {
		for _, c := range []struct{ of, against *side }{{w.milan, w.rome}, {w.rome, w.milan}} {
			if err := c.of.Nodes[0].Pod.Ping(own(0, 5, v4), c.of.seen(t, own(0, 5, v4)), 32, netnstest.Patience); err != nil {
				t.Fatalf("after a walk, from %s: %v", c.of.Name, err)
			}
		}
	}
}

// unanswered are the steps that an answer is due to and that have none.
func (a attack) unanswered(x *walk, views int) (lost []int) {
	for i, s := range x.steps[:views] {
		due := slices.Contains(a.allowed, s.to) || slices.Contains(a.doors, s.to) && s.by == begins || a.guard == a.against && s.by == begins && isMapped(a.of, s.to)
		if due && x.reply(s) == (answer{}) {
			lost = append(lost, i)
		}
	}
	return lost
}

// judge looks at what came of all steps.
func (a attack) judge(t *testing.T, w *walked, x *walk, views int) {
	t.Helper()
	wrong := complaints{T: t}
	reached, public := 0, 0
	nodes := []netip.Addr{netip.MustParseAddr(outside(a.against.network(w), 0)), netip.MustParseAddr(outside(a.against.network(w), 1))}
	for i, s := range x.steps {
		heard := x.ears.at(x.first + uint32(i))
		reply := x.reply(s)
		switch {
		case i < views && (slices.Contains(a.allowed, s.to) || slices.Contains(a.doors, s.to) && s.by == begins):
			if reached++; reply.what != answers(s) || len(heard) == 0 {
				wrong.of("%s, which it may (%s): heard at %v, answered by %s", s, a.reason, heard, reply)
			}
		case i < views && a.guard == a.against && s.by == begins && isMapped(a.of, s.to):
			if reply.what != gone || len(heard) > 0 {
				wrong.of("%s, where nothing is mapped: heard at %v, answered by %s", s, heard, reply)
			}
		case i < views:
			if reply != (answer{}) || len(heard) > 0 {
				wrong.of("%s, which it may not (%s): heard at %v, answered by %s", s, a.reason, heard, reply)
			}
		case slices.Contains(nodes, s.to): // as from anywhere in the internet
			if public++; reply.what == "" || len(heard) == 0 || slices.ContainsFunc(heard, isPod) {
				wrong.of("%s, in the internet: heard at %v, answered by %s", s, heard, reply)
			}
		case len(heard) > 0 || reply.what != "" && !a.near(w, reply.of):
			wrong.of("%s: heard at %v, answered by %s", s, heard, reply)
		}
	}
	if n := len(a.allowed)*int(manners) + len(a.doors); reached != n || public != len(nodes)*int(manners) {
		wrong.of("%d steps of %d may reach somebody, and %d nodes by the internet", reached, n, public)
	}
	t.Logf("%d reached and answered, %d wrong", reached, wrong.count)
}

// near says whether an address is one of the attacker's own cluster, or the internet's router: it is nothing of the other cluster
// that has the same, as nothing was heard there.
func (a attack) near(w *walked, of netip.Addr) bool {
	router := netip.MustParseAddr
	return contains(ownPods, of) || of.IsLinkLocalUnicast() && of.Is6() || slices.Contains([]netip.Addr{
		netnstest.NodeAddr(0, true), netnstest.NodeAddr(1, true), netnstest.NodeAddr(0, false), netnstest.NodeAddr(1, false), netip.MustParseAddr("169.254.0.1"),
		netip.MustParseAddr(outside(a.of.network(w), 0)), netip.MustParseAddr(outside(a.of.network(w), 1)),
		router(outside(a.of.network(w), 0)).Next(), router(outside(a.of.network(w), 1)).Next(),
		router(outside(a.against.network(w), 0)).Next(), router(outside(a.against.network(w), 1)).Next(),
	}, of)
}

// isMapped says whether a view is one of an address that an owner may map, of which callers are told that nothing is there.
func isMapped(of *side, view netip.Addr) bool {
	for _, v := range of.in.Peerings[0].Views {
		for _, real := range ownExternal {
			if v.Real == real && v.View.Contains(view) {
				return contains(ipam.Mappable(v.View), view)
			}
		}
	}
	return false
}

// gone is what callers of these are told.
const gone = "TCP 0x14"

func isPod(place string) bool { return strings.HasPrefix(place, "pod") }

// answers is what a pod that is reached says.
func answers(s step) string {
	switch {
	case s.by == begins:
		return fmt.Sprintf("TCP %#x", netnstest.SYN|netnstest.ACK)
	case s.by == echo:
		return "echo"
	case s.to.Is4():
		return "ICMP 3/3"
	}
	return "ICMP 1/4"
}

// complaints says the first ones of many.
type complaints struct {
	*testing.T
	count int
}

func (c *complaints) of(format string, args ...any) {
	c.Helper()
	if c.count++; c.count <= 20 {
		c.Errorf(format, args...)
	}
}

// outside is the walk of a foe's gateway, from the pod that may speak, who may reach a few pods.
func (w *walked) outside(t *testing.T, f *foe, most int, allowed ...netip.Addr) {
	begun := time.Now()
	x := w.walk(w.addresses(f.victim, most))
	var ends []func()
	for _, s := range []*side{w.rome, w.milan} {
		for _, p := range w.places(t, s, f.key) {
			ends = append(ends, x.ears.listen(t, p))
		}
	}
	defer watch(t, w.gatewayTo(t, f.victim, f.key), x)()
	f.mu.Lock()
	f.walk = x
	f.mu.Unlock()
	from := func(to netip.Addr) netip.Addr {
		return f.pods[slices.IndexFunc(f.pods, func(p netip.Addr) bool { return p.Is4() == to.Is4() })]
	}
	x.say(t, from, 0, len(x.steps), true, func(_ netip.Addr, packet []byte) { f.out <- packet })
	w.settle(t)
	for _, end := range ends {
		end()
	}
	wrong := complaints{T: t}
	reached := 0
	for i, s := range x.steps {
		heard, want := x.ears.at(x.first+uint32(i)), ""
		reply := x.reply(s)
		switch is := slices.Contains(allowed, s.to); {
		case is:
			reached++
			want = answers(s)
		case s.by == begins && slices.ContainsFunc(ownExternal, func(p netip.Prefix) bool { return contains(ipam.Mappable(p), s.to) }):
			want = gone
		}
		if reply.what != want || (len(heard) > 0) != slices.Contains(allowed, s.to) {
			wrong.of("%s: heard at %v, answered by %s and not by %q", s, heard, reply, want)
		}
	}
	if n := len(allowed) * int(manners); reached != n {
		wrong.of("%d steps of %d may reach somebody", reached, n)
	}
	t.Logf("%d addresses by %d manners in %s: %d reached and answered, %d wrong", len(x.steps)/int(manners), manners, time.Since(begun).Round(time.Millisecond), reached, wrong.count)
}
