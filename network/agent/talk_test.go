package agent

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/dataplane"
)

func TestTalk(t *testing.T) {
	const kib, mib = 1 << 10, 1 << 20
	type count struct { // at a second
		at    int
		bytes uint64
		want  bool
	}
	for _, c := range []struct {
		reason string
		counts []count
	}{
		{"what was before is of nobody knows when", []count{{0, 50 * mib, false}, {10, 50 * mib, false}, {70, 50 * mib, false}}},
		{"a mebibyte is not more than one", []count{{0, 0, false}, {10, mib, false}}},
		{"more is", []count{{0, 0, false}, {10, mib + 1, true}}},
		{"more, little by little within a minute", []count{{0, 0, false}, {20, 400 * kib, false}, {40, 800 * kib, false}, {60, 1200 * kib, true}}},
		{"slower than that", []count{{0, 0, false}, {30, 500 * kib, false}, {60, 1000 * kib, false}, {90, 1500 * kib, false}, {120, 2000 * kib, false}}},
		{"it stays while a little is said", []count{{0, 0, false}, {10, 2 * mib, true}, {70, 2*mib + 64*kib, true}, {130, 2*mib + 128*kib, true}, {190, 2*mib + 192*kib - 1, false}}},
		{"silence counts from when it began", []count{{0, 0, false}, {10, 2 * mib, true}, {60, 2 * mib, true}, {69, 2 * mib, true}, {70, 2 * mib, false}}},
		{"one who looks seldom", []count{{0, 0, false}, {300, 2 * mib, true}, {600, 2 * mib, false}}},
		{"counted anew it is known anew", []count{{0, 0, false}, {10, 2 * mib, true}, {20, 10, false}, {30, mib + 10, false}, {40, mib + 11, true}}},
	} {
		var k talk
		for _, n := range c.counts {
			if k = k.next(n.bytes, time.Unix(int64(n.at), 0)); k.named != n.want {
				t.Errorf("%s: named after %d s: %t", c.reason, n.at, k.named)
			}
			if len(k.marks) > 8 {
				t.Errorf("%s: %d marks", c.reason, len(k.marks))
			}
		}
	}
	var k talk
	for i := range 1000 {
		if k = k.next(0, time.Unix(int64(i)*10, 0)); len(k.marks) > 8 {
			t.Fatalf("%d marks after %d looks", len(k.marks), i)
		}
	}
}

