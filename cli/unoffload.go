package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/chain"
)

// unoffload is the command's flags.
type unoffload struct {
	dry     bool
	timeout time.Duration
}

func newUnoffload(e *Env) *cobra.Command {
	group := &cobra.Command{Use: "unoffload", Short: "Bring the pods of a namespace home", Example: "  pelago unoffload namespace shop"}
	u := &unoffload{}
	c := &cobra.Command{
		Use:     "namespace NAME",
		Aliases: []string{"ns"},
		Short:   "Bring the pods of a namespace home",
		Long: `Ends the offloading of a namespace and waits until its pods have left the other clusters
and its namespaces there are gone. Pods are evicted as their disruption budgets let them for
a minute, then deleted. Controllers make theirs again, in this cluster; pods without a
controller are lost. It says before how many there are, and whether the nodes of this cluster
have room for them; with --dry-run it says no more than that. A namespace there that holds volume claims is kept, and said so. A
cluster that does not answer is not waited for longer than a minute: it is told when it is
back.`,
		Example: `  pelago unoffload namespace shop
  pelago unoffload namespace shop --dry-run`,
		Args:              exactly("NAME"),
		ValidArgsFunction: e.completeOffloaded,
		RunE:              e.does(u.run),
	}
	c.Flags().BoolVar(&u.dry, "dry-run", false, "say which pods would move or be lost, and change nothing")
	durationFlag(c.Flags(), &u.timeout, "timeout", waitDefault, "how long to wait until the pods are home; it goes on after that")
	group.AddCommand(c)
	return group
}

func (u *unoffload) run(ctx context.Context, e *Env, args []string) error {
	c, err := e.open()
	if err != nil {
		return err
	}
	ctx, cancel := bound(ctx, u.timeout)
	defer cancel()
	name := args[0]
	var o v1alpha1.NamespaceOffloading
	err = c.Client.Get(ctx, client.ObjectKey{Namespace: name, Name: v1alpha1.OffloadingName}, &o)
	if u.dry {
		return u.wouldBe(ctx, e, c, name, err)
	}
	if err == nil {
		_, _ = u.notePods(ctx, e, c, name) // what cannot be read is not said
	}
	labelled, failed := unlabel(ctx, c, name)
	switch {
	case failed != nil:
		return failed
	case client.IgnoreNotFound(err) != nil:
		return describe(fmt.Errorf("reading the offloading: %w", err), c)
	case err != nil && !labelled:
		return fmt.Errorf("namespace %s is not offloaded; see which are: pelago status", name)
	case err == nil:
		if err := c.Client.Delete(ctx, &o, client.Preconditions{UID: &o.UID}); client.IgnoreNotFound(err) != nil {
			return describe(fmt.Errorf("unoffloading namespace %s: %w", name, err), c)
		}
		if err := goneAway(ctx, e, c, &o, u.timeout); err != nil {
			return err
		}
	}
	fmt.Fprintf(e.Out, "Namespace %s is not offloaded any more.\n", name)
	return c.noteLeft(ctx, e, name)
}

// wouldBe says what the end of an offloading would cost, which was read with err.
func (u *unoffload) wouldBe(ctx context.Context, e *Env, c *Cluster, name string, err error) error {
	switch {
	case client.IgnoreNotFound(err) != nil:
		return describe(fmt.Errorf("reading the offloading: %w", err), c)
	case err != nil:
		return fmt.Errorf("namespace %s has no NamespaceOffloading, so that no pod would move; see which have: pelago status", name)
	}
	n, err := u.notePods(ctx, e, c, name)
	if err != nil {
		return describe(fmt.Errorf("looking at its pods: %w", err), c)
	}
	if n == 0 {
		e.note("No pod of namespace %s is at another cluster.", name)
	}
	fmt.Fprintf(e.Out, "Namespace %s would not be offloaded any more; nothing was changed.\n", name)
	return nil
}

// notePods says how many pods come home, and whether there is room for them, and returns how many there are at
// other clusters.
func (u *unoffload) notePods(ctx context.Context, e *Env, c *Cluster, namespace string) (int, error) {
	nodes, err := c.virtual(ctx, "")
	if err != nil {
		return 0, err
	}
	var m movers
	for _, n := range nodes {
		if err := c.eachPod(ctx, m.add, client.InNamespace(namespace), client.MatchingFields{"spec.nodeName": n.Name}); err != nil {
			return 0, err
		}
	}
	if moving := len(m.moving); moving > 0 {
		e.note("%s of namespace %s %s at other clusters and %s home.", pods(moving), namespace, choose(moving, "is", "are"), choose(moving, "comes", "come"))
		c.noteRoom(ctx, e, m.moving, false)
	}
	if m.lost > 0 {
		e.note("%s of namespace %s %s at other clusters and will be lost: no controller makes %s again.", pods(m.lost), namespace, choose(m.lost, "is", "are"), choose(m.lost, "it", "them"))
	}
	return len(m.moving) + m.lost, nil
}

// unlabel takes the label off a namespace that would offload it again.
func unlabel(ctx context.Context, c *Cluster, name string) (bool, error) {
	var n corev1.Namespace
	if err := c.Client.Get(ctx, client.ObjectKey{Name: name}, &n); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return false, fmt.Errorf("there is no namespace %s; see which are offloaded: pelago status", name)
		}
		return false, describe(fmt.Errorf("reading the namespace: %w", err), c)
	}
	if _, has := n.Labels[v1alpha1.LabelOffload]; !has {
		return false, nil
	}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:null}}}`, v1alpha1.LabelOffload))
	if err := c.Client.Patch(ctx, &n, patch, fieldOwner); client.IgnoreNotFound(err) != nil {
		return false, describe(fmt.Errorf("taking the label %s off namespace %s: %w", v1alpha1.LabelOffload, name, err), c)
	}
	return true, nil
}

// comingHome says how far the end of an offloading is.
func comingHome(o *v1alpha1.NamespaceOffloading) string {
	if o.DeletionTimestamp.IsZero() {
		return "it is offloaded"
	}
	if ready := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionReady); ready != nil && ready.Message != "" && ready.Reason == v1alpha1.ReasonTerminating {
		return chain.Plain(ready.Reason, ready.Message)
	}
	return "its pods come home"
}

// noteLeft says what providers still hold of a namespace.
func (c *Cluster) noteLeft(ctx context.Context, e *Env, namespace string) error {
	var maps v1alpha1.NamespaceMapList
	if err := c.Client.List(ctx, &maps); err != nil {
		return describe(fmt.Errorf("listing what is left at other clusters: %w", err), c)
	}
	mapped := mappedAt(maps.Items, namespace)
	names := make([]string, 0, len(mapped))
	for name := range mapped {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		at := mapped[name]
		switch at.Phase {
		case v1alpha1.MappingKept:
			e.note("%s keeps namespace %s, as it holds volume claims; once they are not needed, its owner deletes it: kubectl delete namespace %[2]s", name, at.Name)
		case v1alpha1.MappingRefused:
		default:
			e.note("%s has not removed its namespace %s yet; that goes on by itself.", name, at.Name)
		}
	}
	return nil
}
