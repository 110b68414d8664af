package torture

import (
	"strings"
	"testing"
	"time"
)

// callWorld has a vault of each place, keep's at the provider and roam's at home, a guest and a
// stranger on either side, and at home those of a place that is never offloaded.
func callWorld() *World {
	w := NewWorld()
	w.Now = time.Unix(1000, 0)
	for _, p := range []Pod{
		{UID: "kv", Namespace: Keep, Name: "vault-k", App: Vault, Node: Provider, Ready: true},
		{UID: "rv", Namespace: Roam, Name: "vault-r", App: Vault, Node: "rome-1", Ready: true},
		{UID: "kg", Namespace: Keep, Name: "guest-k", App: Guest, Node: Provider, Ready: true},
		{UID: "ks", Namespace: Keep, Name: "stranger-k", App: Stranger, Node: Provider, Ready: true},
		{UID: "rg", Namespace: Roam, Name: "guest-r", App: Guest, Node: Provider, Ready: true},
		{UID: "sg", Namespace: Stay, Name: "guest-s", App: Guest, Node: "rome-1", Ready: true},
		{UID: "ss", Namespace: Stay, Name: "stranger-s", App: Stranger, Node: "rome-1", Ready: true},
		{UID: "web", Namespace: Keep, Name: "web-1", App: "web", Node: "rome-1", Ready: true},
	} {
		w.Home.Pods[p.UID] = p
	}
	return w
}

// TestHear holds which answers must not be, and what is counted.
func TestHear(t *testing.T) {
	for _, c := range []struct {
		name, caller, line string
		violated           bool
		tally              Tally
	}{
		{"a stranger at home has an answer of the provider", "ss", "keep vault-k", true, Tally{}},
		{"a stranger at the provider has one of home", "ks", "roam vault-r", true, Tally{}},
		{"a stranger has none", "ss", "keep -", false, Tally{Refused: 1}},
		{"a stranger has one in its own cluster", "ss", "roam vault-r", false, Tally{}},
		{"a guest at home has one of the provider", "sg", "keep vault-k", false, Tally{Answered: 1}},
		{"a guest at the provider has one of home", "rg", "roam vault-r", false, Tally{Answered: 1}},
		{"a guest has none", "rg", "roam -", false, Tally{}},
		{"somebody who is not known has one", "x", "keep vault-k", false, Tally{}},
		{"an app that does not call has one", "web", "keep vault-k", false, Tally{}},
		{"one is of a vault that is not known", "ss", "keep vault-x", false, Tally{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := callWorld()
			call, err := ParseCall(c.caller, c.line, w.Now)
			if err != nil {
				t.Fatal(err)
			}
			if found := w.Hear(call); (len(found) > 0) != c.violated || w.Tally != c.tally {
				t.Errorf("found %v and counted %+v, want a violation: %t, and %+v", found, w.Tally, c.violated, c.tally)
			}
		})
	}
	if _, err := ParseCall("x", "killed while it", time.Time{}); err == nil {
		t.Error("a line with three words is a call")
	}
}

// TestUnanswered holds that guests have to be answered across the clusters in the end.
func TestUnanswered(t *testing.T) {
	unanswered := func(w *World, offloaded bool) (found []string) {
		m := NewModel()
		m.Places[Stay].Apps[Guest] = &App{Kind: Deploy, Replicas: 1}
		for _, place := range Vaults {
			m.Places[place].Offloaded = offloaded
			m.unanswered(w, place, func(format string, args ...any) { found = append(found, format) })
		}
		return found
	}
	w := callWorld()
	if found := unanswered(w, true); len(found) != 2 { // of stay's guest to keep's vault, and roam's to its own
		t.Errorf("%d calls are missed before any was made, want 2: %s", len(found), strings.Join(found, "; "))
	}
	if found := unanswered(w, false); len(found) != 0 {
		t.Errorf("calls are missed of places that are not offloaded: %v", found)
	}
	w.Hear(Call{Caller: "sg", Place: Keep, Server: "vault-k", At: w.Now})
	w.Hear(Call{Caller: "rg", Place: Roam, Server: "vault-r", At: w.Now})
	if found := unanswered(w, true); len(found) != 0 {
		t.Errorf("calls are missed that were answered: %v", found)
	}
	w.Now = w.Now.Add(2 * lately)
	if found := unanswered(w, true); len(found) != 2 {
		t.Errorf("%d calls are missed a while after the last answers, want 2", len(found))
	}
	w.Hear(Call{Caller: "sg", Place: Keep, At: w.Now})
	if found := unanswered(w, true); len(found) != 2 {
		t.Errorf("%d calls are missed when one was not answered, want 2", len(found))
	}
	w.Hear(Call{Caller: "sg", Place: Keep, Server: "vault-k", At: w.Now})
	w.Hear(Call{Caller: "rg", Place: Roam, Server: "vault-r", At: w.Now})
	guest := w.Home.Pods["sg"]
	guest.Ready = false
	w.Home.Pods["sg"] = guest
	if found := unanswered(w, true); len(found) != 1 { // keep's vault is at the provider
		t.Errorf("%d vaults have nobody who calls them when the guest that does is not ready, want 1: %v", len(found), found)
	}
	none := NewModel() // of which nobody has made any
	none.Places[Keep].Offloaded = true
	none.unanswered(w, Keep, t.Errorf)
}
