package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/setup"
)

// NetworkReport is the network with one cluster, in one direction of a peering: there is a
// tunnel for each.
type NetworkReport struct {
	// Name is that of the peering, or of the tenant if there is none.
	Name string `json:"name"`
	// Role of this cluster.
	Role v1alpha1.Role `json:"role"`
	// Tunnel is up, down, starting or unknown.
	Tunnel TunnelState `json:"tunnel"`
	// Since the tunnel is so.
	Since *metav1.Time `json:"since,omitempty"`
	// Gateway is the node of this cluster that has the tunnel.
	Gateway string `json:"gateway,omitempty"`
	// LatencyMicros is the median time there and back, Loss the part of probes without an
	// answer, 0 to 1; both of the last minute.
	LatencyMicros int64   `json:"latencyMicros,omitempty"`
	Loss          float64 `json:"loss"`
	// Endpoint is where the other side is heard or sought, Kernel says that the kernel's
	// WireGuard carries the tunnel.
	Endpoint string `json:"endpoint,omitempty"`
	Kernel   bool   `json:"kernel"`
	// Views are by which prefixes this cluster sees the ranges of the other one, SeenAs those
	// by which it is seen, in the other one's words.
	Views  []v1alpha1.NetworkView `json:"views"`
	SeenAs []v1alpha1.NetworkView `json:"seenAs"`
	// Reachability says which pods of this cluster take part, by its own choice.
	Reachability v1alpha1.Reachability `json:"reachability"`
	// DirectPaths says that this cluster lets pods at a provider, as a consumer, or those of a consumer,
	// as a provider, have direct paths to other providers. Paths are those of a consumer's pods here.
	DirectPaths bool         `json:"directPaths"`
	Paths       []PathReport `json:"paths,omitempty"`
	// Through are the prefixes by which this cluster sees other providers, and which: of SeenAs
	// those are not its own, but lead there.
	Through map[string]string `json:"-"`
	// Reason and Message say why it does not work.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// TunnelState is how a tunnel is.
type TunnelState string

// States of a tunnel.
const (
	TunnelUp       TunnelState = "up"
	TunnelDown     TunnelState = "down"
	TunnelStarting TunnelState = "starting"
	TunnelUnknown  TunnelState = "unknown"
)

// silentAgent is how much longer than others an agent that tells of tunnels may not have renewed its
// Lease: as a gateway it does every 0.6 s.
const silentAgent = 30 * time.Second

// fabric is what a snapshot has of the network.
type fabric struct {
	agents  *appsv1.DaemonSet // nil if the network is off
	trouble string            // of the agents
	ready   bool
	configs []v1alpha1.NetworkConfig
	paths   []v1alpha1.NetworkPath
	leases  []coordinationv1.Lease
	unread  bool // the Leases may not be read
}

// network reads what concerns the network into a snapshot. An installation without one has
// no agents and no such kind.
func (c *Cluster) network(ctx context.Context, s *snapshot) error {
	in := client.InNamespace(v1alpha1.NetworkNamespace)
	agents := &appsv1.DaemonSet{}
	err := c.Client.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NetworkNamespace, Name: v1alpha1.AgentName}, agents)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return describe(fmt.Errorf("reading the DaemonSet of the agents: %w", err), c)
	}
	s.fabric.agents = agents
	var configs v1alpha1.NetworkConfigList
	if err := c.Client.List(ctx, &configs); err != nil && !notServed(err) {
		return describe(fmt.Errorf("listing network configs: %w", err), c)
	}
	s.fabric.configs = configs.Items
	if err := c.readPaths(ctx, &s.fabric); err != nil {
		return err
	}
	var leases coordinationv1.LeaseList
	err = eachPage(ctx, c.Client, &leases, func() { s.fabric.leases = append(s.fabric.leases, leases.Items...); leases.Items = nil }, in)
	s.fabric.unread = err != nil // what is known beside them is shown
	if s.fabric.ready = setup.Spread(agents, nil, nil); s.fabric.ready {
		return nil
	}
	var pods corev1.PodList
	var nodes corev1.NodeList
	var events corev1.EventList
	for _, list := range []client.ObjectList{&pods, &events} {
		if err := c.Client.List(ctx, list, in); err != nil {
			return describe(fmt.Errorf("listing what concerns the agents: %w", err), c)
		}
	}
	if err := c.Client.List(ctx, &nodes); err != nil {
		return describe(fmt.Errorf("listing nodes: %w", err), c)
	}
	s.fabric.ready = setup.Spread(agents, pods.Items, nodes.Items)
	s.fabric.trouble = setup.DiagnoseSpread(agents, pods.Items, events.Items)
	return nil
}

