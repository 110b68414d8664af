package test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// severalFile is a consumer with two providers.
const severalFile = `clusters:
- name: rome
  nodes: 1
  addons: [coredns, load-balancer]
- name: milan
  nodes: 5
  addons: [coredns, load-balancer]
  labels: {region: north}
- name: paris
  nodes: 1
  addons: [coredns, load-balancer]
  labels: {region: west}
`

// TestOffloadingAll has what takes long: several providers, a long partition, many pods,
// a node of the provider that dies, a home API server that stands still.
func TestOffloadingAll(t *testing.T) {
	s := kubetest.Sandbox(t, kubetest.Options{Name: "offall", File: sandboxFile(t, severalFile), Pelago: true})
	c := newContinuum(t, s, "rome", "milan", "paris")
	box(t, s, "rome", "milan", "paris")
	for _, provider := range []string{"milan", "paris"} {
		c.peer(t, "rome", provider)
		c.nodeReady(t, "rome", provider)
	}
	for _, part := range []struct {
		name string
		run  func(*testing.T, *continuum)
	}{
		{"Several", severalProviders},
		{"Budgets", budgets},
		{"Ingresses", ingresses},
		{"NetworkBreaks", func(t *testing.T, c *continuum) { networkBreaks(t, c, true) }},
		{"NetworkService", networkService},
		{"Reachability", reachability},
		{"ServiceAlone", serviceAlone},
		{"NetworkPolicies", networkPolicies},
		{"NetworkFromOutside", networkFromOutside},
		{"TunnelCut", tunnelCut},
		{"IPMapping", ipMapping},
		{"Monitoring", monitoring},
		{"LongPartition", longPartition},
		{"DeletedWhileAway", deletedWhileAway},
		{"DeadNode", deadNodeOfProvider},
		{"HomePaused", homePaused},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(t, c) })
	}
}

// severalProviders holds that pods are spread over providers by the plain scheduler, go
// where labels say, and leave a provider that drains its tenant.
func severalProviders(t *testing.T, c *continuum) {
	s := c.offloaded(t, "rome", "--pod-offloading-strategy", "Remote")
	d := s.deployment("spread", 4)
	d.Spec.Template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: "region", WhenUnsatisfiable: corev1.DoNotSchedule,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "spread"}},
	}}
	s.create(t, d)
	if got := nodesOf(s.runningAll(t, "spread", 4)); !slices.Equal(got, []string{"milan", "milan", "paris", "paris"}) {
		t.Errorf("four pods spread over two regions are on %v", got)
	}
	west := s.deployment("west", 2)
	west.Spec.Template.Spec.NodeSelector = map[string]string{"region": "west"}
	s.create(t, west)
	if got := nodesOf(s.runningAll(t, "west", 2)); !slices.Equal(got, []string{"paris", "paris"}) {
		t.Errorf("pods for the region west are on %v", got)
	}
	free := s.deployment("free", 4)
	s.create(t, free)
	s.runningAll(t, "free", 4)
	c.Pelago(t, "milan", "drain", "tenant", "rome")
	t.Cleanup(func() { c.Pelago(t, "milan", "uncordon", "tenant", "rome") })
	s.eventually(t, 3*time.Minute, "all pods that may have moved to paris", func() error {
		pods, err := s.pods("free")
		if err != nil {
			return err
		}
		ready := 0
		for i := range pods {
			if isReady(&pods[i]) == nil && pods[i].Spec.NodeName == "paris" {
				ready++
			}
		}
		if ready != 4 {
			return fmt.Errorf("%d of 4, on %v", ready, nodesOf(pods))
		}
		return nil
	})
	var left corev1.PodList
	if err := c.Clients["milan"].List(t.Context(), &left, client.HasLabels{v1alpha1.LabelHomeUID}); err != nil || len(left.Items) > 0 {
		t.Errorf("milan still runs %d pods of the tenant it drained, %v", len(left.Items), err)
	}
	c.Pelago(t, "milan", "uncordon", "tenant", "rome")
	c.nodeReady(t, "rome", "milan")
}

