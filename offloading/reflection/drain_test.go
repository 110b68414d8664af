package reflection

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// oneOfEach are objects of all kinds that are made for tenants, of one name.
func oneOfEach(namespace, name string) []client.Object {
	at := objectMeta(namespace, name)
	return []client.Object{
		&corev1.Secret{ObjectMeta: at, Data: map[string][]byte{"a": []byte("s3cret")}},
		&corev1.ConfigMap{ObjectMeta: at},
		&corev1.Service{ObjectMeta: at, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}},
		&discoveryv1.EndpointSlice{ObjectMeta: at, AddressType: discoveryv1.AddressTypeIPv4},
		&networkingv1.Ingress{ObjectMeta: at, Spec: networkingv1.IngressSpec{DefaultBackend: &networkingv1.IngressBackend{
			Service: &networkingv1.IngressServiceBackend{Name: name, Port: networkingv1.ServiceBackendPort{Number: 80}}}}},
		&policyv1.PodDisruptionBudget{ObjectMeta: at},
		&networkingv1.NetworkPolicy{ObjectMeta: at},
	}
}

// empty does what the end of a tenant does in its namespace.
func (w *world) empty() error {
	w.t.Helper()
	return Drainer{Client: w.client, Live: w.client}.Empty(ctx, get(w, "", w.remote, &corev1.Namespace{}))
}

// TestEmpty: nothing that was made for a tenant outlives it in a namespace that is kept, and nothing else goes.
func TestEmpty(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	theirs, stay := oneOfEach(w.remote, "theirs"), oneOfEach(w.remote, "stays")
	if len(theirs) != len(carried) {
		t.Fatalf("%d kinds of %d", len(theirs), len(carried))
	}
	for i, o := range theirs {
		mark(o, w.name, w.home)
		w.create(o)
		switch i % 3 {
		case 0: // somebody wanted one like that
			stay[i].SetLabels(o.GetLabels())
			stay[i].SetAnnotations(o.GetAnnotations())
		case 1: // another tenant's
			mark(stay[i], "oslo", w.home)
		}
		w.create(stay[i])
	}
	namespace := get(w, "", w.remote, &corev1.Namespace{}).Labels
	w.label(w.remote, map[string]string{v1alpha1.LabelTenant: w.name}) // not a mapped one
	if err := w.empty(); err != nil || w.made("theirs") == nil {
		t.Fatalf("%v: a namespace that is not the tenant's is emptied", err)
	}
	w.label(w.remote, namespace)
	for range 2 {
		if err := w.empty(); err != nil {
			t.Fatal(err)
		}
	}
	for i, o := range theirs {
		key := client.ObjectKeyFromObject(o)
		if err := w.raw.Get(ctx, key, o); err == nil && o.GetDeletionTimestamp() == nil || client.IgnoreNotFound(err) != nil {
			t.Errorf("%T: %v, want it gone", o, err)
		}
		if err := w.raw.Get(ctx, client.ObjectKeyFromObject(stay[i]), stay[i]); err != nil || stay[i].GetDeletionTimestamp() != nil {
			t.Errorf("%T that is not the tenant's: %v", o, err)
		}
	}
}

