package auth

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestManyNames: one cluster comes with one token under many names at the same time.
func TestManyNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token, i := w.invite()
	rome := newConsumer(t, w.name("rome"))
	var group sync.WaitGroup
	for n := range 8 {
		c := rome.with(t, func(s *v1alpha1.IdentitySpec) { s.Cluster.Name = w.name(fmt.Sprintf("rome%d", n)) })
		a := c.applicant(t, token)
		group.Go(func() {
			_, err := w.shake.run(w.ctx, a)
			if got := reasonOf(err); err != nil && got != v1alpha1.ReasonNameRefused && got != v1alpha1.ReasonWaiting {
				t.Errorf("as %s: %v", a.spec.Cluster.Name, err)
			}
		})
	}
	group.Wait()
	if err := w.client.Get(w.ctx, client.ObjectKeyFromObject(i), i); err != nil {
		t.Fatal(err)
	}
	// Each of them asked with a request of its own, and one may have put its in place of another's that was just
	// being answered: the next credential is not for at once.
	w.shake.clock = clocktesting.NewFakeClock(time.Now().Add(renewalPause))
	again := rome.with(t, func(s *v1alpha1.IdentitySpec) { s.Cluster.Name = i.Status.Tenant })
	if _, err := w.shake.run(w.ctx, again.applicant(t, token)); err != nil {
		t.Errorf("by the name that was first: %v", err)
	}
	if n, ids, _ := w.leftovers(rome); n != 1 || ids != 1 {
		t.Errorf("%d tenants, %d identities; want 1, 1", n, ids)
	}
}

// TestOtherRequestMeanwhile: one cluster asks with two requests at the same time. The one that was answered first
// is, and the other after the pause between two credentials.
func TestOtherRequestMeanwhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	clk := clocktesting.NewFakeClock(time.Now())
	w.shake.clock = clk
	token, _ := w.invite()
	rome := newConsumer(t, w.name("rome"))
	second := rome.with(t, func(*v1alpha1.IdentitySpec) {})
	var meanwhile error
	began := false
	w.shake.direct = interceptor.NewClient(w.client, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			if _, is := obj.(*v1alpha1.Identity); is && !began {
				began = true
				_, meanwhile = w.shake.run(w.ctx, second.applicant(t, token))
			}
			return c.SubResource(sub).Patch(ctx, obj, p, opts...)
		},
	})
	first, err := w.shake.run(w.ctx, rome.applicant(t, token))
	if err != nil || first.Status.RequestSHA256 != hashOf(rome.spec.Request) {
		t.Fatalf("the first request: %v", err)
	}
	var no *refusal
	if !errors.As(meanwhile, &no) || no.reason != v1alpha1.ReasonWaiting || no.retryAfter <= 0 || no.retryAfter > renewalPause {
		t.Errorf("the second one meanwhile: got %v, want to be told when to come again", meanwhile)
	}
	clk.Step(renewalPause)
	if got, err := w.shake.run(w.ctx, second.applicant(t, token)); err != nil || got.Status.RequestSHA256 != hashOf(second.spec.Request) {
		t.Errorf("the second one after the pause: %v", err)
	}
}

// TestCredentialNotStored: a credential that could not be stored is nobody's, so the next try need not wait.
func TestCredentialNotStored(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token, _ := w.invite()
	rome := newConsumer(t, w.name("rome"))
	failed := false
	w.shake.direct = interceptor.NewClient(w.client, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			if _, is := obj.(*v1alpha1.Identity); is && !failed {
				failed = true
				return errKilled
			}
			return c.SubResource(sub).Patch(ctx, obj, p, opts...)
		},
	})
	if _, err := w.shake.run(w.ctx, rome.applicant(t, token)); err == nil || !failed {
		t.Fatalf("what was not stored is given: %v", err)
	}
	if _, err := w.shake.run(w.ctx, rome.applicant(t, token)); err != nil {
		t.Errorf("at once again: %v", err)
	}
}

