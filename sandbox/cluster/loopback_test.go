package cluster

import (
	"context"
	"fmt"
	"net"
	"os"
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

// occupy listens on a port of loopback until the test ends.
func occupy(t *testing.T, address string) {
	t.Helper()
	listener, err := net.Listen("tcp4", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
}

// runs starts the control machine of a cluster with a unit that listens on a port of loopback.
func runs(t *testing.T, c *Cluster, address string) *machine.Machine {
	t.Helper()
	ctx := context.Background()
	m, err := machine.Start(ctx, c.machineSpec(c.ControlName()))
	if err == nil {
		err = m.Ensure(ctx, machine.Unit{Name: "listen", Args: []string{c.Program, "test-listen", c.Name, address}})
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestPortsThatOthersHave: another user's sandbox may have chosen the same ones, and whatever came
// after they were chosen.
func TestPortsThatOthersHave(t *testing.T) {
	name := randomName(t)
	ownBase(t)
	s, err := Prepare(name, controlPlanes(t, 1, "rome", "milan", "athens", "turin"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.installProgram(); err != nil {
		t.Fatal(err)
	}
	rome, milan, athens := s.Clusters[0], s.Clusters[1], s.Clusters[2]
	occupy(t, rome.local(portEtcd)) // of one that does not run
	before := s.ports()
	whole, broken := runs(t, milan, milan.local(portAPI)), runs(t, athens, athens.local(portEtcd))
	occupy(t, athens.local(portAPI)) // of one that runs and can have only some of its own
	err = within(context.Background(), time.Minute, "units to listen", func(context.Context) error {
		for _, address := range []string{milan.local(portAPI), athens.local(portEtcd)} {
			conn, err := net.Dial("tcp4", address)
			if err != nil {
				return err
			}
			conn.Close()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	s.Report = func(cluster, doing string) { said = append(said, cluster+": "+doing) }
	for range 2 { // the second time all have their own
		if err := s.movePorts(); err != nil {
			t.Fatal(err)
		}
	}
	now := s.ports()
	for cluster, moves := range map[string]bool{"rome": true, "milan": false, "athens": true, "turin": false} {
		if (now[cluster] != before[cluster]) != moves || now[cluster] == 0 {
			t.Errorf("%s had port %d and has %d, want it moved: %t", cluster, before[cluster], now[cluster], moves)
		}
	}
	want := []string{
		fmt.Sprintf("rome: another program has %s; it gets other ports", net.JoinHostPort("127.0.0.1", strconv.Itoa(before["rome"]+portEtcd))),
		fmt.Sprintf("athens: another program has %s; it gets other ports", net.JoinHostPort("127.0.0.1", strconv.Itoa(before["athens"]+portAPI))),
	}
	if d := cmp.Diff(want, said); d != "" {
		t.Errorf("what is said (-want +got):\n%s", d)
	}
	if !free(now["rome"], portsEach) || !free(now["athens"], portsEach) || now["rome"] == now["athens"] {
		t.Errorf("what they got is not free: %v", now)
	}
	if !Alive(whole.PID) || Alive(broken.PID) {
		t.Errorf("milan runs: %t; athens, whose API server could not listen, runs: %t", Alive(whole.PID), Alive(broken.PID))
	}
	opened, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(now, opened.ports()); d != "" {
		t.Errorf("what is stored (-want +got):\n%s", d)
	}
	if err := opened.Clusters[0].credentials(); err != nil {
		t.Fatal(err)
	}
	config, err := opened.Clusters[0].Config()
	if err != nil || config.Host != "https://"+rome.local(portAPI) {
		t.Errorf("the kubeconfig leads to %v, %v, want %s", config, err, rome.local(portAPI))
	}
}

// TestUpResumesTheAPI: one that was paused would never be ready.
func TestUpResumesTheAPI(t *testing.T) {
	name := randomName(t)
	s, err := Prepare(name, controlPlanes(t, 0, "rome"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.installProgram(); err != nil {
		t.Fatal(err)
	}
	c := s.Clusters[0]
	c.Kube = filepath.Join(t.TempDir(), "kube")
	if err := os.WriteFile(c.Kube, []byte("#!/bin/sh\nexec sleep 1000\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := c.credentials(); err != nil {
		t.Fatal(err)
	}
	control, err := machine.Start(t.Context(), c.machineSpec(c.ControlName()))
	if err != nil {
		t.Fatal(err)
	}
	if err := control.Ensure(t.Context(), c.apiServerUnit()); err != nil {
		t.Fatal(err)
	}
	units, err := control.Units(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	await := func(paused bool) {
		t.Helper()
		err := within(t.Context(), time.Minute, "the API server", func(context.Context) error {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", units[0].PID))
			if err == nil && strings.Contains(string(text), ") T ") != paused {
				err = fmt.Errorf("it is paused: %t", !paused)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := c.PauseAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(true)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- c.startUnits(ctx, control) }()
	await(false)
	cancel()
	if err := <-done; err == nil {
		t.Error("it is said to be ready, and answers nothing")
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
