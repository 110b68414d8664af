package tenant

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// TestLaterFields: what a later build has written into a Tenant stays.
func TestLaterFields(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.settle()
	kept := kubetest.Later(t, b.c, b.tenant())
	b.patch(`{"spec":{"state":"Cordoned"}}`)
	b.settle()
	b.want(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonCordoned)
	kept()
}
