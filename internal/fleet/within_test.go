package fleet

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// withoutSpec is a Trim.
func withoutSpec(u *unstructured.Unstructured) { delete(u.Object, "spec") }

// TestWatchWithin holds that a kind has the bounds that were given for it, whoever
// watches it as well, and that others keep theirs.
func TestWatchWithin(t *testing.T) {
	f := New(Options{Scheme: scheme()})
	if err := f.WatchWithin(&v1alpha1.ShadowPod{}, Bounds{Objects: 5, Pace: Pace{Rate: 500, Burst: 1000}}); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []client.Object{&v1alpha1.ShadowPod{}, &v1alpha1.ResourceOffer{}} {
		if err := f.Watch(kind); err != nil {
			t.Fatal(err)
		}
	}
	s, err := newSession(Connection{ServerURL: "https://192.0.2.1:1", Token: "x", TenantNamespace: "ns"}, f.kinds, &f.options)
	if err != nil {
		t.Fatal(err)
	}
	own := s.reader.mirrors[v1alpha1.GroupVersion.WithKind("ShadowPod")]
	if own.fits(5, maxKept) != nil || !errors.Is(own.fits(6, 0), ErrTooLarge) || !errors.Is(own.fits(1, maxKept+1), ErrTooLarge) {
		t.Error("the kind's own bounds do not hold")
	}
	other := s.reader.mirrors[v1alpha1.GroupVersion.WithKind("ResourceOffer")]
	if other.fits(maxObjects, maxKept) != nil || !errors.Is(other.fits(maxObjects+1, 0), ErrTooLarge) {
		t.Error("another kind's bounds are not the usual ones")
	}
	queue := newQueue(t)
	src := f.Source(&v1alpha1.ShadowPod{}, func(name string, obj client.Object) []reconcile.Request {
		return []reconcile.Request{request(name, obj.GetName())}
	})
	if err := src.Start(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ShadowPod"))
	for i := range 1000 {
		u.SetName(fmt.Sprint(i))
		f.publish(peering, u)
	}
	if queue.Len() != 1000 {
		t.Errorf("%d of 1000 changes are due at once, want all of the burst", queue.Len())
	}
}

// TestStatePace holds that a change of state wakes as many at once as the pace allows.
func TestStatePace(t *testing.T) {
	for _, c := range []struct {
		reason string
		pace   Pace
		want   int
	}{{"as usual", Pace{}, paceBurst}, {"a pace of its own", Pace{Rate: 1, Burst: 5000}, 5000}} {
		f := New(Options{Scheme: scheme()})
		queue := newQueue(t)
		src := f.StateSourceAt(c.pace, func(string) (all []reconcile.Request) {
			for i := range 5000 {
				all = append(all, request("ns", fmt.Sprint(i)))
			}
			return all
		})
		if err := src.Start(t.Context(), queue); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		f.publishState(peering)
		got := queue.Len()
		if most := c.want + int(paceRate*time.Since(began).Seconds()) + 1; got < c.want || got > most {
			t.Errorf("%s: %d of 5000 are due at once, want %d to %d", c.reason, got, c.want, most)
		}
	}
}

// TestTrim holds that what is trimmed is neither kept nor weighed, in lists and events.
func TestTrim(t *testing.T) {
	s, m := hostile(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"metadata":{"resourceVersion":"1"},"items":[{"metadata":{"namespace":"ns","name":"a"},"spec":%q}]}`, strings.Repeat("x", 1<<20))
	})
	m.bounds.Trim = withoutSpec
	if err := s.list(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	big := strings.Replace(event("ADDED", "ns", "b", "2"), `"metadata":{`, `"spec":"`+strings.Repeat("x", 1<<20)+`","metadata":{`, 1)
	if err := s.events(t.Context(), strings.NewReader(big), m); !quietEnd(err) {
		t.Fatal(err)
	}
	if m.get("a") == nil || m.get("b") == nil || m.kept > 4096 {
		t.Errorf("%d objects weigh %d bytes", len(m.all()), m.kept)
	}
	for name, u := range m.all() {
		if _, has := u.Object["spec"]; has {
			t.Errorf("%s still has what was trimmed", name)
		}
	}
}

// TestLargeObjects holds that honest large objects are listed on smaller pages, and
// that there is an end to that.
func TestLargeObjects(t *testing.T) {
	serve := func(all, size int, calls *atomic.Int64) http.HandlerFunc {
		text := strings.Repeat("x", size)
		return func(w http.ResponseWriter, r *http.Request) {
			calls.Add(1)
			limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
			from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
			var items []string
			for i := from; i < min(from+limit, all); i++ {
				items = append(items, fmt.Sprintf(`{"metadata":{"namespace":"ns","name":"a%d"},"spec":"%s"}`, i, text))
			}
			next := ""
			if from+limit < all {
				next = strconv.Itoa(from + limit)
			}
			fmt.Fprintf(w, `{"metadata":{"resourceVersion":"1","continue":%q},"items":[%s]}`, next, strings.Join(items, ","))
		}
	}
	for _, c := range []struct {
		reason    string
		all, size int
		err       bool
	}{{"256 KiB each", 40, 256 << 10, false}, {"one is more than an answer may be", 2, maxAnswer, true}} {
		var calls atomic.Int64
		s, m := hostile(t, serve(c.all, c.size, &calls))
		m.bounds = Bounds{Objects: 10_000, Trim: withoutSpec} // as little as is kept of them
		err := s.list(t.Context(), m)
		if errors.Is(err, ErrTooLarge) != c.err || !c.err && (err != nil || len(m.all()) != c.all) || calls.Load() > 20 {
			t.Errorf("%s: %d objects after %d calls, %v", c.reason, len(m.all()), calls.Load(), err)
		}
	}
}

// crowd is a reader of so many objects.
func crowd(n int) reader {
	gvk := v1alpha1.GroupVersion.WithKind("ShadowPod")
	m := &mirror{watched: watched{gvk: gvk}, namespace: "ns", objects: map[string]*unstructured.Unstructured{}, synced: true}
	for i := range n {
		u := &unstructured.Unstructured{Object: map[string]any{}}
		u.SetNamespace("ns")
		u.SetName(fmt.Sprint(i))
		m.objects[u.GetName()] = u
	}
	return reader{mirrors: map[schema.GroupVersionKind]*mirror{gvk: m}, scheme: scheme()}
}

// TestGetIsConstant holds that reading one object does not touch the others.
func TestGetIsConstant(t *testing.T) {
	cost := func(n int) float64 {
		r := crowd(n)
		return testing.AllocsPerRun(100, func() {
			if err := r.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "7"}, &v1alpha1.ShadowPod{}); err != nil {
				t.Fatal(err)
			}
		})
	}
	if few, many := cost(10), cost(10_000); many > few+2 {
		t.Errorf("reading one of 10 takes %v allocations, one of 10000 %v", few, many)
	}
}

func BenchmarkGet(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		r := crowd(n)
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			for b.Loop() {
				if err := r.Get(b.Context(), client.ObjectKey{Name: "7"}, &v1alpha1.ShadowPod{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestListTime holds that more objects get more time, and that pages are bounded.
func TestListTime(t *testing.T) {
	if got := (Bounds{}).listTime(); got != listTimeout {
		t.Errorf("a usual kind has %s for a list", got)
	}
	if got := (Bounds{Objects: 10_000}).listTime(); got != 5*listTimeout || got > 5*time.Minute {
		t.Errorf("10000 objects have %s for a list", got)
	}
	if got := (Bounds{}).pages(pageSize); got != maxPages {
		t.Errorf("a usual list has %d pages", got)
	}
}
