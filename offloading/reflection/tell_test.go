package reflection

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
)

// showing is the home of a world with a NamespaceMap of its own.
func (w *world) showing() {
	w.t.Helper()
	key := mapKey(w.name)
	w.namespace(key.Namespace, nil)
	w.create(&v1alpha1.NamespaceMap{ObjectMeta: objectMeta(key.Namespace, key.Name)})
}

// shown is what the NamespaceMap at home says, once whoever writes it has looked.
func (w *world) shown() []v1alpha1.ReflectedObject {
	w.t.Helper()
	w.clock.Step(showEvery)
	if _, err := w.shower.Reconcile(ctx, ctrl.Request{NamespacedName: mapKey(w.name)}); err != nil {
		w.t.Fatal(err)
	}
	return get(w, mapKey(w.name).Namespace, mapKey(w.name).Name, &v1alpha1.NamespaceMap{}).Status.Objects
}

// TestStaysVisible: what a provider refuses is told again while it does, and is to be seen at
// home until it does not, also by a process that has just begun.
func TestStaysVisible(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.showing()
	w.build(v1alpha1.FeatureOfKind(kindService))
	foreign := service(w.remote, "web")
	w.create(foreign)
	w.create(service(w.home, "web"))
	w.create(service(w.home, "well"))
	w.pod("web")
	for range 2 {
		w.as(kindService, "web")
		w.as(kindService, "well")
	}
	want := v1alpha1.ReflectedObject{Kind: kindService, Namespace: w.home, Name: "web", Refused: true, Reason: v1alpha1.ReasonNameTaken,
		Message: "the provider has a Service of this name that is not this cluster's; give yours another name"}
	if diff := cmp.Diff([]v1alpha1.ReflectedObject{want}, w.shown()); diff != "" || w.shows != 1 {
		t.Fatalf("asked for %d times: %s", w.shows, diff)
	}
	if n := w.told("another name"); n != 1 {
		t.Errorf("%d events", n)
	}
	for range 2 {
		w.clock.Step(tellEvery - time.Minute)
		if w.as(kindService, "web"); w.told("another name") != 0 {
			t.Error("told again too early")
		}
		w.clock.Step(time.Minute)
		w.as(kindService, "web")
		if w.as(kindService, "web"); w.told("another name") != 1 {
			t.Error("not told again, or too often")
		}
	}
	w.restart()
	if diff := cmp.Diff([]v1alpha1.ReflectedObject{want}, w.shown()); diff != "" {
		t.Errorf("a new process knows nothing yet, and says so: %s", diff)
	}
	if err := w.raw.Delete(ctx, foreign); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		w.clock.Step(lookEvery)
		w.as(kindService, "web")
	}
	if got := w.shown(); len(got) != 0 || w.answer("web") != "True/Ready" {
		t.Errorf("%s, and it is shown still: %+v", w.answer("web"), got)
	}
}

