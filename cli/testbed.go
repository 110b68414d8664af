package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/reach"
	"github.com/pelago-dev/pelago/cli/screen"
)

// Names in the test's namespace; the pods at providers have the names of these.
const (
	headless = "all"
	homePod  = "home"
	testRole = "pelago.dev/test"
	// balancedSuffix is what names of Services with a load balancer end with.
	balancedSuffix = "-balanced"
	// testPrefix is what names of the test's namespaces begin with.
	testPrefix = "network-test-"
	// leftAfter is how old the namespace of a test is that is not taken for one that runs.
	leftAfter = time.Hour
)

// testbed is the namespace of a network test, with a pod here and one at each provider.
type testbed struct {
	cluster *Cluster
	own     string            // this cluster's name
	at      map[string]string // the peering of each pod elsewhere
	nodes   map[string]string // the virtual node of each of them
	image   corev1.Container  // of which only image and policy are used
	// nodeAddresses are those of one node of this cluster.
	nodeAddresses []string
	namespace     string
	// balance and api say that there are Services with load balancers, and tokens at providers.
	balance, api bool
}

// newTestbed finds where pods can be; words may name one provider.
func (c *Cluster) newTestbed(ctx context.Context, words []string) (*testbed, error) {
	settings, err := c.settings(ctx)
	if err != nil {
		return nil, err
	}
	w := &testbed{cluster: c, own: settings.Cluster.Name, at: map[string]string{}, nodes: map[string]string{}}
	var nodes corev1.NodeList
	if err := c.Client.List(ctx, &nodes); err != nil {
		return nil, describe(fmt.Errorf("reading the nodes: %w", err), c)
	}
	var away []string
	for i := range nodes.Items {
		n := &nodes.Items[i]
		peering := n.Labels[v1alpha1.LabelPeering]
		switch {
		case n.Labels[v1alpha1.LabelType] != v1alpha1.TypeVirtualNode:
			if len(w.nodeAddresses) == 0 && nodeReady(n) {
				w.nodeAddresses = internalAddresses(n)
			}
		case w.nodes[peering] != "" || peering == homePod:
		case len(words) > 0 && words[0] != peering:
		case !nodeReady(n):
			away = append(away, peering)
		default:
			w.at[peering], w.nodes[peering] = peering, n.Name
		}
	}
	switch {
	case len(w.at) > 0:
		return w, w.findImage(ctx)
	case len(away) > 0:
		return nil, fmt.Errorf("the virtual nodes of %s are not ready; see: pelago explain peering %s", strings.Join(away, ", "), away[0])
	case len(words) > 0:
		return nil, fmt.Errorf("there is no virtual node of a peering %s; see: pelago status", words[0])
	}
	return nil, errors.New("there is no virtual node, so nothing to try; see: pelago status")
}

// findImage finds the one that Pelago itself has here, which has the program of the test.
func (w *testbed) findImage(ctx context.Context) error {
	var manager appsv1.Deployment
	if err := w.cluster.Client.Get(ctx, inSystem(v1alpha1.ManagerService), &manager); err != nil {
		return describe(fmt.Errorf("finding Pelago's image: %w", err), w.cluster)
	}
	if containers := manager.Spec.Template.Spec.Containers; len(containers) > 0 {
		w.image = containers[0]
	}
	return nil
}

func nodeReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func internalAddresses(n *corev1.Node) (all []string) {
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			all = append(all, a.Address)
		}
	}
	return all
}

