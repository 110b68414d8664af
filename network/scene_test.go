package network

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/network/policy"
)

// shown are the namespaces and pods that a cache has, and how often lists of it were read.
type shown struct {
	client.Client
	spaces []corev1.Namespace
	pods   []corev1.Pod
	lists  int
}

func (s *shown) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	for i := range s.spaces {
		if of, ok := o.(*corev1.Namespace); ok && s.spaces[i].Name == key.Name {
			s.spaces[i].DeepCopyInto(of)
			return nil
		}
	}
	return apierrors.NewNotFound(corev1.Resource("namespaces"), key.Name)
}

func (s *shown) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	s.lists++
	switch list := list.(type) {
	case *corev1.NamespaceList:
		list.Items = s.spaces
	case *corev1.NodeList:
		list.Items = []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}
	case *corev1.PodList:
		list.Items = s.pods
	}
	return nil
}

// TestScoped holds that a pod has those namespaces looked at whose policies may be about it, and no others: there
// may be many, and pods come and go all the time.
func TestScoped(t *testing.T) {
	cache := &shown{spaces: []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "batch", Labels: map[string]string{"team": "a"}}}}}
	r := &ruler{client: cache, looked: map[types.NamespacedName]time.Time{}, bound: map[types.NamespacedName]policy.Scope{}}
	bind := func(namespace string, peer networkingv1.NetworkPolicyPeer) {
		for _, peering := range []string{"milan", "oslo"} {
			r.bind(types.NamespacedName{Namespace: namespace, Name: peering}, policy.ScopeOf(namespace, []networkingv1.NetworkPolicy{{Spec: networkingv1.NetworkPolicySpec{
				Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{peer}}},
			}}}))
		}
	}
	team := func(of string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"team": of}}
	}
	web := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	for i := range 200 {
		bind(fmt.Sprint("space", i), networkingv1.NetworkPolicyPeer{PodSelector: web})
	}
	pod := func(namespace, app string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p", Labels: map[string]string{"app": app}}}
	}
	asked := func(p *corev1.Pod) (all []string) {
		for _, q := range r.scoped(t.Context(), p) {
			all = append(all, q.Namespace+" "+q.Name)
		}
		slices.Sort(all)
		return all
	}
	if got := asked(pod("batch", "web")); len(got) != 0 {
		t.Errorf("a pod that is nobody's peer has %d namespaces looked at", len(got))
	}
	bind("named", networkingv1.NetworkPolicyPeer{NamespaceSelector: team("a"), PodSelector: web})
	bind("other", networkingv1.NetworkPolicyPeer{NamespaceSelector: team("b")})
	if got := asked(pod("batch", "web")); !slices.Equal(got, []string{"named milan", "named oslo"}) {
		t.Errorf("a peer has %v looked at", got)
	}
	if got := asked(pod("batch", "db")); len(got) != 0 {
		t.Errorf("a pod with other labels has %v looked at", got)
	}
	if got := asked(pod("space7", "db")); len(got) != 404 {
		t.Errorf("a pod of a namespace whose labels are not known has %d looked at, want all", len(got))
	}
	cache.spaces = append(cache.spaces, corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "space7"}})
	if got := asked(pod("space7", "db")); !slices.Equal(got, []string{"space7 milan", "space7 oslo"}) {
		t.Errorf("a pod of a namespace with policies has %v looked at", got)
	}
	r.unbind(types.NamespacedName{Namespace: "space7", Name: "milan"})
	if got := asked(pod("space7", "db")); !slices.Equal(got, []string{"space7 oslo"}) {
		t.Errorf("a namespace without policies any more is looked at: %v", got)
	}
}

// TestScenes holds that what all namespaces' rules follow from is read once for all of them, and again when a
// change was told of.
func TestScenes(t *testing.T) {
	cache := &shown{pods: []corev1.Pod{{Spec: corev1.PodSpec{NodeName: "a"}}}}
	r := &ruler{client: cache, bound: map[types.NamespacedName]policy.Scope{}, scenes: scenes{shared: true}}
	look := func(reason string, reads, pods int) {
		t.Helper()
		before := cache.lists
		for range 3 {
			if s, err := r.scenes.now(t.Context(), cache); err != nil || len(s.pods[""]) != pods {
				t.Fatalf("%s: there are %v, %v", reason, s, err)
			}
		}
		if got := (cache.lists - before) / 3; got != reads {
			t.Errorf("%s: it is read %d times, want %d", reason, got, reads)
		}
	}
	look("at first", 1, 1)
	look("nothing has changed", 0, 1)
	cache.pods = append(cache.pods, cache.pods[0])
	r.scoped(t.Context(), &cache.pods[1])
	look("another pod", 1, 2)
	r.guarded(t.Context(), &corev1.Node{})
	look("another node", 1, 2)
	r.unbind(types.NamespacedName{})
	look("nobody had policies", 1, 2)
	r.scenes.shared = false
	look("nothing is told", 3, 2)
}
