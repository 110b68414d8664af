package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/screen"
)

// PathReport is a direct path between this cluster and another provider of a consumer.
type PathReport struct {
	// Name is the path's, a number of the consumer's.
	Name string `json:"name"`
	// Views are the prefixes that it leads to: real as the consumer sees them, view as pods here do.
	// One without a view leads nowhere.
	Views []v1alpha1.NetworkView `json:"views"`
	// Ready says that packets go by it; else by way of the consumer. Reason and Message say why.
	Ready   bool   `json:"ready"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Used is when it carried something of pods last, to the minute.
	Used *metav1.Time `json:"used,omitempty"`
	// Gateway, Endpoint, LatencyMicros and Loss are as in NetworkReport.
	Gateway       string  `json:"gateway,omitempty"`
	Endpoint      string  `json:"endpoint,omitempty"`
	LatencyMicros int64   `json:"latencyMicros,omitempty"`
	Loss          float64 `json:"loss"`
}

// readPaths reads the paths, of which an older installation has none.
func (c *Cluster) readPaths(ctx context.Context, f *fabric) error {
	var list v1alpha1.NetworkPathList
	if err := c.Client.List(ctx, &list); err != nil && !notServed(err) {
		return describe(fmt.Errorf("listing network paths: %w", err), c)
	}
	f.paths = list.Items
	return nil
}

// direct says whether this cluster's owner allows direct paths in the direction of a tunnel.
func (s *snapshot) direct(t *tunnel) bool {
	for _, p := range s.peerings {
		if v1alpha1.NetworkKey(v1alpha1.PeeringNamespace(p.Name)) == t.key {
			return p.Spec.DirectPaths
		}
	}
	for _, tenant := range s.tenants {
		if v1alpha1.NetworkKey(v1alpha1.TenantNamespace(tenant.Name)) == t.key {
			return tenant.Spec.DirectPaths
		}
	}
	return false
}

// pathsOf are the paths of a tenant, or those that a provider makes for this cluster, by name. A
// consumer has none of those between its providers in its own cluster.
func (f fabric) pathsOf(t *tunnel, reports map[string]told) []PathReport {
	var all []PathReport
	there := f.paths
	if t.Role == v1alpha1.RoleConsumer && t.theirs != nil {
		there = t.theirs.Paths()
	}
	for _, p := range there {
		if v1alpha1.NetworkKey(p.Namespace) == t.key {
			all = append(all, lookAt(p, t.theirs, reports[v1alpha1.NetworkPathKey(p.Namespace, p.Name)]))
		}
	}
	slices.SortFunc(all, func(a, b PathReport) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// lookAt is how one path is. Its prefixes are another cluster's word, published by consumer.
func lookAt(p v1alpha1.NetworkPath, consumer *v1alpha1.NetworkConfig, report told) PathReport {
	r := PathReport{Name: p.Name, Views: []v1alpha1.NetworkView{}, Used: p.Status.Used}
	for _, prefix := range p.Spec.Prefixes {
		view := v1alpha1.NetworkView{Real: prefix}
		for _, v := range viewsIn(consumer) {
			if v.Real == prefix {
				view = v
			}
		}
		r.Views = append(r.Views, view)
	}
	c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case c == nil:
		r.Reason = v1alpha1.ReasonPending
	case c.Status == metav1.ConditionTrue:
		r.Ready = true
	default:
		r.Reason, r.Message = c.Reason, clipped(c.Message)
	}
	if report.node != "" && !report.silent {
		r.Gateway, r.Endpoint = report.node, report.Endpoint
		if report.Alive {
			r.LatencyMicros, r.Loss = report.LatencyMicros, report.Loss
		}
	}
	return r
}

// paths shows the direct paths, and in detail where they go and why one is not used.
func (v view) paths(networks []NetworkReport) error {
	var rows [][]screen.Cell
	for _, n := range networks {
		for _, p := range n.Paths {
			ready, latency, reason := screen.Cell{Text: "yes", Colour: screen.Green}, "-", cmp.Or(p.Reason, "-")
			if !p.Ready {
				ready = screen.Cell{Text: "no", Colour: screen.Yellow} // pods reach each other all the same
			}
			if p.LatencyMicros > 0 {
				latency = millis(p.LatencyMicros)
			}
			rows = append(rows, []screen.Cell{{Text: n.Name}, {Text: p.Name}, {Text: seen(p.Views)}, ready, {Text: latency}, {Text: ago(p.Used, v.now)}, {Text: reason}})
		}
	}
	if len(rows) == 0 {
		return nil
	}
	fmt.Fprintln(v.out)
	return screen.Table(v.out, v.paint, v.width, []string{"DIRECT PATHS OF", "PATH", "LEAD TO", "READY", "LATENCY", "USED", "REASON"}, rows)
}

// direct shows, in detail, whether direct paths may be with one peer, and those that there are.
func (v view) direct(n NetworkReport) {
	if n.DirectPaths {
		where := "to pods at other providers, if they and this one allow it too; the providers list them: pelago status"
		if n.Role == v1alpha1.RoleProvider {
			where = "between its pods here and those at other providers, if they and it allow it too"
		}
		fmt.Fprintln(v.out, "  "+screen.Wrap("direct paths are allowed "+where, "  ", screen.Width-2))
	}
	for _, p := range n.Paths {
		var about []string
		if p.Endpoint != "" {
			about = append(about, "the other side at "+p.Endpoint)
		}
		if p.Gateway != "" {
			about = append(about, "this one at node "+p.Gateway)
		}
		if p.Message != "" {
			about = append(about, p.Message)
		}
		if len(about) > 0 {
			fmt.Fprintln(v.out, "  "+screen.Wrap("path "+p.Name+": "+strings.Join(about, "; "), "  ", screen.Width-2))
		}
	}
}
