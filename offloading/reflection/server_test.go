package reflection

import (
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/offloading/content"
)

// TestTravels: a Secret goes with the pods that name it, follows changes and goes away.
func TestTravels(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	secret := pullSecret(w.home, "registry", "s3cret-1")
	w.create(secret)
	w.create(pullSecret(w.home, "other", "s3cret-2"))
	w.both("registry")
	if w.shadow("registry") != nil || w.reads > 1 {
		t.Fatal("it travels, or is read, before a pod names it")
	}
	one, two := w.pod("one", "registry"), w.pod("two", "registry")
	w.both("registry")
	if got := w.password("registry"); got != "s3cret-1" || w.answer("registry") != "True/Ready" {
		t.Fatalf("%q %s", got, w.answer("registry"))
	}
	w.both("other")
	if w.shadow("other") != nil {
		t.Fatal("a Secret travels that no pod names")
	}
	before := w.writes
	w.both("registry")
	if w.writes != before {
		t.Errorf("%d writes though nothing changes", w.writes-before)
	}
	secret.Data[jsonKey] = login("s3cret-3")
	w.update(secret)
	w.both("registry")
	if got := w.password("registry"); got != "s3cret-3" || w.shadow("registry").Status.ObservedGeneration != 2 {
		t.Fatalf("rotation: %q", got)
	}
	if err := w.raw.Delete(ctx, one, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	w.both("registry")
	w.clock.Step(2 * grace)
	w.both("registry")
	if w.made("registry") == nil {
		t.Fatal("gone though a pod names it")
	}
	two.Status.Phase = corev1.PodSucceeded
	if err := w.raw.Status().Update(ctx, two); err != nil {
		t.Fatal(err)
	}
	if res := w.send("registry"); res.RequeueAfter == 0 || res.RequeueAfter > grace || w.shadow("registry") == nil {
		t.Fatalf("no grace: %v", res)
	}
	w.clock.Step(grace)
	w.both("registry")
	if w.shadow("registry") != nil || w.made("registry") != nil {
		t.Fatal("it stays though no pod names it")
	}
	if w.send("registry"); w.consumer.notes.count()+w.provider.notes.count() != 0 {
		t.Error("something is remembered for ever")
	}
	if w.told("") != 0 {
		t.Error("events though all went well")
	}
}

// TestStays: what does not travel is told once on the object and on each pod.
func TestStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pod("one", "opaque", "missing", "late")
	w.create(token(w.home, "opaque"))
	for range 3 {
		w.both("opaque")
	}
	if n := w.told("NotReflected"); n != 2 || w.shadow("opaque") != nil {
		t.Errorf("%d events", n)
	}
	w.pod("two", "opaque")
	w.both("opaque")
	if n := w.told("service-account-token"); n != 1 {
		t.Errorf("%d events about the second pod", n)
	}
	w.both("missing")
	if n := w.told("no such Secret"); n != 1 {
		t.Errorf("%d events about one that is missing", n)
	}
	late := pullSecret(w.home, "late", "s3cret")
	w.create(late)
	w.both("late")
	w.remove(late)
	w.both("late")
	if w.shadow("late") != nil || w.made("late") != nil || w.told("no such Secret") != 1 {
		t.Error("deleted at home, and it stays there")
	}
}

// TestMadeLater: what is made beside the pod that needs it, or a moment after, is found soon, and what stays
// away is looked for ever more seldom.
func TestMadeLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pod("one", "made", "never")
	for _, least := range []time.Duration{soon, soon, 2 * soon, 3 * soon} { // send lets a second go by
		if res := w.send("made"); res.RequeueAfter < least || res.RequeueAfter > 2*least {
			t.Errorf("looked for again after %s, want %s", res.RequeueAfter, least)
		}
	}
	w.create(pullSecret(w.home, "made", "s3cret"))
	if w.send("made"); w.shadow("made") == nil {
		t.Error("it is there, and does not travel")
	}
	w.send("never")
	w.clock.Step(time.Hour)
	if res := w.send("never"); res.RequeueAfter < rereadEvery/2 {
		t.Errorf("after an hour it is looked for again after %s", res.RequeueAfter)
	}
	w.remove(&corev1.Secret{ObjectMeta: objectMeta(w.home, "made")})
	w.send("made")
	if res := w.send("made"); res.RequeueAfter > 2*soon {
		t.Errorf("it is missing anew, and is looked for again after %s", res.RequeueAfter)
	}
	w.consumer.sooner = rate.NewLimiter(0, 0)
	if res := w.send("made"); res.RequeueAfter < rereadEvery/2 {
		t.Errorf("too many are looked for, and this one again after %s", res.RequeueAfter)
	}
}

