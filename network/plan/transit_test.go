package plan

import (
	"bytes"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/ipam"
	"github.com/pelago-dev/pelago/network/netnstest"
)

// chained is rome with two providers, all of the same addresses. A pod of rome's runs at each:
// caller at milan, called at oslo.
type chained struct {
	*world
	oslo           *side
	key            string // of oslo at rome
	caller, called *netnstest.Place
}

// own is which pod of a cluster is meant, by node and last number.
func own(i, last int, v4 bool) netip.Addr { return netnstest.PodAddr(42, i, last, v4) }

// allocated are the views that a side has of its peers.
func (s *side) allocated(peers map[string][]netip.Prefix) {
	var all []ipam.Peering
	for key, ranges := range peers {
		p := ipam.Peering{Key: key}
		for _, r := range ranges {
			p.Ranges = append(p.Ranges, r.String())
		}
		all = append(all, p)
	}
	results := ipam.Allocate(ipam.Own{
		Pods: ownPods, External: ownExternal, Nodes: prefixes("192.168.0.0/24", "fd19::/64"), Pools: prefixes("10.80.0.0/12", "fd80::/16"),
	}, all)
	s.table = ipam.NewTable(results)
	for i := range s.in.Peerings {
		s.in.Peerings[i].Views = results[s.in.Peerings[i].Key].Views
	}
}

// pods are the views of a peering's pods.
func (s *side) pods(t *testing.T, key string) (views []netip.Prefix) {
	t.Helper()
	for _, p := range ownPods {
		a, ok := s.table.View(key, p.Addr())
		if !ok {
			t.Fatalf("%s has no view of %s at %s", s.Name, p, key)
		}
		views = append(views, netip.PrefixFrom(a, p.Bits()))
	}
	return views
}

func newChained(t *testing.T) *chained {
	t.Helper()
	w := newChain(t, newWorld(t))
	rome, milan, oslo := w.rome, w.milan, w.oslo
	w.caller, w.called = milan.Nodes[0].Pod, oslo.Nodes[1].Pod
	toMilan, toOslo := &rome.in.Peerings[0], &rome.in.Peerings[1]
	for _, v4 := range netnstest.Families {
		toMilan.There, milan.in.Peerings[0].Here = append(toMilan.There, own(0, 5, v4)), append(milan.in.Peerings[0].Here, own(0, 5, v4))
		toOslo.There, oslo.in.Peerings[0].Here = append(toOslo.There, own(1, 5, v4)), append(oslo.in.Peerings[0].Here, own(1, 5, v4))
		at := w.at(t, w.key, own(1, 5, v4))
		toMilan.Here, milan.in.Peerings[0].There = append(toMilan.Here, at), append(milan.in.Peerings[0].There, at)
	}
	w.begin(t)
	return w
}

// newChain adds oslo, a provider of rome's, to a world: rome publishes to each of both what it sees
// of the other one. Nobody is reached yet.
func newChain(t *testing.T, pair *world) *chained {
	t.Helper()
	w := &chained{world: pair}
	w.oslo = w.newSide("oslo", "192.0.2", "rome", Provider)
	rome, milan, oslo := w.rome, w.milan, w.oslo
	for i := 0; w.key == ""; i++ { // rome's gateways are on different nodes
		key := fmt.Sprintf("oslo%d", i)
		if names := []string{rome.Nodes[0].Name, rome.Nodes[1].Name}; Gateway(key, names, nil) != Gateway("milan", names, nil) {
			w.key = key
		}
	}
	rome.in.Peerings = append(rome.in.Peerings, Peering{Key: w.key, Role: Consumer, ListenPort: listenPort + 1, Secret: "rome-key", Peer: oslo.secret.Public()})
	oslo.in.Peerings[0].Peer = rome.secret.Public()
	for i := range oslo.Nodes {
		rome.in.Peerings[1].Endpoints = append(rome.in.Peerings[1].Endpoints, fmt.Sprintf("%s:%d", outside("192.0.2", i), listenPort))
		oslo.in.Peerings[0].Endpoints = append(oslo.in.Peerings[0].Endpoints, fmt.Sprintf("%s:%d", outside("198.51.100", i), listenPort+1))
	}
	all := slices.Concat(ownPods, ownExternal)
	rome.allocated(map[string][]netip.Prefix{"milan": all, w.key: all})
	milan.allocated(map[string][]netip.Prefix{"rome": slices.Concat(all, rome.pods(t, w.key))})
	oslo.allocated(map[string][]netip.Prefix{"rome": slices.Concat(all, rome.pods(t, "milan"))})
	toMilan, toOslo := &rome.in.Peerings[0], &rome.in.Peerings[1]
	toMilan.Transit, toOslo.Transit = rome.pods(t, w.key), rome.pods(t, "milan")
	for _, p := range []*Peering{toMilan, toOslo, &milan.in.Peerings[0], &oslo.in.Peerings[0]} {
		p.Limited = true
	}
	return w
}

