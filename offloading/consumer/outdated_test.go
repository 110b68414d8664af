package consumer

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/offloading/admission"
)

// avoiding makes a pod one that admission has kept off nodes, and that is not bound.
func avoiding(nodes ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.NodeName = ""
		term := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: v1alpha1.LabelType, Operator: corev1.NodeSelectorOpIn, Values: []string{v1alpha1.TypeVirtualNode}}}}
		text := ""
		for i, n := range nodes {
			term.MatchFields = append(term.MatchFields, corev1.NodeSelectorRequirement{Key: "metadata.name", Operator: corev1.NodeSelectorOpNotIn, Values: []string{n}})
			if i > 0 {
				text += ","
			}
			text += n
		}
		p.Annotations = map[string]string{admission.AnnotationAvoids: text}
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{term}}}}
	}
}

// passedOver is what the scheduler says of a pod that fits nowhere.
func passedOver(p *corev1.Pod) {
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
}

func ownedBy(kind string, uid types.UID) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		owned(kind)(p)
		p.OwnerReferences[0].UID = uid
	}
}

// remote lets the pods of the home namespace run only at nodes of this world.
func (w *world) remote() {
	w.t.Helper()
	o := &v1alpha1.NamespaceOffloading{}
	if err := w.admin.Get(ctx, client.ObjectKey{Namespace: w.home, Name: v1alpha1.OffloadingName}, o); err != nil {
		w.t.Fatal(err)
	}
	o.Spec.PodOffloadingStrategy = v1alpha1.PodsRemote
	o.Spec.ClusterSelector = &v1alpha1.ClusterSelector{NodeSelectorTerms: []v1alpha1.ClusterSelectorTerm{{
		MatchExpressions: []v1alpha1.ClusterRequirement{{Key: "world", Operator: "In", Values: []string{w.peering}}}}}}
	if err := w.admin.Update(ctx, o); err != nil {
		w.t.Fatal(err)
	}
}

// second makes another virtual node, of another peering.
func (w *world) second() string {
	w.t.Helper()
	name := w.peering + "-2"
	w.make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PeeringNamespace(name)}})
	w.make(&v1alpha1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.PeeringNamespace(name), Name: v1alpha1.NamespaceMapName}})
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		v1alpha1.LabelType: v1alpha1.TypeVirtualNode, v1alpha1.LabelPeering: name, v1alpha1.LabelRequest: v1alpha1.DefaultRequestName, "world": w.peering,
	}}}
	w.make(node)
	w.t.Cleanup(func() {
		_ = w.admin.Delete(ctx, node)
		_ = w.admin.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PeeringNamespace(name)}})
	})
	return name
}

// refuses writes that a node refuses an owner for some time, or does not if that is 0.
func (w *world) refuses(node string, owner types.UID, d time.Duration) {
	w.t.Helper()
	m := &v1alpha1.NamespaceMap{}
	if err := w.admin.Get(ctx, mapKey(node), m); err != nil {
		w.t.Fatal(err)
	}
	m.Status.Refusals = nil
	if d > 0 {
		m.Status.Refusals = []v1alpha1.Refusal{{Owner: string(owner), Node: node, Count: 1, Until: metav1.NewTime(w.clock.Now().Add(d))}}
	}
	if err := w.admin.Status().Update(ctx, m); err != nil {
		w.t.Fatal(err)
	}
}

