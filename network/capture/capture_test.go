package capture

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/netns"
	"github.com/pelago-dev/pelago/network/netnstest"
)

const secret = "the password is swordfish"

// frame writes a frame of Ethernet with these layers above.
func frame(t testing.TB, kind layers.EthernetType, above ...gopacket.SerializableLayer) []byte {
	t.Helper()
	for i, l := range above {
		type checked interface {
			SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
		}
		if c, is := l.(checked); is {
			if n, is := above[i-1].(gopacket.NetworkLayer); is {
				if err := c.SetNetworkLayerForChecksum(n); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	all := append([]gopacket.SerializableLayer{&layers.Ethernet{
		SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, EthernetType: kind}}, above...)
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, all...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func ip4(from, to string, p layers.IPProtocol) *layers.IPv4 {
	return &layers.IPv4{Version: 4, TTL: 64, Protocol: p, SrcIP: net.ParseIP(from).To4(), DstIP: net.ParseIP(to).To4()}
}

func ip6(from, to string, p layers.IPProtocol) *layers.IPv6 {
	return &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: p, SrcIP: net.ParseIP(from), DstIP: net.ParseIP(to)}
}

func TestFilter(t *testing.T) {
	udp := func() *layers.UDP { return &layers.UDP{SrcPort: 1000, DstPort: 53} }
	four := func(from, to string) []byte {
		return frame(t, layers.EthernetTypeIPv4, ip4(from, to, layers.IPProtocolUDP), udp())
	}
	six := func(from, to string) []byte {
		return frame(t, layers.EthernetTypeIPv6, ip6(from, to, layers.IPProtocolUDP), udp())
	}
	raw, err := filter([]netip.Addr{netip.MustParseAddr("10.81.0.5"), netip.MustParseAddr("fd81::5")})
	if err != nil {
		t.Fatal(err)
	}
	passes, err := judge(raw)
	if err != nil {
		t.Fatal(err)
	}
	// The numbers of the one family where the other's are.
	confused := frame(t, layers.EthernetTypeIPv6, ip6("fd42::7", "fd42:0a51:5::", layers.IPProtocolUDP), udp())
	copy(confused[source4At:], []byte{10, 81, 0, 5})
	for name, c := range map[string]struct {
		frame  []byte
		passes bool
	}{
		"from the pod":                {four("10.81.0.5", "10.42.0.7"), true},
		"to the pod":                  {four("10.42.0.7", "10.81.0.5"), true},
		"between others":              {four("10.42.0.7", "10.81.0.6"), false},
		"from the pod, IPv6":          {six("fd81::5", "fd42::7"), true},
		"to the pod, IPv6":            {six("fd42::7", "fd81::5"), true},
		"between others, IPv6":        {six("fd42::7", "fd81::6"), false},
		"differs in one word, IPv6":   {six("fd81:0:0:1::5", "fd42::7"), false},
		"an address of other bytes":   {confused, false},
		"a question for the hardware": {frame(t, layers.EthernetTypeARP, &layers.ARP{AddrType: 1, Protocol: 0x800, HwAddressSize: 6, ProtAddressSize: 4, Operation: 1, SourceHwAddress: make([]byte, 6), SourceProtAddress: []byte{10, 81, 0, 5}, DstHwAddress: make([]byte, 6), DstProtAddress: []byte{10, 81, 0, 5}}), false},
		"cut short":                   {four("10.81.0.5", "10.42.0.7")[:20], false},
	} {
		if passes(c.frame) != c.passes {
			t.Errorf("%s: it passes: %v", name, !c.passes)
		}
	}
	for _, wrong := range [][]netip.Addr{nil, make([]netip.Addr, 3), {netip.Addr{}}, {netip.MustParseAddr("fe80::1%eth0")}, {netip.MustParseAddr("::ffff:10.0.0.1")}} {
		if _, err := filter(wrong); err == nil {
			t.Errorf("addresses %v have a filter", wrong)
		}
	}
}

// carriers are frames that carry the secret, each with how many bytes come before it.
func carriers(t testing.TB) map[string][]byte {
	body := gopacket.Payload(secret)
	tcp := &layers.TCP{SrcPort: 40000, DstPort: 80, PSH: true, ACK: true, Options: []layers.TCPOption{{OptionType: layers.TCPOptionKindTimestamps, OptionLength: 10, OptionData: make([]byte, 8)}}}
	more := ip4("10.81.0.5", "10.42.0.7", layers.IPProtocolUDP)
	more.Flags = layers.IPv4MoreFragments
	later := ip4("10.81.0.5", "10.42.0.7", layers.IPProtocolUDP)
	later.FragOffset = 100
	return map[string][]byte{
		"TCP":                 frame(t, layers.EthernetTypeIPv4, ip4("10.81.0.5", "10.42.0.7", layers.IPProtocolTCP), tcp, body),
		"UDP":                 frame(t, layers.EthernetTypeIPv4, ip4("10.81.0.5", "10.42.0.7", layers.IPProtocolUDP), &layers.UDP{SrcPort: 1, DstPort: 2}, body),
		"DNS":                 frame(t, layers.EthernetTypeIPv4, ip4("10.81.0.5", "10.42.0.7", layers.IPProtocolUDP), &layers.UDP{SrcPort: 1, DstPort: 53}, body),
		"UDP over IPv6":       frame(t, layers.EthernetTypeIPv6, ip6("fd81::5", "fd42::7", layers.IPProtocolUDP), &layers.UDP{SrcPort: 1, DstPort: 2}, body),
		"an echo":             frame(t, layers.EthernetTypeIPv4, ip4("10.81.0.5", "10.42.0.7", layers.IPProtocolICMPv4), &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(8, 0)}, body),
		"a fragment":          frame(t, layers.EthernetTypeIPv4, more, body),
		"UDP after options":   frame(t, layers.EthernetTypeIPv6, ip6("fd81::5", "fd42::7", layers.IPProtocolIPv6HopByHop), gopacket.Payload(append([]byte{60, 0, 1, 4, 0, 0, 0, 0, 17, 1, 1, 12}, make([]byte, 12+8)...)), body),
		"SCTP":                frame(t, layers.EthernetTypeIPv4, ip4("10.81.0.5", "10.42.0.7", layers.IPProtocolSCTP), &layers.SCTP{SrcPort: 1, DstPort: 2}, body),
		"UDP in IP":           frame(t, layers.EthernetTypeIPv4, ip4("10.81.0.5", "10.42.0.7", layers.IPProtocolIPv4), ip4("10.1.0.5", "10.2.0.7", layers.IPProtocolUDP), &layers.UDP{SrcPort: 1, DstPort: 2}, body),
		"a later fragment":    frame(t, layers.EthernetTypeIPv4, later, body),
		"a fragment, IPv6":    frame(t, layers.EthernetTypeIPv6, ip6("fd81::5", "fd42::7", layers.IPProtocolIPv6Fragment), gopacket.Payload([]byte{17, 0, 0, 1, 0, 0, 0, 7}), body),
		"an unknown protocol": frame(t, layers.EthernetTypeIPv4, ip4("10.81.0.5", "10.42.0.7", 253), body),
		"an unknown kind":     frame(t, 0x88b5, body),
	}
}

func TestHeaders(t *testing.T) {
	for name, f := range carriers(t) {
		n := headers(f)
		if begins := bytes.Index(f, []byte(secret)); n != begins {
			t.Errorf("%s: %d bytes of headers, and what it carries begins at %d", name, n, begins)
		}
		if says, _ := oracle(f); n != says {
			t.Errorf("%s: %d bytes of headers, gopacket says %d", name, n, says)
		}
		for cut := range n {
			if n := headers(f[:cut]); n > cut {
				t.Errorf("%s: %d bytes of headers in the first %d", name, n, cut)
			}
		}
	}
	padded := append(frame(t, layers.EthernetTypeIPv4, ip4("10.81.0.5", "10.42.0.7", layers.IPProtocolUDP)), secret...)
	if n := headers(padded); n != lengthEthernet+lengthIPv4 {
		t.Errorf("what follows a packet counts among its headers: %d bytes", n)
	}
}

// oracle is how many bytes are headers as gopacket reads a frame, false if that finds fault with it.
func oracle(frame []byte) (length int, ok bool) {
	p := gopacket.NewPacket(frame[:min(len(frame), maxHeaders)], layers.LayerTypeEthernet, gopacket.NoCopy)
	for _, l := range p.Layers() {
		four, is4 := l.(*layers.IPv4)
		six, is6 := l.(*layers.IPv6)
		if is4 && four.Version != 4 || is6 && six.Version != 6 { // which gopacket does not look at
			return length, false
		}
		if e, is := l.(*layers.Ethernet); is && e.EthernetType != layers.EthernetTypeIPv4 && e.EthernetType != layers.EthernetTypeIPv6 {
			return len(e.Contents), true // it takes a type that nobody uses for that of IP
		}
		if tcp, is := l.(*layers.TCP); is && int(tcp.DataOffset)*lengthOfWord > len(tcp.Contents) { // cut short, and taken as far as it goes
			return length, false
		}
		switch l.(type) {
		case *layers.RUDP: // which nobody speaks
			return length, true
		case gopacket.TransportLayer, *layers.ICMPv4, *layers.ICMPv6:
			return length + len(l.LayerContents()), true
		case gopacket.LinkLayer, gopacket.NetworkLayer, *layers.IPv6HopByHop, *layers.IPv6Routing, *layers.IPv6Destination, *layers.IPv6Fragment:
			length += len(l.LayerContents())
		case *gopacket.DecodeFailure:
			return length, false
		default:
			return length, true
		}
	}
	return length, true
}

func FuzzHeaders(f *testing.F) {
	for _, c := range carriers(f) {
		f.Add(c)
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		n := headers(frame)
		if n < 0 || n > min(len(frame), maxHeaders) {
			t.Errorf("%d bytes of headers in %d", n, len(frame))
		}
		if says, ok := oracle(frame); ok && n != says {
			t.Errorf("%d bytes of headers, gopacket says %d, in %x", n, says, frame)
		}
	})
}

// TestPcapng has gopacket read what is written here.
func TestPcapng(t *testing.T) {
	var b bytes.Buffer
	w, err := newPcapng(&b, []string{"peering-milan", "tenant-oslo"})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1764000000, 123456789)
	for i, data := range []string{"", "a", "ab", "abc", "abcd"} {
		if err := w.packet(packet{at: i % 2, length: 100 + i, time: at.Add(time.Duration(i)), data: []byte(data)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.statistics(1, at, at.Add(time.Hour), 7, 3), w.flush()); err != nil {
		t.Fatal(err)
	}
	r, err := pcapgo.NewNgReader(&b, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"", "a", "ab", "abc", "abcd"} {
		data, info, err := r.ReadPacketData()
		if err != nil || string(data) != want || info.Length != 100+i || info.InterfaceIndex != i%2 || !info.Timestamp.Equal(at.Add(time.Duration(i))) {
			t.Errorf("packet %d is read as %q of %+v, %v", i, data, info, err)
		}
	}
	if _, _, err := r.ReadPacketData(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last packet: %v", err)
	}
	for i, name := range []string{"peering-milan", "tenant-oslo"} {
		if at, err := r.Interface(i); err != nil || at.Name != name || at.LinkType != layers.LinkTypeEthernet || at.SnapLength != maxPacket {
			t.Errorf("interface %d is read as %+v, %v", i, at, err)
		}
	}
	if at2, err := r.Interface(1); err != nil || at2.Statistics.PacketsReceived != 7 || at2.Statistics.PacketsDropped != 3 ||
		!at2.Statistics.StartTime.Equal(at) || !at2.Statistics.EndTime.Equal(at.Add(time.Hour)) || !at2.Statistics.LastUpdate.Equal(at.Add(time.Hour)) {
		t.Errorf("statistics are read as %+v, %v", at2.Statistics, err)
	}
	if app := r.SectionInfo().Application; app != "pelago capture" {
		t.Errorf("it was written by %q", app)
	}
}

// sink is an output that can be looked at while it is written, and that breaks when told to.
type sink struct {
	mu     sync.Mutex
	b      bytes.Buffer
	broken bool
}

func (s *sink) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken {
		return 0, io.ErrClosedPipe
	}
	return s.b.Write(p)
}

func (s *sink) text() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Clone(s.b.Bytes())
}

