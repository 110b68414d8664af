package config

import (
	"errors"
	"flag"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

var byPrefix = cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })

func prefixes(texts ...string) []netip.Prefix {
	var ps []netip.Prefix
	for _, t := range texts {
		ps = append(ps, netip.MustParsePrefix(t))
	}
	return ps
}

func plain(name string) Cluster {
	return Cluster{
		Name: name, Version: DefaultVersion, Nodes: DefaultNodes, CNI: CNIBridge, Addons: Addons(),
		PodRanges: prefixes(DefaultPodRangeV4), ServiceRanges: prefixes(DefaultServiceRangeV4),
	}
}

func TestParseReadsEveryField(t *testing.T) {
	text, err := os.ReadFile("testdata/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse("full.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	want := Sandbox{Clusters: []Cluster{{
		Name: "rome", Version: "v1.35.2", Nodes: 3, BehindNAT: true, CNI: CNIFlannel, Domain: "rome.example", Addons: []string{},
		Labels:        map[string]string{"region": "eu-south", "topology.kubernetes.io/zone": "a", "latitude": "41.9"},
		PodRanges:     prefixes("10.50.0.0/16", "fd50::/56"),
		ServiceRanges: prefixes("10.51.0.0/20", "fd51::/112"),
	}, plain("milan")}}
	if d := cmp.Diff(want, got, byPrefix); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestParseHollowNodes(t *testing.T) {
	hollow := func(c Cluster, nodes, hollow int, start time.Duration) Cluster {
		c.Nodes, c.Hollow, c.HollowStart = nodes, hollow, start
		return c
	}
	bare := plain("rome")
	bare.CNI, bare.Addons = "", nil
	for _, c := range []struct {
		reason, text string
		want         Sandbox
	}{
		{"none unless asked for", "clusters: [{name: rome}]", Sandbox{Clusters: []Cluster{plain("rome")}}},
		{"beside real nodes", "clusters: [{name: rome, hollow: 3}]", Sandbox{Clusters: []Cluster{hollow(plain("rome"), 2, 3, time.Second)}}},
		{"with a start of their own", "clusters: [{name: rome, hollow: 3, hollowStart: 250ms}]",
			Sandbox{Clusters: []Cluster{hollow(plain("rome"), 2, 3, 250*time.Millisecond)}}},
		{"alone, whether the profile is said first", "profile: control-plane\nclusters: [{name: rome}]",
			Sandbox{Profile: ProfileControlPlane, Clusters: []Cluster{hollow(bare, 0, 2, time.Second)}}},
		{"or last", "clusters: [{name: rome, hollow: 500}]\nprofile: control-plane\n",
			Sandbox{Profile: ProfileControlPlane, Clusters: []Cluster{hollow(bare, 0, 500, time.Second)}}},
		{"none at all", "profile: control-plane\nclusters: [{name: rome, hollow: 0}]",
			Sandbox{Profile: ProfileControlPlane, Clusters: []Cluster{hollow(bare, 0, 0, 0)}}},
	} {
		got, err := Parse("f", []byte(c.text))
		if d := cmp.Diff(c.want, got, byPrefix); err != nil || d != "" {
			t.Errorf("%s: %v (-want +got):\n%s", c.reason, err, d)
		}
	}
}

func TestParseDefaultsFollowFamilies(t *testing.T) {
	for _, c := range []struct {
		reason, line   string
		pods, services []netip.Prefix
	}{
		{"nothing said is IPv4 alone", "", prefixes(DefaultPodRangeV4), prefixes(DefaultServiceRangeV4)},
		{"Services follow the pods", "podRanges: ['fd09::/48']", prefixes("fd09::/48"), prefixes(DefaultServiceRangeV6)},
		{"pods follow the Services, in their order", "serviceRanges: ['fd09::/112', 10.9.0.0/16]",
			prefixes(DefaultPodRangeV6, DefaultPodRangeV4), prefixes("fd09::/112", "10.9.0.0/16")},
	} {
		s, err := Parse("f", []byte("clusters:\n- name: rome\n  "+c.line+"\n"))
		if err != nil {
			t.Errorf("%s: %v", c.reason, err)
			continue
		}
		if d := cmp.Diff([][]netip.Prefix{c.pods, c.services}, [][]netip.Prefix{s.Clusters[0].PodRanges, s.Clusters[0].ServiceRanges}, byPrefix); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.reason, d)
		}
	}
}

