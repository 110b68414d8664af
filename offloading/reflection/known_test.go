package reflection

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// aMinuteLater is when everything is read again that nobody tells of.
func (w *world) aMinuteLater() { w.clock.Step(rereadEvery) }

// TestReadAgain: what was read is read again when it may be another one, and not because something
// has happened to it at the provider.
func TestReadAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.build(v1alpha1.FeatureOfKind(kindSecret))
	w.rules()
	secret := pullSecret(w.home, "registry", "s3cret-1")
	w.create(secret)
	w.pod("one", "registry")
	two := &corev1.Pod{}
	become := func(password string) {
		secret.Data[jsonKey] = login(password)
		if err := w.raw.Update(ctx, secret); err != nil {
			t.Fatal(err)
		}
	}
	patch := func(obj client.Object, body string) {
		if err := w.raw.Patch(ctx, obj, client.RawPatch("application/merge-patch+json", []byte(body))); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		reason string
		do     func()
		reads  int
		want   string
	}{
		{"it is sent", func() {}, 1, "s3cret-1"},
		{"the provider shows it", func() {}, 0, "s3cret-1"},
		{"somebody at the provider labels it", func() { patch(w.shadow("registry"), `{"metadata":{"labels":{"a":"b"}}}`) }, 0, "s3cret-1"},
		{"it is another one, and nobody knows", func() { become("s3cret-2") }, 0, "s3cret-1"},
		{"another pod comes", func() { two = w.pod("two", "registry") }, 1, "s3cret-2"},
		{"that pod goes", func() { w.remove(two) }, 1, "s3cret-2"},
		{"the names are listed", func() { become("s3cret-3"); w.list() }, 1, "s3cret-3"},
		{"the rules change", func() { become("s3cret-4"); w.rules(ruleOf(kindConfigMap, v1alpha1.ReflectDeny)) }, 1, "s3cret-4"},
		{"the provider has another build", func() {
			w.build(v1alpha1.FeatureOfKind(kindConfigMap))
			w.send("registry")
			w.build(v1alpha1.FeatureOfKind(kindSecret))
		}, 2, "s3cret-4"},
		{"the ShadowObject is not what was sent", func() {
			patch(w.shadow("registry"), `{"metadata":{"annotations":{"`+v1alpha1.AnnotationApplied+`":"x"}}}`)
		}, 1, "s3cret-4"},
		{"the ShadowObject is deleted", func() { w.remove(w.shadow("registry")) }, 1, "s3cret-4"},
		{"a minute goes by", func() { become("s3cret-5"); w.aMinuteLater() }, 1, "s3cret-5"},
		{"a minute goes by, and the names are listed", func() { w.list(); w.aMinuteLater() }, 0, "s3cret-5"},
		{"another one, and no more lists", func() { w.aMinuteLater() }, 1, "s3cret-5"},
		{"the clock goes back", func() { become("s3cret-6"); w.clock.Step(-time.Hour) }, 1, "s3cret-6"},
		{"the process is another one", func() { become("s3cret-7"); w.restart() }, 1, "s3cret-7"},
		{"it is another object of that name, and is listed", func() {
			w.remove(secret)
			secret = pullSecret(w.home, "registry", "s3cret-8")
			w.create(secret)
			w.list()
		}, 1, "s3cret-8"},
		{"it is deleted, and the names are listed", func() { w.remove(secret); w.list() }, 2, ""},
	} {
		w.reads = 0
		c.do()
		w.both("registry")
		if got := w.password("registry"); got != c.want || w.reads != c.reads {
			t.Errorf("%s: %d reads and %q, want %d and %q", c.reason, w.reads, got, c.reads, c.want)
		}
	}
}