// longPartition holds that seven minutes without the provider, more than Kubernetes
// waits before it replaces pods, do not run anything twice, but where a namespace says that
// they may, and that one of each is left when the link is back.
func longPartition(t *testing.T, c *continuum) {
	remote := c.offloaded(t, "rome", "--pod-offloading-strategy", "Remote", "--cluster-selector", "region=north")
	kept := c.offloaded(t, "rome", "--cluster-selector", "region=north")
	replaced := c.offloaded(t, "rome", "--cluster-selector", "region=north", "--when-unreachable", "Replace")
	remote.create(t, remote.deployment("web", 3))
	kept.create(t, rather(kept.deployment("web", 3), "north"))
	kept.create(t, onto(kept.sleeper("lone"), "milan"))
	one := int32(1)
	db := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db"}, Spec: appsv1.StatefulSetSpec{
		Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "db"}}, Spec: onto(kept.sleeper("db"), "milan").Spec},
	}}
	kept.create(t, db)
	replaced.create(t, rather(replaced.deployment("web", 2), "north"))
	stay := remote.runningAll(t, "web", 3)
	stay = append(stay, kept.runningAll(t, "web", 3)...)
	stay = append(stay, kept.runningAll(t, "db", 1)...)
	stay = append(stay, *kept.running(t, "lone"))
	lost := replaced.runningAll(t, "web", 2)
	for _, pod := range append(slices.Clone(stay), lost...) {
		if pod.Spec.NodeName != "milan" {
			t.Fatalf("%s/%s is on %s", pod.Namespace, pod.Name, pod.Spec.NodeName)
		}
	}
	c.Run(t, "link", "cut", "rome", "milan")
	t.Cleanup(func() { c.Run(t, "link", "heal", "rome", "milan") })
	never(t, 7*time.Minute, "a pod is replaced or removed while the provider is away", func() (bool, error) {
		var now []corev1.Pod
		for _, s := range []shop{remote, kept} {
			pods, err := s.pods("")
			if err != nil {
				return false, err
			}
			now = append(now, pods...)
		}
		return len(now) != len(stay) || slices.ContainsFunc(now, func(p corev1.Pod) bool {
			return p.DeletionTimestamp != nil || !slices.ContainsFunc(stay, func(b corev1.Pod) bool { return b.UID == p.UID })
		}), nil
	})
	for _, pod := range append(slices.Clone(stay), lost...) {
		if twin, err := c.twin("milan", &pod); err != nil || twin.Status.Phase != corev1.PodRunning {
			t.Errorf("%s/%s at milan: %v", pod.Namespace, pod.Name, err)
		}
	}
	replaced.eventually(t, offloadLimit, "what may be replaced runs at home", func() error {
		pods, err := replaced.pods("web")
		home := 0
		for i := range pods {
			if isReady(&pods[i]) == nil && pods[i].Spec.NodeName != "milan" {
				home++
			}
		}
		if err == nil && home != len(lost) {
			err = fmt.Errorf("%d of %d do", home, len(lost))
		}
		return err
	})
	c.Run(t, "link", "heal", "rome", "milan")
	begin := time.Now()
	remote.runningAll(t, "web", 3)
	kept.runningAll(t, "web", 3)
	kept.runningAll(t, "db", 1)
	kept.running(t, "lone")
	t.Logf("all ready %s after the link was back", time.Since(begin).Round(100*time.Millisecond))
	replaced.runningAll(t, "web", len(lost))
	for i := range lost {
		replaced.gone(t, "milan", &lost[i])
	}
}

// rather makes pods of a Deployment prefer a region.
func rather(d *appsv1.Deployment, region string) *appsv1.Deployment {
	d.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
		Weight: 100, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "region", Operator: corev1.NodeSelectorOpIn, Values: []string{region}}}},
	}}}}
	return d
}

