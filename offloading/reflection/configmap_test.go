package reflection

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

func configMap(namespace, name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: objectMeta(namespace, name), Data: data}
}

// readsMaps makes a pod that mounts ConfigMaps.
func (w *world) readsMaps(name string, soft bool, maps ...string) *corev1.Pod {
	w.t.Helper()
	return w.podWith(name, func(spec *corev1.PodSpec) {
		for _, m := range maps {
			spec.Volumes = append(spec.Volumes, corev1.Volume{Name: m, VolumeSource: corev1.VolumeSource{
				ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: named(m), Optional: &soft}}})
		}
	})
}

// madeMap is the ConfigMap at the provider, nil if there is none.
func (w *world) madeMap(name string) *corev1.ConfigMap {
	return get(w, w.remote, name, &corev1.ConfigMap{})
}

func (w *world) update(obj client.Object) {
	w.t.Helper()
	if err := w.raw.Update(ctx, obj); err != nil {
		w.t.Fatal(err)
	}
	w.noticed(obj)
}

// noticed lets the time go by until a change at home counts of which nobody tells.
func (w *world) noticed(obj client.Object) {
	if kind := kindOfObject(w.raw, obj); obj.GetNamespace() == w.home && (kind == kindSecret || kind == kindConfigMap) {
		w.clock.Step(listedFor)
	}
}

func (w *world) remove(obj client.Object) {
	w.t.Helper()
	if err := w.raw.Delete(ctx, obj, client.GracePeriodSeconds(0)); err != nil {
		w.t.Fatal(err)
	}
	w.noticed(obj)
}

// newMaps is a world whose helpers speak of ConfigMaps.
func newMaps(t *testing.T) *world {
	w := newWorld(t)
	w.kind = kindConfigMap
	return w
}

// TestConfigMapTravels: one goes with the pods that refer to it, without its labels,
// follows what is done to it on both sides, and goes with the last reference.
func TestConfigMapTravels(t *testing.T) {
	t.Parallel()
	w := newMaps(t)
	m := configMap(w.home, "app", map[string]string{"a": "1"})
	m.Labels = map[string]string{"app": "shop", "kubernetes.io/x": "y"}
	m.Annotations = map[string]string{"note": "n", "example.org/order": "x"}
	w.create(m)
	w.both("app")
	if w.shadow("app") != nil || w.reads > 1 {
		t.Fatal("it travels, or is read, before a pod refers to it")
	}
	pod := w.readsMaps("web", false, "app")
	w.both("app")
	made := w.madeMap("app")
	if made == nil || made.Data["a"] != "1" || made.Labels["app"] != "" || made.Labels["kubernetes.io/x"] != "" || len(made.Annotations) != 1 ||
		!owned(made, w.name, w.home) || w.answer("app") != "True/Ready" {
		t.Fatalf("%+v %s", made, w.answer("app"))
	}
	before := w.writes
	w.both("app")
	if w.writes != before {
		t.Errorf("%d writes though nothing changes", w.writes-before)
	}
	t.Run("changed at home", func(t *testing.T) {
		m.Data, m.Labels, m.Immutable = map[string]string{"b": "2"}, nil, new(true)
		w.update(m)
		w.both("app")
		made = w.madeMap("app")
		if len(made.Data) != 1 || made.Data["b"] != "2" || made.Labels["app"] != "" || made.Immutable == nil || !owned(made, w.name, w.home) {
			t.Errorf("%+v", made)
		}
	})
	t.Run("made anew at home", func(t *testing.T) { // the only way to change it now
		w.remove(m)
		m = configMap(w.home, "app", map[string]string{"c": "3"})
		w.create(m)
		w.both("app")
		w.both("app")
		if made = w.madeMap("app"); made.Data["c"] != "3" || made.Immutable != nil {
			t.Errorf("%+v", made)
		}
	})
	t.Run("changed by hand", func(t *testing.T) {
		made.Data, made.Labels["theirs"] = map[string]string{"c": "4", "d": "5"}, "x"
		w.update(made)
		w.both("app")
		if made = w.madeMap("app"); len(made.Data) != 1 || made.Data["c"] != "3" || made.Labels["theirs"] != "x" {
			t.Errorf("%+v", made)
		}
		w.remove(made)
		w.both("app")
		if w.madeMap("app") == nil {
			t.Error("deleted by hand, and not made again")
		}
	})
	t.Run("away", func(t *testing.T) {
		w.state.Reachable = false
		m.Data["c"] = "5"
		w.update(m)
		w.both("app")
		if w.madeMap("app").Data["c"] != "3" {
			t.Error("a provider that is away was written to")
		}
		w.state.Reachable = true
		w.both("app")
		if w.madeMap("app").Data["c"] != "5" {
			t.Error("it does not follow when the provider is back")
		}
	})
	w.remove(pod)
	w.both("app")
	w.clock.Step(grace)
	w.both("app")
	if w.send("app"); w.shadow("app") != nil || w.madeMap("app") != nil || w.consumer.notes.count()+w.provider.notes.count() != 0 {
		t.Error("it stays though no pod refers to it")
	}
	if w.told("") != 0 {
		t.Error("events though all went well")
	}
}

