package consumer

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/offloading/shadow"
)

// Tunnels says whether pods of providers can be reached. It may be asked at any time, by many
// at once.
type Tunnels interface {
	// Alive says whether the tunnel to the provider of a peering carries packets both ways. It
	// is not known while nobody has said so, nor where there is no network.
	Alive(peering string) (alive, known bool)
	// TunnelSource tells of the peerings of which Alive says something else.
	TunnelSource(mapper func(peering string) []reconcile.Request) source.Source
	Gateways
}

// tunnel is how the tunnel to a provider is.
type tunnel int

const (
	tunnelNone    tunnel = iota // this cluster's network is off
	tunnelUnknown               // nobody has said so, or there is no network with this provider
	tunnelAlive
	tunnelDead
)

func (r *reconciler) tunnel(peering string) tunnel {
	if r.tunnels == nil {
		return tunnelNone
	}
	switch alive, known := r.tunnels.Alive(peering); {
	case !known:
		return tunnelUnknown
	case alive:
		return tunnelAlive
	}
	return tunnelDead
}

// cut makes a running pod not ready that nobody here reaches, as its tunnel is dead. What
// was so before this process began stays so while it has not learnt how the tunnel is: it
// returns when to look again then, else 0. All other conditions are the provider's.
func cut(f facts, next *corev1.PodStatus) time.Duration {
	if next.Phase != corev1.PodRunning {
		return 0
	}
	var left time.Duration
	switch {
	case f.tunnel == tunnelDead:
	case f.tunnel == tunnelUnknown && isCut(f.pod):
		if left = f.began.Add(settling).Sub(f.now); left <= 0 || left > settling {
			return 0
		}
	default:
		return 0
	}
	c := corev1.PodCondition{
		Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonTunnelDown, ObservedGeneration: next.ObservedGeneration,
		Message: "nothing comes back through the tunnel to " + f.peering + ", so the pod is not reached from here: see pelago status " + f.peering,
	}
	i := slices.IndexFunc(next.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
	if i < 0 {
		next.Conditions = append(next.Conditions, c)
		return left
	}
	if was := next.Conditions[i]; was.Status == c.Status {
		c.LastTransitionTime = was.LastTransitionTime
	} else {
		c.LastTransitionTime = metav1.Time{} // it is stamped
	}
	next.Conditions[i] = c
	return left
}

// isCut says whether a pod is not ready because of its tunnel.
func isCut(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Reason == v1alpha1.ReasonTunnelDown
	})
}

// severed is a pod of whose provider nothing is known but how the tunnel is. One that was not
// ready because of its tunnel is as ready as was known last when that is over.
func severed(f facts) plan {
	if f.pod.Status.Phase != corev1.PodRunning {
		return plan{}
	}
	next := *f.pod.Status.DeepCopy()
	if isCut(f.pod) {
		next = shadow.Restored(f.pod)
	}
	again := cut(f, &next)
	return plan{status: changed(f, next), again: again}
}
