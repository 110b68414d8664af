package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/chain"
	"github.com/pelago-dev/pelago/cli/screen"
)

// offload is the command's flags.
type offload struct {
	pods, mapping, remoteName string
	reachability, unreachable string
	selectors                 []string
	restart, dryRun, onward   bool
	output                    string
	timeout                   time.Duration

	given func(flag string) bool
}

func newOffload(e *Env) *cobra.Command {
	group := &cobra.Command{Use: "offload", Short: "Let pods of a namespace run at other clusters", Example: "  pelago offload namespace shop"}
	o := &offload{}
	c := &cobra.Command{
		Use:     "namespace NAME",
		Aliases: []string{"ns"},
		Short:   "Let the pods of a namespace run at other clusters",
		Long: `Offloads a namespace, or changes how it is offloaded, and waits until it is there at every
cluster that matches. From then on its new pods may run in this cluster or at the others, as
the strategy says. What is not given stays as it is; the names of remote namespaces cannot be
changed.

Pods get their terms when they are made: those that were there before stay as they are, until
--restart-workloads rolls their Deployments and StatefulSets.

A selector is over the labels of virtual nodes, as kubectl writes it. In one selector every
part has to match (region=eu,tier=gold: both); of several, one (the flag given twice: either).

What stays pending: pelago explain pod NAME -n NAMESPACE.`,
		Example: `  pelago offload namespace shop
  pelago offload namespace shop --pod-offloading-strategy Remote --restart-workloads
  pelago offload namespace shop --cluster-selector region=eu,tier=gold --cluster-selector region=us
  pelago offload namespace shop --namespace-mapping-strategy SelectedName --remote-name webshop
  pelago offload namespace shop --when-unreachable Replace`,
		Args:              exactly("NAME"),
		ValidArgsFunction: e.completeNamespaces,
	}
	c.RunE = e.does(o.run)
	f := c.Flags()
	f.StringVar(&o.pods, "pod-offloading-strategy", "", "where pods may run: "+strings.Join(podStrategies, ", ")+"; LocalAndRemote if never given")
	f.StringVar(&o.mapping, "namespace-mapping-strategy", "", "what the namespace is called there: "+strings.Join(mappingStrategies, ", ")+"; DefaultName if never given")
	f.StringVar(&o.remoteName, "remote-name", "", "its name there, for SelectedName")
	f.StringArrayVar(&o.selectors, "cluster-selector", nil, "clusters to use, by labels of their virtual nodes: a=1,b=2 is both, the flag given twice is either; empty means all")
	f.StringVar(&o.reachability, "reachability", "", "which of its pods providers' may reach, and be reached by: "+reachWords()+"; offloaded-only if never given")
	f.StringVar(&o.unreachable, "when-unreachable", "", "of pods whose cluster cannot be reached: "+strings.Join(unreachablePolicies, ", ")+" them after five minutes; Keep if never given")
	f.BoolVar(&o.onward, "onward", false, "let the owners of these clusters run its pods at providers of their own; =false takes that back")
	f.BoolVar(&o.restart, "restart-workloads", false, "roll Deployments and StatefulSets whose pods were made under other terms")
	f.BoolVar(&o.dryRun, "dry-run", false, "print the object instead of making it")
	durationFlag(f, &o.timeout, "timeout", waitDefault, "how long to wait until every cluster has answered; it goes on after that")
	outputFlag(c, &o.output)
	o.given = f.Changed
	for flag, words := range map[string][]string{
		"pod-offloading-strategy": podStrategies, "namespace-mapping-strategy": mappingStrategies, "when-unreachable": unreachablePolicies,
	} {
		completes(c, flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	}
	completeReach(c)
	group.AddCommand(c)
	return group
}

var (
	podStrategies       = []string{string(v1alpha1.PodsLocalAndRemote), string(v1alpha1.PodsRemote), string(v1alpha1.PodsLocal)}
	mappingStrategies   = []string{string(v1alpha1.MappingDefaultName), string(v1alpha1.MappingEnforceSameName), string(v1alpha1.MappingSelectedName)}
	unreachablePolicies = []string{string(v1alpha1.UnreachableKeep), string(v1alpha1.UnreachableReplace)}
)

func (o *offload) run(ctx context.Context, e *Env, args []string) error {
	wanted, err := o.check(args[0])
	if err != nil {
		return err
	}
	if o.dryRun {
		return o.print(e, wanted)
	}
	c, err := e.open()
	if err != nil {
		return err
	}
	ctx, cancel := bound(ctx, o.timeout)
	defer cancel()
	if err := o.namespace(ctx, c, wanted); err != nil {
		return err
	}
	current, err := o.store(ctx, e, c, wanted)
	if err != nil {
		return err
	}
	if current, err = o.wait(ctx, e, c, current); err != nil {
		return err
	}
	if err := o.report(e, current); err != nil {
		return err
	}
	failed := failure(current, c.tenantNames(ctx))
	if failed == nil || current.Status.Phase == v1alpha1.OffloadingPhaseSomeFailed {
		if err := o.older(ctx, e, c, current); err != nil {
			return err
		}
	} else if o.restart {
		e.note("Nothing is rolled, as the pods could not run elsewhere.")
	}
	return failed
}

// print shows what would be made.
func (o *offload) print(e *Env, wanted *v1alpha1.NamespaceOffloading) error {
	wanted.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("NamespaceOffloading"))
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(wanted)
	if err != nil {
		return fmt.Errorf("writing the offloading: %w", err)
	}
	delete(fields, "status")
	return screen.Document(e.Out, orYAML(o.output), fields)
}

