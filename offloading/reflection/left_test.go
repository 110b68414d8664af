package reflection

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestLeft: what was made goes unread with its ShadowObject, and only if it is what was made.
func TestLeft(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason string
		do     func(w *world)
		reads  int
		stays  bool
	}{
		{"it is as it was left", func(*world) {}, 0, false},
		{"the provider does not remember", func(w *world) { w.restart(); w.take("registry") }, 1, false},
		{"somebody has labelled it", func(w *world) {
			s := w.made("registry")
			s.Labels["a"] = "b"
			w.update(s)
		}, 1, false},
		{"somebody has taken it over", func(w *world) {
			s := w.made("registry")
			s.Labels = nil
			w.update(s)
		}, 1, true},
		{"it is somebody else's of that name", func(w *world) {
			w.remove(w.made("registry"))
			w.create(pullSecret(w.remote, "registry", "theirs"))
		}, 1, true},
		{"somebody has deleted it", func(w *world) { w.remove(w.made("registry")) }, 0, false},
		{"the namespace is somebody else's now", func(w *world) { w.label(w.remote, nil) }, 0, true},
	} {
		w := newWorld(t)
		w.create(pullSecret(w.home, "registry", "s3cret"))
		w.pod("web", "registry")
		if w.both("registry"); w.made("registry") == nil || w.provided != 0 {
			t.Fatalf("%s: not made, or after %d reads", c.reason, w.provided)
		}
		w.provided = 0
		c.do(w)
		w.remove(w.shadow("registry"))
		if w.take("registry"); (w.made("registry") != nil) != c.stays || w.provided != c.reads {
			t.Errorf("%s: it stays %t, after %d reads; want %t and %d", c.reason, w.made("registry") != nil, w.provided, c.stays, c.reads)
		}
		if w.provider.notes.count() != 0 {
			t.Errorf("%s: something is remembered for ever", c.reason)
		}
	}
}

// TestUnseen: what is made unseen changes nothing that is there, and what was made before and is
// refused now goes though nobody remembers it.
func TestUnseen(t *testing.T) {
	t.Parallel()
	good := text(jsonType, jsonKey, login("s3cret"))
	ours := func(w *world) *corev1.Secret {
		s := pullSecret(w.remote, "registry", "old")
		mark(s, w.name, w.home)
		return s
	}
	for _, c := range []struct {
		reason, object string
		there          func(w *world) *corev1.Secret
		full           bool // of Secrets, the namespace is
		want, password string
	}{
		{"nothing is there", good, nil, false, "True/Ready", "s3cret"},
		{"ours is there", good, ours, false, "True/Ready", "s3cret"},
		{"somebody else's is there", good, func(w *world) *corev1.Secret { return pullSecret(w.remote, "registry", "theirs") }, false, "False/NameTaken", "theirs"},
		{"that of another namespace at home is there", good, func(w *world) *corev1.Secret {
			s := ours(w)
			mark(s, w.name, "other")
			return s
		}, false, "False/NameTaken", "old"},
		{"somebody else's is there, and there is no room for one more", good, func(w *world) *corev1.Secret { return pullSecret(w.remote, "registry", "theirs") }, true, "False/NameTaken", "theirs"},
		{"ours is there, and there is no room for one more", good, ours, true, "True/Ready", "s3cret"},
		{"nothing is there, and there is no room for it", good, nil, true, "False/NotAdmitted", ""},
		{"ours is there, and is refused now", "s3cret", ours, false, "False/Refused", ""},
	} {
		w := newWorld(t)
		if c.there != nil {
			w.create(c.there(w))
		}
		if c.full { // as far as the API server can tell: nobody counts here
			w.create(&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: w.remote, Name: "full"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"secrets": resource.MustParse("0")}}})
			q := get(w, w.remote, "full", &corev1.ResourceQuota{})
			q.Status.Hard, q.Status.Used = q.Spec.Hard, corev1.ResourceList{"secrets": resource.MustParse("0")}
			if err := w.raw.Status().Update(ctx, q); err != nil {
				t.Fatal(err)
			}
		}
		s := shadowOf(w.of("registry"), c.object)
		s.Namespace = w.TenantNamespace()
		w.create(s)
		w.take("registry")
		if got := w.answer("registry"); got != c.want || w.password("registry") != c.password {
			t.Errorf("%s: %s and %q, want %s and %q", c.reason, got, w.password("registry"), c.want, c.password)
		}
		if ref := w.shadow("registry").Status.Ref; (ref != nil) != (c.want == "True/Ready" || c.want == "False/NotAdmitted") {
			t.Errorf("%s: the status refers to %v", c.reason, ref)
		}
	}
}

// TestLooks: what was made is not read again while it is as it was left, and so is all that it was judged by; else it
// is put right.
func TestLooks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(pullSecret(w.home, "registry", "s3cret"))
	w.pod("web", "registry")
	w.both("registry")
	for _, c := range []struct {
		reason string
		do     func()
		read   int
		want   string
	}{
		{"time goes by", func() {}, 0, "s3cret"},
		{"somebody has labelled it", func() {
			s := w.made("registry")
			s.Labels["a"] = "b"
			w.update(s)
		}, 1, "s3cret"},
		{"it is known as it is now", func() {}, 0, "s3cret"},
		{"somebody has changed it", func() {
			s := w.made("registry")
			s.Data[jsonKey] = login("x")
			w.update(s)
		}, 1, "s3cret"},
		{"somebody has deleted it", func() { w.remove(w.made("registry")) }, 1, "s3cret"},
		{"somebody has made it anew", func() {
			s := w.made("registry")
			w.remove(s)
			s = s.DeepCopy()
			s.UID, s.ResourceVersion = "", ""
			w.create(s)
		}, 1, "s3cret"},
		{"somebody has written its answer", func() {
			s := w.shadow("registry")
			s.Status.Conditions = nil
			if err := w.raw.Status().Update(ctx, s); err != nil {
				t.Fatal(err)
			}
		}, 1, "s3cret"},
		{"it is known with the answer", func() {}, 0, "s3cret"},
		{"other content has come", func() {
			s := w.shadow("registry")
			s.Spec.Object = text(jsonType, jsonKey, login("s3cret-2"))
			w.update(s)
		}, 1, "s3cret-2"},
		{"the process is another one", w.restart, 1, "s3cret-2"},
		{"the terms are others", func() {
			w.terms(func(t *v1alpha1.TenantTerms) { t.Reflection = &v1alpha1.TenantReflection{Deny: []string{kindSecret}} })
		}, 1, ""},
		{"and as before", func() { w.terms(func(t *v1alpha1.TenantTerms) { t.Reflection = nil }) }, 1, "s3cret-2"},
		{"the namespace is taken away", func() { w.label(w.remote, nil) }, 1, "s3cret-2"},
	} {
		w.shadows = 0
		c.do()
		w.take("registry")
		if got := w.password("registry"); got != c.want || w.shadows != c.read {
			t.Errorf("%s: the ShadowObject is read %d times, and %q is there; want %d and %q", c.reason, w.shadows, got, c.read, c.want)
		}
		if got := w.answer("registry"); c.want != "" && got != "True/Ready" && c.reason != "the namespace is taken away" {
			t.Errorf("%s: %s", c.reason, got)
		}
	}
}
