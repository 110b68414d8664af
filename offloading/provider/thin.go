package provider

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// keptWhole is the most bytes of what a ShadowPod says that a cache holds: those of
// ordinary pods have a third of it.
const keptWhole = 16 << 10

// Trim takes out of a ShadowPod that is to be cached what only this room reads and is
// large, if it is: consumers say how large, and how many there are. The reconciler reads
// what is left out past the cache.
func Trim(s *v1alpha1.ShadowPod) {
	n := len(s.Spec.Pod) + len(s.Status.Pod)
	for _, m := range []map[string]string{s.Spec.Labels, s.Spec.Annotations} {
		for key, value := range m {
			n += len(key) + len(value)
		}
	}
	if n > keptWhole {
		s.Spec.Labels, s.Spec.Annotations, s.Spec.Pod, s.Status.Pod = nil, nil, "", ""
	}
}

// trimmed says that a ShadowPod lacks what Trim takes: no API server takes one without a
// pod.
func trimmed(s *v1alpha1.ShadowPod) bool { return s.Spec.Pod == "" }

// whole reads a ShadowPod, past the cache if that has not got all of it.
func (r *reconciler) whole(ctx context.Context, key client.ObjectKey) (s *v1alpha1.ShadowPod, err error) {
	s = &v1alpha1.ShadowPod{}
	if err := r.client.Get(ctx, key, s); err != nil || !trimmed(s) {
		return s, err
	}
	s = &v1alpha1.ShadowPod{}
	return s, r.live.Get(ctx, key, s)
}
