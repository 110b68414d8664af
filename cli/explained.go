package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/chain"
)

// gatherer reads what explains the thing that a word means.
type gatherer = func(*Cluster, context.Context, *Env, string) ([]chain.Chain, error)

func newExplainPod(e *Env) *cobra.Command {
	var output, namespace string
	c := &cobra.Command{
		Use:   "pod NAME",
		Short: "Tell why a pod is where it is",
		Long: `Shows whether the pod's namespace is offloaded, under which terms the pod was made, which
virtual nodes could take it and why others could not, where it is bound, and what the
provider says and warns of it; of what is not as it should be, what to do. It reads this cluster only.`,
		Example: "  pelago explain pod web-0 -n shop",
		Args:    exactly("NAME"),
		ValidArgsFunction: func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			return e.completePods(c, args, namespace)
		},
		RunE: e.does(func(ctx context.Context, e *Env, args []string) error {
			return explain(ctx, e, args[0], output, func(c *Cluster, ctx context.Context, e *Env, name string) ([]chain.Chain, error) {
				return c.podChains(ctx, e, cmp.Or(namespace, c.Namespace, metav1.NamespaceDefault), name)
			})
		}),
	}
	c.Flags().StringVarP(&namespace, "namespace", "n", "", "the pod's namespace; that of the kubeconfig's context if not given")
	completes(c, "namespace", e.completeAnyNamespace)
	outputFlag(c, &output)
	return c
}

func newExplainNamespace(e *Env) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:     "namespace NAME",
		Aliases: []string{"ns"},
		Short:   "Tell how the offloading of a namespace is, at each cluster",
		Long: `Shows whether the namespace is offloaded and how, which clusters are selected and why others
are not, what the namespace is called there or why it is refused, where its pods are, and which
Services are there also without any; of what is not as it should be, what to do.`,
		Example:           "  pelago explain namespace shop",
		Args:              exactly("NAME"),
		ValidArgsFunction: e.completeNamespaces,
		RunE: e.does(func(ctx context.Context, e *Env, args []string) error {
			return explain(ctx, e, args[0], output, (*Cluster).namespaceChains)
		}),
	}
	outputFlag(c, &output)
	return c
}

// podChains gathers what is known of a pod and explains it.
func (c *Cluster) podChains(ctx context.Context, e *Env, namespace, name string) ([]chain.Chain, error) {
	f := chain.PodFacts{Now: e.Clock.Now()}
	var err error
	if f.Pod, err = c.podNamed(ctx, namespace, name); err != nil {
		return nil, err
	}
	namespace = f.Pod.Namespace // which the word may say
	if f.Offloading, err = c.offloadingOf(ctx, namespace); err != nil {
		return nil, err
	}
	maps, err := c.namespaceMaps(ctx)
	if err != nil {
		return nil, err
	}
	var refusals []v1alpha1.Refusal
	if owner := metav1.GetControllerOf(f.Pod); owner != nil {
		refusals = refusedOwner(maps, string(owner.UID))
	}
	if f.Nodes, err = c.virtualNodes(ctx, refusals); err != nil {
		return nil, err
	}
	if f.Pod.Spec.NodeName == "" {
		for i := range f.Nodes {
			f.Nodes[i].Used = c.used(ctx, f.Nodes[i].Node.Name)
		}
	}
	for _, n := range f.Nodes {
		if at, has := mappedAt(maps, namespace)[n.Node.Labels[v1alpha1.LabelPeering]]; has && n.Node.Name == f.Pod.Spec.NodeName {
			f.Mapped = &at
		}
	}
	own, warnings := c.words(ctx, f.Pod)
	f.Warnings = warnings
	if len(own) > 0 {
		f.Event = own[0]
	}
	c.referred(ctx, &f)
	return []chain.Chain{chain.Pod(f)}, nil
}