// judgeAgents reports the agents beside the other programs.
func (s *snapshot) judgeAgents(r *Report) {
	d := s.fabric.agents
	if d == nil {
		return
	}
	c := ComponentReport{Name: d.Name, Ready: s.fabric.ready}
	if containers := d.Spec.Template.Spec.Containers; len(containers) > 0 {
		c.Image = containers[0].Image
	}
	r.Components = append(r.Components, c)
	if !c.Ready {
		r.Problems = append(r.Problems, Problem{Object: d.Name, Message: "is not ready: " + s.fabric.trouble})
	}
}

// judgeNetworks reports the tunnels, and what is wrong with them.
func (s *snapshot) judgeNetworks(r *Report, now time.Time) {
	reports := s.reports(now)
	for _, t := range s.tunnels() {
		t.look(s.fabric, reports[t.key], now)
		t.DirectPaths, t.Paths = s.direct(t), s.fabric.pathsOf(t, reports)
		r.Networks = append(r.Networks, t.NetworkReport)
		p := Problem{Object: "network of " + t.Name, Reason: t.Reason, Message: t.Message, Remedy: t.remedy}
		switch {
		case p.Message == "":
		case t.Tunnel == TunnelStarting || t.Tunnel == TunnelUnknown:
			r.Pending = append(r.Pending, p)
		default:
			r.Problems = append(r.Problems, p)
		}
	}
}

// tunnel is a NetworkReport in the making.
type tunnel struct {
	NetworkReport
	key          string
	theirs, ours *v1alpha1.NetworkConfig
	remedy       string
}

// tunnels are those there should be: two clusters whose network is on have NetworkConfigs.
func (s *snapshot) tunnels() []*tunnel {
	names := map[string]string{}
	for _, p := range s.peerings {
		names[v1alpha1.PeeringNamespace(p.Name)] = p.Name
	}
	for _, t := range s.tenants {
		names[v1alpha1.TenantNamespace(t.Name)] = t.Name
	}
	for _, p := range s.peerings {
		if p.Spec.Provide != nil && names[v1alpha1.TenantNamespace(p.Spec.Provide.Tenant)] != "" {
			names[v1alpha1.TenantNamespace(p.Spec.Provide.Tenant)] = p.Name
		}
	}
	found, through := map[string]*tunnel{}, map[string]string{}
	for i := range s.fabric.configs {
		n := &s.fabric.configs[i]
		if peering, consumes := strings.CutPrefix(n.Namespace, v1alpha1.PeeringNamespacePrefix); consumes && n.Name == v1alpha1.NetworkProvider {
			for _, v := range n.Status.Views {
				through[v.View] = peering
			}
		}
		name := names[n.Namespace]
		if name == "" {
			continue // of a peering that is over, or that is not asked for
		}
		t := found[n.Namespace]
		if t == nil {
			t = &tunnel{key: v1alpha1.NetworkKey(n.Namespace), NetworkReport: NetworkReport{Name: name, Role: v1alpha1.RoleProvider, Tunnel: TunnelUnknown}}
			found[n.Namespace] = t
		}
		consumes := strings.HasPrefix(n.Namespace, v1alpha1.PeeringNamespacePrefix)
		if consumes {
			t.Role, t.Through = v1alpha1.RoleConsumer, through
		}
		if own := n.Name == v1alpha1.NetworkConsumer; own == consumes {
			t.ours = n
		} else {
			t.theirs = n
		}
	}
	var all []*tunnel
	for _, t := range found {
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b *tunnel) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Role, b.Role)) })
	return all
}

// told is what an agent says of a tunnel.
type told struct {
	v1alpha1.TunnelReport
	node   string
	at     time.Time
	silent bool
}

// reports are what agents say of tunnels, by the key of each: of several the one that was
// heard of last is its gateway now. Whether an agent is silent goes by the others too, as
// clocks differ.
func (s *snapshot) reports(now time.Time) map[string]told {
	newest := time.Time{}
	for i := range s.fabric.leases {
		newest = latest(newest, renewed(&s.fabric.leases[i]))
	}
	all := map[string]told{}
	for i := range s.fabric.leases {
		l := &s.fabric.leases[i]
		said := map[string]v1alpha1.TunnelReport{}
		if json.Unmarshal([]byte(l.Annotations[v1alpha1.AnnotationTunnels]), &said) != nil {
			continue // nothing, or of another version
		}
		at := renewed(l)
		gone := ptr.Deref(l.Spec.HolderIdentity, "") == ""
		for key, report := range said {
			t := told{TunnelReport: report, node: l.Name, at: at, silent: gone || newest.Sub(at) > silentAgent || overdue(at, now)}
			if old, is := all[key]; !is || old.silent && !t.silent || old.silent == t.silent && t.at.After(old.at) {
				all[key] = t
			}
		}
	}
	return all
}

