package peering

import (
	"context"
	"errors"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// TestCrash ends the program right after its writes: the handshake completes with the
// first key, and leaves nothing twice; so does the farewell.
func TestCrash(t *testing.T) {
	for _, direction := range []string{"handshake", "farewell"} {
		t.Run(direction, func(t *testing.T) {
			kubetest.CrashPoints(t, func(after int) (int, bool) {
				return crash(newStage(t), direction == "farewell", after+1)
			})
		})
	}
}

// crash ends the program right after its n-th write of the handshake or of the farewell,
// and checks what becomes of it.
func crash(s *stage, farewell bool, n int) (writes int, died bool) {
	s.t.Helper()
	killed := errors.New("killed")
	after := func(err error) error {
		if writes++; err == nil && writes == n {
			died = true
			return killed
		}
		return err
	}
	failing := interceptor.NewClient(s.client, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return after(c.Create(ctx, obj, opts...))
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			return after(c.Update(ctx, obj, opts...))
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return after(c.Patch(ctx, obj, patch, opts...))
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return after(c.Delete(ctx, obj, opts...))
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, part string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			return after(c.SubResource(part).Patch(ctx, obj, patch, opts...))
		},
	})
	if farewell {
		s.delete(s.peer())
	} else {
		s.invite()
	}
	s.restart(failing)
	s.survive(killed, farewell, &died)
	s.restart(s.client)
	if farewell {
		s.untilGone()
		s.expectNothing()
		return writes, died
	}
	s.until("there is a request", has(v1alpha1.ConditionResourcesAccepted, v1alpha1.ReasonPending))
	s.accept()
	s.until("it is ready", ready)
	_, cred := s.credential()
	if len(s.auth.keys) != 1 || !s.auth.keys[string(cred.Request)] {
		s.t.Errorf("killed after write %d: %d keys were introduced", n, len(s.auth.keys))
	}
	return writes, died
}

// survive looks until a write was followed by death, or until all is done without.
func (s *stage) survive(killed error, ends bool, died *bool) {
	s.t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !*died {
		if _, err := s.reconcile(); err != nil && !errors.Is(err, killed) {
			s.t.Fatal(err)
		}
		s.finalize(v1alpha1.PeeringNamespace(s.name))
		p := s.peering()
		if ends && p == nil || !ends && has(v1alpha1.ConditionResourcesAccepted, v1alpha1.ReasonPending)(p) {
			return
		}
		select {
		case <-deadline:
			s.t.Fatal("neither killed nor done after 20 s")
		case <-tick.C:
		}
	}
}
