package consumer

import (
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

func rule(action batchv1.PodFailurePolicyAction, kind corev1.PodConditionType, status corev1.ConditionStatus) batchv1.PodFailurePolicyRule {
	return batchv1.PodFailurePolicyRule{Action: action, OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: kind, Status: status}}}
}

// TestForgives holds when a Job does not count the eviction of a pod that waits.
func TestForgives(t *testing.T) {
	const ignore, fail, count = batchv1.PodFailurePolicyActionIgnore, batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyActionCount
	failed := batchv1.Failed
	codes := batchv1.PodFailurePolicyRule{Action: fail, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
		Operator: batchv1.PodFailurePolicyOnExitCodesOpNotIn, Values: []int32{0}}}
	for _, c := range []struct {
		reason  string
		replace *batchv1.PodReplacementPolicy
		rules   []batchv1.PodFailurePolicyRule
		want    bool
	}{
		{"no policy", nil, nil, false},
		{"it replaces failed pods only, and counts them", &failed, nil, false},
		{"it ignores disruptions", nil, []batchv1.PodFailurePolicyRule{rule(ignore, corev1.DisruptionTarget, corev1.ConditionTrue)}, true},
		{"without a status true is meant", nil, []batchv1.PodFailurePolicyRule{rule(ignore, corev1.DisruptionTarget, "")}, true},
		{"it ignores what is no disruption", nil, []batchv1.PodFailurePolicyRule{rule(ignore, corev1.DisruptionTarget, corev1.ConditionFalse)}, false},
		{"it counts disruptions", nil, []batchv1.PodFailurePolicyRule{rule(count, corev1.DisruptionTarget, corev1.ConditionTrue)}, false},
		{"it fails by disruptions", nil, []batchv1.PodFailurePolicyRule{rule(fail, corev1.DisruptionTarget, corev1.ConditionTrue)}, false},
		{"it ignores another condition", nil, []batchv1.PodFailurePolicyRule{rule(ignore, "Other", corev1.ConditionTrue)}, false},
		{"an earlier rule is for pods that found no node", nil, []batchv1.PodFailurePolicyRule{
			rule(fail, corev1.PodScheduled, corev1.ConditionFalse), rule(ignore, corev1.DisruptionTarget, corev1.ConditionTrue)}, false},
		{"a later one is", nil, []batchv1.PodFailurePolicyRule{
			rule(ignore, corev1.DisruptionTarget, corev1.ConditionTrue), rule(fail, corev1.PodScheduled, corev1.ConditionFalse)}, true},
		{"it ignores pods that found no node", nil, []batchv1.PodFailurePolicyRule{rule(ignore, corev1.PodScheduled, corev1.ConditionFalse)}, true},
		{"an earlier rule is for exit codes, of which there are none", nil, []batchv1.PodFailurePolicyRule{codes, rule(ignore, corev1.DisruptionTarget, corev1.ConditionTrue)}, true},
	} {
		job := &batchv1.Job{Spec: batchv1.JobSpec{PodReplacementPolicy: c.replace}}
		if c.rules != nil {
			job.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: c.rules}
		}
		pod := template("shop", "web", "")
		passedOver(pod)
		if got := forgives(job, pod); got != c.want {
			t.Errorf("%s: %t", c.reason, got)
		}
	}
}

// finalized is what the job controller makes of a pod.
func finalized(uid types.UID) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		ownedBy("Job", uid)(p)
		never1(p)
		p.Finalizers = []string{batchv1.JobTrackingFinalizer}
	}
}

