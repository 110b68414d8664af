package reflection

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/offloading/content"
)

// letters are so many bytes, none like the others.
func letters(seed uint64, bytes int) string {
	all := make([]byte, bytes)
	r := rand.New(rand.NewPCG(seed, seed))
	for i := range all {
		all[i] = 'a' + byte(r.IntN(26))
	}
	return string(all)
}

// parts are the numbers of the ShadowObjects of an object that are there.
func (w *world) parts(name string) string {
	w.t.Helper()
	var all []string
	for i := range v1alpha1.MaxShadowObjectParts + 1 {
		if get(w, w.TenantNamespace(), v1alpha1.ShadowObjectPart(w.key(name).Name, i), &v1alpha1.ShadowObject{}) != nil {
			all = append(all, fmt.Sprint(i))
		}
	}
	return strings.Join(all, " ")
}

// part is one of them.
func (w *world) part(name string, number int) *v1alpha1.ShadowObject {
	w.t.Helper()
	s := get(w, w.TenantNamespace(), v1alpha1.ShadowObjectPart(w.key(name).Name, number), &v1alpha1.ShadowObject{})
	if s == nil {
		w.t.Fatalf("part %d of %s is not there", number, name)
	}
	return s
}

// carry lets both sides look at a large object, late enough.
func (w *world) carry(name string) {
	w.t.Helper()
	w.clock.Step(v1alpha1.MaxShadowObjectParts * readEvery)
	w.both(name)
}

// clean lets home look for parts that belong to nothing, twice.
func (w *world) clean() {
	w.t.Helper()
	r := &litter{fleet: w, clock: w.clock, meter: w.consumer.meter, seen: map[string]map[types.UID]time.Time{}}
	for range 2 {
		if _, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: types.NamespacedName{Name: w.name}}); err != nil {
			w.t.Fatal(err)
		}
		w.clock.Step(grace)
	}
}

// large is a world with a ConfigMap of some bytes that a pod mounts, at a provider that knows parts.
func large(t *testing.T, bytes int) (*world, *corev1.ConfigMap) {
	w := newMaps(t)
	w.build(v1alpha1.FeatureOfKind(kindConfigMap), v1alpha1.FeatureOfKind(kindSecret), v1alpha1.FeatureParts)
	m := configMap(w.home, "big", map[string]string{"a": letters(1, bytes)})
	w.create(m)
	w.readsMaps("web", false, "big")
	w.carry("big")
	return w, m
}

// TestParts: a large ConfigMap is on several ShadowObjects, grows, shrinks and goes with them, and a part that somebody
// takes away comes back.
func TestParts(t *testing.T) {
	t.Parallel()
	w, m := large(t, 300<<10)
	same := func(when, parts string) {
		t.Helper()
		made := w.madeMap("big")
		if got := w.parts("big"); made == nil || made.Data["a"] != m.Data["a"] || w.answer("big") != "True/Ready" || got != parts {
			t.Fatalf("%s: not there as at home; it is %s, in the parts %s, want %s", when, w.answer("big"), got, parts)
		}
	}
	same("at first", "0 1 2 3")
	writes := w.writes
	w.carry("big")
	if w.writes != writes {
		t.Errorf("%d writes though nothing changes", w.writes-writes)
	}

	m.Data["a"] = m.Data["a"][:200<<10] + "!" + m.Data["a"][200<<10+1:]
	w.update(m)
	writes = w.writes
	w.carry("big")
	same("a letter of the third part is another one", "0 1 2 3")
	if got := w.writes - writes; got != 4 { // the part, the first one, the object, the answer
		t.Errorf("%d writes for one letter, want 4", got)
	}

	m.Data["a"] = letters(2, content.MaxContent-1)
	w.update(m)
	w.carry("big")
	same("as large as can be", "0 1 2 3 4 5 6 7 8 9 10 11")
	m.Data["a"] = letters(3, 100<<10)
	w.update(m)
	w.carry("big")
	same("smaller", "0 1")

	w.remove(w.part("big", 1))
	w.carry("big")
	same("a part was taken away", "0 1")

	m.Data["a"] = "small"
	w.update(m)
	w.carry("big")
	same("small", "0")
	if s := w.shadow("big"); s.Spec.Parts != 0 || s.Spec.Hash != "" {
		t.Errorf("a small one is of %d parts and has the hash %q", s.Spec.Parts, s.Spec.Hash)
	}

	m.Data["a"] = letters(4, 500<<10)
	w.update(m)
	w.carry("big")
	same("large again", "0 1 2 3 4 5")
	w.remove(m)
	w.carry("big")
	if w.parts("big") != "" || w.madeMap("big") != nil {
		t.Errorf("gone from home, and the parts %s are there", w.parts("big"))
	}
}

