package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/reach"
	"github.com/pelago-dev/pelago/cli/screen"
)

// reaches are the words for reachability.
func reaches() (words []string) {
	for _, r := range v1alpha1.Reachabilities() {
		words = append(words, string(r))
	}
	return words
}

func reachWords() string { return strings.Join(reaches(), ", ") }

// checkReach refuses words that mean nothing; none given is none wanted.
func checkReach(word string) error {
	if word == "" || slices.Contains(reaches(), word) {
		return nil
	}
	return usage("--reachability %q is unknown; use %s", word, reachWords())
}

func completeReach(c *cobra.Command) {
	completes(c, "reachability", cobra.FixedCompletions(reaches(), cobra.ShellCompDirectiveNoFileComp))
}

// sayReach says what a change of which pods take part means.
func sayReach(e *Env, peering string, to v1alpha1.Reachability) {
	fmt.Fprintf(e.Out, "Of this cluster %s may be reached by %s, and reach it: %s.\n", map[v1alpha1.Reachability]string{
		v1alpha1.ReachNone: "no pods", v1alpha1.ReachOffloadedOnly: "pods that are offloaded, and those behind their Services,", v1alpha1.ReachFull: "all pods"}[to], peering, to)
	e.note("It holds in a few seconds. The owner of %s may let fewer of his pods take part.", peering)
}

// withReach adds a column of which pods may be reached, if that is not everywhere as usual.
func withReach(titles []string, rows [][]screen.Cell, said []v1alpha1.Reachability) ([]string, [][]screen.Cell) {
	if !slices.ContainsFunc(said, func(r v1alpha1.Reachability) bool { return r.OrDefault() != v1alpha1.ReachOffloadedOnly }) {
		return titles, rows
	}
	for i, r := range said {
		rows[i] = append(rows[i], screen.Cell{Text: string(r)})
	}
	return append(titles, "REACHABLE"), rows
}

// choices finds the ways that this cluster holds closed by its own choice.
func (w *testbed) choices(ctx context.Context, results []reach.Result) {
	closed := map[string]bool{}
	for _, peering := range w.providers() {
		var n v1alpha1.NetworkConfig
		key := client.ObjectKey{Namespace: v1alpha1.PeeringNamespace(peering), Name: v1alpha1.NetworkConsumer}
		closed[peering] = w.cluster.Client.Get(ctx, key, &n) == nil && n.Spec.Reachability.OrDefault() == v1alpha1.ReachNone
	}
	for i := range results {
		r := &results[i]
		if w.at[r.From] == w.at[r.To] || r.To == reach.API { // which is open when pods are not
			continue
		}
		for _, pod := range []string{r.From, r.To} {
			if peering := w.at[pod]; closed[peering] {
				r.Closed = fmt.Sprintf("This cluster's own choice closes the ways to and from %s: Peering %[1]s has spec.reachability none", peering)
				r.Remedy = "If that is not wanted: pelago peer " + peering + " --reachability offloaded-only"
				break
			}
		}
	}
}

// doubts says of ways between clusters that fail that the other one may hold them closed, which
// it does not tell.
func (w *testbed) doubts(results []reach.Result) {
	for i := range results {
		r := &results[i]
		if peer := cmp.Or(w.at[r.To], w.at[r.From]); r.Bad() && r.To != reach.API && w.at[r.From] != w.at[r.To] {
			r.Remedy += fmt.Sprintf("; the peer may hold the way closed: its owner sees it in spec.reachability of the Tenant at %s", peer)
		}
	}
}

// tenantOf is the name of the Tenant behind a Peering in which this cluster is the provider.
func tenantOf(p *v1alpha1.Peering) string {
	if p.Spec.Provide == nil {
		return p.Name
	}
	return p.Spec.Provide.Tenant
}
