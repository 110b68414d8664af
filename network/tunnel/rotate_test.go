package tunnel

import (
	"testing"
	"time"
)

// rotation is a change of one side's keys, as its owner and the other side do it.
type rotation struct {
	*side
	own, others *Device
	other       *side
}

// rotate gives a side a new key: the other is told first, then it is used, then the old one
// is forgotten when packets have passed since. It returns how long the other took to go over.
func (r rotation) rotate(ownConfig, othersConfig *Config, passed func()) time.Duration {
	r.t.Helper()
	next := newKey(r.t)
	othersConfig.NextPeer = next.Public()
	r.other.set(r.others, *othersConfig)
	if got := r.other.stats(r.others).Peer; got != r.key.Public() {
		r.t.Errorf("%s went over before the key was used", r.other.name)
	}
	r.key, r.side.key = next, next
	ownConfig.PrivateKey = next
	r.set(r.own, *ownConfig)
	took := await(r.t, r.other.name+" goes over to the new key", patience, func() bool {
		return r.other.stats(r.others).Peer == next.Public()
	})
	passed()
	othersConfig.Peer, othersConfig.NextPeer = next.Public(), PublicKey{}
	r.other.set(r.others, *othersConfig)
	return took
}

// mayLose is how many packets a rotation may cost in each direction: in the kernel, what the other side sends with
// its next key until that was seen, some milliseconds.
func mayLose(t testing.TB) int {
	if inKernel(t) {
		return 10
	}
	return 0
}

// TestRotation changes the keys of both sides in turn under steady traffic both ways. Nothing
// may be lost. What is lost in rotations during which this process got no processor is not
// judged: answers then come after they were given up.
func TestRotation(t *testing.T) {
	rome, milan, romes, milans := pair(t, Options{})
	romeConfig, milanConfig := rome.config(milan, milan.endpoint()), milan.config(rome)
	const wanted, most = 10, 40
	judged, fed, packets := 0, 0, 0 // fed are those during which nothing was starved
	for i := 0; i < most && judged < wanted; i++ {
		there, back := rome.ping(milan, 10*time.Millisecond), milan.ping(rome, 10*time.Millisecond)
		flows := func() {
			since := time.Now()
			await(t, "both ways", patience, func() bool { return there.answeredAfter(since) && back.answeredAfter(since) })
		}
		flows()
		var took time.Duration
		if i%2 == 0 {
			took = rotation{rome, romes, milans, milan}.rotate(&romeConfig, &milanConfig, flows)
		} else {
			took = rotation{milan, milans, romes, rome}.rotate(&milanConfig, &romeConfig, flows)
		}
		flows()
		starved := max(there.late(), back.late())
		lostThere, sent, _ := there.lost()
		lostBack, more, _ := back.lost()
		if starved > 50*time.Millisecond && len(lostThere)+len(lostBack) > 0 {
			t.Logf("rotation %d is not judged: this process got no processor for %s; lost %v and %v", i, starved, lostThere, lostBack)
			continue
		}
		if starved <= 50*time.Millisecond {
			fed++
		}
		judged, packets = judged+1, packets+sent+more
		if most := mayLose(t); len(lostThere) > most || len(lostBack) > most {
			t.Errorf("rotation %d, gone over to after %s: lost %v of %d, and %v of %d the other way", i, took, lostThere, sent, lostBack, more)
		}
	}
	t.Logf("%d rotations judged, %d packets", judged, packets)
	if fed == 0 {
		t.Errorf("none of %d rotations can be judged: this process got no processor during each", most)
	}
}

// TestRotationAtOnce holds that a key which the other side was told of, and is told to take
// before it was ever used, carries packets as soon as it is.
func TestRotationAtOnce(t *testing.T) {
	rome, milan, romes, milans := pair(t, Options{})
	romeConfig, milanConfig := rome.config(milan, milan.endpoint()), milan.config(rome)
	next := newKey(t)
	milanConfig.NextPeer = next.Public()
	milan.set(milans, milanConfig)
	p := rome.ping(milan, 10*time.Millisecond)
	milanConfig.Peer, milanConfig.NextPeer = next.Public(), PublicKey{}
	milan.set(milans, milanConfig)
	romeConfig.PrivateKey = next
	rome.set(romes, romeConfig)
	changed := time.Now()
	await(t, "pings with the new key", patience, func() bool { return p.answeredAfter(changed) })
	if got := milan.stats(milans).Peer; got != next.Public() {
		t.Errorf("milan talks to %s", got)
	}
}