// TestOnlyOffloaded: nothing is read of a namespace that is not offloaded, of pods that
// run here or at another provider.
func TestOnlyOffloaded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(pullSecret(w.home, "registry", "s3cret"))
	w.pod("web", "registry")
	w.label(w.home, nil)
	w.send("registry")
	if w.reads != 0 || w.shadow("registry") != nil {
		t.Error("not offloaded, and it travels")
	}
	w.label(w.home, map[string]string{v1alpha1.LabelOffloaded: "true"})
	if _, err := w.consumer.Reconcile(ctx, at("other", w.of("registry"))); err != nil || w.reads != 0 {
		t.Errorf("it goes to a provider where no pod names it: %v", err)
	}
	w.state.Reachable = false
	w.send("registry")
	if w.reads != 0 {
		t.Error("read for a provider that is away")
	}
	w.state.Reachable = true
	w.both("registry")
	if w.password("registry") != "s3cret" {
		t.Error("it does not travel")
	}
	w.label(w.home, nil) // unoffloaded; the pods are still leaving
	w.both("registry")
	if w.password("registry") != "s3cret" {
		t.Error("gone before its pods")
	}
	for _, p := range []corev1.PodSpec{
		{NodeName: w.name, ImagePullSecrets: []corev1.LocalObjectReference{{Name: "registry"}}, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}},
		{ImagePullSecrets: []corev1.LocalObjectReference{{Name: "registry"}}, Tolerations: []corev1.Toleration{{Key: v1alpha1.TaintVirtualNode}}},
	} {
		if len(references(&corev1.Pod{Spec: p})) != 0 {
			t.Errorf("a pod that does not run there counts: %+v", p)
		}
	}
}

// TestHostileShadowObjects: by hand, with all rights of a tenant.
func TestHostileShadowObjects(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	foreign := pullSecret(w.remote, "taken", "theirs")
	w.create(foreign)
	good := text(jsonType, jsonKey, login("s3cret"))
	for _, c := range []struct {
		reason, name string
		home         v1alpha1.HomeObject
		object       string
		want         string // "" if the API server does not take it
	}{
		{"a token of a service account", "", w.of("token"), text("kubernetes.io/service-account-token", "token", []byte("{}")), "False/Refused"},
		{"a bootstrap token", "", w.of("bootstrap"), text("bootstrap.kubernetes.io/token", "token-id", []byte("{}")), "False/Refused"},
		{"another kind", "", v1alpha1.HomeObject{Kind: "Role", Namespace: w.home, Name: "x"}, good, ""},
		{"a name of its own", "secret-" + strings.Repeat("a", 40), w.of("mine"), good, "False/Refused"},
		{"a Secret that is there", "", w.of("taken"), good, "False/NameTaken"},
		{"a namespace that is not mapped", "", v1alpha1.HomeObject{Kind: "Secret", Namespace: "kube-system", Name: "x"}, good, "False/NamespaceMissing"},
		{"a path", "", v1alpha1.HomeObject{Kind: "Secret", Namespace: w.home, Name: "../x"}, good, ""},
		{"a path as namespace", "", v1alpha1.HomeObject{Kind: "Secret", Namespace: "a/b", Name: "x"}, good, ""},
		{"too big", "", w.of("big"), text(jsonType, jsonKey, []byte(`{"a":"`+strings.Repeat("x", content.MaxText)+`"}`)), ""},
		{"a name that is none", "Secret_x", w.of("x"), good, ""},
		{"not JSON", "", w.of("garbage"), "s3cret", "False/Refused"},
	} {
		s := shadowOf(c.home, c.object)
		s.Namespace = w.TenantNamespace()
		if c.name != "" {
			s.Name = c.name
		}
		err := w.raw.Create(ctx, s)
		if (err == nil) != (c.want != "") {
			t.Errorf("%s: %v", c.reason, err)
		}
		if err != nil {
			continue
		}
		w.clock.Step(readEvery)
		if _, err := w.provider.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s)}); err != nil {
			t.Errorf("%s: %v", c.reason, err)
		}
		got := get(w, s.Namespace, s.Name, &v1alpha1.ShadowObject{})
		said := got.Status.Conditions[0]
		if answer := string(said.Status) + "/" + said.Reason; answer != c.want || strings.Contains(said.Message, "s3cret") {
			t.Errorf("%s: %s %s", c.reason, answer, said.Message)
		}
	}
	list := &corev1.SecretList{}
	if err := w.raw.List(ctx, list, client.InNamespace(w.remote)); err != nil || len(list.Items) != 1 {
		t.Errorf("%d secrets are there: %v", len(list.Items), err)
	}
	if now := w.made("taken"); now.ResourceVersion != foreign.ResourceVersion {
		t.Error("a foreign Secret was touched")
	}
}