// TestPartsCrash: whatever write is the last one of a process, the next one brings the object there, or takes all of it away.
func TestPartsCrash(t *testing.T) {
	t.Parallel()
	w, m := large(t, 300<<10)
	die := func(after int) {
		w.writes, w.dieAfter = 0, after
		for range 2 {
			w.clock.Step(v1alpha1.MaxShadowObjectParts * readEvery)
			_, _ = w.consumer.Reconcile(ctx, at(w.name, w.of("big")))
			_, _ = w.provider.Reconcile(ctx, ctrl.Request{NamespacedName: w.key("big")})
		}
		w.dieAfter = -1
		w.restart()
	}
	for after := range 8 {
		before := w.madeMap("big").Data["a"]
		m.Data["a"] = letters(uint64(10+after), (300+100*(after%3))<<10) // more, less and as many parts
		w.update(m)
		die(after)
		if got := w.madeMap("big"); got == nil || got.Data["a"] != before && got.Data["a"] != m.Data["a"] {
			t.Fatalf("a crash after %d writes: what is there is neither the old nor the new one", after)
		}
		w.carry("big")
		w.clean()
		w.carry("big")
		if w.madeMap("big").Data["a"] != m.Data["a"] || len(strings.Fields(w.parts("big"))) != int(w.shadow("big").Spec.Parts) {
			t.Fatalf("after a crash after %d writes: not as at home, or in the parts %s", after, w.parts("big"))
		}
	}
	for after := range 6 {
		w.remove(m)
		die(after)
		w.carry("big")
		w.clean()
		if w.parts("big") != "" || w.madeMap("big") != nil {
			t.Fatalf("deleted, and a crash after %d writes: the parts %s are there", after, w.parts("big"))
		}
		m = configMap(w.home, "big", map[string]string{"a": letters(uint64(20+after), 300<<10)})
		w.create(m)
		w.carry("big")
		if w.madeMap("big") == nil {
			t.Fatal("not made anew")
		}
	}
}

// TestPartsOfOthers: a provider makes nothing of parts that are not what their first one says, keeps what it has, and reads
// parts at the pace of their tenant.
func TestPartsOfOthers(t *testing.T) {
	t.Parallel()
	w, m := large(t, 300<<10)
	shown := w.part("big", 2)
	shown.Spec.Object = "[" + shown.Spec.Object[1:]
	w.update(shown)
	first := w.shadow("big")
	first.Labels["test"] = "look"
	w.update(first)
	w.provider.notes = newNotes[made]()
	res := w.take("big")
	if w.answer("big") != "False/Waiting" || w.madeMap("big") == nil || w.madeMap("big").Data["a"] != m.Data["a"] {
		t.Errorf("another text: %s, and what is there did not stay", w.answer("big"))
	}
	if res.RequeueAfter <= 0 || res.RequeueAfter > 5*soon {
		t.Errorf("looks again in %s", res.RequeueAfter)
	}
	for range 11 {
		w.provider.pace.delay(w.name, tenantBurst/10)
	}
	shadows := w.shadows
	if res := w.take("big"); w.shadows != shadows+1 || res.RequeueAfter <= 0 || res.RequeueAfter > soon {
		t.Errorf("parts of a tenant that has changed a lot: %d reads, and again in %s", w.shadows-shadows, res.RequeueAfter)
	}
	shadows = w.shadows
	w.provider.heavy.Lock()
	if res := w.take("big"); w.shadows != shadows+1 || res.RequeueAfter != readEvery {
		t.Errorf("while another one in parts is looked at: %d reads, and again in %s", w.shadows-shadows, res.RequeueAfter)
	}
	w.provider.heavy.Unlock()
	w.remove(w.part("big", 2))
	w.clock.Step(4 * readEvery)
	w.take("big")
	if w.answer("big") != "False/Waiting" || w.madeMap("big") == nil {
		t.Errorf("without a part: %s", w.answer("big"))
	}
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(q.ShutDown)
	h := (&watcher{client: w.raw, pace: newPacer(w.clock)}).shadows(w.provider.notes)
	h.Create(ctx, event.CreateEvent{Object: &v1alpha1.ShadowObject{ObjectMeta: objectMeta(w.TenantNamespace(), v1alpha1.ShadowObjectPart(w.key("big").Name, 2))}}, q)
	if q.Len() != 1 {
		t.Error("the part that it waits for comes, and wakes nobody")
	}
	w.deny(kindConfigMap)
	w.clock.Step(4 * readEvery)
	w.take("big")
	if w.answer("big") != "False/Refused" || w.madeMap("big") != nil {
		t.Errorf("denied while a part is missing: %s, and it stays", w.answer("big"))
	}
	w.deny()
	w.carry("big")
	w.carry("big")
	if w.answer("big") != "True/Ready" || w.madeMap("big") == nil {
		t.Fatalf("whole again: %s", w.answer("big"))
	}
	w.remove(w.shadow("big"))
	w.clock.Step(4 * readEvery)
	w.take("big")
	w.sweep()
	if w.madeMap("big") != nil {
		t.Error("the first part is gone, and the object stays")
	}
}