// providers are the peerings that are tried, in order.
func (w *testbed) providers() []string {
	var names []string
	for name := range w.nodes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// build makes the namespace and what is in it.
func (w *testbed) build(ctx context.Context) error {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: testPrefix, Labels: map[string]string{
		v1alpha1.LabelManagedBy: managedBy, "pod-security.kubernetes.io/enforce": string(v1alpha1.PodSecurityRestricted)}}}
	if err := w.cluster.Client.Create(ctx, n, fieldOwner); err != nil {
		return fmt.Errorf("making a namespace: %w", err)
	}
	w.namespace = n.Name
	tokens := v1alpha1.TokensDeny
	if w.api {
		tokens = v1alpha1.TokensAllow
	}
	objects := []client.Object{
		&v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.OffloadingName},
			Spec: v1alpha1.NamespaceOffloadingSpec{PodOffloadingStrategy: v1alpha1.PodsLocalAndRemote, ServiceAccountTokens: tokens}},
		service(headless, nil, func(s *corev1.ServiceSpec) { s.ClusterIP, s.PublishNotReadyAddresses = corev1.ClusterIPNone, true }),
	}
	for _, name := range append([]string{homePod}, w.providers()...) {
		own := map[string]string{"app": name}
		objects = append(objects, service(name, own, func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeNodePort }), w.pod(name))
		if w.balance {
			objects = append(objects, service(name+balancedSuffix, own, func(s *corev1.ServiceSpec) {
				s.Type, s.Ports = corev1.ServiceTypeLoadBalancer, s.Ports[:1] // not each can do TCP and UDP in one
			}))
		}
	}
	for _, o := range objects {
		o.SetNamespace(w.namespace)
		if err := w.cluster.Client.Create(ctx, o, fieldOwner); err != nil {
			return fmt.Errorf("making %s in namespace %s: %w", o.GetName(), w.namespace, err)
		}
		if _, is := o.(*v1alpha1.NamespaceOffloading); is { // pods get their terms when they are made
			if err := w.offloaded(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// offloaded waits until the namespace is let through by admission.
func (w *testbed) offloaded(ctx context.Context) error {
	for {
		var n corev1.Namespace
		if err := w.cluster.Client.Get(ctx, client.ObjectKey{Name: w.namespace}, &n); err != nil {
			return fmt.Errorf("reading namespace %s: %w", w.namespace, err)
		}
		if n.Labels[v1alpha1.LabelOffloaded] == "true" {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("namespace %s is not offloaded: %w; see: pelago status", w.namespace, context.Cause(ctx))
		case <-time.After(settlePause / 10):
		}
	}
}

func service(name string, selector map[string]string, change func(*corev1.ServiceSpec)) *corev1.Service {
	if selector == nil {
		selector = map[string]string{testRole: "network"}
	}
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{
		Selector: selector, IPFamilyPolicy: new(corev1.IPFamilyPolicyPreferDualStack), Ports: []corev1.ServicePort{
			{Name: "probe", Port: reach.Port, TargetPort: intstr.FromInt32(reach.Port)},
			{Name: "datagrams", Port: reach.Port, TargetPort: intstr.FromInt32(reach.Port), Protocol: corev1.ProtocolUDP}}}}
	change(&s.Spec)
	return s
}

// pod is the end of ways of a name: here, or on the virtual node of a peering.
func (w *testbed) pod(name string) *corev1.Pod {
	grace := int64(1)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name, testRole: "network"}},
		Spec: corev1.PodSpec{
			Hostname: name, Subdomain: headless, TerminationGracePeriodSeconds: &grace, RestartPolicy: corev1.RestartPolicyAlways,
			AutomountServiceAccountToken: new(bool),
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: new(true), RunAsUser: new(int64(65532)),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{
				Name: "probe", Image: w.image.Image, ImagePullPolicy: w.image.ImagePullPolicy, Command: []string{"/pelago", "probe", "serve"},
				Ports:          []corev1.ContainerPort{{ContainerPort: reach.Port}, {ContainerPort: reach.Port, Protocol: corev1.ProtocolUDP}},
				ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(reach.Port)}}},
				SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: new(bool), ReadOnlyRootFilesystem: new(true),
					Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
			}},
		},
	}
	if node, away := w.nodes[name]; away {
		p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
		*p.Spec.AutomountServiceAccountToken = w.api
		return p
	}
	p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
			Key: v1alpha1.LabelType, Operator: corev1.NodeSelectorOpNotIn, Values: []string{v1alpha1.TypeVirtualNode}}}}}}}}
	return p
}

