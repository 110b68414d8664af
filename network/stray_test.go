package network

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// runningPod is one of the namespace shop on the node real, with addresses.
func runningPod(name, ips string, changes ...func(*corev1.Pod)) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.PodSpec{NodeName: "real"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	for _, ip := range strings.Fields(ips) {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
		p.Status.PodIP = p.Status.PodIPs[0].IP
	}
	for _, change := range changes {
		change(&p)
	}
	return p
}

func onNode(name string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.NodeName = name } }

// TestStrays finds pods that peers are told nothing of.
func TestStrays(t *testing.T) {
	nodes := map[string]*corev1.Node{"real": {}}
	ranges := prefixes([]string{"10.42.0.0/16"})
	fine := []corev1.Pod{runningPod("a", "10.42.1.1"), runningPod("b", "192.0.2.1", func(p *corev1.Pod) { p.Spec.HostNetwork = true }),
		runningPod("c", "192.0.2.1", onNode("milan")), runningPod("d", "192.0.2.1", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
		runningPod("e", ""), runningPod("f", "10.42.1.2 fd00::1")}
	if s := findStrays(fine, nodes, ranges); s.text != "" || s.around != nil {
		t.Errorf("found %+v", s)
	}
	s := findStrays(append(fine, runningPod("z", "192.168.3.4"), runningPod("y", "192.168.3.9"), runningPod("x", "fd00:1:2:3:4::1")), nodes, ranges)
	if !strings.Contains(s.text, "shop/x with fd00:1:2:3:4::1") || !strings.Contains(s.text, "network.pods") {
		t.Errorf("told: %s", s.text)
	}
	if d := cmp.Diff([]string{"192.168.3.0/24", "fd00:1:2:3::/64"}, texts(s.around)); d != "" {
		t.Errorf("left to them (-want +got):\n%s", d)
	}
	if s = findStrays(fine, nodes, append(ranges, prefixes([]string{"fd42::/48"})...)); !strings.Contains(s.text, "shop/f with fd00::1") || len(s.around) != 1 {
		t.Errorf("of a second address outside of ranges: %+v", s)
	}
}

// TestFindAstray finds pods with addresses of other nodes' ranges, of each family, unless agents know of them.
func TestFindAstray(t *testing.T) {
	node := func(cidrs ...string) *corev1.Node { return &corev1.Node{Spec: corev1.NodeSpec{PodCIDRs: cidrs}} }
	nodes := map[string]*corev1.Node{"real": node("10.42.1.0/24", "fd42:0:0:1::/64"), "other": node("10.42.2.0/24", "fd42:0:0:2::/64"), "bare": {}}
	f := &facts{pairs: []*pair{
		{consumes: true, spaces: map[string]bool{"travels": true}}, {spaces: map[string]bool{"shop": true}}, // of a tenant's
	}}
	in := func(namespace string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Namespace = namespace } }
	labels := func(keys ...string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Labels = map[string]string{}
			for _, k := range keys {
				p.Labels[k] = "x"
			}
		}
	}
	for _, c := range []struct {
		reason string
		pod    corev1.Pod
		want   string
	}{
		{"in its node's range", runningPod("a", "10.42.1.5 fd42:0:0:1::5"), ""},
		{"in nobody's", runningPod("a", "10.42.7.5 fd42:0:0:7::5"), ""},
		{"in another node's", runningPod("a", "10.42.2.5 fd42:0:0:1::5"), "pods here, as shop/a with 10.42.2.5, have"},
		{"of IPv6", runningPod("a", "10.42.1.5 fd42:0:0:2::5"), "shop/a with fd42:0:0:2::5"},
		{"both", runningPod("a", "10.42.2.5 fd42:0:0:2::5"), "(2 of them)"},
		{"on a node without ranges", runningPod("a", "10.42.2.5", onNode("bare")), "shop/a"},
		{"on a virtual node", runningPod("a", "10.42.2.5", onNode("milan")), ""},
		{"of a namespace that travels, whose pods agents follow", runningPod("a", "10.42.2.5", in("travels")), ""},
		{"here for a tenant", runningPod("a", "10.42.2.5", labels(v1alpha1.LabelTenant, v1alpha1.LabelHomeUID)), ""},
		{"with one label of it", runningPod("a", "10.42.2.5", labels(v1alpha1.LabelTenant)), "shop/a"},
	} {
		got := findAstray([]corev1.Pod{c.pod}, nodes, f.followed)
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: told %q, want %q", c.reason, got, c.want)
		}
	}
	if got := findAstray([]corev1.Pod{runningPod("a", "10.42.2.5")}, map[string]*corev1.Node{"real": {}, "bare": {}}, f.followed); got != "" {
		t.Errorf("where no node says its range: %s", got)
	}
}

// TestAstrayIsTold: the Peering says of such a pod, until its namespace may run at the provider.
func TestAstrayIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.settle()
	said := func() string {
		w.clock.Step(lookEvery)
		for i, node := range w.rome.nodes {
			w.rome.report(node, map[string]v1alpha1.TunnelReport{w.rome.key(): {Alive: i == 0}})
		}
		w.settle()
		return w.rome.networkReady()
	}
	space := w.rome.name + "-shop"
	w.space(space, nil)
	w.create(&corev1.ServiceAccount{ObjectMeta: at(space, "default")})
	p := w.create(&corev1.Pod{ObjectMeta: at(space, w.rome.nodes[1]), // rome sees no others
		Spec: corev1.PodSpec{NodeName: w.rome.nodes[1], Containers: []corev1.Container{{Name: "c", Image: "i"}}}}).(*corev1.Pod)
	p.Status.Phase, p.Status.PodIP, p.Status.PodIPs = corev1.PodRunning, "10.42.0.9", []corev1.PodIP{{IP: "10.42.0.9"}}
	w.status(p)
	if got := said(); !strings.HasPrefix(got, "True/Ready: pods here, as "+space) {
		t.Errorf("with a pod in another node's range: %s", got)
	}
	w.create(&v1alpha1.NamespaceMap{ObjectMeta: at(w.rome.sees[0], v1alpha1.NamespaceMapName),
		Spec: v1alpha1.NamespaceMapSpec{Namespaces: map[string]v1alpha1.NamespaceMapping{space: {Strategy: v1alpha1.MappingDefaultName}}}})
	if got := said(); got != "True/Ready: " {
		t.Errorf("its namespace is offloaded: %s", got)
	}
}
