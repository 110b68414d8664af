package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// captured is when the frames of tests were seen.
var captured = time.Date(2026, 11, 22, 12, 0, 0, 123456000, time.UTC)

// body is what frames of tests carry: 60 bytes, so that none is filled up.
var body = strings.Repeat("hello", 12)

// frameOf writes a frame of Ethernet that carries it.
func frameOf(t testing.TB, from, to string, l gopacket.SerializableLayer) ([]byte, gopacket.CaptureInfo) {
	t.Helper()
	protocol := map[gopacket.LayerType]layers.IPProtocol{layers.LayerTypeTCP: layers.IPProtocolTCP, layers.LayerTypeUDP: layers.IPProtocolUDP,
		layers.LayerTypeICMPv4: layers.IPProtocolICMPv4, layers.LayerTypeICMPv6: layers.IPProtocolICMPv6}[l.LayerType()]
	kind := layers.EthernetTypeIPv4
	var ip gopacket.SerializableLayer = &layers.IPv4{Version: 4, TTL: 64, Protocol: protocol, SrcIP: net.ParseIP(from), DstIP: net.ParseIP(to)}
	if strings.Contains(from, ":") {
		kind, ip = layers.EthernetTypeIPv6, &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: protocol, SrcIP: net.ParseIP(from), DstIP: net.ParseIP(to)}
	}
	if c, is := l.(interface {
		SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
	}); is {
		if err := c.SetNetworkLayerForChecksum(ip.(gopacket.NetworkLayer)); err != nil {
			t.Fatal(err)
		}
	}
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		&layers.Ethernet{SrcMAC: make([]byte, 6), DstMAC: make([]byte, 6), EthernetType: kind}, ip, l, gopacket.Payload(body)); err != nil {
		t.Fatal(err)
	}
	frame := slices.Clone(b.Bytes())
	return frame, gopacket.CaptureInfo{Timestamp: captured, CaptureLength: len(frame), Length: len(frame)}
}

func TestDescribePacket(t *testing.T) {
	syn := &layers.TCP{SrcPort: 40000, DstPort: 80, SYN: true}
	answer := &layers.TCP{SrcPort: 80, DstPort: 40000, SYN: true, ACK: true}
	udp := &layers.UDP{SrcPort: 40000, DstPort: 53}
	pod := []netip.Addr{netip.MustParseAddr("10.254.0.5"), netip.MustParseAddr("fd54::5")}
	for _, c := range []struct {
		reason, from, to string
		layer            gopacket.SerializableLayer
		away             bool
		want             Packet
	}{
		{"to a pod that runs at the peer", "10.42.0.7", "10.254.0.5", syn, true,
			Packet{Direction: "to", From: "10.42.0.7:40000", To: "10.254.0.5:80", Protocol: "TCP", Flags: "SYN", Bytes: 100}},
		{"its answer", "10.254.0.5", "10.42.0.7", answer, true,
			Packet{Direction: "from", From: "10.254.0.5:80", To: "10.42.0.7:40000", Protocol: "TCP", Flags: "SYN ACK", Bytes: 100}},
		{"to a pod that runs here", "10.42.0.7", "10.254.0.5", udp, false,
			Packet{Direction: "from", From: "10.42.0.7:40000", To: "10.254.0.5:53", Protocol: "UDP", Bytes: 88}},
		{"of a pod that runs here, by IPv6", "fd54::5", "fd42::7", udp, false,
			Packet{Direction: "to", From: "[fd54::5]:40000", To: "[fd42::7]:53", Protocol: "UDP", Bytes: 108}},
		{"a question whether it is there", "10.42.0.7", "10.254.0.5", &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(8, 0)}, true,
			Packet{Direction: "to", From: "10.42.0.7", To: "10.254.0.5", Protocol: "ICMPv4", Flags: "EchoRequest", Bytes: 88}},
		{"it is too large for the way", "fd42::1", "fd54::5", &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(2, 0)}, true,
			Packet{Direction: "to", From: "fd42::1", To: "fd54::5", Protocol: "ICMPv6", Flags: "PacketTooBig", Bytes: 104}},
	} {
		frame, info := frameOf(t, c.from, c.to, c.layer)
		c.want.Time, c.want.Peer = captured, "milan"
		if got := describePacket(frame, info, "milan", pod, c.away); got != c.want {
			t.Errorf("%s: %+v\nwant %+v", c.reason, got, c.want)
		}
		// What an agent sends ends after the headers.
		if got := describePacket(frame[:len(frame)-len(body)], info, "milan", pod, c.away); got != c.want {
			t.Errorf("%s, headers alone: %+v\nwant %+v", c.reason, got, c.want)
		}
	}
	if got := describePacket([]byte{1, 2, 3}, gopacket.CaptureInfo{Length: 3}, "milan", pod, true); got.Protocol != "unknown" || got.Bytes != 0 {
		t.Errorf("three bytes are %+v", got)
	}
}

