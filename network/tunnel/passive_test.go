package tunnel

import (
	"testing"
	"time"
)

// TestPassive holds that a passive device, with everything that would have it speak, leaves the
// peer to another one of the same key; that of both only the other is found; and that it is
// found, and then serves, when it is alone.
func TestPassive(t *testing.T) {
	rome, milan, romes, milans := pair(t, Options{})
	config := rome.config(milan, milan.endpoint())
	milan.set(milans, milan.config(rome, rome.endpoint(), "198.18.0.1:51821"))
	silenced := rome.ping(milan, 10*time.Millisecond) // goes on all the time
	other := &side{t: t, name: "other", host: rome.host, gateway: newNamespace(t), key: rome.key, at: rome.at, inside: rome.inside, inside6: rome.inside6}
	config.Passive, config.Yield = true, true
	rome.set(romes, config)
	otherConfig := other.config(milan, milan.endpoint())
	otherConfig.ListenPort = 51821
	others := other.open(Options{}, otherConfig)
	p := other.ping(milan, 10*time.Millisecond)
	start := time.Now()
	await(t, "pings of the other", patience, func() bool { return p.answeredAfter(start) })
	quiet := time.Now() // what was under way when it became passive has come
	before := rome.stats(romes)
	for range 5 { // the peer asks both, and the other one's answer is taken
		at := milan.stats(milans).Handshake
		asked := time.Now()
		await(t, "another handshake", patience, func() bool {
			for _, d := range []*Device{romes, milans} { // again where it is in the kernel, whose new keys are not doubted
				if err := d.Kick(); err != nil {
					t.Fatal(err)
				}
			}
			return milan.stats(milans).Handshake.After(at)
		})
		await(t, "the passive one has answered as well", patience, func() bool {
			return p.answeredAfter(asked.Add(2 * yield))
		})
	}
	if missing, of, _ := p.lost(); len(missing) > 0 && !inKernel(t) { // whose keys go with each question
		t.Errorf("the other lost %v of %d", missing, of)
	}
	if got := milan.stats(milans); got.Endpoint.String() != "198.18.0.1:51821" {
		t.Errorf("milan's peer is at %s", got.Endpoint)
	}
	if s := rome.stats(romes); !s.Handshake.IsZero() || s.Sent == before.Sent && !inKernel(t) { // who is asked only if the first one is silent
		t.Errorf("the passive one has a handshake of %v, and sent %d bytes after %d", s.Handshake, s.Sent, before.Sent)
	}
	if silenced.answeredAfter(quiet) {
		t.Error("a passive device carries packets")
	}

	if err := others.Close(); err != nil {
		t.Fatal(err)
	}
	took := await(t, "the passive one is found", settling+5*time.Second, func() bool {
		if err := milans.Kick(); err != nil { // as who hears nothing does, again and again
			t.Fatal(err)
		}
		return !rome.stats(romes).Handshake.IsZero()
	})
	shaken := rome.stats(romes).Handshake
	config.Passive, config.Yield = false, false
	again := time.Now()
	rome.set(romes, config)
	await(t, "pings", patience, func() bool { return silenced.answeredAfter(again) })
	t.Logf("found after %s, pings after %s more", took, time.Since(again))
	if got := rome.stats(romes).Handshake; !got.Equal(shaken) && !inKernel(t) { // which asks when it gets a keepalive
		t.Errorf("there was another handshake %s later", got.Sub(shaken))
	}
}

// TestPassiveAsks holds that a device which is passive no more asks for a handshake by itself.
func TestPassiveAsks(t *testing.T) {
	rome, milan, romes, _ := pair(t, Options{})
	config := rome.config(milan, milan.endpoint())
	config.Passive = true
	rome.set(romes, config)
	if s := rome.stats(romes); !s.Handshake.IsZero() || s.Endpoint.IsValid() {
		t.Errorf("when it has become passive: %+v", s)
	}
	p := rome.ping(milan, 10*time.Millisecond)
	config.Passive = false
	rome.set(romes, config)
	again := time.Now()
	await(t, "pings", 5*time.Second, func() bool { return p.answeredAfter(again) })
}
