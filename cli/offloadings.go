package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/chain"
)

// sentAtOnce is of how many namespaces Services are read at the same time.
const sentAtOnce = 8

// VirtualNodeReport is a virtual node.
type VirtualNodeReport struct {
	Name    string `json:"name"`
	Peering string `json:"peering"`
	Request string `json:"request"`
	Ready   bool   `json:"ready"`
	Reason  string `json:"reason,omitempty"`
	// Cordoned says that it takes no new pods.
	Cordoned bool `json:"cordoned"`
	// Allocatable is its size, Used what the pods on it request, but for those of DaemonSets.
	Allocatable v1alpha1.ResourceList `json:"allocatable,omitempty"`
	Used        v1alpha1.ResourceList `json:"used,omitempty"`
	// Pods counts these pods by how they are.
	Pods PodsReport `json:"pods"`
}

// OffloadedReport is a namespace that is offloaded.
type OffloadedReport struct {
	Namespace string                         `json:"namespace"`
	Strategy  v1alpha1.PodOffloadingStrategy `json:"strategy"`
	Phase     v1alpha1.OffloadingPhase       `json:"phase,omitempty"`
	Clusters  []OffloadedAtReport            `json:"clusters"`
	// Pods counts those that have not ended, Offloaded those of them at other clusters,
	// Waiting those without a node, Outdated those that were made under other terms.
	Pods      int `json:"pods"`
	Offloaded int `json:"offloaded"`
	Waiting   int `json:"waiting"`
	Outdated  int `json:"outdated"`
	// Reachability says which of its pods providers' may reach, and be reached by.
	Reachability v1alpha1.Reachability `json:"reachability"`
	// Onward says that its pods may run at providers of these clusters'.
	Onward bool `json:"onward"`
	// Services are those that need no pod of it at these clusters.
	Services []string `json:"services,omitempty"`
}

// OffloadedAtReport is an offloaded namespace at one of the clusters selected.
type OffloadedAtReport struct {
	Name            string `json:"name"`
	RemoteNamespace string `json:"remoteNamespace,omitempty"`
	Ready           bool   `json:"ready"`
	Reason          string `json:"reason,omitempty"`
	// Onward says that the cluster lets its pods run at a provider of its own.
	Onward bool `json:"onward"`
}

// offloadings reads what concerns offloading into a snapshot. An installation that has
// no such kinds yet has none.
func (c *Cluster) offloadings(ctx context.Context, s *snapshot) error {
	var err error
	if s.nodes, err = c.virtual(ctx, ""); err != nil {
		return describe(fmt.Errorf("listing virtual nodes: %w", err), c)
	}
	var list v1alpha1.NamespaceOffloadingList
	if err := c.Client.List(ctx, &list); err != nil && !notServed(err) {
		return describe(fmt.Errorf("listing offloadings: %w", err), c)
	}
	s.offloadings = list.Items
	sent := make([][]string, len(s.offloadings))
	var group errgroup.Group // one request for each namespace
	group.SetLimit(sentAtOnce)
	for i := range s.offloadings {
		group.Go(func() error {
			sent[i] = c.servicesSent(ctx, &s.offloadings[i])
			return nil
		})
	}
	_ = group.Wait() // what cannot be read says nothing
	s.sent = map[string][]string{}
	for i, names := range sent {
		s.sent[s.offloadings[i].Namespace] = names
	}
	if err := c.mappings(ctx, s); err != nil {
		return err
	}
	if err := c.objects(ctx, s); err != nil {
		return err
	}
	return c.readPods(ctx, s)
}

// judgeNodes reports virtual nodes. One that is not ready is a problem unless that of its
// peering has been told.
func (s *snapshot) judgeNodes(r *Report) {
	tenants := tenantNames(s.peerings)
	on := podsBy(s.pods, func(p *corev1.Pod) string { return p.Spec.NodeName })
	for i := range s.nodes {
		n := &s.nodes[i]
		report := VirtualNodeReport{Name: n.Name, Peering: n.Labels[v1alpha1.LabelPeering], Request: n.Labels[v1alpha1.LabelRequest],
			Cordoned: n.Spec.Unschedulable, Allocatable: v1alpha1.ResourceList{}, Used: v1alpha1.ResourceList{}}
		for name, quantity := range n.Status.Allocatable {
			report.Allocatable[string(name)] = quantity
		}
		for j := range on[n.Name] {
			p := &on[n.Name][j]
			state, _ := chain.StateOf(p)
			if state == "" {
				continue
			}
			report.Pods.count(state)
			for name, quantity := range chain.Requests(p) {
				sum := report.Used[name]
				sum.Add(quantity)
				report.Used[name] = sum
			}
		}
		line := Problem{Object: "node " + n.Name, Reason: v1alpha1.ReasonPending, Message: "nobody has said yet how it is",
			Remedy: "wait a moment; if it stays so, see whether " + managerDeployment + " runs"}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady {
				report.Ready, report.Reason = c.Status == corev1.ConditionTrue, c.Reason
				line.Reason, line.Message, line.Remedy = c.Reason, chain.Plain(c.Reason, c.Message), chain.At{Name: report.Peering, Tenant: tenants[report.Peering]}.Remedy(c.Reason)
			}
		}
		r.VirtualNodes = append(r.VirtualNodes, report)
		told := slices.ContainsFunc(r.Problems, func(p Problem) bool { return p.Object == "peering "+report.Peering })
		if !report.Ready && !told {
			if line.Message == "" {
				line.Message = "is not ready"
			}
			r.Problems = append(r.Problems, line)
		}
	}
	slices.SortFunc(r.VirtualNodes, func(a, b VirtualNodeReport) int { return strings.Compare(a.Name, b.Name) })
}

