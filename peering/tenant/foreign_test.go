package tenant

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestEndWithForeignFinalizers: a consumer may write any finalizer into what it may
// write, and must not hold its namespace by that.
func TestEndWithForeignFinalizers(t *testing.T) {
	t.Parallel()
	b := peered(t)
	shadows, secrets := &v1alpha1.ShadowPodList{}, &v1alpha1.ShadowObjectList{}
	for _, list := range []client.ObjectList{shadows, secrets} {
		if err := b.c.List(t.Context(), list, client.InNamespace(b.space())); err != nil || meta.LenList(list) != 1 {
			t.Fatal(err, list)
		}
	}
	held := `{"metadata":{"finalizers":["pelago.dev/goodbye","consumer.example/forever"]}}`
	in := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: b.space(), Name: name} }
	for _, obj := range []client.Object{
		&v1alpha1.Identity{ObjectMeta: in(v1alpha1.IdentityName)}, &coordinationv1.Lease{ObjectMeta: in(v1alpha1.IdentityName)},
		&v1alpha1.ResourceRequest{ObjectMeta: in("default")}, &v1alpha1.ResourceOffer{ObjectMeta: in("default")},
		&v1alpha1.NamespaceMap{ObjectMeta: in(v1alpha1.NamespaceMapName)}, &shadows.Items[0], &secrets.Items[0],
		&v1alpha1.NetworkPath{ObjectMeta: in(pathName)},
	} {
		if err := b.c.Patch(t.Context(), obj, client.RawPatch(types.MergePatchType, []byte(held))); err != nil {
			t.Fatal(err)
		}
	}
	b.identityGoodbye()
	b.reconcile()
	b.reconcile()
	b.wantNothingLeft()
	if get(b, b.space(), v1alpha1.IdentityName, &coordinationv1.Lease{}) != nil {
		t.Error("left behind: lease")
	}
}
