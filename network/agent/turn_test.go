package agent

import (
	"testing"
	"time"

	"github.com/pelago-dev/pelago/network/tunnel"
)

func TestTurn(t *testing.T) {
	a, b, c := tunnel.PublicKey{1}, tunnel.PublicKey{2}, tunnel.PublicKey{3}
	config := func(peer, next tunnel.PublicKey, port uint16) tunnel.Config {
		return tunnel.Config{Peer: peer, NextPeer: next, ListenPort: port}
	}
	none := tunnel.PublicKey{}
	type step struct {
		after  time.Duration
		wanted tunnel.Config
		using  tunnel.PublicKey
		want   tunnel.Config
	}
	for _, k := range []struct {
		reason string
		steps  []step
	}{
		{"a next key is told at once", []step{{0, config(a, b, 1), a, config(a, b, 1)}}},
		{"what was not spoken of before is another peer", []step{{0, config(c, none, 1), a, config(c, none, 1)}}},
		{"a next key is the key a second after its first use, and all else at once", []step{
			{0, config(a, b, 1), a, config(a, b, 1)},
			{time.Second, config(b, none, 2), a, config(a, b, 2)},
			{2 * time.Second, config(b, none, 2), b, config(a, b, 2)},
			{2900 * time.Millisecond, config(b, none, 2), b, config(a, b, 2)},
			{3 * time.Second, config(b, none, 2), b, config(b, none, 2)},
		}},
		{"a peer that never uses it is not waited for longer", []step{
			{0, config(a, b, 1), a, config(a, b, 1)},
			{time.Second, config(b, c, 1), a, config(a, b, 1)},
			{15 * time.Second, config(b, c, 1), a, config(a, b, 1)},
			{16 * time.Second, config(b, c, 1), a, config(b, c, 1)},
		}},
		{"a peer that stays with the old one after all", []step{
			{0, config(a, b, 1), a, config(a, b, 1)},
			{time.Second, config(b, none, 1), a, config(a, b, 1)},
			{2 * time.Second, config(a, none, 1), a, config(a, none, 1)},
		}},
	} {
		var of turn
		now, begin := tunnel.Config{Peer: a}, time.Unix(1000, 0)
		for i, s := range k.steps {
			now = of.hold(now, s.wanted, s.using, begin.Add(s.after))
			if now.Peer != s.want.Peer || now.NextPeer != s.want.NextPeer || now.ListenPort != s.want.ListenPort {
				t.Errorf("%s: step %d gives %v", k.reason, i, now)
			}
		}
	}
}
