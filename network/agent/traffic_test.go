package agent

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/netns"
	"github.com/pelago-dev/pelago/network/netnstest"
	"github.com/pelago-dev/pelago/network/traffic"
)

func TestOwners(t *testing.T) {
	for _, c := range []struct {
		reason string
		facts  func(*facts)
		want   map[string]string // beside those of someFacts, "" is none
	}{
		{reason: "pods of tenants, pods at providers, and what Services lead to", facts: func(*facts) {}},
		{reason: "a pod of a namespace that is followed", facts: func(f *facts) {
			f.inside = map[string][]corev1.Pod{"shop": {podAt(labelled("shop", "client"), "a", "10.42.1.9", "::ffff:10.42.1.8")}}
		}, want: map[string]string{"10.42.1.9": "shop", "10.42.1.8": "shop"}},
		{reason: "a pod that home's rules name", facts: func(f *facts) {
			f.rules = map[ruleKey]*ruleset{{atMilan, "shop"}: {pods: []rulePod{{addresses: addrs("10.42.1.7")}}}}
		}, want: map[string]string{"10.42.1.7": "shop"}},
		{reason: "a tenant's rules are of its own namespaces and addresses", facts: func(f *facts) {
			f.rules = map[ruleKey]*ruleset{{atTurin, "shop"}: {pods: []rulePod{{addresses: addrs("10.42.1.7")}}}}
		}},
		{reason: "a slice says nothing of a pod that is known, nor of a node", facts: func(f *facts) {
			f.home["bank"] = append(f.home["bank"], sliceOf(labelled("bank", "greedy"), "a", "10.42.2.7", "10.81.3.4", "192.168.0.1"))
		}},
		{reason: "of two slices that of the first namespace counts, on every node", facts: func(f *facts) {
			f.home["zoo"] = []discoveryv1.EndpointSlice{sliceOf(labelled("zoo", "x"), "a", "10.42.1.5")}
		}},
		{reason: "a pod that has ended", facts: func(f *facts) { f.hosted[0].Status.Phase = corev1.PodSucceeded }, want: map[string]string{"10.42.2.7": ""}},
		{reason: "nonsense", facts: func(f *facts) { f.hosted[0].Status.PodIPs[0].IP = "x" }, want: map[string]string{"10.42.2.7": ""}},
	} {
		f := someFacts()
		c.facts(&f)
		want := map[netip.Addr]string{}
		for text, namespace := range map[string]string{"10.81.3.4": "shop", "10.42.2.7": "x", "10.42.2.8": "x", "10.42.1.5": "shop", "10.42.1.6": "bank"} {
			want[netip.MustParseAddr(text)] = namespace
		}
		for text, namespace := range c.want {
			if want[netip.MustParseAddr(text)] = namespace; namespace == "" {
				delete(want, netip.MustParseAddr(text))
			}
		}
		if d := cmp.Diff(want, owners(f, prefixes("10.42.0.0/16")), cmpopts.EquateComparable(netip.Addr{})); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.reason, d)
		}
	}
}

// crossing is a connection as its gateway tracks it: the ends of who begins it, and those of answers.
func crossing(from, to, answersFrom, answersTo string, there, back volume) traffic.Portion {
	a := netip.MustParseAddr
	return traffic.Portion{
		Original: traffic.Direction{From: a(from), To: a(to), Packets: there.packets, Bytes: there.bytes},
		Reply:    traffic.Direction{From: a(answersFrom), To: a(answersTo), Packets: back.packets, Bytes: back.bytes},
	}
}