func TestParseReportsEveryMistake(t *testing.T) {
	text, err := os.ReadFile("testdata/mistakes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, err = Parse("mistakes.yaml", text)
	if err == nil {
		t.Fatal("no error")
	}
	const golden = "testdata/mistakes.golden"
	got := err.Error() + "\n"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestParseMistakes(t *testing.T) {
	for _, c := range []struct{ reason, text, want string }{
		{"an empty file says what to write", "", "f:1: clusters: is missing, the file is empty; list at least one cluster"},
		{"only a comment is as empty", "# later\n", "f:1: clusters: is missing, the file is empty; list at least one cluster"},
		{"an empty list is no sandbox", "clusters: []", "f:1: clusters: has no cluster; list at least one"},
		{"a null list", "clusters:\n", "f:1: clusters: has no value; give one or remove the line"},
		{"another shape at the top", "- rome\n", "f:1: is a list; write lines of name: value below it"},
		{"a name instead of a cluster", "clusters: [rome]", "f:1: clusters[0]: is a text; write lines of name: value below it"},
		{"a tab is found where it is", "clusters:\n- name: a\n\tnodes: 3\n", "f:3: is indented with a tab, which YAML does not take; use spaces"},
		{"a bracket left open", "clusters:\n- name: a\n  labels: {a: b\n", "f:3: is not YAML: did not find expected ',' or '}'; mend the YAML here or in the lines below"},
		{"an unclosed quote", "clusters:\n- name: a\n- name: 'b\n", "f:3: is not YAML: found unexpected end of stream; mend the YAML here or in the lines below"},
		{"a second document would be ignored", "clusters: [{name: a}]\n---\nclusters: [{name: b}]\n", "f:2: a second document begins here; put all clusters into one list"},
		{"an alias could grow without bound", "clusters: [&a {name: a}, *a]", "f:1: clusters[1]: is an alias, which sandbox.yaml does not have; write the value out"},
		{"a merge key is not a field", "clusters: [{<<: {nodes: 3}, name: a}]", "f:1: clusters[0]: has a key that is not a plain word; write each field out as name: value"},
		{"a nameless cluster", "clusters: [{nodes: 2}]", "f:1: clusters[0].name: is missing; name the cluster, for instance rome"},
		{"numbers are not names", "clusters: [{name: 7}]", `f:1: clusters[0].name: "7" is read as a number, not as text; put it in quotes`},
		{"quoted numbers are texts", "clusters: [{name: a, nodes: '2'}]", `f:1: clusters[0].nodes: "2" is a text, not a whole number; write it like 2, without quotes`},
		{"half a node", "clusters: [{name: a, nodes: 2.5}]", `f:1: clusters[0].nodes: "2.5" is a number, not a whole number; write it like 2, without quotes`},
		{"more nodes than an int", "clusters: [{name: a, nodes: 99999999999999999999}]", `f:1: clusters[0].nodes: "99999999999999999999" is a number, not a whole number; write it like 2, without quotes`},
		{"yes is a text today", "clusters: [{name: a, behindNAT: yes}]", `f:1: clusters[0].behindNAT: "yes" is a text; write true or false, without quotes`},
		{"an empty value is not left out", "clusters: [{name: a, cni: ''}]", "f:1: clusters[0].cni: is empty; give a value or remove the line"},
		{"an empty list of ranges is not left out", "clusters: [{name: a, podRanges: []}]", "f:1: clusters[0].podRanges: is empty; give a range or remove the line"},
		{"one address is no range", "clusters: [{name: a, podRanges: [10.0.0.1]}]", `f:1: clusters[0].podRanges[0]: "10.0.0.1" is not an address range; write it like 10.42.0.0/16 or fd42::/48`},
		{"a range that is broken says nothing about families", "clusters: [{name: a, podRanges: ['fd::x'], serviceRanges: ['fd43::/112']}]",
			`f:1: clusters[0].podRanges[0]: "fd::x" is not an address range; write it like 10.42.0.0/16 or fd42::/48`},
		{"another word altogether lists the fields", "clusters: [{name: a, colour: red}]",
			`f:1: clusters[0]: "colour" is not a field of sandbox.yaml; use one of name, version, labels, nodes, podRanges, serviceRanges, behindNAT, cni, domain, addons, hollow, hollowStart`},
		{"a singular finds its plural", "cluster: []\nclusters: [{name: a}]", `f:1: "cluster" is not a field of sandbox.yaml; did you mean clusters?`},
		{"a profile that is none", "profile: small\nclusters: [{name: a}]", `f:1: profile: "small" is not a profile of the sandbox; write control-plane or remove the line`},
		{"an empty profile", "profile: ''\nclusters: [{name: a}]", "f:1: profile: is empty; give a value or remove the line"},
		{"machines where there are none", "clusters:\n- name: a\n  nodes: 2\nprofile: control-plane\n",
			"f:3: clusters[0].nodes: is for clusters of machines, and the profile control-plane has none; remove the line, or the profile"},
		{"a network plugin where there is no network", "profile: control-plane\nclusters: [{name: a, cni: bridge}]",
			"f:2: clusters[0].cni: is for clusters of machines, and the profile control-plane has none; remove the line, or the profile"},
		{"too many hollow nodes", "clusters: [{name: a, hollow: 1001}]", "f:1: clusters[0].hollow: is 1001; choose 0 to 1000"},
		{"a start that is no time", "clusters: [{name: a, hollow: 1, hollowStart: soon}]", `f:1: clusters[0].hollowStart: "soon" is not a span of time; write it like 1s or 250ms`},
		{"a start before its time", "clusters: [{name: a, hollow: 1, hollowStart: -1s}]", "f:1: clusters[0].hollowStart: is -1s; choose at most 10m0s"},
		{"a start of nothing", "clusters: [{name: a, hollowStart: 2s}]", "f:1: clusters[0].hollowStart: is of no use without hollow nodes; give hollow as well or remove the line"},
		{"a label twice", "clusters:\n- name: a\n  labels:\n    x: a\n    x: b\n", `f:5: clusters[0].labels: "x" is given twice, first on line 4; remove one`},
	} {
		s, err := Parse("f", []byte(c.text))
		if err == nil {
			t.Errorf("%s: no error for %q: %+v", c.reason, c.text, s)
			continue
		}
		if d := cmp.Diff(c.want, err.Error()); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.reason, d)
		}
	}
}

