package cli

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/pelago-dev/pelago/cli/reach"
)

// TestTestGateways: the gateways to providers are known by what agents report, and not those to tenants.
func TestTestGateways(t *testing.T) {
	s := busy()
	s.fabric = joined()
	if got := s.gateways(now); !maps.Equal(got, map[string]string{"milan": "rome-1"}) {
		t.Errorf("gateways are %v", got)
	}
	s.fabric.leases = nil
	if got := s.gateways(now); len(got) > 0 {
		t.Errorf("without a report they are %v", got)
	}
}

// TestTestShowsGateway: each way says whether the pod here was on the gateway's node, "-" where that is not known.
func TestTestShowsGateway(t *testing.T) {
	home := reach.Pod{Name: "home", Home: true, Node: "rome-2", Gateways: map[string]string{"milan": "rome-2", "oslo": "rome-1"}}
	pods := []reach.Pod{home, {Name: "milan", Cluster: "milan"}, {Name: "oslo", Cluster: "oslo"}}
	var results []reach.Result
	for _, way := range [][2]string{{"home", "milan"}, {"oslo", "home"}, {"milan", "oslo"}} {
		p := reach.Path{From: way[0], To: way[1], By: "pod address", Family: reach.IPv4, Host: "10.81.0.7"}
		results = append(results, reach.Judge(p, reach.Answer{Server: way[1]}, pods))
	}
	var out bytes.Buffer
	if err := printPaths(&out, false, 120, results); err != nil {
		t.Fatal(err)
	}
	var said []string
	for line := range strings.Lines(out.String()) {
		words := strings.Fields(line)
		said = append(said, words[len(words)-1])
	}
	if want := []string{"GATEWAY", "on", "off", "-"}; !slices.Equal(said, want) {
		t.Errorf("it says %q, want %q:\n%s", said, want, out.String())
	}
	text, err := json.Marshal(results)
	if err != nil || strings.Count(string(text), `"gateway":"on"`) != 1 || strings.Count(string(text), `"gateway":`) != 2 {
		t.Errorf("in JSON: %s, %v", text, err)
	}
}