// namespaceChains gathers what is known of a namespace and explains it.
func (c *Cluster) namespaceChains(ctx context.Context, _ *Env, name string) ([]chain.Chain, error) {
	var n corev1.Namespace
	if err := c.Client.Get(ctx, client.ObjectKey{Name: name}, &n); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil, fmt.Errorf("there is no namespace %s; see which are: kubectl get namespaces", name)
		}
		return nil, describe(fmt.Errorf("reading the namespace: %w", err), c)
	}
	f := chain.NamespaceFacts{Name: name, Labels: n.Labels, Tenants: c.tenantNames(ctx)}
	var err error
	if f.Offloading, err = c.offloadingOf(ctx, name); err != nil {
		return nil, err
	}
	maps, err := c.namespaceMaps(ctx)
	if err != nil {
		return nil, err
	}
	f.Mapped, f.Objects = mappedAt(maps, name), chain.ObjectsOf(maps, name)
	if f.Nodes, err = c.virtualNodes(ctx, nil); err != nil {
		return nil, err
	}
	if f.Offloading == nil {
		return []chain.Chain{chain.Namespace(f)}, nil
	}
	places, err := c.whereabouts(ctx, f.Offloading, f.Nodes)
	if err != nil {
		return nil, err
	}
	f.Here, f.Away, f.Waiting, f.Outdated = places.here, places.away, places.waiting, places.outdated
	f.Sent = c.servicesSent(ctx, f.Offloading)
	return []chain.Chain{chain.Namespace(f)}, nil
}

// servicesSent are the Services of an offloaded namespace that need no pod of it at other clusters, by
// name. It is beside the point when Services cannot be read.
func (c *Cluster) servicesSent(ctx context.Context, o *v1alpha1.NamespaceOffloading) (names []string) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ServiceList"))
	if err := c.Client.List(ctx, list, client.InNamespace(o.Namespace)); err != nil {
		return nil
	}
	for i := range list.Items {
		if policy, _ := v1alpha1.Reflected(o.Spec.Reflection, "Service", &list.Items[i]); policy == v1alpha1.ReflectAll {
			names = append(names, list.Items[i].Name)
		}
	}
	slices.Sort(names)
	return names
}

// places counts the pods of a namespace that have not ended.
type places struct{ here, away, waiting, outdated int }

// whereabouts counts the pods of an offloaded namespace page by page, and keeps none.
func (c *Cluster) whereabouts(ctx context.Context, o *v1alpha1.NamespaceOffloading, nodes []chain.NodeFacts) (places, error) {
	p, virtual := places{}, namesOf(nodes)
	err := c.eachPod(ctx, func(pod *corev1.Pod) { p.add(pod, o, virtual) }, client.InNamespace(o.Namespace))
	return p, err
}

// whereabouts counts pods that are there already.
func whereabouts(pods []corev1.Pod, o *v1alpha1.NamespaceOffloading, nodes []chain.NodeFacts) places {
	p, virtual := places{}, namesOf(nodes)
	for i := range pods {
		p.add(&pods[i], o, virtual)
	}
	return p
}

func namesOf(nodes []chain.NodeFacts) map[string]bool {
	names := map[string]bool{}
	for _, n := range nodes {
		names[n.Node.Name] = true
	}
	return names
}

func (p *places) add(pod *corev1.Pod, o *v1alpha1.NamespaceOffloading, virtual map[string]bool) {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return
	}
	switch {
	case pod.Spec.NodeName == "":
		p.waiting++
	case virtual[pod.Spec.NodeName]:
		p.away++
	default:
		p.here++
	}
	if chain.Outdated(pod, o) != "" {
		p.outdated++
	}
}

// offloadingOf is the NamespaceOffloading in a namespace, nil if there is none.
func (c *Cluster) offloadingOf(ctx context.Context, namespace string) (*v1alpha1.NamespaceOffloading, error) {
	var o v1alpha1.NamespaceOffloading
	err := c.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.OffloadingName}, &o)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return nil, describe(fmt.Errorf("reading the offloading: %w", err), c)
	case err != nil:
		return nil, nil
	}
	return &o, nil
}

