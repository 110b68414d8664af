package cli

import (
	"bytes"
	"encoding/json"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pelago-dev/pelago/sandbox/build"
	"github.com/pelago-dev/pelago/sandbox/cluster"
	"github.com/pelago-dev/pelago/sandbox/config"
	"github.com/pelago-dev/pelago/sandbox/internet"
)

func TestParseLoss(t *testing.T) {
	for _, c := range []struct {
		reason, text string
		want         float64
		ok           bool
	}{
		{"nothing is none", "", 0, true},
		{"percent", "1%", 0.01, true},
		{"part of a percent", "0.5%", 0.005, true},
		{"a share", "0.25", 0.25, true},
		{"none", "0", 0, true},
		{"everything", "100%", 1, true},
		{"a bare 1 was more likely meant as 1%", "1", 0, false},
		{"more than everything", "101%", 0, false},
		{"a percentage without its sign", "5", 0, false},
		{"less than none", "-1%", 0, false},
		{"a word", "some", 0, false},
		{"a sign alone", "%", 0, false},
		{"two signs", "1%%", 0, false},
		{"a gap", "1 %", 0, false},
		{"without bound", "inf", 0, false},
		{"not a number at all", "nan", 0, false},
	} {
		got, err := parseLoss(c.text)
		if math.Abs(got-c.want) > 1e-12 || (err == nil) != c.ok {
			t.Errorf("%s: %q is %v, %v, want %v, ok %t", c.reason, c.text, got, err, c.want, c.ok)
		}
		if err != nil && !strings.Contains(err.Error(), "--loss") {
			t.Errorf("%s: the error does not name the flag: %v", c.reason, err)
		}
	}
}

func TestParseRate(t *testing.T) {
	for _, c := range []struct {
		reason, text string
		want         int64
		ok           bool
	}{
		{"nothing is unlimited", "", 0, true},
		{"megabits", "100mbit", 100_000_000, true},
		{"kilobits", "64kbit", 64_000, true},
		{"gigabits, with a fraction", "2.5gbit", 2_500_000_000, true},
		{"bits", "9600bit", 9600, true},
		{"capitals", "10Mbit", 10_000_000, true},
		{"the most there is", "100gbit", internet.MaxRate, true},
		{"more than that", "101gbit", 0, false},
		{"the least there is", "8kbit", internet.MinRate, true},
		{"less than that", "7.9kbit", 0, false},
		{"part of a bit, which would be unlimited when rounded", "0.5bit", 0, false},
		{"no unit", "100", 0, false},
		{"another unit", "100MB", 0, false},
		{"a unit alone", "mbit", 0, false},
		{"nothing of a unit", "0mbit", 0, false},
		{"less than nothing", "-1mbit", 0, false},
		{"no number", "fastmbit", 0, false},
		{"without bound", "infmbit", 0, false},
		{"not a number at all", "nanmbit", 0, false},
	} {
		got, err := parseRate(c.text)
		if got != c.want || (err == nil) != c.ok {
			t.Errorf("%s: %q is %d, %v, want %d, ok %t", c.reason, c.text, got, err, c.want, c.ok)
		}
		if err != nil && !strings.Contains(err.Error(), "--rate") {
			t.Errorf("%s: the error does not name the flag: %v", c.reason, err)
		}
	}
}

func TestPrintLinks(t *testing.T) {
	var out bytes.Buffer
	printLinks(&out, nil)
	printLinks(&out, []internet.Link{
		{A: "athens", B: "rome", Cut: true},
		{A: "milan", B: "rome", Delay: 50 * time.Millisecond, Loss: 0.015, Rate: 100_000_000},
		{A: "a-very-long-cluster", B: "rome", Rate: 64_000},
	})
	want := `All links are plain wires.
LINK                        STATE  DELAY  LOSS  RATE
athens - rome               CUT    0s     0%    unlimited
milan - rome                up     50ms   1.5%  100mbit
a-very-long-cluster - rome  up     0s     0%    0.064mbit
`
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Errorf("links (-want +got):\n%s", d)
	}
}

