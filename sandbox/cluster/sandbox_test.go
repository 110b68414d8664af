package cluster

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pelago-dev/pelago/sandbox/address"
	"github.com/pelago-dev/pelago/sandbox/config"
	"github.com/pelago-dev/pelago/sandbox/internet"
)

func TestCheckName(t *testing.T) {
	for _, c := range []struct {
		reason, name string
		ok           bool
	}{
		{"the usual one", "default", true},
		{"one letter", "a", true},
		{"digits and hyphens inside", "ci-2-b", true},
		{"twenty characters", strings.Repeat("a", 20), true},
		{"twenty-one characters", strings.Repeat("a", 21), false},
		{"empty", "", false},
		{"a digit first", "1a", false},
		{"a hyphen first", "-a", false},
		{"a hyphen last", "a-", false},
		{"a capital", "A", false},
		{"an underscore", "a_b", false},
		{"a way out of the folder", "..", false},
		{"a path", "a/b", false},
		{"a line end", "a\n", false},
	} {
		err := checkName(c.name)
		if (err == nil) != c.ok {
			t.Errorf("%s: %q: %v, want ok %t", c.reason, c.name, err, c.ok)
		}
		if err != nil && !strings.Contains(err.Error(), "--name") {
			t.Errorf("%s: the error does not name the flag: %v", c.reason, err)
		}
	}
	for _, err := range []error{second(Open("../etc")), second(Prepare("../etc", config.Sandbox{})), Down("../etc")} {
		if err == nil {
			t.Error("a path was taken for a name")
		}
	}
}

func second(_ *Sandbox, err error) error { return err }

func wanted(t *testing.T, nodes int, names ...string) []config.Cluster {
	t.Helper()
	s, err := config.Default(names, nodes)
	if err != nil {
		t.Fatal(err)
	}
	return s.Clusters
}

func TestMerge(t *testing.T) {
	two := wanted(t, 2, "rome", "milan")
	many := make([]config.Cluster, 0, address.Clusters)
	for k := range address.Clusters {
		c := two[0]
		c.Name = "c" + strings.Repeat("x", k)
		many = append(many, c)
	}
	labelled := wanted(t, 2, "rome")
	labelled[0].Labels = map[string]string{"region": "eu"}
	for _, c := range []struct {
		reason        string
		there, wanted []config.Cluster
		names, mistak string
	}{
		{"a new sandbox", nil, two, "rome milan", ""},
		{"nothing asked for: what is there", two, nil, "rome milan", ""},
		{"the same again", two, two, "rome milan", ""},
		{"in another order, places stay", two, wanted(t, 2, "milan", "rome"), "rome milan", ""},
		{"one more goes to the end", two, wanted(t, 2, "athens", "rome"), "rome milan athens", ""},
		{"other nodes", two, wanted(t, 3, "milan"), "", "cluster milan is there with other settings"},
		{"other labels", two, labelled, "", "cluster rome is there with other settings"},
		{"as many as there can be", many[1:], two[:1], strings.Join(names(many[1:]), " ") + " rome", ""},
		{"one too many", many, two[:1], "", "31 clusters are too many"},
	} {
		before := len(c.there)
		got, err := merge(c.there, c.wanted)
		if c.mistak != "" {
			if err == nil || !strings.Contains(err.Error(), c.mistak) {
				t.Errorf("%s: %v, want %q", c.reason, err, c.mistak)
			}
			continue
		}
		if d := cmp.Diff(c.names, strings.Join(names(got), " ")); err != nil || d != "" || len(c.there) != before {
			t.Errorf("%s: %v (-want +got):\n%s", c.reason, err, d)
		}
	}
}

func names(clusters []config.Cluster) []string {
	var out []string
	for _, c := range clusters {
		out = append(out, c.Name)
	}
	return out
}

func TestPrepareAndOpen(t *testing.T) {
	name := randomName(t)
	if _, err := Open(name); !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), "pelago-sandbox up --name "+name) {
		t.Errorf("a sandbox that was never made: %v", err)
	}
	made, err := Prepare(name, config.Sandbox{Clusters: wanted(t, 1, "rome")})
	if err != nil {
		t.Fatal(err)
	}
	made.Clusters[0].Kube = "/cache/kube"
	made.Links = []internet.Link{{A: "milan", B: "rome", Cut: true}}
	if err := made.save(); err != nil {
		t.Fatal(err)
	}
	again, err := Prepare(name, config.Sandbox{Clusters: wanted(t, 1, "milan")})
	if err != nil {
		t.Fatal(err)
	}
	opened, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*Sandbox{again, opened} {
		if s.Index != made.Index || strings.Join(names(s.configured()), " ") != "rome milan" || len(s.Links) != 1 || s.Clusters[0].Kube != "/cache/kube" {
			t.Errorf("after a second cluster: %+v", s)
		}
		if c, err := s.Cluster("milan"); err != nil || c.Net != address.Cluster(made.Index, 1) || c.Program != filepath.Join(dirOf(name), "bin", "pelago-sandbox") {
			t.Errorf("milan is %+v, %v", c, err)
		}
	}
	if _, err := opened.Cluster("athens"); err == nil || !strings.Contains(err.Error(), "[rome milan]") {
		t.Errorf("a cluster that is not there: %v", err)
	}
	info, err := os.Stat(opened.stateFile())
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the stored state has mode %v, %v", info.Mode(), err)
	}
	if _, err := Prepare(name, config.Sandbox{Clusters: wanted(t, 9, "rome")}); err == nil || !strings.Contains(err.Error(), "sandbox "+name) {
		t.Errorf("another number of nodes: %v", err)
	}
	if err := Down(name); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(name); !errors.Is(err, ErrNone) {
		t.Errorf("after down: %v", err)
	}
}

