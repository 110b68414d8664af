package stats

import "time"

// usableFor is how old an answer may be that is given for want of a newer one. Figures
// have their own times.
const usableFor = 30 * time.Second

// seen is what a kubelet or a provider said last, and how asking it stands.
type seen[T any] struct {
	said  T
	at    time.Time // when it was said; zero if nothing is known
	err   error     // how the last ask has failed, if it has
	until time.Time // for so long it is not asked again
	asked time.Time // since when it is being asked; zero if it is not
}

// turn is whether it is asked at a time, and how long a reader waits for that: until it has
// been asked for as long as limit, and not at all if it has failed.
func (s seen[T]) turn(now time.Time, limit time.Duration) (ask bool, wait time.Duration) {
	switch {
	case now.Before(s.until):
		return false, 0
	case s.err != nil:
		return true, 0
	case s.asked.IsZero():
		return true, limit
	}
	return true, max(0, limit-now.Sub(s.asked))
}

// given is what a reader gets for whom there is nothing newer: what was said, or why not.
func (s seen[T]) given(now time.Time, err error) (T, error) {
	if now.Before(s.at.Add(usableFor)) {
		return s.said, nil
	}
	var nothing T
	return nothing, err
}

// ended is what is known when an ask has ended. An answer is used for as long as fresh.
func (s seen[T]) ended(now time.Time, said T, err error, fresh time.Duration) seen[T] {
	if err != nil {
		return seen[T]{said: s.said, at: s.at, err: err, until: now.Add(failedFor)}
	}
	return seen[T]{said: said, at: now, until: now.Add(fresh)}
}

// forget drops what is not given any more. That one has failed, or is being asked, counts
// for as long as recall.
func forget[T any](kept map[string]seen[T], now time.Time, recall time.Duration) {
	for name, s := range kept {
		failed := s.err != nil && now.Before(s.until.Add(recall))
		switch {
		case now.Before(s.at.Add(usableFor)):
		case failed || now.Before(s.asked.Add(recall)):
			kept[name] = seen[T]{err: s.err, until: s.until, asked: s.asked}
		default:
			delete(kept, name)
		}
	}
}