// deletedWhileAway holds that 500 pods deleted while the provider is away are gone there
// when it is back, and at home only then.
func deletedWhileAway(t *testing.T, c *continuum) {
	const count = 500
	s := c.offloaded(t, "rome", "--pod-offloading-strategy", "Remote", "--cluster-selector", "region=north")
	s.held(t, "milan")
	d := s.deployment("many", count)
	d.Spec.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
	s.create(t, d)
	there := func() (int, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		var list corev1.PodList
		err := c.Clients["milan"].List(ctx, &list, client.InNamespace(s.name+"-rome"))
		return len(list.Items), err
	}
	eventually(t, 5*time.Minute, "all pods are at milan", func() error {
		n, err := there()
		if err == nil && n != count {
			err = fmt.Errorf("%d are", n)
		}
		return err
	})
	c.Run(t, "link", "cut", "rome", "milan")
	t.Cleanup(func() { c.Run(t, "link", "heal", "rome", "milan") })
	if err := c.Clients["rome"].Delete(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	eventually(t, 2*time.Minute, "all are being deleted at home", func() error {
		pods, err := s.pods("many")
		for i := range pods {
			if pods[i].DeletionTimestamp == nil {
				return fmt.Errorf("%s is not", pods[i].Name)
			}
		}
		if err == nil && len(pods) != count {
			t.Fatalf("%d pods at home while those at milan are there still, want %d", len(pods), count)
		}
		return err
	})
	c.Run(t, "link", "heal", "rome", "milan")
	begin := time.Now()
	eventually(t, 5*time.Minute, "all are gone on both sides", func() error {
		n, err := there()
		if err != nil {
			return err
		}
		pods, err := s.pods("many")
		if err == nil && n+len(pods) > 0 {
			err = fmt.Errorf("%d at milan, %d at home", n, len(pods))
		}
		return err
	})
	t.Logf("gone %s after the link was back", time.Since(begin).Round(time.Second))
}

// held has a provider's owner keep the pods of a namespace from its scheduler, by a policy of its own:
// they are there and take nothing of its nodes.
func (s shop) held(t *testing.T, provider string) {
	t.Helper()
	const name, gate = "held", "test.pelago.dev/held"
	there := s.name + "-rome"
	policy := &admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.MutatingAdmissionPolicySpec{
		ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
		MatchConstraints: &admissionv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: there}},
			ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}}},
		},
		Mutations: []admissionv1.Mutation{{PatchType: admissionv1.PatchTypeApplyConfiguration, ApplyConfiguration: &admissionv1.ApplyConfiguration{
			Expression: `Object{spec: Object.spec{schedulingGates: [Object.spec.schedulingGates{name: "` + gate + `"}]}}`}}},
	}}
	binding := &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name}}
	for _, o := range []client.Object{policy, binding} {
		if err := s.Clients[provider].Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Clients[provider].Delete(context.Background(), o); err != nil {
				t.Error(err)
			}
		})
	}
	s.eventually(t, patience, provider+" holds what is made in "+there, func() error {
		tried := s.sleeper("tried")
		tried.Namespace = there
		if err := s.Clients[provider].Create(t.Context(), tried, client.DryRunAll); err != nil {
			return err
		}
		if len(tried.Spec.SchedulingGates) == 0 {
			return errors.New("a pod would be scheduled")
		}
		return nil
	})
}

// deadNodeOfProvider holds that pods on a node of the provider that dies run on another
// one, without home doing anything.
func deadNodeOfProvider(t *testing.T, c *continuum) {
	s := c.offloaded(t, "rome", "--pod-offloading-strategy", "Remote", "--cluster-selector", "region=north")
	s.create(t, s.sleeper("survivor"))
	home := s.running(t, "survivor")
	twin, err := c.twin("milan", home)
	if err != nil {
		t.Fatal(err)
	}
	node := twin.Spec.NodeName
	c.Run(t, "node", "stop", "milan", node)
	t.Cleanup(func() { c.Run(t, "node", "start", "milan", node) })
	s.eventually(t, patience, "home takes it for not ready", func() error {
		pod, err := get[corev1.Pod](c, "rome", s.name, "survivor")
		if err == nil && isReady(pod) == nil {
			err = errors.New("it is ready")
		}
		return err
	})
	s.eventually(t, 15*time.Minute, "it runs on another node of milan", func() error {
		var list corev1.PodList
		if err := c.Clients["milan"].List(context.Background(), &list, client.MatchingLabels{v1alpha1.LabelHomeUID: string(home.UID)}); err != nil {
			return err
		}
		for i := range list.Items {
			if p := &list.Items[i]; p.Spec.NodeName != node && p.Status.Phase == corev1.PodRunning {
				return nil
			}
		}
		return fmt.Errorf("%d pods", len(list.Items))
	})
	if now := s.running(t, "survivor"); now.UID != home.UID {
		t.Error("the home pod was replaced")
	}
}
