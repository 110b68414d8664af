package consumer

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// fakeNeeds say what a pod waits for.
type fakeNeeds struct {
	what  string
	err   error
	asked int
}

func (n *fakeNeeds) Unsettled(context.Context, string, *corev1.Pod) (string, time.Duration, error) {
	n.asked++
	return n.what, askAgain, n.err
}

const askAgain = 70 * time.Millisecond

// TestUnsettled: a pod is not sent before what it needs is there, says so if that takes long, and does not
// ask for it once it is there.
func TestUnsettled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	needs := &fakeNeeds{what: "NetworkPolicy web"}
	w.pods.needs = needs
	p := w.pod("web")
	if got := w.reconcile(p); got.RequeueAfter != askAgain || w.shadow(p) != nil {
		t.Errorf("waiting: again in %s, %v", got.RequeueAfter, w.shadow(p))
	}
	w.clock.Step(2 * behind)
	w.reconcile(p)
	if got := w.now(p).Status; got.Reason != v1alpha1.ReasonWaiting || !strings.Contains(got.Message, "NetworkPolicy web of namespace "+w.home) || w.shadow(p) != nil {
		t.Errorf("waiting for long: %+v", got)
	}
	needs.what, needs.err = "", errors.New("the cache is ending")
	if _, err := w.pods.Reconcile(ctx, request(p)); err == nil || w.shadow(p) != nil {
		t.Errorf("not known: %v", err)
	}
	needs.err = nil
	if w.reconcile(p); w.shadow(p) == nil {
		t.Fatal("it is there, and the pod is not sent")
	}
	asked := needs.asked
	needs.what = "ConfigMap later"
	if w.reconcile(p); needs.asked != asked {
		t.Error("a pod that is there asks for what it needs")
	}
}
