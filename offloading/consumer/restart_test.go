package consumer

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestRestartAtEveryWrite lets each write fail, before or after it was done, and the
// program restart there: it ends the same, with one pod made.
func TestRestartAtEveryWrite(t *testing.T) {
	lives := []struct {
		reason string
		edit   func(*corev1.Pod)
		refuse bool
	}{
		{"runs and is deleted", func(*corev1.Pod) {}, false},
		{"runs once and is deleted", never1, false},
		{"is refused and evicted", owned("ReplicaSet"), true},
	}
	for _, c := range lives {
		for _, late := range []bool{false, true} {
			w := newWorld(t)
			for n := 1; n < 20; n++ {
				failed := w.breakAt(n, late)
				p := w.pod(fmt.Sprint("web-", n), c.edit)
				settle := func() {
					for range 3 {
						if _, err := w.pods.Reconcile(ctx, request(p)); err != nil {
							w.restart()
						}
					}
				}
				settle()
				if c.refuse {
					w.tell(p, nil, accepted(metav1.ConditionFalse, v1alpha1.ReasonUnschedulable, "no room"))
				} else {
					w.tell(p, running(), accepted(metav1.ConditionTrue, v1alpha1.ReasonRunning, ""))
				}
				settle()
				if !c.refuse {
					w.delete(p)
				}
				settle()
				w.release(string(p.UID))
				settle()
				if w.now(p) != nil || w.shadow(p) != nil || w.made != 1 {
					t.Errorf("%s, write %d fails (late: %v): home pod there %v, shadow there %v, %d made",
						c.reason, n, late, w.now(p) != nil, w.shadow(p) != nil, w.made)
				}
				if list := w.refused(); c.refuse && (len(list) != n || list[0].Count != 1) {
					t.Errorf("%s, write %d fails (late: %v): refusals %+v", c.reason, n, late, list)
				}
				if !*failed {
					break
				}
			}
		}
	}
}

// breakAt lets the n-th write from now on fail, before or after it was done, and
// returns whether it came to that.
func (w *world) breakAt(n int, late bool) *bool {
	broken, failed := errors.New("broken"), new(bool)
	w.total, w.made = 0, 0
	w.fail = func(i int, _ string) (error, error) {
		switch {
		case i != n:
			return nil, nil
		case late:
			*failed = true
			return nil, broken
		}
		*failed = true
		return broken, nil
	}
	return failed
}

// TestStarting holds that a program that has just started takes nothing for lost.
func TestStarting(t *testing.T) {
	w := newWorld(t)
	p := w.runs("web")
	for reason, set := range map[string]func(){
		"no connection yet": func() { w.peer.missing = true },
		"first attempt":     func() { w.peer.state = starting; w.peer.hidden[string(p.UID)] = true },
		"not read yet":      func() { w.peer.blind = true },
	} {
		w.peer.missing, w.peer.blind, w.peer.state = false, false, answering
		set()
		w.restart()
		writes := w.total
		w.reconcile(p)
		if w.total != writes {
			t.Errorf("%s: something was written", reason)
		}
	}
}