// TestAccount: views of the peer are 10.81.0.0/16 of its 10.42.0.0/16, that this cluster's pods
// are in as well, and 10.82.0.0/16 is another provider's.
func TestAccount(t *testing.T) {
	there, back := volume{3, 300}, volume{2, 250}
	for _, c := range []struct {
		reason    string
		of        traffic.Portion
		namespace string
		want      [2]volume // sent and received
	}{
		{"a pod here calls one there", crossing("10.42.1.5", "10.81.3.4", "10.42.3.4", "10.42.1.5", there, back), "front", [2]volume{there, back}},
		{"a pod there calls one here", crossing("10.42.3.4", "10.42.1.5", "10.42.1.5", "10.81.3.4", there, back), "front", [2]volume{back, there}},
		{"a pod there has the address of one here", crossing("10.42.1.5", "10.42.1.6", "10.42.1.6", "10.81.1.5", there, back), "bank", [2]volume{back, there}},
		{"a node here calls a pod there", crossing("192.168.0.1", "10.81.3.4", "10.42.3.4", "10.43.0.1", there, back), "shop", [2]volume{there, back}},
		{"a pod there goes through a door", crossing("10.42.3.4", "10.43.0.2", "192.168.0.9", "10.81.3.4", there, back), "shop", [2]volume{back, there}},
		{"a pod that nobody knows calls one of ours", crossing("10.42.1.77", "10.81.3.4", "10.42.3.4", "10.42.1.77", there, back), "shop", [2]volume{there, back}},
		{"a pod there calls one at another provider", crossing("10.42.3.4", "10.82.0.9", "10.82.0.9", "10.81.3.4", there, back), "far", [2]volume{back, there}},
		{"nobody that is known", crossing("10.42.1.77", "10.81.9.9", "10.42.9.9", "10.42.1.77", there, back), "", [2]volume{there, back}},
		{"the gateway's own probe", crossing("169.254.0.5", "169.254.0.6", "169.254.0.6", "169.254.0.5", there, back), "-", [2]volume{}},
		{"what the other end calls here, of IPv6", crossing("fd46:c73d:1b8d::4", "fd46:c73d:1b8d::5", "2001:db8::1", "fd46:c73d:1b8d:1::c000", there, back), "-", [2]volume{}},
		{"the other gateway's probe", crossing("169.254.0.6", "169.254.0.5", "169.254.0.5", "169.254.0.6", there, back), "-", [2]volume{}},
	} {
		h := &holders{}
		now := map[netip.Addr]string{}
		for text, namespace := range map[string]string{"10.42.1.5": "front", "10.42.1.6": "bank", "10.81.3.4": "shop", "10.82.0.9": "far"} {
			now[netip.MustParseAddr(text)] = namespace
		}
		h.are(now, time.Unix(0, 0))
		a := &account{holder: h.of, volumes: map[string]*[2]volume{}}
		a.is(dataplane.Gateway{
			ProbeAt: netip.MustParseAddr("169.254.0.5"), LineAt: netip.MustParseAddr("fd46:c73d:1b8d::5"),
			Views: []dataplane.View{{View: prefixes("10.81.0.0/16")[0], Real: prefixes("10.42.0.0/16")[0]}},
		}, nil)
		a.add(c.of)
		a.add(c.of)
		want := map[string][2]volume{c.namespace: c.want}
		for i := range 2 {
			twice := want[c.namespace]
			twice[i] = volume{2 * twice[i].packets, 2 * twice[i].bytes}
			want[c.namespace] = twice
		}
		if c.namespace == "-" {
			want = map[string][2]volume{}
		}
		told, _ := a.told()
		if d := cmp.Diff(want, told, cmp.AllowUnexported(volume{})); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.reason, d)
		}
	}
}

// TestAccountMany: who makes namespaces without end makes no series without end, and nothing is uncounted.
func TestAccountMany(t *testing.T) {
	a := &account{volumes: map[string]*[2]volume{}}
	a.holder = func(at netip.Addr) (string, bool) { return at.String(), at.Is4() }
	for i := range 2 * maxSpaces {
		a.add(crossing(fmt.Sprintf("10.1.%d.%d", i/256, i%256), "fd00::1", "fd00::1", "fd00::2", volume{}, volume{1, 100}))
		a.add(crossing("fd00::1", "fd00::1", fmt.Sprintf("10.1.%d.%d", i/256, i%256), "fd00::2", volume{}, volume{1, 100}))
	}
	told, unnamed := a.told()
	sum := uint64(0)
	for _, both := range told {
		sum += both[0].bytes + both[1].bytes
	}
	if len(told) > maxSpaces+1 || sum != 4*maxSpaces*100 || unnamed != (maxSpaces+1)*100 { // one series is of none
		t.Errorf("%d series with %d bytes, %d of them unnamed", len(told), sum, unnamed)
	}
}

