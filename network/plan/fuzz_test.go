package plan

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/ipam"
	"github.com/pelago-dev/pelago/network/tunnel"
)

// source makes input of bytes: of few different things, so that they are in each other's way.
type source []byte

func (s *source) next() byte {
	if len(*s) == 0 {
		return 0
	}
	b := (*s)[0]
	*s = (*s)[1:]
	return b
}

// few is a small number, of things that there are.
func (s *source) few() int { return int(s.next() % 4) }

func (s *source) addr() netip.Addr {
	switch kind, last := s.next()%16, s.next(); kind {
	case 0:
		return netip.Addr{}
	case 1:
		return netip.MustParseAddr("fe80::1%eth0")
	case 2:
		return netip.MustParseAddr("::ffff:10.0.0.1")
	case 3, 4, 5:
		return netip.AddrFrom16([16]byte{0: 0xfd, 1: last % 2, 15: last / 2})
	case 6:
		return netip.AddrFrom4([4]byte{127, 0, 0, last})
	case 7:
		return netip.AddrFrom4([4]byte{255, 255, 255, 255})
	default:
		return netip.AddrFrom4([4]byte{10, last % 4, last / 64, last})
	}
}

func (s *source) prefix() netip.Prefix {
	p := netip.PrefixFrom(s.addr(), int(s.next())%130-1)
	if s.next()%8 > 0 && p.IsValid() {
		return p.Masked()
	}
	return p
}

func many[T any](s *source, one func() T) (out []T) {
	for range s.few() {
		out = append(out, one())
	}
	return out
}

func (s *source) name() string {
	return []string{"", "a", "b", "c", "d", "e\x00", "ffffffffffffffffffff", "a b"}[s.next()%8]
}

func (s *source) node() Node {
	return Node{
		Name: s.name(), Addresses: many(s, s.addr), Alive: s.next()%4 > 0, MTU: int(s.next()) * 10,
		Ranges: many(s, s.prefix), Pods: many(s, s.addr),
	}
}

func (s *source) view() ipam.View {
	v := ipam.View{Real: s.prefix(), View: s.prefix()}
	if s.next()%8 > 0 && v.Real.IsValid() {
		v.View = netip.PrefixFrom(v.View.Addr(), v.Real.Bits()).Masked()
	}
	return v
}

func (s *source) peering() Peering {
	return Peering{
		Key: s.name(), Role: []Role{Consumer, Provider, ""}[s.next()%3], Views: many(s, s.view), Transit: many(s, s.prefix),
		Limited: s.next()%2 > 0, Here: many(s, s.addr), There: many(s, s.addr), ListenPort: uint16(s.next() % 3),
		Peer: tunnel.PublicKey{s.next() % 3}, Guard: s.guard(), Line: s.line(), Endpoints: many(s, s.endpoint),
	}
}

func (s *source) endpoint() string {
	return []string{"", "a:1", "10.1.1.1:1", "[fd00::1]:1", "x:y", s.addr().String() + ":7"}[s.next()%6]
}

// paths are those of a peering's own ranges, most of them.
func (s *source) paths(in Input, p Peering) []Path {
	prefix := func() netip.Prefix {
		if n := len(p.Views); n > 0 && s.next()%4 > 0 {
			return p.Views[int(s.next())%n].Real
		}
		return s.prefix()
	}
	own := func() ipam.View {
		v := s.view()
		if n := len(in.Pods); n > 0 && s.next()%4 > 0 {
			v.Real = in.Pods[int(s.next())%n]
			v.View = netip.PrefixFrom(v.View.Addr(), v.Real.Bits()).Masked()
		}
		return v
	}
	return many(s, func() Path {
		return Path{
			Key: s.name() + ".p", Prefixes: many(s, prefix), Own: many(s, own), Here: many(s, s.addr), There: many(s, s.addr), First: s.next()%2 > 0,
			Alive: s.next()%2 > 0, ListenPort: uint16(s.next() % 5), Peer: tunnel.PublicKey{s.next() % 3}, Endpoints: many(s, s.endpoint),
		}
	})
}

