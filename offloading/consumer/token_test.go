package consumer

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/offloading/shadow"
)

// TestTokensAsForged: a pod is sent with tokens if its namespace says so at that moment,
// and stays as it was sent: volumes of a running pod cannot change.
func TestTokensAsForged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	turn := func(knob v1alpha1.TokenPolicy) {
		t.Helper()
		o := &v1alpha1.NamespaceOffloading{}
		if err := w.admin.Get(ctx, client.ObjectKey{Namespace: w.home, Name: v1alpha1.OffloadingName}, o); err != nil {
			t.Fatal(err)
		}
		o.Spec.ServiceAccountTokens = knob
		if err := w.admin.Update(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	access := func(p *corev1.Pod) {
		p.Spec.ServiceAccountName = "default"
		p.Spec.Volumes = []corev1.Volume{{Name: "kube-api-access-x", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}}}}}}
	}
	denied := w.pod("denied", access)
	w.reconcile(denied)
	turn(v1alpha1.TokensAllow)
	allowed := w.pod("allowed", access)
	w.reconcile(allowed)
	check := func(when string) {
		t.Helper()
		for pod, want := range map[*corev1.Pod]bool{denied: false, allowed: true} {
			s := w.shadow(pod)
			if s == nil {
				t.Fatalf("%s: %s has not been sent", when, pod.Name)
			}
			if shadow.HasTokens(s) != want || s.Generation != 1 {
				t.Errorf("%s: %s has tokens %t in generation %d, want %t as it was sent", when, pod.Name, shadow.HasTokens(s), s.Generation, want)
			}
		}
	}
	check("sent")
	w.reconcile(denied)
	check("allowed")
	turn(v1alpha1.TokensDeny)
	w.reconcile(allowed)
	check("denied")
}

// TestTokensNoted: that a pod was sent without tokens is home's word, noted on its own pod by a write that is made
// anyway, and no provider's.
func TestTokensNoted(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]error{
		"made": nil, "made, and called a failure": apierrors.NewInternalError(errors.New("no")),
		"made, and refused": apierrors.NewForbidden(schema.GroupResource{Resource: "shadowpods"}, "x", errors.New("no")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testTokensNoted(t, answer)
		})
	}
}

func testTokensNoted(t *testing.T, answer error) {
	w := newWorld(t)
	p := w.pod("web", func(p *corev1.Pod) {
		p.Spec.ServiceAccountName = "default"
		p.Spec.Volumes = []corev1.Volume{{Name: "kube-api-access-x", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}}}}}}
	})
	if answer == nil {
		w.reconcile(p)
	} else {
		w.fail = func(_ int, call string) (before, after error) {
			if call == "there create" {
				after = answer
			}
			return nil, after
		}
		_, _ = w.pods.Reconcile(ctx, request(p))
		w.fail = nil
	}
	s := w.shadow(p)
	s.Annotations = map[string]string{v1alpha1.AnnotationTokens: "true"} // before home has written anything
	if err := w.admin.Update(ctx, s); err != nil {
		t.Fatal(err)
	}
	w.tell(p, &corev1.PodStatus{Phase: corev1.PodPending}, accepted(metav1.ConditionTrue, v1alpha1.ReasonRunning, ""))
	before := w.sum()
	w.reconcile(p)
	if n := w.sum() - before; n != 1 {
		t.Errorf("%d writes, want the one of the status", n)
	}
	for range 2 {
		is := &corev1.Pod{}
		if err := w.admin.Get(ctx, client.ObjectKeyFromObject(p), is); err != nil {
			t.Fatal(err)
		}
		if !shadow.IsBare(is) || w.shadow(p).Generation != 1 {
			t.Errorf("noted %q, and the ShadowPod is of generation %d", is.Annotations[v1alpha1.AnnotationTokens], w.shadow(p).Generation)
		}
		w.reconcile(p)
	}
}

// sum is how many writes there were.
func (w *world) sum() (n int) {
	for _, times := range w.writes {
		n += times
	}
	return n
}