// TestAccountRoom: namespaces that come and go for ever do not take the room of those that are, which
// keep what they have.
func TestAccountRoom(t *testing.T) {
	l := &ledger{}
	a := &account{holder: l.holders.of, volumes: map[string]*[2]volume{}}
	l.accounts = map[string]*account{"tenant-rome": a}
	now := time.Unix(0, 0)
	stays := netip.MustParseAddr("10.1.255.1")
	carries := func(at netip.Addr) {
		a.add(crossing(at.String(), "fd00::1", "fd00::1", at.String(), volume{1, 100}, volume{}))
	}
	for i := range 3 * maxSpaces {
		comes := netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})
		l.own(map[netip.Addr]string{stays: "shop", comes: fmt.Sprintf("job-%d", i)}, now)
		carries(stays)
		carries(comes)
		if told, unnamed := a.told(); told["shop"][1].packets != uint64(i+1) || told[fmt.Sprintf("job-%d", i)][1].packets != 1 || unnamed != 0 || len(told) > maxSpaces {
			t.Fatalf("namespace %d: %v of %d, %d bytes unnamed; shop has %v", i, told[fmt.Sprintf("job-%d", i)], len(told), unnamed, told["shop"])
		}
		now = now.Add(goneFor)
	}
}

func TestHolders(t *testing.T) {
	var h holders
	a, b := netip.MustParseAddr("10.42.1.5"), netip.MustParseAddr("10.42.1.6")
	at := func(d time.Duration) time.Time { return time.Unix(0, 0).Add(d) }
	for _, c := range []struct {
		reason string
		now    map[netip.Addr]string
		at     time.Duration
		a, b   string
	}{
		{"nobody is known", nil, 0, "", ""},
		{"both are", map[netip.Addr]string{a: "shop", b: "bank"}, time.Second, "shop", "bank"},
		{"one has gone", map[netip.Addr]string{b: "bank"}, time.Minute, "shop", "bank"},
		{"a while ago", map[netip.Addr]string{b: "bank"}, goneFor, "shop", "bank"},
		{"another one has its address", map[netip.Addr]string{a: "zoo"}, goneFor + time.Second, "zoo", "bank"},
		{"both are gone", nil, goneFor + 2*time.Second, "zoo", "bank"},
		{"long ago", nil, 3 * goneFor, "", ""},
	} {
		h.are(c.now, at(c.at))
		gotA, _ := h.of(a)
		gotB, _ := h.of(b)
		if gotA != c.a || gotB != c.b {
			t.Errorf("%s: the addresses are of %q and %q, want %q and %q", c.reason, gotA, gotB, c.a, c.b)
		}
	}
	many := map[netip.Addr]string{}
	for next := range 2 * maxGone {
		many[netip.AddrFrom4([4]byte{10, byte(next >> 16), byte(next >> 8), byte(next)})] = "shop"
	}
	h.are(many, at(0))
	h.are(nil, at(0))
	if len(h.gone) != maxGone {
		t.Errorf("%d addresses are remembered", len(h.gone))
	}
}

