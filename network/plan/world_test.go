package plan

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/health"
	"github.com/pelago-dev/pelago/network/ipam"
	"github.com/pelago-dev/pelago/network/netns"
	"github.com/pelago-dev/pelago/network/netnstest"
	"github.com/pelago-dev/pelago/network/tunnel"
)

// world is two peered clusters of the same addresses, whose nodes reach each other over a
// router, each by an address of its own.
type world struct {
	t           *testing.T
	router      *netnstest.Place
	rome, milan *side
}

// side is a cluster with what its agents know, all of them the same.
type side struct {
	*netnstest.Cluster
	in     Input
	table  *ipam.Table
	secret tunnel.Secret
	agents [2]*agent
}

// agent does on a node what its plan says.
type agent struct {
	t       *testing.T
	node    *netnstest.Node
	held    *netns.Held
	kernel  *dataplane.Kernel
	secret  tunnel.Secret
	running map[string]*running
	// unbounded lets any number of connections begin at once.
	unbounded bool
}

// running is a tunnel with its prober and responder.
type running struct {
	space  *os.File
	device *tunnel.Device
	prober *health.Prober
	cancel context.CancelFunc
	parts  sync.WaitGroup
}

const listenPort = 51820

var (
	ownPods     = podsOf(42)
	ownExternal = prefixes("10.43.0.0/24", "fd43::/112")
)

func podsOf(number int) []netip.Prefix {
	return []netip.Prefix{netnstest.Range(number, true), netnstest.Range(number, false)}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldAs(t, Consumer, Provider)
}

// newWorldAs makes rome and milan in these roles.
func newWorldAs(t *testing.T, rome, milan Role) *world {
	t.Helper()
	return newWorldOf(t, rome, milan, 42)
}

// newWorldOf is newWorldAs with milan's pods in the range of a number. That of rome's is 42.
func newWorldOf(t *testing.T, rome, milan Role, number int) *world {
	t.Helper()
	w := &world{t: t, router: netnstest.NewPlace(t, "router")}
	w.router.Sysctl("ipv4/ip_forward", "1")
	// What is for nobody here gets no answer, as in the internet.
	_, all, _ := net.ParseCIDR("0.0.0.0/0")
	w.router.Must(w.router.Kernel.RouteAdd(&netlink.Route{Dst: all, Type: unix.RTN_BLACKHOLE}))
	w.rome, w.milan = w.newSideOf("rome", "198.51.100", "milan", rome, 42, number), w.newSideOf("milan", "203.0.113", "rome", milan, number, 42)
	w.rome.meet(w.milan, "203.0.113")
	w.milan.meet(w.rome, "198.51.100")
	return w
}

// newSide makes a cluster, its nodes at addresses of a network of theirs.
func (w *world) newSide(name, network, peer string, role Role) *side {
	w.t.Helper()
	return w.newSideOf(name, network, peer, role, 42, 42)
}

// newSideOf is newSide with pods in the range of a number, and those of its peer in that of another.
func (w *world) newSideOf(name, network, peer string, role Role, number, peers int) *side {
	w.t.Helper()
	secret, err := tunnel.NewSecret()
	if err != nil {
		w.t.Fatal(err)
	}
	s := &side{Cluster: netnstest.NewClusterOf(w.t, name, number), secret: secret}
	s.in = Input{Pods: podsOf(number), External: ownExternal}
	for i, n := range s.Nodes {
		n.Join("eth1", w.router, n.Name, 1500)
		n.Address("eth1", outside(network, i)+"/30")
		w.router.Address(n.Name, fmt.Sprintf("%s.%d/30", network, 4*i+2))
		n.Route("0.0.0.0/0", fmt.Sprintf("%s.%d", network, 4*i+2), "eth1")
		s.in.Nodes = append(s.in.Nodes, Node{
			Name: n.Name, Addresses: []netip.Addr{netnstest.NodeAddr(i, true), netnstest.NodeAddr(i, false)}, Alive: true, MTU: 1500,
			Ranges: []netip.Prefix{netnstest.NodeRangeOf(number, i, true), netnstest.NodeRangeOf(number, i, false)},
		})
		s.agents[i] = newAgent(w.t, n, secret)
	}
	var ranges []string
	for _, p := range append(podsOf(peers), ownExternal...) {
		ranges = append(ranges, p.String())
	}
	// Where the peer's ranges are ours, that makes their views others.
	results := ipam.Allocate(ipam.Own{
		Pods: podsOf(number), External: ownExternal, Nodes: prefixes("192.168.0.0/24", "fd19::/64"), Pools: prefixes("10.80.0.0/12", "fd80::/16"),
	}, []ipam.Peering{{Key: peer, Ranges: ranges}})
	s.table = ipam.NewTable(results)
	s.in.Peerings = []Peering{{Key: peer, Role: role, Views: results[peer].Views, ListenPort: listenPort, Secret: name + "-key"}}
	return s
}

func outside(network string, i int) string { return fmt.Sprintf("%s.%d", network, 4*i+1) }