// check finds words that mean nothing, with the rules of the kind, and makes what is asked for.
func (o *offload) check(namespace string) (*v1alpha1.NamespaceOffloading, error) {
	wanted := &v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.OffloadingName}}
	switch {
	case len(validation.IsDNS1123Label(namespace)) > 0:
		return nil, usage("%q is not the name of a namespace; use lower-case letters, digits and dashes", namespace)
	case chain.OwnNamespace(namespace):
		return nil, usage("namespace %s is the cluster's own and cannot be offloaded; choose another", namespace)
	case o.pods != "" && !slices.Contains(podStrategies, o.pods):
		return nil, usage("--pod-offloading-strategy %q is unknown; use %s", o.pods, strings.Join(podStrategies, ", "))
	case o.mapping != "" && !slices.Contains(mappingStrategies, o.mapping):
		return nil, usage("--namespace-mapping-strategy %q is unknown; use %s", o.mapping, strings.Join(mappingStrategies, ", "))
	case o.unreachable != "" && !slices.Contains(unreachablePolicies, o.unreachable):
		return nil, usage("--when-unreachable %q is unknown; use %s", o.unreachable, strings.Join(unreachablePolicies, ", "))
	case o.remoteName != "" && o.mapping != string(v1alpha1.MappingSelectedName):
		return nil, usage("--remote-name is for --namespace-mapping-strategy SelectedName; add that, or leave it out")
	case o.remoteName == "" && o.mapping == string(v1alpha1.MappingSelectedName):
		return nil, usage("--namespace-mapping-strategy SelectedName needs the name; add --remote-name NAME")
	case o.remoteName != "" && len(validation.IsDNS1123Label(o.remoteName)) > 0:
		return nil, usage("--remote-name %q is not the name of a namespace; use at most 63 lower-case letters, digits and dashes", o.remoteName)
	}
	if o.output != "" && o.restart {
		return nil, usage("-o prints one object; leave it out with --restart-workloads")
	}
	if err := checkReach(o.reachability); err != nil {
		return nil, err
	}
	selector, err := clusterSelector(o.selectors)
	if err != nil {
		return nil, err
	}
	wanted.Spec = v1alpha1.NamespaceOffloadingSpec{
		PodOffloadingStrategy:    v1alpha1.PodOffloadingStrategy(o.pods),
		NamespaceMappingStrategy: v1alpha1.NamespaceMappingStrategy(o.mapping),
		RemoteNamespaceName:      o.remoteName, ClusterSelector: selector,
		Reachability: v1alpha1.Reachability(o.reachability), WhenUnreachable: v1alpha1.UnreachablePolicy(o.unreachable),
	}
	if o.onward {
		wanted.Spec.Onward = v1alpha1.OnwardAllow
	} else if o.given("onward") {
		wanted.Spec.Onward = v1alpha1.OnwardDeny
	}
	return wanted, nil
}

