package consumer

import (
	"fmt"
	"strings"
	"testing"
	"time"

	admission "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// debug adds an ephemeral container to a pod, as kubectl debug does.
func (w *world) debug(p *corev1.Pod, name string) {
	w.t.Helper()
	now := w.now(p)
	now.Spec.EphemeralContainers = append(now.Spec.EphemeralContainers, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name: name, Image: "example.org/tools:1",
		SecurityContext: &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_PTRACE"}}},
	}})
	if err := w.admin.SubResource("ephemeralcontainers").Update(ctx, now); err != nil {
		w.t.Fatal(err)
	}
}

// follows is the provider's answer to the ShadowPod as it is now, with what its pod does
// not follow.
func (w *world) follows(p *corev1.Pod, message string) {
	w.t.Helper()
	c := accepted(metav1.ConditionTrue, v1alpha1.ReasonRunning, message)
	c.ObservedGeneration = w.shadow(p).Generation
	w.tell(p, running(), c)
}

// heard is the one event there is, "" if there is none.
func (w *world) heard() string {
	w.t.Helper()
	if n := len(w.recorded.Events); n > 1 {
		w.t.Fatalf("%d events, want one at most: %s", n, <-w.recorded.Events)
	}
	select {
	case e := <-w.recorded.Events:
		return e
	default:
		return ""
	}
}

// TestChangeRefused holds that a change that the provider does not follow is told once,
// that the status says so as long as it is so, and that neither a provider that changes
// its words nor a restart makes it more.
func TestChangeRefused(t *testing.T) {
	w := newWorld(t)
	p := w.runs("web")
	w.follows(p, "")
	w.reconcile(p)
	before := w.now(p)
	if before.Status.ObservedGeneration != before.Generation {
		t.Fatalf("observedGeneration is %d, want %d", before.Status.ObservedGeneration, before.Generation)
	}
	why := "the pod stays as it is: spec.ephemeralContainers[0].securityContext.capabilities.add: leave them out"
	w.debug(p, "one")
	w.reconcile(p)
	if w.heard() != "" || marked(&w.now(p).Status) != "" {
		t.Error("it is told before there is an answer")
	}
	w.follows(p, why)
	w.reconcile(p)
	if e := w.heard(); !strings.HasPrefix(e, "Warning ChangeRefused "+w.peering) || !strings.Contains(e, why) || !strings.Contains(e, "delete the pod") {
		t.Errorf("the event is %q", e)
	}
	got := w.now(p)
	if c := condition(got, v1alpha1.ConditionChangeRefused); c.Status != corev1.ConditionTrue || c.Message != why || c.Reason != v1alpha1.ReasonChangeRefused {
		t.Errorf("the condition is %+v", c)
	}
	if got.Status.ObservedGeneration == got.Generation || got.Status.Phase != corev1.PodRunning || condition(got, corev1.PodReady).Status != corev1.ConditionTrue {
		t.Errorf("the status pretends: %+v", got.Status)
	}
	writes := w.total
	for _, words := range []string{why, "other words", why, "more words"} {
		w.follows(p, words)
		w.reconcile(p)
	}
	if e := w.heard(); e != "" || w.total-writes > 3 {
		t.Errorf("other words for the same: %d writes, event %q", w.total-writes, e)
	}
	w.restart()
	w.reconcile(p)
	if e := w.heard(); e != "" {
		t.Errorf("told again after a restart: %q", e)
	}

	w.debug(p, "two")
	w.reconcile(p)
	if marked(&w.now(p).Status) != "more words" {
		t.Error("it is not said any more though nothing is known of the next change")
	}
	w.follows(p, why+" and so on")
	w.reconcile(p)
	if e := w.heard(); !strings.Contains(e, "and so on") {
		t.Errorf("another change: %q", e)
	}
	w.follows(p, "")
	w.reconcile(p)
	if got := w.now(p); marked(&got.Status) != "" || got.Status.ObservedGeneration != got.Generation || w.heard() != "" {
		t.Errorf("it follows, and the status says %+v", got.Status)
	}
}

