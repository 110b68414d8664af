package cli

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestDirectPathsOfPeers holds that one command tells both sides, of a peering that is new and of one
// that is there, and that who is only a provider is told where it is said.
func TestDirectPathsOfPeers(t *testing.T) {
	rome, milan := newStage(t, 0), newStage(t, 1)
	rome.install("rome", id2)
	milan.install("milan", id1)
	both := func(args ...string) result {
		return rome.run(append([]string{"peer", "--remote-kubeconfig", milan.access.Kubeconfig}, args...)...)
	}
	stop := rome.manager(func(*v1alpha1.Peering) []metav1.Condition { return well() })
	defer stop()
	defer milan.forget()
	if got := both("--direct-paths"); got.code != 1 || !strings.Contains(got.err, "finding the Tenant of this cluster at milan") {
		t.Errorf("without a Tenant there: %+v", got)
	}
	if p := rome.peering("milan"); p == nil || !p.Spec.DirectPaths {
		t.Fatalf("the new Peering is %+v", p)
	}
	milan.create(&v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "roma"}, Spec: v1alpha1.TenantSpec{ClusterID: id2, PeeringUID: id1}})
	for _, allowed := range []bool{true, false} {
		got, tenant := both(fmt.Sprintf("--direct-paths=%t", allowed)), &v1alpha1.Tenant{}
		if err := milan.c.Get(t.Context(), client.ObjectKey{Name: "roma"}, tenant); err != nil {
			t.Fatal(err)
		}
		if got.code != 0 || rome.peering("milan").Spec.DirectPaths != allowed || tenant.Spec.DirectPaths != allowed {
			t.Errorf("direct paths, %t: %+v, %+v, %+v", allowed, got, rome.peering("milan").Spec, tenant.Spec)
		}
	}
	if got := both(); got.code != 0 || rome.peering("milan").Spec.DirectPaths {
		t.Errorf("peering again changes what was chosen: %+v", got)
	}
	milan.create(&v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: "rome"}, Spec: v1alpha1.PeeringSpec{ClusterID: id2, Provide: &v1alpha1.Provide{Tenant: "roma"}}})
	if got := milan.run("peer", "rome", "--direct-paths"); got.code != 1 ||
		!strings.Contains(got.err, `whether its pods here may have direct paths is said by its Tenant: kubectl patch tenant roma --type merge -p '{"spec":{"directPaths":true}}'`) {
		t.Errorf("at the provider: %+v", got)
	}
	stop()
	rome.sweep()
}

// TestChoiceKept holds that a cluster which drops what it does not know is not taken for one that keeps it.
func TestChoiceKept(t *testing.T) {
	c := &Cluster{Server: "https://old.example:6443"}
	for _, allowed := range []bool{true, false} {
		o := choice{direct: &allowed}
		if err := o.stored(c, false); (err != nil) != allowed || err != nil && !strings.Contains(err.Error(), "upgrade it: pelago install") {
			t.Errorf("wanted %t, kept false: %v", allowed, err)
		}
		if err := o.stored(c, allowed); err != nil {
			t.Errorf("wanted and kept %t: %v", allowed, err)
		}
	}
}
