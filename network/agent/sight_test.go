package agent

import (
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// leaseOf is a Lease of a version, held by somebody or by none.
func leaseOf(version, holder string, seconds int32) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{ResourceVersion: version},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: &seconds,
			RenewTime: &metav1.MicroTime{Time: time.Unix(0, 0)}, // that node's clock is no clock of ours
		},
	}
}

// moment is one thing that happens to a sight, at a number of milliseconds.
type moment struct {
	at       int
	saw      string // a node
	lease    *coordinationv1.Lease
	ask      string // a node whose Lease is asked for
	unanswer bool
}

func TestSight(t *testing.T) {
	a := func(version string) *coordinationv1.Lease { return leaseOf(version, "a", 2) }
	b := func(version string) *coordinationv1.Lease { return leaseOf(version, "b", 15) }
	cases := []struct {
		reason  string
		moments []moment
		at      int
		alive   []string
		lapsed  []string
	}{
		{"who is seen is alive, whatever his clock says", []moment{{at: 0, saw: "a", lease: a("1")}}, 1999, []string{"a"}, nil},
		{"a Lease that nobody holds was given up", []moment{{at: 0, saw: "a", lease: a("1")}, {at: 10, saw: "a", lease: leaseOf("2", "", 15)}}, 10, nil, nil},
		{"a Lease that is gone", []moment{{at: 0, saw: "a", lease: a("1")}, {at: 10, saw: "a"}}, 10, nil, nil},
		{"what has run out makes nobody dead by itself", []moment{{at: 0, saw: "a", lease: a("1")}}, 60000, []string{"a"}, []string{"a"}},
		{"the same once more is no sign of life", []moment{{at: 0, saw: "a", lease: a("1")}, {at: 1500, saw: "a", lease: a("1")}}, 2000, []string{"a"}, []string{"a"}},
		{"a change is one", []moment{{at: 0, saw: "a", lease: a("1")}, {at: 1500, saw: "a", lease: a("2")}}, 3499, []string{"a"}, nil},
		{"the answer that it is as it was makes dead", []moment{{at: 0, saw: "a", lease: a("1")}, {at: 2000, ask: "a", lease: a("1")}}, 2000, nil, nil},
		{"the answer that it was renewed does not, though nobody said so", []moment{{at: 0, saw: "a", lease: a("1")}, {at: 2000, ask: "a", lease: a("5")}}, 3999, []string{"a"}, nil},
		{"the answer that it is gone", []moment{{at: 0, saw: "a", lease: a("1")}, {at: 2000, ask: "a"}}, 2000, nil, nil},
		{"no answer keeps what was known", []moment{{at: 0, saw: "a", lease: a("1")}, {at: 2000, ask: "a", unanswer: true}}, 90000, []string{"a"}, []string{"a"}},
		{"the first answer after none gives everybody a term", []moment{
			{at: 0, saw: "a", lease: a("1")}, {at: 0, saw: "b", lease: b("1")}, {at: 2000, ask: "a", unanswer: true}, {at: 20000, ask: "a", lease: a("1")},
		}, 21999, []string{"a", "b"}, nil},
		{"and no more than that", []moment{
			{at: 0, saw: "a", lease: a("1")}, {at: 0, saw: "b", lease: b("1")}, {at: 2000, ask: "a", unanswer: true},
			{at: 20000, ask: "a", lease: a("1")}, {at: 22000, ask: "a", lease: a("1")},
		}, 22000, []string{"b"}, nil},
		{"the dead do not rise because nobody answered", []moment{
			{at: 0, saw: "a", lease: a("1")}, {at: 0, saw: "b", lease: b("1")}, {at: 2000, ask: "a", lease: a("1")},
			{at: 15000, ask: "b", unanswer: true}, {at: 16000, ask: "b", lease: b("2")},
		}, 16000, []string{"b"}, nil},
		{"the dead rise when they renew", []moment{{at: 0, saw: "a", lease: a("1")}, {at: 2000, ask: "a", lease: a("1")}, {at: 2100, saw: "a", lease: a("2")}}, 2100, []string{"a"}, nil},
		{"a Lease for no time, or for ever, is for a sane one", []moment{{at: 0, saw: "a", lease: leaseOf("1", "a", -5)}, {at: 0, saw: "b", lease: leaseOf("1", "b", 1<<30)}},
			59999, []string{"a", "b"}, []string{"a"}},
	}
	for _, c := range cases {
		var s sight
		begin := time.Unix(1000, 0)
		at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
		for _, m := range c.moments {
			before := s.all()
			var changed bool
			if m.saw != "" {
				changed = s.saw(m.saw, m.lease, at(m.at))
			} else {
				changed = s.asked(m.ask, m.lease, !m.unanswer, at(m.at))
			}
			if changed == maps.Equal(before, s.all()) {
				t.Errorf("%s: at %d changed is %t, from %v to %v", c.reason, m.at, changed, before, s.all())
			}
		}
		if got := slices.Sorted(maps.Keys(s.all())); !slices.Equal(got, c.alive) {
			t.Errorf("%s: alive are %v, want %v", c.reason, got, c.alive)
		}
		lapsed, next := s.lapsed(at(c.at))
		if !slices.Equal(lapsed, c.lapsed) {
			t.Errorf("%s: lapsed are %v, want %v", c.reason, lapsed, c.lapsed)
		}
		if wait := len(c.alive) > len(c.lapsed); wait == next.IsZero() || wait && !next.After(at(c.at)) {
			t.Errorf("%s: the next one runs out at %s", c.reason, next)
		}
	}
}