func TestParseIsBounded(t *testing.T) {
	if _, err := Parse("f", make([]byte, maxFile+1)); err == nil || !strings.Contains(err.Error(), "more than 1048576") {
		t.Errorf("a file over the limit: %v", err)
	}
	_, err := Parse("f", []byte("clusters:\n"+strings.Repeat("- {nodes: x}\n", 50_000)))
	if n := strings.Count(err.Error(), "\n") + 1; n != maxMistakes+1 {
		t.Errorf("a report of %d lines, want %d and a last one", n, maxMistakes)
	}
	_, err = Parse("f", []byte("clusters: [{"+strings.Repeat("x", 500_000)+": 1}]"))
	if n := len(err.Error()); n > 1000 {
		t.Errorf("a long name makes a report of %d bytes", n)
	}
}

func TestMistakesCanBeTakenApart(t *testing.T) {
	_, err := Parse("f", []byte("clusters:\n- name: a\n  nodes: 0\n"))
	var m *Mistake
	if !errors.As(err, &m) {
		t.Fatalf("%v holds no *Mistake", err)
	}
	if m.Line != 3 || m.Field != "clusters[0].nodes" {
		t.Errorf("line %d, field %s", m.Line, m.Field)
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"testdata/full.yaml", "testdata/mistakes.yaml"} {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte("clusters: [&a {name: a}, *a]"))
	f.Add([]byte("clusters:\n- name: a\n  labels: {\"x[\\\"]\": 1, ? [a] : b}\n"))
	f.Add([]byte("clusters: [{name: a, podRanges: ['::ffff:10.0.0.0/104', 10.1.2.3/33]}]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Parse("f", text)
		if err == nil {
			if err := s.Validate(); err != nil {
				t.Errorf("parsed, yet not valid: %v", err)
			}
			return
		}
		if n := strings.Count(err.Error(), "\n"); n > maxMistakes {
			t.Errorf("a report of %d lines", n)
		}
		for _, line := range strings.Split(err.Error(), "\n") {
			if !strings.HasPrefix(line, "f:") && !strings.HasPrefix(line, "and ") {
				t.Errorf("a line without its place: %q", line)
			}
		}
	})
}
