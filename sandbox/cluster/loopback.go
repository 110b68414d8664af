package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/pelago-dev/pelago/sandbox/config"
	"github.com/pelago-dev/pelago/sandbox/machine"
)

// The ports of a cluster on loopback, counted from its first.
const (
	portAPI = iota
	portEtcd
	portControllers
	portScheduler
	portsEach
)

// Ports of clusters lie below those that the kernel gives to outgoing connections,
// which might otherwise have one at the moment it is needed.
const (
	firstPort = 20000
	lastPort  = 32000
)

// peerSocket is etcd's for other members, of which there are none: a file in the
// folder of the machine, which is the working folder of its units.
const peerSocket = "unix://peer:0"

// loopback tells whether the cluster is a control plane on loopback.
func (c *Cluster) loopback() bool { return c.Port != 0 }

// local is one of the cluster's own addresses on loopback.
func (c *Cluster) local(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(c.Port+port))
}

// loopbackFlags place an API server on loopback. It does not enter itself into
// the Service kubernetes, where such an address is refused.
func (c *Cluster) loopbackFlags() []string {
	return []string{
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none",
		fmt.Sprintf("--secure-port=%d", c.Port+portAPI), "--etcd-servers=https://" + c.local(portEtcd),
	}
}

// ports are the first ports of clusters on loopback, by cluster.
func (s *Sandbox) ports() map[string]int {
	var out map[string]int
	for _, c := range s.Clusters {
		if c.Port != 0 {
			if out == nil {
				out = map[string]int{}
			}
			out[c.Name] = c.Port
		}
	}
	return out
}

// choosePorts gives ports to clusters on loopback that have none. The base must be
// locked, so that no two sandboxes choose at once.
func (s *Sandbox) choosePorts(clusters []config.Cluster) (map[string]int, error) {
	ports := s.ports()
	if s.Profile != config.ProfileControlPlane {
		return ports, nil
	}
	taken, err := takenPorts()
	if err != nil {
		return nil, err
	}
	if ports == nil {
		ports = map[string]int{}
	}
	at := firstPort
	for _, c := range clusters {
		if ports[c.Name] != 0 {
			continue
		}
		for taken[at] || !free(at, portsEach) {
			if at += portsEach; at > lastPort {
				return nil, fmt.Errorf("no ports are free on loopback between %d and %d; take a sandbox down", firstPort, lastPort)
			}
		}
		ports[c.Name] = at
		at += portsEach
	}
	return ports, nil
}

// takenPorts are the first ports of all clusters of all sandboxes below Base,
// whether they run or not.
func takenPorts() (map[int]bool, error) {
	names, err := Names()
	if err != nil {
		return nil, err
	}
	taken := map[int]bool{}
	for _, name := range names {
		other, err := Open(name)
		if err != nil {
			continue // half made or spoilt: it has no ports
		}
		for _, port := range other.ports() {
			taken[port] = true
		}
	}
	return taken, nil
}

// free tells whether nobody listens on some ports of loopback in a row.
func free(port, count int) bool {
	for i := range count {
		listener, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port+i)))
		if err != nil {
			return false
		}
		listener.Close()
	}
	return true
}

// movePorts gives other ports to clusters that cannot have theirs. Whoever does not
// run cannot keep a port: other users, whose sandboxes are not seen from here, choose
// from the same ones. What runs of such a cluster ends.
func (s *Sandbox) movePorts() error {
	release, err := lockBase()
	if err != nil {
		return err
	}
	defer release()
	moved := false
	for _, c := range s.Clusters {
		control := &machine.Machine{Spec: c.machineSpec(c.ControlName())}
		address, err := c.lost(control)
		if err != nil {
			return err
		}
		if address == "" {
			continue
		}
		s.say(c.Name, "another program has %s; it gets other ports", address)
		if err := control.Kill(); err != nil {
			return fmt.Errorf("ending what cannot have %s: %w", address, err)
		}
		c.Port, moved = 0, true
	}
	if !moved {
		return nil
	}
	ports, err := s.choosePorts(s.configured())
	if err != nil {
		return err
	}
	for _, c := range s.Clusters {
		c.Port = ports[c.Name]
	}
	return s.save()
}

// lost returns the first of the cluster's addresses on loopback at which somebody
// listens who is not of its control machine.
func (c *Cluster) lost(control *machine.Machine) (string, error) {
	for i := range portsEach {
		if free(c.Port+i, 1) {
			continue
		}
		own, err := listening(control)
		if err != nil {
			return "", err
		}
		if !own[c.Port+i] {
			return c.local(i), nil
		}
	}
	return "", nil
}

// listening are the ports of IPv4 at which processes of a machine on loopback listen.
func listening(m *machine.Machine) (map[int]bool, error) {
	pids, err := m.Processes()
	if err != nil {
		return nil, err
	}
	sockets := map[string]bool{}
	for _, pid := range pids {
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		for _, file := range files {
			if to, err := os.Readlink(file); err == nil { // it may have ended
				sockets[to] = true
			}
		}
	}
	text, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return nil, fmt.Errorf("looking who listens: %w", err)
	}
	ports := map[int]bool{}
	for line := range strings.SplitSeq(string(text), "\n") {
		fields := strings.Fields(line) // number, address, peer, state, queues, timer, retransmits, user, timeout, inode
		if len(fields) < 10 || fields[3] != "0A" || !sockets["socket:["+fields[9]+"]"] {
			continue
		}
		_, port, _ := strings.Cut(fields[1], ":")
		if number, err := strconv.ParseUint(port, 16, 16); err == nil {
			ports[int(number)] = true
		}
	}
	return ports, nil
}

// upControlPlanes starts a sandbox that is control planes on loopback, or
// completes what is missing of it.
func (s *Sandbox) upControlPlanes(ctx context.Context) error {
	if err := s.buildKube(ctx); err != nil {
		return err
	}
	if err := errors.Join(s.installProgram(), s.save()); err != nil {
		return err
	}
	if err := s.movePorts(); err != nil {
		return err
	}
	return s.eachCluster(ctx, parallelLoopback, s.upLoopback)
}

// upLoopback starts a control plane on loopback with its hollow nodes, or
// completes it.
func (s *Sandbox) upLoopback(ctx context.Context, c *Cluster) error {
	s.say(c.Name, "starting the control plane")
	if err := c.credentials(); err != nil {
		return err
	}
	control, err := machine.Start(ctx, c.machineSpec(c.ControlName()))
	if err != nil {
		return err
	}
	if err := c.startUnits(ctx, control); err != nil {
		return err
	}
	client, err := c.Client()
	if err != nil {
		return err
	}
	s.say(c.Name, "waiting for hollow nodes")
	return c.awaitReady(ctx, client, func(waiting string) { s.say(c.Name, "waiting for %s", waiting) })
}

// NeedsMachines refuses what a sandbox without machines does not have.
func (s *Sandbox) NeedsMachines(what string) error {
	if s.Profile == config.ProfileControlPlane {
		return fmt.Errorf("sandbox %s has the profile %s and therefore no %s; bring up another one without --profile", s.Name, s.Profile, what)
	}
	return nil
}
