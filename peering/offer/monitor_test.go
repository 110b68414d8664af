package offer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

func aNode(name string, allocatable v1alpha1.ResourceList, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}},
		Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{},
			NodeInfo:    corev1.NodeSystemInfo{Architecture: "amd64", OperatingSystem: "linux"},
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
	for r, q := range allocatable {
		n.Status.Allocatable[corev1.ResourceName(r)] = q
	}
	for _, f := range change {
		f(n)
	}
	return n
}

func aPod(uid, node, cpus, mem string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: uid, UID: types.UID(uid)},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpus), corev1.ResourceMemory: resource.MustParse(mem),
		}}}}},
	}
	for _, f := range change {
		f(p)
	}
	return p
}

func freeOf(t testing.TB, m *monitor) amounts {
	t.Helper()
	r, err := m.Read(context.Background(), Consumer{})
	if err != nil {
		t.Fatal(err)
	}
	return amountsOf(r.Free)
}

func TestMonitor(t *testing.T) {
	size := list(cpu, "4", memory, "100", pods, "10")
	tainted := func(effect corev1.TaintEffect) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "k", Effect: effect}} }
	}
	labelled := func(key, value string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Labels[key] = value }
	}
	always := corev1.ContainerRestartPolicyAlways
	for _, c := range []struct {
		reason string
		feed   func(*monitor)
		want   amounts
	}{
		{"allocatable less requests", func(m *monitor) {
			m.setNode(aNode("n", size))
			m.setPod(aPod("p", "n", "1500m", "30"))
		}, amounts{cpu: 2500, memory: 70, pods: 9}},
		{"pods may be seen before their node", func(m *monitor) {
			m.setPod(aPod("p", "n", "1", "30"))
			m.setNode(aNode("n", size))
		}, amounts{cpu: 3000, memory: 70, pods: 9}},
		{"side cars, init containers and overhead count as the scheduler counts them", func(m *monitor) {
			m.setNode(aNode("n", size))
			m.setPod(aPod("p", "n", "1", "10", func(p *corev1.Pod) {
				with := func(cpus string) corev1.ResourceRequirements {
					return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpus)}}
				}
				p.Spec.InitContainers = []corev1.Container{{Resources: with("500m"), RestartPolicy: &always}, {Resources: with("2")}}
				p.Spec.Overhead = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
			}))
		}, amounts{cpu: 4000 - 2600, memory: 90, pods: 9}},
		{"what has ended, or has no node, does not count", func(m *monitor) {
			m.setNode(aNode("n", size))
			m.setPod(aPod("p", "", "1", "30"))
			m.setPod(aPod("q", "n", "1", "30"))
			m.setPod(aPod("q", "n", "1", "30", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }))
			m.setPod(aPod("r", "n", "1", "30"))
			m.dropPod("r")
			m.dropPod("never seen")
		}, amounts{cpu: 4000, memory: 100, pods: 10}},
		{"one overfull node takes nothing from others", func(m *monitor) {
			m.setNode(aNode("n", size))
			m.setNode(aNode("full", size))
			m.setPod(aPod("p", "full", "100", "30"))
		}, amounts{cpu: 4000, memory: 170, pods: 19}},
		{"not ready, cordoned, tainted, virtual or going nodes", func(m *monitor) {
			m.setNode(aNode("n", size, tainted(corev1.TaintEffectPreferNoSchedule)))
			m.setNode(aNode("a", size, func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }))
			m.setNode(aNode("b", size, func(n *corev1.Node) { n.Spec.Unschedulable = true }))
			m.setNode(aNode("c", size, tainted(corev1.TaintEffectNoSchedule)))
			m.setNode(aNode("d", size, tainted(corev1.TaintEffectNoExecute)))
			m.setNode(aNode("e", size, labelled("type", "virtual-kubelet")))
			m.setNode(aNode("f", size, labelled(v1alpha1.LabelType, v1alpha1.TypeVirtualNode)))
			m.setNode(aNode("g", size, func(n *corev1.Node) { now := metav1.Now(); n.DeletionTimestamp = &now }))
		}, amounts{cpu: 4000, memory: 100, pods: 10}},
		{"a node that comes back finds its pods", func(m *monitor) {
			m.setNode(aNode("n", size))
			m.setPod(aPod("p", "n", "1", "30"))
			m.dropNode("n")
			m.dropNode("n")
			m.setNode(aNode("n", size))
		}, amounts{cpu: 3000, memory: 70, pods: 9}},
		{"nothing there", func(*monitor) {}, amounts{cpu: 0, memory: 0, pods: 0}},
		{"what nobody has is not listed", func(m *monitor) {
			m.setNode(aNode("n", list(cpu, "1", memory, "1", pods, "1", "hugepages-2Mi", "0")))
		}, amounts{cpu: 1000, memory: 1, pods: 1}},
	} {
		m := newMonitor()
		if _, err := m.Read(context.Background(), Consumer{}); !errors.Is(err, errUnknown) {
			t.Errorf("%s: before all was seen: %v, want %v", c.reason, err, errUnknown)
		}
		c.feed(m)
		m.start()
		if diff := cmp.Diff(c.want, freeOf(t, m)); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", c.reason, diff)
		}
	}
}

