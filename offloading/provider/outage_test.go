package provider

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// failing makes no pod and says why.
func (b *bench) failing(why error) {
	b.restart(interceptor.NewClient(b.c, interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return why }}))
}

// errWebhook is of a webhook that does not answer.
var errWebhook = apierrors.NewInternalError(errors.New(`failed calling webhook "pods.example.org": failed to call webhook: Post "https://10.0.0.7:443/": connection refused`))

var outages = map[string]error{
	"a webhook fails":  errWebhook,
	"overloaded":       apierrors.NewServiceUnavailable("later"),
	"timeout":          apierrors.NewTimeoutError("too slow", 1),
	"no answer":        context.DeadlineExceeded,
	"no identity":      apierrors.NewUnauthorized("Unauthorized"),
	"conflict":         apierrors.NewConflict(corev1.Resource("resourcequotas"), "team", errors.New("the object has been modified")),
	"too many at once": apierrors.NewTooManyRequests("later", 1),
}

// TestLostWhileNoneIsMade holds that a pod that is lost does not seem to run while the API server makes no other one, and that
// this is tried again as an error is: ever later.
func TestLostWhileNoneIsMade(t *testing.T) {
	for what, why := range outages {
		t.Run(what, func(t *testing.T) {
			b := newBench(t)
			b.shadowPod(corev1.RestartPolicyAlways)
			b.settle()
			b.bind(b.node(corev1.ConditionTrue).Name)
			b.status(running)
			b.settle()
			b.want("phase", b.get(b.uid).Status.Phase, "Running")
			b.must(b.c.Delete(t.Context(), b.pod()))
			b.kubeletDone()
			b.failing(why)
			for range 3 {
				if again, err := b.once(b.uid); err == nil && again < time.Second {
					t.Fatalf("tried again in %s, not later and later", again)
				}
				b.clock.SetTime(b.clock.Now().Add(time.Second))
			}
			b.want("phase", b.get(b.uid).Status.Phase, "Pending")
			b.want("reason", b.reason(), "False Waiting")
			if m := condition(b.get(b.uid).Status.Conditions).Message; strings.Contains(m, "10.0.0.7") || why == errWebhook && !strings.Contains(m, "pods.example.org") {
				t.Errorf("the message is %q", m)
			}
			b.restart(b.c)
			b.settle()
			b.want("reason", b.reason(), "True Running")
			if s := b.get(b.uid); s.Status.Replaced != 1 {
				t.Errorf("replaced %d times, want 1", s.Status.Replaced)
			}
		})
	}
}

// TestNewWhileNoneIsMade holds that a pod which is not made says that it waits.
func TestNewWhileNoneIsMade(t *testing.T) {
	b := newBench(t)
	b.shadowPod(corev1.RestartPolicyNever)
	b.failing(errWebhook)
	for range 2 {
		if _, err := b.once(b.uid); err == nil {
			t.Fatal("it is not tried again as an error is")
		}
		b.clock.SetTime(b.clock.Now().Add(writeLater))
	}
	b.want("reason", b.reason(), "False Waiting")
	b.restart(b.c)
	b.settle()
	b.want("reason", b.reason(), "True Running")
}

// TestDeniedWithAnyCode holds that the word of a webhook is a refusal, whatever code it chooses.
func TestDeniedWithAnyCode(t *testing.T) {
	for _, reason := range []metav1.StatusReason{
		metav1.StatusReasonUnauthorized, metav1.StatusReasonNotFound, metav1.StatusReasonMethodNotAllowed, metav1.StatusReasonConflict,
		metav1.StatusReasonAlreadyExists, metav1.StatusReasonInternalError, metav1.StatusReasonForbidden,
	} {
		t.Run(string(reason), func(t *testing.T) {
			b := newBench(t)
			b.shadowPod(corev1.RestartPolicyAlways)
			b.failing(&apierrors.StatusError{ErrStatus: metav1.Status{Reason: reason, Message: `admission webhook "no.example.org" denied the request: no`}})
			wait := time.Duration(0)
			for range 4 {
				again, err := b.once(b.uid)
				b.must(err)
				b.clock.SetTime(b.clock.Now().Add(max(again, writeEvery)))
				wait = max(wait, again)
			}
			b.want("reason", b.reason(), "False NotAdmitted")
			if wait < refusedAgain {
				t.Errorf("tried again after %s at most", wait)
			}
		})
	}
}
