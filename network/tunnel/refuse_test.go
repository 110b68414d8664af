package tunnel

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// refusals are addresses that are refused, for now.
type refusals struct {
	mu  sync.Mutex
	all []netip.Addr
}

func (r *refusals) refuse(a netip.Addr) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Contains(r.all, a) {
		return "is here"
	}
	return ""
}

func (r *refusals) are(all ...netip.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = all
}

// TestRefusedNames holds that nobody is called where a name leads that must not be: not when it was resolved, though
// another of its addresses is, and not any more when that is known later, though the peer was there; that it is
// said; and that the peer is called again when it may be.
func TestRefusedNames(t *testing.T) {
	rome, milan := newSides(t)
	there := netip.MustParseAddr(milan.at)
	milans := milan.open(Options{}, milan.config(rome))
	resolve := func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.AddrFrom16(there.As16())}, nil
	}
	bad := &refusals{}
	bad.are(there)
	romes := rome.open(Options{Resolve: resolve, Refuse: bad.refuse}, rome.config(milan, "milan.example.org:51820"))
	said := func() string { return strings.Join(romes.Problems(), "\n") }
	const want = "its peer's endpoint milan.example.org:51820 leads to 198.18.0.2, which is here"
	await(t, "the refusal is said", patience, func() bool { return said() == want })
	silent := func(reason string) {
		t.Helper()
		await(t, "nothing is known of where the peer is", patience, func() bool { return !rome.stats(romes).Endpoint.IsValid() })
		before := rome.stats(romes).Sent
		rome.ping(milan, 10*time.Millisecond)
		tick := time.NewTicker(tryGap)
		defer tick.Stop()
		for range 3 {
			if err := romes.Kick(); err != nil {
				t.Fatal(err)
			}
			<-tick.C // it is not called sooner in any case
		}
		s := rome.stats(romes)
		if s.Endpoint.IsValid() || s.Sent != before || !s.Handshake.IsZero() {
			t.Errorf("%s: %d bytes were sent after %d, to %s, with a handshake of %v", reason, s.Sent, before, s.Endpoint, s.Handshake)
		}
	}
	silent("a name that leads where nobody is called")
	if s := milan.stats(milans); !s.Handshake.IsZero() || s.Received != 0 {
		t.Errorf("the peer was called: %+v", s)
	}

	bad.are()
	romes.Reconsider()
	await(t, "a handshake when the address may be called", patience, func() bool { return !rome.stats(romes).Handshake.IsZero() && said() == "" })

	bad.are(there)
	milan.set(milans, func() Config { c := milan.config(rome); c.Passive = true; return c }()) // it says nothing by itself
	romes.Reconsider()
	await(t, "the refusal is said again", patience, func() bool { return said() == want })
	silent("an address that may not be called any more")
}

// TestUnplaced holds that who goes on with a tunnel, and cannot know yet where names must not lead, calls the peer
// where it was last though its name leads there, and nobody else.
func TestUnplaced(t *testing.T) {
	rome, milan := newSides(t)
	last := netip.MustParseAddrPort(milan.endpoint())
	resolve := func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("198.18.0.3"), last.Addr()}, nil
	}
	refuse := func(netip.Addr) string { return Unplaced }
	romes := rome.open(Options{Last: last, Resolve: resolve, Refuse: refuse}, rome.config(milan, "milan.example.org:51820"))
	await(t, "the name is resolved", patience, func() bool { return len(romes.Problems()) > 0 })
	romes.mu.Lock()
	ring := romes.state.ring()
	romes.mu.Unlock()
	if !slices.Equal(ring, []netip.AddrPort{last}) {
		t.Errorf("called are %v", ring)
	}
	milans := milan.open(Options{}, milan.config(rome)) // which waits to be called
	await(t, "a handshake", patience, func() bool { return !milan.stats(milans).Handshake.IsZero() })
}

// TestRefusalsStay holds that the same is said of a name in whatever order its addresses come.
func TestRefusalsStay(t *testing.T) {
	addresses := []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("10.0.0.1")}
	d := &Device{options: Options{Refuse: (&refusals{all: []netip.Addr{addresses[0], addresses[2]}}).refuse}}
	d.targets = targets([]string{"b.example.org:1", "a.example.org:1"}, []target{{host: "a.example.org", addresses: addresses}, {host: "b.example.org", addresses: addresses}})
	for range addresses {
		d.sift()
		want := "its peer's endpoint a.example.org:1 leads to 10.0.0.1, which is here; its peer's endpoint b.example.org:1 leads to 10.0.0.1, which is here"
		if got := strings.Join(d.Problems(), "; "); got != want {
			t.Errorf("of %v is said: %s", addresses, got)
		}
		first := addresses[0]
		copy(addresses, addresses[1:])
		addresses[len(addresses)-1] = first
	}
}

// TestCandidates holds that of a name's addresses those count that may be called, and that an address itself was
// looked at before.
func TestCandidates(t *testing.T) {
	here := func(a netip.Addr) string {
		if a.As4()[0] == 10 {
			return "is here"
		}
		return ""
	}
	all := targets([]string{"a.example.org:1", "10.0.0.9:2"}, []target{{host: "a.example.org", addresses: []netip.Addr{
		netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("203.0.113.2"),
		netip.MustParseAddr("203.0.113.3"), netip.MustParseAddr("203.0.113.4"), netip.MustParseAddr("203.0.113.5"),
	}}})
	found, refused := candidates(all, here)
	var got []string
	for _, c := range found {
		got = append(got, c.String())
	}
	if want := "203.0.113.1:1 203.0.113.2:1 203.0.113.3:1 203.0.113.4:1 10.0.0.9:2"; strings.Join(got, " ") != want {
		t.Errorf("candidates are %v", got)
	}
	if len(refused) != 2 || refused[1] != (refusal{"a.example.org:1", netip.MustParseAddr("10.0.0.2"), "is here"}) {
		t.Errorf("refused are %v", refused)
	}
}