// TestForeignNamespaces: a mapping that says more than the namespace does counts for
// nothing.
func TestForeignNamespaces(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(pullSecret(w.home, "registry", "s3cret"))
	w.pod("web", "registry")
	for _, labels := range []map[string]string{
		nil,
		{v1alpha1.LabelManagedBy: component, v1alpha1.LabelTenant: "oslo", v1alpha1.LabelHomeNamespace: w.home},
		{v1alpha1.LabelManagedBy: component, v1alpha1.LabelTenant: w.name, v1alpha1.LabelHomeNamespace: "other"},
		{v1alpha1.LabelTenant: w.name, v1alpha1.LabelHomeNamespace: w.home},
	} {
		w.label(w.remote, labels)
		w.both("registry")
		if w.made("registry") != nil || w.answer("registry") != "False/NamespaceMissing" {
			t.Fatalf("made in %v: %s", labels, w.answer("registry"))
		}
	}
	w.label(w.remote, map[string]string{v1alpha1.LabelManagedBy: component, v1alpha1.LabelTenant: w.name, v1alpha1.LabelHomeNamespace: w.home})
	w.both("registry")
	if w.made("registry") == nil {
		t.Fatal("not made")
	}
	t.Run("waiting keeps, ending removes", func(t *testing.T) {
		w.mapped(v1alpha1.MappedNamespace{Name: w.remote, Phase: v1alpha1.MappingPending})
		w.take("registry")
		if w.made("registry") == nil {
			t.Error("a moment's wait takes it away")
		}
		w.mapped(v1alpha1.MappedNamespace{Name: w.remote, Phase: v1alpha1.MappingKept})
		w.take("registry")
		if w.made("registry") != nil || w.shadow("registry").Status.Ref != nil {
			t.Error("it stays in a namespace that is only kept")
		}
	})
}

// TestRestartAtEveryWrite: a life of a Secret, with a process that dies after each write.
func TestRestartAtEveryWrite(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	secret := pullSecret(w.home, "registry", "one")
	w.create(secret)
	pod := w.pod("web", "registry")
	try := func() bool {
		w.clock.Step(readEvery)
		_, a := w.consumer.Reconcile(ctx, at(w.name, w.of("registry")))
		_, b := w.provider.Reconcile(ctx, ctrl.Request{NamespacedName: w.key("registry")})
		_, c := w.sweeper.Reconcile(ctx, ctrl.Request{NamespacedName: types.NamespacedName{Name: w.remote}})
		return errors.Join(a, b, c) == nil
	}
	until := func(what string, done func() bool) {
		t.Helper()
		deaths := 0
		for w.dieAfter = w.writes; !done(); deaths++ {
			if deaths > 20 {
				t.Fatalf("%s: not done after %d deaths", what, deaths)
			}
			w.dieAfter = w.writes + 1
			try()
			w.restart()
			if what == "removal" {
				try()
				w.clock.Step(grace)
				w.dieAfter = w.writes + 1
				try()
				w.restart()
			}
		}
		w.dieAfter = -1
		if !try() {
			t.Errorf("%s: errors afterwards", what)
		}
	}
	until("making", func() bool { return w.password("registry") == "one" && w.answer("registry") == "True/Ready" })
	secret.Data[jsonKey] = login("two")
	w.update(secret)
	until("rotation", func() bool {
		return w.password("registry") == "two" && w.shadow("registry").Status.ObservedGeneration == 2
	})
	if err := w.raw.Delete(ctx, pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	until("removal", func() bool { return w.shadow("registry") == nil && w.made("registry") == nil })
}

// TestRefusedWrites: what API servers refuse is said without their words.
func TestRefusedWrites(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(pullSecret(w.home, "registry", "s3cret"))
	w.pod("web", "registry")
	w.fail = func(verb string, obj client.Object) error {
		if _, ok := obj.(*v1alpha1.ShadowObject); ok && verb == "create" {
			return invalid("s3cret")
		}
		return nil
	}
	w.send("registry")
	if w.told("422") != 2 { // on the object and on the pod
		t.Error("not told that the provider's API server refuses")
	}
	w.fail = func(verb string, obj client.Object) error {
		if _, ok := obj.(*corev1.Secret); ok && verb == "create" {
			return invalid("s3cret")
		}
		return nil
	}
	w.send("registry")
	first, second := w.take("registry"), w.take("registry")
	if w.answer("registry") != "False/NotAdmitted" || second.RequeueAfter <= first.RequeueAfter || second.RequeueAfter > longestRetry {
		t.Errorf("%s %v %v", w.answer("registry"), first, second)
	}
	w.fail = func(string, client.Object) error { return apierrors.NewInternalError(errors.New("s3cret")) }
	w.clock.Step(time.Minute)
	if _, err := w.provider.Reconcile(ctx, ctrl.Request{NamespacedName: w.key("registry")}); err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("%v", err)
	}
	w.fail = nil
	w.both("registry")
	if w.answer("registry") != "True/Ready" || w.told("NotReflected") > 2 {
		t.Error(w.answer("registry"))
	}
}

