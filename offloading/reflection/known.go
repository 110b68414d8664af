package reflection

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/offloading/content"
)

// Secrets and ConfigMaps are in no cache, and an object is looked at whenever something happens to it at
// the provider. It is read at home only if it may be another one by now: what was read is remembered,
// without the content, for a minute, and for as long as the names that are listed every minute show the
// same version.

const (
	// listedFor is for how long an object is known after it was listed: until after the next list.
	listedFor = rereadEvery + rereadEvery/2
	// almost is how long before its time an object is read again that is looked at anyway: looks
	// are spread.
	almost = rereadEvery / 5
)

// known is what is remembered of an object at home that is in no cache.
type known struct {
	uid     types.UID
	version string // nothing is known if it is empty
	policy  v1alpha1.ReflectionPolicy
	// terms are those under which it was read, see there.
	terms string
	until time.Time
	// sent is the hash of the text that the provider has of this version, and pods those for which it
	// was read; the content is not known if it is empty.
	sent string
	pods uint64
	// shown is what its parts there say, see there.
	shown string
}

// knownOf is what there is to know of metadata that was read now.
func knownOf(o metav1.Object, policy v1alpha1.ReflectionPolicy, terms string, now time.Time) known {
	return known{uid: o.GetUID(), version: o.GetResourceVersion(), policy: policy, terms: terms, until: now.Add(rereadEvery)}
}

// again is what is known after metadata was read once more.
func (k known) again(o metav1.Object, policy v1alpha1.ReflectionPolicy, terms string, now time.Time) known {
	next := knownOf(o, policy, terms, now)
	if k.uid == next.uid && k.version == next.version && k.terms == terms {
		next.sent, next.pods, next.shown = k.sent, k.pods, k.shown
	}
	return next
}

// good says whether the metadata need not be read again for so long.
func (k known) good(terms string, now time.Time, least time.Duration) bool {
	left := k.until.Sub(now)
	return k.version != "" && k.terms == terms && left > least && left <= listedFor // longer only if the clock was set
}

// carried says whether a provider has the object as it is known, so that it need not be read.
func (k known) carried(f *facts, terms string, pods uint64) bool {
	return k.sent != "" && k.pods == pods && k.good(terms, f.now, almost) &&
		f.stays() != nil && f.shown() == k.shown && f.there.Annotations[v1alpha1.AnnotationApplied] == k.sent
}

// terms are what decides, beside the object, whether and how it travels: the version of the rules of its
// namespace, and what the provider's build does not know.
func (r *consumer) terms(ctx context.Context, peering string, kind content.Kind, namespace string) (string, error) {
	o := &v1alpha1.NamespaceOffloading{}
	err := r.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.OffloadingName}, o, client.UnsafeDisableDeepCopy)
	if client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("reading the namespace offloading: %w", err)
	}
	there, err := r.remote(ctx, peering)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s/%d/%t/%s", o.UID, o.Generation, slices.Contains(there.Features, v1alpha1.FeatureParts), unknown(there, kind.Name)), nil
}

// podsOf tells sets of pods apart: a pod that comes gets what is there when it comes.
func podsOf(pods []*corev1.Pod) (sum uint64) {
	for _, p := range pods {
		h := fnv.New64a()
		h.Write([]byte(p.UID)) // never fails
		sum += h.Sum64()
	}
	return sum
}

// compare takes note of which versions of the objects of a kind there were in a namespace at a time, by their
// names, and returns those that are not as they are known, of which all is forgotten. Of one that was not
// listed this is so only if all were.
func compare(n *notes[note], peering, namespace, kind string, versions map[string]string, all bool, at time.Time) []reconcile.Request {
	var changed []reconcile.Request
	where := peering + "/" + namespace
	n.change(where, func(key string, v note) note {
		name, of := strings.CutPrefix(key, kind+"/")
		if !of || v.known.version == "" {
			return v
		}
		switch version, there := versions[name]; {
		case there && version == v.known.version:
			if until := at.Add(listedFor); until.After(v.known.until) {
				v.known.until = until
			}
		case there || all:
			v.known = known{}
			changed = append(changed, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: where, Name: key}})
		}
		return v
	})
	return changed
}
