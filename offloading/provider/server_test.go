package provider

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// A pod that is always restarted: made, run, lost in every way, changed, ended.
func TestLife(t *testing.T) {
	b := newBench(t)
	b.shadowPod(corev1.RestartPolicyAlways)
	b.settle()
	pod := b.pod()
	b.want("name", pod.Namespace+"/"+pod.Name, b.space+"/web-0")
	b.want("tenant", pod.Labels[v1alpha1.LabelTenant], b.tenant)
	b.want("reason", b.reason(), "True Running")

	node := b.node(corev1.ConditionTrue)
	b.bind(node.Name)
	b.status(running)
	b.settle()
	s := b.get(b.uid)
	b.want("phase", s.Status.Phase, "Running")
	b.want("ref", s.Status.Ref.UID, string(pod.UID))
	if s.Status.ObservedGeneration != s.Generation {
		t.Errorf("observedGeneration %d, want %d", s.Status.ObservedGeneration, s.Generation)
	}
	if strings.Contains(s.Status.Pod, node.Name) || s.Status.Pod == "" {
		t.Errorf("status.pod tells of the node, or nothing: %s", s.Status.Pod)
	}

	// Deleted by hand.
	b.must(b.c.Delete(t.Context(), pod))
	b.settle()
	b.want("the one that goes", string(b.pod().UID), string(pod.UID))
	b.kubeletDone()
	b.settle()
	second := b.pod()
	if second.UID == pod.UID {
		t.Fatal("it was not made again")
	}
	b.settle()
	if s := b.get(b.uid); s.Status.Replaced != 1 || s.Status.Ref.UID != string(second.UID) {
		t.Fatalf("it does not count as replaced: %s", b.show())
	}

	// Evicted by the kubelet.
	b.bind(node.Name)
	b.status(func(s *corev1.PodStatus) { s.Phase, s.Reason = corev1.PodFailed, "Evicted" })
	b.settle()
	if third := b.pod(); third.UID == second.UID {
		t.Fatal("it was not made again")
	}
	if s := b.get(b.uid); s.Status.Replaced != 2 {
		t.Fatalf("replaced is %d, want 2", s.Status.Replaced)
	}

	// Evicted by the API.
	b.bind(node.Name)
	third := b.pod()
	b.must(b.c.SubResource("eviction").Create(t.Context(), third, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: third.Name, Namespace: third.Namespace}}))
	b.settle()
	b.status(endedAs(corev1.PodSucceeded, 0, time.Now()))
	b.settle()
	b.kubeletDone()
	b.clock.SetTime(b.clock.Now().Add(longestBackoff))
	b.settle()
	if fourth := b.pod(); fourth.UID == third.UID {
		t.Fatal("it was not made again")
	}

	// Deleted at home.
	b.bind(node.Name)
	b.status(running)
	b.must(b.c.Delete(t.Context(), b.get(b.uid)))
	b.settle()
	if at := b.pod().DeletionTimestamp; at == nil || b.get(b.uid) == nil {
		t.Fatalf("the pod is not being deleted or the shadow pod went before it: %s", b.show())
	}
	b.kubeletDone()
	b.settle()
	b.want("the shadow pod", b.show(), "gone")
	b.noPod()
	if len(b.memory.notes) != 0 {
		t.Errorf("%d notes are left", len(b.memory.notes))
	}
}

// A pod that ends by itself is told, then let go, and never made again.
func TestFinishedOnce(t *testing.T) {
	b := newBench(t)
	b.shadowPod(corev1.RestartPolicyNever)
	b.settle()
	if !pinnedByUs(b.pod()) {
		t.Fatal("a pod that can end has no finalizer")
	}
	b.bind(b.node(corev1.ConditionTrue).Name)
	b.status(endedAs(corev1.PodSucceeded, 0, time.Now().Add(-time.Minute)))
	// Removed at once, as by a cleaner of ended pods, before anybody looked.
	b.must(b.c.Delete(t.Context(), b.pod()))
	b.settle()
	b.want("phase", b.get(b.uid).Status.Phase, "Succeeded")
	b.noPod()
	b.restart(b.c)
	b.settle()
	b.noPod()
	b.must(b.c.Delete(t.Context(), b.get(b.uid)))
	b.settle()
	b.want("the shadow pod", b.show(), "gone")
}

