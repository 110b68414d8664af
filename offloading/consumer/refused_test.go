package consumer

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestRefused holds what becomes of refused pods, by who owns them.
func TestRefused(t *testing.T) {
	no := accepted(metav1.ConditionFalse, v1alpha1.ReasonUnschedulable, "no node had room")
	for _, c := range []struct {
		reason  string
		kind    string
		policy  *batchv1.PodFailurePolicy
		evicted bool
	}{
		{"a bare pod stays", "", nil, false},
		{"a ReplicaSet makes another", "ReplicaSet", nil, true},
		{"a StatefulSet makes another", "StatefulSet", nil, true},
		{"a DaemonSet would make it on the same node", "DaemonSet", nil, false},
		{"a Job that counts failures", "Job", nil, false},
		{"a Job that fails by disruptions", "Job", policy(batchv1.PodFailurePolicyActionFailJob), false},
		{"a Job that ignores disruptions", "Job", policy(batchv1.PodFailurePolicyActionIgnore), true},
	} {
		t.Run(c.reason, func(t *testing.T) {
			w := newWorld(t)
			edit := func(p *corev1.Pod) {
				if c.kind != "" {
					owned(c.kind)(p)
				}
				if c.kind == "Job" {
					never1(p)
					p.OwnerReferences[0].UID = w.job(c.policy)
				}
			}
			p := w.pod("web", edit)
			w.reconcile(p)
			w.tell(p, nil, no)
			w.reconcile(p)
			w.reconcile(p) // and nothing is counted twice
			got := w.now(p)
			if c := condition(got, corev1.PodReady); got.Status.Reason != v1alpha1.ReasonUnschedulable || c.Reason != v1alpha1.ReasonUnschedulable || c.Message != "no node had room" {
				t.Errorf("the pod does not say why: %+v", got.Status)
			}
			if evicted := got.DeletionTimestamp != nil; evicted != c.evicted {
				t.Errorf("evicted %v", evicted)
			}
			list := w.refused()
			if (len(list) == 1) != c.evicted || c.evicted && (list[0].Count != 1 || list[0].Node != w.node || !list[0].Until.Time.Equal(w.clock.Now().Add(time.Minute))) {
				t.Errorf("remembered: %+v", list)
			}
			if c.evicted && condition(got, corev1.DisruptionTarget).Status != corev1.ConditionTrue {
				t.Error("the eviction is not in the pod's conditions")
			}
			if len(w.recorded.Events) != 1 || !strings.Contains(<-w.recorded.Events, "OffloadingRefused") {
				t.Error("not one event")
			}
			if c.evicted {
				w.reconcile(p)
				w.release(string(p.UID))
				w.reconcile(p)
				if w.now(p) != nil {
					t.Error("the evicted pod stays")
				}
				return
			}
			// It is taken after all.
			w.tell(p, running(), accepted(metav1.ConditionTrue, v1alpha1.ReasonRunning, ""))
			w.reconcile(p)
			if got := w.now(p); got.Status.Phase != corev1.PodRunning || got.Status.Reason != "" {
				t.Errorf("it runs, and says %+v", got.Status)
			}
		})
	}
}

func policy(action batchv1.PodFailurePolicyAction) *batchv1.PodFailurePolicy {
	return &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
		Action: action, OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}},
	}}}
}

func (w *world) job(p *batchv1.PodFailurePolicy) (uid schemaUID) {
	w.t.Helper()
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: w.home, Name: "owner"}, Spec: batchv1.JobSpec{
		PodFailurePolicy: p,
		Template:         corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "web", Image: "x"}}}},
	}}
	w.make(job)
	return job.UID
}

