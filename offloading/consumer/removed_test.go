package consumer

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
)

// TestRemoved holds what becomes of a pod whose provider removed it for good.
func TestRemoved(t *testing.T) {
	for kind, evicted := range map[string]bool{"": false, "ReplicaSet": true, "Job": false} {
		for _, forgetful := range []bool{false, true} {
			w := newWorld(t)
			p := w.runs("web", func(p *corev1.Pod) {
				if kind != "" {
					owned(kind)(p)
				}
				p.Finalizers = []string{"example.org/look"}
			})
			w.drop(w.shadow(p))
			w.reconcile(p)
			if got := w.now(p); got.Status.Phase != corev1.PodRunning {
				t.Errorf("%s: it is %s while the provider ends it", kind, got.Status.Phase)
			}
			w.release(string(p.UID))
			if forgetful {
				w.restart()
			}
			w.reconcile(p)
			w.reconcile(p)
			got := w.now(p)
			if got.Status.Phase != corev1.PodFailed || condition(got, corev1.DisruptionTarget).Status != corev1.ConditionTrue || (got.DeletionTimestamp != nil) != evicted || w.made != 1 {
				t.Errorf("%q (restarted: %v): %s, deleted %v, %d made", kind, forgetful, got.Status.Phase, got.DeletionTimestamp, w.made)
			}
			if list := w.refused(); (len(list) == 1) != evicted || evicted && list[0].Reason != reasonRemoved {
				t.Errorf("%q (restarted: %v): remembered: %+v", kind, forgetful, list)
			}
			got.Finalizers = nil
			_ = w.admin.Update(ctx, got)
		}
	}
}

// TestEndedThere holds that a provider which ends a pod that cannot end by itself is avoided by its owner's next ones,
// and not one which says that it has taken it away, as earlier builds do of one that kept crashing.
func TestEndedThere(t *testing.T) {
	const init = "ReplicaSet, one that runs before may fail for good"
	for kind, evicted := range map[string]bool{"": false, "ReplicaSet": true, "Job": false, "StatefulSet": false, init: false} {
		w := newWorld(t)
		p := w.runs("web", func(p *corev1.Pod) {
			if owner, _, _ := strings.Cut(kind, ","); owner != "" {
				owned(owner)(p)
			}
			if kind == init {
				p.Spec.InitContainers = []corev1.Container{{Name: "setup", Image: "i", RestartPolicy: new(corev1.ContainerRestartPolicyNever)}}
			}
		})
		s := ended(corev1.PodFailed, 1)
		if kind == "StatefulSet" {
			s.Conditions = append(s.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, LastTransitionTime: began})
		}
		w.tell(p, s, accepted(metav1.ConditionTrue, v1alpha1.ReasonRunning, ""))
		for range 3 {
			w.reconcile(p)
		}
		if list := w.refused(); (w.now(p) == nil || w.now(p).DeletionTimestamp != nil) != evicted || (len(list) == 1) != evicted || evicted && list[0].Reason != reasonEnded {
			t.Errorf("%q: remembered %+v, there is %v", kind, list, w.now(p))
		}
	}
}

// TestRemovedAgain holds that a provider that takes pods and removes them at once does not end their
// owner's record by that: the next ones come to it less and less often.
func TestRemovedAgain(t *testing.T) {
	w := newWorld(t)
	owner := sameOwner()
	for i := range 3 {
		p := w.runs("web", owner)
		if list := w.refused(); len(list) != min(i, 1) {
			t.Errorf("round %d, running: remembered %+v", i, list)
		}
		w.drop(w.shadow(p))
		w.release(string(p.UID))
		for range 3 {
			w.reconcile(p)
		}
		if list := w.refused(); w.now(p) != nil || len(list) != 1 || list[0].Reason != reasonRemoved {
			t.Errorf("round %d, removed: remembered %+v, there is %v", i, list, w.now(p))
		}
	}
}