// namespace sees that the namespace is there, and that its name there is not too long.
func (o *offload) namespace(ctx context.Context, c *Cluster, wanted *v1alpha1.NamespaceOffloading) error {
	var n corev1.Namespace
	err := c.Client.Get(ctx, client.ObjectKey{Name: wanted.Namespace}, &n)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return describe(fmt.Errorf("reading the namespace: %w", err), c)
	case err != nil:
		return fmt.Errorf("there is no namespace %s; make it first: kubectl create namespace %[1]s", wanted.Namespace)
	case !n.DeletionTimestamp.IsZero():
		return fmt.Errorf("namespace %s is being removed; wait until it is gone and make it again", n.Name)
	}
	return o.short(ctx, c, wanted)
}

// short sees that the name which the namespace would get there is not too long. One that is offloaded
// has its name, whatever is given now.
func (o *offload) short(ctx context.Context, c *Cluster, wanted *v1alpha1.NamespaceOffloading) error {
	settings, err := c.settings(ctx)
	if err != nil {
		return err
	}
	there := v1alpha1.DefaultRemoteNamespace(wanted.Namespace, settings.Cluster.Name)
	usual := wanted.Spec.NamespaceMappingStrategy == "" || wanted.Spec.NamespaceMappingStrategy == v1alpha1.MappingDefaultName
	if !usual || len(there) <= 63 {
		return nil
	}
	var current v1alpha1.NamespaceOffloading
	err = c.Client.Get(ctx, client.ObjectKeyFromObject(wanted), &current)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return describe(fmt.Errorf("reading the offloading: %w", err), c)
	case err == nil && current.DeletionTimestamp.IsZero():
		return nil
	}
	return fmt.Errorf("the namespace would be called %s there, which has %d characters, at most 63; choose a name that the provider allows: --namespace-mapping-strategy SelectedName --remote-name SHORTER", there, len(there))
}

// store makes the NamespaceOffloading, or changes the one that is there. One that is on
// its way out is waited for.
func (o *offload) store(ctx context.Context, e *Env, c *Cluster, wanted *v1alpha1.NamespaceOffloading) (*v1alpha1.NamespaceOffloading, error) {
	key := client.ObjectKeyFromObject(wanted)
	var current v1alpha1.NamespaceOffloading
	err := c.Client.Get(ctx, key, &current)
	if err == nil && !current.DeletionTimestamp.IsZero() {
		if err := goneAway(ctx, e, c, &current, o.timeout); err != nil {
			return nil, err
		}
		current = v1alpha1.NamespaceOffloading{}
		err = c.Client.Get(ctx, key, &current)
	}
	switch {
	case client.IgnoreNotFound(err) != nil:
		return nil, describe(fmt.Errorf("reading the offloading: %w", err), c)
	case err != nil:
		if err := c.Client.Create(ctx, wanted, fieldOwner); err != nil {
			return nil, describe(fmt.Errorf("offloading namespace %s: %w", wanted.Namespace, err), c)
		}
		return wanted, nil
	}
	if err := o.unchanged(&current, wanted); err != nil {
		return nil, err
	}
	before := current.DeepCopy()
	if o.given("pod-offloading-strategy") {
		current.Spec.PodOffloadingStrategy = wanted.Spec.PodOffloadingStrategy
	}
	if o.given("reachability") {
		current.Spec.Reachability = wanted.Spec.Reachability
	}
	if o.given("when-unreachable") {
		current.Spec.WhenUnreachable = wanted.Spec.WhenUnreachable
	}
	if o.given("onward") {
		current.Spec.Onward = wanted.Spec.Onward
	}
	if o.given("cluster-selector") {
		current.Spec.ClusterSelector = wanted.Spec.ClusterSelector
	}
	if current.Labels[v1alpha1.LabelManagedBy] != "" {
		delete(current.Labels, v1alpha1.LabelManagedBy) // from now on it is somebody's, not the label's
	}
	if err := c.Client.Patch(ctx, &current, client.MergeFrom(before), fieldOwner); err != nil {
		return nil, describe(fmt.Errorf("changing the offloading of namespace %s: %w", current.Namespace, err), c)
	}
	return &current, nil
}

