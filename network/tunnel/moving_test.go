package tunnel

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"reflect"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.zx2c4.com/wireguard/device"

	"github.com/pelago-dev/pelago/network/netnstest"
)

// TestEndpoints holds that a list is gone through until somebody answers: literal
// addresses where nobody is, names that do not resolve, that resolve to the wrong
// address first, and only later to the right one.
func TestEndpoints(t *testing.T) {
	for _, c := range []struct {
		reason    string
		endpoints []string
		names     func(asked int32, host string) ([]netip.Addr, error)
		rounds    int // at most
	}{
		{"nobody is at the first", []string{"198.18.0.66:51820", "198.18.0.67:51820", "198.18.0.2:51820"}, nil, 2},
		{"nobody is in the first two rounds", []string{
			"198.18.0.60:1", "198.18.0.61:1", "198.18.0.62:1", "198.18.0.63:1", "198.18.0.64:1", "198.18.0.65:1", "198.18.0.66:1", "198.18.0.67:1",
			"198.18.0.70:1", "198.18.0.71:1", "198.18.0.72:1", "198.18.0.73:1", "198.18.0.74:1", "198.18.0.75:1", "198.18.0.76:1", "198.18.0.2:51820",
		}, nil, 3},
		{"a way that this host has not", []string{"[fd5a::2]:51820", "203.0.113.1:51820", "198.18.0.2:51820"}, nil, 2},
		{"a name among others, one of which never answers", []string{"silent.example.org:51820", "milan.example.org:51820"},
			func(_ int32, host string) ([]netip.Addr, error) {
				if host == "milan.example.org" {
					return []netip.Addr{netip.MustParseAddr("198.18.0.66"), netip.MustParseAddr("::ffff:198.18.0.2")}, nil
				}
				return nil, errors.New("no such host")
			}, 2},
	} {
		t.Run(c.reason, func(t *testing.T) {
			rome, milan := newSides(t)
			milans := milan.open(Options{}, milan.config(rome))
			var asked atomic.Int32
			resolve := func(ctx context.Context, host string) ([]netip.Addr, error) {
				if c.names == nil {
					t.Errorf("a literal address was resolved: %s", host)
					return nil, errors.New("not here")
				}
				if _, limited := ctx.Deadline(); !limited {
					t.Error("names are resolved without a deadline")
				}
				return c.names(asked.Add(1), host)
			}
			romes := rome.open(Options{Resolve: resolve}, rome.config(milan, c.endpoints...))
			await(t, "a handshake", patience, func() bool { return !rome.stats(romes).Handshake.IsZero() })
			rounds := c.rounds
			if inKernel(t) && c.names == nil { // which asks one after the other
				rounds = len(c.endpoints)
			}
			const late = 10 // where there is little of the processors an answer comes after the next question, which voids it
			romes.mu.Lock()
			if romes.state.Rounds > rounds+late {
				t.Errorf("it took %d rounds, want at most %d, and %d on a busy machine", romes.state.Rounds, rounds, rounds+late)
			}
			romes.mu.Unlock()
			if got := rome.stats(romes).Endpoint.String(); got != milan.endpoint() {
				t.Errorf("the peer is at %s, want %s", got, milan.endpoint())
			}
			await(t, "milan knows where rome is", patience, func() bool { return milan.stats(milans).Endpoint.String() == rome.endpoint() })
		})
	}
}

// TestRoaming holds that a peer whose address changes is followed by the other, who has no
// list, and that neither falls back to the list while that works.
func TestRoaming(t *testing.T) {
	rome, milan, romes, milans := pair(t, Options{})
	p := rome.ping(milan, 10*time.Millisecond)
	address(t, rome.host, "eth0", "198.18.0.9/24", true)
	address(t, rome.host, "eth0", rome.at+"/24", false) // which takes the second with it
	netnstest.Change(t, rome.host, func(k *netlink.Handle) error {
		a, err := netlink.ParseAddr("198.18.0.9/24")
		if err != nil {
			return err
		}
		return k.AddrReplace(byName(t, k, "eth0"), a)
	})
	moved := rome.carries(milan.at)
	took := await(t, "pings from the new address", patience, func() bool { return p.answeredAfter(moved) })
	t.Logf("pings from the new address are answered after %s, %d were not", took, p.until(moved))
	if p.until(moved) > 150 { // of a peer who is not followed WireGuard finds out after 15 s
		t.Errorf("a second and a half of pings was lost")
	}
	await(t, "milan believes rome at its new address", patience, func() bool { return milan.stats(milans).Endpoint.String() == "198.18.0.9:51820" })
	// The other way: milan moves, rome has a list with where it was.
	address(t, milan.host, "eth0", "198.18.0.10/24", true)
	address(t, milan.host, "eth0", milan.at+"/24", false)
	netnstest.Change(t, milan.host, func(k *netlink.Handle) error {
		a, err := netlink.ParseAddr("198.18.0.10/24")
		if err != nil {
			return err
		}
		return k.AddrReplace(byName(t, k, "eth0"), a)
	})
	back := milan.ping(rome, 10*time.Millisecond) // it speaks, else nobody could know
	moved = time.Now()
	await(t, "pings to the new address", patience, func() bool { return p.answeredAfter(moved) && back.answeredAfter(moved) })
	config := rome.config(milan, milan.endpoint(), "198.18.0.66:51820")
	before := rome.stats(romes).Handshake
	if rome.stats(romes).Listed {
		t.Error("a peer that has moved is where it was listed")
	}
	rome.set(romes, config) // a new list moves nobody who is well
	if got := rome.stats(romes); got.Endpoint.String() != "198.18.0.10:51820" || !got.Handshake.Equal(before) {
		t.Errorf("rome believes milan at %s since a handshake at %s (the first one was at %s)", got.Endpoint, got.Handshake, before)
	}
}

