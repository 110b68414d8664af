package verify

import (
	"context"
	"errors"
	"sync"
)

// errNotTried is the result of a check when nothing runs at all.
var errNotTried = errors.New("not tried: no pods run in this cluster")

// runner decides which check runs when.
type runner struct {
	one      func(context.Context, check) Result
	report   func(Result)
	parallel int
}

// run makes the checks and returns their results in the order given.
func (r runner) run(ctx context.Context, list []check) []Result {
	results := make([]Result, len(list))
	var reporting sync.Mutex
	record := func(i int, result Result) {
		reporting.Lock()
		defer reporting.Unlock()
		results[i] = result
		if r.report != nil {
			r.report(result)
		}
	}
	grounded := true
	serially := func(s stage) {
		for i, c := range list {
			if c.stage != s {
				continue
			}
			if !grounded && s != final {
				record(i, Result{Name: c.name, Err: errNotTried})
				continue
			}
			record(i, r.one(ctx, c))
			if s == ground && results[i].Err != nil {
				grounded = false
			}
		}
	}
	serially(ground)
	if grounded {
		r.together(ctx, list, record)
	} else {
		serially(background)
		serially(independent)
	}
	serially(disruptive)
	serially(final)
	return results
}

// together makes the checks of the background all at once and, meanwhile, the
// independent ones a few at a time.
func (r runner) together(ctx context.Context, list []check, record func(int, Result)) {
	var all sync.WaitGroup
	slots := make(chan struct{}, r.parallel)
	for _, s := range []stage{background, independent} {
		for i, c := range list {
			if c.stage != s {
				continue
			}
			if s == independent {
				slots <- struct{}{}
			}
			all.Go(func() {
				record(i, r.one(ctx, c))
				if s == independent {
					<-slots
				}
			})
		}
	}
	all.Wait()
}
