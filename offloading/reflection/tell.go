package reflection

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

const (
	// tellEvery is when is told again what is still so: API servers keep events for an hour.
	tellEvery = 30 * time.Minute
	// mostAgain is how many pods are told again of one object.
	mostAgain = 10
	// locateEvery is how often new addresses of one object are told: they are the provider's word.
	locateEvery = time.Minute
	// maxLocated is how many bytes of addresses an event tells.
	maxLocated = 600
)

// tell makes one event on the object, and one on every pod that needs it and has not been
// told the same yet; and again from time to time, while it is so.
func (r *consumer) tell(peering string, home v1alpha1.HomeObject, f *facts, is verdict, pods []*corev1.Pod, n *note) {
	how := ""
	if is.reason != "" && !is.refused || is.told == f.cut {
		how = " as it is"
	}
	warn := func(about client.Object) {
		r.events.Eventf(about, ofPeering(peering), corev1.EventTypeWarning, "NotReflected", "Reflect", "%s %s is not carried to %s%s: %s", home.Kind, home.Name, peering, how, is.told)
	}
	again := n.told == is.told && f.now.Sub(n.toldAt) >= tellEvery
	before, past := n.tellings, n.tellings
	if n.told != is.told || again {
		n.told, n.toldAt, before = is.told, f.now, nil
		if is.told != "" && f.home != nil {
			warn(f.home)
		}
	}
	if n.tellings = nil; is.told == "" {
		return
	}
	n.tellings = make(map[types.UID]bool, len(pods))
	for i, pod := range pods {
		n.tellings[pod.UID] = true
		if !before[pod.UID] && !(past[pod.UID] && again && i >= mostAgain) && !(f.found == absent && optional(pod, home)) {
			warn(pod)
		}
	}
}

// tellAddresses makes an event on the object when it is reached by other addresses at the
// provider than before, and says when to look again. Home's own status of it is home's
// controllers', so they are not written there.
func (r *consumer) tellAddresses(peering string, home v1alpha1.HomeObject, f *facts, n *note, again time.Duration) time.Duration {
	if f.home == nil || slices.Equal(n.located, n.shown.Addresses) {
		return again
	}
	if wait := locateEvery - f.now.Sub(n.locatedAt); wait > 0 && wait <= locateEvery {
		return min(again, wait)
	}
	n.located, n.locatedAt = n.shown.Addresses, f.now
	text := home.Kind + " " + home.Name + " has no address at " + peering + " any more"
	if len(n.located) > 0 {
		text = home.Kind + " " + home.Name + " is reached at " + peering + " by " + n.located[0]
		for i, address := range n.located[1:] {
			if len(text)+len(address) > maxLocated {
				text += fmt.Sprintf(" and %d more", len(n.located)-1-i)
				break
			}
			text += ", " + address
		}
	}
	r.events.Eventf(f.home, ofPeering(peering), corev1.EventTypeNormal, "AddressesChanged", "Reflect", "%s", text)
	return again
}

// ofPeering is what events about a provider refer to beside their object: those of two
// providers would be taken for one that is repeated.
func ofPeering(name string) *metav1.PartialObjectMetadata {
	p := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Peering"))
	return p
}