// TestClockBehind holds that a peer who comes back at another address with a clock that is behind is heard soon, by
// who cannot call it there: the library takes its questions for copies of earlier ones.
func TestClockBehind(t *testing.T) {
	rome, milan, romes, milans := pair(t, Options{Userspace: true})
	if err := romes.Close(); err != nil {
		t.Fatal(err)
	}
	address(t, rome.host, "eth0", "198.18.0.9/24", true)
	address(t, rome.host, "eth0", rome.at+"/24", false)
	netnstest.Change(t, rome.host, func(k *netlink.Handle) error {
		a, err := netlink.ParseAddr("198.18.0.9/24")
		if err != nil {
			return err
		}
		return k.AddrReplace(byName(t, k, "eth0"), a)
	})
	milans.mu.Lock()
	peer := milans.engine.(*userspace).device.LookupPeer(device.NoisePublicKey(rome.key.Public()))
	last := reflect.ValueOf(peer).Elem().FieldByName("handshake").FieldByName("lastTimestamp")
	seconds := unsafe.Slice((*byte)(last.Addr().UnsafePointer()), 8) // of TAI64N
	binary.BigEndian.PutUint64(seconds, binary.BigEndian.Uint64(seconds)+3600)
	milans.mu.Unlock()
	before := milan.stats(milans).Handshake
	romes = rome.open(Options{Userspace: true}, rome.config(milan, milan.endpoint()))
	if err := milans.Kick(); err != nil {
		t.Fatal(err)
	}
	took := await(t, "a handshake", patience, func() bool {
		return !rome.stats(romes).Handshake.IsZero() && milan.stats(milans).Handshake.After(before)
	})
	t.Logf("a peer whose clock is behind is heard after %s", took)
	p, since := milan.ping(rome, 10*time.Millisecond), time.Now()
	await(t, "pings to it", patience, func() bool { return p.answeredAfter(since) })
}

// TestAnsweredKeepsKeys holds that the keys stay where the peer asks and is answered, though no handshake comes of it, as
// where an answer takes longer than a round.
func TestAnsweredKeepsKeys(t *testing.T) {
	rome, _, romes, _ := pair(t, Options{Userspace: true})
	rome.cable(false)
	romes.mu.Lock()
	defer romes.mu.Unlock()
	u, at := romes.engine.(*userspace), []netip.AddrPort{netip.MustParseAddrPort("198.18.0.77:9")}
	for _, c := range []struct {
		name            string
		asked, answered uint64
		stay            bool
	}{{"nobody asks", 0, 0, true}, {"who asks is answered", 3, 1, true}, {"who asks is not answered", 1, 0, false}} {
		for round := 1; round <= anewAfter; round++ {
			_ = u.try(at, round) // the cable is off
			if round == 1 {
				u.socket.sessions.asked.Add(c.asked)
				u.socket.sessions.answered.Add(c.answered)
			}
		}
		s, err := u.stats()
		if err != nil {
			t.Fatal(err)
		}
		if s.Handshake.IsZero() == c.stay {
			t.Errorf("%s: the last handshake was %s", c.name, s.Handshake)
		}
	}
}

// TestKick holds that after a cut whose end nobody sees, with a peer that meanwhile forgot
// everything and cannot ask by itself, packets flow at once: within three seconds, also where
// little is left of the processors. WireGuard alone would take 15.
func TestKick(t *testing.T) {
	rome, milan, romes, milans := pair(t, Options{})
	if inKernel(t) { // whose keys are not doubted when they are new
		await(t, "keys that may be doubted", patience, func() bool { return time.Since(rome.stats(romes).Handshake) > settling })
	}
	p := rome.ping(milan, 10*time.Millisecond)
	rome.cable(false)
	if err := milans.Close(); err != nil {
		t.Fatal(err)
	}
	milan.open(Options{}, milan.config(rome))
	for range 2 { // doubts during the cut are of no use, and do no harm
		if err := romes.Kick(); err != nil {
			t.Fatal(err)
		}
	}
	rome.cable(true)
	healed := rome.carries(milan.at)
	if err := romes.Kick(); err != nil {
		t.Fatal(err)
	}
	took := await(t, "pings after the cut", patience, func() bool { return p.answeredAfter(healed) })
	t.Logf("pings are answered %s after the cut's end, %d were not", took, p.until(healed))
	if p.until(healed) > 300 {
		t.Error("more than three seconds of pings were lost")
	}
}