func TestDownOfNothing(t *testing.T) {
	if err := Down(randomName(t)); err != nil {
		t.Errorf("taking down what is not there: %v", err)
	}
}

func TestSpoiltState(t *testing.T) {
	name := randomName(t)
	s, err := Prepare(name, config.Sandbox{Clusters: wanted(t, 1, "rome")})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.stateFile(), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = Down(name) }() // at once: a spoilt state is in the way of others
	if _, err := Open(name); err == nil || !strings.Contains(err.Error(), "pelago-sandbox down --name "+name) {
		t.Errorf("the error does not name the remedy: %v", err)
	}
}

func TestPlacesAreGivenOnce(t *testing.T) {
	sandboxes := []string{randomName(t), randomName(t), randomName(t)}
	places := make([]int, len(sandboxes))
	var group sync.WaitGroup
	for i, name := range sandboxes {
		group.Go(func() {
			s, err := Prepare(name, config.Sandbox{Clusters: wanted(t, 1, "rome")})
			if err != nil {
				t.Error(err)
				return
			}
			places[i] = s.Index
		})
	}
	group.Wait()
	if places[0] == places[1] || places[1] == places[2] || places[0] == places[2] {
		t.Errorf("sandboxes made at once have places %v", places)
	}
	all, err := Names()
	if err != nil || !strings.Contains(strings.Join(all, " "), sandboxes[0]) {
		t.Errorf("sandboxes of the host are %v, %v", all, err)
	}
}

// TestFreePorts: nobody who asks for any port gets one of those.
func TestFreePorts(t *testing.T) {
	raw, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		t.Fatal(err)
	}
	lowest, err := strconv.Atoi(strings.Fields(string(raw))[0])
	if err != nil {
		t.Fatal(err)
	}
	ports, err := freePorts(3)
	if err != nil || len(ports) != 3 || ports[0] == ports[1] || ports[1] == ports[2] || ports[0] == ports[2] {
		t.Fatalf("%v, %v", ports, err)
	}
	for _, port := range ports {
		if at := netip.MustParseAddrPort(port); int(at.Port()) >= lowest {
			t.Errorf("port %s is of those from %d on", port, lowest)
		}
	}
}

func TestLock(t *testing.T) {
	dir := t.TempDir()
	release, err := lockFolder(dir, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if _, err := lockFolder(dir, 200*time.Millisecond); err == nil || !strings.Contains(err.Error(), "another command is changing "+filepath.Base(dir)) {
		t.Errorf("a second command: %v", err)
	}
	if took := time.Since(start); took < 200*time.Millisecond || took > time.Minute {
		t.Errorf("the second command waited %s", took)
	}
	release()
	release, err = lockFolder(dir, time.Minute)
	if err != nil {
		t.Fatalf("after the first was done: %v", err)
	}
	release()
	if _, err := lockFolder(filepath.Join(dir, "none"), time.Second); err == nil {
		t.Error("a folder that is not there was locked")
	}
}

func TestWithin(t *testing.T) {
	calls := 0
	err := within(context.Background(), time.Minute, "it", func(context.Context) error {
		if calls++; calls < 3 {
			return errors.New("not yet")
		}
		return nil
	})
	if err != nil || calls != 3 {
		t.Errorf("after %d calls: %v", calls, err)
	}
	why := errors.New("refused")
	err = within(context.Background(), 50*time.Millisecond, "the API server", func(context.Context) error { return why })
	if !errors.Is(err, why) || !strings.Contains(err.Error(), "waiting 50ms for the API server") {
		t.Errorf("after the limit: %v", err)
	}
}

func TestMachineThatDoesNotRun(t *testing.T) {
	c := in(t, plan().Clusters[0])
	if _, err := c.Machine("rome-1"); err == nil || !strings.Contains(err.Error(), "pelago-sandbox up --name test") {
		t.Errorf("the error does not name the remedy: %v", err)
	}
}
