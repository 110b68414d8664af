package torture

import (
	"fmt"
	"strings"
	"time"
)

// Apps that are there through the whole storm. In each place are a Guest and a Stranger, one pod
// each, which call the Vault of every place that has one, all the time. A NetworkPolicy in each of
// these places lets guests of any place in and nobody else.
const (
	Vault, Guest, Stranger = "vault", "guest", "stranger"
	// VaultPort is where vaults answer, by the name of their pod.
	VaultPort = 8080
	// lately is how old the last answer may be of a call that has to go well.
	lately = 15 * time.Second
)

// Vaults are the places that have one.
var Vaults = offloadable

// Calls says whether an app calls or is called.
func Calls(app string) bool { return app == Vault || caller(app) }

func caller(app string) bool { return app == Guest || app == Stranger }

// callers make all of these.
func callers() (steps []Step) {
	for _, place := range Vaults {
		steps = append(steps, Step{Verb: Deploy, Target: place + "/" + Vault, Number: 1}, Step{Verb: Expose, Target: place + "/" + toApp + Vault, Number: VaultPort})
	}
	for _, place := range Places {
		steps = append(steps, Step{Verb: Deploy, Target: place + "/" + Guest, Number: 1}, Step{Verb: Deploy, Target: place + "/" + Stranger, Number: 1})
	}
	return steps
}

// VaultHost is the name by which the vault of a place is called.
func VaultHost(place string) string { return toApp + Vault + "." + place + ".svc.cluster.local" }

// Calling says whether steps make callers of both kinds, and a vault.
func Calling(steps []Step) bool {
	made := map[string]bool{}
	for _, s := range steps {
		made[s.Name()] = made[s.Name()] || s.Verb == Deploy
	}
	return made[Vault] && made[Guest] && made[Stranger]
}

// Call is what became of a call.
type Call struct {
	// Caller is the UID of the home pod that called, Place whose vault.
	Caller, Place string
	// Server is the name of the pod that answered, empty if none did.
	Server string
	At     time.Time
}

// ParseCall reads what a caller says of a call: whose vault, and who answered or -.
func ParseCall(caller, line string, at time.Time) (Call, error) {
	words := strings.Fields(line)
	if len(words) != 2 {
		return Call{}, fmt.Errorf("a call that says %q: want the place of a vault, and the name of a pod or -", line)
	}
	return Call{Caller: caller, Place: words[0], Server: strings.TrimPrefix(words[1], "-"), At: at}, nil
}

// Tally counts calls between the clusters.
type Tally struct {
	// Answered are those of guests that were, Refused those of strangers that were not, with a
	// vault in the other cluster.
	Answered, Refused int
}

// Hear notes a call, and returns what it violates: a stranger has an answer from the other cluster.
// Within one cluster its network plugin would have to see to that.
func (w *World) Hear(c Call) (found []Violation) {
	from, known := w.Home.Pods[c.Caller]
	if !known || !caller(from.App) {
		return nil
	}
	w.Calls[c.Caller+" "+c.Place] = c
	for _, vault := range w.Home.Pods {
		if vault.Namespace != c.Place || vault.App != Vault || !across(from, vault) || c.Server != "" && vault.Name != c.Server {
			continue
		}
		switch {
		case from.App == Guest && c.Server != "":
			w.Tally.Answered++
		case from.App == Stranger && c.Server == "" && vault.Ready:
			w.Tally.Refused++
		case from.App == Stranger && c.Server != "":
			found = append(found, Violation{Rule: "who may not call has no answer", Place: from.Namespace, App: from.App,
				Text: fmt.Sprintf("%s on %s called %s/%s on %s, and was answered", from.Name, from.Node, vault.Namespace, vault.Name, vault.Node)})
		}
	}
	return found
}

// across says whether one of two pods is at home and the other at the provider.
func across(a, b Pod) bool {
	return a.Node != "" && b.Node != "" && (a.Node == Provider) != (b.Node == Provider)
}

// unanswered holds that guests have answers across the clusters: those in a place that is never
// offloaded of vaults that are at the provider, and all of the vault of their own place. Where the
// former have been made there has to be one, or nobody would call from here to there.
func (m *Model) unanswered(w *World, place string, add func(string, ...any)) {
	if !m.Places[place].Offloaded {
		return
	}
	for _, vault := range w.Home.Pods {
		if vault.Namespace != place || vault.App != Vault || !vault.Ready {
			continue
		}
		called := vault.Node != Provider || m.Places[Stay].Apps[Guest] == nil
		for uid, guest := range w.Home.Pods {
			if guest.App != Guest || !guest.Ready || !across(guest, vault) || guest.Namespace != place && guest.Namespace != Stay {
				continue
			}
			called = called || guest.Namespace == Stay
			if c := w.Calls[uid+" "+place]; c.Server == "" || w.Now.Sub(c.At) > lately {
				add("%s/%s on %s called %s/%s on %s: answered by %q, %s ago", guest.Namespace, guest.Name, guest.Node, place, vault.Name, vault.Node, c.Server, w.Now.Sub(c.At).Round(time.Second))
			}
		}
		if !called {
			add("%s/%s on %s is called by nobody: no %s/%s is ready", place, vault.Name, vault.Node, Stay, Guest)
		}
	}
}