// A cache that is behind must not make a pod again that has ended.
func TestStaleCacheMakesNothing(t *testing.T) {
	b := newBench(t)
	b.shadowPod(corev1.RestartPolicyNever)
	b.settle()
	b.status(running)
	b.settle()
	old := b.get(b.uid)
	b.bind(b.node(corev1.ConditionTrue).Name)
	b.status(endedAs(corev1.PodFailed, 1, time.Now().Add(-time.Minute)))
	b.settle()
	b.must(b.c.Delete(t.Context(), b.pod()))
	b.noPod()
	// A new process whose cache has the ShadowPod of before its first status or its end.
	for _, was := range []*v1alpha1.ShadowPod{old, withoutStatus(old)} {
		b.reconciler = newReconciler(stale{b.c, was}, b.c, Options{Clock: b.clock})
		_, err := b.once(b.uid)
		b.must(err)
		b.noPod()
	}
	b.want("phase", b.get(b.uid).Status.Phase, "Failed")
}

func withoutStatus(s *v1alpha1.ShadowPod) *v1alpha1.ShadowPod {
	s = s.DeepCopy()
	s.Status = v1alpha1.ShadowPodStatus{}
	return s
}

// stale reads one ShadowPod as it was.
type stale struct {
	client.WithWatch
	shadow *v1alpha1.ShadowPod
}

func (s stale) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if into, ok := obj.(*v1alpha1.ShadowPod); ok {
		s.shadow.DeepCopyInto(into)
		return nil
	}
	return s.WithWatch.Get(ctx, key, obj, opts...)
}

// blind sees no pods, like a cache that has not got them yet.
type blind struct{ client.WithWatch }

func (b blind) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if _, ok := list.(*corev1.PodList); ok {
		return nil
	}
	return b.WithWatch.List(ctx, list, opts...)
}

// A cache that has not got the pod yet makes neither a second one nor a replacement, and
// does not let the ShadowPod go.
func TestBlindCache(t *testing.T) {
	b := newBench(t)
	b.shadowPod(corev1.RestartPolicyAlways)
	b.reconciler = newReconciler(blind{b.c}, b.c, Options{Clock: b.clock})
	b.clockBack()
	for range 4 {
		_, err := b.once(b.uid)
		b.must(err)
		b.clock.SetTime(b.clock.Now().Add(2 * time.Second))
	}
	pod := b.pod()
	b.reconciler = newReconciler(blind{b.c}, b.c, Options{Clock: b.clock}) // knows not even that it made it
	for range 3 {
		_, err := b.once(b.uid)
		b.must(err)
		b.clock.SetTime(b.clock.Now().Add(2 * time.Second))
	}
	b.want("pod", string(b.pod().UID), string(pod.UID))
	if s := b.get(b.uid); s.Status.Replaced != 0 || s.Status.Ref == nil || s.Status.Ref.UID != string(pod.UID) {
		t.Fatalf("it counts as lost: %s", b.show())
	}
	b.bind(b.node(corev1.ConditionTrue).Name)
	b.must(b.c.Delete(t.Context(), b.get(b.uid)))
	_, err := b.once(b.uid)
	b.must(err)
	if b.get(b.uid) == nil {
		t.Fatal("the shadow pod went before its pod")
	}
}

// Lost while it worked: home gets Failed with DisruptionTarget, and decides.
func TestJobLost(t *testing.T) {
	b := newBench(t)
	b.shadowPod(corev1.RestartPolicyOnFailure)
	b.settle()
	b.bind(b.node(corev1.ConditionTrue).Name)
	b.status(running)
	b.settle()
	b.must(b.c.Delete(t.Context(), b.pod()))
	b.settle()
	b.want("while it goes", b.get(b.uid).Status.Phase, "Running")
	b.kubeletDone() // gone for the kubelet; our finalizer holds it
	b.settle()
	b.noPod()
	s := b.get(b.uid)
	b.want("phase", s.Status.Phase, "Failed")
	status := corev1.PodStatus{}
	b.must(json.Unmarshal([]byte(s.Status.Pod), &status))
	if _, disrupted := disruption(&corev1.Pod{Status: status}); !disrupted || status.Phase != corev1.PodFailed {
		t.Errorf("home cannot tell that it was lost: %s", s.Status.Pod)
	}
	b.restart(b.c)
	b.settle()
	b.noPod()
}

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
	deadline := time.Now().Add(20 * time.Second)
	for b.settle(); b.reason() != reason; b.settle() {
		if time.Now().After(deadline) {
			b.want("reason", b.reason(), reason)
		}
		b.clock.SetTime(b.clock.Now().Add(time.Minute))
	}
}