// virtualNodes are the virtual nodes with the offers behind them and what was refused there.
func (c *Cluster) virtualNodes(ctx context.Context, refusals []v1alpha1.Refusal) ([]chain.NodeFacts, error) {
	var nodes corev1.NodeList
	if err := c.Client.List(ctx, &nodes, client.MatchingLabels{v1alpha1.LabelType: v1alpha1.TypeVirtualNode}); err != nil {
		return nil, describe(fmt.Errorf("listing virtual nodes: %w", err), c)
	}
	var offers v1alpha1.ResourceOfferList
	if err := c.Client.List(ctx, &offers); err != nil && !notServed(err) {
		return nil, describe(fmt.Errorf("listing offers: %w", err), c)
	}
	var requests v1alpha1.ResourceRequestList
	if err := c.Client.List(ctx, &requests); err != nil && !notServed(err) && !apierrors.IsForbidden(err) { // what is said there is beside the point
		return nil, describe(fmt.Errorf("listing requests: %w", err), c)
	}
	tenants := c.tenantNames(ctx)
	facts := make([]chain.NodeFacts, 0, len(nodes.Items))
	for _, n := range nodes.Items {
		fact := chain.NodeFacts{Node: n, Tenant: tenants[n.Labels[v1alpha1.LabelPeering]]}
		for _, offer := range offers.Items {
			if offer.Namespace == v1alpha1.PeeringNamespace(n.Labels[v1alpha1.LabelPeering]) && offer.Name == n.Labels[v1alpha1.LabelRequest] {
				fact.Shapes = offer.Spec.Shapes
			}
		}
		for _, request := range requests.Items {
			if request.Namespace == v1alpha1.PeeringNamespace(n.Labels[v1alpha1.LabelPeering]) && request.Name == n.Labels[v1alpha1.LabelRequest] {
				fact.Withheld = withheld(&request)
			}
		}
		for i := range refusals {
			if refusals[i].Node == n.Name {
				fact.Refused = &refusals[i]
			}
		}
		facts = append(facts, fact)
	}
	slices.SortFunc(facts, func(a, b chain.NodeFacts) int { return strings.Compare(a.Node.Name, b.Node.Name) })
	return facts, nil
}

// withheld is why a provider gives a request no more, in its own words; nil if it does.
func withheld(r *v1alpha1.ResourceRequest) *metav1.Condition {
	c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionOffered)
	if c == nil || c.Status == metav1.ConditionTrue || !slices.Contains([]string{v1alpha1.ReasonCordoned, v1alpha1.ReasonDrained, v1alpha1.ReasonNothingFree,
		v1alpha1.ReasonFiltered, v1alpha1.ReasonLimitExceeded, v1alpha1.ReasonWithdrawn}, c.Reason) {
		return nil
	}
	return c
}

// used is what the pods on a node ask for; nil if they cannot be read, which is beside the point.
func (c *Cluster) used(ctx context.Context, node string) v1alpha1.ResourceList {
	all := v1alpha1.ResourceList{}
	err := c.eachPod(ctx, func(p *corev1.Pod) {
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			return
		}
		for name, quantity := range chain.Requests(p) {
			sum := all[name]
			sum.Add(quantity)
			all[name] = sum
		}
	}, client.MatchingFields{"spec.nodeName": node})
	if err != nil {
		return nil
	}
	return all
}

// refusedOwner are the refusals of pods of one controller.
func refusedOwner(maps []v1alpha1.NamespaceMap, owner string) []v1alpha1.Refusal {
	var all []v1alpha1.Refusal
	for _, m := range maps {
		if strings.HasPrefix(m.Namespace, v1alpha1.PeeringNamespacePrefix) {
			all = append(all, keep(m.Status.Refusals, func(r v1alpha1.Refusal) bool { return r.Owner == owner })...)
		}
	}
	return all
}

// words are what Pelago said about a pod in events, the latest first: of its own, and what
// the pod's provider warns of. It is beside the point when events cannot be read.
func (c *Cluster) words(ctx context.Context, pod *corev1.Pod) (own, warnings []string) {
	var events corev1.EventList
	about := &client.ListOptions{Namespace: pod.Namespace, FieldSelector: fields.OneTermEqualSelector("involvedObject.name", pod.Name)}
	if err := c.Client.List(ctx, &events, about); err != nil {
		return nil, nil
	}
	slices.SortStableFunc(events.Items, func(a, b corev1.Event) int { return said(b).Compare(said(a)) })
	for _, e := range events.Items {
		switch {
		case e.InvolvedObject.UID != pod.UID || !strings.HasPrefix(cmp.Or(e.ReportingController, e.Source.Component), "pelago"):
		case e.Reason == v1alpha1.ReasonProviderWarning:
			warnings = append(warnings, chain.Plain(e.Reason, e.Message))
		default:
			own = append(own, e.Reason+": "+chain.Plain(e.Reason, e.Message))
		}
	}
	return own, warnings
}

// said is when an event was last said.
func said(e corev1.Event) time.Time {
	if e.Series != nil && !e.Series.LastObservedTime.IsZero() {
		return e.Series.LastObservedTime.Time
	}
	if e.LastTimestamp.IsZero() {
		return e.EventTime.Time
	}
	return e.LastTimestamp.Time
}