// TestRefusedAgain holds that a provider that changes its mind again and again, or never says the same
// twice, causes no more events than there are reasons, nor more than it may cause by warnings.
func TestRefusedAgain(t *testing.T) {
	w := newWorld(t)
	said := func() (n int) {
		for len(w.recorded.Events) > 0 {
			<-w.recorded.Events
			n++
		}
		return n
	}
	p, other := w.pod("web"), w.pod("other")
	w.reconcile(p)
	w.reconcile(other)
	refuse := func(p *corev1.Pod, reason string) {
		w.clock.Step(buryAgain)
		w.tell(p, nil, accepted(metav1.ConditionFalse, reason, "because"))
		w.reconcile(p)
		if got := w.now(p).Status.Reason; got != reason {
			t.Errorf("the pod says %s, the provider %s", got, reason)
		}
	}
	for range 3 {
		refuse(p, v1alpha1.ReasonUnschedulable)
		refuse(p, v1alpha1.ReasonDrained)
	}
	if n := said(); n != 2 {
		t.Errorf("%d events of two reasons", n)
	}
	for i := range maxReasons {
		refuse(p, fmt.Sprint("Reason", i))
	}
	if n := said(); n != maxReasons-2 {
		t.Errorf("%d events of new reasons", n)
	}
	w.clock.Step(warnWithin)
	if refuse(p, v1alpha1.ReasonDrained); said() != 1 {
		t.Error("after an hour it is not said again")
	}
	for w.pods.budget.Take(w.peering, w.clock.Now().Add(buryAgain)) {
	}
	if refuse(other, v1alpha1.ReasonDrained); said() != 0 {
		t.Error("a provider without a budget causes an event")
	}
	w.clock.Step(warnWithin)
	refuse(other, v1alpha1.ReasonUnschedulable)
	if refuse(other, v1alpha1.ReasonDrained); said() != 2 {
		t.Error("what no event has said is not said later")
	}
}

// TestRefusedHere holds that a pod that no provider runs is sent home without asking
// one, and one that the provider's API server does not take as well.
func TestRefusedHere(t *testing.T) {
	group := schema.GroupResource{Group: "pelago.dev", Resource: "shadowpods"}
	quota := apierrors.NewForbidden(group, "x", errors.New("exceeded quota: pelago, requested: 1, used: 5, limited: 5"))
	policy := apierrors.NewForbidden(group, "x", errors.New("ValidatingAdmissionPolicy 'strict' with binding 'strict' denied request: no"))
	rights := apierrors.NewForbidden(group, "x", errors.New("no"))
	for _, c := range []struct {
		reason, want string
		edit         func(*corev1.Pod)
		err          error
		asked        int
		evicted      bool
	}{
		{"host network", v1alpha1.ReasonRefused, func(p *corev1.Pod) { p.Spec.HostNetwork = true }, nil, 0, true},
		{"a quota of the provider", v1alpha1.ReasonLimitExceeded, func(*corev1.Pod) {}, quota, 1, true},
		{"a policy of the provider", v1alpha1.ReasonNotAdmitted, func(*corev1.Pod) {}, policy, 1, true},
		{"too large for the provider", v1alpha1.ReasonNotAdmitted, func(*corev1.Pod) {}, apierrors.NewRequestEntityTooLargeError("x"), 1, true},
		{"no rights: it may come later", v1alpha1.ReasonForbidden, func(*corev1.Pod) {}, rights, 1, false},
	} {
		t.Run(c.reason, func(t *testing.T) {
			w := newWorld(t)
			w.fail = func(_ int, call string) (error, error) {
				if call == "there create" {
					return c.err, nil
				}
				return nil, nil
			}
			p := w.pod("web", owned("ReplicaSet"), c.edit)
			res := w.reconcile(p)
			got := w.now(p)
			if w.writes["there create"] != c.asked || w.shadow(p) != nil || got.Status.Reason != c.want || (got.DeletionTimestamp != nil) != c.evicted {
				t.Errorf("asked %d times, deletion %v, status %+v", w.writes["there create"], got.DeletionTimestamp, got.Status)
			}
			if !c.evicted {
				if res.RequeueAfter <= 0 || len(w.recorded.Events) > 0 || len(w.refused()) > 0 {
					t.Errorf("again in %s, %d events", res.RequeueAfter, len(w.recorded.Events))
				}
				return
			}
			w.reconcile(p)
			if w.now(p) != nil {
				t.Error("the evicted pod stays")
			}
		})
	}
}

// TestFull holds that no pod is asked for beyond what is read of a provider, that its owner is
// told, and that what is there still ends, and makes room.
func TestFull(t *testing.T) {
	w := newWorld(t)
	old := w.pod("old")
	w.reconcile(old)
	w.peer.full = true
	p := w.pod("web")
	w.reconcile(p)
	if got := w.now(p); w.shadow(p) != nil || got.Status.Reason != v1alpha1.ReasonLimitExceeded || !strings.Contains(condition(got, corev1.PodReady).Message, "as many pods at that provider as it keeps") {
		t.Errorf("with a full provider: %+v", got.Status)
	}
	if err := w.admin.Delete(t.Context(), w.now(old)); err != nil {
		t.Fatal(err)
	}
	w.reconcile(old)
	w.release(string(old.UID))
	w.reconcile(old)
	if w.now(old) != nil || w.shadow(old) != nil {
		t.Error("what is there does not end")
	}
	w.peer.full = false
	w.reconcile(p)
	if w.shadow(p) == nil {
		t.Error("the pod does not go where there is room again")
	}
}