// A new namespace has no service account for a moment: that is no refusal. Nor is one
// that is ending. (The test's API server does not look at service accounts.)
func TestNamespaceBeingPrepared(t *testing.T) {
	b := newBench(t)
	b.shadowPod(corev1.RestartPolicyAlways)
	pods := corev1.Resource("pods")
	for _, refusal := range []error{
		apierrors.NewForbidden(pods, "web-0", errors.New(`error looking up service account shop/default: serviceaccount "default" not found`)),
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

// A ShadowPod without our finalizer, as nobody of ours would write it.
func TestHostileFinalizers(t *testing.T) {
	b := newBench(t)
	s := b.shadowPod(corev1.RestartPolicyAlways, func(s *v1alpha1.ShadowPod) { s.Finalizers = nil })
	_, err := b.once(b.uid)
	b.must(err)
	b.noPod()
	if !strings.Contains(b.show(), v1alpha1.FinalizerShadowPod) {
		t.Fatal("the finalizer was not added before the pod")
	}
	b.settle()
	b.pod()
	// The finalizer is taken off and the ShadowPod deleted behind our back.
	b.must(b.c.Patch(t.Context(), s, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
	b.must(b.c.Delete(t.Context(), s))
	b.settle()
	b.noPod()
}

// Labels prove nothing: pods in namespaces that are not the tenant's are not touched.
func TestForeignPods(t *testing.T) {
	b := newBench(t)
	other := newBench(t)
	uid := "11111111-2222-3333-4444-555555555555"
	stranger := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: other.space, Name: "x",
		Labels: map[string]string{v1alpha1.LabelTenant: b.tenant, v1alpha1.LabelHomeUID: uid}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "busybox:1"}}}}
	b.must(b.c.Create(t.Context(), stranger))
	_, err := b.once(uid)
	b.must(err)
	if len(b.podsOf(uid)) != 1 {
		t.Fatal("a pod was deleted that is not the tenant's")
	}
	orphan := stranger.DeepCopy()
	orphan.ObjectMeta = metav1.ObjectMeta{Namespace: b.space, Name: "x", Labels: stranger.Labels, Finalizers: []string{v1alpha1.FinalizerShadowPod}}
	b.must(b.c.Create(t.Context(), orphan))
	for range 3 {
		_, err := b.once(uid)
		b.must(err)
	}
	if pods := b.podsOf(uid); len(pods) != 1 || pods[0].Namespace != other.space {
		t.Fatalf("the orphan was not removed: %d pods", len(pods))
	}
}

// A running pod follows what can be changed, and keeps the rest with a word.
func TestFollows(t *testing.T) {
	b := newBench(t)
	b.shadowPod(corev1.RestartPolicyAlways, func(s *v1alpha1.ShadowPod) { s.Spec.Pod = podText(corev1.RestartPolicyAlways, requests("100m")) })
	b.settle()
	b.bind(b.node(corev1.ConditionTrue).Name)
	b.status(running)
	b.status(func(s *corev1.PodStatus) { // its kubelet can resize
		resources := b.pod().Spec.Containers[0].Resources
		s.ContainerStatuses[0].Resources = &resources
	})
	b.settle()
	uid := b.pod().UID

	edit := func(change func(*v1alpha1.ShadowPod)) {
		t.Helper()
		s := b.get(b.uid)
		change(s)
		b.must(b.c.Update(t.Context(), s))
		b.clock.SetTime(b.clock.Now().Add(changeEvery))
		b.settle()
		if s := b.get(b.uid); s.Status.ObservedGeneration != s.Generation {
			t.Fatalf("the change was not observed: %s", b.show())
		}
	}
	edit(func(s *v1alpha1.ShadowPod) {
		s.Spec.Labels["app"] = "web2"
		s.Spec.Pod = podText(corev1.RestartPolicyAlways, requests("100m"), image("busybox:2"))
	})
	pod := b.pod()
	b.want("label", pod.Labels["app"], "web2")
	b.want("image", pod.Spec.Containers[0].Image, "busybox:2")
	edit(func(s *v1alpha1.ShadowPod) {
		s.Spec.Pod = podText(corev1.RestartPolicyAlways, requests("200m"), image("busybox:2"), func(p *corev1.PodSpec) {
			p.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "busybox:1"}}}
		})
	})
	pod = b.pod()
	if n := len(pod.Spec.EphemeralContainers); n != 1 {
		t.Errorf("%d ephemeral containers, want 1", n)
	}
	b.want("cpu", pod.Spec.Containers[0].Resources.Requests.Cpu().String(), "200m")
	b.want("message", condition(b.get(b.uid).Status.Conditions).Message, "")

	kept := pod.ResourceVersion
	edit(func(s *v1alpha1.ShadowPod) {
		s.Spec.Pod = podText(corev1.RestartPolicyAlways, requests("200m"), func(p *corev1.PodSpec) { p.HostPID = true })
	})
	b.want("version", b.pod().ResourceVersion, kept)
	b.want("reason", b.reason(), "True Running")
	if c := condition(b.get(b.uid).Status.Conditions); !strings.Contains(c.Message, "hostPID") {
		t.Errorf("the refused change is not told: %q", c.Message)
	}
	edit(func(s *v1alpha1.ShadowPod) {
		s.Spec.Pod = podText(corev1.RestartPolicyAlways, requests("200m"), image("busybox:3"), func(p *corev1.PodSpec) {
			p.Containers[0].Command = []string{"sleep", "1"}
			p.EphemeralContainers = pod.Spec.EphemeralContainers
		})
	})
	b.want("image", b.pod().Spec.Containers[0].Image, "busybox:3")
	if c := condition(b.get(b.uid).Status.Conditions); !strings.Contains(c.Message, "command") {
		t.Errorf("the impossible change is not told: %q", c.Message)
	}
	version := b.picture(b.uid)
	b.restart(b.c)
	b.settle()
	b.want("after a restart", b.picture(b.uid), version)
	b.want("pod", string(b.pod().UID), string(uid))
}

