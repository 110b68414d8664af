package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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
	g := newGrowth()
	t.Run("Peers", func(t *testing.T) { peers(t, g) }) // and they are gone before the rest begins
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
			g.holds(t, part.what, few, many, fewItems, manyItems)
		})
	}
	if len(g.each.Groups) > 0 { // else they were filtered
		draw(t, "bench-namespaces", g.each, g.ratio)
	}
}

// growth draws what many of something take, each, beside few.
type growth struct{ each, ratio plot.Chart }

func newGrowth() *growth {
	return &growth{plot.Chart{Title: "milliseconds for each, p50"}, plot.Chart{Title: "time for each of many, of that for each of few"}}
}

// add notes how long few and many took, each.
func (g *growth) add(what string, few, many int, fewEach, manyEach time.Duration) (ratio float64) {
	ratio = manyEach.Seconds() / fewEach.Seconds()
	g.each.Set(what, fmt.Sprint(few), fewEach.Seconds()*1000)
	g.each.Set(what, fmt.Sprint(many), manyEach.Seconds()*1000)
	group := fmt.Sprintf("%s, %d of %d", what, many, few)
	g.ratio.Set(group, "measured", ratio)
	g.ratio.Set(group, "at most", growthMost)
	return ratio
}

// holds notes what rounds of few and of many took, and holds them against what is promised.
func (g *growth) holds(t *testing.T, what string, fewTook, manyTook sample, few, many int) {
	t.Helper()
	ratio := g.add(what, few, many, fewTook.quantile(0.5)/time.Duration(few), manyTook.quantile(0.5)/time.Duration(many))
	atMost(t, fmt.Sprintf("%s: time for each of %d, of that for each of %d", what, many, few), ratio, growthMost, "×")
}

func TestGrowth(t *testing.T) {
	g := newGrowth()
	if ratio := g.add("things", 10, 100, 20*time.Millisecond, 30*time.Millisecond); ratio != 1.5 {
		t.Errorf("many take %.2f times as long, want 1.5", ratio)
	}
	g.add("others", 10, 100, 40*time.Millisecond, 20*time.Millisecond)
	want := &growth{newGrowth().each, newGrowth().ratio}
	want.each.Groups, want.ratio.Groups = []string{"things", "others"}, []string{"things, 100 of 10", "others, 100 of 10"}
	want.each.Series = []plot.Series{{Name: "10", Values: []float64{20, 40}}, {Name: "100", Values: []float64{30, 20}}}
	want.ratio.Series = []plot.Series{{Name: "measured", Values: []float64{1.5, 0.5}}, {Name: "at most", Values: []float64{growthMost, growthMost}}}
	if diff := cmp.Diff(want, g, cmp.AllowUnexported(growth{})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
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
