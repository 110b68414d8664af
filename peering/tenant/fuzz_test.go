package tenant

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// FuzzLook: whatever times a consumer writes into its Lease, it is never seen later than
// now, and what was seen is not taken back.
func FuzzLook(f *testing.F) {
	f.Add(int64(0), int64(-60), int64(60), int64(120), false)
	f.Add(int64(1<<40), int64(-1<<40), int64(0), int64(1), true)
	f.Add(int64(-1<<62), int64(1<<62), int64(3600), int64(7200), true)
	begin := time.Unix(1_800_000_000, 0)
	f.Fuzz(func(t *testing.T, first, second, third, left int64, before bool) {
		m, now := newMemory(), begin
		tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "rome", UID: "1"}}
		if before {
			tenant.Status.LastContact = &metav1.Time{Time: begin.Add(-time.Hour)}
		}
		var last sighting
		for _, said := range []int64{first, second, third} {
			lease := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: begin.Add(time.Duration(said%(1<<40)) * time.Microsecond)}}}
			got := m.look(tenant, lease, now)
			if got.contact.After(now) || got.contact.Before(last.contact) || got.first != begin {
				t.Fatalf("at %s seen %+v after %+v", now, got, last)
			}
			last, now = got, now.Add(time.Duration(left&0xffff)*time.Second)
		}
	})
}