// begin makes all three what they say, and waits for their tunnels.
func (w *chained) begin(t *testing.T) {
	t.Helper()
	rome, milan, oslo := w.rome, w.milan, w.oslo
	for _, s := range []*side{rome, milan, oslo} {
		s.apply(t)
	}
	netnstest.Await(t, "probes say that all tunnels are alive", netnstest.Patience, func() bool {
		alive := 0
		for _, s := range []*side{rome, milan, oslo} {
			for _, a := range s.agents {
				for _, r := range a.running {
					if r.prober.Report().Alive {
						alive++
					}
				}
			}
		}
		return alive == 4
	})
}

// at is by which address rome sees a pod of a peer.
func (w *chained) at(t *testing.T, key string, real netip.Addr) netip.Addr {
	t.Helper()
	a, ok := w.rome.table.View(key, real)
	if !ok {
		t.Fatalf("rome has no view of %s at %s", real, key)
	}
	return a
}

// TestTransit lets a pod that rome has at milan reach one that it has at oslo, through rome, whose
// two gateways are on different nodes; and nobody else.
func TestTransit(t *testing.T) {
	t.Parallel()
	w := newChained(t)
	g := Compute(w.rome.in).Gateways
	if g["milan"] == g[w.key] {
		t.Fatalf("rome's gateways are both %s", g["milan"])
	}
	toMilan, toOslo, atMilan := &w.rome.in.Peerings[0], &w.rome.in.Peerings[1], &w.milan.in.Peerings[0]
	// seenAt is by which address milan sees a pod of oslo's.
	seenAt := func(i, last int, v4 bool) netip.Addr { return w.milan.seen(t, w.at(t, w.key, own(i, last, v4))) }
	reaches := func(t *testing.T) {
		t.Helper()
		for _, v4 := range netnstest.Families {
			w.seen(t, w.caller, seenAt(1, 5, v4), w.oslo.seen(t, w.at(t, "milan", own(0, 5, v4))))
		}
	}
	t.Run("it is reached, and sees who calls", func(t *testing.T) { reaches(t) })
	t.Run("much goes through, and large packets", func(t *testing.T) {
		for _, v4 := range netnstest.Families {
			w.transfer(t, seenAt(1, 5, v4))
			if err := w.caller.Ping(own(0, 5, v4), seenAt(1, 5, v4), 9000, netnstest.Patience); err != nil {
				t.Errorf("a packet larger than any MTU: %v", err)
			}
		}
	})
	denied := func(t *testing.T, why string, from *netnstest.Place, to func(v4 bool) netip.Addr) {
		t.Helper()
		for _, v4 := range netnstest.Families {
			if c, _, err := from.Dial(to(v4), netnstest.Silence); err == nil {
				_ = c.Close()
				t.Errorf("%s: %s reaches %s", why, from.Name, to(v4))
			}
		}
	}
	called := func(v4 bool) netip.Addr { return seenAt(1, 5, v4) }
	stranger := func(v4 bool) netip.Addr { return seenAt(1, 6, v4) }
	back := func(v4 bool) netip.Addr { return w.oslo.seen(t, w.at(t, "milan", own(0, 5, v4))) }
	t.Run("nobody else is, nor reaches it", func(t *testing.T) {
		denied(t, "a pod of milan's own, beside it", w.milan.Nodes[0].Other, called)
		denied(t, "a pod of milan's own, on the other node", w.milan.Nodes[1].Pod, called)
		denied(t, "a pod of oslo's own", w.caller, stranger)
		denied(t, "one that nobody at oslo is told of", w.called, back)
	})
	t.Run("each gateway on the way sees to that by itself", func(t *testing.T) {
		atMilan.Limited = false
		w.milan.apply(t)
		reaches(t)
		denied(t, "a pod of milan's own, let go by milan", w.milan.Nodes[0].Other, called)
		denied(t, "a pod of oslo's own, asked for by milan", w.caller, stranger)
		toMilan.Limited = false
		w.rome.apply(t)
		reaches(t)
		denied(t, "a pod of milan's own, let go by milan, when rome lets all of its own pods be reached", w.milan.Nodes[0].Other, called)
		denied(t, "a pod of oslo's own, asked for by milan and let in", w.caller, stranger)
		toOslo.Limited = false
		w.rome.apply(t)
		reaches(t)
		denied(t, "a pod of oslo's own, which oslo keeps", w.caller, stranger)
		atMilan.Limited = true
		w.milan.apply(t)
		reaches(t)
		denied(t, "a pod of milan's own, which milan keeps", w.milan.Nodes[0].Other, called)
		toMilan.Limited, toOslo.Limited = true, true
		w.rome.apply(t)
		reaches(t)
	})
	t.Run("each end is guarded where it runs, against the other provider's pod", func(t *testing.T) {
		atOslo := &w.oslo.in.Peerings[0]
		both := func(of func(v4 bool) netip.Addr) (all []netip.Addr) {
			for _, v4 := range netnstest.Families {
				all = append(all, of(v4))
			}
			return all
		}
		// As rome numbers them: its views.
		callerAs := both(func(v4 bool) netip.Addr { return w.at(t, "milan", own(0, 5, v4)) })
		calledAs := both(func(v4 bool) netip.Addr { return w.at(t, w.key, own(1, 5, v4)) })
		singles := func(addrs []netip.Addr) (all []netip.Prefix) {
			for _, a := range addrs {
				all = append(all, netip.PrefixFrom(a, a.BitLen()))
			}
			return all
		}
		runsHere := both(func(v4 bool) netip.Addr { return own(1, 5, v4) })
		atOslo.Guard = &dataplane.Guard{HereIn: runsHere}
		w.oslo.apply(t)
		denied(t, "isolated where it is called", w.caller, called)
		atOslo.Guard = &dataplane.Guard{HereIn: runsHere, Entries: []dataplane.Entry{{Name: "in", Pods: runsHere, Peers: singles(callerAs), Protocol: 6}}}
		w.oslo.apply(t)
		reaches(t)
		callerIs := both(func(v4 bool) netip.Addr { return own(0, 5, v4) })
		atMilan.Guard = &dataplane.Guard{HereOut: callerIs}
		w.milan.apply(t)
		denied(t, "isolated where it calls", w.caller, called)
		atMilan.Guard = &dataplane.Guard{HereOut: callerIs, Entries: []dataplane.Entry{{Name: "out", Out: true, Pods: callerIs, Peers: singles(calledAs)}}}
		w.milan.apply(t)
		reaches(t)
		atMilan.Guard, atOslo.Guard = nil, nil
		w.milan.apply(t)
		w.oslo.apply(t)
	})
	t.Run("a peering that is closed leaves the others alone", func(t *testing.T) {
		home := w.rome.Nodes[0].Pod
		through, _, err := w.caller.Dial(called(true), netnstest.Patience)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = through.Close() }()
		beside, _, err := home.Dial(w.at(t, w.key, own(1, 5, true)), netnstest.Patience)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = beside.Close() }()
		toMilan.Closed = true
		w.rome.apply(t)
		if err := speaks(beside, netnstest.Patience); err != nil {
			t.Errorf("a connection to oslo, when milan is closed: %v", err)
		}
		if err := speaks(through, netnstest.Silence); err == nil {
			t.Error("a connection from milan goes on")
		}
		denied(t, "milan is closed", w.caller, called)
		toMilan.Closed = false
		w.rome.apply(t)
		reaches(t)
	})
	t.Run("it ends when nothing leads there any more", func(t *testing.T) {
		atMilan.Limited, toMilan.Transit = false, nil
		w.milan.apply(t)
		w.rome.apply(t)
		denied(t, "no transit", w.caller, called)
	})
}

// transfer sends much to a server that says it again.
func (w *chained) transfer(t *testing.T, to netip.Addr) {
	t.Helper()
	c, _, err := w.caller.Dial(to, netnstest.Patience)
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	go func() { _, _ = c.Write(sent) }()
	got := make([]byte, len(sent))
	start := time.Now()
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes did not come back as they were sent: %v", len(sent), err)
	}
	t.Logf("to %s there and back: %.0f Mbit/s each way", to, float64(8*len(sent))/time.Since(start).Seconds()/1e6)
}