// TestHeld: a refused pod stays with the provider as long as there is no other place,
// and goes when there is one.
func TestHeld(t *testing.T) {
	held := func(t *testing.T) (*world, *corev1.Pod, types.UID) {
		w := newWorld(t)
		w.remote()
		owner := uuid.NewUUID()
		p := w.pod("web", ownedBy("ReplicaSet", owner))
		w.reconcile(p)
		w.tell(p, nil, accepted(metav1.ConditionFalse, v1alpha1.ReasonLimitExceeded, "the limit is reached"))
		for range 2 {
			if res := w.reconcile(p); res.RequeueAfter != 0 {
				t.Errorf("nothing can come of time, and it looks again in %s", res.RequeueAfter)
			}
		}
		got := w.now(p)
		if got.DeletionTimestamp != nil || got.Status.Reason != v1alpha1.ReasonLimitExceeded || len(w.refused()) > 0 || len(w.recorded.Events) != 1 {
			t.Fatalf("deleted %v, %q, remembered %v, %d events", got.DeletionTimestamp, got.Status.Reason, w.refused(), len(w.recorded.Events))
		}
		return w, p, owner
	}
	gone := func(t *testing.T, w *world, p *corev1.Pod) {
		t.Helper()
		w.reconcile(p)
		if w.now(p).DeletionTimestamp == nil || len(w.refused()) != 1 || !w.refused()[0].Until.After(w.clock.Now()) {
			t.Errorf("it stays; remembered: %v", w.refused())
		}
	}
	t.Run("the provider takes it after all", func(t *testing.T) {
		w, p, _ := held(t)
		w.tell(p, running(), accepted(metav1.ConditionTrue, v1alpha1.ReasonRunning, ""))
		w.reconcile(p)
		if got := w.now(p); got.Status.Phase != corev1.PodRunning || got.Status.Reason != "" {
			t.Errorf("it runs, and says %q", got.Status.Reason)
		}
	})
	t.Run("another node", func(t *testing.T) {
		w, p, _ := held(t)
		w.second()
		gone(t, w, p)
	})
	t.Run("another node that refuses too, for a while", func(t *testing.T) {
		w, p, owner := held(t)
		w.refuses(w.second(), owner, time.Minute)
		if res := w.reconcile(p); res.RequeueAfter != time.Minute || w.now(p).DeletionTimestamp != nil {
			t.Fatalf("again in %s, deleted %v", res.RequeueAfter, w.now(p).DeletionTimestamp)
		}
		w.clock.Step(time.Minute)
		gone(t, w, p)
	})
	t.Run("another owner is refused there", func(t *testing.T) {
		w, p, _ := held(t)
		w.refuses(w.second(), "other", time.Minute)
		gone(t, w, p)
	})
	t.Run("home", func(t *testing.T) {
		w, p, _ := held(t)
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"podOffloadingStrategy":"LocalAndRemote"}}`))
		if err := w.admin.Patch(ctx, &v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: w.home, Name: v1alpha1.OffloadingName}}, patch); err != nil {
			t.Fatal(err)
		}
		gone(t, w, p)
	})
}

// TestRemake: which unscheduled pods are ended, and when to look again.
func TestRemake(t *testing.T) {
	later := noon.Add(10 * time.Minute)
	for _, c := range []struct {
		reason   string
		excluded []string
		avoided  []string
		until    time.Time
		age      time.Duration
		last     time.Time
		end      bool
		again    time.Duration
	}{
		{"still refused", []string{"milan"}, []string{"milan"}, later, time.Hour, time.Time{}, false, 10 * time.Minute},
		{"still too small", []string{"milan"}, []string{"milan"}, time.Time{}, time.Hour, time.Time{}, false, 0},
		{"over, or gone, or the last one left", []string{"milan"}, nil, time.Time{}, time.Hour, time.Time{}, true, 0},
		{"one is over and one never is", []string{"milan", "oslo"}, []string{"oslo"}, time.Time{}, time.Hour, time.Time{}, true, 0},
		{"both hold", []string{"milan", "oslo"}, []string{"oslo", "milan"}, later, time.Hour, time.Time{}, false, 10 * time.Minute},
		{"others are avoided now", []string{"milan"}, []string{"oslo"}, later, time.Hour, time.Time{}, true, 0},
		{"too young", []string{"milan"}, nil, time.Time{}, 10 * time.Second, time.Time{}, false, 20 * time.Second},
		{"made by a clock ahead of ours", []string{"milan"}, nil, time.Time{}, -time.Hour, time.Time{}, false, remadeEvery},
		{"one of its owner was ended a moment ago", []string{"milan"}, nil, time.Time{}, time.Hour, noon.Add(-time.Second), false, 29 * time.Second},
		{"one of its owner was ended before", []string{"milan"}, nil, time.Time{}, time.Hour, noon.Add(-remadeEvery), true, 0},
		{"nothing is excluded", nil, nil, later, time.Hour, time.Time{}, false, 0},
		{"the end is a moment ago", []string{"milan"}, []string{"milan"}, noon.Add(-time.Second), time.Hour, time.Time{}, false, time.Second},
	} {
		p := template("shop", "web", "")
		avoiding(c.excluded...)(p)
		p.CreationTimestamp = metav1.NewTime(noon.Add(-c.age))
		end, again := remake(p, admission.Choice{Avoided: c.avoided, Until: c.until}, c.last, noon)
		if end != c.end || again != c.again {
			t.Errorf("%s: end %t, again %s", c.reason, end, again)
		}
	}
}

// TestUnscheduled: which pods are looked at.
func TestUnscheduled(t *testing.T) {
	for _, c := range []struct {
		reason string
		edit   func(*corev1.Pod)
		want   []string
	}{
		{"as it should be", func(*corev1.Pod) {}, []string{hopingUnbound}},
		{"bare", func(p *corev1.Pod) { p.OwnerReferences = nil }, nil},
		{"of a Job", owned("Job"), []string{hopingUnbound}},
		{"of a DaemonSet", owned("DaemonSet"), nil},
		{"bound", func(p *corev1.Pod) { p.Spec.NodeName = "milan" }, nil},
		{"bound and refused", func(p *corev1.Pod) { p.Spec.NodeName, p.Status.Reason = "milan", "LimitExceeded" }, []string{hopingBound}},
		{"bound, bare and refused", func(p *corev1.Pod) {
			p.Spec.NodeName, p.Status.Reason, p.OwnerReferences = "milan", "LimitExceeded", nil
		}, nil},
		{"bound and over", func(p *corev1.Pod) {
			p.Spec.NodeName, p.Status.Reason, p.Status.Phase = "milan", "Evicted", corev1.PodFailed
		}, nil},
		{"being deleted", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: noon} }, nil},
		{"nothing is avoided", func(p *corev1.Pod) { p.Annotations = nil }, nil},
		{"not looked at by the scheduler", func(p *corev1.Pod) { p.Status.Conditions = nil }, nil},
		{"held by a gate", func(p *corev1.Pod) { p.Status.Conditions[0].Reason = corev1.PodReasonSchedulingGated }, nil},
	} {
		p := template("shop", "web", "")
		avoiding("milan")(p)
		owned("ReplicaSet")(p)
		passedOver(p)
		c.edit(p)
		if got := indexHoping(p); len(got) != len(c.want) || len(got) > 0 && got[0] != c.want[0] {
			t.Errorf("%s: %v, want %v", c.reason, got, c.want)
		}
	}
}

// unplaced is a pod that the scheduler has passed over.
func (w *world) unplaced(name string, edit ...func(*corev1.Pod)) *corev1.Pod {
	w.t.Helper()
	p := w.pod(name, edit...)
	passedOver(p)
	if err := w.admin.Status().Update(ctx, p); err != nil {
		w.t.Fatal(err)
	}
	return p
}

// TestOutdated goes through what becomes of pods that wait under terms of earlier.
func TestOutdated(t *testing.T) {
	w := newWorld(t)
	w.remote()
	w.second()
	owner := uuid.NewUUID()
	replica := ownedBy("ReplicaSet", owner)
	one, two := w.unplaced("one", replica, avoiding(w.node)), w.unplaced("two", replica, avoiding(w.node))
	job := w.unplaced("job", ownedBy("Job", owner), avoiding(w.node))
	w.refuses(w.node, owner, 2*time.Minute)
	look := func(p *corev1.Pod) time.Duration {
		t.Helper()
		res, err := w.outdated.Reconcile(ctx, request(p))
		if err != nil {
			t.Fatal(err)
		}
		return res.RequeueAfter
	}
	if again := look(one); again != 2*time.Minute || w.now(one) == nil {
		t.Fatalf("still refused: again in %s", again)
	}
	w.clock.Step(2 * time.Minute)
	w.label(false)
	if look(one); w.now(one) == nil {
		t.Fatal("a pod of a namespace that is not offloaded was ended")
	}
	w.label(true)

	// It changes while we look, as when it is being bound.
	w.fail = func(_ int, call string) (error, error) {
		if call == "here delete" {
			patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"a":"b"}}}`))
			if err := w.admin.Patch(ctx, w.now(one), patch); err != nil {
				t.Error(err)
			}
		}
		return nil, nil
	}
	if again := look(one); again <= 0 || w.now(one) == nil {
		t.Fatalf("a pod that had changed was ended; again in %s", again)
	}
	w.fail = nil
	w.clock.Step(remadeEvery)
	look(job)
	if look(one); w.now(one) != nil || w.now(job) == nil {
		t.Fatal("it stays, or the one of a Job does not")
	}
	look(one) // which is gone
	if again := look(two); again != remadeEvery || w.now(two) == nil {
		t.Errorf("the next of the same owner at once; again in %s", again)
	}
	other := w.unplaced("other", owned("StatefulSet"), avoiding(w.node))
	if look(other); w.now(other) != nil {
		t.Error("another owner has to wait for the first")
	}
	w.clock.Step(remadeEvery)
	if look(two); w.now(two) != nil {
		t.Error("the next of the same owner stays")
	}

	// The last place left is not avoided any more, though its refusal holds.
	three := w.unplaced("three", replica, avoiding(w.node))
	w.refuses(w.node, owner, time.Hour)
	w.clock.Step(remadeEvery)
	if again := look(three); again <= 0 || w.now(three) == nil {
		t.Fatalf("there is another place; again in %s", again)
	}
	w.drop(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.peering + "-2"}})
	if look(three); w.now(three) != nil {
		t.Error("it avoids the only node there is")
	}
	if len(w.outdated.last) > 2 {
		t.Errorf("%d owners are remembered", len(w.outdated.last))
	}
}
