package torture

import (
	"fmt"
	"time"
)

const (
	// Grace is how long after a place's last pod was bound to the provider something that it
	// needed may still arrive there, as it may have been on its way through an outage.
	Grace = 2 * time.Minute
	// behind is how much later than the provider's watch home's may tell of a pod.
	behind = 30 * time.Second
)

// arrival is something that came to the provider for pods of a place.
type arrival struct {
	place, what string
	at, needed  time.Time // needed: when a pod of the place was last seen bound, as of the arrival
	judged      bool
}

// arrivedUnasked: a Secret or a ConfigMap came to the provider, and no pod that refers to
// it is bound there, was within Grace, or is seen to be soon after.
func arrivedUnasked(w *World, m *Memory) (found []Violation) {
	for _, place := range offloadable {
		if _, unneeded := w.bound(place); !unneeded {
			m.needed[place] = w.Now
		}
	}
	come := func(kind string, held map[string]Held) {
		for uid, h := range held {
			if _, known := m.arrivals[uid]; !known && len(h.Canaries) > 0 {
				place := h.Canaries[0].Place
				m.arrivals[uid] = &arrival{place: place, what: fmt.Sprintf("%s %s/%s", kind, h.Namespace, h.Name), at: w.Now, needed: m.needed[place]}
			}
		}
	}
	come("Secret", w.Remote.Secrets)
	come("ConfigMap", w.Remote.Configs)
	for _, a := range m.arrivals {
		if a.judged || w.Now.Sub(a.at) < behind {
			continue
		}
		a.judged = true
		if a.at.Sub(a.needed) > Grace && !m.needed[a.place].After(a.at) {
			found = append(found, Violation{Place: a.place, Text: fmt.Sprintf("%s came to the provider, and no pod had referred to it for %s", a.what, Grace)})
		}
	}
	return found
}