// judgeOffloadings reports offloaded namespaces: clusters that refuse are problems, what
// waits for somebody or something is pending.
func (s *snapshot) judgeOffloadings(r *Report) {
	nodes := make([]chain.NodeFacts, len(s.nodes))
	for i, n := range s.nodes {
		nodes[i].Node = n
	}
	in := podsBy(s.pods, func(p *corev1.Pod) string { return p.Namespace })
	for i := range s.offloadings {
		o := &s.offloadings[i]
		report := OffloadedReport{Namespace: o.Namespace, Strategy: chain.Strategy(o), Phase: o.Status.Phase, Clusters: []OffloadedAtReport{},
			Reachability: o.Spec.Reachability.OrDefault(), Onward: o.Spec.Onward == v1alpha1.OnwardAllow}
		for _, at := range o.Status.Clusters {
			if !meta.IsStatusConditionTrue(at.Conditions, v1alpha1.ConditionOffloadingRequired) {
				continue
			}
			one := OffloadedAtReport{Name: at.Name, RemoteNamespace: at.RemoteNamespace, Onward: at.Onward}
			one.Ready, one.Reason = readiness(at.Conditions)
			report.Clusters = append(report.Clusters, one)
		}
		if len(report.Clusters) > 0 {
			report.Services = s.sent[o.Namespace]
		}
		p := whereabouts(in[o.Namespace], o, nodes)
		report.Pods, report.Offloaded, report.Waiting, report.Outdated = p.here+p.away+p.waiting, p.away, p.waiting, p.outdated
		r.OffloadedNamespaces = append(r.OffloadedNamespaces, report)
		r.OffloadedPods += p.away
		s.judgeOffloading(r, o, p.outdated)
	}
}

// withholding are the peerings by which this cluster uses others that give it nothing now.
func (s *snapshot) withholding() (names []string) {
	for i := range s.requests {
		name, is := strings.CutPrefix(s.requests[i].Namespace, v1alpha1.PeeringNamespacePrefix)
		if is && withheld(&s.requests[i]) != nil && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

func (s *snapshot) judgeOffloading(r *Report, o *v1alpha1.NamespaceOffloading, outdated int) {
	line := Problem{Object: "namespace " + o.Namespace, Remedy: "see: pelago explain namespace " + o.Namespace}
	ready := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionReady)
	if ready != nil {
		line.Reason, line.Message = ready.Reason, chain.Plain(ready.Reason, ready.Message)
	}
	stalled := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionStalled)
	switch {
	case stalled != nil && meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ConditionStalled):
		line.Reason, line.Message = stalled.Reason, chain.Plain(stalled.Reason, stalled.Message)
		r.Problems = append(r.Problems, line)
	case !o.DeletionTimestamp.IsZero():
		line.Reason, line.Message = v1alpha1.ReasonTerminating, "is being unoffloaded: "+comingHome(o)
		r.Pending = append(r.Pending, line)
	case o.Status.Phase == v1alpha1.OffloadingPhaseSomeFailed, o.Status.Phase == v1alpha1.OffloadingPhaseAllFailed:
		refused := refusedBy(o, tenantNames(s.peerings))
		if len(refused) == 0 {
			line.Reason = string(o.Status.Phase)
			refused = []Problem{line}
		}
		for _, p := range refused {
			p.Message = strings.Replace(p.Message, ": "+p.Reason+", ", ": ", 1) // shown behind it
			if p.Remedy == "" {
				p.Remedy = line.Remedy
			}
			r.Problems = append(r.Problems, p)
		}
	case o.Status.Phase == v1alpha1.OffloadingPhaseNoClusterSelected:
		if line.Message == "" {
			line.Message = chain.NoMatch(o.Spec.ClusterSelector)
		}
		line.Reason, line.Remedy = v1alpha1.ReasonNoClusterSelected, chain.Remedy(v1alpha1.ReasonNoClusterSelected, "")
		if from := s.withholding(); len(s.nodes) == 0 && len(from) > 0 {
			line.Message, line.Remedy = "there is no virtual node, as nothing is offered by "+strings.Join(from, ", "), "see: pelago explain peering "+from[0]
		}
		r.Pending = append(r.Pending, line)
	case o.Status.Phase != v1alpha1.OffloadingPhaseReady || o.Status.ObservedGeneration < o.Generation:
		_, line.Message = settled(o)
		if line.Reason, line.Message = v1alpha1.ReasonPending, strings.TrimSpace(line.Message); o.Status.ObservedGeneration < o.Generation {
			line.Message = "nobody has looked at it yet"
		}
		r.Pending = append(r.Pending, line)
	}
	if outdated > 0 && o.DeletionTimestamp.IsZero() {
		r.Pending = append(r.Pending, Problem{Object: "namespace " + o.Namespace,
			Message: pods(outdated) + choose(outdated, " was", " were") + " made under other terms and " + choose(outdated, "stays where it is", "stay where they are"),
			Remedy:  "to roll what makes them: pelago offload namespace " + o.Namespace + " --restart-workloads"})
	}
}