// status is a sandbox of two clusters, one of them half down.
func status() cluster.Status {
	prefix, address := netip.MustParsePrefix, netip.MustParseAddr
	return cluster.Status{
		Name: "default", MemoryPSS: 20 << 20,
		Links: []internet.Link{{A: "milan", B: "rome", Cut: true}},
		Clusters: []cluster.ClusterStatus{
			{
				Name: "rome", Version: "v1.36.3", API: "https://198.18.0.2:6443", State: cluster.Ready, CNI: "bridge", ControlPID: 100,
				Labels: map[string]string{"region": "eu"}, MemoryPSS: 900 << 20,
				Network: []netip.Prefix{prefix("198.18.0.0/24")}, PodRanges: []netip.Prefix{prefix("10.42.0.0/16")}, ServiceRanges: []netip.Prefix{prefix("10.43.0.0/16")},
				Nodes: []cluster.NodeStatus{{
					Name: "rome-1", State: cluster.Ready, PID: 101, MemoryPSS: 300<<20 + 1,
					Addresses: []netip.Addr{address("198.18.0.11")}, PodRanges: []string{"10.42.0.0/24"},
				}},
			},
			{
				Name: "milan", Version: "v1.34.4", API: "https://198.18.1.2:6443", State: cluster.NotReady, CNI: "flannel", BehindNAT: true, ControlPID: 200,
				Network: []netip.Prefix{prefix("198.18.1.0/24")}, PodRanges: []netip.Prefix{prefix("10.42.0.0/16"), prefix("fd42::/48")}, ServiceRanges: []netip.Prefix{prefix("10.43.0.0/16"), prefix("fd43::/112")},
				Nodes: []cluster.NodeStatus{{
					Name: "milan-1", State: cluster.Stopped,
					Addresses: []netip.Addr{address("198.18.1.11"), address("fd5a:70e1:a90:1::b")}, PodRanges: []string{"10.42.0.0/24", "fd42::/64"},
				}},
			},
		},
	}
}

func TestPrintStatus(t *testing.T) {
	var out bytes.Buffer
	printStatus(&out, status())
	golden(t, "status.txt", out.String())
}

func TestPrintStatusOfPlainLinks(t *testing.T) {
	var out bytes.Buffer
	s := status()
	s.Links, s.Clusters = nil, nil
	printStatus(&out, s)
	if d := cmp.Diff("CLUSTER  NODE  STATE  VERSION  ADDRESS  PODS  MEMORY\n\nAll links are plain wires.\n", out.String()); d != "" {
		t.Errorf("an empty sandbox (-want +got):\n%s", d)
	}
}

func TestPrintStatusOfControlPlanes(t *testing.T) {
	var out bytes.Buffer
	printStatus(&out, cluster.Status{Profile: config.ProfileControlPlane, Clusters: []cluster.ClusterStatus{{
		Name: "rome", Version: "v1.36.3", API: "https://127.0.0.1:20000", State: cluster.NotReady, MemoryPSS: 300 << 20,
		Hollow: &cluster.HollowStatus{Nodes: 100, Ready: 97},
	}}})
	want := `CLUSTER  NODE    STATE            VERSION  ADDRESS                  PODS  MEMORY
rome             NotReady         v1.36.3  https://127.0.0.1:20000        300 MiB
         hollow  97 of 100 Ready                                          
`
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Errorf("clusters without links (-want +got):\n%s", d)
	}
}

// TestStatusJSON guards names that scripts read.
func TestStatusJSON(t *testing.T) {
	var out bytes.Buffer
	if err := printJSON(&out, status()); err != nil {
		t.Fatal(err)
	}
	golden(t, "status.json", out.String())
	var back cluster.Status
	if err := json.Unmarshal(out.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(status(), back, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
		t.Errorf("what is written cannot be read again (-want +got):\n%s", d)
	}
}

func TestBoardOnPaper(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(1000, 0)
	b := newBoard(&out, func() time.Time { return now })
	b.set("", "compiling")
	now = now.Add(1250 * time.Millisecond)
	b.set("rome", "starting the control plane")
	b.set("a-long-cluster-name", "starting the control plane")
	b.set("rome", "starting the control plane") // no news
	now = now.Add(100 * time.Second)
	b.set("rome", "ready")
	b.close()
	want := "   0.0s  sandbox     compiling\n" +
		"   1.2s  rome        starting the control plane\n" +
		"   1.2s  a-long-cluster-name  starting the control plane\n" +
		" 101.2s  rome        ready\n"
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Errorf("progress (-want +got):\n%s", d)
	}
}