// TestConfigMapConflict: one that is there already stays as it is, and that is said on the
// object and on the pod.
func TestConfigMapConflict(t *testing.T) {
	t.Parallel()
	w := newMaps(t)
	theirs := configMap(w.remote, "app", map[string]string{"a": "theirs"})
	w.create(theirs)
	w.create(configMap(w.home, "app", map[string]string{"a": "ours"}))
	w.readsMaps("web", false, "app")
	w.both("app")
	w.both("app")
	w.both("app")
	if w.madeMap("app").ResourceVersion != theirs.ResourceVersion || w.answer("app") != "False/NameTaken" || w.told("another name") != 2 {
		t.Error("a foreign ConfigMap was touched, or not told once on both")
	}
	w.remove(theirs)
	w.both("app")
	if w.madeMap("app").Data["a"] != "ours" || w.answer("app") != "True/Ready" {
		t.Error("not made when the name is free")
	}
}

// TestConfigMapStays: what is too large, missing or wanted by nobody.
func TestConfigMapStays(t *testing.T) {
	t.Parallel()
	w := newMaps(t)
	big := configMap(w.home, "big", map[string]string{"a": strings.Repeat("\x01", 400<<10)})
	w.create(big)
	w.readsMaps("web", false, "big", "missing")
	w.readsMaps("soft", true, "missing")
	w.both("big")
	w.both("big")
	if w.shadow("big") != nil || w.told("as JSON, at most 2211744") != 2 {
		t.Error("the bound does not hold, or is not said")
	}
	big.Data["a"] = big.Data["a"][:14<<10] // six times that as JSON
	w.update(big)
	w.both("big")
	if made := w.madeMap("big"); made == nil || made.Data["a"] != big.Data["a"] {
		t.Error("as large as can be, and it does not travel")
	}
	w.both("missing")
	if w.told("no such ConfigMap") != 1 {
		t.Error("a pod that can do without was told, or the other one was not")
	}
	w.remove(big)
	w.both("big")
	if w.shadow("big") != nil || w.madeMap("big") != nil {
		t.Error("deleted at home, and it stays there")
	}
}

// TestConfigMapNotAdmitted: the provider tries again what its API server refuses, ever
// more seldom.
func TestConfigMapNotAdmitted(t *testing.T) {
	t.Parallel()
	w := newMaps(t)
	w.create(configMap(w.home, "app", nil))
	w.readsMaps("web", false, "app")
	w.fail = func(verb string, obj client.Object) error {
		if _, ok := obj.(*corev1.ConfigMap); ok && verb == "create" {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "app", nil)
		}
		return nil
	}
	w.both("app")
	first, second := w.take("app"), w.take("app")
	if w.answer("app") != "False/NotAdmitted" || second.RequeueAfter <= first.RequeueAfter {
		t.Errorf("%s %v %v", w.answer("app"), first, second)
	}
	w.fail = nil
	w.both("app")
	if got := w.shadow("app").Status.Ref; w.madeMap("app") == nil || got == nil || *got != (v1alpha1.ObjectRef{Namespace: w.remote, Name: "app"}) {
		t.Errorf("not made afterwards: %v", got)
	}
}
