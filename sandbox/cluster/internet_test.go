package cluster

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/pelago-dev/pelago/sandbox/address"
	"github.com/pelago-dev/pelago/sandbox/config"
	"github.com/pelago-dev/pelago/sandbox/internet"
)

func TestInternetConfig(t *testing.T) {
	s := plan()
	s.Links = []internet.Link{{A: "milan", B: "rome", Delay: 50 * time.Millisecond, Loss: 0.01, Rate: 100_000_000}, {A: "athens", B: "rome", Cut: true}}
	got := s.InternetConfig()
	if err := got.Validate(); err != nil {
		t.Errorf("the internet refuses it: %v", err)
	}
	text, err := json.MarshalIndent(got, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "internet.json", string(text)+"\n")
}

// TestLargestInternet is the fullest sandbox of all, every other cluster
// behind NAT.
func TestLargestInternet(t *testing.T) {
	for _, index := range []int{0, address.Sandboxes - 1} {
		stored := state{Index: index}
		for k := range address.Clusters {
			c := plan().Clusters[0].Cluster
			c.Name, c.BehindNAT = "cluster-"+string(rune('a'+k%26))+string(rune('a'+k/26)), k%2 == 0
			stored.Clusters = append(stored.Clusters, c)
		}
		s := &Sandbox{Name: "test"}
		s.adopt(stored)
		got := s.InternetConfig()
		if err := got.Validate(); err != nil || len(got.Ports) != address.Clusters {
			t.Errorf("sandbox %d with %d ports: %v", index, len(got.Ports), err)
		}
	}
}

func TestInternetWithoutClusters(t *testing.T) {
	if err := (&Sandbox{Name: "test"}).InternetConfig().Validate(); err != nil {
		t.Errorf("an empty sandbox: %v", err)
	}
}

// TestPodAddressesStayInside: no port carries a range that another cluster may
// have as well.
func TestPodAddressesStayInside(t *testing.T) {
	for _, port := range plan().InternetConfig().Ports {
		for _, p := range append(port.Prefixes, port.Private...) {
			if !address.Space4.Overlaps(p) && !address.Space6.Overlaps(p) {
				t.Errorf("port %s carries %s, no address of a machine", port.Cluster, p)
			}
		}
	}
}

func TestAddonValues(t *testing.T) {
	for number, want := range []string{
		"198.18.96.200-198.18.96.250",
		"198.18.97.200-198.18.97.250 fd5a:70e1:a90:61::c8-fd5a:70e1:a90:61::fa",
		"fd5a:70e1:a90:62::c8-fd5a:70e1:a90:62::fa",
	} {
		c := withCredentials(t, number)
		values, err := c.addonValues()
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(values.LoadBalancer, " "); got != want {
			t.Errorf("load balancers of %s have %s, want %s", c.Name, got, want)
		}
		if len(values.MetricsCA) == 0 || len(values.MetricsCert) == 0 || len(values.MetricsKey) == 0 || len(values.MemberlistKey) == 0 || values.Nodes != c.Nodes {
			t.Errorf("values of %s are incomplete", c.Name)
		}
		all, err := c.addons()
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range all {
			if _, err := a.Manifests(values); err != nil {
				t.Errorf("add-on %s of %s cannot be filled: %v", a.Name, c.Name, err)
			}
		}
	}
	if _, err := in(t, plan().Clusters[0]).addonValues(); err == nil || !strings.Contains(err.Error(), "reading secrets") {
		t.Errorf("without credentials: %v", err)
	}
}

func TestAddonsOfAClusterAndTheirImages(t *testing.T) {
	s := plan()
	for number, want := range []string{"coredns,metrics-server,local-path,load-balancer", "coredns", config.CNIFlannel} {
		all, err := s.Clusters[number].addons()
		var names []string
		for _, a := range all {
			names = append(names, a.Name)
		}
		if got := strings.Join(names, ","); got != want || err != nil {
			t.Errorf("add-ons of %s are %s, %v, want %s", s.Clusters[number].Name, got, err, want)
		}
	}
	s.Clusters = s.Clusters[1:]
	refs := strings.Join(s.imageRefs(), " ")
	for name, want := range map[string]bool{"pause": true, "busybox": true, "coredns": true, "flannel": true, "metallb": false, "metrics-server": false} {
		if got := strings.Contains(refs, "/"+name); got != want {
			t.Errorf("image %s is needed: %t, want %t; all: %s", name, got, want, refs)
		}
	}
	s.Clusters[0].Addons = []string{"no-such"}
	if _, err := s.Clusters[0].addons(); err == nil {
		t.Error("an add-on that does not exist was found")
	}
}
