package plan

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/network/ipam"
	"github.com/pelago-dev/pelago/network/netnstest"
	"github.com/pelago-dev/pelago/network/tunnel"
)

// foe is a peer of a side whose gateway is the test's.
type foe struct {
	key      string
	victim   *side
	ranges   []netip.Prefix
	at       *netnstest.Place
	secret   tunnel.Secret
	endpoint netip.Addr
	out      chan []byte
	// pods are those whose packets may be let in, and of is by what the victim knows its ranges.
	pods []netip.Addr
	of   string
	// own are the views by which the victim's pods are called on a path, of which the foe is the
	// other end.
	own []ipam.View

	mu      sync.Mutex
	answers map[uint32]string
	// accepted are those that began a connection.
	accepted map[uint32]bool
	// others are packets that answer nothing it has said.
	others []string
	// walk is what it does instead, nil if nothing.
	walk *walk
}

// newFoe gives a side one more peer, whose pods are in Range of a number.
func (w *world) newFoe(s *side, key, network string, number, port int, role Role) *foe {
	w.t.Helper()
	f := w.newFoeAt(s, key, network, number)
	s.in.Peerings = append(s.in.Peerings, Peering{Key: key, Role: role, Limited: true, ListenPort: uint16(port), Secret: s.Name + "-key",
		Peer: f.secret.Public(), Endpoints: []string{netip.AddrPortFrom(f.endpoint, listenPort).String()}})
	return f
}

// newFoeAt makes a foe that is not known to anybody yet.
func (w *world) newFoeAt(s *side, key, network string, number int) *foe {
	w.t.Helper()
	f := &foe{key: key, of: key, victim: s, at: netnstest.NewPlace(w.t, key), endpoint: netip.MustParseAddr(outside(network, 0)),
		out: make(chan []byte), answers: map[uint32]string{}, accepted: map[uint32]bool{}}
	f.ranges = append(f.ranges, netnstest.Range(number, true), netnstest.Range(number, false), prefixes(fmt.Sprintf("10.%d.0.0/24", number+1))[0])
	f.at.Join("eth1", w.router, key, 1500)
	f.at.Address("eth1", f.endpoint.String()+"/30")
	w.router.Address(key, fmt.Sprintf("%s.2/30", network))
	f.at.Route("0.0.0.0/0", fmt.Sprintf("%s.2", network), "eth1")
	var err error
	f.secret, err = tunnel.NewSecret()
	f.at.Must(err)
	return f
}

// newPathFoe makes a foe that is the other end of a path that a consumer of a side has arranged. Both are called
// by what the side calls the other: what leaves looks like what arrives.
func (w *world) newPathFoe(s *side, key, consumer, network string, number int) *foe {
	w.t.Helper()
	f := w.newFoeAt(s, key, network, number)
	f.of, f.ranges = consumer, f.ranges[:2]
	for _, v4 := range netnstest.Families {
		f.pods = append(f.pods, netnstest.PodAddr(number, 0, 5, v4))
	}
	return f
}

// arrange gives the victim the path, once its views are known.
func (f *foe) arrange(t *testing.T, here []netip.Addr, port uint16) {
	t.Helper()
	for i, r := range f.ranges {
		as, ok := f.victim.table.View(f.of, r.Addr())
		if !ok {
			t.Fatalf("%s has no view of %s", f.victim.Name, r)
		}
		f.own = append(f.own, ipam.View{Real: ownPods[i], View: netip.PrefixFrom(as, r.Bits())})
	}
	p := &f.victim.in.Peerings[slices.IndexFunc(f.victim.in.Peerings, func(p Peering) bool { return p.Key == f.of })]
	p.Paths = append(p.Paths, Path{Key: f.key, Prefixes: f.ranges, Own: f.own, Here: here, ListenPort: port, Secret: f.victim.Name + "-key", Alive: true,
		Peer: f.secret.Public(), Endpoints: []string{netip.AddrPortFrom(f.endpoint, listenPort).String()}})
}

// called is a pod of the victim's as the foe calls it.
func (f *foe) called(real netip.Addr) netip.Addr {
	table := ipam.NewTable(map[string]ipam.Result{f.key: {Views: f.own}})
	a, _ := table.View(f.key, real)
	return a
}