func FuzzReadPackets(f *testing.F) {
	var b bytes.Buffer
	file, err := newPacketFile(&b, []string{"peering-milan", "tenant-oslo"})
	if err != nil {
		f.Fatal(err)
	}
	frame, info := frameOf(f, "10.42.0.7", "10.254.0.5", &layers.UDP{SrcPort: 1, DstPort: 2})
	if err := errors.Join(file.take("tenant-oslo", frame, info), file.take("peering-milan", frame[:42], info)); err == nil {
		f.Fatal("a length that is not there is written")
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, text []byte) {
		_, _ = readPackets(bytes.NewReader(text), func(key string, frame []byte, info gopacket.CaptureInfo) error {
			describePacket(frame, info, key, nil, true)
			return nil
		})
	})
}

// capturing is a stage with a tunnel to milan whose gateway is node rome-1, with an agent, and two
// pods that talk to each other.
func capturing(t *testing.T) *stage {
	s := newStage(t, 0)
	s.install("rome", id2)
	s.withProvider()
	if err := s.c.Create(t.Context(), newNamespace(v1alpha1.NetworkNamespace)); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	labels := map[string]string{"app.kubernetes.io/name": v1alpha1.AgentName}
	spec := corev1.PodSpec{NodeName: "rome-1", Containers: []corev1.Container{{Name: "agent", Image: "x"}}, AutomountServiceAccountToken: new(bool)}
	space := v1alpha1.PeeringNamespace("milan")
	lease := agentOf("rome-1", time.Since(now), map[string]v1alpha1.TunnelReport{v1alpha1.NetworkKey(space): alive()})
	theirs, ours := config(space, "provider", key2, nil), &v1alpha1.NetworkConfig{}
	if err := s.c.Get(t.Context(), client.ObjectKey{Namespace: space, Name: v1alpha1.NetworkConsumer}, ours); err != nil {
		t.Fatal(err)
	}
	if ours.Spec.PublicKey = key1; s.c.Update(t.Context(), ours) != nil {
		t.Fatal("this cluster cannot say where its network is")
	}
	agent := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NetworkNamespace, Name: "pelago-agent-x", Labels: labels}, Spec: spec}
	s.space("shop", nil)
	s.create(&v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: "milan"}, Spec: v1alpha1.PeeringSpec{ClusterID: id1,
		Consume: &v1alpha1.Consume{AuthURL: "https://milan:1", CASHA256: hash, TokenSecret: "not-there"}}},
		&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NetworkNamespace, Name: v1alpha1.AgentName}, Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: spec.Containers}}}},
		&lease, &theirs, agent)
	agent.Status.Phase = corev1.PodRunning
	if err := s.c.Status().Update(t.Context(), agent); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ node, ip string }{"web": {"rome-node", "10.42.0.7"}, "db": {"milan", "10.254.0.5"}, "new": {"milan", ""}, "bare": {"rome-node", "192.0.2.7"}} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.PodSpec{NodeName: c.node, HostNetwork: name == "bare",
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		s.create(p)
		if c.ip != "" {
			p.Status.Phase, p.Status.PodIP, p.Status.PodIPs = corev1.PodRunning, c.ip, []corev1.PodIP{{IP: c.ip}}
			if err := s.c.Status().Update(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}
	}
	return s
}

// streamed is a player of a command in a pod that reads and writes.
type streamed func(ctx context.Context, namespace, pod string, command []string, in io.Reader, out io.Writer) error

func (s *stage) captures(stream streamed, args ...string) result {
	return s.played(func(c *Cluster) { c.Stream = stream }, append([]string{"capture"}, args...)...)
}

