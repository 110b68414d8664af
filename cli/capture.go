package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/screen"
)

// captures is the command's flags.
type captures struct {
	namespace, output, file string
	peerings                []string
	whole                   bool
	limit                   time.Duration
	count                   int
}

// endLimit is how long the end of a capture may take, with the count of what was missed.
const endLimit = 3 * time.Second

func newCapture(e *Env) *cobra.Command {
	o := &captures{}
	c := &cobra.Command{
		Use:   "capture POD",
		Short: "Show the packets of a pod that cross between clusters",
		Long: `Shows each packet that a pod sends to another cluster or gets from one, until Ctrl-C: at the
gateways of this cluster, with the addresses by which it sees both ends. POD may run here or at a
provider. Packets that stay inside of one cluster are not seen. A packet that is here and not seen
by the other side's owner, who can do the same, was lost in between. Packets that go by a direct path
to another provider are shown too, also when it comes up meanwhile.

With --write they go to a file of pcapng that Wireshark and tcpdump read; - is standard output, as
for "wireshark -k -i -".
What packets carry stays on the node, only headers are shown or written, unless --whole is given.
It needs the right to run commands in pods of namespace pelago-network.`,
		Example: `  pelago capture web-0 -n shop
  pelago capture web-0 -n shop --peering milan
  pelago capture web-0 -n shop --for 30s --write web-0.pcapng
  pelago capture web-0 -n shop --whole --count 100 --write web-0.pcapng`,
		Args: exactly("POD"),
		ValidArgsFunction: func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			return e.completePods(c, args, o.namespace)
		},
		RunE: e.does(o.run),
	}
	f := c.Flags()
	f.StringVarP(&o.namespace, "namespace", "n", "", "the pod's namespace; that of the kubeconfig's context if not given")
	f.StringVarP(&o.file, "write", "w", "", "write pcapng to this file instead; - is standard output")
	f.StringSliceVar(&o.peerings, "peering", nil, "only what crosses between here and this cluster; may be given again. At one node's gateways it takes at most 16")
	f.BoolVar(&o.whole, "whole", false, "with what packets carry, not their headers alone; only with --write")
	f.IntVar(&o.count, "count", 0, "end after so many packets; 0 does not")
	durationFlag(f, &o.limit, "for", 0, "end after so long; 0 does not")
	completes(c, "namespace", e.completeAnyNamespace)
	completes(c, "peering", func(c *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		return e.completePeerings(c, nil, word)
	})
	outputFlag(c, &o.output)
	return c
}

// gateway is where packets of a pod are read: a node, and the peerings whose gateway it is.
type gateway struct {
	node, agent string
	keys        []string
}

// subject is the pod whose packets are read.
type subject struct {
	name      string
	addresses []netip.Addr
	away      bool              // it runs at a provider
	peers     map[string]string // names of clusters, by the keys of peerings and paths
	gateways  []*gateway
	unread    []*gateway // where no agent runs
}

func (o *captures) run(ctx context.Context, e *Env, args []string) error {
	switch {
	case o.count < 0:
		return usage("--count %d is less than nothing", o.count)
	case o.limit < 0:
		return usage("--for %s is less than nothing", o.limit)
	case o.whole && o.file == "":
		return usage("--whole is for files; add --write FILE")
	case o.file != "" && o.output != "":
		return usage("--output and --write exclude each other")
	}
	c, err := e.open()
	if err != nil {
		return err
	}
	reading, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	s, err := c.subject(reading, e, cmp.Or(o.namespace, c.Namespace, metav1.NamespaceDefault), args[0], o.peerings)
	if err != nil {
		return err
	}
	out, closing, err := o.sink(e, s)
	if err != nil {
		return err
	}
	for _, g := range s.gateways {
		e.note("Reading packets of %s between here and %s at node %s.", s.name, s.names(g), g.node)
	}
	for _, g := range s.unread {
		e.note("No agent runs on node %s: packets between here and %s are not seen.", g.node, s.names(g))
	}
	if o.limit == 0 && o.count == 0 {
		e.note("Ctrl-C ends it.")
	}
	seen, missed, err := o.read(ctx, e, c, s, out)
	err = errors.Join(err, closing())
	word := "packets"
	if seen == 1 {
		word = "packet"
	}
	e.note("%d %s.", seen, word)
	if missed > 0 {
		e.note("%d more came faster than they could be read.", missed)
	}
	if len(s.unread) > 0 {
		err = errors.Join(err, fmt.Errorf("not all was seen, as no agent runs on node %s, the gateway of %s; %s", s.unread[0].node, s.names(s.unread[0]), seeAgents))
	}
	return err
}

