package tenant

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// fakeTunnels are those that are alive.
type fakeTunnels struct{ tenant, invitation string }

func (f *fakeTunnels) TenantAlive(name string) (alive, known bool) { return name == f.tenant, true }

func (f *fakeTunnels) InvitationAlive(name string) (alive, known bool) {
	return name == f.invitation, true
}

// TestAnswered holds that the tunnel of a consumer in band stays until that has heard that its goodbye was
// heard, and no longer than it can be waited for.
func TestAnswered(t *testing.T) {
	t.Parallel()
	inBand := func(t *v1alpha1.Tenant) { t.Spec.InBand = true }
	for _, c := range []struct {
		reason string
		change func(*v1alpha1.Tenant)
		alive  func(name string) *fakeTunnels
		before func(b *bench)
		waits  bool
	}{
		{"its own tunnel is alive", inBand, func(n string) *fakeTunnels { return &fakeTunnels{tenant: n} }, nil, true},
		{"that of its invitation is", inBand, func(n string) *fakeTunnels { return &fakeTunnels{invitation: n} }, nil, true},
		{"another one is", inBand, func(string) *fakeTunnels { return &fakeTunnels{tenant: "oslo", invitation: "oslo"} }, nil, false},
		{"it does not call through it", func(*v1alpha1.Tenant) {}, func(n string) *fakeTunnels { return &fakeTunnels{tenant: n} }, nil, false},
		{"it ends by force", inBand, func(n string) *fakeTunnels { return &fakeTunnels{tenant: n} }, func(b *bench) {
			b.patch(`{"metadata":{"annotations":{"` + v1alpha1.AnnotationForce + `":"true"}}}`)
		}, false},
		{"it has been waited for", inBand, func(n string) *fakeTunnels { return &fakeTunnels{tenant: n} }, func(b *bench) { b.step(answerFor) }, false},
	} {
		t.Run(c.reason, func(t *testing.T) {
			b := peered(t, c.change)
			tunnels := c.alive(b.name)
			b.tunnels = tunnels
			if c.before != nil {
				c.before(b)
			}
			b.identityGoodbye()
			b.reconcile() // it ends
			res := b.reconcile()
			if !c.waits {
				b.wantNothingLeft()
				return
			}
			if res.RequeueAfter != answerEvery {
				t.Errorf("looked again after %s", res.RequeueAfter)
			}
			for what, there := range map[string]bool{
				"identity":       get(b, b.space(), v1alpha1.IdentityName, &v1alpha1.Identity{}) != nil,
				"farewell":       get(b, b.space(), v1alpha1.FarewellRole, &rbacv1.RoleBinding{}) != nil,
				"network config": get(b, b.space(), v1alpha1.NetworkConsumer, &v1alpha1.NetworkConfig{}) != nil,
				"invitation":     get(b, "", b.name, &v1alpha1.Invitation{}) != nil,
			} {
				if !there {
					t.Errorf("%s has gone", what)
				}
			}
			if get(b, b.space(), v1alpha1.ConsumerRole, &rbacv1.RoleBinding{}) != nil {
				t.Error("it has its rights still")
			}
			*tunnels = fakeTunnels{}
			b.reconcile()
			b.wantNothingLeft()
		})
	}
}