// forbids gives the provider a policy of its own: ShadowPods do not get the annotation
// note with more than eight letters.
func (w *world) forbids(answer metav1.StatusReason) {
	w.t.Helper()
	fail, deny := admission.Fail, admission.Deny
	policy := &admission.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: w.peer.namespace}, Spec: admission.ValidatingAdmissionPolicySpec{
		FailurePolicy: &fail,
		MatchConstraints: &admission.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: w.peer.namespace}},
			ResourceRules: []admission.NamedRuleWithOperations{{RuleWithOperations: admission.RuleWithOperations{
				Operations: []admission.OperationType{admission.Update},
				Rule:       admission.Rule{APIGroups: []string{v1alpha1.GroupVersion.Group}, APIVersions: []string{"*"}, Resources: []string{"shadowpods"}},
			}}},
		},
		Validations: []admission.Validation{{
			Expression: "size(object.spec.?annotations[?'note'].orValue('')) <= 8", Message: "note: at most 8 letters", Reason: &answer,
		}},
	}}
	binding := &admission.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: w.peer.namespace}, Spec: admission.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: w.peer.namespace, ValidationActions: []admission.ValidationAction{deny},
	}}
	w.make(policy)
	w.make(binding)
	w.t.Cleanup(func() {
		_ = w.admin.Delete(ctx, binding)
		_ = w.admin.Delete(ctx, policy)
	})
	probe := &v1alpha1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Namespace: w.peer.namespace, Name: string(uuid.NewUUID())},
		Spec: v1alpha1.ShadowPodSpec{Home: v1alpha1.HomePod{Namespace: "shop", Name: "probe"}, Request: "default", Pod: "{}"}}
	w.make(probe)
	w.await("the provider's policy holds", func() bool {
		return w.admin.Patch(ctx, probe, noted("spec", "much too long"), client.DryRunAll) != nil
	})
	w.drop(probe)
}

// noted is a patch of the annotation note, in metadata or spec.
func noted(of, text string) client.Patch {
	return client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{%q:{"annotations":{"note":%q}}}`, of, text))
}

// TestChangeInvalid holds the same for a change that the provider's API server does not
// take, by a policy of the provider's: nothing is stored there.
func TestChangeInvalid(t *testing.T) {
	for _, answer := range []metav1.StatusReason{metav1.StatusReasonInvalid, metav1.StatusReasonForbidden, metav1.StatusReasonRequestEntityTooLarge} {
		t.Run(string(answer), func(t *testing.T) {
			w := newWorld(t)
			p := w.runs("web")
			w.follows(p, "")
			w.reconcile(p)
			w.forbids(answer)
			writes := func(text string) {
				t.Helper()
				if err := w.admin.Patch(ctx, w.now(p), noted("metadata", text)); err != nil {
					t.Fatal(err)
				}
			}
			before := w.shadow(p)
			writes("far too long")
			for range 3 {
				if res := w.reconcile(p); res.RequeueAfter < refusedRetry/2 || res.RequeueAfter > 2*refusedRetry {
					t.Errorf("again in %s", res.RequeueAfter)
				}
			}
			if e := w.heard(); !strings.HasPrefix(e, "Warning ChangeRefused") || !strings.Contains(e, "at most 8 letters") || len(e) > 1024 {
				t.Errorf("the event is %q", e)
			}
			got := w.now(p)
			if c := condition(got, v1alpha1.ConditionChangeRefused); c.Status != corev1.ConditionTrue || !strings.Contains(c.Message, "at most 8 letters") {
				t.Errorf("the condition is %+v", c)
			}
			if got.Status.Phase != corev1.PodRunning || condition(got, corev1.PodReady).Status != corev1.ConditionTrue || w.shadow(p).ResourceVersion != before.ResourceVersion {
				t.Errorf("what runs was touched: %+v", got.Status)
			}
			w.restart()
			w.reconcile(p)
			if e := w.heard(); e != "" {
				t.Errorf("told again after a restart: %q", e)
			}
			writes("too long as well")
			w.reconcile(p)
			if e := w.heard(); !strings.Contains(e, "at most 8 letters") {
				t.Errorf("another change that is refused for the same reason: %q", e)
			}
			writes("short")
			w.reconcile(p)
			w.follows(p, "")
			w.reconcile(p)
			if marked(&w.now(p).Status) != "" || w.shadow(p).Spec.Annotations["note"] != "short" || w.heard() != "" {
				t.Errorf("it follows again, and the status says %+v", w.now(p).Status)
			}
		})
	}
}

// TestEndsWithoutItsGrace holds that a provider that does not take the grace period of an
// end does not hold up the end.
func TestEndsWithoutItsGrace(t *testing.T) {
	for _, no := range []error{
		apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind("ShadowPod").GroupKind(), "x", nil),
		apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("shadowpods").GroupResource(), "x", nil),
	} {
		w := newWorld(t)
		p := w.runs("web")
		w.fail = func(_ int, call string) (error, error) {
			if call == "there patch" {
				return no, nil
			}
			return nil, nil
		}
		w.delete(p, client.GracePeriodSeconds(7))
		w.reconcile(p)
		if s := w.shadow(p); s.DeletionTimestamp == nil || w.writes["there patch"] == 0 {
			t.Errorf("%v: %d patches, and it is not ended", no, w.writes["there patch"])
		}
		if e := w.heard(); e != "" {
			t.Errorf("%v: %q", no, e)
		}
		w.release(string(p.UID))
		for range 2 {
			w.reconcile(p)
		}
		if w.now(p) != nil {
			t.Errorf("%v: the home pod stays", no)
		}
	}
}

// TestChangeRefusedHere holds the same for a change that nothing forged is like, and for
// one that the provider's API server does not take.
func TestChangeRefusedHere(t *testing.T) {
	w := newWorld(t)
	p := w.runs("web")
	w.reconcile(p)
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"color":"blue"}}}`))
	if err := w.admin.Patch(ctx, w.now(p), patch); err != nil {
		t.Fatal(err)
	}
	fails := true
	w.fail = func(_ int, call string) (error, error) {
		if fails && call == "there patch" {
			return apierrors.NewRequestEntityTooLargeError("the limit is 3145728"), nil
		}
		return nil, nil
	}
	for range 3 {
		if res := w.reconcile(p); res.RequeueAfter < refusedRetry/2 || res.RequeueAfter > 2*refusedRetry {
			t.Errorf("again in %s", res.RequeueAfter)
		}
	}
	if e := w.heard(); !strings.Contains(e, "ChangeRefused") || !strings.Contains(e, "3145728") || marked(&w.now(p).Status) == "" {
		t.Errorf("too large: %q, status %+v", e, w.now(p).Status)
	}
	fails = false
	w.reconcile(p)
	w.follows(p, "")
	w.reconcile(p)
	if marked(&w.now(p).Status) != "" {
		t.Error("it follows, and the status says no")
	}

	now := w.now(p)
	now.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name: "debug", Image: "x", SecurityContext: &corev1.SecurityContext{WindowsOptions: &corev1.WindowsSecurityContextOptions{HostProcess: new(true)}},
	}}}
	f := facts{pod: now, at: given().at, now: w.clock.Now().Add(time.Minute), link: up, offloaded: true, mapped: true, shadow: w.shadow(p)}
	plan := decide(f)
	if plan.change != nil || plan.rejected == nil || !strings.Contains(plan.rejected.message, "hostProcess") || plan.status == nil || marked(plan.status) == "" {
		t.Errorf("nothing like it is forged: %q", sum(plan))
	}
}

