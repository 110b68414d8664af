package namespace

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// announce makes events of what has changed for people. It returns when there is more to tell, 0 if there is not.
func (r *offloader) announce(k *known, f *facts, after *v1alpha1.NamespaceOffloading, p *plan) time.Duration {
	again := r.announceReady(k, f.now, after)
	for i := range after.Status.Clusters {
		c := &after.Status.Clusters[i]
		if kept(c) == nil {
			delete(k.kept, c.Name)
			continue
		}
		if k.kept[c.Name] || !k.tells(c.Name, f.now) || !r.memory.take(c.Name, f.now) {
			continue // what is not told is in the status
		}
		k.kept[c.Name], k.keptAt[c.Name] = true, f.now
		r.events.Eventf(after, nil, corev1.EventTypeWarning, v1alpha1.ReasonVolumesKept, "Unoffload", "%s: %s", c.Name, kept(c).Message)
	}
	if p.done && len(p.left) > 0 && after.DeletionTimestamp != nil {
		r.events.Eventf(after, nil, corev1.EventTypeWarning, "LeftBehind", "Unoffload",
			"%s did not remove the namespace in time, and will when the clusters reach each other", strings.Join(p.left, ", "))
	}
	return again
}

// announceReady makes an event of whether the namespace is there: at once, unless another one has just been made of
// it, or a provider has caused too many.
func (r *offloader) announceReady(k *known, now time.Time, after *v1alpha1.NamespaceOffloading) time.Duration {
	is := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionReady)
	if k.generation != after.Generation { // somebody waits for it
		k.generation, k.at = after.Generation, time.Time{}
	}
	if is == nil || is.Reason == k.reason {
		return 0
	}
	clusters := readyOf(after)
	// No event of an end: what ends is often the namespace, which takes none any more.
	if is.Reason == v1alpha1.ReasonPending || is.Reason == v1alpha1.ReasonTerminating {
		k.reason, k.clusters = is.Reason, clusters
		return 0
	}
	if wait := k.at.Add(tellEvery).Sub(now); wait > 0 && wait <= tellEvery {
		return wait
	}
	if !r.pays(k.clusters, clusters, now) {
		return tellEvery
	}
	k.reason, k.clusters, k.at = is.Reason, clusters, now
	kind := corev1.EventTypeWarning
	if is.Status == metav1.ConditionTrue {
		kind = corev1.EventTypeNormal
	}
	message := is.Message
	if message == "" {
		message = "the namespace is there at every cluster selected"
	}
	r.events.Eventf(after, nil, kind, is.Reason, "Offload", "%s", message)
	return 0
}

// pays says whether one of the providers that have changed something may cause an event, or none has.
func (r *offloader) pays(before, after map[string]string, now time.Time) bool {
	changed := false
	for _, peering := range slices.Sorted(maps.Keys(after)) {
		if before[peering] == after[peering] {
			continue
		}
		if r.memory.take(peering, now) {
			return true
		}
		changed = true
	}
	return !changed
}

// readyOf says of each cluster why the namespace is ready there, or is not.
func readyOf(o *v1alpha1.NamespaceOffloading) map[string]string {
	out := map[string]string{}
	for i := range o.Status.Clusters {
		c := &o.Status.Clusters[i]
		if said := meta.FindStatusCondition(c.Conditions, v1alpha1.ConditionReady); said != nil {
			out[c.Name] = said.Reason
		}
	}
	return out
}

// steady returns what the status is to say of a cluster, which is what it has said for a while more if the provider
// changes its mind all the time. What home itself wants is said at once, and so is what the provider answers to that.
func (k *known) steady(f *facts, p *plan) func(old, now v1alpha1.ClusterOffloading) v1alpha1.ClusterOffloading {
	return func(old, now v1alpha1.ClusterOffloading) v1alpha1.ClusterOffloading {
		is := meta.FindStatusCondition(now.Conditions, v1alpha1.ConditionOffloadingRequired)
		was := meta.FindStatusCondition(old.Conditions, v1alpha1.ConditionOffloadingRequired)
		if f.ending != nil || equality.Semantic.DeepEqual(old, now) {
			return now
		}
		if was == nil || !equality.Semantic.DeepEqual(was, is) { // the generation in it too
			k.changes.earn(now.Name, answersEarned)
			return now
		}
		if wait := k.changes.wait(now.Name, f.now); wait > 0 {
			p.in(wait)
			return old
		}
		k.changes.note(now.Name, f.now)
		return now
	}
}

func kept(c *v1alpha1.ClusterOffloading) *metav1.Condition {
	said := meta.FindStatusCondition(c.Conditions, v1alpha1.ConditionReady)
	if said == nil || said.Reason != v1alpha1.ReasonVolumesKept {
		return nil
	}
	return said
}