// TestSightOfMTU reads what another agent has written, one of another build or somebody else, and tells
// when that is something else.
func TestSightOfMTU(t *testing.T) {
	var s sight
	for i, c := range []struct {
		reason, text string
		want         int
		changed      bool
	}{
		{"the first", "9000", 9000, true},
		{"the same", "9000", 9000, false},
		{"less", "1400", 1400, true},
		{"an older agent tells nothing", "", 0, true},
		{"no number", "1400 ", 0, false},
		{"less than IP can do with", "67", 0, false},
		{"more than a packet can be", "65536", 0, false},
		{"below nothing", "-1", 0, false},
		{"as much as can be", "65535", 65535, true},
	} {
		l := leaseOf(strconv.Itoa(i), "a", 15)
		l.Annotations = map[string]string{"other": "x"}
		if c.text != "" {
			l.Annotations[v1alpha1.AnnotationMTU] = c.text
		}
		l = trimmed(t, l)
		if len(l.Annotations) > 0 && c.want == 0 {
			t.Errorf("%s: %v are kept", c.reason, l.Annotations)
		}
		changed := s.saw("a", l, time.Unix(int64(i), 0))
		if got := s.mtus(); got["a"] != c.want || len(got) != min(c.want, 1) || changed != c.changed {
			t.Errorf("%s: %v, changed %t", c.reason, got, changed)
		}
	}
	if s.saw("a", leaseOf("x", "", 15), time.Unix(99, 0)); len(s.mtus()) != 0 {
		t.Errorf("it has %v", s.mtus())
	}
}

func TestTenure(t *testing.T) {
	begin := time.Unix(1000, 0)
	renewed := tenure{}
	renewed.renewed(begin, 2*time.Second)
	left := renewed
	left.left = true
	for _, c := range []struct {
		reason       string
		of           tenure
		after        time.Duration
		others       bool
		alive, doubt bool
	}{
		{"who never renewed is nobody's gateway, and has nothing to doubt", tenure{}, 0, true, false, false},
		{"within the Lease", renewed, 1999 * time.Millisecond, true, true, false},
		{"others may have taken over when it has run out", renewed, 2 * time.Second, true, true, true},
		{"nobody can, where there is nobody else", renewed, time.Hour, false, true, false},
		{"who has left has left", left, 0, true, false, false},
	} {
		if known := c.of.known(); known != (c.of.ever || c.of.left) {
			t.Errorf("%s: known %t", c.reason, known)
		}
		if alive, doubt := c.of.alive(), c.of.doubt(begin.Add(c.after), c.others); alive != c.alive || doubt != c.doubt {
			t.Errorf("%s: alive %t, doubt %t; want %t and %t", c.reason, alive, doubt, c.alive, c.doubt)
		}
	}
}

// TestTerms holds that a renewal which hangs leaves time for another one.
func TestTerms(t *testing.T) {
	for _, of := range []term{gatewayTerm, nextTerm, restTerm(1), restTerm(77), restTerm(200), restTerm(5000)} {
		if again := of.every + 2*of.patience(); of.pause(1, false, 0) > of.patience() || again > of.holds {
			t.Errorf("%+v: the second attempt may end after %s", of, again)
		}
		if of.pause(1, true, 1) > of.every || of.pause(0, true, 1) != of.every || of.pause(0, false, 0) != of.every {
			t.Errorf("%+v: pauses are %s and %s", of, of.pause(1, true, 1), of.pause(0, false, 0))
		}
		if of.holds%time.Second != 0 || of.holds > maxTerm {
			t.Errorf("%+v: others do not see it as it is", of)
		}
	}
}