// TestBudget holds that an eviction waits for a PodDisruptionBudget.
func TestBudget(t *testing.T) {
	w := newWorld(t)
	held := true
	w.fail = func(_ int, call string) (error, error) {
		if held && call == "here eviction" {
			return apierrors.NewTooManyRequests("budget", 1), nil
		}
		return nil, nil
	}
	p := w.pod("web", owned("ReplicaSet"))
	w.reconcile(p)
	w.tell(p, nil, accepted(metav1.ConditionFalse, v1alpha1.ReasonDrained, "drained"))
	for range 3 {
		if res := w.reconcile(p); res.RequeueAfter < budgetRetry/2 || w.now(p).DeletionTimestamp != nil {
			t.Fatalf("held up: again in %s", res.RequeueAfter)
		}
	}
	held = false
	if w.reconcile(p); w.now(p).DeletionTimestamp == nil {
		t.Error("not evicted")
	}
	if list := w.refused(); len(list) != 1 || list[0].Count != 1 || len(w.recorded.Events) != 1 {
		t.Errorf("remembered %+v, %d events", list, len(w.recorded.Events))
	}
}

// TestNoMap holds that without a place to remember a refusal nothing is evicted, as the
// next pod would come right back.
func TestNoMap(t *testing.T) {
	w := newWorld(t)
	w.drop(&v1alpha1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.PeeringNamespace(w.peering), Name: v1alpha1.NamespaceMapName}})
	p := w.pod("web", owned("ReplicaSet"), func(p *corev1.Pod) { p.Spec.HostNetwork = true })
	if res := w.reconcile(p); res.RequeueAfter != mapRetry || w.now(p).DeletionTimestamp != nil {
		t.Errorf("again in %s", res.RequeueAfter)
	}
}

// sameOwner has pods be of one ReplicaSet.
func sameOwner() func(*corev1.Pod) {
	of := &corev1.Pod{}
	owned("ReplicaSet")(of)
	return func(p *corev1.Pod) { p.OwnerReferences = of.OwnerReferences }
}

// TestSuccessForgets holds that a pod that runs for a minute ends its owner's bad record.
func TestSuccessForgets(t *testing.T) {
	w := newWorld(t)
	owner := sameOwner()
	p := w.pod("one", owner)
	w.reconcile(p)
	w.tell(p, nil, accepted(metav1.ConditionFalse, v1alpha1.ReasonUnschedulable, ""))
	w.reconcile(p)
	if len(w.refused()) != 1 {
		t.Fatal("not remembered")
	}
	two := w.pod("two", owner)
	w.reconcile(two)
	w.tell(two, running(), accepted(metav1.ConditionTrue, v1alpha1.ReasonRunning, ""))
	if res := w.reconcile(two); len(w.refused()) != 1 || res.RequeueAfter != trial {
		t.Errorf("when it begins to run: again in %s, remembered: %+v", res.RequeueAfter, w.refused())
	}
	w.clock.Step(trial - time.Second)
	if res := w.reconcile(two); len(w.refused()) != 1 || res.RequeueAfter != time.Second {
		t.Errorf("a moment before the time: again in %s, remembered: %+v", res.RequeueAfter, w.refused())
	}
	w.clock.Step(time.Second)
	if res := w.reconcile(two); len(w.refused()) != 0 || res.RequeueAfter != 0 {
		t.Errorf("after a minute: again in %s, remembered: %+v", res.RequeueAfter, w.refused())
	}
	three := w.pod("three", owner)
	w.reconcile(three)
	w.tell(three, running(), accepted(metav1.ConditionTrue, v1alpha1.ReasonRunning, ""))
	if res := w.reconcile(three); res.RequeueAfter != 0 {
		t.Errorf("with nothing to forget it is looked at again in %s", res.RequeueAfter)
	}
}

// refused is what is remembered of refusals.
func (w *world) refused() []v1alpha1.Refusal {
	w.t.Helper()
	m := &v1alpha1.NamespaceMap{}
	if err := w.admin.Get(ctx, mapKey(w.peering), m); err != nil {
		w.t.Fatal(err)
	}
	return m.Status.Refusals
}
