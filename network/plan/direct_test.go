package plan

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/network/health"
	"github.com/pelago-dev/pelago/network/ipam"
	"github.com/pelago-dev/pelago/network/netns"
	"github.com/pelago-dev/pelago/network/netnstest"
)

const (
	pathKey  = "milan-oslo"
	pathPort = listenPort + 5
	echoPort = 7000
)

// shortcut is rome with two providers that have a path between them.
type shortcut struct {
	*chained
}

func newShortcut(t *testing.T) *shortcut {
	t.Helper()
	w := &shortcut{newChained(t)}
	w.join(w.milan, "milan", w.key, w.oslo, "192.0.2", true)
	w.join(w.oslo, w.key, "milan", w.milan, "203.0.113", false)
	w.milan.apply(t)
	w.oslo.apply(t)
	w.answered(t, true)
	return w
}

// join gives a provider the path to the other one: as rome knows it, and the other.
func (w *shortcut) join(s *side, key, other string, peer *side, network string, first bool) {
	w.t.Helper()
	p := &s.in.Peerings[0]
	path := Path{Key: pathKey, Prefixes: w.rome.pods(w.t, other), Here: p.Here, There: p.There, First: first, ListenPort: pathPort, Secret: s.Name + "-key", Peer: peer.secret.Public()}
	for i, view := range w.rome.pods(w.t, key) {
		path.Own = append(path.Own, ipam.View{Real: ownPods[i], View: view})
	}
	for i := range peer.Nodes {
		path.Endpoints = append(path.Endpoints, fmt.Sprintf("%s:%d", outside(network, i), pathPort))
	}
	p.Paths = []Path{path}
}

// probes are those of the path at a provider.
func (w *shortcut) probes(t *testing.T, s *side) health.Report {
	t.Helper()
	r := s.agents[s.gateway(t)].running[pathKey]
	if r == nil {
		t.Fatalf("%s has no tunnel of the path", s.Name)
	}
	return r.prober.Report()
}

// answered waits until the path is alive, or not, by the probes of both.
func (w *shortcut) answered(t *testing.T, alive bool) {
	t.Helper()
	netnstest.Await(t, fmt.Sprintf("probes of both say that the path is alive: %t", alive), netnstest.Patience, func() bool {
		m, o := w.probes(t, w.milan), w.probes(t, w.oslo)
		return m.Known && o.Known && m.Alive == alive && o.Alive == alive
	})
}

// use has a provider send by the path, or by rome again.
func (w *shortcut) use(t *testing.T, s *side, path bool) {
	t.Helper()
	s.in.Peerings[0].Paths[0].Alive = path
	s.apply(t)
}