// TestNotCarriedOver holds that an ephemeral container that no provider takes spoils no pod that runs: it alone stays
// away, with one event that says why and what to do, and the pod follows all else.
func TestNotCarriedOver(t *testing.T) {
	w := newWorld(t)
	p := w.runs("web")
	w.follows(p, "")
	w.reconcile(p)
	before := w.shadow(p)
	adds := func(name string, options *corev1.WindowsSecurityContextOptions) {
		t.Helper()
		now := w.now(p)
		now.Spec.EphemeralContainers = append(now.Spec.EphemeralContainers, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: name, Image: "example.org/tools:1", SecurityContext: &corev1.SecurityContext{WindowsOptions: options},
		}})
		if err := w.admin.SubResource("ephemeralcontainers").Update(ctx, now); err != nil {
			t.Fatal(err)
		}
	}
	adds("bad", &corev1.WindowsSecurityContextOptions{GMSACredentialSpecName: new("own")})
	w.reconcile(p)
	const why = `the ephemeral container "bad" is left out: spec.ephemeralContainers[0].securityContext.windowsOptions.gmsaCredentialSpecName`
	if e := w.heard(); !strings.HasPrefix(e, "Warning ChangeRefused "+w.peering) || !strings.Contains(e, why) || !strings.Contains(e, "add another one without that, by another name") {
		t.Errorf("the event is %q", e)
	}
	got := w.now(p)
	if c := condition(got, v1alpha1.ConditionChangeRefused); c.Status != corev1.ConditionTrue || !strings.Contains(c.Message, why) {
		t.Errorf("the condition is %+v", c)
	}
	if got.Status.Phase != corev1.PodRunning || condition(got, corev1.PodReady).Status != corev1.ConditionTrue || got.Status.ObservedGeneration == got.Generation || w.shadow(p).ResourceVersion != before.ResourceVersion {
		t.Errorf("what runs was touched, or the status pretends: %+v", got.Status)
	}
	writes := w.total
	w.reconcile(p)
	w.restart()
	w.reconcile(p)
	if e := w.heard(); e != "" || w.total != writes {
		t.Errorf("told again: %d writes, event %q", w.total-writes, e)
	}

	adds("fine", nil)
	if err := w.admin.Patch(ctx, w.now(p), noted("metadata", "new")); err != nil {
		t.Fatal(err)
	}
	w.reconcile(p)
	if s := w.shadow(p); s.Spec.Annotations["note"] != "new" || !strings.Contains(s.Spec.Pod, `"fine"`) || strings.Contains(s.Spec.Pod, `"bad"`) {
		t.Errorf("the provider is asked for %v, %s", s.Spec.Annotations, s.Spec.Pod)
	}
	w.follows(p, "")
	w.reconcile(p)
	if e := w.heard(); e != "" || !strings.Contains(marked(&w.now(p).Status), why) {
		t.Errorf("after a change that was followed: event %q, condition %q", e, marked(&w.now(p).Status))
	}
	w.follows(p, "no room for more")
	w.reconcile(p)
	if e := w.heard(); !strings.Contains(e, why) || !strings.Contains(e, "no room for more") {
		t.Errorf("what the provider does not follow: %q", e)
	}
}