// TestJobWaits goes through what becomes of a Job's pod that waits under terms of earlier.
func TestJobWaits(t *testing.T) {
	waits := func(t *testing.T, policy *batchv1.PodFailurePolicy) (*world, *corev1.Pod, func() time.Duration) {
		w := newWorld(t)
		w.remote()
		w.second()
		p := w.unplaced("job", finalized(w.job(policy)), avoiding(w.node))
		w.clock.Step(time.Hour)
		t.Cleanup(func() {
			if now := w.now(p); now != nil {
				now.Finalizers = nil
				_ = w.admin.Update(ctx, now)
			}
		})
		return w, p, func() time.Duration {
			t.Helper()
			res, err := w.outdated.Reconcile(ctx, request(p))
			if err != nil {
				t.Fatal(err)
			}
			return res.RequeueAfter
		}
	}
	t.Run("its Job does not count that", func(t *testing.T) {
		w, p, look := waits(t, policy(batchv1.PodFailurePolicyActionIgnore))
		look()
		got := w.now(p)
		if got == nil || got.DeletionTimestamp == nil || condition(got, corev1.DisruptionTarget).Status != corev1.ConditionTrue {
			t.Fatalf("not evicted: %+v", got)
		}
		if got.Status.Phase == corev1.PodFailed || len(w.recorded.Events) > 0 || w.writes["here delete"] > 0 {
			t.Errorf("phase %s, %d events, %v", got.Status.Phase, len(w.recorded.Events), w.writes)
		}
		if look(); w.writes["here eviction"] != 1 {
			t.Errorf("evicted %d times", w.writes["here eviction"])
		}
	})
	t.Run("it changes meanwhile, as when it is being bound", func(t *testing.T) {
		w, p, look := waits(t, policy(batchv1.PodFailurePolicyActionIgnore))
		w.fail = func(_ int, call string) (error, error) {
			if call == "here eviction" {
				patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"a":"b"}}}`))
				if err := w.admin.Patch(ctx, w.now(p), patch); err != nil {
					t.Error(err)
				}
			}
			return nil, nil
		}
		if again := look(); again <= 0 || w.now(p).DeletionTimestamp != nil || condition(w.now(p), corev1.DisruptionTarget).Status != "" {
			t.Errorf("again in %s, %+v", again, w.now(p).Status)
		}
	})
	for reason, one := range map[string]*batchv1.PodFailurePolicy{"its Job counts that": nil, "its Job fails by that": policy(batchv1.PodFailurePolicyActionFailJob)} {
		t.Run(reason, func(t *testing.T) {
			w, p, look := waits(t, one)
			for range 3 {
				if again := look(); again != 0 || w.now(p).DeletionTimestamp != nil {
					t.Fatalf("again in %s, deleted %v", again, w.now(p).DeletionTimestamp)
				}
			}
			if len(w.recorded.Events) != 1 {
				t.Fatalf("%d events", len(w.recorded.Events))
			}
			text := <-w.recorded.Events
			for _, part := range []string{"Warning OffloadingOutdated", w.node, "podFailurePolicy", "DisruptionTarget"} {
				if !strings.Contains(text, part) {
					t.Errorf("the event says nothing of %s: %s", part, text)
				}
			}
			if len(w.outdated.left) != 1 || len(w.outdated.last) != 0 {
				t.Errorf("remembered: %v, %v", w.outdated.left, w.outdated.last)
			}
			now := w.now(p)
			now.Finalizers = nil
			if err := w.admin.Update(ctx, now); err != nil {
				t.Fatal(err)
			}
			w.delete(p, client.GracePeriodSeconds(0))
			if look(); len(w.outdated.left) != 0 {
				t.Error("remembered for ever")
			}
		})
	}
	t.Run("its Job is gone, or another", func(t *testing.T) {
		w := newWorld(t)
		w.remote()
		w.second()
		w.job(policy(batchv1.PodFailurePolicyActionIgnore))
		p := w.unplaced("job", ownedBy("Job", uuid.NewUUID()), never1, avoiding(w.node))
		w.clock.Step(time.Hour)
		if _, err := w.outdated.Reconcile(ctx, request(p)); err != nil || w.now(p).DeletionTimestamp != nil || len(w.recorded.Events) > 0 {
			t.Errorf("%v, deleted %v, %d events", err, w.now(p).DeletionTimestamp, len(w.recorded.Events))
		}
	})
	t.Run("many nodes", func(t *testing.T) {
		w := newWorld(t)
		w.remote()
		var names []string
		for i := range 40 {
			names = append(names, fmt.Sprintf("%s-%d", strings.Repeat("n", 200), i))
		}
		p := w.unplaced("job", ownedBy("Job", w.job(nil)), never1, avoiding(names...))
		w.clock.Step(time.Hour)
		if _, err := w.outdated.Reconcile(ctx, request(p)); err != nil {
			t.Fatal(err)
		}
		if text := <-w.recorded.Events; !strings.Contains(text, "and 39 others") || len(text) > 1024 {
			t.Errorf("%d bytes: %s", len(text), text)
		}
	})
}

// TestUnscheduledOnly: what wakes, and what is forgotten.
func TestUnscheduledOnly(t *testing.T) {
	made := func(kind string, edit ...func(*corev1.Pod)) *corev1.Pod {
		p := template("shop", "web", "")
		avoiding("milan")(p)
		owned(kind)(p)
		passedOver(p)
		for _, e := range edit {
			e(p)
		}
		return p
	}
	bound := func(p *corev1.Pod) { p.Spec.NodeName = "milan" }
	plain := func(p *corev1.Pod) { p.Annotations = nil }
	passes := unscheduledOnly()
	if !passes.Create(event.CreateEvent{Object: made("Job")}) || passes.Create(event.CreateEvent{Object: made("Job", bound)}) {
		t.Error("pods that were there")
	}
	if !passes.Update(event.UpdateEvent{ObjectOld: made("Job", plain), ObjectNew: made("Job")}) || passes.Update(event.UpdateEvent{ObjectOld: made("Job"), ObjectNew: made("Job")}) {
		t.Error("pods that change")
	}
	for reason, c := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"of a Job": {made("Job"), true}, "of a Job, bound since": {made("Job", bound), true},
		"of a Job, avoiding nothing": {made("Job", plain), false}, "of another": {made("ReplicaSet"), false},
		"of nobody": {made("Job", func(p *corev1.Pod) { p.OwnerReferences = []metav1.OwnerReference{} }), false},
	} {
		if got := passes.Delete(event.DeleteEvent{Object: c.pod}); got != c.want {
			t.Errorf("the going of a pod %s: %t", reason, got)
		}
	}
}