// unchanged refuses to change what cannot be changed.
func (o *offload) unchanged(current, wanted *v1alpha1.NamespaceOffloading) error {
	was, want := current.Spec, wanted.Spec
	if want.NamespaceMappingStrategy == "" || want.NamespaceMappingStrategy == was.NamespaceMappingStrategy && want.RemoteNamespaceName == was.RemoteNamespaceName {
		return nil
	}
	name := ""
	if was.RemoteNamespaceName != "" {
		name = " " + was.RemoteNamespaceName
	}
	return fmt.Errorf("namespace %s is offloaded with --namespace-mapping-strategy %s%s, which cannot be changed; run: pelago unoffload namespace %[1]s, then offload it again",
		current.Namespace, was.NamespaceMappingStrategy, name)
}

// goneAway waits until an offloading that is being removed is gone.
func goneAway(ctx context.Context, e *Env, c *Cluster, o *v1alpha1.NamespaceOffloading, timeout time.Duration) error {
	progress := e.progress()
	defer progress.Stop()
	state := ""
	err := await(ctx, e, c.Client, &v1alpha1.NamespaceOffloadingList{}, client.ObjectKeyFromObject(o), func(now *v1alpha1.NamespaceOffloading) (bool, error) {
		if now == nil || now.UID != o.UID {
			return true, nil
		}
		state = comingHome(now)
		progress.Step("%s: %s", o.Namespace, state)
		return false, nil
	})
	return ended(describe(err, c), "unoffloading namespace "+o.Namespace, timeout, state,
		"it goes on by itself; see: pelago explain namespace "+o.Namespace)
}

// wait follows the offloading until all clusters have answered.
func (o *offload) wait(ctx context.Context, e *Env, c *Cluster, stored *v1alpha1.NamespaceOffloading) (*v1alpha1.NamespaceOffloading, error) {
	progress := e.progress()
	defer progress.Stop()
	progress.Step("Offloading namespace %s", stored.Namespace)
	generation, state := stored.Generation, ""
	last := stored
	if turnedDown(stored) { // it may have been changed a moment ago what it was refused for
		progress.Step("%s: refused so far, waiting whether that holds", stored.Namespace)
		brief, cancel := context.WithTimeout(ctx, refusalHolds)
		defer cancel()
		_ = await(brief, e, c.Client, &v1alpha1.NamespaceOffloadingList{}, client.ObjectKeyFromObject(stored), func(now *v1alpha1.NamespaceOffloading) (bool, error) {
			return now == nil || !turnedDown(now), nil
		})
	}
	err := await(ctx, e, c.Client, &v1alpha1.NamespaceOffloadingList{}, client.ObjectKeyFromObject(stored), func(now *v1alpha1.NamespaceOffloading) (bool, error) {
		switch {
		case now == nil || now.UID != stored.UID || !now.DeletionTimestamp.IsZero():
			return true, fmt.Errorf("somebody has unoffloaded namespace %s meanwhile; to offload it again: pelago offload namespace %[1]s", stored.Namespace)
		case now.Status.ObservedGeneration < generation:
			state = "waiting for pelago-manager"
			progress.Step("%s: %s", now.Namespace, state)
			return false, nil
		}
		last = now
		var over bool
		if over, state = settled(now); !over {
			progress.Step("%s: %s", now.Namespace, state)
		}
		return over, nil
	})
	return last, ended(describe(err, c), "offloading namespace "+stored.Namespace, o.timeout, state,
		"it goes on by itself; see: pelago explain namespace "+stored.Namespace)
}
