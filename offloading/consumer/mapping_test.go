package consumer

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// mapped lets the home namespace have a place at the provider, or leave it. What is
// stored first is seen last here, as caches may.
func (w *world) mapped(is bool) {
	w.t.Helper()
	names, required := []string{"other"}, metav1.ConditionFalse
	if is {
		names, required = []string{w.home, "other"}, metav1.ConditionTrue
	}
	w.entries(names...)
	w.required(required)
}

// entries makes the NamespaceMap hold these namespaces.
func (w *world) entries(namespaces ...string) {
	w.t.Helper()
	m := &v1alpha1.NamespaceMap{}
	if err := w.admin.Get(ctx, mapKey(w.peering), m); err != nil {
		w.t.Fatal(err)
	}
	m.Spec.Namespaces = map[string]v1alpha1.NamespaceMapping{}
	for _, n := range namespaces {
		m.Spec.Namespaces[n] = v1alpha1.NamespaceMapping{Strategy: v1alpha1.MappingDefaultName}
	}
	if err := w.admin.Update(ctx, m); err != nil {
		w.t.Fatal(err)
	}
}

// required stores whether the offloading needs the cluster; nothing of it if empty.
func (w *world) required(is metav1.ConditionStatus) {
	w.t.Helper()
	o := &v1alpha1.NamespaceOffloading{}
	if err := w.admin.Get(ctx, client.ObjectKey{Namespace: w.home, Name: v1alpha1.OffloadingName}, o); err != nil {
		w.t.Fatal(err)
	}
	o.Status.Clusters = nil
	if is != "" {
		o.Status.Clusters = []v1alpha1.ClusterOffloading{{Name: w.peering, Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionOffloadingRequired, Status: is, Reason: v1alpha1.ReasonSelected, LastTransitionTime: metav1.Now()}}}}
	}
	if err := w.admin.Status().Update(ctx, o); err != nil {
		w.t.Fatal(err)
	}
}

// TestOutlived holds when what runs at a provider is ended though its home pod lives:
// when the mapping of its namespace is gone, or, of a DaemonSet, when the namespace is
// not offloaded.
func TestOutlived(t *testing.T) {
	for _, c := range []struct {
		reason            string
		kind              string
		offloaded, mapped bool
		ended             bool
	}{
		{"a DaemonSet's, offloaded", "DaemonSet", true, true, false},
		{"a DaemonSet's, on its way home", "DaemonSet", false, true, true},
		{"a DaemonSet's, at a cluster that was left", "DaemonSet", true, false, true},
		{"a ReplicaSet's that has its time to leave", "ReplicaSet", false, true, false},
		{"a ReplicaSet's that stays", "ReplicaSet", false, false, true},
		{"a ReplicaSet's at a cluster that was left", "ReplicaSet", true, false, true},
	} {
		t.Run(c.reason, func(t *testing.T) {
			w := newWorld(t)
			p := w.runs("web", owned(c.kind))
			w.label(c.offloaded)
			w.mapped(c.mapped)
			w.look(p)
			if ended := w.shadow(p).DeletionTimestamp != nil; ended != c.ended {
				t.Fatalf("ended: %v", ended)
			}
			if !c.ended {
				return
			}
			w.release(string(p.UID))
			w.reconcile(p)
			w.reconcile(p)
			got := w.now(p)
			if c.kind == "DaemonSet" && !c.offloaded {
				if got.Status.Phase != corev1.PodRunning || got.DeletionTimestamp != nil {
					t.Errorf("what the room of virtual nodes answers for was touched: %+v", got.Status)
				}
				return
			}
			if c.kind == "ReplicaSet" {
				w.reconcile(p)
				if got = w.now(p); got != nil && got.DeletionTimestamp == nil {
					t.Errorf("it does not come home: %+v", got.Status)
				}
				return
			}
			if got.Status.Phase != corev1.PodFailed || got.Status.Reason != reasonUnmapped {
				t.Errorf("it says %+v", got.Status)
			}
		})
	}
}

