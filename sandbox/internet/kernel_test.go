package internet

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func testBadConfig(t *testing.T, w *world) {
	before := w.internet.run("", "nft", "list", "ruleset")
	for _, c := range []struct {
		reason string
		spoil  func(*Config)
		say    string
	}{
		{"a mistake", func(c *Config) { c.Links = []Link{{A: "rome", B: "milan"}} }, "links[0]: has a="},
		{"no such interface", func(c *Config) { c.Ports[1].Interface = "gone0" }, "ports[1].interface"},
	} {
		bad := worldConfig()
		c.spoil(&bad)
		if err := w.client.Set(t.Context(), bad); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%s: %v", c.reason, err)
		}
	}
	after := w.internet.run("", "nft", "list", "ruleset")
	if counters := cmp.Diff(before, after); counters != "" {
		t.Errorf("a refused config changed the rule set:\n%s", counters)
	}
	got, err := w.client.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(asJSON(t, w.config), asJSON(t, got)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func testStats(t *testing.T, w *world) {
	flow := func(from, to string) Flow {
		stats, err := w.client.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range stats.Flows {
			if f.From == from && f.To == to {
				return f
			}
		}
		t.Fatalf("no flow from %s to %s in %v", from, to, stats)
		return Flow{}
	}
	const count, size = 100, 72 // 100 bytes with the headers
	got := w.milan.receive(11)
	for _, c := range []struct {
		reason                string
		link                  Link
		packets, bytes, drops uint64
	}{
		{"plain", Link{A: "milan", B: "rome"}, count, count * 100, 0},
		{"cut", Link{A: "milan", B: "rome", Cut: true}, 0, 0, count},
		{"WAN counts each packet once", Link{A: "milan", B: "rome", Delay: time.Millisecond}, count, count * 100, 0},
		{"all lost", Link{A: "milan", B: "rome", Loss: 1}, 0, 0, count},
	} {
		w.set(c.link)
		before := flow("rome", "milan")
		w.rome.send(at(milanAt[0], 11), 1, count, size, 10)
		var after Flow
		w.await(c.reason+": all packets are counted", func() bool {
			after = flow("rome", "milan")
			return after.Packets+after.Drops >= before.Packets+before.Drops+count
		})
		want := Flow{"rome", "milan", before.Packets + c.packets, before.Bytes + c.bytes, before.Drops + c.drops}
		if d := cmp.Diff(want, after); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.reason, d)
		}
	}
	w.set()
	if f := flow("rome", "milan"); f.Drops < 2*count || f.Packets < 2*count {
		t.Errorf("counters do not outlive a change: %+v", f)
	}
	w.await("the last packet is received", func() bool { return got.last.Load() == count })
}

func testLeftovers(t *testing.T, w *world) {
	// What a router that crashed left behind, and what is not ours.
	for _, command := range []string{
		"ip rule add pref 10000 iif gone0 to 203.0.113.0/24 lookup 77", "ip route add 203.0.113.0/24 dev rome0 proto 112",
		"ip rule add pref 20000 to 192.0.2.0/24 lookup 78", "ip route add 192.0.2.0/24 dev rome0",
	} {
		w.internet.run("", strings.Fields(command)...)
	}
	w.set(Link{A: "milan", B: "rome", Loss: 0.5}, Link{A: "oslo", B: "rome", Rate: 1e6})
	show := func() string {
		return w.internet.run("", "ip", "-br", "link") + w.internet.run("", "ip", "rule") + w.internet.run("", "ip", "-6", "rule") +
			w.internet.run("", "ip", "route", "show", "table", "all") + w.internet.run("", "ip", "-6", "route", "show", "table", "all")
	}
	for _, want := range []string{"w1-2", "w1-3", "lookup 1002", "10000:"} {
		if !strings.Contains(show(), want) {
			t.Errorf("%s is missing in:\n%s", want, show())
		}
	}
	for _, family := range []string{"-4", "-6"} {
		for device, table := range map[string]string{"w1-2": "1002", "w1-3": "1003"} {
			if got := w.internet.run("", "ip", family, "route", "show", "table", table); !strings.Contains(got, "default dev "+device) {
				t.Errorf("table %s of family %s is %q", table, family, got)
			}
		}
	}
	w.set()
	for _, bad := range []string{"w1-2", "w1-3", "lookup 1002", "table 1002", "table 1003", "203.0.113.0"} {
		if strings.Contains(show(), bad) {
			t.Errorf("%s is left in:\n%s", bad, show())
		}
	}
	for _, want := range []string{"198.18.2.0/24 via 198.18.31.102 dev oslo0", "192.0.2.0/24 lookup 78", "192.0.2.0/24 dev rome0"} {
		if !strings.Contains(show(), want) {
			t.Errorf("%s is missing in:\n%s", want, show())
		}
	}
}

// testFailure makes the kernel refuse the second half of a config that is
// right by itself.
func testFailure(t *testing.T, w *world) {
	w.set(Link{A: "milan", B: "oslo", Cut: true})
	join(w.internet, "w2-3", w.rome, "other", 1500) // the name is taken
	wan := w.config
	wan.Links = []Link{{A: "milan", B: "oslo", Rate: 1e6}, {A: "milan", B: "rome", Delay: time.Millisecond}}
	err := w.client.Set(t.Context(), wan)
	if err == nil || errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "w2-3") {
		t.Errorf("the error is %v", err)
	}
	got, err := w.client.Get(t.Context())
	if err != nil || len(got.Links) != 1 || !got.Links[0].Cut {
		t.Errorf("the config in force is %+v, %v", got, err)
	}
	if links := w.internet.run("", "ip", "-br", "link"); strings.Contains(links, "w1-2") {
		t.Errorf("the first half is in force:\n%s", links)
	}
	if !w.rome.reaches(t, at(milanAt[0], 7), patience) || w.oslo.reaches(t, at(milanAt[0], 7), silence) {
		t.Error("the config before is not in force")
	}
	w.internet.must(w.internet.kernel.LinkDel(w.internet.link("w2-3")))
	w.set(wan.Links...)
	if !w.rome.reaches(t, at(milanAt[0], 7), patience) || !w.oslo.reaches(t, at(milanAt[0], 7), patience) {
		t.Error("the links do not work once the name is free")
	}
	w.set()
}