func requests(cpu string) func(*corev1.PodSpec) {
	return func(p *corev1.PodSpec) {
		p.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
		p.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	}
}

func image(name string) func(*corev1.PodSpec) {
	return func(p *corev1.PodSpec) { p.Containers[0].Image = name }
}

// A tenant that is drained loses its pods, and gets them again when that is over.
func TestDrained(t *testing.T) {
	b := newBench(t)
	b.shadowPod(corev1.RestartPolicyAlways)
	b.settle()
	b.bind(b.node(corev1.ConditionTrue).Name)
	b.status(running)
	b.settle()
	tenant := &v1alpha1.Tenant{}
	b.must(b.c.Get(t.Context(), client.ObjectKey{Name: b.tenant}, tenant))
	tenant.Spec.State = v1alpha1.TenantDrained
	b.must(b.c.Update(t.Context(), tenant))
	b.must(Drainer{Client: b.c}.Drain(t.Context(), tenant))
	b.must(Drainer{Client: b.c}.Drain(t.Context(), tenant))
	b.settle()
	b.want("reason", b.reason(), "False Drained")
	b.kubeletDone()
	b.settle()
	b.noPod()
	tenant.Spec.State = v1alpha1.TenantActive
	b.must(b.c.Update(t.Context(), tenant))
	b.clock.SetTime(b.clock.Now().Add(longestBackoff))
	b.settle()
	b.want("reason", b.reason(), "True Running")
	b.pod()

	// The tenant ends: also what was refused goes.
	second := b.shadowPod(corev1.RestartPolicyAlways, func(s *v1alpha1.ShadowPod) { s.Spec.Home.Namespace = "other" })
	b.settle()
	now := metav1.Now()
	ending := tenant.DeepCopy()
	ending.DeletionTimestamp = &now
	b.must(Drainer{Client: b.c}.Drain(t.Context(), ending))
	list := &v1alpha1.ShadowPodList{}
	b.must(b.c.List(t.Context(), list, client.InNamespace(b.tenantSpace())))
	for _, s := range list.Items {
		b.settle(s.Name)
	}
	b.uid = second.Name
	b.want("what was refused", b.show(), "gone")
	b.must(b.c.List(t.Context(), list, client.InNamespace(b.tenantSpace())))
	if len(list.Items) != 0 {
		t.Errorf("%d shadow pods are left", len(list.Items))
	}
}