// TestAddressesComeHome: home learns where a load balancer is reached at the provider, soon and
// when that changes, and no more of what the provider says than addresses; its own status stays.
func TestAddressesComeHome(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.showing()
	w.build(v1alpha1.FeatureOfKind(kindService))
	w.terms(func(t *v1alpha1.TenantTerms) { t.Services = &v1alpha1.TenantServices{LoadBalancers: true} })
	s := service(w.home, "web")
	s.Spec.Type = corev1.ServiceTypeLoadBalancer
	w.create(s)
	w.pod("web")
	w.as(kindService, "web")
	for _, most := range []time.Duration{2 * soon, 4 * soon, 8 * soon} {
		if res := w.take("web"); res.RequeueAfter > most || res.RequeueAfter < most/2 {
			t.Errorf("without an address it is looked again after %s, want %s", res.RequeueAfter, most)
		}
	}
	reached := func(at ...string) []v1alpha1.ReflectedObject {
		t.Helper()
		made := get(w, w.remote, "web", &corev1.Service{})
		made.Status.LoadBalancer.Ingress = nil
		for _, host := range at {
			made.Status.LoadBalancer.Ingress = append(made.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{Hostname: host})
		}
		if err := w.raw.Status().Update(ctx, made); err != nil {
			t.Fatal(err)
		}
		if res := w.take("web"); len(at) > 0 && res.RequeueAfter < lookEvery/2 {
			t.Errorf("it has an address and is looked at again after %s", res.RequeueAfter)
		}
		w.send("web")
		return w.shown()
	}
	is := func(addresses ...string) []v1alpha1.ReflectedObject {
		return []v1alpha1.ReflectedObject{{Kind: kindService, Namespace: w.home, Name: "web", Addresses: addresses}}
	}
	if diff := cmp.Diff(is("a.example", "b.example"), reached("b.example", "a.example")); diff != "" || w.told("web is reached at "+w.name+" by a.example, b.example") != 1 {
		t.Errorf("not told once: %s", diff)
	}
	if diff := cmp.Diff(is("c.example"), reached("c.example")); diff != "" || w.told("") != 0 {
		t.Errorf("told again within a minute: %s", diff)
	}
	w.clock.Step(locateEvery)
	if w.send("web"); w.told("by c.example") != 1 {
		t.Error("a new address is not told")
	}
	w.clock.Step(locateEvery)
	if got := reached(); len(got) != 0 || w.told("has no address at "+w.name+" any more") != 1 {
		t.Errorf("it has none any more, and %+v", got)
	}
	there := w.shadow("web")
	there.Status.Addresses = nil
	for i := range 8 {
		there.Status.Addresses = append(there.Status.Addresses, fmt.Sprintf("127.0.0.%d", i), fmt.Sprintf("%d.%s.example", i, strings.Repeat("a", 60)))
	}
	if err := w.raw.Status().Update(ctx, there); err != nil {
		t.Fatal(err)
	}
	w.clock.Step(locateEvery)
	w.send("web")
	if got := w.shown(); len(got) != 1 || len(got[0].Addresses) == 0 || slices.ContainsFunc(got[0].Addresses, func(a string) bool { return strings.HasPrefix(a, "127") }) {
		t.Errorf("of a liar's words: %+v", got)
	}
	if home := get(w, w.home, "web", &corev1.Service{}); len(home.Status.LoadBalancer.Ingress) != 0 {
		t.Errorf("home's own status: %+v", home.Status)
	}
	w.terms(func(t *v1alpha1.TenantTerms) { t.Services = nil })
	w.clock.Step(locateEvery)
	if w.as(kindService, "web"); len(w.shadow("web").Status.Addresses) != 0 {
		t.Error("it is no load balancer any more, and has an address")
	}
}

// recorder takes down what events refer to beside their object.
type recorder struct{ related []string }

func (r *recorder) Eventf(_, related runtime.Object, _, _, _, _ string, _ ...any) {
	name := ""
	if to, ok := related.(*corev1.ObjectReference); ok {
		name = to.Name
	}
	r.related = append(r.related, related.GetObjectKind().GroupVersionKind().Kind+"/"+name)
}

// TestToldOfEach: what two providers say of one object are two events, not one repeated.
func TestToldOfEach(t *testing.T) {
	r := &recorder{}
	c := &consumer{events: r, budget: fleet.NewBudget()}
	f := &facts{now: time.Now(), found: present, home: &metav1.PartialObjectMetadata{}}
	for _, peering := range []string{"milan", "oslo"} {
		c.tell(peering, v1alpha1.HomeObject{Kind: kindService, Name: "web"}, f, verdict{told: "no"}, nil, &note{}, soon)
	}
	if diff := cmp.Diff([]string{"Peering/milan", "Peering/oslo"}, r.related); diff != "" {
		t.Error(diff)
	}
}

// TestTellsNewPods: when it is told again, a pod that was not told yet is, however many were.
func TestTellsNewPods(t *testing.T) {
	r, n := &recorder{}, &note{}
	c := &consumer{events: r, budget: fleet.NewBudget()}
	f := &facts{now: time.Now(), found: present}
	var pods []*corev1.Pod
	tell := func(more, want int) {
		t.Helper()
		for range more {
			pods = append(pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uuid.NewUUID()}})
		}
		r.related = nil
		if c.tell("milan", v1alpha1.HomeObject{Kind: kindService, Name: "web"}, f, verdict{told: "no"}, pods, n, soon); len(r.related) != want {
			t.Errorf("%d events, want %d", len(r.related), want)
		}
	}
	tell(mostAgain+2, mostAgain+2)
	f.now = f.now.Add(tellEvery)
	tell(1, mostAgain+1)
	tell(0, 0)
}

// TestShownGoes: what an earlier process has shown goes if this one does not find it.
func TestShownGoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.showing()
	m := get(w, mapKey(w.name).Namespace, mapKey(w.name).Name, &v1alpha1.NamespaceMap{})
	m.Status.Objects = []v1alpha1.ReflectedObject{{Kind: kindIngress, Namespace: w.home, Name: "gone", Refused: true}}
	if err := w.raw.Status().Update(ctx, m); err != nil {
		t.Fatal(err)
	}
	if got := w.shown(); len(got) != 1 {
		t.Errorf("at once: %+v", got)
	}
	w.clock.Step(learning)
	if got := w.shown(); len(got) != 0 {
		t.Errorf("when all is known: %+v", got)
	}
}