// TestListedMeanwhile: what is listed while an object is looked at counts for the next look.
func TestListedMeanwhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.rules()
	secret := pullSecret(w.home, "registry", "s3cret-1")
	w.create(secret)
	w.pod("web", "registry")
	w.both("registry")
	secret.Data[jsonKey] = login("s3cret-2")
	if err := w.raw.Update(ctx, secret); err != nil {
		t.Fatal(err)
	}
	w.meanwhile = func() {
		w.woken = nil
		if _, err := w.lister.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKey{Namespace: w.home, Name: v1alpha1.OffloadingName}}); err != nil {
			t.Error(err)
		}
	}
	if w.both("registry"); len(w.woken) != 1 {
		t.Fatalf("%v is woken", w.woken)
	}
	if w.both("registry"); w.password("registry") != "s3cret-2" {
		t.Error("it is woken, and the change is not read")
	}
}

// TestSentByRule: what a rule sends is asked for once a minute, and read if it is another one.
func TestSentByRule(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	secret := pullSecret(w.home, "registry", "s3cret-1")
	w.create(secret)
	w.pod("web")
	w.rules(ruleOf(kindSecret, v1alpha1.ReflectAll))
	for _, c := range []struct {
		reason       string
		do           func()
		reads, names int
		want         string
	}{
		{"it is found", func() { w.list() }, 1, 1, "s3cret-1"},
		{"it is looked at", func() {}, 0, 0, "s3cret-1"},
		{"a minute goes by", w.aMinuteLater, 0, 1, "s3cret-1"},
		{"a minute goes by, and the names are listed", func() { w.list(); w.aMinuteLater() }, 0, 0, "s3cret-1"},
		{"it is another one", func() {
			secret.Data[jsonKey] = login("s3cret-2")
			w.update(secret)
			w.aMinuteLater()
		}, 1, 1, "s3cret-2"},
		{"it is kept home", func() {
			secret.Annotations = map[string]string{v1alpha1.AnnotationReflect: "false"}
			w.update(secret)
			w.list()
		}, 0, 1, ""},
	} {
		w.reads, w.names = 0, 0
		c.do()
		w.both("registry")
		if got := w.password("registry"); got != c.want || w.reads != c.reads || w.names != c.names {
			t.Errorf("%s: %d reads, %d of metadata, and %q; want %d, %d and %q", c.reason, w.reads, w.names, got, c.reads, c.names, c.want)
		}
	}
	if w.send("registry"); w.consumer.notes.count() != 0 {
		t.Error("something is remembered for ever")
	}
}

// TestCompare: of what was listed all is known for longer, and of what is not as it was nothing.
func TestCompare(t *testing.T) {
	n, now := newNotes[note](), time.Now()
	set := func(peering, namespace, name, version string) {
		n.set(at(peering, v1alpha1.HomeObject{Kind: kindSecret, Namespace: namespace, Name: name}).NamespacedName,
			note{told: "stays", known: knownOf(&metav1.ObjectMeta{ResourceVersion: version}, v1alpha1.ReflectReferred, "", now)})
	}
	versions := map[string]string{"same": "1", "other": "2", "unsent": "1"}
	for _, c := range []struct {
		reason  string
		all     bool
		changed int
	}{
		{"not all were listed", false, 1},
		{"all were listed", true, 2},
	} {
		set("milan", "shop", "same", "1")
		set("milan", "shop", "other", "1")
		set("milan", "shop", "gone", "1")
		set("milan", "bank", "gone", "1")
		set("oslo", "shop", "gone", "1")
		changed := compare(n, "milan", "shop", kindSecret, versions, c.all, now.Add(time.Second))
		if len(changed) != c.changed {
			t.Errorf("%s: %v are woken, want %d", c.reason, changed, c.changed)
		}
		left := 0
		n.each(func(key client.ObjectKey, v note) {
			if v.known.version != "" {
				left++
			}
			same := key.Namespace == "milan/shop" && key.Name == "Secret/same"
			if want := now.Add(rereadEvery); v.told != "stays" || !same && v.known.version != "" && !v.known.until.Equal(want) || same && !v.known.until.Equal(now.Add(time.Second+listedFor)) {
				t.Errorf("%s: of %s is known %+v", c.reason, key, v.known)
			}
		})
		if left != 5-c.changed {
			t.Errorf("%s: %d are known, want %d", c.reason, left, 5-c.changed)
		}
	}
}
