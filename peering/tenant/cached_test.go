package tenant

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// late is a client whose cache still shows an object as it was.
func late[T client.Object](b *bench, was T, into func(T, T)) client.WithWatch {
	return interceptor.NewClient(b.c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, o ...client.GetOption) error {
			if got, is := obj.(T); is && key == client.ObjectKeyFromObject(was) {
				into(was, got)
				return nil
			}
			return c.Get(ctx, key, obj, o...)
		},
	})
}

// TestFreedInvitationStays holds that an invitation which was freed, as its Tenant was
// refused its name, does not go with that Tenant where the cache shows it as it was.
func TestFreedInvitationStays(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	i := &v1alpha1.Invitation{ObjectMeta: metav1.ObjectMeta{Name: b.name},
		Spec: v1alpha1.InvitationSpec{TokenSHA256: strings.Repeat("0", 64), Expires: metav1.NewTime(time.Now().Add(time.Hour))}}
	if err := b.c.Create(t.Context(), i); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.c.Delete(context.Background(), i) })
	i.Status = v1alpha1.InvitationStatus{Tenant: "gone-" + b.name, TenantUID: string(uuid.NewUUID())}
	if err := b.c.Status().Update(t.Context(), i); err != nil {
		t.Fatal(err)
	}
	used := i.DeepCopy()
	i.Status = v1alpha1.InvitationStatus{}
	if err := b.c.Status().Update(t.Context(), i); err != nil {
		t.Fatal(err)
	}
	look := func(c client.Client) time.Duration {
		g := &invitations{client: c, live: b.c, clock: b.clock}
		res, err := g.Reconcile(t.Context(), request(b.name))
		if err != nil {
			t.Fatal(err)
		}
		return res.RequeueAfter
	}
	if wait := look(late(b, used, (*v1alpha1.Invitation).DeepCopyInto)); wait == 0 || get(b, "", b.name, &v1alpha1.Invitation{}) == nil {
		t.Error("an invitation that is open again was removed, or is not looked at again")
	}
	i.Status = used.Status
	if err := b.c.Status().Update(t.Context(), i); err != nil {
		t.Fatal(err)
	}
	if look(b.c); get(b, "", b.name, &v1alpha1.Invitation{}) != nil {
		t.Error("one whose Tenant is gone stays")
	}
}

// TestEarlierGoodbye holds that a goodbye to an earlier Tenant of the same peering, which the
// cache still shows, does not end the one that there is now.
func TestEarlierGoodbye(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.settle()
	said := b.introduce()
	b.drop(said)
	said = get(b, b.space(), v1alpha1.IdentityName, &v1alpha1.Identity{})
	if err := b.c.Patch(t.Context(), said.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Fatal(err)
	}
	b.restart(late(b, said, (*v1alpha1.Identity).DeepCopyInto))
	b.live = b.c
	b.reconcile()
	if b.tenant() == nil || b.tenant().DeletionTimestamp != nil {
		t.Error("the tenant of now went with the goodbye to the one before")
	}
	b.introduce()
	b.reconcile()
	if b.tenant() == nil || b.tenant().DeletionTimestamp != nil {
		t.Error("the tenant of now went with the goodbye to the one before, though it has an Identity")
	}
}