// TestShownStays: what an earlier process has shown stays while the provider is not reached, and
// until there was time to look at all after it is.
func TestShownStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.showing()
	m := get(w, mapKey(w.name).Namespace, mapKey(w.name).Name, &v1alpha1.NamespaceMap{})
	m.Status.Objects = []v1alpha1.ReflectedObject{{Kind: kindIngress, Namespace: w.home, Name: "web", Refused: true}}
	if err := w.raw.Status().Update(ctx, m); err != nil {
		t.Fatal(err)
	}
	w.restart()
	stays := func(when string, want int) {
		t.Helper()
		if got := w.shown(); len(got) != want {
			t.Errorf("%s: %+v", when, got)
		}
	}
	w.state.Reachable, w.state.Since = false, w.clock.Now()
	stays("at once", 1)
	w.clock.Step(2 * learning)
	stays("it is not reached", 1)
	w.gone = true
	stays("it is not connected to", 1)
	w.gone, w.state.Reachable, w.state.Since = false, true, w.clock.Now()
	stays("it has just answered", 1)
	w.clock.Step(learning)
	stays("when all is known", 0)
}

// TestListed: there is a bound, what is refused comes before what is not, and what is left out is counted.
func TestListed(t *testing.T) {
	known := map[v1alpha1.HomeObject]v1alpha1.ReflectedObject{}
	for i := range maxShown + 10 {
		home := v1alpha1.HomeObject{Kind: kindService, Namespace: "shop", Name: fmt.Sprintf("s%03d", i)}
		known[home] = v1alpha1.ReflectedObject{Kind: home.Kind, Namespace: home.Namespace, Name: home.Name, Reason: v1alpha1.ReasonFamilyMissing, Refused: i > maxShown}
	}
	known[v1alpha1.HomeObject{Kind: kindService, Namespace: "shop", Name: "well"}] = v1alpha1.ReflectedObject{}
	all, more := listed(known, nil, true)
	if len(all) != maxShown || more != 10 || all[0].Name != "s065" || all[8].Refused != true || all[9].Name != "s000" {
		t.Errorf("%d and %d more, beginning with %s", len(all), more, all[0].Name)
	}
	if again, _ := listed(known, all, false); !cmp.Equal(all, again) {
		t.Error("it says something else the second time")
	}
}

// TestListedInOrder: what several slices of one Service say comes in one order, so that nothing is
// written without a change.
func TestListedInOrder(t *testing.T) {
	known := map[v1alpha1.HomeObject]v1alpha1.ReflectedObject{}
	for i := range 20 {
		home := v1alpha1.HomeObject{Kind: kindSlice, Namespace: "shop", Name: fmt.Sprintf("web-%d", i)}
		known[home] = v1alpha1.ReflectedObject{Kind: kindService, Namespace: "shop", Name: "web", Reason: fmt.Sprint("Reason", i%2), Message: fmt.Sprint(i % 4)}
	}
	first, _ := listed(known, nil, true)
	if len(first) != 4 {
		t.Errorf("what is said twice is there twice: %+v", first)
	}
	for range 20 {
		if again, _ := listed(known, nil, true); !cmp.Equal(first, again) {
			t.Fatal(cmp.Diff(first, again))
		}
	}
}

// TestListedSmall: many objects with many long addresses take little.
func TestListedSmall(t *testing.T) {
	known := map[v1alpha1.HomeObject]v1alpha1.ReflectedObject{}
	for i := range maxShown {
		one := v1alpha1.ReflectedObject{Kind: kindService, Namespace: "shop", Name: fmt.Sprintf("s%03d", i)}
		for j := range 16 {
			one.Addresses = append(one.Addresses, fmt.Sprintf("%02d.", j)+strings.Repeat("a", 250))
		}
		known[v1alpha1.HomeObject{Kind: kindService, Namespace: "shop", Name: one.Name}] = one
	}
	all, _ := listed(known, nil, true)
	text, err := json.Marshal(all)
	if err != nil || len(all) != maxShown || len(text) > 100<<10 || !strings.HasPrefix(all[0].Addresses[3], "03.") {
		t.Errorf("%d objects take %d bytes, beginning with %+v: %v", len(all), len(text), all[:1], err)
	}
	if one := known[v1alpha1.HomeObject{Kind: kindService, Namespace: "shop", Name: "s000"}]; len(one.Addresses) != 16 {
		t.Errorf("of what is known %d addresses are left", len(one.Addresses))
	}
}
