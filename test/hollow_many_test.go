package test

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/internal/kubetest"
)

const (
	manyNodes, manyPods = 500, 10_000
	manyFile            = `profile: control-plane
clusters:
- name: rome
  hollow: 500
  hollowStart: 2s
`
	// manyLimit bounds what kube-scheduler, at 50 pods a second, needs for all.
	manyLimit = 15 * time.Minute
	// heldFor is how long a Lease of a node holds: kube-controller-manager's grace.
	heldFor = 50 * time.Second
)

// TestHollowMany holds that one small machine has 500 nodes and 10,000 pods: each starts, no
// sooner than it is said to, and has an address of its own, and no node is late with its
// Lease meanwhile, so that none is ever taken for lost.
func TestHollowMany(t *testing.T) {
	s := kubetest.Sandbox(t, kubetest.Options{Name: "many", File: sandboxFile(t, manyFile)})
	config := s.Config(t, "rome")
	config.QPS, config.Burst = -1, 0
	c, err := client.New(config, client.Options{Scheme: kubetest.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	nodes := func() map[string]time.Time { // since when each is ready
		t.Helper()
		var list corev1.NodeList
		if err := c.List(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
		ready := map[string]time.Time{}
		for _, n := range list.Items {
			for _, cond := range n.Status.Conditions {
				if cond.Type == corev1.NodeReady && cond.Status == corev1.ConditionTrue {
					ready[n.Name] = cond.LastTransitionTime.Time
				}
			}
		}
		return ready
	}
	eventually(t, patience, "all nodes are ready, and pods may be made", func() error {
		if n := len(nodes()); n != manyNodes {
			return fmt.Errorf("%d of %d nodes are ready", n, manyNodes)
		}
		return c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "default"}, &corev1.ServiceAccount{})
	})
	before, began := nodes(), time.Now()
	makePods(t, c)
	t.Logf("hollow: %d pods made in %.0f s", manyPods, time.Since(began).Seconds())
	oldest := time.Duration(0)
	eventually(t, manyLimit, "all pods run", func() error {
		oldest = max(oldest, oldestLease(t, c))
		var some corev1.PodList
		err := c.List(t.Context(), &some, client.Limit(1), client.InNamespace("default"), client.MatchingFieldsSelector{Selector: fields.OneTermNotEqualSelector("status.phase", string(corev1.PodRunning))})
		if err == nil && len(some.Items) > 0 {
			err = fmt.Errorf("%s is %s on %q", some.Items[0].Name, some.Items[0].Status.Phase, some.Items[0].Spec.NodeName)
		}
		return err
	})
	took := time.Since(began)
	t.Logf("hollow: %d pods run on %d nodes after %.0f s, %.0f a second; the oldest Lease was renewed %.0f s before", manyPods, manyNodes, took.Seconds(), manyPods/took.Seconds(), oldest.Seconds())
	t.Logf("hollow: memory of the cluster and its nodes: %.2f GB PSS", float64(statusOf(t, s).Clusters[0].MemoryPSS)/1e9)
	if oldest > heldFor {
		t.Errorf("a Lease was not renewed for %s, at most %s", oldest, heldFor)
	}
	for name, since := range nodes() {
		if !since.Equal(before[name]) {
			t.Errorf("node %s was not ready meanwhile: it is since %s, and was since %s", name, since, before[name])
		}
	}
	var list corev1.PodList
	if err := c.List(t.Context(), &list, client.InNamespace("default")); err != nil {
		t.Fatal(err)
	}
	addresses, early := map[netip.Addr]bool{}, 0
	for _, p := range list.Items {
		if a, err := netip.ParseAddr(p.Status.PodIP); err == nil {
			addresses[a] = true
		}
		if p.Status.StartTime == nil || p.Status.StartTime.Sub(p.CreationTimestamp.Time) < time.Second { // times of the API are whole seconds
			early++
		}
	}
	if len(list.Items) != manyPods || len(addresses) != manyPods || early > 0 {
		t.Errorf("%d pods with %d addresses, want %d; %d started too soon", len(list.Items), len(addresses), manyPods, early)
	}
}

// makePods makes all pods, several at a time.
func makePods(t *testing.T, c client.Client) {
	t.Helper()
	all, ctx := errgroup.WithContext(t.Context())
	all.SetLimit(16)
	for i := range manyPods {
		all.Go(func() error {
			return c.Create(ctx, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("many-%d", i)},
				Spec:       corev1.PodSpec{AutomountServiceAccountToken: new(false), Containers: []corev1.Container{{Name: "none", Image: "none"}}},
			})
		})
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
}

// oldestLease is how long ago the Lease of a node was renewed that has waited longest.
func oldestLease(t *testing.T, c client.Client) (oldest time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var list coordinationv1.LeaseList
	if err := c.List(ctx, &list, client.InNamespace(corev1.NamespaceNodeLease)); err != nil {
		t.Fatal(err)
	}
	for _, l := range list.Items {
		if l.Spec.RenewTime != nil {
			oldest = max(oldest, time.Since(l.Spec.RenewTime.Time))
		}
	}
	return oldest
}
