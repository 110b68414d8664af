package consumer

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// fakePolicies say which NetworkPolicy a pod waits for.
type fakePolicies struct {
	name  string
	err   error
	asked int
}

func (p *fakePolicies) Unsettled(context.Context, string, string) (string, error) {
	p.asked++
	return p.name, p.err
}

// TestUnguarded: a pod is not sent before the NetworkPolicies of its namespace are there, says so if
// that takes long, and does not look at them once it is there.
func TestUnguarded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	policies := &fakePolicies{name: "web"}
	w.pods.policies = policies
	p := w.pod("web")
	if got := w.reconcile(p); got.RequeueAfter != guardedSoon || w.shadow(p) != nil {
		t.Errorf("waiting: again in %s, %v", got.RequeueAfter, w.shadow(p))
	}
	w.clock.Step(2 * behind)
	w.reconcile(p)
	if got := w.now(p).Status; got.Reason != v1alpha1.ReasonWaiting || !strings.Contains(got.Message, "NetworkPolicy web of namespace "+w.home) || w.shadow(p) != nil {
		t.Errorf("waiting for long: %+v", got)
	}
	policies.name, policies.err = "", errors.New("the cache is ending")
	if _, err := w.pods.Reconcile(ctx, request(p)); err == nil || w.shadow(p) != nil {
		t.Errorf("not known: %v", err)
	}
	policies.err = nil
	if w.reconcile(p); w.shadow(p) == nil {
		t.Fatal("they are there, and the pod is not sent")
	}
	asked := policies.asked
	policies.name = "later"
	if w.reconcile(p); policies.asked != asked {
		t.Error("a pod that is there asks for policies")
	}
}
