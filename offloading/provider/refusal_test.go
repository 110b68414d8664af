package provider

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// Pods of a StatefulSet: web-0 of a new UID waits for the old one.
func TestNameTaken(t *testing.T) {
	b := newBench(t)
	first := b.shadowPod(corev1.RestartPolicyAlways)
	b.settle()
	b.bind(b.node(corev1.ConditionTrue).Name)
	b.status(running)
	second := b.shadowPod(corev1.RestartPolicyAlways)
	b.settle()
	b.want("reason", b.reason(), "False NameTaken")
	b.noPod()
	asked := 0
	b.restart(interceptor.NewClient(b.c, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		asked++
		return c.Create(ctx, o, opts...)
	}}))
	b.clock.SetTime(b.clock.Now().Add(refusedLatest))
	b.settle()
	b.want("reason", b.reason(), "False NameTaken")
	if asked > 0 {
		t.Errorf("the API server was asked %d times for a pod whose name is taken", asked)
	}
	b.restart(b.c)
	b.must(b.c.Delete(t.Context(), first))
	b.settle(first.Name)
	b.settle()
	b.noPod()
	b.uid = first.Name
	b.kubeletDone()
	b.settle()
	b.want("the old one", b.show(), "gone")
	b.uid = second.Name
	b.clock.SetTime(b.clock.Now().Add(triedEvery)) // the deletion's event comes by
	b.settle()
	b.want("reason", b.reason(), "True Running")
	b.pod()
}

// What a tenant has no namespace for waits; the API server's refusals are told.
func TestRefusals(t *testing.T) {
	b := newBench(t)
	s := b.shadowPod(corev1.RestartPolicyAlways, func(s *v1alpha1.ShadowPod) { s.Spec.Home.Namespace = "other" })
	b.settle()
	b.want("reason", b.reason(), "False NamespaceMissing")
	b.must(b.c.Delete(t.Context(), s))
	b.settle()
	b.want("a refused one", b.show(), "gone")

	b.shadowPod(corev1.RestartPolicyAlways, func(s *v1alpha1.ShadowPod) {
		s.Spec.Pod = podText(corev1.RestartPolicyAlways, func(p *corev1.PodSpec) { p.HostNetwork = true })
	})
	b.settle()
	b.want("reason", b.reason(), "False Refused")
	if c := condition(b.get(b.uid).Status.Conditions); !strings.Contains(c.Message, "hostNetwork") {
		t.Errorf("the message does not name the field: %s", c.Message)
	}

	b.must(b.c.Create(t.Context(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: b.space, Name: "q"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourceLimitsCPU: resource.MustParse("1")}}}))
	// No controller fills in the quota's status, which the admission reads.
	q := &corev1.ResourceQuota{}
	b.must(b.c.Get(t.Context(), client.ObjectKey{Namespace: b.space, Name: "q"}, q))
	q.Status.Hard, q.Status.Used = q.Spec.Hard, corev1.ResourceList{corev1.ResourceLimitsCPU: resource.MustParse("0")}
	b.must(b.c.Status().Update(t.Context(), q))
	b.shadowPod(corev1.RestartPolicyAlways)
	b.settleTo("False NotAdmitted")
	if c := condition(b.get(b.uid).Status.Conditions); !strings.Contains(c.Message, "limits.cpu") {
		t.Errorf("the message does not say why: %s", c.Message)
	}
	b.must(b.c.Delete(t.Context(), q))
	b.clock.SetTime(b.clock.Now().Add(refusedAgain))
	b.settleTo("True Running")
	if len(b.heard.Events) == 0 {
		t.Error("there was no event")
	}
}

// settleTo settles until the API server's own caches have caught up.
func (b *bench) settleTo(reason string) {
	b.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for b.settle(); b.reason() != reason; b.settle() {
		if time.Now().After(deadline) {
			b.want("reason", b.reason(), reason)
		}
		b.clock.SetTime(b.clock.Now().Add(time.Minute))
	}
}