// seeAgents is how to find out why an agent does not run.
const seeAgents = "see: kubectl -n " + v1alpha1.NetworkNamespace + " get pods -o wide"

// names are those of the clusters that a gateway leads to.
func (s *subject) names(g *gateway) string {
	var names []string
	for _, k := range g.keys {
		names = append(names, s.peers[k])
	}
	return strings.Join(names, ", ")
}

// maxKeys is how many peerings an agent reads at once.
const maxKeys = 16

// subject finds a pod, and where its packets cross: between here and some clusters, or all if none is
// named.
func (c *Cluster) subject(ctx context.Context, e *Env, namespace, word string, named []string) (*subject, error) {
	p, err := c.podNamed(ctx, namespace, word)
	if err != nil {
		return nil, err
	}
	s := &subject{name: p.Name, peers: map[string]string{}}
	for _, ip := range p.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil {
			s.addresses = append(s.addresses, a)
		}
	}
	switch {
	case p.Spec.HostNetwork:
		return nil, fmt.Errorf("pod %s has no address of its own but its node's, so that its packets cannot be told from others", p.Name)
	case len(s.addresses) == 0:
		return nil, fmt.Errorf("pod %s has no address yet; see: pelago explain pod %[1]s -n %s", p.Name, p.Namespace)
	}
	all, err := c.gatherNetwork(ctx)
	if err != nil {
		return nil, err
	}
	if all.fabric.agents == nil {
		return nil, errors.New("this installation has no network between clusters, so no packets to read; see: pelago install --set network.enabled=true")
	}
	only := ""
	for i := range all.nodes {
		if n := &all.nodes[i]; n.Name == p.Spec.NodeName && n.Labels[v1alpha1.LabelType] == v1alpha1.TypeVirtualNode {
			s.away, only = true, v1alpha1.NetworkKey(v1alpha1.PeeringNamespace(n.Labels[v1alpha1.LabelPeering]))
		}
	}
	if tenant := p.Labels[v1alpha1.LabelTenant]; tenant != "" && !s.away {
		only = v1alpha1.NetworkKey(v1alpha1.TenantNamespace(tenant))
	}
	now := e.Clock.Now()
	reports, without, tunnels := all.reports(now), "", all.tunnels()
	for _, name := range named {
		if !slices.ContainsFunc(tunnels, func(t *tunnel) bool { return t.Name == name }) {
			return nil, fmt.Errorf("--peering %s: there is no network with such a cluster; see: pelago status", name)
		}
	}
	for _, t := range tunnels {
		if only != "" && t.key != only || len(named) > 0 && !slices.Contains(named, t.Name) {
			continue
		}
		t.look(all.fabric, reports[t.key], now)
		if t.Gateway == "" {
			without = fmt.Sprintf("; the tunnel to %s is %s: %s", t.Name, t.Tunnel, cmp.Or(t.Message, "see: pelago status "+t.Name))
			continue
		}
		s.peers[t.key] = t.Name
		at := slices.IndexFunc(s.gateways, func(g *gateway) bool { return g.node == t.Gateway })
		if at < 0 {
			at, s.gateways = len(s.gateways), append(s.gateways, &gateway{node: t.Gateway})
		}
		s.gateways[at].keys = append(s.gateways[at].keys, t.key)
	}
	if len(s.gateways) == 0 {
		return nil, fmt.Errorf("no gateway of this cluster carries packets of pod %s%s", p.Name, cmp.Or(without, "; see: pelago status"))
	}
	for _, g := range s.gateways {
		if len(g.keys) > maxKeys {
			return nil, fmt.Errorf("node %s is the gateway of %d peerings, and packets of %d at most can be read there at once; name those that matter with --peering: %s", g.node, len(g.keys), maxKeys, s.names(g))
		}
	}
	return s, c.agents(ctx, s)
}

// agents finds the pods in which to read.
func (c *Cluster) agents(ctx context.Context, s *subject) error {
	var pods corev1.PodList
	if err := c.Client.List(ctx, &pods, client.InNamespace(v1alpha1.NetworkNamespace), client.MatchingLabels{"app.kubernetes.io/name": v1alpha1.AgentName}); err != nil {
		return describe(fmt.Errorf("listing the agents: %w", err), c)
	}
	for _, g := range s.gateways {
		for i := range pods.Items {
			if p := &pods.Items[i]; p.Spec.NodeName == g.node && p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp.IsZero() {
				g.agent = p.Name
			}
		}
		if g.agent == "" {
			s.unread = append(s.unread, g)
		}
	}
	s.gateways = slices.DeleteFunc(s.gateways, func(g *gateway) bool { return g.agent == "" })
	if len(s.gateways) == 0 {
		return fmt.Errorf("no agent runs on node %s, which is the gateway; %s", s.unread[0].node, seeAgents)
	}
	return nil
}

