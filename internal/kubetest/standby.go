package kubetest

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TakenLease makes a Lease that another replica holds for an hour, and returns its name: a
// manager with it for its election does not lead.
func TakenLease(t testing.TB, c client.Client, namespace string) string {
	t.Helper()
	now := &metav1.MicroTime{Time: time.Now()}
	taken := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "taken"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("another"), LeaseDurationSeconds: ptr.To[int32](3600), AcquireTime: now, RenewTime: now},
	}
	if err := c.Create(t.Context(), taken); err != nil {
		t.Fatal(err)
	}
	return taken.Name
}
