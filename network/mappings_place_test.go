package network

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/mapping"
)

// TestMappingPlaces: nothing is mapped where the cluster's own Services are, and it is said what to change.
func TestMappingPlaces(t *testing.T) {
	ground := mapping.Ground{External: ranges("10.255.255.0/24"), Mappable: ranges("192.0.2.0/24")}
	const another = "namespaces kube-*, pelago-* and openshift-* are the cluster's: make the mapping in another one"
	for _, c := range []struct{ namespace, name, address, reason, text string }{
		{"shop", "db", "192.0.2.50", "", ""},
		{"default", "db", "192.0.2.50", "", ""},
		{"kube", "db", "192.0.2.50", "", ""},
		{"shop", "kubernetes", "192.0.2.50", "", ""},
		{"kube-system", "db", "192.0.2.50", v1alpha1.ReasonNotMappable, another},
		{"pelago-network", "tunnel-rome", "192.0.2.50", v1alpha1.ReasonNotMappable, another},
		{"openshift-dns", "db", "198.51.100.1", v1alpha1.ReasonNotMappable, another},
		{"default", "kubernetes", "192.0.2.50", v1alpha1.ReasonNotMappable, "the Service kubernetes in default is the cluster's: give the mapping another name"},
	} {
		o := &v1alpha1.IPMapping{ObjectMeta: at(c.namespace, c.name), Spec: v1alpha1.IPMappingSpec{Address: c.address}}
		o.UID = "1"
		if d := decideMapping(o, ground, nil, nil); d.reason != c.reason || d.text != c.text || d.address.IsValid() != (c.reason == "") {
			t.Errorf("%s/%s is %+v, want %s with %q", c.namespace, c.name, d, c.reason, c.text)
		}
	}
}

// TestMappingCrash: a manager that ends between what leads to an address and the word of it gives that to no other
// mapping when it begins anew.
func TestMappingCrash(t *testing.T) {
	b := newBoard(t)
	o := &v1alpha1.IPMapping{ObjectMeta: at(b.namespace, "db"), Spec: v1alpha1.IPMappingSpec{Address: "192.0.2.50", Ports: []v1alpha1.IPMappingPort{{Name: "sql", Port: 5432}}}}
	if err := b.client.Create(ctx, o); err != nil {
		t.Fatal(err)
	}
	ended := errors.New("the process has ended")
	made := false
	dying := interceptor.NewClient(b.client, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			err := c.Create(ctx, o, options...)
			_, slice := o.(*discoveryv1.EndpointSlice)
			made = made || slice && err == nil
			return err
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, options ...client.SubResourcePatchOption) error {
			if made {
				return ended
			}
			return c.SubResource(sub).Patch(ctx, o, p, options...)
		},
	})
	b.mapper = newMapper(b.network, dying, dying)
	if _, err := b.mapper.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o)}); !errors.Is(err, ended) {
		t.Fatalf("it did not end after the slice: %v", err)
	}
	slice := &discoveryv1.EndpointSlice{}
	b.has("db", slice)
	b.restart()
	if other := b.add("other", "192.0.2.51"); other.Status.Address == slice.Annotations[v1alpha1.AnnotationExternal] {
		t.Errorf("both have %s", other.Status.Address)
	}
	if db := b.look("db"); db.Status.Address != slice.Annotations[v1alpha1.AnnotationExternal] {
		t.Errorf("it has %s, and its slice said %v", db.Status.Address, slice.Annotations)
	}
}

// TestMappingOfEarlier: what an earlier build made for a mapping where nothing is mapped any more goes, and does not
// lead on to the address before.
func TestMappingOfEarlier(t *testing.T) {
	b := newBoard(t)
	b.namespace = "openshift-" + b.namespace
	o := &v1alpha1.IPMapping{ObjectMeta: at(b.namespace, "db"), Spec: v1alpha1.IPMappingSpec{Address: "192.0.2.50", Ports: []v1alpha1.IPMappingPort{{Name: "sql", Port: 5432}}}}
	for _, made := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.namespace}}, o} {
		if err := b.client.Create(ctx, made); err != nil {
			t.Fatal(err)
		}
	}
	service, slice := children(o, netip.MustParseAddr("192.0.2.50"))
	for _, made := range []client.Object{service, slice} {
		if err := b.client.Create(ctx, made); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.client.Patch(ctx, o, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"address":"192.0.2.51"}}`))); err != nil {
		t.Fatal(err)
	}
	as := interceptor.NewClient(b.client, interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
		if _, ours := o.(*v1alpha1.IPMapping); ours {
			return c.Patch(ctx, o, p, options...)
		}
		return apierrors.NewForbidden(schema.GroupResource{Resource: nameOf(o)}, o.GetName(), errors.New("as the policy says"))
	}})
	b.mapper = newMapper(b.network, as, as)
	b.ready(b.look("db"), v1alpha1.ReasonNotMappable, "make the mapping in another one")
	if b.has("db", &corev1.Service{}) || b.has("db", &discoveryv1.EndpointSlice{}) {
		t.Error("it leads on")
	}
}
