package reflection

import (
	"strings"
	"time"
)

// triesMost is the longest that the next try waits.
const triesMost = time.Minute

// tries is how often something was done lately for one object, and until when it is not done again: that
// tokens were minted, or a write was tried for which the provider's side is not ready. That it is to be
// done is known from the provider only, which has no say in how often this cluster works.
type tries struct {
	times int
	until time.Time
}

// again notes that it was done now. Each time it is twice as long until the next; after a
// time without any it begins anew.
func (t tries) again(now time.Time) tries {
	if now.Sub(t.until) >= triesMost {
		t.times = 0
	}
	return tries{t.times + 1, now.Add(min(soon<<min(t.times, 10), triesMost))}
}

// early is for how long it is not done yet.
func (t tries) early(now time.Time) time.Duration {
	if wait := t.until.Sub(now); wait <= triesMost { // longer only if the clock was set
		return max(wait, 0)
	}
	return 0
}

// seen is which version of an object, with its parts, the provider shows.
func (f facts) seen() string {
	if f.there == nil {
		return ""
	}
	all := []string{string(f.there.UID), f.there.ResourceVersion}
	for _, s := range f.parts {
		if s == nil {
			all = append(all, "")
			continue
		}
		all = append(all, string(s.UID), s.ResourceVersion)
	}
	return strings.Join(all, "/")
}