func TestCapture(t *testing.T) {
	s := capturing(t)
	var command []string
	// It writes two packets, and ends when its input does.
	agent := streamed(func(_ context.Context, namespace, pod string, c []string, in io.Reader, out io.Writer) error {
		if command = c; namespace != v1alpha1.NetworkNamespace || pod != "pelago-agent-x" {
			t.Errorf("it runs in pod %s of %s", pod, namespace)
		}
		file, err := newPacketFile(out, []string{"peering-milan"})
		if err != nil {
			return err
		}
		there, info := frameOf(t, "10.42.0.7", "10.254.0.5", &layers.TCP{SrcPort: 40000, DstPort: 80, SYN: true})
		back, info2 := frameOf(t, "10.254.0.5", "10.42.0.7", &layers.TCP{SrcPort: 80, DstPort: 40000, SYN: true, ACK: true})
		if err := errors.Join(file.take("peering-milan", there, info), file.take("peering-milan", back, info2)); err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, in)
		return errors.Join(file.writer.WriteInterfaceStats(0, pcapgo.NgInterfaceStatistics{PacketsReceived: 2, PacketsDropped: 7}), file.writer.Flush())
	})
	r := s.captures(agent, "db", "-n", "shop", "--count", "2")
	if r.code != 0 || !strings.Contains(r.out, "to   milan  10.42.0.7:40000 > 10.254.0.5:80  TCP SYN  100 bytes\n") ||
		!strings.Contains(r.out, "from milan  10.254.0.5:80 > 10.42.0.7:40000  TCP SYN ACK  100 bytes\n") {
		t.Errorf("of a pod at milan: %+v", r)
	}
	if !strings.Contains(r.err, "between here and milan at node rome-1") || !strings.Contains(r.err, "2 packets.") || !strings.Contains(r.err, "7 more came faster") {
		t.Errorf("beside the packets it says %q", r.err)
	}
	if want := []string{"/pelago-agent", "capture", "--peering", "peering-milan", "--address", "10.254.0.5"}; !slices.Equal(command, want) {
		t.Errorf("the agent runs %v", command)
	}
	if r := s.captures(agent, "shop/web", "--count", "1", "-o", "json"); r.code != 0 || strings.Count(r.out, "\n") != 1 || !strings.Contains(r.out, `"direction":"to","peer":"milan","from":"10.42.0.7:40000"`) {
		t.Errorf("of a pod here: %+v", r)
	}
	if r := s.captures(agent, "shop/web", "--for", "300ms", "-o", "yaml"); r.code != 0 || strings.Count(r.out, "---\n") != 2 || strings.Contains(r.err, "Ctrl-C") {
		t.Errorf("for a while: %+v", r)
	}
	name := filepath.Join(t.TempDir(), "web.pcapng")
	if r := s.captures(agent, "shop/web", "--count", "2", "--whole", "--write", name); r.code != 0 || r.out != "" || !slices.Contains(command, "--whole") {
		t.Errorf("into a file: %+v", r)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("what was said may be read: %v, %v", info.Mode(), err)
	}
	count := 0
	if _, err := readPackets(bytes.NewReader(text), func(key string, frame []byte, _ gopacket.CaptureInfo) error {
		if count++; key != "peering-milan" || !bytes.HasSuffix(frame, []byte(body)) {
			t.Errorf("the file has a packet of %s: %q", key, frame)
		}
		return nil
	}); err != nil || count != 2 {
		t.Errorf("the file has %d packets, %v", count, err)
	}
	refuses := streamed(func(context.Context, string, string, []string, io.Reader, io.Writer) error {
		return errors.New("the gateway of peering-milan has left this node")
	})
	stuck := streamed(func(ctx context.Context, _, _ string, _ []string, _ io.Reader, _ io.Writer) error {
		<-ctx.Done()
		return ctx.Err()
	})
	if r := s.captures(stuck, "shop/web", "--for", "10ms"); r.code != 0 || !strings.Contains(r.err, "0 packets.") {
		t.Errorf("an agent that does not end: %+v", r)
	}
	for _, c := range []struct {
		words []string
		code  int
		says  string
	}{
		{[]string{"shop/web"}, 1, "has left this node"},
		{[]string{"shop/none"}, 1, "there is no pod none"},
		{[]string{"shop/new"}, 1, "has no address yet; see: pelago explain pod new -n shop"},
		{[]string{"shop/bare"}, 1, "no address of its own"},
		{[]string{"shop/web", "--whole"}, 2, "add --write FILE"},
		{[]string{"shop/web", "--write", "x", "-o", "json"}, 2, "exclude each other"},
		{[]string{"shop/web", "--count", "-1"}, 2, "--count -1"},
		{[]string{"shop/web", "--for", "-1s"}, 2, "--for -1s"},
		{[]string{"shop/web", "--write", "/none/x"}, 1, "--write: open /none/x"},
		{nil, 2, "POD is missing"},
	} {
		if r := s.captures(refuses, c.words...); r.code != c.code || !strings.Contains(r.err, c.says) {
			t.Errorf("capture %v: %+v", c.words, r)
		}
	}
	lease := agentOf("rome-1", 0, nil)
	if err := s.c.Delete(t.Context(), &lease); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	if r := s.captures(refuses, "shop/web"); r.code != 1 || !strings.Contains(r.err, "no gateway of this cluster carries packets of pod web; the tunnel to milan is starting") {
		t.Errorf("without a gateway: %+v", r)
	}
}