// TestTalks holds that the largest are named, in order, and that who is not counted any more is
// forgotten.
func TestTalks(t *testing.T) {
	var all talks
	counted := map[string]uint64{}
	for i := range 20 {
		counted[fmt.Sprintf("peering-%02d", i)] = 0
	}
	all = all.next(counted, time.Unix(0, 0))
	var want []string
	for i := range 20 {
		key := fmt.Sprintf("peering-%02d", i)
		if counted[key] = uint64(i+2) * talkMuch; i >= 20-v1alpha1.MaxThrough {
			want = append(want, key)
		}
	}
	counted["peering-19"], want = 10, slices.Insert(want[:len(want)-1], 0, "peering-03")
	all = all.next(counted, time.Unix(10, 0))
	if d := cmp.Diff(want, all.through()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if all = all.next(map[string]uint64{"peering-07": counted["peering-07"]}, time.Unix(20, 0)); len(all) != 1 || !slices.Equal(all.through(), []string{"peering-07"}) {
		t.Errorf("of one that is left: %v", all)
	}
}

// TestWeigh is what gateways of providers, through which pods of others are reached, have a report name.
func TestWeigh(t *testing.T) {
	l, err := newLedger(prometheus.NewRegistry(), nil, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	l.looked = time.Unix(1<<40, 0) // so that it asks nobody
	via := map[netip.Prefix]string{prefixes("10.82.0.0/16")[0]: "peering-oslo", prefixes("10.83.0.0/16")[0]: "peering-bern"}
	gateway := dataplane.Gateway{
		Views:   []dataplane.View{{View: prefixes("10.81.0.0/16")[0], Real: prefixes("10.42.0.0/16")[0]}},
		Transit: prefixes("10.82.0.0/16", "10.83.0.0/16", "10.84.0.0/16"),
	}
	a := &account{holder: l.holders.of, volumes: map[string]*[2]volume{}}
	a.is(gateway, via)
	home := &account{holder: l.holders.of, volumes: map[string]*[2]volume{}}
	home.is(dataplane.Gateway{}, via)
	l.accounts = map[string]*account{"peering-milan": a, "tenant-turin": home}
	half := volume{1, talkMuch/2 + 1}
	for i, c := range []struct {
		reason string
		do     func()
		news   bool
		want   string
	}{
		{"it looks first", func() { a.add(crossing("10.42.3.4", "10.82.0.9", "10.82.0.9", "10.81.3.4", half, half)) }, false, ""},
		{"pods here, and what is nobody's view", func() {
			a.add(crossing("10.42.3.4", "10.43.1.5", "10.43.1.5", "10.81.3.4", half, half))
			a.add(crossing("10.42.3.4", "10.84.0.9", "10.84.0.9", "10.81.3.4", half, half))
		}, false, ""},
		{"a pod there calls one at another provider", func() { a.add(crossing("10.42.3.4", "10.82.0.9", "10.82.0.9", "10.81.3.4", half, half)) }, true, "peering-oslo"},
		{"nothing new", func() { a.is(gateway, via) }, false, "peering-oslo"},
		{"a pod at a third one calls there", func() {
			a.add(crossing("10.83.0.1", "10.81.3.4", "10.42.3.4", "10.83.0.1", half, half))
		}, true, "peering-bern peering-oslo"},
		{"one leads nowhere any more", func() {
			less := gateway
			less.Transit = prefixes("10.83.0.0/16")
			a.is(less, via)
		}, true, "peering-bern"},
		{"its gateway is not here any more", func() { delete(l.accounts, "peering-milan") }, true, ""},
	} {
		c.do()
		news := l.weigh(time.Unix(int64(i)*10, 0))
		if got := l.named(); news != c.news || !slices.Equal(got["peering-milan"], strings.Fields(c.want)) || len(got) > 1 {
			t.Errorf("%s: news %t, named %v", c.reason, news, got)
		}
	}
}

func TestUses(t *testing.T) {
	count := func(key string, sent, received uint64) []dataplane.Passed {
		return []dataplane.Passed{{Peering: key, Sent: sent, Received: received}}
	}
	for _, c := range []struct {
		reason string
		looks  [][]dataplane.Passed
		want   int64 // seconds after the beginning, 0 is not known
	}{
		{"what was before is of nobody knows when", [][]dataplane.Passed{nil, count(pathKey, 5, 5), count(pathKey, 5, 5)}, 0},
		{"nothing since", [][]dataplane.Passed{count(pathKey, 0, 0), count(pathKey, 0, 0), count(pathKey, 0, 0)}, 0},
		{"something was sent", [][]dataplane.Passed{count(pathKey, 0, 0), count(pathKey, 1, 0), count(pathKey, 1, 0)}, 10},
		{"something came", [][]dataplane.Passed{count(pathKey, 1, 0), count(pathKey, 1, 0), count(pathKey, 1, 7)}, 20},
		{"it is counted anew", [][]dataplane.Passed{count(pathKey, 5, 5), count(pathKey, 0, 0), count(pathKey, 0, 0)}, 0},
		{"it is counted anew, and carried something", [][]dataplane.Passed{count(pathKey, 5, 5), count(pathKey, 1, 0), count(pathKey, 1, 0)}, 10},
		{"its gateway was away", [][]dataplane.Passed{count(pathKey, 5, 5), nil, count(pathKey, 6, 6)}, 0},
		{"a peering's own gateway", [][]dataplane.Passed{count("tenant-turin", 0, 0), count("tenant-turin", 5, 5)}, 0},
	} {
		var u uses
		for i, passed := range c.looks {
			u = u.next(passed, time.Unix(int64(i)*10, 0))
		}
		var got int64
		for _, use := range u {
			if !use.at.IsZero() {
				got = use.at.Unix()
			}
		}
		if got != c.want || len(u) > 1 {
			t.Errorf("%s: used at %d, %v", c.reason, got, u)
		}
	}
}

// TestCounted holds what of this a report says.
func TestCounted(t *testing.T) {
	a := &Agent{unreached: map[string]int{"peering-milan": 7}, ledger: &ledger{through: map[string][]string{"peering-milan": {"peering-oslo"}}}, uses: uses{
		pathKey: {at: time.Date(2026, 11, 22, 10, 3, 59, 1, time.Local)}, "tenant-turin.00000000000000bb": {},
	}}
	used := metav1.NewTime(time.Date(2026, 11, 22, 10, 3, 0, 0, time.Local).UTC())
	got := a.counted(map[string]v1alpha1.TunnelReport{"peering-milan": {Alive: true}, pathKey: {}, "tenant-turin.00000000000000bb": {}})
	want := map[string]v1alpha1.TunnelReport{"peering-milan": {Alive: true, Through: []string{"peering-oslo"}, Unreached: 7}, pathKey: {Used: &used}, "tenant-turin.00000000000000bb": {}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if text := text(got[pathKey]); !strings.Contains(text, `"used":"`+used.Format(time.RFC3339)) {
		t.Errorf("a report is %s", text)
	}
}