// TestKickDisturbsNothing holds that kicks of a tunnel that is well lose no packet, though
// each is a handshake, and that a cut needs no handshake to heal.
func TestKickDisturbsNothing(t *testing.T) {
	rome, milan, romes, milans := pair(t, Options{Userspace: true})
	there, back := rome.ping(milan, 10*time.Millisecond), milan.ping(rome, 10*time.Millisecond)
	for range 3 {
		for _, k := range []struct {
			*side
			d *Device
		}{{rome, romes}, {milan, milans}} {
			before := k.stats(k.d).Handshake
			if err := k.d.Kick(); err != nil {
				t.Fatal(err)
			}
			await(t, "a handshake after the kick", patience, func() bool { return !k.stats(k.d).Handshake.Equal(before) })
			// WireGuard keeps the keys of one handshake before, so two within a packet's
			// time would lose it. Kicks are a second apart.
			since := time.Now()
			await(t, "both ways with the new keys", patience, func() bool { return there.answeredAfter(since) && back.answeredAfter(since) })
		}
	}
	for _, p := range []*pings{there, back} {
		if missing, of, _ := p.lost(); len(missing) > 0 {
			t.Errorf("lost %v of %d", missing, of)
		}
	}
	p := rome.ping(milan, 10*time.Millisecond)
	rome.cable(false)
	cut := time.Now()
	await(t, "a second of the cut has passed, kicked all the time, with more rounds than make a peer who asks anew", patience, func() bool {
		if err := romes.Kick(); err != nil {
			t.Fatal(err)
		}
		romes.mu.Lock()
		defer romes.mu.Unlock()
		return time.Since(cut) > time.Second && romes.state.Rounds > anewAfter
	})
	before := rome.stats(romes).Handshake
	if before.IsZero() {
		t.Error("the keys are given up, though nobody has asked for others")
	}
	romes.mu.Lock() // nobody asks for a handshake any more
	defer romes.mu.Unlock()
	rome.cable(true)
	healed := time.Now()
	took := await(t, "pings after the cut", patience, func() bool { return p.answeredAfter(healed) })
	t.Logf("pings are answered %s after a cut's end, %d were not", took, p.until(healed))
	if s, err := romes.engine.stats(); err != nil || !s.Handshake.Equal(before) {
		t.Errorf("what needs no handshake waited for one: the last was at %s, and before at %s (%v)", s.Handshake, before, err)
	}
}

func TestResolve(t *testing.T) {
	known := targets([]string{"a.example.org:1", "198.18.0.1:2", "b.example.org:3", "[::ffff:198.18.0.1]:2"}, nil)
	ask := func(_ context.Context, host string) ([]netip.Addr, error) {
		if host == "b.example.org" {
			return nil, &net.DNSError{Err: "down", Name: host}
		}
		// What is refused is not called, whatever a peer's name says.
		many := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("::ffff:127.0.0.1"), netip.MustParseAddr("fe80::1"), netip.IPv4Unspecified()}
		for i := range byte(9) {
			many = append(many, netip.AddrFrom4([4]byte{203, 0, 113, i}))
		}
		return many, nil
	}
	refuse := func(a netip.Addr) string {
		if a.Is4() && a.As4()[0] == 203 {
			return ""
		}
		return "is here"
	}
	tried := func(all []target) []netip.AddrPort {
		found, _ := candidates(all, refuse)
		return found
	}
	first, failures := resolve(t.Context(), ask, known)
	if len(failures) != 1 || failures["b.example.org"] == nil {
		t.Errorf("failures are %v", failures)
	}
	if got := tried(first); len(got) != perName+1 || got[0].String() != "203.0.113.0:1" || got[perName].String() != "198.18.0.1:2" {
		t.Errorf("candidates are %v", got)
	}
	// A name that stops being answered keeps what it had, also when the list changes.
	down := func(context.Context, string) ([]netip.Addr, error) { return nil, errors.New("down") }
	second, _ := resolve(t.Context(), down, targets([]string{"a.example.org:7"}, first))
	if got := tried(second); len(got) != perName || got[0].String() != "203.0.113.0:7" {
		t.Errorf("after a failure candidates are %v", got)
	}
}