func TestBoardOnATerminal(t *testing.T) {
	var out bytes.Buffer
	b := newBoard(&out, func() time.Time { return time.Unix(1000, 0) })
	b.live = true
	b.set("rome", "starting")
	b.set("milan", strings.Repeat("é", 200))
	b.set("rome", "ready")
	want := "\x1b[2K   0.0s  rome        starting\n" +
		"\x1b[1A\x1b[2K   0.0s  rome        starting\n\x1b[2K   0.0s  milan       " + strings.Repeat("é", 78) + "\n" +
		"\x1b[2A\x1b[2K   0.0s  rome        ready\n\x1b[2K   0.0s  milan       " + strings.Repeat("é", 78) + "\n"
	b.close()
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Errorf("each line is cleared, and cut before the terminal would break it (-want +got):\n%s", d)
	}
}

func TestBoardTakesReportsAtOnce(t *testing.T) {
	var out bytes.Buffer
	b := newBoard(&out, time.Now)
	var group sync.WaitGroup
	for _, name := range []string{"rome", "milan", "athens"} {
		group.Go(func() {
			for _, doing := range []string{"one", "two", "three"} {
				b.set(name, doing)
			}
		})
	}
	group.Wait()
	if got := strings.Count(out.String(), "\n"); got != 9 {
		t.Errorf("%d lines for 9 reports:\n%s", got, out.String())
	}
}

func TestReference(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "there")
	var pages [2]string
	for i := range pages {
		if got := program("docs", dir); got.code != 0 {
			t.Fatalf("writing the reference: %+v", got)
		}
		text, err := os.ReadFile(filepath.Join(dir, "pelago-sandbox.md"))
		if err != nil {
			t.Fatal(err)
		}
		pages[i] = string(text)
	}
	if pages[0] != pages[1] {
		t.Error("the reference is not the same each time")
	}
	for _, c := range visible(tree()) {
		if !strings.Contains(pages[0], "\n## "+c.CommandPath()+"\n") {
			t.Errorf("the reference lacks %s", c.CommandPath())
		}
	}
	for _, hidden := range []string{cluster.InternetCommand + " SOCKET", "docs DIR", os.Getenv("HOME") + "/"} {
		if strings.Contains(pages[0], hidden) {
			t.Errorf("the reference shows %q", hidden)
		}
	}
}

func TestArchiveNames(t *testing.T) {
	cache := build.Cache{Dir: "/cache"}
	seen := map[string]string{}
	for _, ref := range []string{"pelago.local/nginx:demo", "nginx:demo", "pelago.local/a/b:1"} {
		path := archive(cache, ref)
		if filepath.Dir(path) != "/cache/own-images" {
			t.Errorf("image %s is kept in %s", ref, path)
		}
		if other, taken := seen[path]; taken {
			t.Errorf("images %s and %s are both kept in %s", ref, other, path)
		}
		seen[path] = ref
	}
}

func TestWantedClusters(t *testing.T) {
	name := nobody(t)
	file := filepath.Join(t.TempDir(), "sandbox.yaml")
	if err := os.WriteFile(file, []byte("clusters:\n- name: athens\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		reason   string
		file     string
		clusters []string
		given    map[string]bool
		want     string
	}{
		{"a new sandbox gets what the flags default to", "", []string{"rome", "milan"}, nil, "rome milan"},
		{"or what they say", "", []string{"turin"}, map[string]bool{"clusters": true}, "turin"},
		{"or what a file says", file, []string{"rome", "milan"}, nil, "athens"},
	} {
		got, err := wantedClusters(name, upFlags{file: c.file, clusters: c.clusters, given: c.given})
		var names []string
		for _, k := range got.Clusters {
			names = append(names, k.Name)
		}
		if strings.Join(names, " ") != c.want || err != nil {
			t.Errorf("%s: %v, %v, want %s", c.reason, names, err, c.want)
		}
	}
}
