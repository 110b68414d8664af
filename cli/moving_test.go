package cli

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestUnpeerSaysWhatMoves holds that who ends a peering is told whose pods that moves.
func TestUnpeerSaysWhatMoves(t *testing.T) {
	s := newStage(t, 0)
	s.space("moving-shop", nil)
	s.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "moving-shop", Name: "default"}})
	node := virtualNode("turin", "turin", corev1.ConditionTrue)
	other := virtualNode("oslo", "oslo", corev1.ConditionTrue)
	s.create(&node, &other)
	for name, at := range map[string]string{"a": "turin", "b": "turin", "c": "oslo"} {
		pod := podOn("moving-shop", name, at)
		pod.Spec.Containers[0].Name, pod.Spec.Containers[0].Image = "c", "c"
		if name == "a" {
			yes := true
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: id1, Controller: &yes}}
		}
		s.create(&pod)
	}
	tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "turin"}, Spec: v1alpha1.TenantSpec{ClusterID: id1, PeeringUID: id1}}
	s.create(tenant, &v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: "turin"}, Spec: v1alpha1.PeeringSpec{ClusterID: id1,
		Consume: &v1alpha1.Consume{AuthURL: "https://turin:1", CASHA256: hash}, Provide: &v1alpha1.Provide{Tenant: "turin"}}})
	tenant.Status.Used = v1alpha1.ResourceList{"pods": resource.MustParse("1")}
	if err := s.c.Status().Update(t.Context(), tenant); err != nil {
		t.Fatal(err)
	}
	s.realNode("moving-home", "1")
	if got := s.run("unpeer", "turin", "--dry-run"); got.code != 0 || got.out != "Peering turin would be removed; nothing was changed.\n" || !strings.Contains(got.err, "1 pod of this cluster is bound to turin and will move.") {
		t.Errorf("with --dry-run: %+v", got)
	}
	if p := (&v1alpha1.Peering{}); s.c.Get(t.Context(), client.ObjectKey{Name: "turin"}, p) != nil || !p.DeletionTimestamp.IsZero() {
		t.Errorf("--dry-run has removed the peering")
	}
	got := s.run("unpeer", "turin")
	if said, done := strings.Index(got.err, "They request 500m cpu, one of them at most 500m cpu; free on the nodes of this cluster is 1 cpu, on one of them at most 1 cpu: there should be room for all."), strings.Index(got.err, "Removing peering"); said < 0 || done < said {
		t.Errorf("it does not say before whether there is room: %+v", got)
	}
	if got.code != 0 || !strings.Contains(got.err, "1 pod of this cluster is bound to turin and will move.") ||
		!strings.Contains(got.err, "1 pod of this cluster is bound to turin and will be lost: no controller makes it again.") || !strings.Contains(got.err, "1 pod of turin runs here and will end.") {
		t.Errorf("%+v", got)
	}
}

// realNode is one of this cluster's own that is ready.
func (s *stage) realNode(name, cpu string) {
	s.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	s.create(node)
	node.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse("1Gi"), "pods": resource.MustParse("10")}
	node.Status.Capacity = node.Status.Allocatable
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if err := s.c.Status().Update(s.t.Context(), node); err != nil {
		s.t.Fatal(err)
	}
	node.Spec.Taints = nil // admission takes every new node for one that is not ready yet
	if err := s.c.Update(s.t.Context(), node); err != nil {
		s.t.Fatal(err)
	}
}

// TestUnoffloadSaysWhatMoves holds that who brings pods home is told before whether they find
// room there.
func TestUnoffloadSaysWhatMoves(t *testing.T) {
	s := newStage(t, 0)
	s.install("rome", id2)
	const name = "homing-shop"
	s.space(name, nil)
	s.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "default"}})
	s.realNode("homing-home", "1500m")
	node := virtualNode("bari", "bari", corev1.ConditionTrue)
	s.create(&node, &v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: v1alpha1.OffloadingName}})
	yes := true
	for pod, at := range map[string]string{"a": "bari", "b": "bari", "c": "bari", "home": "homing-home", "bare": "bari"} {
		p := podOn(name, pod, at)
		p.Spec.Containers[0].Name, p.Spec.Containers[0].Image = "c", "c"
		if pod != "bare" {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: id1, Controller: &yes}}
		}
		s.create(&p)
	}
	if got := s.run("unoffload", "ns", name, "--dry-run"); got.code != 0 || !strings.Contains(got.err, "1 pod of namespace homing-shop is at other clusters and will be lost") || s.offloading(name) == nil {
		t.Errorf("with --dry-run: %+v", got)
	}
	got := s.run("unoffload", "namespace", name)
	want := "3 pods of namespace homing-shop are at other clusters and come home.\n" +
		"They request 1500m cpu, one of them at most 500m cpu; free on the nodes of this cluster is 1 cpu, on one of them at most 1 cpu: there is room for 2 of 3; the others may stay Pending.\n" +
		"1 pod of namespace homing-shop is at other clusters and will be lost: no controller makes it again.\n"
	if got.code != 0 || !strings.HasPrefix(got.err, want) || s.offloading(name) != nil {
		t.Errorf("%+v, want %q", got, want)
	}
}

// TestStatusOfOffloading reads what concerns offloading from a server.
func TestStatusOfOffloading(t *testing.T) {
	s := newStage(t, 0)
	s.install("rome", id2)
	s.space("seen-shop", nil)
	s.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "seen-shop", Name: "default"}})
	s.genoa()
	pod := podOn("seen-shop", "a", "genoa")
	pod.Spec.Containers[0].Name, pod.Spec.Containers[0].Image = "c", "c"
	s.create(&pod, &v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "seen-shop", Name: v1alpha1.OffloadingName}})
	got := s.run("status")
	for _, want := range []string{"namespace seen-shop: nobody has looked at it yet", "genoa         genoa    yes    500m/8  0/16Gi  1/110", "seen-shop  LocalAndRemote  -      -         1     1     0"} {
		if got.code != 0 || !strings.Contains(got.out, want) {
			t.Errorf("it lacks %q: %+v", want, got)
		}
	}
	got = s.run("status", "-o", "json")
	for _, want := range []string{`"virtualNodes": [`, `"namespace": "seen-shop"`, `"offloadedPods": 1`} {
		if !strings.Contains(got.out, want) {
			t.Errorf("it lacks %q: %s", want, got.out)
		}
	}
}
