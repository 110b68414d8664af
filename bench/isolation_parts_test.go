package bench

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	mrand "math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/device"

	"github.com/pelago-dev/pelago/network/netns"
	"github.com/pelago-dev/pelago/network/netnstest"
	"github.com/pelago-dev/pelago/network/plan"
	"github.com/pelago-dev/pelago/network/tunnel"
)

// envPart names the part of a test that this process plays, and envPartOf says what it needs for it.
const (
	envPart   = "PELAGO_BENCH_PART"
	envPartOf = "PELAGO_BENCH_PART_OF"
)

func TestMain(m *testing.M) {
	switch os.Getenv(envPart) {
	case "":
		os.Exit(m.Run())
	case "agent":
		playAgent()
	case "attacker":
		playAttacker()
	case "bare":
		playBare()
	}
}

// part is another process of this test, that does as it is told line by line, and says when it does.
type part struct {
	t       *testing.T
	cmd     *exec.Cmd
	tell    io.WriteCloser
	answers *bufio.Scanner
}

// play begins a part with files, on one processor if it is not negative.
func play(t *testing.T, name string, of any, processor int, files ...*os.File) *part {
	t.Helper()
	text, err := json.Marshal(of)
	if err != nil {
		t.Fatal(err)
	}
	p := &part{t: t, cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), envPart+"="+name, envPartOf+"="+string(text))
	p.cmd.ExtraFiles, p.cmd.Stderr = files, os.Stderr
	in, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.tell = in
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.answers = bufio.NewScanner(out)
	if err := onProcessor(processor, p.cmd.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.tell.Close()
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	})
	return p
}

// onProcessor starts a process on one processor.
func onProcessor(n int, start func() error) error {
	if n < 0 {
		return start()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var was, only unix.CPUSet
	if err := unix.SchedGetaffinity(0, &was); err != nil {
		return err
	}
	only.Set(n)
	if err := unix.SchedSetaffinity(0, &only); err != nil {
		return err
	}
	err := start()
	if back := unix.SchedSetaffinity(0, &was); err == nil {
		err = back
	}
	return err
}

// do tells a part something and returns what it says.
func (p *part) do(what string) string {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.tell, what); err != nil {
		p.t.Fatalf("telling %s: %v", what, err)
	}
	if !p.answers.Scan() {
		p.t.Fatalf("no answer to %s: %v", what, p.answers.Err())
	}
	return p.answers.Text()
}

// worked is how long the part has kept processors busy.
func (p *part) worked() time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+2:]))
	var user, system int64
	_, _ = fmt.Sscan(fields[11], &user)
	_, _ = fmt.Sscan(fields[12], &system)
	return time.Duration(user+system) * 10 * time.Millisecond
}

// memory is how many MiB the part has had at most.
func (p *part) memory() (most float64) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(text), "VmHWM:")
	if _, err := fmt.Sscan(line, &most); err != nil {
		p.t.Fatalf("the memory of a process: %v", err)
	}
	return most / 1024
}

// must ends a part on an error.
func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func partOf[T any]() (of T) {
	must(json.Unmarshal([]byte(os.Getenv(envPartOf)), &of))
	return of
}

// agentTunnel is a tunnel of an agent's, in the namespace of the file of its number.
type agentTunnel struct {
	Name          string
	MTU           int
	Port          uint16
	Private, Peer [32]byte
	Endpoints     []string
}

// openApart has the tunnels of a node in a process of their own, as its agent has.
func openApart(t *testing.T, s *fabricSide, n *netnstest.Node, tunnels []plan.Tunnel, spaces []*os.File) *part {
	t.Helper()
	var of []agentTunnel
	for _, c := range tunnels {
		of = append(of, agentTunnel{Name: c.Config.Name, MTU: c.Config.MTU, Port: c.Config.ListenPort, Private: s.secret.Reveal(), Peer: [32]byte(c.Config.Peer), Endpoints: c.Config.Endpoints})
	}
	agent := play(t, "agent", of, -1, append([]*os.File{n.File}, spaces...)...)
	agent.do("are you there?")
	return agent
}