// TestEmptyIsolated: pods that end are isolated until they have gone, and what isolates them goes then.
func TestEmptyIsolated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, o := range oneOfEach(w.remote, "theirs") {
		mark(o, w.name, w.home)
		w.create(o)
	}
	pod := &corev1.Pod{ObjectMeta: objectMeta(w.remote, "ending"), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	pod.Labels = map[string]string{v1alpha1.LabelTenant: w.name}
	w.create(&corev1.ServiceAccount{ObjectMeta: objectMeta(w.remote, "default")})
	w.create(pod)
	for range 2 {
		if err := w.empty(); err != nil {
			t.Fatal(err)
		}
	}
	policy := get(w, w.remote, "theirs", &networkingv1.NetworkPolicy{})
	if policy == nil || len(policy.OwnerReferences) != 1 || policy.OwnerReferences[0].UID != pod.UID || w.made("theirs") != nil {
		t.Errorf("%v, want it left to the pod, and it alone", policy)
	}
	if err := w.raw.Delete(ctx, pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	if err := w.empty(); err != nil || get(w, w.remote, "theirs", &networkingv1.NetworkPolicy{}) != nil {
		t.Errorf("%v: it outlives the pods", err)
	}
}

// TestEmptyFaults: one object that does not go holds up no other, one that is another one by now is left, and what
// an API server says of a Secret is not repeated.
func TestEmptyFaults(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, o := range append(oneOfEach(w.remote, "a"), oneOfEach(w.remote, "b")...) {
		mark(o, w.name, w.home)
		w.create(o)
	}
	w.fail = func(_ string, obj client.Object) error {
		if obj.GetName() == "a" {
			return invalid("s3cret")
		}
		return nil
	}
	if err := w.empty(); err == nil || strings.Contains(err.Error(), "s3cret") || w.made("b") != nil || w.made("a") == nil {
		t.Errorf("%v; b is there: %t", err, w.made("b") != nil)
	}
	w.fail = func(_ string, obj client.Object) error {
		if w.fail = nil; obj.GetName() != "a" {
			return nil
		}
		if err := w.raw.Delete(ctx, w.made("a")); err != nil {
			t.Error(err)
		}
		again := oneOfEach(w.remote, "a")[0]
		w.create(again) // by the owner
		return nil
	}
	if err := w.empty(); err == nil {
		t.Error("it is not looked at again what became of one that has changed")
	}
	if w.made("a") == nil {
		t.Error("another object of the name is deleted")
	}
	if err := w.empty(); err != nil || w.made("a") == nil {
		t.Errorf("%v; a is there: %t", err, w.made("a") != nil)
	}
}

// TestEmptyUnarmed: a namespace in which the manager was never given its rights holds up no end, one where it will
// have them in a moment does.
func TestEmptyUnarmed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := Drainer{Client: w.client}
	d.Live = interceptor.NewClient(w.raw, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
			if _, content := list.(*metav1.PartialObjectMetadataList); content {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "", nil)
			}
			return c.List(ctx, list, o...)
		},
	})
	if err := d.Empty(ctx, get(w, "", w.remote, &corev1.Namespace{})); err != nil {
		t.Errorf("without rights: %v", err)
	}
	w.create(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: w.remote, Name: "pelago-manager", Labels: map[string]string{v1alpha1.LabelTenant: w.name}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: mappedRole}})
	if err := d.Empty(ctx, get(w, "", w.remote, &corev1.Namespace{})); !errors.Is(err, errForbidden) {
		t.Errorf("with rights that are to come: %v", err)
	}
}

// manyPods lists pods that end one second after the other.
type manyPods struct {
	client.Reader
	n int
}

func (m manyPods) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	pods := list.(*metav1.PartialObjectMetadataList)
	for i := range m.n {
		at := metav1.NewTime(time.Unix(int64(1000+i), 0))
		pods.Items = append(pods.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprint("p", i), UID: types.UID(fmt.Sprint("u", i)), DeletionTimestamp: &at}})
	}
	pods.Items[m.n/2].DeletionTimestamp = nil
	return nil
}

// TestEmptyManyPods: a policy is left to as many pods as an object has room for, those that end last, and once.
func TestEmptyManyPods(t *testing.T) {
	t.Parallel()
	const n = 10_000
	patches := 0
	c := interceptor.NewClient(nil, interceptor.Funcs{Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
		patches++
		return nil
	}})
	d := Drainer{Client: c, Live: manyPods{n: n}}
	owners, err := d.pods(ctx, "shop", "rome")
	if err != nil || len(owners) != mostOwners || owners[0].Name != fmt.Sprint("p", n/2) || owners[1].Name != fmt.Sprint("p", n-1) || owners[mostOwners-1].Name != fmt.Sprint("p", n-mostOwners+1) {
		t.Fatalf("%v, %d owners, from %+v on", err, len(owners), owners[:min(len(owners), 3)])
	}
	policy := &metav1.PartialObjectMetadata{}
	for range 2 {
		if err := d.leaveTo(ctx, policy, owners); err != nil {
			t.Fatal(err)
		}
		policy.OwnerReferences = owners
	}
	if patches != 1 {
		t.Errorf("%d patches of one policy", patches)
	}
}