// seen reads what was written.
func (s *sink) seen(t *testing.T) (byPeering map[string][]string, missed uint64) {
	t.Helper()
	r, err := pcapgo.NewNgReader(bytes.NewReader(s.text()), pcapgo.DefaultNgReaderOptions)
	if err != nil {
		return nil, 0
	}
	byPeering = map[string][]string{}
	for {
		data, info, err := r.ReadPacketData()
		if err != nil {
			break
		}
		at, err := r.Interface(info.InterfaceIndex)
		if err != nil {
			t.Fatal(err)
		}
		p := gopacket.NewPacket(data, layers.LayerTypeEthernet, gopacket.Default)
		if p.NetworkLayer() == nil {
			t.Fatalf("a packet of nothing: %v", p)
		}
		byPeering[at.Name] = append(byPeering[at.Name], p.NetworkLayer().NetworkFlow().String())
		if at, err := r.Interface(info.InterfaceIndex); err == nil {
			missed += at.Statistics.PacketsDropped
		}
	}
	return byPeering, missed
}

// run begins to read in a place, and returns what ends that.
func run(t *testing.T, p *netnstest.Place, o Options) (cancel func(), ended <-chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	done := make(chan error, 1)
	go func() {
		err := netns.In(p.File, func() error { return Run(ctx, o) })
		done <- err
	}()
	return cancel, done
}

