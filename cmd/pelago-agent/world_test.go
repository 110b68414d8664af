package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/pelago-dev/pelago/internal/kubetest"
	"github.com/pelago-dev/pelago/network/netns"
	"github.com/pelago-dev/pelago/network/netnstest"
	"github.com/pelago-dev/pelago/network/tunnel"
)

// programVariable makes the test binary the program.
const programVariable = "PELAGO_AGENT_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programVariable) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// world is two peered clusters of the same addresses, each with an API server of its own,
// whose nodes reach each other over a router.
type world struct {
	t           *testing.T
	router      *netnstest.Place
	rome, milan *side
}

// side is a cluster.
type side struct {
	*netnstest.Cluster
	t       *testing.T
	network string // the first three numbers of its nodes' addresses outside
	api     *api
	secret  tunnel.Secret
	program string // what agents are, in place of this test
	agents  [2]*process
}

const port = 7100

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, router: netnstest.NewPlace(t, "router")}
	w.router.Sysctl("ipv4/ip_forward", "1")
	_, all, _ := net.ParseCIDR("0.0.0.0/0")
	w.router.Must(w.router.Kernel.RouteAdd(&netlink.Route{Dst: all, Type: unix.RTN_BLACKHOLE}))
	w.rome, w.milan = w.newSide("rome", "198.51.100"), w.newSide("milan", "203.0.113")
	return w
}

// newSide makes a cluster, its nodes at addresses of a network of theirs.
func (w *world) newSide(name, network string) *side {
	w.t.Helper()
	secret, err := tunnel.NewSecret()
	if err != nil {
		w.t.Fatal(err)
	}
	s := &side{t: w.t, Cluster: netnstest.NewCluster(w.t, name), network: network, secret: secret}
	s.api = newAPI(w.t, s)
	for i, n := range s.Nodes {
		n.Join("eth1", w.router, n.Name, 1500)
		n.Address("eth1", s.outside(i)+"/30")
		w.router.Address(n.Name, fmt.Sprintf("%s.%d/30", network, 4*i+2))
		n.Route("0.0.0.0/0", fmt.Sprintf("%s.%d", network, 4*i+2), "eth1")
	}
	return s
}

func (s *side) outside(i int) string { return fmt.Sprintf("%s.%d", s.network, 4*i+1) }

func (s *side) endpoints() []string {
	return []string{fmt.Sprintf("%s:%d", s.outside(0), port), fmt.Sprintf("%s:%d", s.outside(1), port)}
}

// process is an agent's first process with its second one.
type process struct {
	t     *testing.T
	node  *netnstest.Node
	cmd   *exec.Cmd
	ended chan error
}

// start starts the agent of a node, in that node's network namespace.
func (s *side) start(i int) {
	s.t.Helper()
	n := s.Nodes[i]
	log, err := os.Create(filepath.Join(s.t.TempDir(), n.Name+".log"))
	if err != nil {
		s.t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "--node", n.Name, "--metrics-address", "127.0.0.1:7078")
	if s.program != "" {
		cmd.Path = s.program
	}
	cmd.Env = append(os.Environ(), programVariable+"=1", "KUBECONFIG="+s.api.kubeconfig, "GORACE=atexit_sleep_ms=0 halt_on_error=1")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: 0}
	n.Must(netns.In(n.File, cmd.Start))
	p := &process{t: s.t, node: n, cmd: cmd, ended: make(chan error, 1)}
	s.agents[i] = p
	go func() { p.ended <- cmd.Wait(); close(p.ended) }()
	s.t.Cleanup(func() {
		p.die()
		text, _ := os.ReadFile(log.Name())
		_ = log.Close()
		if s.t.Failed() {
			s.t.Logf("%s:\n%s", n.Name, tail(string(text), 6000))
		}
		if strings.Contains(string(text), "DATA RACE") || strings.Contains(string(text), "panic:") {
			s.t.Errorf("%s:\n%s", n.Name, tail(string(text), 20000))
		}
	})
}

func tail(text string, most int) string { return text[max(0, len(text)-most):] }

// second is the number of the second process, 0 if there is none.
func (p *process) second() int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", p.cmd.Process.Pid, p.cmd.Process.Pid))
	if err != nil || len(strings.Fields(string(text))) == 0 {
		return p.child()
	}
	pid, _ := strconv.Atoi(strings.Fields(string(text))[0])
	return pid
}

// child finds it among all threads' children.
func (p *process) child() int {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", p.cmd.Process.Pid))
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && len(strings.Fields(string(text))) > 0 {
			pid, _ := strconv.Atoi(strings.Fields(string(text))[0])
			return pid
		}
	}
	return 0
}

// kill kills the second process.
func (p *process) kill() {
	p.t.Helper()
	pid := p.second()
	if pid == 0 {
		p.t.Fatalf("%s has no second process", p.node.Name)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		p.t.Fatal(err)
	}
}