// playAgent holds tunnels, as an agent does.
func playAgent() {
	go tunnel.Thrifty(context.Background())
	host, sharing := os.NewFile(3, "host"), tunnel.NewSharing()
	for i, c := range partOf[[]agentTunnel]() {
		d, err := tunnel.New(tunnel.Options{Namespace: os.NewFile(uintptr(4+i), "gateway"), Host: host, Userspace: true, Sharing: sharing})
		must(err)
		private, err := tunnel.SecretOf(c.Private[:])
		must(err)
		must(d.Set(tunnel.Config{Name: c.Name, MTU: c.MTU, ListenPort: c.Port, PrivateKey: private, Peer: c.Peer, Endpoints: c.Endpoints}))
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		fmt.Println("here")
	}
}

// attackerOf is what an attacker knows: its own tunnel, addresses that it may call and others, and
// where tunnels of others are.
type attackerOf struct {
	Tunnel       netnstest.Tunnel
	From, Pod    netip.Addr
	Forbidden    []netip.Addr
	Own, Another netip.AddrPort
}

// attacker floods in one of several ways.
type attacker struct {
	of   attackerOf
	at   *os.File
	mode atomic.Pointer[mode]
	sent atomic.Uint64
	// say goes before what floods; port, from oldPort on, peer and heard are of the oldest connection.
	say   chan netnstest.Packet
	port  atomic.Uint32
	peer  atomic.Uint32
	heard chan struct{}
	// hostile is its gateway.
	hostile *netnstest.Hostile
}

// mode is what an attacker does, and over is closed when that is something else.
type mode struct {
	name string
	over chan struct{}
}

const (
	resting = "rest"
	burning = "burn"
)

func playAttacker() {
	a := &attacker{of: partOf[attackerOf](), at: os.NewFile(3, "attacker"), say: make(chan netnstest.Packet, 1), heard: make(chan struct{}, 1)}
	a.set(resting)
	a.hostile = &netnstest.Hostile{Feed: a.feed, Take: a.take}
	_, err := a.hostile.Begin(a.at, a.of.Tunnel)
	must(err)
	go a.outside()
	go a.burn()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		switch in.Text() {
		case anew:
			a.port.Add(1)
			a.peer.Store(0)
			fallthrough
		case asking:
			fmt.Println(a.ask())
			continue
		}
		a.set(in.Text())
		fmt.Println(a.sent.Swap(0))
	}
}

// asking has the attacker ask by its oldest connection, and say how long the answer took.
const asking = "ask by the oldest connection"

// anew has it begin another one, and ask by that from then on.
const anew = "begin the oldest connection anew"

// oldPort is that of the attacker's end of its first connection, and a later one's is above it.
const oldPort = 1000

// ask sends a request by the oldest connection, which it begins if there is none yet, until it is answered.
func (a *attacker) ask() string {
	begun := time.Now()
	for time.Since(begun) < netnstest.Patience {
		select { // what came before is no answer
		case <-a.heard:
		default:
		}
		p, beginning := netnstest.Packet{From: a.of.From, To: a.of.Pod}, a.peer.Load() == 0
		if beginning {
			p = p.TCP(a.oldest(), streamPort, netnstest.SYN, 1, 0, nil)
		} else {
			// A server that has not heard that its answer arrived forgets the connection after a minute.
			a.say <- p.TCP(a.oldest(), streamPort, netnstest.ACK, 2, a.peer.Load()+1, nil)
			// What was said already is answered with where they are.
			p = p.TCP(a.oldest(), streamPort, netnstest.ACK, 1, a.peer.Load()+1, []byte{0})
		}
		a.say <- p
		select {
		case <-a.heard:
			if !beginning {
				return time.Since(begun).Round(time.Millisecond).String()
			}
		case <-time.After(100 * time.Millisecond): // it may be lost: once more
		}
	}
	return "not"
}

func (a *attacker) oldest() uint16 { return uint16(oldPort + a.port.Load()) }

// take hears what belongs to the oldest connection.
func (a *attacker) take(b []byte) {
	if b[9] != unix.IPPROTO_TCP || binary.BigEndian.Uint16(b[22:]) != a.oldest() || b[33]&netnstest.RST != 0 {
		return
	}
	if b[33]&netnstest.SYN != 0 {
		a.peer.Store(binary.BigEndian.Uint32(b[24:]))
	}
	select {
	case a.heard <- struct{}{}:
	default:
	}
}

func (a *attacker) set(name string) {
	if before := a.mode.Swap(&mode{name, make(chan struct{})}); before != nil {
		close(before.over)
	}
}