// TestMirrorBehind holds that a mirror that does not show what was written leads to
// nothing twice, and that one that never does is not waited for.
func TestMirrorBehind(t *testing.T) {
	w := newWorld(t)
	p := w.pod("web")
	w.peer.hidden[string(p.UID)] = true
	w.reconcile(p)
	if res := w.reconcile(p); w.writes["there create"] != 1 || res.RequeueAfter == 0 {
		t.Errorf("created %d times, again in %s", w.writes["there create"], res.RequeueAfter)
	}
	w.clock.Step(behind)
	w.reconcile(p)
	if w.writes["there create"] != 2 || w.made != 1 {
		t.Errorf("later: asked %d times, made %d", w.writes["there create"], w.made)
	}
	w.delete(p)
	if res := w.reconcile(p); w.now(p) == nil || w.shadow(p).DeletionTimestamp == nil || res.RequeueAfter == 0 {
		t.Error("the end was not asked for, or the home pod went first")
	}
	w.release(string(p.UID))
	if w.reconcile(p); w.now(p) != nil {
		t.Error("the home pod stays")
	}
	// A provider's mirror that lost sight of a pod does not end it.
	q := w.runs("other")
	w.peer.hidden[string(q.UID)] = true
	w.reconcile(q)
	if got := w.now(q); got.Status.Phase != corev1.PodRunning {
		t.Errorf("a pod that is there is %s", got.Status.Phase)
	}
}