// reallocate decides the views of all peers of a side, of which those that are no foes have its own ranges.
func (s *side) reallocate(foes ...*foe) {
	ranges := map[string][]netip.Prefix{}
	for _, p := range s.in.Peerings {
		ranges[p.Key] = slices.Concat(ownPods, ownExternal)
	}
	for _, f := range foes {
		if f.of != f.key {
			ranges[f.of] = append(ranges[f.of], f.ranges...)
			continue
		}
		ranges[f.key] = f.ranges
	}
	s.allocated(ranges)
}

// begin opens the foe's end of the tunnel.
func (f *foe) begin(t *testing.T) {
	t.Helper()
	h := &netnstest.Hostile{Take: f.take, Feed: func(b []byte, wait bool) int {
		if !wait {
			return 0
		}
		return copy(b, <-f.out)
	}}
	end, err := h.Begin(f.at.File, netnstest.Tunnel{Private: f.secret.Reveal(), Peer: [32]byte(f.victim.secret.Public()), Port: listenPort})
	f.at.Must(err)
	t.Cleanup(func() {
		close(f.out)
		end()
	})
}

// peering is the foe's at its victim.
func (f *foe) peering() *Peering {
	return &f.victim.in.Peerings[slices.IndexFunc(f.victim.in.Peerings, func(p Peering) bool { return p.Key == f.key })]
}

// marker begins what tells the packets of the campaign from all others.
var marker = []byte("PELAGO-CAMPAIGN")

func markerOf(id uint32) []byte { return binary.BigEndian.AppendUint32(slices.Clone(marker), id) }

// marked finds markers in what was captured.
func marked(b []byte) (ids []uint32) {
	for {
		at := bytes.Index(b, marker)
		if at < 0 || len(b) < at+len(marker)+4 {
			return ids
		}
		b = b[at+len(marker):]
		ids = append(ids, binary.BigEndian.Uint32(b))
	}
}

// firstPort is the source port of the first packet: each has one of its own.
const firstPort = 1024

// take notes what comes out of the foe's end of the tunnel.
func (f *foe) take(b []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, at, from := b[9], 20, netip.AddrFrom4([4]byte(b[12:16]))
	if b[0]>>4 == 6 {
		p, at, from = b[6], 40, netip.AddrFrom16([16]byte(b[8:24]))
	}
	what := fmt.Sprintf("protocol %d of %s", p, from)
	if f.walk != nil {
		f.walk.replied(from.Is4(), p, from, b[at:])
		return
	}
	switch {
	case b[0]>>4 == 6 && b[24] == 0xff: // what a device says of itself to its neighbours
		return
	case p == unix.IPPROTO_ICMP || p == unix.IPPROTO_ICMPV6:
		what = fmt.Sprintf("ICMP %d/%d of %s", b[at], b[at+1], from)
		if quoted, is := quotes(b); is && f.own != nil && contains(ownPods, quoted) {
			f.others = append(f.others, fmt.Sprintf("%s, about a packet to %s, which nobody there knows", what, quoted))
		}
	case p == unix.IPPROTO_TCP:
		what = fmt.Sprintf("TCP %#x of %s", b[at+13], from)
	case p == unix.IPPROTO_UDP && binary.BigEndian.Uint16(b[at+2:]) == ProbePort && consumerEnd.Prev().Less(from) && from.Less(providerEnd.Next()):
		return // the victim's probe
	}
	ids := marked(b)
	if len(ids) == 0 && p == unix.IPPROTO_TCP || p == unix.IPPROTO_SCTP {
		ids = []uint32{uint32(binary.BigEndian.Uint16(b[at+2:])) - firstPort}
	}
	for _, id := range ids {
		f.answers[id] = what
		if p == unix.IPPROTO_TCP && b[at+13]&netnstest.SYN != 0 {
			f.accepted[id] = true
		}
	}
	if len(ids) == 0 {
		f.others = append(f.others, what)
	}
}