// wait follows the pods until all are ready.
func (w *testbed) wait(ctx context.Context, e *Env, progress *screen.Progress, limit time.Duration) error {
	ctx, cancel := bound(ctx, limit)
	defer cancel()
	for {
		waiting, err := w.waiting(ctx)
		if err == nil && len(waiting) == 0 {
			return nil
		}
		if len(waiting) > 0 {
			progress.Step("Waiting for %s", strings.Join(waiting, ", "))
		}
		select {
		case <-ctx.Done():
			state := strings.Join(waiting, ", ")
			remedy := "see: pelago status"
			if len(waiting) > 0 {
				remedy = fmt.Sprintf("see, with --keep: pelago explain pod %s -n %s", waiting[0], w.namespace)
			}
			return ended(context.Cause(ctx), "starting the pods", limit, state, remedy)
		case <-e.Clock.After(settlePause / 4):
		}
	}
}

// balanced waits until Services have what load balancers give them, as long as a way may take until
// it is good. If there is no such thing here, ends finds none.
func (w *testbed) balanced(ctx context.Context, e *Env, progress *screen.Progress, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for w.balance && ctx.Err() == nil {
		var services corev1.ServiceList
		err := w.cluster.Client.List(ctx, &services, client.InNamespace(w.namespace))
		if err == nil && !slices.ContainsFunc(services.Items, func(s corev1.Service) bool {
			return s.Spec.Type == corev1.ServiceTypeLoadBalancer && len(balancers(&s)) == 0
		}) {
			return
		}
		progress.Step("Waiting for load balancers")
		select {
		case <-ctx.Done():
		case <-e.Clock.After(settlePause / 4):
		}
	}
}

// waiting are the pods that cannot be called yet.
func (w *testbed) waiting(ctx context.Context) ([]string, error) {
	var pods corev1.PodList
	if err := w.cluster.Client.List(ctx, &pods, client.InNamespace(w.namespace)); err != nil {
		return nil, err
	}
	var names []string
	for i := range pods.Items {
		p := &pods.Items[i]
		if !slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue }) {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// leftBehind are the namespaces of tests that ended without removing them, or were told to keep them.
func (c *Cluster) leftBehind(ctx context.Context, now time.Time) ([]string, error) {
	var all corev1.NamespaceList
	if err := c.Client.List(ctx, &all, client.MatchingLabels{v1alpha1.LabelManagedBy: managedBy}); err != nil {
		return nil, describe(fmt.Errorf("listing namespaces: %w", err), c)
	}
	var names []string
	for i := range all.Items {
		if n := &all.Items[i]; strings.HasPrefix(n.Name, testPrefix) && n.DeletionTimestamp.IsZero() && now.Sub(n.CreationTimestamp.Time) > leftAfter {
			names = append(names, n.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// remove takes the namespace away, and does not wait until it is gone.
func (w *testbed) remove() error {
	if w.namespace == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), removeLimit)
	defer cancel()
	err := w.cluster.Client.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing namespace %s: %w; run: kubectl delete namespace %[1]s", w.namespace, err)
	}
	return nil
}

// domain is what this cluster is called in its own DNS, as the providers are told.
func (w *testbed) domain(ctx context.Context) (string, error) {
	maps, err := w.cluster.namespaceMaps(ctx)
	if err != nil {
		return "", err
	}
	for _, m := range maps {
		if said := m.Spec.Namespaces[w.namespace].Domain; said != "" && strings.HasPrefix(m.Namespace, v1alpha1.PeeringNamespacePrefix) {
			return v1alpha1.DomainOf(said), nil
		}
	}
	return v1alpha1.DefaultDomain, nil
}