// TestChanges holds that changes of the pod reach the provider, and no others.
func TestChanges(t *testing.T) {
	w := newWorld(t)
	p := w.runs("web")
	earlier := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"pelago.dev/applied":"of what was","kept":"k"}}}`))
	if err := w.admin.Patch(ctx, w.shadow(p), earlier); err != nil {
		t.Fatal(err)
	}
	before := w.shadow(p)
	patch := []byte(`{"metadata":{"labels":{"app":null,"color":"blue"}},"spec":{"containers":[{"name":"web","image":"example.org/web:2"}]}}`)
	if err := w.admin.Patch(ctx, w.now(p), client.RawPatch("application/strategic-merge-patch+json", patch)); err != nil {
		t.Fatal(err)
	}
	w.reconcile(p)
	after := w.shadow(p)
	if diff := cmp.Diff(map[string]string{"color": "blue"}, after.Spec.Labels); diff != "" {
		t.Errorf("labels (-want +got)\n%s", diff)
	}
	if !strings.Contains(after.Spec.Pod, "web:2") || after.Generation == before.Generation || askedBy(after) == askedBy(before) {
		t.Errorf("the image did not follow: %s", after.Spec.Pod)
	}
	if diff := cmp.Diff(map[string]string{"kept": "k"}, after.Annotations); diff != "" {
		t.Errorf("annotations (-want +got)\n%s", diff)
	}
	if w.reconcile(p); w.writes["there patch"] != 1 {
		t.Errorf("%d patches", w.writes["there patch"])
	}
	// An answer about what was before is not one.
	old := accepted(metav1.ConditionFalse, v1alpha1.ReasonRefused, "x")
	old.ObservedGeneration = before.Generation
	w.tell(p, running(), old)
	if w.reconcile(p); w.now(p).Status.Reason != "" {
		t.Errorf("an old answer counts: %+v", w.now(p).Status)
	}
}

// TestConditionsOfOthers holds that a status written from an old copy leaves alone what
// others wrote meanwhile.
func TestConditionsOfOthers(t *testing.T) {
	w := newWorld(t)
	p := w.pod("web", func(p *corev1.Pod) {
		p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.org/gate"}}
	})
	w.reconcile(p)
	w.tell(p, running(), accepted(metav1.ConditionTrue, v1alpha1.ReasonRunning, ""))
	old := w.now(p)
	f, _, err := w.pods.gather(ctx, old)
	if err != nil {
		t.Fatal(err)
	}
	fresh := w.now(p)
	fresh.Status.Conditions = append(fresh.Status.Conditions, corev1.PodCondition{Type: "example.org/gate", Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()})
	if err := w.admin.Status().Update(ctx, fresh); err != nil {
		t.Fatal(err)
	}
	if _, err := w.pods.apply(ctx, f, w.peer, decide(*f)); err != nil {
		t.Fatal(err)
	}
	got := w.now(p)
	if condition(got, "example.org/gate").Status != corev1.ConditionTrue || got.Status.Phase != corev1.PodRunning {
		t.Errorf("conditions %+v", got.Status.Conditions)
	}
	if w.reconcile(p); condition(w.now(p), corev1.PodReady).Status != corev1.ConditionTrue {
		t.Errorf("the gate is open and the pod is not ready")
	}
}

// TestForbidden holds that a provider that refuses this cluster is asked again, and
// holds up an end only as long as one that is away.
func TestForbidden(t *testing.T) {
	w := newWorld(t)
	p := w.runs("web")
	w.peer.state = denying
	w.peer.state.Since = w.clock.Now()
	w.fail = func(_ int, call string) (error, error) {
		if strings.HasPrefix(call, "there") {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "shadowpods"}, "x", errors.New("no")), nil
		}
		return nil, nil
	}
	w.delete(p)
	if res := w.reconcile(p); w.now(p) == nil || res.RequeueAfter < refusedRetry/2 {
		t.Errorf("again in %s", res.RequeueAfter)
	}
	w.drop(&v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: w.peering}})
	w.clock.Step(patience + time.Second)
	if w.reconcile(p); w.now(p) != nil {
		t.Error("the pod stays for ever")
	}
}

// TestUncounted holds that a quota without a count delays a pod by a moment, not by the
// time after which a provider is asked that refuses.
func TestUncounted(t *testing.T) {
	w := newWorld(t)
	p := w.pod("web")
	fails := true
	w.fail = func(_ int, call string) (error, error) {
		if fails && strings.HasPrefix(call, "there") {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "shadowpods"}, "x", errors.New("status unknown for quota: pelago, resources: count/shadowpods.pelago.dev")), nil
		}
		return nil, nil
	}
	if res := w.reconcile(p); res.RequeueAfter == 0 || res.RequeueAfter > 2*uncountedRetry || w.shadow(p) != nil {
		t.Errorf("again in %s", res.RequeueAfter)
	}
	fails = false
	if w.reconcile(p); w.shadow(p) == nil {
		t.Error("the pod is not carried when the quota counts")
	}
}

// TestDenied holds that a pod which was just made asks a provider that refuses it again
// in a moment, and then less and less often.
func TestDenied(t *testing.T) {
	w := newWorld(t)
	p := w.pod("web")
	fails := true
	w.fail = func(_ int, call string) (error, error) {
		if fails && strings.HasPrefix(call, "there") {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "shadowpods"}, "x", errors.New("no")), nil
		}
		return nil, nil
	}
	made := p.CreationTimestamp.Time
	for _, after := range []struct{ age, least, most time.Duration }{
		{0, uncountedRetry / 2, 2 * uncountedRetry},
		{8 * time.Second, 4 * time.Second, 12 * time.Second},
		{10 * time.Minute, refusedRetry / 2, 2 * refusedRetry},
	} {
		w.clock.SetTime(made.Add(after.age))
		if res := w.reconcile(p); res.RequeueAfter < after.least || res.RequeueAfter > after.most || w.shadow(p) != nil {
			t.Errorf("%s after it was made: again in %s, want %s to %s", after.age, res.RequeueAfter, after.least, after.most)
		}
	}
	fails = false
	if w.reconcile(p); w.shadow(p) == nil {
		t.Error("the pod is not carried when the provider lets it in")
	}
}

// TestOrphanOfNobody holds that a ShadowPod with no readable home is ended.
func TestOrphanOfNobody(t *testing.T) {
	w := newWorld(t)
	s := &v1alpha1.ShadowPod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.peer.namespace, Name: string(uuid.NewUUID())},
		Spec:       v1alpha1.ShadowPodSpec{Home: v1alpha1.HomePod{Namespace: w.home, Name: "never-was"}, Request: "default", Pod: "{}"},
	}
	w.make(s)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: schemaUID(s.Name)}}
	w.peer.state = silent
	if w.look(p); w.shadow(p) == nil {
		t.Error("ended over a cut link")
	}
	w.peer.state = answering
	if keys := w.orphans.of(w.peering); len(keys) != 1 || keys[0] != shadowAt(w.peering, s.Name) {
		t.Errorf("back: %v", keys)
	}
	if w.look(p); w.shadow(p) != nil {
		t.Error("it stays")
	}
	w.look(p)
}

// stale is a cache that has not seen anything yet.
type stale struct{ client.Client }

func (stale) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "x")
}

// TestCacheBehind holds that an old cache neither ends a pod that lives nor changes a
// last phase that was written.
func TestCacheBehind(t *testing.T) {
	w := newWorld(t)
	p := w.runs("web")
	w.orphans.client = stale{w.admin}
	if w.look(p); w.shadow(p).DeletionTimestamp != nil {
		t.Error("the pod of a living home pod was ended")
	}
	w.pods.ledger.ended(client.ObjectKeyFromObject(p), p.UID, w.peering)
	w.tell(p, ended(corev1.PodRunning, 1), accepted(metav1.ConditionTrue, v1alpha1.ReasonRunning, ""))
	writes := w.total
	if w.reconcile(p); w.total != writes {
		t.Error("something was written after the end")
	}
}

// TestDaemonsAreOthers holds that pods of DaemonSets which the room of virtual nodes answers
// for, in namespaces that are not offloaded and those that tolerate everything, are never
// written here: the two would undo each other's answers without end.
func TestDaemonsAreOthers(t *testing.T) {
	t.Run("not offloaded", func(t *testing.T) { daemonIsOthers(t, false) })
	t.Run("tolerates everything", func(t *testing.T) { daemonIsOthers(t, true, tolerant) })
}

func daemonIsOthers(t *testing.T, offloaded bool, edit ...func(*corev1.Pod)) {
	w := newWorld(t)
	w.label(offloaded)
	p := w.pod("daemon", append(edit, owned("DaemonSet"))...)
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
		{Type: corev1.PodReady, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonVirtualNode, LastTransitionTime: metav1.Now()},
	}}
	if err := w.admin.Status().Update(ctx, p); err != nil {
		t.Fatal(err)
	}
	for name, state := range map[string]fleet.State{"up": answering, "away": silent, "starting": starting, "refusing": denying} {
		w.peer.state = state
		w.reconcile(p)
		if w.total > 0 {
			t.Fatalf("%s: written %v: %+v", name, w.writes, w.now(p).Status)
		}
	}
	w.delete(p)
	if w.reconcile(p); w.total > 0 {
		t.Errorf("at its end: written %v", w.writes)
	}
}

// What a provider calls a home pod is its word: it never becomes a part of a path that
// it could choose.
func TestLivesByNamesOnly(t *testing.T) {
	asked := false
	reader := interceptor.NewClient(nil, interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
		asked = true
		return errors.New("asked")
	}})
	for _, home := range []client.ObjectKey{{}, {Namespace: "shop", Name: "a/b"}, {Namespace: "shop", Name: "a%2e"}, {Namespace: "a/b", Name: "web"}, {Namespace: "..", Name: "web"}} {
		if is, err := living(t.Context(), reader, home, "u"); is != nil || err != nil || asked {
			t.Errorf("%s: %v, %v, asked %v", home, is, err, asked)
		}
	}
	if _, err := living(t.Context(), reader, client.ObjectKey{Namespace: "shop", Name: "web-0"}, "u"); err == nil || !asked {
		t.Errorf("a good name is not asked for: %v", err)
	}
}