// die kills both, as when a node loses its power.
func (p *process) die() {
	pid := p.second()
	_ = p.cmd.Process.Kill()
	if pid > 0 {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	<-p.ended
	if pid > 0 { // its devices go with it
		until(p.t, "what was killed is gone", netnstest.Patience, func() bool {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			return err != nil || strings.Contains(string(text), ") Z ")
		})
	}
}

// stop tells it to end, and waits.
func (p *process) stop() error {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case err := <-p.ended:
		return err
	case <-time.After(30 * time.Second):
		return errors.New("it does not end")
	}
}

// api is a cluster's API server, that nodes reach by a relay on their own loopback.
type api struct {
	*kubetest.APIServer
	t          *testing.T
	address    string
	kubeconfig string

	mu    sync.Mutex
	cut   map[*netnstest.Node]bool
	conns map[*netnstest.Node][]net.Conn
}

func newAPI(t *testing.T, s *side) *api {
	t.Helper()
	a := &api{APIServer: kubetest.Own(t), t: t, cut: map[*netnstest.Node]bool{}, conns: map[*netnstest.Node][]net.Conn{}}
	at, err := url.Parse(a.Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	a.address = at.Host
	a.kubeconfig = filepath.Join(t.TempDir(), s.Name)
	config, err := clientcmd.LoadFromFile(a.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range config.AuthInfos { // no other rights than the generated ones
		user.Impersonate = "system:serviceaccount:pelago-network:pelago-agent"
		user.ImpersonateGroups = []string{"system:authenticated", "system:serviceaccounts"}
	}
	if err := clientcmd.WriteToFile(*config, a.kubeconfig); err != nil {
		t.Fatal(err)
	}
	for _, n := range s.Nodes {
		a.relay(n)
	}
	return a
}

func (a *api) relay(n *netnstest.Node) {
	a.t.Helper()
	var l net.Listener
	n.In(func() (err error) {
		l, err = net.Listen("tcp", a.address)
		return err
	})
	a.t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go a.carry(n, c)
		}
	}()
}

func (a *api) carry(n *netnstest.Node, c net.Conn) {
	there, err := net.Dial("tcp", a.address)
	if err != nil {
		_ = c.Close()
		return
	}
	a.mu.Lock()
	away := a.cut[n]
	a.conns[n] = append(a.conns[n], c, there)
	a.mu.Unlock()
	if away {
		_, _ = c.Close(), there.Close()
		return
	}
	go func() { _, _ = io.Copy(there, c); _ = there.Close() }()
	_, _ = io.Copy(c, there)
	_ = c.Close()
}

// away takes the API server away from nodes, or gives it back.
func (a *api) away(is bool, nodes ...*netnstest.Node) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, n := range nodes {
		if a.cut[n] = is; is {
			for _, c := range a.conns[n] {
				_ = c.Close()
			}
			a.conns[n] = nil
		}
	}
}

// until polls until something holds.
func until(t *testing.T, what string, limit time.Duration, holds func() bool) time.Duration {
	t.Helper()
	return netnstest.Await(t, what, limit, holds)
}

// ours are the devices of a node that have our name.
func ours(t *testing.T, n *netnstest.Node) (names []string) {
	t.Helper()
	links, err := n.Kernel.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if strings.HasPrefix(l.Attrs().Name, "pelago-") {
			names = append(names, l.Attrs().Name)
		}
	}
	slices.Sort(names)
	return names
}

// hasGateway says whether a node has a gateway's device.
func hasGateway(t *testing.T, n *netnstest.Node) bool {
	t.Helper()
	return slices.ContainsFunc(ours(t, n), func(name string) bool { return name != "pelago-vx" })
}

// hasTunnel says whether a tunnel's socket is open on a node.
func hasTunnel(n *netnstest.Node) (is bool) {
	n.In(func() error {
		text, err := os.ReadFile("/proc/thread-self/net/udp")
		is = strings.Contains(string(text), fmt.Sprintf(":%04X 00000000:0000", port))
		return err
	})
	return is
}

// gateway is the number of the node that is gateway, waiting until exactly one is.
func (s *side) gateway(t *testing.T) int {
	t.Helper()
	at := 0
	until(t, s.Name+" has one gateway", 2*netnstest.Patience, func() bool {
		has := [2]bool{hasGateway(t, s.Nodes[0]), hasGateway(t, s.Nodes[1])}
		if has[1] {
			at = 1
		} else {
			at = 0
		}
		return has[0] != has[1]
	})
	return at
}

// connects waits until a pod reaches an address, and returns the connection and as whom
// the other side sees it.
func connects(t *testing.T, from *netnstest.Place, to netip.Addr) (net.Conn, string) {
	t.Helper()
	var c net.Conn
	var seen string
	until(t, fmt.Sprintf("%s reaches %s", from.Name, to), 2*netnstest.Patience, func() bool {
		var err error
		c, seen, err = from.Dial(to, 2*time.Second)
		return err == nil
	})
	return c, seen
}