// TestLedger counts in a real namespace, in which the loopback device stands for a way to the peer.
func TestLedger(t *testing.T) {
	netnstest.Root(t)
	held := &netns.Held{}
	t.Cleanup(func() { _ = held.Remove("peering-milan") })
	place := func() *netnstest.Place {
		file, err := held.Open("peering-milan")
		if err != nil {
			t.Fatal(err)
		}
		p := netnstest.OpenPlace(t, "gateway", file)
		p.Up("lo", true)
		p.Must(p.Nftables(tracked))
		return p
	}
	registry := prometheus.NewRegistry()
	l, err := newLedger(registry, held, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	defer l.close(nil)
	l.holders.are(map[netip.Addr]string{netip.MustParseAddr("127.0.0.1"): "shop"}, time.Now())
	gateways := []dataplane.Gateway{{Peering: "peering-milan", Views: []dataplane.View{{View: prefixes("127.1.0.0/16")[0], Real: prefixes("127.1.0.0/16")[0]}}}}
	check := func(reason string, packets float64) {
		t.Helper()
		want := map[string]float64{}
		if packets >= 0 {
			want["missed"] = 0
		}
		if packets > 0 {
			want["packets shop sent"], want["packets shop received"] = packets, 0
			want["bytes shop sent"], want["bytes shop received"] = packets*(28+100), 0
		}
		if d := cmp.Diff(want, scraped(t, registry)); d != "" {
			t.Errorf("%s (-want +got):\n%s", reason, d)
		}
	}
	send := func(p *netnstest.Place, times int) {
		t.Helper()
		p.In(func() error {
			c, err := net.DialUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7}, &net.UDPAddr{IP: net.IPv4(127, 1, 0, 1), Port: 7000})
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			for range times {
				if _, err := c.Write(make([]byte, 100)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	listen := func(p *netnstest.Place) {
		p.In(func() error {
			c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 1, 0, 1), Port: 7000})
			if err == nil {
				t.Cleanup(func() { _ = c.Close() })
			}
			return err
		})
	}
	check("without a gateway", -1)
	p := place()
	listen(p)
	l.open(gateways, nil)
	check("nothing has crossed", 0)
	send(p, 3)
	check("a moment after the last look", 0)
	l.looked = time.Time{}
	check("after a while", 3)
	l.open(gateways, nil)
	send(p, 2)
	l.looked = time.Time{}
	check("the same gateway, and more has crossed", 5)
	l.close(gateways)
	check("it stays", 5)
	l.close(nil)
	check("it has gone", -1)
	l.open(gateways, nil)
	send(p, 1)
	l.looked = time.Time{}
	check("it is here again", 1)
	// It is a pod at another provider that says all this.
	gateways[0].Transit = prefixes("127.0.0.0/24")
	l.open(gateways, map[netip.Prefix]string{prefixes("127.0.0.0/24")[0]: "peering-oslo"})
	for i, c := range []struct {
		packets int
		want    []string
	}{{1, nil}, {talkMuch / 128, nil}, {1, []string{"peering-oslo"}}} {
		send(p, c.packets)
		l.looked = time.Time{}
		if news := l.weigh(time.Now()); news != (c.want != nil) || !slices.Equal(l.named()["peering-milan"], c.want) {
			t.Errorf("look %d: news %t, named %v", i, news, l.named())
		}
	}
}

// failing gives no namespace as long as it fails.
type failing struct {
	netns.Held
	fails bool
}

func (f *failing) Open(name string) (*os.File, error) {
	if f.fails {
		return nil, errors.New("not now")
	}
	return f.Held.Open(name)
}

// TestLedgerFails: a gateway that cannot be counted is tried again, and keeps no other one back.
func TestLedgerFails(t *testing.T) {
	netnstest.Root(t)
	spaces := &failing{fails: true}
	t.Cleanup(func() { _ = spaces.Remove("peering-milan") })
	l, err := newLedger(prometheus.NewRegistry(), spaces, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	defer l.close(nil)
	gateways := []dataplane.Gateway{{Peering: "peering-milan"}}
	l.open(gateways, nil)
	if len(l.all()) != 0 || l.wrong["peering-milan"] != "not now" {
		t.Errorf("there are %d accounts, wrong is %q", len(l.all()), l.wrong)
	}
	spaces.fails = false
	l.open(gateways, nil)
	if len(l.all()) != 1 || len(l.wrong) != 0 {
		t.Errorf("there are %d accounts, wrong is %q", len(l.all()), l.wrong)
	}
}

// tracked has the kernel follow connections.
func tracked(c *nftables.Conn) {
	table := c.AddTable(&nftables.Table{Name: "follow", Family: nftables.TableFamilyINet})
	chain := c.AddChain(&nftables.Chain{Name: "out", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityFilter})
	c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{&expr.Ct{Key: expr.CtKeySTATE, Register: 1}}})
}

// scraped are the series of traffic.
func scraped(t *testing.T, from prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			switch f.GetName() {
			case "pelago_traffic_missed_connections_total":
				all["missed"] = m.GetCounter().GetValue()
			case "pelago_traffic_bytes_total":
				all["bytes "+labels["namespace"]+" "+labels["direction"]] = m.GetCounter().GetValue()
			case "pelago_traffic_packets_total":
				all["packets "+labels["namespace"]+" "+labels["direction"]] = m.GetCounter().GetValue()
			}
		}
	}
	return all
}