func TestMonitorShapes(t *testing.T) {
	m := newMonitor()
	m.start()
	m.setNode(aNode("a", list(cpu, "4", memory, "10", pods, "10")))
	m.setNode(aNode("b", list(cpu, "2", memory, "20", pods, "10")))
	m.setNode(aNode("g", list(cpu, "8", memory, "8", pods, "10", "example.com/gpu", "1")))
	m.setNode(aNode("arm", list(cpu, "1", memory, "1", pods, "10"), func(n *corev1.Node) { n.Status.NodeInfo.Architecture = "arm64" }))
	r, err := m.Read(context.Background(), Consumer{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range r.Shapes {
		got = append(got, fmt.Sprintf("%s/%s %d nodes, %d largest", s.OperatingSystem, s.Architecture, s.Nodes, len(s.Largest)))
	}
	want := []string{"linux/amd64 2 nodes, 2 largest", "linux/amd64 1 nodes, 1 largest", "linux/arm64 1 nodes, 1 largest"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("shapes (-want +got)\n%s", diff)
	}
	if _, there := r.Shapes[0].Largest[0]["example.com/gpu"]; there {
		t.Error("a shape without GPUs speaks of GPUs")
	}
}

// mine makes a pod one of a tenant, for a request.
func mine(namespace, tenant, request string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Namespace, p.Labels = namespace, map[string]string{v1alpha1.LabelTenant: tenant, v1alpha1.LabelRequest: request}
	}
}

func TestMonitorUsed(t *testing.T) {
	size := list(cpu, "4", memory, "100", pods, "10")
	usedOf := func(m *monitor, tenant string) map[string]amounts {
		r, err := m.Read(context.Background(), Consumer{Tenant: tenant})
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]amounts{}
		for request, l := range r.Used {
			out[request] = amountsOf(l)
		}
		return out
	}
	m := newMonitor()
	m.start()
	m.setNode(aNode("n", size))
	m.setNode(aNode("o", size))
	m.setPod(aPod("early", "n", "1", "10", mine("shop-rome", "rome", "default")))
	expect := func(reason string, want map[string]amounts) {
		t.Helper()
		if diff := cmp.Diff(want, usedOf(m, "rome")); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", reason, diff)
		}
	}
	expect("a namespace that is nobody's", map[string]amounts{})
	m.setNamespace("shop-rome", "rome")
	m.setNamespace("shop-genoa", "genoa")
	expect("the tenant's", map[string]amounts{"default": {cpu: 1000, memory: 10, pods: 1}})
	m.setPod(aPod("two", "o", "500m", "5", mine("shop-rome", "rome", "default")))
	m.setPod(aPod("batch", "o", "1", "5", mine("shop-rome", "rome", "batch")))
	m.setPod(aPod("genoa", "o", "1", "5", mine("shop-genoa", "genoa", "default")))
	m.setPod(aPod("liar", "o", "1", "5", mine("shop-genoa", "rome", "default")))
	m.setPod(aPod("none", "o", "1", "5", mine("shop-rome", "rome", "")))
	m.setPod(aPod("waits", "", "1", "5", mine("shop-rome", "rome", "default")))
	expect("each to its request", map[string]amounts{"default": {cpu: 1500, memory: 15, pods: 2}, "batch": {cpu: 1000, memory: 5, pods: 1}})
	sum := freeOf(t, m)[cpu] + usedOf(m, "rome")["default"][cpu]
	m.setPod(aPod("three", "n", "1", "1", mine("shop-rome", "rome", "default")))
	if got := freeOf(t, m)[cpu] + usedOf(m, "rome")["default"][cpu]; got != sum {
		t.Errorf("a pod that is bound changes the sum from %d to %d", sum, got)
	}
	m.dropPod("three")
	// A consumer takes 1500m off what it is offered, wherever its pods are.
	own := int64(1500)
	for reason, change := range map[string]func(*corev1.Node){
		"cordoned":  func(n *corev1.Node) { n.Spec.Unschedulable = true },
		"not ready": func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown },
		"tainted": func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoExecute}}
		},
	} {
		m.setNode(aNode("o", size, change))
		expect("a node is "+reason, map[string]amounts{"default": {cpu: 1500, memory: 15, pods: 2}, "batch": {cpu: 1000, memory: 5, pods: 1}})
		if free := freeOf(t, m)[cpu]; free+usedOf(m, "rome")["default"][cpu]-own != free || free != 3000 {
			t.Errorf("a node is %s: %d is free, and the consumer counts %d", reason, free, free+usedOf(m, "rome")["default"][cpu]-own)
		}
	}
	m.dropNode("o")
	expect("a node is gone, and its pods are not", map[string]amounts{"default": {cpu: 1500, memory: 15, pods: 2}, "batch": {cpu: 1000, memory: 5, pods: 1}})
	heard := 0
	m.Notify(func(string) { heard++ })
	m.dropPod("batch")
	if m.dropPod("two"); heard != 2 {
		t.Errorf("pods of a node that is gone go: heard %d times", heard)
	}
	expect("they went", map[string]amounts{"default": {cpu: 1000, memory: 10, pods: 1}})
	free := freeOf(t, m)[cpu]
	m.setPod(aPod("onward", "oslo", "2", "3", mine("shop-rome", "rome", "default")))
	m.setNode(aNode("oslo", size, func(n *corev1.Node) { n.Labels = map[string]string{v1alpha1.LabelType: v1alpha1.TypeVirtualNode} }))
	expect("one that went onward", map[string]amounts{"default": {cpu: 3000, memory: 13, pods: 2}})
	if got := freeOf(t, m)[cpu]; got != free || heard != 3 {
		t.Errorf("what is free here is %d, want %d; heard %d times", got, free, heard)
	}
	m.setPod(aPod("own", "oslo", "2", "3"))
	if m.dropPod("onward"); heard != 4 {
		t.Errorf("one that comes back, and another: heard %d times", heard)
	}
	expect("it came back", map[string]amounts{"default": {cpu: 1000, memory: 10, pods: 1}})
	m.setPod(aPod("early", "n", "1", "10", mine("shop-rome", "rome", "batch")))
	expect("another label", map[string]amounts{"batch": {cpu: 1000, memory: 10, pods: 1}})
	m.dropPod("early")
	expect("gone", map[string]amounts{})
	if len(m.nodes["n"].claims) != 0 {
		t.Error("claims are kept")
	}
}