// TestPartsAgain: parts that are read again, as the terms of their tenant have changed, are not at the pace of what it sends.
func TestPartsAgain(t *testing.T) {
	t.Parallel()
	w, _ := large(t, 300<<10)
	w.clock.Step(tenantLag)
	w.provider.pace.delay(w.name, tenantBurst)
	w.deny(kindIngress)
	shadows := w.shadows
	w.take("big") // after a second
	if wait := w.provider.pace.delay(w.name, tenantRate-1); w.shadows-shadows != 4 || wait > 0 {
		t.Errorf("%d reads, want 4; what the tenant sends next waits %s", w.shadows-shadows, wait)
	}
}

// TestPartsUnknown: what takes parts stays home while the provider's build knows none, and says why.
func TestPartsUnknown(t *testing.T) {
	t.Parallel()
	w := newMaps(t)
	w.build(v1alpha1.FeatureOfKind(kindConfigMap))
	w.create(configMap(w.home, "big", map[string]string{"a": letters(1, 300<<10)}))
	w.create(configMap(w.home, "fits", map[string]string{"a": letters(1, content.MaxText-100)}))
	w.readsMaps("web", false, "big", "fits")
	w.carry("big")
	w.carry("fits")
	if w.parts("big") != "" || w.parts("fits") != "" || w.told("which takes at most 65536; ask its owner to upgrade") != 4 {
		t.Errorf("the parts %s and %s travel, or it is not told", w.parts("big"), w.parts("fits"))
	}
	w.build(v1alpha1.FeatureOfKind(kindConfigMap), v1alpha1.FeatureParts)
	w.carry("big")
	if w.madeMap("big") == nil {
		t.Error("the provider was upgraded, and it stays home")
	}
	p := get(w, "", w.name, &v1alpha1.Peering{})
	p.Status.Remote = nil
	if err := w.raw.Status().Update(ctx, p); err != nil {
		t.Fatal(err)
	}
	w.carry("big")
	w.carry("big")
	if w.madeMap("big") == nil {
		t.Error("nothing is known of the provider's build, and what is there goes")
	}
	w.build(v1alpha1.FeatureOfKind(kindConfigMap))
	w.carry("big")
	w.carry("big")
	if w.madeMap("big") != nil || w.parts("big") != "" {
		t.Errorf("the provider's build is an older one, and the parts %s stay", w.parts("big"))
	}
}

// TestPartsBehind: whatever the mirror showed when parts were written, they are the text in the end.
func TestPartsBehind(t *testing.T) {
	t.Parallel()
	for name, texts := range map[string][3]string{
		"a part that is as it was before the last one": {letters(1, 200<<10), letters(2, 200<<10), letters(1, 100<<10) + letters(3, 100<<10)},
		"small and large and small":                    {"small", letters(2, 200<<10), "small again"},
		"large and small and large":                    {letters(1, 200<<10), "small", letters(3, 300<<10)},
	} {
		w, m := large(t, 1)
		put := func(text string) {
			m.Data["a"] = text
			w.update(m)
			w.clock.Step(listedFor)
			w.send("big")
		}
		put(texts[0])
		w.freeze()
		put(texts[1])
		put(texts[2])
		w.frozen = nil
		for range 3 {
			w.carry("big")
		}
		w.clean()
		if made := w.madeMap("big"); made == nil || made.Data["a"] != texts[2] || w.answer("big") != "True/Ready" || len(strings.Fields(w.parts("big"))) != max(1, int(w.shadow("big").Spec.Parts)) {
			t.Errorf("%s: it is %s, in the parts %s, and not as at home", name, w.answer("big"), w.parts("big"))
		}
	}
}

