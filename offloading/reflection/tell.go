package reflection

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

const (
	// tellEvery is when is told again what is still so: API servers keep events for an hour.
	tellEvery = 30 * time.Minute
	// mostAgain is how many pods are told again of one object.
	mostAgain = 10
	// tellLater is when is told what there was no budget for.
	tellLater = time.Minute
	// locateEvery is how often new addresses of one object are told: they are the provider's word.
	locateEvery = time.Minute
	// maxLocated is how many bytes of addresses an event tells.
	maxLocated = 600
)

// tell makes one event on the object, and one on every pod that needs it and has not been
// told the same yet; and again from time to time, while it is so. What there is no budget for is
// told later: it returns when to look again.
func (r *consumer) tell(peering string, home v1alpha1.HomeObject, f *facts, is verdict, pods []*corev1.Pod, n *note, next time.Duration) time.Duration {
	how := ""
	if is.reason != "" && !is.refused || is.told == f.cut {
		how = " as it is"
	}
	text := fmt.Sprintf("%s %s is not carried to %s%s: %s", home.Kind, home.Name, peering, how, is.told)
	warn := func(about client.Object) bool {
		return r.say(peering, f.now, about, corev1.EventTypeWarning, "NotReflected", text)
	}
	again := n.told == is.told && f.now.Sub(n.toldAt) >= tellEvery
	before, past := n.tellings, n.tellings
	if n.told != is.told || again {
		if is.told != "" && f.home != nil && !warn(f.home) {
			return min(next, tellLater)
		}
		n.told, n.toldAt, before = is.told, f.now, nil
	}
	if n.tellings = nil; is.told == "" {
		return next
	}
	n.tellings = make(map[types.UID]bool, len(pods))
	for i, pod := range pods {
		due := !before[pod.UID] && !(past[pod.UID] && again && i >= mostAgain) && !(f.found == absent && optional(pod, home))
		if due && !warn(pod) {
			next = min(next, tellLater)
			continue
		}
		n.tellings[pod.UID] = true
	}
	return next
}

// say makes an event of what is so at a provider, unless that has caused too many.
func (r *consumer) say(peering string, now time.Time, about client.Object, kind, reason, text string) bool {
	if !r.budget.Take(peering, now) {
		return false
	}
	r.events.Eventf(about, ofPeering(peering, text), kind, reason, "Reflect", "%s", text)
	return true
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
	text, all := home.Kind+" "+home.Name+" has no address at "+peering+" any more", n.shown.Addresses
	if len(all) > 0 {
		text = home.Kind + " " + home.Name + " is reached at " + peering + " by " + all[0]
		for i, address := range all[1:] {
			if len(text)+len(address) > maxLocated {
				text += fmt.Sprintf(" and %d more", len(all)-1-i)
				break
			}
			text += ", " + address
		}
	}
	if !r.say(peering, f.now, f.home, corev1.EventTypeNormal, "AddressesChanged", text) {
		return min(again, locateEvery)
	}
	n.located, n.locatedAt = all, f.now
	return again
}

// ofPeering is what events about a provider refer to beside their object. Those that say different
// things have to differ in it, or all are taken for the first one, which is repeated.
func ofPeering(name, text string) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Peering", Name: name, FieldPath: hash(text)}
}