// Listeners hear of what matters, and of nothing else.
func TestMonitorNotifies(t *testing.T) {
	m := newMonitor()
	heard := 0
	m.Notify(func(id string) {
		if id != "" {
			t.Errorf("notified of consumer %q, want everyone", id)
		}
		heard++
	})
	node := aNode("n", list(cpu, "4", memory, "10", pods, "10"))
	pod := aPod("p", "n", "1", "1")
	expect := func(reason string, want int, change func()) {
		heard = 0
		change()
		if heard != want {
			t.Errorf("%s: notified %d times, want %d", reason, heard, want)
		}
	}
	expect("before all was seen", 0, func() { m.setNode(node) })
	expect("when all was seen", 1, m.start)
	expect("the same node", 0, func() { m.setNode(node) })
	expect("a pod", 1, func() { m.setPod(pod) })
	expect("the same pod", 0, func() { m.setPod(pod) })
	expect("a pod on a node that does not count", 0, func() { m.setPod(aPod("q", "other", "1", "1")) })
	expect("a pod that goes", 1, func() { m.dropPod("p") })
	expect("a node that goes", 1, func() { m.dropNode("n") })
}

func TestClasses(t *testing.T) {
	m := newMonitor()
	m.start()
	service := func(uid, class string, address bool) *corev1.Service {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
		if class != "" {
			s.Spec.LoadBalancerClass = &class
		}
		if address {
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
		}
		return s
	}
	c := &m.classes
	m.alter(func() bool {
		c.setStorage(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "slow"}})
		c.setStorage(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "ssd", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}}})
		c.setIngress(&networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: "web"}})
		c.setService(service("1", "", true))
		c.setService(service("2", "example.com/lb", true))
		c.setService(service("3", "example.com/lb", true))
		c.setService(service("4", "example.com/waiting", false))
		return true
	})
	r, err := m.Read(context.Background(), Consumer{})
	if err != nil {
		t.Fatal(err)
	}
	want := [][]v1alpha1.ClassOffer{
		{{Name: "ssd", Default: true}, {Name: "slow"}}, {{Name: "web"}}, {{Name: "default", Default: true}, {Name: "example.com/lb"}},
	}
	if diff := cmp.Diff(want, [][]v1alpha1.ClassOffer{r.StorageClasses, r.IngressClasses, r.LoadBalancerClasses}); diff != "" {
		t.Errorf("classes (-want +got)\n%s", diff)
	}
	if c.dropService("2") || !c.dropService("3") || c.dropService("3") {
		t.Error("a class goes with the last Service that uses it, and not before")
	}
	if c.setService(service("1", "", true)) {
		t.Error("the same Service again is a change")
	}
}

