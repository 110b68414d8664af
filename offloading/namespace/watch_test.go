package namespace

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestSpecOrFeatures: a peering is looked at again when its provider gets to know something.
func TestSpecOrFeatures(t *testing.T) {
	of := func(generation int64, remote string, features ...string) *v1alpha1.Peering {
		p := &v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Generation: generation}}
		if remote != "" {
			p.Status.Remote = &v1alpha1.ClusterInfo{Name: remote, Features: features}
		}
		return p
	}
	for _, c := range []struct {
		reason   string
		old, new *v1alpha1.Peering
		want     bool
	}{
		{"nothing", of(1, "oslo", "a/v1"), of(1, "oslo", "a/v1"), false},
		{"another name", of(1, "oslo", "a/v1"), of(1, "bergen", "a/v1"), false},
		{"its spec", of(1, "oslo", "a/v1"), of(2, "oslo", "a/v1"), true},
		{"one feature more", of(1, "oslo", "a/v1"), of(1, "oslo", "a/v1", "onward/v1"), true},
		{"one less", of(1, "oslo", "a/v1"), of(1, "oslo"), true},
		{"the first", of(1, ""), of(1, "oslo", "a/v1"), true},
	} {
		if got := specOrFeatures().Update(event.UpdateEvent{ObjectOld: c.old, ObjectNew: c.new}); got != c.want {
			t.Errorf("%s: %t", c.reason, got)
		}
	}
}

// TestTenantsOfEntries: whose namespaces come to a provider's NamespaceMap, or go from it, is asked for.
func TestTenantsOfEntries(t *testing.T) {
	space := func(name, tenant string) *corev1.Namespace {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if tenant != "" {
			n.Labels = map[string]string{v1alpha1.LabelTenant: tenant}
		}
		return n
	}
	h := tenantsOfEntries(fake.NewClientBuilder().WithObjects(space("shop-milan", "milan"), space("bank-paris", "paris"), space("own", "")).Build())
	with := func(names ...string) *v1alpha1.NamespaceMap {
		m := &v1alpha1.NamespaceMap{Spec: v1alpha1.NamespaceMapSpec{Namespaces: map[string]v1alpha1.NamespaceMapping{}}}
		for _, name := range names {
			m.Spec.Namespaces[name] = v1alpha1.NamespaceMapping{}
		}
		return m
	}
	for _, c := range []struct {
		reason   string
		old, new *v1alpha1.NamespaceMap
		want     string
	}{
		{"it comes", nil, with("shop-milan", "own"), "milan"},
		{"it goes", with("shop-milan", "gone"), nil, "milan"},
		{"an entry comes", with("shop-milan"), with("shop-milan", "bank-paris"), "paris"},
		{"an entry goes", with("shop-milan", "bank-paris"), with("bank-paris", "own"), "milan"},
		{"nothing", with("shop-milan"), with("shop-milan"), ""},
	} {
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		switch {
		case c.old == nil:
			h.Create(t.Context(), event.CreateEvent{Object: c.new}, q)
		case c.new == nil:
			h.Delete(t.Context(), event.DeleteEvent{Object: c.old}, q)
		default:
			h.Update(t.Context(), event.UpdateEvent{ObjectOld: c.old, ObjectNew: c.new}, q)
		}
		got := ""
		if q.Len() == 1 {
			one, _ := q.Get()
			if one == mapOfTenant("milan") {
				got = "milan"
			} else if one == mapOfTenant("paris") {
				got = "paris"
			}
		}
		if q.Len() != 0 || got != c.want {
			t.Errorf("%s: %q is asked for, %d more", c.reason, got, q.Len())
		}
		q.ShutDown()
	}
}