// meet tells a side what its peer has published.
func (s *side) meet(peer *side, network string) {
	p := &s.in.Peerings[0]
	p.Peer = peer.secret.Public()
	for i := range peer.Nodes {
		p.Endpoints = append(p.Endpoints, fmt.Sprintf("%s:%d", outside(network, i), listenPort))
	}
}

// seen is the view that a side has of its peer's address.
func (s *side) seen(t *testing.T, real netip.Addr) netip.Addr {
	t.Helper()
	a, ok := s.table.View(s.in.Peerings[0].Key, real)
	if !ok {
		t.Fatalf("%s has no view of %s", s.Name, real)
	}
	return a
}

// gateway is the number of the node that is gateway.
func (s *side) gateway(t *testing.T) int {
	t.Helper()
	name := Compute(s.in).Gateways[s.in.Peerings[0].Key]
	for i, n := range s.Nodes {
		if n.Name == name {
			return i
		}
	}
	t.Fatalf("%s has no gateway", s.Name)
	return 0
}

func newAgent(t *testing.T, n *netnstest.Node, secret tunnel.Secret) *agent {
	t.Helper()
	a := &agent{t: t, node: n, held: &netns.Held{}, secret: secret, running: map[string]*running{}}
	var err error
	if a.kernel, err = dataplane.New(dataplane.Options{Host: n.File, Namespaces: a.held}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for key := range a.running {
			a.stop(key)
		}
		a.kernel.Close()
		names, _ := a.held.List()
		for _, name := range names {
			_ = a.held.Remove(name)
		}
	})
	return a
}

// apply makes the node what its plan says.
func (a *agent) apply(in Input) {
	a.t.Helper()
	in.Node = a.node.Name
	p := Compute(in)
	for _, problem := range p.Problems {
		if in.Peerings != nil {
			a.t.Errorf("%s: %s", a.node.Name, problem)
		}
	}
	wanted := map[string]bool{}
	for _, c := range p.Tunnels {
		wanted[c.Peering] = true
	}
	for key := range a.running {
		if !wanted[key] {
			a.stop(key)
		}
	}
	a.set(p)
	for i, c := range p.Tunnels {
		c.Config.PrivateKey = a.secret
		if r := a.running[c.Peering]; r != nil {
			a.node.Must(r.device.Set(c.Config))
			continue
		}
		r := a.open(c)
		a.set(p) // with the tunnel's device
		a.probe(r, p.Probes[i])
		a.running[c.Peering] = r
	}
}

func (a *agent) set(p Plan) {
	a.t.Helper()
	for i := range p.Config.Gateways {
		if a.unbounded {
			p.Config.Gateways[i].Begin = 0
		}
	}
	a.node.Must(a.kernel.Set(a.t.Context(), p.Config))
}

func (a *agent) open(c Tunnel) *running {
	a.t.Helper()
	space, err := a.held.Open(c.Peering)
	a.node.Must(err)
	device, err := tunnel.New(tunnel.Options{Namespace: space, Host: a.node.File})
	a.node.Must(err)
	a.node.Must(device.Set(c.Config))
	return &running{space: space, device: device}
}

func (a *agent) probe(r *running, p Probe) {
	a.t.Helper()
	var answers, questions *net.UDPConn
	a.node.Must(netns.In(r.space, func() (err error) {
		if answers, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(p.At)); err == nil {
			questions, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(p.At.Addr(), 0)))
		}
		return err
	}))
	from := []netip.Prefix{netip.PrefixFrom(p.Peer.Addr(), 32)}
	responder := health.NewResponder(health.ResponderOptions{Peering: p.Peering, Conn: answers, From: from})
	r.prober = health.NewProber(health.ProberOptions{
		Peering: p.Peering, Conn: questions, Peer: p.Peer, Kick: func(context.Context) { _ = r.device.Kick() },
	})
	var ctx context.Context
	ctx, r.cancel = context.WithCancel(context.Background())
	r.parts.Go(func() { _ = responder.Run(ctx) })
	r.parts.Go(func() { _ = r.prober.Run(ctx) })
}

func (a *agent) stop(key string) {
	r := a.running[key]
	delete(a.running, key)
	r.cancel()
	r.parts.Wait()
	if err := r.device.Close(); err != nil {
		a.t.Errorf("%s: %v", a.node.Name, err)
	}
	_ = r.space.Close()
}

// report is what the prober of a side's gateway says.
func (s *side) report(i int) health.Report {
	for _, r := range s.agents[i].running {
		return r.prober.Report()
	}
	return health.Report{}
}

// apply makes nodes, all if none is given, what their plans say, the gateway first.
func (s *side) apply(t *testing.T, nodes ...int) {
	t.Helper()
	if len(nodes) == 0 {
		g := s.gateway(t)
		nodes = []int{g, 1 - g}
	}
	for _, i := range nodes {
		s.agents[i].apply(s.in)
	}
}

// alive waits until the tunnel is alive by both sides' probes, and returns how long that took.
func (w *world) alive(t *testing.T) time.Duration {
	t.Helper()
	return netnstest.Await(t, "probes of both sides say that the tunnel is alive", netnstest.Patience, func() bool {
		for _, s := range []*side{w.rome, w.milan} {
			if r := s.report(s.gateway(t)); !r.Known || !r.Alive {
				return false
			}
		}
		return true
	})
}