// TestNameTakenMeanwhile: another cluster's Tenant of the name comes between the binding
// and the Tenant. The invitation is good for another name, though the cache still shows
// the binding, and though the provider died before it freed it, and its cache shows none.
func TestNameTakenMeanwhile(t *testing.T) {
	t.Parallel()
	for _, killed := range []bool{false, true} {
		w := newWorld(t)
		token, i := w.invite()
		rome, other := newConsumer(t, w.name("rome")), newConsumer(t, w.name("rome"))
		w.shake.direct = interceptor.NewClient(w.client, interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
				if _, is := obj.(*v1alpha1.Tenant); is && obj.GetName() == w.name("rome") {
					if err := c.Create(ctx, newTenant(w.name("rome"), &v1alpha1.Invitation{}, other.applicant(t, ""), w.home)); err != nil {
						return err
					}
					if killed {
						w.shake.invitations = known{*i}
						return errKilled
					}
					if err := c.Get(ctx, client.ObjectKeyFromObject(i), i); err != nil {
						return err
					}
					w.shake.invitations = known{*i}
				}
				return c.Create(ctx, obj, opts...)
			},
		})
		_, err := w.shake.run(w.ctx, rome.applicant(t, token))
		if killed && errors.Is(err, errKilled) {
			_, err = w.shake.run(w.ctx, rome.applicant(t, token))
		}
		if reasonOf(err) != v1alpha1.ReasonNameRefused {
			t.Errorf("killed %t: got %v, want a refusal of the name", killed, err)
		}
		if !killed && i.Status.Tenant != w.name("rome") {
			t.Fatalf("the invitation was not bound: %+v", i.Status)
		}
		rome = rome.with(t, func(s *v1alpha1.IdentitySpec) { s.Cluster.Name = w.name("pisa") })
		if _, err := w.shake.run(w.ctx, rome.applicant(t, token)); err != nil {
			t.Errorf("killed %t: another name: %v", killed, err)
		}
	}
}

// known is a cache that does not move on.
type known []v1alpha1.Invitation

func (k known) find(context.Context, string) ([]v1alpha1.Invitation, error) { return k, nil }

// TestManagerRefusesName: what only the manager finds out is a refusal too, and the
// invitation is good for another try.
func TestManagerRefusesName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.still = true
	token, i := w.invite()
	rome := newConsumer(t, w.name("rome"))
	refuse := make(chan error, 1)
	go func() {
		tenant := &v1alpha1.Tenant{}
		for w.ctx.Err() == nil {
			if w.client.Get(w.ctx, client.ObjectKey{Name: w.name("rome")}, tenant) == nil {
				break
			}
		}
		meta.SetStatusCondition(&tenant.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionNamespaceReady, Status: metav1.ConditionFalse,
			ObservedGeneration: tenant.Generation, Reason: v1alpha1.ReasonNameRefused, Message: "the namespace is not ours"})
		refuse <- w.client.Status().Update(w.ctx, tenant)
	}()
	for range 2 {
		_, err := w.shake.run(w.ctx, rome.applicant(t, token))
		if reasonOf(err) != v1alpha1.ReasonNameRefused || !strings.Contains(err.Error(), "is not ours") {
			t.Errorf("got %v, want the manager's refusal", err)
		}
	}
	if err := <-refuse; err != nil {
		t.Fatal(err)
	}
	if err := w.client.Get(w.ctx, client.ObjectKeyFromObject(i), i); err != nil || i.Status.BoundTo != nil || i.Status.TenantUID != "" {
		t.Errorf("the invitation is spent: %+v, %v", i.Status, err)
	}
	second, _ := w.invite(func(i *v1alpha1.Invitation) { i.Spec.Consumer = w.name("genoa") })
	again := rome.with(t, func(s *v1alpha1.IdentitySpec) { s.PeeringUID = newUUID() })
	if _, err := w.shake.run(w.ctx, again.applicant(t, second)); reasonOf(err) != v1alpha1.ReasonWaiting || !strings.Contains(err.Error(), "kubectl delete tenant "+w.name("rome")) {
		t.Errorf("by another invitation: got %v, want a wait for the refused tenant to go, and what hastens that", err)
	}
	pisa := rome.with(t, func(s *v1alpha1.IdentitySpec) { s.Cluster.Name, s.PeeringUID = w.name("pisa"), newUUID() })
	if _, err := w.shake.run(w.ctx, pisa.applicant(t, token)); reasonOf(err) != v1alpha1.ReasonWaiting {
		t.Errorf("got %v, want a wait for the refused tenant to go", err)
	}
	if err := w.client.Delete(w.ctx, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: w.name("rome")}}); err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	w.still = false
	w.mu.Unlock()
	if _, err := w.shake.run(w.ctx, pisa.applicant(t, token)); err != nil {
		t.Errorf("another name: %v", err)
	}
}