// TestUnmapped holds that nothing is made at a provider for a namespace that has no
// place there: it would be ended at once, and made again without end.
func TestUnmapped(t *testing.T) {
	w := newWorld(t)
	w.mapped(false)
	p := w.pod("web", owned("DaemonSet"))
	w.reconcile(p)
	w.reconcile(p)
	if got := w.now(p); w.shadow(p) != nil || got.Status.Reason != v1alpha1.ReasonNamespaceMissing || got.Status.Phase != corev1.PodPending {
		t.Errorf("it says %+v", got.Status)
	}
	if e := w.heard(); !strings.Contains(e, "OffloadingRefused") || w.total != 1 {
		t.Errorf("%d writes, event %q", w.total, e)
	}
	w.mapped(true)
	if w.reconcile(p); w.shadow(p) == nil {
		t.Error("it is not carried though its namespace has a place")
	}
}

// TestMapLost holds that what runs goes on while its NamespaceMap is missing, or is put
// together again and lacks its namespace: nothing has ended.
func TestMapLost(t *testing.T) {
	for _, kind := range []string{"DaemonSet", "ReplicaSet"} {
		w := newWorld(t)
		p := w.runs("web", owned(kind))
		goesOn := func(reason string) {
			t.Helper()
			w.look(p)
			w.reconcile(p)
			if s := w.shadow(p); s == nil || s.DeletionTimestamp != nil || w.now(p).Status.Phase != corev1.PodRunning {
				t.Fatalf("%s: the pod of a %s was ended", reason, kind)
			}
		}
		for _, said := range []metav1.ConditionStatus{metav1.ConditionTrue, ""} {
			w.entries("other")
			w.required(said)
			goesOn(fmt.Sprintf("the map holds another namespace only, required is %q", said))
		}
		m := &v1alpha1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.PeeringNamespace(w.peering), Name: v1alpha1.NamespaceMapName}}
		w.drop(m)
		w.required(metav1.ConditionFalse)
		goesOn("there is no map")
		m.ResourceVersion = ""
		w.make(m)
		if w.look(p); w.shadow(p).DeletionTimestamp == nil {
			t.Errorf("the cluster is left, and the pod of a %s runs on", kind)
		}
	}
}

// TestLeavesOrEnds holds which changes of an offloading wake pods: those by which a
// cluster is left, and no word more.
func TestLeavesOrEnds(t *testing.T) {
	at := func(is metav1.ConditionStatus, message string) *v1alpha1.NamespaceOffloading {
		return &v1alpha1.NamespaceOffloading{Status: v1alpha1.NamespaceOffloadingStatus{Clusters: []v1alpha1.ClusterOffloading{
			{Name: "milan", Conditions: []metav1.Condition{{Type: v1alpha1.ConditionOffloadingRequired, Status: is, Message: message}}}}}}
	}
	ends := at(metav1.ConditionTrue, "")
	ends.DeletionTimestamp = &metav1.Time{Time: noon}
	for _, c := range []struct {
		reason   string
		old, new *v1alpha1.NamespaceOffloading
		want     bool
	}{
		{"left", at(metav1.ConditionTrue, ""), at(metav1.ConditionFalse, ""), true},
		{"back", at(metav1.ConditionFalse, ""), at(metav1.ConditionTrue, ""), true},
		{"left, and never said to be needed", &v1alpha1.NamespaceOffloading{}, at(metav1.ConditionFalse, ""), true},
		{"other words", at(metav1.ConditionFalse, "a"), at(metav1.ConditionFalse, "b"), false},
		{"needed at last", &v1alpha1.NamespaceOffloading{}, at(metav1.ConditionTrue, ""), false},
		{"ends", at(metav1.ConditionTrue, ""), ends, true},
	} {
		if got := leavesOrEnds().Update(event.UpdateEvent{ObjectOld: c.old, ObjectNew: c.new}); got != c.want {
			t.Errorf("%s: %v", c.reason, got)
		}
	}
}

// awaitEnd waits until a ShadowPod is being ended.
func (w *world) awaitEnd(p *corev1.Pod) {
	w.t.Helper()
	w.await("the provider's pod of "+p.Name+" is ended", func() bool {
		s := &v1alpha1.ShadowPod{}
		err := w.admin.Get(ctx, client.ObjectKey{Namespace: w.peer.namespace, Name: string(p.UID)}, s)
		return client.IgnoreNotFound(err) == nil && (err != nil || s.DeletionTimestamp != nil)
	})
}
