package agent

import (
	"testing"
	"time"
)

func TestStance(t *testing.T) {
	well, silent := witness{listed: true, shaken: true}, witness{listed: true, shaken: true, silent: true}
	unlisted, waiting := witness{shaken: true}, witness{}
	two, sure := doubt{is: true, others: 1}, doubt{}
	type step struct {
		at   int // milliseconds
		d    doubt
		w    witness
		want posture
	}
	for _, c := range []struct {
		reason string
		steps  []step
	}{
		{"without a doubt silence is for others to see to", []step{{0, sure, silent, serving}, {60_000, sure, unlisted, serving}}},
		{"in doubt what is answered serves, however long", []step{{0, two, well, serving}, {3_600_000, two, well, serving}}},
		{"silence leaves the peer to others, who may never ask", []step{{0, two, well, serving}, {1750, two, silent, passive}, {3_600_000, two, waiting, passive}}},
		{"what was silent before the doubt is so at once", []step{{0, sure, silent, serving}, {100, two, silent, passive}}},
		{"a peer that asks is served again, and left again", []step{
			{0, two, silent, passive}, {1000, two, waiting, passive}, {2000, two, witness{shaken: true, listed: true}, serving},
			{60_000, two, well, serving}, {62_000, two, silent, passive},
		}},
		{"the end of the doubt is that of all it brought", []step{{0, two, silent, passive}, {5000, sure, waiting, serving}, {5100, sure, silent, serving}}},
		{"a peer that only this node can reach has to look for others, and then comes back", []step{
			{0, two, unlisted, shut}, {3900, two, waiting, shut}, {4000, two, waiting, passive}, {4500, two, unlisted, serving},
			{3_600_000, two, unlisted, serving},
		}},
		{"once in each doubt", []step{
			{0, two, unlisted, shut}, {4000, two, waiting, passive}, {4500, two, unlisted, serving}, {9000, sure, unlisted, serving}, {60_000, two, unlisted, shut},
		}},
		{"one that has looked in a silence need not again", []step{{0, two, witness{shaken: true, silent: true}, passive}, {2000, two, unlisted, serving}}},
		{"the doubt ends while it is shut", []step{{0, two, unlisted, shut}, {1000, sure, waiting, serving}}},
	} {
		var s stance
		for i, p := range c.steps {
			if s = s.next(p.d, p.w, time.Unix(1000, 0).Add(time.Duration(p.at)*time.Millisecond)); s.posture != p.want {
				t.Errorf("%s: step %d gives %v, want %v", c.reason, i, s.posture, p.want)
			}
		}
	}
	for others, want := range map[int]time.Duration{1: 4 * time.Second, 4: 7 * time.Second, 5000: 10 * time.Second} {
		if got := (doubt{true, others}).giveWay(); got != want {
			t.Errorf("with %d others: %s, want %s", others, got, want)
		}
	}
}