// passed is how many packets went through gateways: rome's, and those of the path.
func (w *shortcut) passed(t *testing.T) (rome, path uint64) {
	t.Helper()
	for _, s := range []*side{w.rome, w.milan, w.oslo} {
		for _, a := range s.agents {
			all, err := a.kernel.Passed(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range all {
				switch {
				case s == w.rome:
					rome += p.Sent + p.Received
				case p.Peering == pathKey:
					path += p.Sent + p.Received
				}
			}
		}
	}
	return rome, path
}

// at is by which address milan sees a pod of oslo's, and seenAs by which oslo sees the caller.
func (w *shortcut) at(i, last int, v4 bool) netip.Addr {
	return w.milan.seen(w.t, w.chained.at(w.t, w.key, own(i, last, v4)))
}

func (w *shortcut) seenAs(v4 bool) netip.Addr {
	return w.oslo.seen(w.t, w.chained.at(w.t, "milan", own(0, 5, v4)))
}

// talk is what goes on between the two pods while paths come and go.
type talk struct {
	pulses []*pulse
	echoes []net.Conn
}

// listens answers over UDP, at one place in both families.
func listens(t *testing.T, p *netnstest.Place) {
	t.Helper()
	var s *net.UDPConn
	p.In(func() (err error) {
		s, err = net.ListenUDP("udp", &net.UDPAddr{Port: echoPort})
		return err
	})
	t.Cleanup(func() { _ = s.Close() })
	go func() {
		for b := make([]byte, 100); ; {
			n, at, err := s.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			_, _ = s.WriteToUDPAddrPort(b[:n], at)
		}
	}()
}

func (w *shortcut) begin(t *testing.T) *talk {
	t.Helper()
	k := &talk{}
	for _, v4 := range netnstest.Families {
		c, seen, err := w.caller.Dial(w.at(1, 5, v4), netnstest.Patience)
		if err != nil {
			t.Fatal(err)
		}
		if seen != w.seenAs(v4).String() {
			t.Errorf("seen as %s, want %s", seen, w.seenAs(v4))
		}
		k.pulses = append(k.pulses, newPulse(t, c))
		if err := netns.In(w.caller.File, func() (err error) {
			c, err = net.Dial("udp", netip.AddrPortFrom(w.at(1, 5, v4), echoPort).String())
			return err
		}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		k.echoes = append(k.echoes, c)
	}
	return k
}

// speaks waits until all connections of TCP have said as much again.
func (k *talk) speaks(t *testing.T, why string) {
	t.Helper()
	const more = 20
	var since []int
	heard := func(p *pulse) int {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.err != nil {
			t.Fatalf("%s: a connection did not survive: %v", why, p.err)
		}
		return len(p.heard)
	}
	for _, p := range k.pulses {
		since = append(since, heard(p))
	}
	netnstest.Await(t, why+": all connections speak", 2*netnstest.Patience, func() bool {
		for i, p := range k.pulses {
			if heard(p) < since[i]+more {
				return false
			}
		}
		return true
	})
}

// answers asks over UDP, by the sockets that there were from the first. A busy machine may lose a datagram or
// two; one that goes a wrong way loses all.
func (k *talk) answers(t *testing.T, why string) {
	t.Helper()
	const questions = 3
	for _, c := range k.echoes {
		var err error
		for i := range questions {
			question := fmt.Sprintf("%s (%d)", why, i)
			if err = asked(c, question, netnstest.Patience/questions); err == nil {
				break
			}
			t.Logf("%s: no answer: %v", question, err)
		}
		if err != nil {
			t.Errorf("%s: no answer to %d datagrams: %v", why, questions, err)
		}
	}
}

// asked sends one datagram and waits for the same.
func asked(c net.Conn, question string, limit time.Duration) error {
	_ = c.SetDeadline(time.Now().Add(limit))
	if _, err := c.Write([]byte(question)); err != nil {
		return err
	}
	for b := make([]byte, 100); ; {
		n, err := c.Read(b)
		if err != nil || string(b[:n]) == question { // and not one to an earlier question
			return err
		}
	}
}

// by holds that what is said goes by the path alone, or by rome alone.
func (w *shortcut) by(t *testing.T, k *talk, why string, path bool) {
	t.Helper()
	k.speaks(t, why) // and what was under way another way has come
	k.answers(t, why)
	rome, direct := w.passed(t)
	k.speaks(t, why)
	k.answers(t, why)
	for _, v4 := range netnstest.Families {
		w.seen(t, w.caller, w.at(1, 5, v4), w.seenAs(v4))
	}
	romeNow, directNow := w.passed(t)
	const noise = 10 // what devices say of themselves
	unused, used := directNow-direct, romeNow-rome
	if path {
		unused, used = used, unused
	}
	if unused > noise || used < 10*noise {
		t.Errorf("%s: rome's gateways have passed %d more, and those of the path %d", why, romeNow-rome, directNow-direct)
	}
}

// TestDirectPath has a pod at one provider of rome's call one at another while their packets go by rome, by a
// path between the two, and by neither for a moment.
func TestDirectPath(t *testing.T) {
	t.Parallel()
	w := newShortcut(t)
	listens(t, w.called)
	both := [][]*side{{w.milan, w.oslo}, {w.oslo, w.milan}}
	k := w.begin(t)
	w.by(t, k, "by rome", false)
	t.Run("what is open moves to it and back, whoever goes first", func(t *testing.T) {
		for _, order := range both {
			for _, path := range []bool{true, false} {
				for _, s := range order {
					moved := time.Now()
					w.use(t, s, path)
					why := fmt.Sprintf("%s goes by the path: %t", s.Name, path)
					k.speaks(t, why)
					for _, p := range k.pulses {
						if worst := p.worst(moved); worst > byteWithin {
							t.Errorf("%s: %s without a byte", why, worst)
						} else {
							t.Logf("%s: %s without a byte", why, worst.Round(time.Millisecond))
						}
					}
				}
				w.by(t, k, fmt.Sprintf("after %s both, by the path: %t", order[0].Name, path), path)
			}
		}
	})
	for _, s := range both[0] {
		w.use(t, s, true)
	}
	t.Run("who may not by rome may not by the path", w.denied)
	t.Run("much goes through, and large packets", func(t *testing.T) {
		for _, v4 := range netnstest.Families {
			w.transfer(t, w.at(1, 5, v4))
			if err := w.caller.Ping(own(0, 5, v4), w.at(1, 5, v4), 9000, netnstest.Patience); err != nil {
				t.Errorf("a packet larger than any MTU: %v", err)
			}
		}
	})
	t.Run("it dies, and what is open goes by rome", func(t *testing.T) {
		heal := w.cut()
		died := time.Now()
		for _, s := range both[0] {
			netnstest.Await(t, s.Name+" finds the path dead", netnstest.Patience, func() bool { return !w.probes(t, s).Alive })
			w.use(t, s, false)
		}
		w.by(t, k, "after the path has died", false)
		for _, p := range k.pulses {
			if worst := p.worst(died); worst > health.DeadWithin+byteWithin {
				t.Errorf("%s without a byte", worst)
			} else {
				t.Logf("%s without a byte", worst.Round(time.Millisecond))
			}
		}
		heal()
		w.answered(t, true)
		for _, s := range both[1] {
			w.use(t, s, true)
		}
		w.by(t, k, "after it has come back", true)
	})
	t.Run("how long a round trip takes", w.compare)
	t.Run("it goes on without rome", func(t *testing.T) {
		for _, p := range k.pulses {
			p.mu.Lock()
			p.behind = 0
			p.mu.Unlock()
		}
		for i, a := range w.rome.agents {
			for key := range a.running {
				a.stop(key)
			}
			w.router.Up(w.rome.Nodes[i].Name, false)
		}
		for _, s := range both[0] {
			netnstest.Await(t, s.Name+" finds rome dead", netnstest.Patience, func() bool {
				return !s.agents[s.gateway(t)].running["rome"].prober.Report().Alive
			})
		}
		w.by(t, k, "without rome", true)
		w.denied(t)
		// Two seconds of numbers, of which a process without a processor says none; what waits for the death of
		// rome is further behind.
		const most = 100
		for _, p := range k.pulses {
			p.mu.Lock()
			if t.Logf("at most %d numbers behind", p.behind); p.behind > most {
				t.Errorf("%d numbers behind, more than %d", p.behind, most)
			}
			p.mu.Unlock()
		}
	})
	for _, p := range k.pulses {
		p.end(t)
	}
}

// denied tries who may neither call nor be called.
func (w *shortcut) denied(t *testing.T) {
	for _, c := range []struct {
		why  string
		from *netnstest.Place
		to   func(v4 bool) netip.Addr
	}{
		{"a pod of milan's own, beside the caller", w.milan.Nodes[0].Other, func(v4 bool) netip.Addr { return w.at(1, 5, v4) }},
		{"a pod of milan's own, on the other node", w.milan.Nodes[1].Pod, func(v4 bool) netip.Addr { return w.at(1, 5, v4) }},
		{"a node of milan's", w.milan.Nodes[w.milan.gateway(t)].Place, func(v4 bool) netip.Addr { return w.at(1, 5, v4) }},
		{"a pod of oslo's own", w.caller, func(v4 bool) netip.Addr { return w.at(1, 6, v4) }},
		{"a pod of oslo's own, on the other node", w.caller, func(v4 bool) netip.Addr { return w.at(0, 5, v4) }},
		{"one that nobody at oslo is told of", w.called, w.seenAs},
	} {
		for _, v4 := range netnstest.Families {
			if conn, _, err := c.from.Dial(c.to(v4), netnstest.Silence); err == nil {
				_ = conn.Close()
				t.Errorf("%s: %s reaches %s", c.why, c.from.Name, c.to(v4))
			}
		}
	}
}

// cut has the network between the two lose what is for the path, until it is healed.
func (w *shortcut) cut() (heal func()) {
	lossy := &nftables.Table{Name: "lossy", Family: nftables.TableFamilyINet}
	w.router.Must(w.router.Nftables(func(c *nftables.Conn) {
		c.AddTable(lossy)
		chain := c.AddChain(&nftables.Chain{Name: "loses", Table: lossy, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter})
		for _, offset := range []uint32{0, 2} {
			c.AddRule(&nftables.Rule{Table: lossy, Chain: chain, Exprs: []expr.Any{
				&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
				&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_UDP}},
				&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: 2},
				&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{byte(pathPort >> 8), byte(pathPort & 0xff)}},
				&expr.Verdict{Kind: expr.VerdictDrop},
			}})
		}
	}))
	return func() { w.router.Must(w.router.Nftables(func(c *nftables.Conn) { c.DelTable(lossy) })) }
}

// compare measures the two ways in turns.
func (w *shortcut) compare(t *testing.T) {
	const turns, each = 5, 100
	took := map[bool][]time.Duration{}
	for turn := range 2 * turns {
		path := turn%2 == 0
		for _, s := range []*side{w.milan, w.oslo} {
			w.use(t, s, path)
		}
		c, _, err := w.caller.Dial(w.at(1, 5, true), netnstest.Patience)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		for range each {
			began := time.Now()
			if err := speaks(c, netnstest.Patience); err != nil {
				t.Fatal(err)
			}
			took[path] = append(took[path], time.Since(began))
		}
		_ = c.Close()
	}
	for _, s := range []*side{w.milan, w.oslo} {
		w.use(t, s, true)
	}
	for path := range took {
		slices.Sort(took[path])
	}
	middle := turns * each / 2
	t.Logf("p50 of a round trip by rome %s, by the path %s: %.2f of it", took[false][middle], took[true][middle],
		float64(took[true][middle])/float64(took[false][middle]))
	if took[true][middle] >= took[false][middle] {
		t.Error("the path is no shorter than the way by rome")
	}
}