// feed says what goes through the attacker's own tunnel.
func (a *attacker) feed(b []byte, wait bool) int {
	for {
		select {
		case p := <-a.say:
			return copy(b, p.Bytes())
		default:
		}
		now := a.mode.Load()
		if p, ok := a.inside(now.name); ok {
			a.sent.Add(1)
			return copy(b, p.Bytes())
		}
		if !wait {
			return 0
		}
		select {
		case p := <-a.say:
			return copy(b, p.Bytes())
		case <-now.over:
		}
	}
}

func (a *attacker) inside(mode string) (netnstest.Packet, bool) {
	p := netnstest.Packet{From: a.of.From, To: a.of.Pod}
	port := func() uint16 { return uint16(1024 + mrand.IntN(64000)) }
	switch mode {
	case "small datagrams to its pod":
		return p.UDP(4000, datagramPort, []byte("flood")), true
	case "datagrams to addresses that are forbidden":
		p.To = a.of.Forbidden[mrand.IntN(len(a.of.Forbidden))]
		return p.UDP(4000, datagramPort, []byte("flood")), true
	case "beginnings of connections to its pod":
		return p.TCP(port(), port(), netnstest.SYN, mrand.Uint32(), 0, nil), true
	case "datagrams of ever new ports to its pod":
		p.From = netip.AddrFrom4([4]byte{p.From.As4()[0], p.From.As4()[1], byte(mrand.Uint32()), 9}) // all of these are its own
		return p.UDP(port(), datagramPort, []byte("flood")), true
	case "fragments of packets that never end":
		p.Protocol, p.Number, p.More, p.Payload = unix.IPPROTO_UDP, port(), true, make([]byte, 1376)
		p.Offset = 8 * uint16(mrand.IntN(4000))
		return p, true
	}
	return p, false
}

// outside floods UDP ports of tunnels.
func (a *attacker) outside() {
	var c *net.UDPConn
	must(netns.In(a.at, func() (err error) {
		c, err = net.ListenUDP("udp4", nil)
		return err
	}))
	initiation := make([]byte, 148)
	_, _ = rand.Read(initiation)
	initiation[0], initiation[1], initiation[2], initiation[3] = 1, 0, 0, 0
	recorded := sealed(initiation, a.of.Tunnel.Peer)
	data := make([]byte, 1200)
	_, _ = rand.Read(data)
	data[0], data[1], data[2], data[3] = 4, 0, 0, 0
	for {
		to, b := a.of.Another, initiation
		now := a.mode.Load()
		switch now.name {
		case "wrong handshakes at the other's port":
		case "what looks like data at the other's port":
			b = data
		case "what looks like data at its own port":
			to, b = a.of.Own, data
		case "what looks like data of its own session":
			to, b = a.of.Own, ofSession(data, a.hostile.Session())
		case "what looks like empty data of its own session":
			to, b = a.of.Own, ofSession(data[:device.MessageKeepaliveSize], a.hostile.Session())
		case "handshakes sealed for its own port, and replayed":
			to, b = a.of.Own, recorded
		case "handshakes sealed for its own port, each new":
			to = a.of.Own
			binary.LittleEndian.PutUint32(initiation[4:], mrand.Uint32())
			b = sealed(initiation, a.of.Tunnel.Peer)
		default:
			<-now.over
			continue
		}
		for range 64 {
			_, _ = c.WriteToUDPAddrPort(b, to)
			a.sent.Add(1)
		}
	}
}

// ofSession is what looks like data of a session.
func ofSession(data []byte, session uint32) []byte {
	b := slices.Clone(data)
	binary.LittleEndian.PutUint32(b[4:], session)
	return b
}

// sealed is a question for a handshake with the seal that says that its sender knows whom he asks.
func sealed(question []byte, key [32]byte) []byte {
	b := slices.Clone(question)
	var macs device.CookieGenerator
	macs.Init(device.NoisePublicKey(key))
	macs.AddMacs(b)
	return b
}

// burn works for nobody.
func (a *attacker) burn() {
	for sum := uint64(1); ; {
		if now := a.mode.Load(); now.name != burning {
			<-now.over
			continue
		}
		for range 100000 {
			sum = sum*6364136223846793005 + 1
		}
		a.sent.Add(sum & 1)
	}
}