// TestPresharedKey holds that a pre-shared key may change on one side after the other
// without loss, and is used by the next handshake.
func TestPresharedKey(t *testing.T) {
	rome, milan, romes, milans := pair(t, Options{Userspace: true})
	romeConfig, milanConfig := rome.config(milan, milan.endpoint()), milan.config(rome)
	p := rome.ping(milan, 10*time.Millisecond)
	flows := func() {
		since := time.Now()
		await(t, "pings", patience, func() bool { return p.answeredAfter(since) })
	}
	shared := newKey(t)
	romeConfig.PresharedKey, milanConfig.PresharedKey = shared, shared
	rome.set(romes, romeConfig)
	before := rome.stats(romes)
	if err := romes.Kick(); err != nil { // in vain: milan does not know it yet
		t.Fatal(err)
	}
	await(t, "milan was asked in vain", patience, func() bool {
		romes.mu.Lock()
		defer romes.mu.Unlock()
		return romes.state.Rounds >= 2
	})
	flows() // on the keys that were there
	if now := rome.stats(romes); !now.Handshake.Equal(before.Handshake) {
		t.Error("a handshake was completed with a key that one side has")
	}
	milan.set(milans, milanConfig)
	await(t, "a handshake with the key", patience, func() bool { return rome.stats(romes).Handshake.After(before.Handshake) })
	flows()
	if missing, of, _ := p.lost(); len(missing) > 0 {
		t.Errorf("lost %v of %d", missing, of)
	}
}

// TestRotationOfBoth holds that two sides that change their keys in the same moment, each
// having told the other, find each other again. As above, who got no processor is not judged.
func TestRotationOfBoth(t *testing.T) {
	for range 5 {
		lost, starved := rotationOfBoth(t)
		if lost <= 400 { // what was asked for in the same moment is voided, and asked for again
			return
		}
		if starved <= 50*time.Millisecond {
			t.Fatalf("%d lost in a row, more than four seconds", lost)
		}
		t.Logf("not judged: this process got no processor for %s; lost %d in a row", starved, lost)
	}
	t.Error("no rotation can be judged")
}

// rotationOfBoth returns how many pings in a row are lost by one, and how long this process got no
// processor.
func rotationOfBoth(t *testing.T) (row int, starved time.Duration) {
	rome, milan, romes, milans := pair(t, Options{})
	romeConfig, milanConfig := rome.config(milan, milan.endpoint()), milan.config(rome)
	romeNext, milanNext := newKey(t), newKey(t)
	romeConfig.NextPeer, milanConfig.NextPeer = milanNext.Public(), romeNext.Public()
	rome.set(romes, romeConfig)
	milan.set(milans, milanConfig)
	p := rome.ping(milan, 10*time.Millisecond)
	romeConfig.PrivateKey, milanConfig.PrivateKey = romeNext, milanNext
	rome.set(romes, romeConfig)
	milan.set(milans, milanConfig)
	changed := time.Now()
	await(t, "both go over", patience, func() bool {
		return rome.stats(romes).Peer == milanNext.Public() && milan.stats(milans).Peer == romeNext.Public()
	})
	await(t, "pings with the new keys", patience, func() bool { return p.answeredAfter(changed.Add(100 * time.Millisecond)) })
	starved = p.late()
	missing, of, row := p.lost()
	t.Logf("%d of %d lost, %d in a row", len(missing), of, row)
	return row, starved
}

// TestStranger holds that a key that nobody spoke of gets nowhere, and does not disturb.
func TestStranger(t *testing.T) {
	rome, milan, _, milans := pair(t, Options{})
	milanConfig := milan.config(rome)
	milanConfig.NextPeer = newKey(t).Public() // expected, and not the stranger
	milan.set(milans, milanConfig)
	p := rome.ping(milan, 10*time.Millisecond)
	strangers := &side{t: t, name: "stranger", host: rome.host, gateway: newNamespace(t), key: newKey(t), inside: rome.inside, inside6: rome.inside6}
	config := strangers.config(milan, milan.endpoint())
	config.ListenPort = 0
	stranger := strangers.open(Options{}, config)
	for range 3 {
		if err := stranger.Kick(); err != nil {
			t.Fatal(err)
		}
		since := time.Now()
		await(t, "pings", patience, func() bool { return p.answeredAfter(since.Add(200 * time.Millisecond)) })
	}
	if s := strangers.stats(stranger); !s.Handshake.IsZero() || s.Received != 0 {
		t.Errorf("a stranger was answered: %+v", s)
	}
	if got := milan.stats(milans); got.Peer != rome.key.Public() || got.Endpoint.String() != rome.endpoint() {
		t.Errorf("after a stranger milan's peer is %+v", got)
	}
	if missing, of, _ := p.lost(); len(missing) > 0 {
		t.Errorf("lost %v of %d", missing, of)
	}
}