// TestPartsNoRoom: what the quota has no room for leaves nothing, what was there stays, and it is not tried all the time.
func TestPartsNoRoom(t *testing.T) {
	t.Parallel()
	w, m := large(t, 200<<10)
	room := 2
	w.fail = func(verb string, obj client.Object) error {
		if s, ok := obj.(*v1alpha1.ShadowObject); ok && verb == "create" {
			if room--; room < 0 {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "shadowobjects"}, s.Name, nil)
			}
		}
		return nil
	}
	before := m.Data["a"]
	m.Data["a"] = letters(2, 600<<10)
	w.update(m)
	w.carry("big")
	if got := w.parts("big"); got != "0 1 2" || w.madeMap("big").Data["a"] != before || w.answer("big") != "True/Ready" || w.told("403") == 0 {
		t.Fatalf("grown beyond its room: it is %s, in the parts %s, or not as it was, or it is not told", w.answer("big"), got)
	}
	w.create(configMap(w.home, "new", map[string]string{"a": letters(3, 400<<10)}))
	w.readsMaps("other", false, "new")
	for room = range 5 { // the fourth is for all but the first one, which is the last to be made
		free := room
		w.send("new")
		if got := w.parts("new"); got != "" {
			t.Fatalf("room for %d parts of a new one, and %s are there", free, got)
		}
		if n := w.consumer.notes.get(at(w.name, w.of("new")).NamespacedName); n.concluded.Before(n.read) {
			t.Errorf("a pod that comes waits for what is refused")
		}
		w.clock.Step(rereadEvery)
	}
	room = 0
	w.send("new")
	writes := w.writes
	if res := w.send("new"); w.writes != writes || res.RequeueAfter < rereadEvery/2 {
		t.Errorf("tried again at once, with %d writes; again in %s", w.writes-writes, res.RequeueAfter)
	}
	w.rules(ruleOf(kindConfigMap, v1alpha1.ReflectDeny))
	if w.carry("big"); w.parts("big") != "" {
		t.Errorf("denied right after it was refused: the parts %s stay", w.parts("big"))
	}
	w.rules(ruleOf(kindConfigMap, v1alpha1.ReflectReferred))
	room = 100
	w.clock.Step(rereadEvery)
	w.carry("new")
	w.carry("big")
	if w.madeMap("new") == nil || w.madeMap("big").Data["a"] != m.Data["a"] {
		t.Error("there is room, and they are not there as at home")
	}
}

// TestPartsOnward: parts count for what a tenant may have onward, also of what grows.
func TestPartsOnward(t *testing.T) {
	t.Parallel()
	w, m := large(t, 100<<10)
	w.label(w.home, map[string]string{v1alpha1.LabelOffloaded: "true", v1alpha1.LabelManagedBy: component, v1alpha1.LabelTenant: "oslo",
		v1alpha1.LabelHomeNamespace: "shop", v1alpha1.LabelOnward: "true"})
	w.consumer.share = 3
	before := m.Data["a"]
	m.Data["a"] = letters(2, 400<<10)
	w.update(m)
	w.carry("big")
	if w.parts("big") != "0 1" || w.madeMap("big").Data["a"] != before || w.told("no more go onward") == 0 {
		t.Fatalf("it grows beyond what goes onward: the parts %s are there, or not as it was, or it is not told", w.parts("big"))
	}
	if n := w.consumer.notes.get(at(w.name, w.of("big")).NamespacedName); n.concluded.Before(n.read) {
		t.Error("a pod that comes waits for what finds no room")
	}
	m.Data["a"] = letters(3, 200<<10)
	w.update(m)
	w.carry("big")
	if w.parts("big") != "0 1 2" || w.madeMap("big").Data["a"] != m.Data["a"] {
		t.Errorf("it grows as far as it may: the parts %s are there, or not as at home", w.parts("big"))
	}
}

// TestDeletedOnce: what was deleted is not deleted again while the mirror shows it, nor its parts.
func TestDeletedOnce(t *testing.T) {
	t.Parallel()
	w, m := large(t, 200<<10)
	w.freeze()
	w.remove(m)
	writes := w.writes
	for range 3 {
		w.send("big")
	}
	if got := w.writes - writes; got != 3 {
		t.Errorf("%d writes to delete three ShadowObjects", got)
	}
	w.frozen = nil
	if w.send("big"); w.parts("big") != "" {
		t.Errorf("the parts %s are left", w.parts("big"))
	}
}

// TestShadowObjectOf is about names.
func TestShadowObjectOf(t *testing.T) {
	name := v1alpha1.ShadowObjectName(v1alpha1.HomeObject{Kind: kindSecret, Namespace: "shop", Name: "x"})
	for i := range v1alpha1.MaxShadowObjectParts {
		one := v1alpha1.ShadowObjectPart(name, i)
		if of, number := v1alpha1.ShadowObjectOf(one); of != name || number != i {
			t.Errorf("%s is number %d of %s", one, number, of)
		}
	}
	for _, odd := range []string{"", "-", "secret", "secret-7", name + "-", name + "-x", name + "-0"} {
		if of, number := v1alpha1.ShadowObjectOf(odd); number != 0 || of != odd {
			t.Errorf("%q is number %d of %q", odd, number, of)
		}
	}
}