func TestRun(t *testing.T) {
	node := netnstest.NewPlace(t, "node")
	for i, peering := range []string{"peering-milan", "tenant-oslo"} {
		pod := netnstest.NewPlace(t, "behind "+peering)
		device, n := dataplane.Device(peering), string(rune('1'+i))
		node.Join(device, pod, "eth0", 1500)
		node.Address(device, "10.8"+n+".0.1/24", "fd8"+n+"::1/64")
		pod.Address("eth0", "10.8"+n+".0.5/24", "10.8"+n+".0.6/24", "fd8"+n+"::5/64")
		pod.Listen()
	}
	talk := func(to string) {
		t.Helper()
		c, _, err := node.Dial(netip.MustParseAddr(to), netnstest.Patience)
		node.Must(err)
		defer func() { _ = c.Close() }()
		if _, err := io.WriteString(c, secret); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, len(secret))); err != nil {
			t.Fatal(err)
		}
	}
	addresses := []netip.Addr{netip.MustParseAddr("10.81.0.5"), netip.MustParseAddr("fd81::5")}
	for name, whole := range map[string]bool{"headers": false, "all": true} {
		t.Run(name, func(t *testing.T) {
			out := &sink{}
			cancel, ended := run(t, node, Options{Peerings: []string{"tenant-oslo", "peering-milan"}, Addresses: addresses, Whole: whole, Out: out})
			netnstest.Await(t, "it reads", netnstest.Patience, func() bool { return len(out.text()) > 0 })
			talk("10.81.0.6") // another pod's
			talk("10.82.0.5")
			talk("10.81.0.5")
			talk("fd81::5")
			both := func() bool {
				seen, _ := out.seen(t)
				flows := strings.Join(seen["peering-milan"], " ")
				for _, f := range []string{"10.81.0.1->10.81.0.5", "10.81.0.5->10.81.0.1", "fd81::1->fd81::5", "fd81::5->fd81::1"} {
					if strings.Count(flows, f) < 3 {
						return false
					}
				}
				return true
			}
			netnstest.Await(t, "both conversations are there, each way", netnstest.Patience, both)
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("it was asked to end, and did so with %v", err)
			}
			seen, _ := out.seen(t)
			if len(seen["tenant-oslo"]) > 0 || strings.Contains(strings.Join(seen["peering-milan"], " "), "10.81.0.6") {
				t.Errorf("packets of others are among %v", seen)
			}
			if has := bytes.Contains(out.text(), []byte(secret)); has != whole {
				t.Errorf("what was said is there: %v", has)
			}
		})
	}
	t.Run("nobody reads any more", func(t *testing.T) {
		out := &sink{}
		_, ended := run(t, node, Options{Peerings: []string{"peering-milan"}, Addresses: addresses, Out: out})
		netnstest.Await(t, "it reads", netnstest.Patience, func() bool { return len(out.text()) > 0 })
		out.mu.Lock()
		out.broken = true
		out.mu.Unlock()
		talk("10.81.0.5")
		if err := <-ended; !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("it ends with %v", err)
		}
	})
	t.Run("the gateway goes", func(t *testing.T) {
		out := &sink{}
		_, ended := run(t, node, Options{Peerings: []string{"peering-milan"}, Addresses: addresses, Out: out})
		netnstest.Await(t, "it reads", netnstest.Patience, func() bool { return len(out.text()) > 0 })
		node.Must(node.Kernel.LinkDel(node.Link(dataplane.Device("peering-milan"))))
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "the gateway of peering-milan has left") {
			t.Errorf("it ends with %v", err)
		}
	})
	t.Run("no gateway", func(t *testing.T) {
		_, ended := run(t, node, Options{Peerings: []string{"peering-none"}, Addresses: addresses, Out: &sink{}})
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "peering-none") {
			t.Errorf("it ends with %v", err)
		}
	})
	if err := Run(t.Context(), Options{Addresses: addresses, Out: os.Stderr}); err == nil {
		t.Error("it reads nothing, and says nothing")
	}
}