func (s *source) guard() *dataplane.Guard {
	if s.next()%2 == 0 {
		return nil
	}
	pair := func() netip.AddrPort { return netip.AddrPortFrom(s.addr(), uint16(s.next()%4)) }
	return &dataplane.Guard{
		HereIn: many(s, s.addr), HereOut: many(s, s.addr), ThereIn: many(s, s.addr), ThereOut: many(s, s.addr), Free: many(s, pair),
		Entries: many(s, func() dataplane.Entry {
			return dataplane.Entry{
				Name: s.name(), There: s.next()%2 > 0, Out: s.next()%2 > 0, Pods: many(s, s.addr), Peers: many(s, s.prefix),
				Protocol: []uint8{0, 6, 17, 200}[s.next()%4], Named: s.next()%4 == 0, Pairs: many(s, pair),
				Ports: many(s, func() dataplane.Ports { return dataplane.Ports{First: uint16(s.next() % 32), Last: uint16(s.next())} }),
			}
		}),
	}
}

func (s *source) line() *dataplane.Line {
	if s.next()%2 == 0 {
		return nil
	}
	port := func() uint16 { return uint16(s.next() % 4) }
	return &dataplane.Line{
		Views: many(s, s.addr), Callers: many(s, s.addr), Ports: many(s, port),
		Doors: many(s, func() dataplane.LineDoor {
			return dataplane.LineDoor{Port: port(), To: netip.AddrPortFrom(s.addr(), port())}
		}),
	}
}

func (s *source) input() Input {
	in := Input{Node: s.name(), Pods: many(s, s.prefix), External: many(s, s.prefix)}
	for range s.next() % 8 {
		in.Nodes = append(in.Nodes, s.node())
	}
	for range s.next() % 6 {
		in.Peerings = append(in.Peerings, s.peering())
	}
	for i := range in.Peerings {
		in.Peerings[i].Paths = s.paths(in, in.Peerings[i])
	}
	return in
}

// said is all of an input.
func said(in Input) string {
	text := fmt.Sprint(in.Nodes, in.Pods, in.External)
	for _, p := range in.Peerings {
		if p.Guard != nil {
			text += fmt.Sprint(*p.Guard)
		}
		if p.Line != nil {
			text += fmt.Sprint(*p.Line)
		}
		p.Guard, p.Line = nil, nil
		text += fmt.Sprint(p)
	}
	return text
}

// FuzzCompute holds that whatever is known, the data plane takes the plan of each node, that
// they agree, and that the input is left as it was.
func FuzzCompute(f *testing.F) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		b := make([]byte, 100+random.IntN(1400))
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		f.Add(b)
	}
	all := func(b []byte) []Input {
		s, more, sound := source(b), source(b), pathed() // whose peerings can all be, and most of its paths
		sound.Peerings[1].Paths = append(sound.Peerings[1].Paths, more.paths(sound, sound.Peerings[1])...)
		return []Input{s.input(), sound}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		again := all(b)
		for i, in := range all(b) {
			holds(t, in, again[i])
		}
	})
}

// holds tries one input, of which want is the same again.
func holds(t *testing.T, in, want Input) {
	t.Helper()
	gateways := Compute(in).Gateways
	for _, n := range append(in.Nodes, Node{Name: in.Node}) {
		in.Node = n.Name
		p := Compute(in)
		if err := p.Config.Check(); err != nil && n.Name != "" {
			t.Errorf("%q: %v", n.Name, err)
		}
		if d := cmp.Diff(gateways, p.Gateways); d != "" {
			t.Errorf("%q: does not agree with the first: %s", n.Name, d)
		}
		for _, c := range p.Tunnels {
			if len(c.Config.Name) > 15 || c.Config.MTU < 1280 || c.Config.Peer.IsZero() {
				t.Errorf("%q: tunnel %+v", n.Name, c)
			}
		}
		for _, problem := range p.Problems {
			if problem.Object == "" || problem.Text == "" {
				t.Errorf("problem %q", problem)
			}
		}
	}
	if a, b := said(in), said(want); a != b {
		t.Errorf("the input was %s and is %s", b, a)
	}
}