// The sums are those of a count from the beginning, whatever came before.
func TestMonitorAgainstCount(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	m := newMonitor()
	m.start()
	nodes, podsThere := map[string]*corev1.Node{}, map[string]*corev1.Pod{}
	for range 4000 {
		name, uid := fmt.Sprintf("n%d", r.IntN(6)), fmt.Sprintf("p%d", r.IntN(40))
		switch r.IntN(6) {
		case 0:
			nodes[name] = aNode(name, list(cpu, fmt.Sprint(r.IntN(8)), memory, fmt.Sprint(r.IntN(100)), pods, fmt.Sprint(r.IntN(8))),
				func(n *corev1.Node) { n.Spec.Unschedulable = r.IntN(4) == 0 })
			m.setNode(nodes[name])
		case 1:
			if r.IntN(4) == 0 {
				delete(nodes, name)
				m.dropNode(name)
			}
		case 2:
			delete(podsThere, uid)
			m.dropPod(types.UID(uid))
		default:
			podsThere[uid] = aPod(uid, name, fmt.Sprintf("%dm", r.IntN(2000)), fmt.Sprint(r.IntN(30)))
			if r.IntN(200) == 0 {
				podsThere[uid].Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = resource.MustParse("9E")
			}
			m.setPod(podsThere[uid])
		}
		want := amounts{cpu: 0, memory: 0, pods: 0}
		for _, n := range nodes {
			if !accepts(n) {
				continue
			}
			used := amounts{}
			for _, p := range podsThere {
				if p.Spec.NodeName == n.Name {
					used.add(requests(p), 1)
				}
			}
			want.add(amountsOfCore(n.Status.Allocatable).minus(used), 1)
		}
		if diff := cmp.Diff(want, freeOf(t, m)); diff != "" {
			t.Fatalf("(-want +got)\n%s", diff)
		}
	}
}

func large(nodes, each int) *monitor {
	m := newMonitor()
	for i := range nodes {
		name := fmt.Sprintf("n%d", i)
		m.setNode(aNode(name, list(cpu, "64", memory, "256Gi", pods, "110", storage, "1Ti")))
		for j := range each {
			m.setPod(aPod(fmt.Sprintf("p%d-%d", i, j), name, fmt.Sprintf("%dm", 100+(i*7+j*13)%900), fmt.Sprintf("%dMi", 64+(i*31+j*17)%2000)))
		}
	}
	m.start()
	return m
}

// One change of a pod among 30,000 on 1,000 nodes.
func BenchmarkPodEvent(b *testing.B) {
	m := large(1000, 30)
	a, z := aPod("x", "n500", "1", "1Gi"), aPod("x", "n500", "2", "1Gi")
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%2 == 0 {
			m.setPod(a)
		} else {
			m.setPod(z)
		}
	}
}

// One look at all shapes after a change, at most once a second.
func BenchmarkRead(b *testing.B) {
	m := large(1000, 30)
	b.ReportAllocs()
	for b.Loop() {
		m.alter(func() bool { return true })
		freeOf(b, m)
	}
}