// quotes is for whom the packet was that an error of ICMP is about.
func quotes(b []byte) (to netip.Addr, is bool) {
	const at6, at4 = 40 + 8 + 24, 20 + 8 + 16
	switch six := b[0]>>4 == 6; {
	case six && len(b) >= at6+16:
		return netip.AddrFrom16([16]byte(b[at6 : at6+16])), b[40] < 128
	case !six && len(b) >= at4+4:
		return netip.AddrFrom4([4]byte(b[at4 : at4+4])), b[20] == 3 || b[20] == 11 || b[20] == 12
	}
	return to, false
}

func (f *foe) answer(id uint32) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.answers[id]
}

func (f *foe) opened(id uint32) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.accepted[id]
}

// ears hear every packet of the campaign on all devices of some places.
type ears struct {
	mu    sync.Mutex
	heard map[uint32]map[string]bool
}

func (e *ears) at(id uint32) (places []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for place := range e.heard[id] {
		places = append(places, place)
	}
	slices.Sort(places)
	return places
}

// listen hears at a place from now on, until end is called or the test ends. It is deaf to what is sealed for a tunnel, as
// none of the campaign's can be seen in that.
func (e *ears) listen(t *testing.T, p *netnstest.Place) (end func()) {
	t.Helper()
	fd := socket(t, p, unix.AF_PACKET, allProtocols)
	if p.Has("eth1") {
		unsealed(t, p, fd)
	}
	stop := read(t, fd, func(b []byte, _ unix.Sockaddr) {
		for _, id := range marked(b) {
			e.hear(id, p.Name)
		}
	})
	end = sync.OnceFunc(func() {
		stats, err := unix.GetsockoptTpacketStats(fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
		if err != nil || stats.Drops > 0 {
			t.Errorf("the ear at %s missed %d packets: %v", p.Name, stats.Drops, err)
		}
		stop()
	})
	t.Cleanup(end)
	return end
}

// unsealed keeps from a node's socket the datagrams of tunnels.
func unsealed(t *testing.T, p *netnstest.Place, fd int) {
	t.Helper()
	const frame, most = 14, 5 // tunnels here
	program, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: frame - 2, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.ETH_P_IP, SkipTrue: 7},
		bpf.LoadAbsolute{Off: frame + 9, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_UDP, SkipTrue: 5},
		bpf.LoadMemShift{Off: frame},
		bpf.LoadIndirect{Off: frame + 2, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: listenPort, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: listenPort + most, SkipTrue: 1},
		bpf.RetConstant{Val: 0},
		bpf.RetConstant{Val: 1 << 18},
	})
	p.Must(err)
	filters := make([]unix.SockFilter, len(program))
	for i, f := range program {
		filters[i] = unix.SockFilter{Code: f.Op, Jt: f.Jt, Jf: f.Jf, K: f.K}
	}
	p.Must(unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filters)), Filter: &filters[0]}))
}

func (e *ears) hear(id uint32, place string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.heard[id] == nil {
		e.heard[id] = map[string]bool{}
	}
	e.heard[id][place] = true
}

// everywhere is every place of the clusters, and gateways of others than the foes.
func (w *world) everywhere(t *testing.T, besides []string) (places []*netnstest.Place) {
	t.Helper()
	places = append(places, w.router)
	for _, s := range []*side{w.rome, w.milan} {
		for i, n := range s.Nodes {
			places = append(places, n.Place, n.Pod, n.Other)
			names, err := s.agents[i].held.List()
			n.Must(err)
			for _, name := range names {
				file, err := s.agents[i].held.Open(name)
				n.Must(err)
				p := netnstest.OpenPlace(t, "gateway of "+s.Name+" to "+name, file)
				if unlimited(p); !slices.Contains(besides, name) {
					places = append(places, p)
				}
			}
		}
	}
	for _, p := range places {
		unlimited(p)
	}
	return places
}

// unlimited lets a place send errors however many: what were not sent would hide what is wrong.
func unlimited(p *netnstest.Place) {
	p.Sysctl("ipv4/icmp_ratelimit", "0")
	p.Sysctl("ipv4/icmp_msgs_per_sec", "1000000")
	p.Sysctl("ipv4/icmp_msgs_burst", "1000000")
	p.Sysctl("ipv6/icmp/ratelimit", "0")
}
