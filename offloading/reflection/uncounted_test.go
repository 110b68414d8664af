package reflection

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestUncounted: what a provider does not take because its quota has not counted yet is no refusal. Nobody
// is told, it is tried again soon, parts too, and then it is there.
func TestUncounted(t *testing.T) {
	t.Parallel()
	for _, size := range []int{100, 600 << 10} {
		w, _ := large(t, size)
		w.create(configMap(w.home, "new", map[string]string{"a": letters(3, size)}))
		w.readsMaps("other", false, "new")
		w.fail = func(verb string, obj client.Object) error {
			if s, ok := obj.(*v1alpha1.ShadowObject); ok && verb == "create" {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "shadowobjects"}, s.Name, errors.New("status unknown for quota: pelago-objects, resources: count/shadowobjects.pelago.dev"))
			}
			return nil
		}
		for range 3 {
			if res := w.send("new"); res.RequeueAfter > 4*soon || res.RequeueAfter == 0 || w.told("403")+w.told("does not take") > 0 {
				t.Errorf("%d bytes: again in %s, or somebody is told", size, res.RequeueAfter)
			}
			w.clock.Step(soon)
		}
		if got := w.parts("new"); got != "" {
			t.Errorf("%d bytes: the parts %s are there", size, got)
		}
		w.clock.Step(4 * soon)
		w.fail = nil
		w.carry("new")
		if made := w.madeMap("new"); made == nil || w.answer("new") != "True/Ready" {
			t.Errorf("%d bytes: it is not there, %s", size, w.answer("new"))
		}
	}
}