// A tenant cannot make its pods outlast its end, neither by their own grace nor by
// having them deleted with it first.
func TestDrainedInTime(t *testing.T) {
	b := newBench(t)
	b.shadowPod(corev1.RestartPolicyAlways, func(s *v1alpha1.ShadowPod) {
		s.Spec.Pod = regexp.MustCompile(`"terminationGracePeriodSeconds":\d+`).ReplaceAllString(s.Spec.Pod, `"terminationGracePeriodSeconds":1000000000`)
	})
	b.settle()
	b.bind(b.node(corev1.ConditionTrue).Name)
	b.status(running)
	b.settle()
	tenant := &v1alpha1.Tenant{}
	b.must(b.c.Get(t.Context(), client.ObjectKey{Name: b.tenant}, tenant))
	for _, when := range []string{"before", "while it is being deleted"} {
		if when != "before" {
			b.must(b.c.Delete(t.Context(), b.pod()))
		}
		tenant.Spec.State = v1alpha1.TenantDrained
		b.must(Drainer{Client: b.c}.Drain(t.Context(), tenant))
		b.must(Drainer{Client: b.c}.Drain(t.Context(), tenant))
		if grace := b.pod().DeletionGracePeriodSeconds; grace == nil || *grace > 600 {
			t.Fatalf("%s: it has %v seconds to end", when, grace)
		}
		b.kubeletDone()
		b.settle()
		if when == "before" {
			b.bind(b.node(corev1.ConditionTrue).Name)
			b.status(running)
			b.settle()
		}
	}
}

// A pod on a node that is gone does not keep its ShadowPod.
func TestDeadNode(t *testing.T) {
	b := newBench(t)
	b.shadowPod(corev1.RestartPolicyNever)
	b.settle()
	node := b.node(corev1.ConditionUnknown)
	b.bind(node.Name)
	b.status(running)
	b.settle()
	b.must(b.c.Delete(t.Context(), b.get(b.uid)))
	b.settle()
	b.pod()
	b.clock.SetTime(time.Now().Add(30*time.Second + deadline - 10*time.Second))
	b.settle()
	b.pod()
	b.clock.SetTime(time.Now().Add(30*time.Second + deadline + 10*time.Second))
	b.settle()
	b.noPod()
	b.want("the shadow pod", b.show(), "gone")

	b.shadowPod(corev1.RestartPolicyAlways)
	b.settle()
	b.bind(node.Name)
	b.status(running)
	b.settle()
	first := b.pod()
	b.must(b.c.Delete(t.Context(), node))
	b.must(b.c.Delete(t.Context(), first)) // as the collector of orphaned pods does
	b.clock.SetTime(b.clock.Now().Add(longestBackoff))
	b.settle()
	if b.pod().UID == first.UID {
		t.Fatal("it was not made again")
	}
}

// Status is written once per 200 ms at most, at once if it is urgent, else after a second.
func TestPace(t *testing.T) {
	b := newBench(t)
	b.shadowPod(corev1.RestartPolicyAlways)
	_, err := b.once(b.uid)
	b.must(err)
	again, err := b.once(b.uid)
	b.must(err)
	if again != writeLater || b.reason() != "" {
		t.Fatalf("a new pod was told of at once, or never: %s", again)
	}
	b.bind(b.node(corev1.ConditionTrue).Name)
	b.status(running)
	_, err = b.once(b.uid)
	b.must(err)
	b.want("what is urgent", b.get(b.uid).Status.Phase, "Running")
	b.status(func(s *corev1.PodStatus) { s.Phase = corev1.PodPending })
	again, err = b.once(b.uid)
	b.must(err)
	if again != writeEvery {
		t.Errorf("looks again in %s, want %s", again, writeEvery)
	}
	b.want("what is too soon", b.get(b.uid).Status.Phase, "Running")
	b.clock.SetTime(b.clock.Now().Add(again))
	_, err = b.once(b.uid)
	b.must(err)
	b.want("a little later", b.get(b.uid).Status.Phase, "Pending")
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

// A pod that is made again gets its ephemeral containers, which cannot be there from the
// beginning.
func TestEphemeralFromTheStart(t *testing.T) {
	b := newBench(t)
	b.shadowPod(corev1.RestartPolicyAlways, func(s *v1alpha1.ShadowPod) {
		s.Spec.Pod = podText(corev1.RestartPolicyAlways, func(p *corev1.PodSpec) {
			p.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "busybox:1"}}}
		})
	})
	b.settle()
	if n := len(b.pod().Spec.EphemeralContainers); n != 1 {
		t.Errorf("%d ephemeral containers, want 1; the shadow pod is %s", n, b.show())
	}
	b.want("reason", b.reason(), "True Running")
}