// A new namespace has no service account for a moment, or a quota that has not counted: that is no refusal. Nor is one
// that is ending. (The test's API server does not look at service accounts.)
func TestNamespaceBeingPrepared(t *testing.T) {
	b := newBench(t)
	b.shadowPod(corev1.RestartPolicyAlways)
	pods := corev1.Resource("pods")
	for _, refusal := range []error{
		apierrors.NewForbidden(pods, "web-0", errors.New(`error looking up service account shop/default: serviceaccount "default" not found`)),
		apierrors.NewForbidden(pods, "web-0", errors.New("status unknown for quota: team, resources: pods")),
		apierrors.NewNotFound(corev1.Resource("namespaces"), b.space),
		&apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonForbidden, Code: 403,
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}}}},
	} {
		b.restart(interceptor.NewClient(b.c, interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return refusal }}))
		again, err := b.once(b.uid)
		b.must(err)
		if again == 0 || again > 2*time.Second {
			t.Errorf("%v: tried again in %s", refusal, again)
		}
		b.clock.SetTime(b.clock.Now().Add(writeLater))
		_, err = b.once(b.uid)
		b.must(err)
		b.want("reason", b.reason(), "False NamespaceMissing")
	}
	b.restart(b.c)
	b.settle()
	b.want("reason", b.reason(), "True Running")
}

// An unschedulable pod is sent home after its time, also by one who comes in between.
func TestUnschedulable(t *testing.T) {
	b := newBench(t)
	b.shadowPod(corev1.RestartPolicyNever)
	b.settle()
	b.status(func(s *corev1.PodStatus) {
		s.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
			LastTransitionTime: metav1.NewTime(b.clock.Now())}}
	})
	b.settle()
	b.want("before its time", b.reason(), "True Running")
	b.clock.SetTime(b.clock.Now().Add(usualPatience))
	b.settle()
	b.want("after its time", b.reason(), "False Unschedulable")
	b.noPod()
	b.restart(b.c)
	b.settle()
	b.noPod()
	if s := b.get(b.uid); final(s) {
		t.Fatalf("a pod that never ran has ended: %s", b.show())
	}
	b.clock.SetTime(b.clock.Now().Add(unscheduledAgain))
	b.settle()
	b.pod()
}

// TestUnschedulableAhead holds that a clock which is an hour ahead delays neither the end of a pod's time nor the next try.
func TestUnschedulableAhead(t *testing.T) {
	b := newBench(t)
	b.shadowPod(corev1.RestartPolicyAlways)
	b.settle()
	b.status(func(s *corev1.PodStatus) {
		s.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
			LastTransitionTime: metav1.NewTime(b.clock.Now().Add(time.Hour))}}
	})
	b.settle()
	if again, err := b.once(b.uid); err != nil || again > usualPatience {
		t.Errorf("looked at again in %s, %v", again, err)
	}
	b.want("before its time", b.reason(), "True Running")
	b.clock.SetTime(b.clock.Now().Add(usualPatience))
	b.settle()
	b.want("after its time", b.reason(), "False Unschedulable")
	b.noPod()
	s := b.get(b.uid)
	condition(s.Status.Conditions).LastTransitionTime = metav1.NewTime(b.clock.Now().Add(time.Hour))
	b.must(b.c.Status().Update(t.Context(), s))
	b.clock.SetTime(b.clock.Now().Add(triedEvery))
	b.settle()
	b.want("the next try", b.reason(), "True Running")
}

// A namespace of the right name that is not the tenant's, or not home's, is no place.
func TestPlaceOfOthers(t *testing.T) {
	b := newBench(t)
	n := &corev1.Namespace{}
	b.must(b.c.Get(t.Context(), client.ObjectKey{Name: b.space}, n))
	for _, labels := range []map[string]string{
		nil,
		{v1alpha1.LabelTenant: "milan", v1alpha1.LabelHomeNamespace: b.home},
		{v1alpha1.LabelTenant: b.tenant, v1alpha1.LabelHomeNamespace: "bank"},
	} {
		n.Labels = labels
		b.must(b.c.Update(t.Context(), n))
		b.shadowPod(corev1.RestartPolicyAlways)
		b.settle()
		b.want("reason", b.reason(), "False NamespaceMissing")
		b.noPod()
	}
}

// TestFirst has those looked at first that have waited longest, and not thousands at once.
func TestFirst(t *testing.T) {
	var all []v1alpha1.ShadowPod
	for i := range 1000 {
		s := v1alpha1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("u%03d", i), CreationTimestamp: metav1.NewTime(noon.Add(-time.Duration(i/2) * time.Second))}}
		switch i {
		case 999:
			s.DeletionTimestamp = &s.CreationTimestamp
		case 998:
			s.Status.Phase = string(corev1.PodSucceeded)
		}
		all = append(all, s)
	}
	var names []string
	for _, s := range first(all) {
		names = append(names, s.Name)
	}
	if want := []string{"u996", "u997", "u994", "u995"}; !slices.Equal(names, want) {
		t.Errorf("looked at %v, want %v", names, want)
	}
	if got := first(nil); len(got) != 0 {
		t.Errorf("looked at %v of none", got)
	}
}