// sink is where packets go: each is shown or written at once.
func (o *captures) sink(e *Env, s *subject) (take func(key string, frame []byte, info gopacket.CaptureInfo) error, closing func() error, err error) {
	closing = func() error { return nil }
	show := func(print func(Packet) error) func(string, []byte, gopacket.CaptureInfo) error {
		return func(key string, frame []byte, info gopacket.CaptureInfo) error {
			return print(describePacket(frame, info, s.peers[key], s.addresses, s.away))
		}
	}
	switch {
	case o.file != "":
		out := e.Out
		if o.file != "-" {
			f, err := os.OpenFile(o.file, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
			if err != nil {
				return nil, nil, fmt.Errorf("--write: %w", err)
			}
			out, closing = f, f.Close
		}
		file, err := newPacketFile(out, slices.Sorted(maps.Keys(s.peers)))
		if err != nil {
			return nil, nil, errors.Join(err, closing())
		}
		return func(key string, frame []byte, info gopacket.CaptureInfo) error {
			if _, has := file.interfaces[key]; !has && s.peers[key] != "" { // a path that has come up
				if err := file.add(key); err != nil {
					return err
				}
			}
			return file.take(key, frame, info)
		}, closing, nil
	case o.output == "json":
		encoder := json.NewEncoder(e.Out)
		return show(func(p Packet) error { return encoder.Encode(p) }), closing, nil
	case o.output != "":
		return show(func(p Packet) error {
			text, err := yaml.Marshal(p)
			if err == nil {
				_, err = fmt.Fprintf(e.Out, "---\n%s", text)
			}
			return err
		}), closing, nil
	}
	paint := e.paint()
	return show(func(p Packet) error {
		colour := screen.Green
		if p.Direction == fromPeer {
			colour = screen.Yellow
		}
		what := strings.TrimSpace(p.Protocol + " " + p.Flags)
		_, err := fmt.Fprintf(e.Out, "%s  %s  %s > %s  %s  %d bytes\n", p.Time.Local().Format("15:04:05.000000"),
			paint.Text(colour, fmt.Sprintf("%-4s %s", p.Direction, screen.Clean(p.Peer))), p.From, p.To, screen.Clean(what), p.Bytes)
		return err
	}), closing, nil
}

// packetFile is one file with packets of several peerings.
type packetFile struct {
	writer     *pcapgo.NgWriter
	interfaces map[string]int
}

// newPacketFile writes the beginning, with an interface for each peering, which has its name.
func newPacketFile(out io.Writer, keys []string) (f *packetFile, err error) {
	f = &packetFile{interfaces: map[string]int{}}
	for i, key := range keys {
		if i > 0 {
			if err := f.add(key); err != nil {
				return nil, err
			}
			continue
		}
		f.writer, err = pcapgo.NewNgWriterInterface(out, interfaceOf(key), pcapgo.NgWriterOptions{SectionInfo: pcapgo.NgSectionInfo{Application: "pelago capture"}})
		if err != nil {
			return nil, fmt.Errorf("writing the file: %w", err)
		}
		f.interfaces[key] = 0
	}
	if err := f.writer.Flush(); err != nil {
		return nil, fmt.Errorf("writing the file: %w", err)
	}
	return f, nil
}

func interfaceOf(key string) pcapgo.NgInterface {
	return pcapgo.NgInterface{Name: key, LinkType: layers.LinkTypeEthernet, TimestampResolution: 9}
}

// add adds an interface.
func (f *packetFile) add(key string) error {
	at, err := f.writer.AddInterface(interfaceOf(key))
	if err != nil {
		return fmt.Errorf("writing the file: %w", err)
	}
	f.interfaces[key] = at
	return nil
}

// take writes a packet.
func (f *packetFile) take(key string, frame []byte, info gopacket.CaptureInfo) error {
	at, known := f.interfaces[key]
	if !known {
		return fmt.Errorf("a packet of %q, which nobody asked for", key)
	}
	info.InterfaceIndex = at
	if err := f.writer.WritePacket(info, frame); err != nil {
		return fmt.Errorf("writing the file: %w", err)
	}
	if err := f.writer.Flush(); err != nil {
		return fmt.Errorf("writing the file: %w", err)
	}
	return nil
}