// look finds out how a tunnel is, and if it is not well, the first thing that is wrong.
func (t *tunnel) look(f fabric, report told, now time.Time) {
	t.Views, t.SeenAs, t.Reachability = viewsIn(t.theirs), viewsIn(t.ours), v1alpha1.ReachOffloadedOnly
	if t.ours != nil {
		t.Reachability = t.ours.Spec.Reachability.OrDefault()
	}
	fail := func(state TunnelState, reason, message, remedy string) {
		t.Tunnel = state
		if t.Message == "" {
			t.Reason, t.Message, t.remedy = reason, message, remedy
		}
	}
	refused := func(n *v1alpha1.NetworkConfig, whose string) {
		if n == nil {
			return
		}
		if c := meta.FindStatusCondition(n.Status.Conditions, v1alpha1.ConditionReady); c != nil && c.Status == metav1.ConditionFalse && t.Message == "" {
			t.Reason, t.Message, t.remedy = c.Reason, whose+clipped(c.Message), "see docs/network.md, When there is no view; the ranges that have one work"
		}
	}
	refused(t.theirs, "")
	refused(t.ours, "the other cluster does not carry ranges of this one: ")
	switch {
	case t.theirs == nil || t.theirs.Spec.PublicKey == "":
		fail(TunnelStarting, v1alpha1.ReasonPending, "the other cluster has not said yet where its network is", "wait a moment; if it stays so, see there: pelago status")
	case t.ours == nil || t.ours.Spec.PublicKey == "":
		fail(TunnelStarting, v1alpha1.ReasonPending, "this cluster has not said yet where its network is", "wait a moment; if it stays so, see whether "+managerDeployment+" runs")
	case f.unread:
		fail(TunnelUnknown, "", "who may not read Leases in namespace "+v1alpha1.NetworkNamespace+" does not see how its tunnel is", "")
	case report.node == "":
		fail(TunnelStarting, v1alpha1.ReasonPending, "no node of this cluster is its gateway yet", "wait a moment; if it stays so, see the agents: kubectl -n "+v1alpha1.NetworkNamespace+" get pods -o wide")
	case report.silent:
		t.Gateway = report.node
		fail(TunnelDown, v1alpha1.ReasonPending, "the agent of its gateway, node "+report.node+", is silent, and no other node has the tunnel", "see the agents: kubectl -n "+v1alpha1.NetworkNamespace+" get pods -o wide")
	default:
		t.measured(report, now, fail)
	}
}

// measured is how a tunnel is in the words of its gateway.
func (t *tunnel) measured(report told, now time.Time, fail func(state TunnelState, reason, message, remedy string)) {
	t.Gateway, t.Endpoint, t.Kernel, t.Since = report.node, report.Endpoint, report.Kernel, report.Since.DeepCopy()
	if report.Since.IsZero() {
		t.Since = nil
	}
	remedy := "see that UDP passes between the nodes of both clusters, from one side at least" + t.ports()
	switch {
	case report.Alive:
		t.Tunnel, t.LatencyMicros, t.Loss = TunnelUp, report.LatencyMicros, report.Loss
	case report.Problem != "":
		fail(TunnelDown, "", "node "+report.node+" has no tunnel: "+report.Problem, "see: kubectl -n "+v1alpha1.NetworkNamespace+" logs ds/"+v1alpha1.AgentName)
	case t.Since == nil:
		fail(TunnelStarting, v1alpha1.ReasonPending, "node "+report.node+" seeks the other side", remedy)
	default:
		fail(TunnelDown, "", "nothing has come back through the tunnel of node "+report.node+" for "+span(now.Sub(t.Since.Time)), remedy)
	}
}

// ports names where either side says it can be reached.
func (t *tunnel) ports() string {
	var said []string
	if there := t.theirs.Spec.Endpoints; len(there) > 0 {
		said = append(said, "the other one at "+strings.Join(there[:min(len(there), 3)], ", "))
	}
	if here := t.ours.Spec.Endpoints; len(here) > 0 {
		said = append(said, "this one at "+strings.Join(here[:min(len(here), 3)], ", "))
	}
	if len(said) == 0 {
		return "; neither says where it can be reached: set config.network.endpoints"
	}
	return ": " + strings.Join(said, "; ")
}

// clipped is what is shown of a message that another cluster may have written.
func clipped(text string) string {
	if runes := []rune(text); len(runes) > 300 {
		return string(runes[:299]) + "…"
	}
	return text
}

// viewsIn are the views that a NetworkConfig holds, never nil.
func viewsIn(n *v1alpha1.NetworkConfig) []v1alpha1.NetworkView {
	if n == nil || n.Status.Views == nil {
		return []v1alpha1.NetworkView{}
	}
	return n.Status.Views
}