// TestChangedByHand: what becomes of a Secret at the provider is put right.
func TestChangedByHand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(pullSecret(w.home, "registry", "s3cret"))
	w.pod("web", "registry")
	w.both("registry")
	s := w.made("registry")
	s.Data[jsonKey], s.Immutable = login("x"), new(true)
	if err := w.raw.Update(ctx, s); err != nil {
		t.Fatal(err)
	}
	w.both("registry")
	if w.password("registry") != "s3cret" || w.made("registry").Immutable != nil {
		t.Error("changed by hand, and it stays")
	}
	if err := w.raw.Delete(ctx, w.made("registry")); err != nil {
		t.Fatal(err)
	}
	w.both("registry")
	if w.password("registry") != "s3cret" {
		t.Error("deleted by hand, and not made again")
	}
}

// TestHostileProvider: what a provider shows makes nothing here travel or be read.
func TestHostileProvider(t *testing.T) {
	for _, s := range []*v1alpha1.ShadowObject{
		{},
		shadowOf(v1alpha1.HomeObject{Kind: "Secret", Namespace: "../x", Name: "y"}, ""),
		shadowOf(v1alpha1.HomeObject{Kind: "Secret", Namespace: strings.Repeat("x", 1000), Name: "y"}, ""),
		shadowOf(v1alpha1.HomeObject{Kind: "Role", Namespace: "x", Name: "y"}, ""),
		{ObjectMeta: metav1.ObjectMeta{Name: "secret-x"}, Spec: v1alpha1.ShadowObjectSpec{Home: v1alpha1.HomeObject{Kind: "Secret", Namespace: "x", Name: "y"}}},
	} {
		if got := ofShadow("milan", s); got != nil {
			t.Errorf("%+v wakes %v", s.Spec.Home, got)
		}
	}
	w := newWorld(t)
	w.create(pullSecret(w.home, "private", "s3cret"))
	s := shadowOf(w.of("private"), "{}")
	s.Namespace = w.TenantNamespace()
	w.create(s)
	for _, r := range ofShadow(w.name, s) {
		if _, err := w.consumer.Reconcile(ctx, r); err != nil {
			t.Error(err)
		}
	}
	if w.reads != 0 || w.shadow("private").Generation != 1 {
		t.Error("a provider asks for a Secret and gets it")
	}
}

// TestReadsArePaced: however many pods come and go, a Secret is read once a second.
func TestReadsArePaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(pullSecret(w.home, "registry", "s3cret"))
	w.pod("web", "registry")
	for range 5 {
		if _, err := w.consumer.Reconcile(ctx, at(w.name, w.of("registry"))); err != nil {
			t.Fatal(err)
		}
	}
	if w.reads != 1 {
		t.Errorf("%d reads in one moment", w.reads)
	}
}
