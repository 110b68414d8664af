package agent

import (
	"time"

	"github.com/pelago-dev/pelago/network/tunnel"
)

// When a peer says that it goes over to its next key, its gateway may hear of that later than
// ours, and packets of the old key are under way when it does.
const (
	turnSettle   = time.Second
	turnPatience = 15 * time.Second
)

// turn is a tunnel's way from one key of the peer to the next. It is pure.
type turn struct {
	to    tunnel.PublicKey
	began time.Time
	used  time.Time
}

// hold returns the config that a tunnel is to have now: with a peer's next key as Peer only
// when that has been in use for a second, or is not within some more.
func (t *turn) hold(now, wanted tunnel.Config, using tunnel.PublicKey, at time.Time) tunnel.Config {
	if now.NextPeer.IsZero() || now.Peer == wanted.Peer || now.NextPeer != wanted.Peer {
		*t = turn{}
		return wanted
	}
	if t.to != wanted.Peer {
		*t = turn{to: wanted.Peer, began: at}
	}
	if using == wanted.Peer && t.used.IsZero() {
		t.used = at
	}
	if !t.used.IsZero() && at.Sub(t.used) >= turnSettle || at.Sub(t.began) >= turnPatience {
		*t = turn{}
		return wanted
	}
	wanted.Peer, wanted.NextPeer = now.Peer, now.NextPeer
	return wanted
}
