package consumer

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/offloading/shadow"
)

// homeUID is that of a tenant's pod where it was made.
const homeUID = "0a1b2c3d-0000-4000-8000-0000000000ff"

// ofParis makes a pod one that the provider's side has made for the tenant paris.
func ofParis(p *corev1.Pod) {
	p.Labels = map[string]string{v1alpha1.LabelTenant: "paris", v1alpha1.LabelManagedBy: shadow.ManagedBy, v1alpha1.LabelHomeUID: homeUID}
}

// TestOfTenant: a tenant's pod that is refused is sent home if the provider's side makes it anew.
func TestOfTenant(t *testing.T) {
	const sent, stays = "status=Pending/Unschedulable evict tell", "status=Pending/Unschedulable tell"
	without := func(key string) func(*facts) { return func(f *facts) { delete(f.pod.Labels, key) } }
	in := func(tenant string) func(*facts) {
		return func(f *facts) { f.tenant = tenant; ofParis(f.pod) }
	}
	for _, c := range []struct {
		reason string
		pod    func(*facts)
		more   func(*facts)
		want   string
	}{
		{"it is made anew", in("paris"), nil, sent},
		{"there is no other place", in("paris"), func(f *facts) { f.elsewhere = false }, stays},
		{"its end would count", in("paris"), once, stays},
		{"it restarts only after failures", in("paris"), func(f *facts) { f.pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure }, stays},
		{"the namespace is no tenant's", in(""), nil, stays},
		{"the namespace is another tenant's", in("rome"), nil, stays},
		{"it is nobody's, nor is the namespace", in(""), without(v1alpha1.LabelTenant), stays},
		{"somebody else made it", in("paris"), without(v1alpha1.LabelManagedBy), stays},
		{"it has no home", in("paris"), without(v1alpha1.LabelHomeUID), stays},
		{"it has a controller", in("paris"), of("ReplicaSet"), sent},
		{"a DaemonSet made it", in("paris"), of("DaemonSet"), stays},
	} {
		edits := []func(*facts){c.pod}
		if c.more != nil {
			edits = append(edits, c.more)
		}
		if got := sum(decide(given(append(edits, carried, answered("Unschedulable"))...))); got != c.want {
			t.Errorf("%s: %q, want %q", c.reason, got, c.want)
		}
	}
}

// TestTenantSentHome: it is evicted, what refused it is remembered for the one that is made anew,
// and forgotten when such a one runs there.
func TestTenantSentHome(t *testing.T) {
	w := newWorld(t)
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.home}}
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:"paris",%q:"true"}}}`, v1alpha1.LabelTenant, v1alpha1.LabelOnward)
	if err := w.admin.Patch(ctx, n, client.RawPatch("application/merge-patch+json", patch)); err != nil {
		t.Fatal(err)
	}
	p := w.pod("web", ofParis)
	w.reconcile(p)
	w.tell(p, nil, accepted(metav1.ConditionFalse, v1alpha1.ReasonUnschedulable, "no node had room"))
	w.reconcile(p)
	if got := w.now(p); got.DeletionTimestamp == nil || condition(got, corev1.DisruptionTarget).Status != corev1.ConditionTrue {
		t.Fatal("it stays")
	}
	if list := w.refused(); len(list) != 1 || list[0].Owner != "paris/"+homeUID || list[0].Node != w.node {
		t.Errorf("remembered: %+v", list)
	}
	choice, err := w.pods.choices.Of(ctx, p)
	if err != nil || len(choice.Avoided) != 1 || !choice.Home {
		t.Errorf("the next one: %+v, %v", choice, err)
	}
	w.reconcile(p)
	w.release(string(p.UID))
	w.reconcile(p)
	if w.now(p) != nil {
		t.Fatal("the evicted pod stays")
	}
	next := w.runs("web", ofParis)
	w.clock.Step(trial)
	w.reconcile(next)
	if list := w.refused(); len(list) != 0 {
		t.Errorf("still remembered: %+v", list)
	}
}

// TestNoteOfTenants: a tenant of many pods does not push out what is remembered of others.
func TestNoteOfTenants(t *testing.T) {
	list := []v1alpha1.Refusal{
		{Owner: "own", Node: "milan", Count: 1, Until: metav1.NewTime(noon)}, {Owner: "rome/0", Node: "milan", Count: 1, Until: metav1.NewTime(noon)},
	}
	for i := range 2 * maxRefusals {
		list, _ = note(list, v1alpha1.Refusal{Owner: fmt.Sprintf("paris/%d", i), Node: "milan"}, noon, noon)
	}
	if last := list[len(list)-2:]; len(list) != maxOfTenant+2 || list[0].Owner != fmt.Sprintf("paris/%d", 2*maxRefusals-1) || last[0].Owner != "own" || last[1].Owner != "rome/0" {
		t.Errorf("%d refusals are remembered: %v", len(list), list)
	}
}
