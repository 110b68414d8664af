package cluster

import (
	"crypto/rand"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pelago-dev/pelago/sandbox/address"
	"github.com/pelago-dev/pelago/sandbox/config"
	"github.com/pelago-dev/pelago/sandbox/machine"
)

var update = flag.Bool("update", false, "write the golden files anew")

// The test binary is also the program of the machines it starts: their init,
// the router between them, and the two ends of a TCP connection.
func TestMain(m *testing.M) {
	roles := map[string]func([]string) error{
		machine.InitCommand: machine.Init, InternetCommand: route, "test-listen": listenAs, "test-dial": dialFrom,
		"test-guard": standGuard,
	}
	if len(os.Args) > 1 && roles[os.Args[1]] != nil {
		if err := roles[os.Args[1]](os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// released is what a guard hears when its sandbox is down without it.
const released = "released"

// guarded has a sandbox taken down also when the test is killed: by a process in a session of its
// own that learns of the end through a pipe.
func guarded(t *testing.T, name string) {
	t.Helper()
	command := exec.Command("/proc/self/exe", "test-guard", name)
	command.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipe, err := command.StdinPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		t.Fatalf("guarding sandbox %s: %v", name, err)
	}
	t.Cleanup(func() {
		_, _ = io.WriteString(pipe, released)
		_ = pipe.Close()
		_ = command.Wait()
	})
}

// standGuard is the guard: NAME.
func standGuard(args []string) error {
	if said, err := io.ReadAll(os.Stdin); err == nil && string(said) == released {
		return nil
	}
	return Down(args[0])
}

// golden compares a text with testdata/NAME.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; run the test with -update", err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got):\n%s", path, d)
	}
}

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

// plan is a sandbox of three clusters that differ in everything: rome as by
// default, milan behind NAT with both families, athens with flannel and IPv6
// alone.
func plan() *Sandbox {
	clusters := []config.Cluster{
		{
			Name: "rome", Version: "v1.36.3", Nodes: 2, CNI: config.CNIBridge, Addons: config.Addons(),
			Labels:    map[string]string{"region": "eu-south", "provider": "anna"},
			PodRanges: prefixes(config.DefaultPodRangeV4), ServiceRanges: prefixes(config.DefaultServiceRangeV4),
		},
		{
			Name: "milan", Version: "v1.34.4", Nodes: 3, CNI: config.CNIBridge, BehindNAT: true, Addons: []string{config.AddonDNS},
			PodRanges:     prefixes(config.DefaultPodRangeV4, config.DefaultPodRangeV6),
			ServiceRanges: prefixes(config.DefaultServiceRangeV4, config.DefaultServiceRangeV6),
		},
		{
			Name: "athens", Version: "v1.36.3", Nodes: 1, CNI: config.CNIFlannel,
			PodRanges: prefixes(config.DefaultPodRangeV6), ServiceRanges: prefixes(config.DefaultServiceRangeV6),
		},
	}
	s := &Sandbox{Name: "test"}
	s.adopt(state{Index: 3, Clusters: clusters, Kube: map[string]string{"v1.36.3": "/cache/kube/v1.36.3/kube", "v1.34.4": "/cache/kube/v1.34.4/kube"}})
	for _, c := range s.Clusters {
		c.Visible = []string{"/cache"}
	}
	return s
}

// in moves a cluster's files to a folder of the test.
func in(t *testing.T, c *Cluster) *Cluster {
	t.Helper()
	moved := *c
	moved.Dir = t.TempDir()
	return &moved
}

// requireRoot skips a test that writes to the folder of all sandboxes, but
// never where a skip would go unseen.
func requireRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("needs root to keep a sandbox in " + Base)
	}
	t.Skip("needs root to keep a sandbox in " + Base + "; run as root")
}

// randomName is a sandbox that nobody has; it is taken down after the test.
func randomName(t *testing.T) string {
	t.Helper()
	requireRoot(t)
	raw := make([]byte, 4)
	_, _ = rand.Read(raw)
	name := "test-" + hex.EncodeToString(raw)
	guarded(t, name)
	t.Cleanup(func() {
		if err := Down(name); err != nil {
			t.Errorf("taking the test's sandbox down: %v", err)
		}
		if _, err := os.Stat(dirOf(name)); err == nil {
			t.Errorf("%s remains", dirOf(name))
		}
	})
	return name
}

func TestPlanHasItsAddresses(t *testing.T) {
	s := plan()
	for k, c := range s.Clusters {
		if c.Net != address.Cluster(3, k) || c.Transit != address.Transit(3) || c.Index != k {
			t.Errorf("cluster %s has index %d and networks %v, %v", c.Name, c.Index, c.Net, c.Transit)
		}
	}
}
