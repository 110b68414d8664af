package network

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestRulesBeyond holds that home is told of namespaces whose rules gateways leave out, whichever namespace is
// looked at.
func TestRulesBeyond(t *testing.T) {
	w := newRuled(t)
	rules := func(namespace string, n int) *v1alpha1.NetworkRules {
		return w.create(&v1alpha1.NetworkRules{ObjectMeta: at(w.here(), v1alpha1.NetworkRulesName(namespace, 0)), Spec: v1alpha1.NetworkRulesSpec{
			Namespace: namespace, Shards: 1, Revision: "0123456789abcdef",
			Rules: slices.Repeat([]v1alpha1.NetworkRule{{Policy: "p", Direction: v1alpha1.NetworkIngress, AnyPeer: true}}, n),
		}}).(*v1alpha1.NetworkRules)
	}
	for i := range 3 {
		rules(fmt.Sprint("a", i), v1alpha1.MaxNetworkRules)
	}
	last := rules("a3", v1alpha1.MaxNetworkRules-1)
	later := w.space + "-z" // after it by name
	w.world.space(later, nil)
	w.create(&v1alpha1.NamespaceOffloading{ObjectMeta: at(later, v1alpha1.OffloadingName)})
	rules(later, 1)
	w.reconcile()
	if got := w.said(); len(got) != 0 {
		t.Errorf("of as many rules as gateways take is said %q", got)
	}
	w.policy(dbFromWeb)
	_, result := w.reconcile()
	if got := w.said(); len(got) != 1 || !strings.Contains(got[0], "leave out those of "+later+":") {
		t.Errorf("of the namespace that one more rule leaves out is said %q", got)
	}
	if result.RequeueAfter <= 0 || result.RequeueAfter > tellAgain {
		t.Errorf("it is told again after %v", result.RequeueAfter)
	}
	if err := w.raw.Delete(ctx, last); err != nil {
		t.Fatal(err)
	}
	last = rules("a3", v1alpha1.MaxNetworkRules)
	w.reconcile()
	if got := w.said(); len(got) != 1 || !strings.Contains(got[0], "leave out those of "+w.space+":") {
		t.Errorf("of the namespace whose own rule does not fit is said %q", got)
	}
	if err := w.raw.Delete(ctx, last, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	if _, result := w.reconcile(); result.RequeueAfter != 0 || len(w.ruler.told) != 0 {
		t.Errorf("once all fits, it is told again after %v of %v", result.RequeueAfter, w.ruler.told)
	}
}
