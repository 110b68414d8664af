package network

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestPodChanged holds that whatever policies see of a pod causes a look, and what they do not see
// causes none: pods write their status all the time.
func TestPodChanged(t *testing.T) {
	for reason, c := range map[string]struct {
		change func(p *corev1.Pod)
		want   bool
	}{
		"another label":       {func(p *corev1.Pod) { p.Labels["app"] = "other" }, true},
		"it is bound":         {func(p *corev1.Pod) { p.Spec.NodeName = "other" }, true},
		"it has an address":   {func(p *corev1.Pod) { p.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.1"}} }, true},
		"it has ended":        {func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, true},
		"it has failed":       {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, true},
		"it is ready":         {func(p *corev1.Pod) { p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady}} }, false},
		"it has begun":        {func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }, false},
		"it is to go":         {func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }, false},
		"another annotation":  {func(p *corev1.Pod) { p.Annotations = map[string]string{"a": "b"} }, false},
		"another of its name": {func(p *corev1.Pod) { p.UID = "other" }, true},
		"of the host's ports": {func(p *corev1.Pod) { p.Spec.HostNetwork = true }, true},
	} {
		was := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "db"}}, Spec: corev1.PodSpec{NodeName: "n"}}
		is := was.DeepCopy()
		c.change(is)
		if got := podChanged().Update(event.UpdateEvent{ObjectOld: was, ObjectNew: is}); got != c.want {
			t.Errorf("%s: a look is caused: %t, want %t", reason, got, c.want)
		}
	}
	unbound, host := &corev1.Pod{}, &corev1.Pod{Spec: corev1.PodSpec{NodeName: "n", HostNetwork: true}}
	for _, p := range []*corev1.Pod{unbound, host} {
		if podChanged().Create(event.CreateEvent{Object: p}) || podChanged().Delete(event.DeleteEvent{Object: p}) {
			t.Errorf("a pod that policies do not see causes a look: %+v", p.Spec)
		}
	}
}

// TestPeeringChanged holds that a provider's words cause a look, and a Peering's own status none.
func TestPeeringChanged(t *testing.T) {
	was := &v1alpha1.Peering{}
	was.Status.Remote = &v1alpha1.ClusterInfo{Features: []string{v1alpha1.FeatureNetwork}}
	is := was.DeepCopy()
	is.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionNetworkReady}}
	if remoteChanged().Update(event.UpdateEvent{ObjectOld: was, ObjectNew: is}) {
		t.Error("a condition causes a look")
	}
	is.Status.Remote.Features = append(is.Status.Remote.Features, v1alpha1.FeatureNetworkPolicy)
	if !remoteChanged().Update(event.UpdateEvent{ObjectOld: was, ObjectNew: is}) {
		t.Error("a provider that has been upgraded causes no look")
	}
}
