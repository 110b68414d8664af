package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/bench/plot"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

const (
	fewItems, manyItems = 10, 100
	itemRounds          = 3
	itemLimit           = 5 * time.Minute
	// What the product promises, on 2 cores.
	growthMost       = 1.3 // time for each of many, of that for each of few
	oneNamespaceMost = 300 // milliseconds, p50
)

// TestNamespaces measures offloading one namespace to few and to many peers, namespaces
// one by one, few and many at once, and few and many virtual nodes that one offloaded
// namespace matches.
func TestNamespaces(t *testing.T) {
	chart := plot.Chart{Title: "milliseconds for each, p50"}
	t.Run("Peers", func(t *testing.T) { peers(t, &chart) }) // and they are gone before the rest begins
	c := hollowContinuum(t)
	t.Run("OneByOne", func(t *testing.T) {
		var took sample
		for i := range fewItems + 1 {
			if one := offloadNamespaces(t, c, fmt.Sprintf("one-%d", i), 1); i > 0 { // the first fills caches
				took = append(took, one)
			}
		}
		t.Logf("one namespace: %s", took)
		atMost(t, "one namespace offloaded, p50", float64(took.quantile(0.5).Milliseconds()), oneNamespaceMost, "ms")
	})
	for _, part := range []struct {
		name, what string
		take       func(t *testing.T, name string, n int) time.Duration
	}{
		{"Many", "namespaces", func(t *testing.T, name string, n int) time.Duration { return offloadNamespaces(t, c, name, n) }},
		{"VirtualNodes", "virtual nodes", func(t *testing.T, name string, n int) time.Duration { return matchNodes(t, c, name, n) }},
	} {
		t.Run(part.name, func(t *testing.T) {
			var few, many sample
			for i := range itemRounds {
				few = append(few, part.take(t, fmt.Sprintf("few-%d", i), fewItems))
				many = append(many, part.take(t, fmt.Sprintf("many-%d", i), manyItems))
			}
			t.Logf("%d %s: %s; %d: %s", fewItems, part.what, few, manyItems, many)
			each := func(s sample, n int) float64 { return s.quantile(0.5).Seconds() * 1000 / float64(n) }
			chart.Set(part.what, fmt.Sprint(fewItems), each(few, fewItems))
			chart.Set(part.what, fmt.Sprint(manyItems), each(many, manyItems))
			atMost(t, fmt.Sprintf("time for each of %d %s, of that for each of %d", manyItems, part.what, fewItems), each(many, manyItems)/each(few, fewItems), growthMost, "×")
		})
	}
	if len(chart.Groups) > 0 { // else they were filtered
		draw(t, "bench-namespaces", chart)
	}
}

// many calls do for n objects, many at a time.
func many(t *testing.T, n int, do func(ctx context.Context, i int) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), itemLimit)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	spread(group, n, func(i int) error { return do(ctx, i) })
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// offloadNamespaces offloads n namespaces that are there, and brings them home. It returns
// how long it took until all were Ready.
func offloadNamespaces(t *testing.T, c *kubetest.Continuum, prefix string, n int) time.Duration {
	t.Helper()
	rome := c.Clients["rome"]
	name := func(i int) string { return fmt.Sprintf("%s-%03d", prefix, i) }
	namespace := func(i int) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name(i)}}
	}
	offloading := func(i int) *v1alpha1.NamespaceOffloading {
		return &v1alpha1.NamespaceOffloading{
			ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.OffloadingName, Namespace: name(i)},
			Spec:       v1alpha1.NamespaceOffloadingSpec{NamespaceMappingStrategy: v1alpha1.MappingDefaultName, PodOffloadingStrategy: v1alpha1.PodsLocalAndRemote},
		}
	}
	many(t, n, func(ctx context.Context, i int) error { return rome.Create(ctx, namespace(i)) })
	ready := watchReady(t, rome, &v1alpha1.NamespaceOffloadingList{}, func(object client.Object) bool {
		o, ok := object.(*v1alpha1.NamespaceOffloading)
		return ok && o.Status.Phase == v1alpha1.OffloadingPhaseReady
	})
	begin := time.Now()
	many(t, n, func(ctx context.Context, i int) error { return rome.Create(ctx, offloading(i)) })
	took := ready(n).Sub(begin)
	many(t, n, func(ctx context.Context, i int) error { return rome.Delete(ctx, offloading(i)) })
	poll(t, 100*time.Millisecond, itemLimit, "the namespaces are home again", func() error {
		if err := none(t, c, "rome", &v1alpha1.NamespaceOffloadingList{}); err != nil {
			return err
		}
		return none(t, c, "milan", &corev1.NamespaceList{}, client.HasLabels{v1alpha1.LabelHomeNamespace})
	})
	many(t, n, func(ctx context.Context, i int) error { return rome.Delete(ctx, namespace(i)) })
	return took
}

// matchNodes asks for n virtual nodes, offloads a namespace that matches all of them, and
// withdraws both. It returns how long it took until the nodes were ready and then the
// namespace.
func matchNodes(t *testing.T, c *kubetest.Continuum, prefix string, n int) time.Duration {
	t.Helper()
	rome := c.Clients["rome"]
	request := func(i int) *v1alpha1.ResourceRequest {
		r := &v1alpha1.ResourceRequest{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%03d", prefix, i), Namespace: v1alpha1.PeeringNamespace("milan")}}
		r.Spec.Resources = v1alpha1.ResourceList{
			"cpu": resource.MustParse("100m"), "memory": resource.MustParse("64Mi"), "pods": resource.MustParse("2"),
		}
		return r
	}
	ready := watchReady(t, rome, &corev1.NodeList{}, func(object client.Object) bool {
		node, ok := object.(*corev1.Node)
		return ok && node.Labels[v1alpha1.LabelPeering] == "milan" && node.Labels[v1alpha1.LabelRequest] != v1alpha1.DefaultRequestName && nodeReady(node)
	})
	begin := time.Now()
	many(t, n, func(ctx context.Context, i int) error { return rome.Create(ctx, request(i)) })
	took := ready(n).Sub(begin) + offloadNamespaces(t, c, prefix, 1)
	many(t, n, func(ctx context.Context, i int) error { return rome.Delete(ctx, request(i)) })
	poll(t, 100*time.Millisecond, itemLimit, "the virtual nodes are gone", func() error {
		nodes := &corev1.NodeList{}
		if err := rome.List(t.Context(), nodes, client.MatchingLabels{v1alpha1.LabelPeering: "milan"}); err != nil {
			return err
		}
		if len(nodes.Items) != 1 {
			return fmt.Errorf("there are %d", len(nodes.Items))
		}
		return nil
	})
	return took
}

func nodeReady(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// watchReady watches objects from now on. What it returns waits until so many of them
// have been ready, and tells when the last one was.
func watchReady(t *testing.T, c client.WithWatch, list client.ObjectList, isReady func(client.Object) bool) func(n int) time.Time {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), itemLimit)
	t.Cleanup(cancel)
	changes := watchAll(ctx, t, c, list)
	return func(n int) time.Time {
		t.Helper()
		defer cancel()
		done := map[client.ObjectKey]bool{}
		for len(done) < n {
			e, open := <-changes
			if !open {
				t.Fatalf("%d of %d are ready after %s", len(done), n, itemLimit)
			}
			if object, ok := e.Object.(client.Object); ok && e.Type != watch.Deleted && isReady(object) {
				done[client.ObjectKeyFromObject(object)] = true
			}
		}
		return time.Now()
	}
}
