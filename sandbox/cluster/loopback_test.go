package cluster

import (
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pelago-dev/pelago/sandbox/config"
	"github.com/pelago-dev/pelago/sandbox/machine"
)

// controlPlanes asks for clusters of the profile control-plane.
func controlPlanes(t *testing.T, hollow int, names ...string) config.Sandbox {
	t.Helper()
	s, err := config.Alike(names, config.ProfileControlPlane, config.Cluster{Hollow: hollow})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// onLoopback is a cluster of the profile control-plane with a plan of its own.
func onLoopback(t *testing.T) *Cluster {
	t.Helper()
	s := &Sandbox{Name: "test"}
	s.adopt(state{
		Profile: config.ProfileControlPlane, Clusters: controlPlanes(t, 3, "rome").Clusters, Ports: map[string]int{"rome": 20040},
		Kube: map[string]string{"v1.36.3": "/cache/kube/v1.36.3/kube"},
	})
	return s.Clusters[0]
}

func TestLoopbackUnits(t *testing.T) {
	c := onLoopback(t)
	units := append([]machine.Unit{c.etcdUnit(), c.apiServerUnit()}, c.controllerUnits()...)
	golden(t, "loopback-control.txt", describe(units))
	for _, u := range units {
		for _, arg := range u.Args {
			if strings.Contains(arg, "http://") || strings.Contains(arg, "0.0.0.0") || strings.Contains(arg, "198.18.") {
				t.Errorf("%s is told %s: it must listen on loopback alone, with a certificate", u.Name, arg)
			}
		}
	}
	if spec := c.machineSpec("rome-control"); !spec.Bare || spec.Sysctls != nil {
		t.Errorf("its machine wants root: %+v", spec)
	}
}

func TestHollowOptions(t *testing.T) {
	rome := plan().Clusters[0]
	rome.Hollow, rome.HollowStart = 2, time.Minute
	for _, c := range []struct {
		reason  string
		cluster *Cluster
		nodes   []string
		tainted bool
		address string
		cidrs   string
	}{
		{"beside real nodes", rome, []string{"rome-hollow-1", "rome-hollow-2"}, true, rome.Net.Control().V4.Addr().String(), "--allocate-node-cidrs=false"},
		{"alone", onLoopback(t), []string{"rome-hollow-1", "rome-hollow-2", "rome-hollow-3"}, false, "127.0.0.1", "--allocate-node-cidrs=false"},
	} {
		o := c.cluster.hollowOptions()
		if d := cmp.Diff(c.nodes, o.Nodes); d != "" || o.Tainted != c.tainted || o.Addresses[0].String() != c.address || o.Start != c.cluster.HollowStart {
			t.Errorf("%s: %+v (-want +got):\n%s", c.reason, o, d)
		}
		// Hundreds of nodes have no network of their own each: there are not so many.
		if text := describe(c.cluster.controllerUnits()); !strings.Contains(text, c.cidrs) {
			t.Errorf("%s: the controllers are not told %s", c.reason, c.cidrs)
		}
	}
}

func TestPortsAreChosenOnceAndStay(t *testing.T) {
	name, other := randomName(t), randomName(t)
	made, err := Prepare(name, controlPlanes(t, 1, "rome", "milan"))
	if err != nil {
		t.Fatal(err)
	}
	first := made.ports()
	busy, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(first["milan"]+portsEach+1)))
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	again, err := Prepare(name, controlPlanes(t, 1, "athens"))
	if err != nil {
		t.Fatal(err)
	}
	beside, err := Prepare(other, controlPlanes(t, 1, "turin"))
	if err != nil {
		t.Fatal(err)
	}
	now := again.ports()
	if now["rome"] != first["rome"] || now["milan"] != first["milan"] {
		t.Errorf("ports were %v and are %v", first, now)
	}
	seen := map[int]string{busy.Addr().(*net.TCPAddr).Port: "somebody else"}
	for cluster, port := range map[string]int{"rome": now["rome"], "milan": now["milan"], "athens": now["athens"], "turin": beside.ports()["turin"]} {
		for i := range portsEach {
			if whose := seen[port+i]; whose != "" {
				t.Errorf("%s and %s have port %d", cluster, whose, port+i)
			}
			seen[port+i] = cluster
		}
	}
	if _, err := Prepare(name, config.Sandbox{Clusters: wanted(t, 1, "turin")}); err == nil || !strings.Contains(err.Error(), "run down first") {
		t.Errorf("another profile: %v", err)
	}
	if err := again.NeedsMachines("links"); err == nil || !strings.Contains(err.Error(), "no links") {
		t.Errorf("what only machines have: %v", err)
	}
}

func TestUsersDoNotMeet(t *testing.T) {
	if baseOf(0, "/root") != "/var/lib/pelago-sandbox" || baseOf(1000, "/home/anna") != "/home/anna/.local/state/pelago-sandbox" {
		t.Errorf("sandboxes lie in %s and %s", baseOf(0, "/root"), baseOf(1000, "/home/anna"))
	}
	if !filepath.IsAbs(baseOf(1000, "")) {
		t.Errorf("without a home they lie in %s", baseOf(1000, ""))
	}
	if markerName("default", 0) != "default" || markerName("default", 1000) == markerName("default", 0) || markerName("default", 1000) == markerName("default", 1001) {
		t.Error("processes of sandboxes of different users have one marker")
	}
}
