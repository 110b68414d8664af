package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/pelago-dev/pelago/network/netnstest"
)

// bypass is a hop with a path from milan to oslo, past rome, for milan's pods alone.
type bypass struct {
	*shortcut
	hop             *hop
	atMilan, atOslo *Path
}

func newBypass(t *testing.T) *bypass {
	t.Helper()
	h := newHop(t)
	w := &bypass{shortcut: &shortcut{h.chained}, hop: h}
	w.join(w.milan, "milan", w.key, w.oslo, "192.0.2", true)
	w.join(w.oslo, w.key, "milan", w.milan, "203.0.113", false)
	w.atMilan, w.atOslo = &h.atMilan.Paths[0], &h.atOslo.Paths[0]
	w.atOslo.Here = nil // of rome's pods at oslo, milan's alone
	for _, v4 := range netnstest.Families {
		w.atOslo.Here = append(w.atOslo.Here, own(1, 5, v4))
	}
	w.milan.apply(t)
	w.oslo.apply(t)
	w.answered(t, true)
	return w
}

// TestBypass has milan's pods speak with the one that rome has had run at oslo while their packets go by rome, and by a
// path past it, and nobody else by that.
func TestBypass(t *testing.T) {
	t.Parallel()
	w := newBypass(t)
	listens(t, w.called)
	k := w.begin(t)
	w.by(t, k, "by rome", false)
	for _, order := range [][]*side{{w.milan, w.oslo}, {w.oslo, w.milan}} {
		for _, path := range []bool{true, false} {
			for _, s := range order {
				moved := time.Now()
				w.use(t, s, path)
				why := fmt.Sprintf("%s goes by the path: %t", s.Name, path)
				k.speaks(t, why)
				for _, p := range k.pulses {
					if worst := p.worst(moved); worst > byteWithin {
						t.Errorf("%s: %s without a byte", why, worst)
					}
				}
			}
			w.by(t, k, fmt.Sprintf("after %s both, by the path: %t", order[0].Name, path), path)
		}
	}
	for _, s := range []*side{w.milan, w.oslo} {
		w.use(t, s, true)
	}
	for _, v4 := range netnstest.Families {
		w.seen(t, w.called, w.hop.seenBack(t, 0, 5, v4), w.hop.seenAt(t, 1, 5, v4))
	}
	t.Run("neither has ever an address of the other", func(t *testing.T) { w.hop.opaque(t) })
	for _, c := range w.forbidden() {
		t.Run(c.reason, func(t *testing.T) { w.held(t, c) })
	}
	w.by(t, k, "at the end", true)
	for _, p := range k.pulses {
		p.end(t)
	}
}

// barred is a connection that must not be by the path, and what either end of it would have to let pass.
type barred struct {
	reason      string
	from        *netnstest.Place
	to          func(v4 bool) netip.Addr
	milan, oslo func(v4 bool) (here bool, addr netip.Addr)
}

func (w *bypass) forbidden() []barred {
	at := func(last, i int) func(v4 bool) (bool, netip.Addr) {
		return func(v4 bool) (bool, netip.Addr) { return false, w.chained.at(w.t, w.key, own(i, last, v4)) }
	}
	here := func(last, i int) func(v4 bool) (bool, netip.Addr) {
		return func(v4 bool) (bool, netip.Addr) { return true, own(i, last, v4) }
	}
	back := func(v4 bool) (bool, netip.Addr) { return false, w.chained.at(w.t, "milan", own(0, 6, v4)) }
	h := w.hop
	return []barred{
		{"milan does not reach rome's own at oslo", w.caller, func(v4 bool) netip.Addr { return h.seenAt(w.t, 0, 5, v4) }, at(5, 0), here(5, 0)},
		{"rome's own at oslo do not reach milan", h.lodger, func(v4 bool) netip.Addr { return h.seenBack(w.t, 0, 5, v4) }, at(5, 0), here(5, 0)},
		{"milan does not reach oslo's own", w.caller, func(v4 bool) netip.Addr { return h.seenAt(w.t, 1, 6, v4) }, at(6, 1), here(6, 1)},
		{"oslo's own do not reach milan", w.oslo.Nodes[1].Other, func(v4 bool) netip.Addr { return h.seenBack(w.t, 0, 5, v4) }, at(6, 1), here(6, 1)},
		{"milan's pod at oslo does not reach what milan does not serve", w.called, func(v4 bool) netip.Addr { return h.seenBack(w.t, 0, 6, v4) }, here(6, 0), back},
	}
}

// held opens either end alone, which is not enough, and then both.
func (w *bypass) held(t *testing.T, c barred) {
	t.Helper()
	before := []Path{*w.atMilan, *w.atOslo}
	for i, open := range [][]bool{{false, false}, {true, false}, {false, true}, {true, true}} {
		for j, p := range []*Path{w.atMilan, w.atOslo} {
			*p = before[j]
			for _, v4 := range netnstest.Families {
				here, addr := []func(bool) (bool, netip.Addr){c.milan, c.oslo}[j](v4)
				switch {
				case !open[j]:
				case here:
					p.Here = append(slices.Clone(p.Here), addr)
				default:
					p.There = append(slices.Clone(p.There), addr)
				}
			}
		}
		w.milan.apply(t)
		w.oslo.apply(t)
		for _, v4 := range netnstest.Families {
			if i < 3 {
				w.hop.silent(t, fmt.Sprintf("milan's end lets it pass: %t, oslo's: %t", open[0], open[1]), c.from, c.to(v4))
			} else if conn, _, err := c.from.Dial(c.to(v4), netnstest.Patience); err != nil {
				t.Errorf("%s does not reach %s when nobody keeps it from it: %v", c.from.Name, c.to(v4), err)
			} else {
				_ = conn.Close()
			}
		}
	}
	*w.atMilan, *w.atOslo = before[0], before[1]
	w.milan.apply(t)
	w.oslo.apply(t)
}
