package tenant

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
	"github.com/pelago-dev/pelago/internal/status"
)

// peered is a bench whose consumer has been introduced and has used its rights.
func peered(t testing.TB, change ...func(*v1alpha1.Tenant)) *bench {
	t.Helper()
	b := newBench(t, change...)
	b.settle()
	b.introduce()
	b.renew(b.clock.Now())
	b.settle()
	ctx := t.Context()
	object := metav1.ObjectMeta{Namespace: b.space(), Name: "default", Finalizers: []string{v1alpha1.FinalizerWithdraw}}
	secret := v1alpha1.HomeObject{Kind: "Secret", Namespace: "shop", Name: "key"}
	for _, obj := range []client.Object{
		&v1alpha1.ResourceRequest{ObjectMeta: object},
		&v1alpha1.ShadowObject{ObjectMeta: metav1.ObjectMeta{Namespace: b.space(), Name: v1alpha1.ShadowObjectName(secret)},
			Spec: v1alpha1.ShadowObjectSpec{Home: secret, Object: "{}"}},
		&v1alpha1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: b.space(), Name: v1alpha1.NamespaceMapName, Finalizers: object.Finalizers}},
		&v1alpha1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Namespace: b.space(), Name: string(uuid.NewUUID()), Finalizers: []string{v1alpha1.FinalizerShadowPod}},
			Spec: v1alpha1.ShadowPodSpec{Home: v1alpha1.HomePod{Namespace: "shop", Name: "web"}, Request: "default", Pod: "{}"}},
		&v1alpha1.NetworkConfig{ObjectMeta: metav1.ObjectMeta{Namespace: b.space(), Name: v1alpha1.NetworkConsumer, Finalizers: object.Finalizers}},
		newPath(b.space(), pathName, object.Finalizers...),
		&v1alpha1.ResourceOffer{ObjectMeta: object, Spec: v1alpha1.ResourceOfferSpec{Resources: amounts(), Expires: metav1.Now()}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop-" + b.name, Labels: childLabels(b.tenant())}},
	} {
		if err := b.c.Create(ctx, obj); err != nil {
			t.Fatal(err)
		}
	}
	mapped := binding(b.tenant(), v1alpha1.ConsumerPodsRole, v1alpha1.ConsumerPodsRole, subject(b.tenant()))
	mapped.Namespace = "shop-" + b.name
	if err := b.c.Create(ctx, mapped); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.c.Delete(context.Background(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop-" + b.name}})
		b.finish(context.Background(), "shop-"+b.name)
	})
	i := &v1alpha1.Invitation{ObjectMeta: metav1.ObjectMeta{Name: b.name},
		Spec: v1alpha1.InvitationSpec{TokenSHA256: strings.Repeat("0", 64), Expires: metav1.NewTime(time.Now().Add(time.Hour))}}
	if err := b.c.Create(ctx, i); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.c.Delete(context.Background(), i) })
	i.Status = v1alpha1.InvitationStatus{Tenant: b.name, TenantUID: string(b.tenant().UID)}
	if err := b.c.Status().Update(ctx, i); err != nil {
		t.Fatal(err)
	}
	return b
}

// left names what has been left behind after the end.
func (b *bench) left() (found []string) {
	b.t.Helper()
	say := func(name string, there bool) {
		if there {
			found = append(found, name)
		}
	}
	going := func(name string) bool {
		n := get(b, "", name, &corev1.Namespace{})
		return n == nil || n.DeletionTimestamp != nil
	}
	say("tenant", b.tenant() != nil)
	say("tenant namespace", !going(b.space()))
	say("namespace", !going("shop-"+b.name))
	say("identity", get(b, b.space(), v1alpha1.IdentityName, &v1alpha1.Identity{}) != nil)
	say("request", get(b, b.space(), "default", &v1alpha1.ResourceRequest{}) != nil)
	say("namespace map", get(b, b.space(), v1alpha1.NamespaceMapName, &v1alpha1.NamespaceMap{}) != nil)
	shadows := &v1alpha1.ShadowPodList{}
	if err := b.c.List(b.t.Context(), shadows, client.InNamespace(b.space())); err != nil {
		b.t.Fatal(err)
	}
	say("shadow pods", len(shadows.Items) > 0)
	objects := &v1alpha1.ShadowObjectList{}
	if err := b.c.List(b.t.Context(), objects, client.InNamespace(b.space())); err != nil {
		b.t.Fatal(err)
	}
	say("shadow objects", len(objects.Items) > 0)
	say("network config", get(b, b.space(), v1alpha1.NetworkConsumer, &v1alpha1.NetworkConfig{}) != nil)
	say("network path", get(b, b.space(), pathName, &v1alpha1.NetworkPath{}) != nil)
	say("rights in its namespace", get(b, "shop-"+b.name, v1alpha1.ConsumerPodsRole, &rbacv1.RoleBinding{}) != nil)
	say("offer", get(b, b.space(), "default", &v1alpha1.ResourceOffer{}) != nil)
	say("rights", get(b, b.space(), v1alpha1.ConsumerRole, &rbacv1.RoleBinding{}) != nil)
	say("flow schema", get(b, "", flowName(b.name), &flowcontrolv1.FlowSchema{}) != nil)
	say("peering", get(b, "", b.name, &v1alpha1.Peering{}) != nil)
	say("invitation", get(b, "", b.name, &v1alpha1.Invitation{}) != nil)
	return found
}

// wantNothingLeft checks the end.
func (b *bench) wantNothingLeft() {
	b.t.Helper()
	if left := b.left(); len(left) > 0 {
		b.t.Errorf("left behind: %v", left)
	}
}

// identityGoodbye plays the consumer: it deletes its Identity.
func (b *bench) identityGoodbye() {
	b.t.Helper()
	b.drop(&v1alpha1.Identity{ObjectMeta: metav1.ObjectMeta{Namespace: b.space(), Name: v1alpha1.IdentityName}})
}

func (b *bench) endTenant() {
	b.t.Helper()
	b.drop(&v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: b.name}})
}

// TestEndByConsumer is quick: all of it is one or two looks.
func TestEndByConsumer(t *testing.T) {
	t.Parallel()
	b := peered(t)
	b.identityGoodbye()
	b.reconcile()
	if tenant := b.tenant(); tenant == nil || tenant.DeletionTimestamp == nil {
		t.Fatal("a goodbye ends the tenant")
	}
	if !b.said("Goodbye") {
		t.Error("no event of the goodbye")
	}
	b.reconcile()
	b.wantNothingLeft()
}

// TestEndWithoutFinalizer: a consumer may take the finalizer off its Identity.
func TestEndWithoutFinalizer(t *testing.T) {
	t.Parallel()
	b := peered(t)
	i := &v1alpha1.Identity{ObjectMeta: metav1.ObjectMeta{Namespace: b.space(), Name: v1alpha1.IdentityName}}
	if err := b.c.Patch(t.Context(), i, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Fatal(err)
	}
	b.identityGoodbye()
	b.reconcile()
	b.reconcile()
	b.wantNothingLeft()
}

func TestEndByProvider(t *testing.T) {
	t.Parallel()
	b := peered(t)
	b.endTenant()
	res := b.reconcile()
	if res.RequeueAfter == 0 || b.tenant() == nil {
		t.Fatalf("%v: the consumer has a moment for its goodbye", res)
	}
	if get(b, b.space(), v1alpha1.ConsumerRole, &rbacv1.RoleBinding{}) != nil || get(b, b.space(), v1alpha1.FarewellRole, &rbacv1.RoleBinding{}) == nil {
		t.Error("the consumer has its rights still, or cannot say goodbye")
	}
	i := get(b, b.space(), v1alpha1.IdentityName, &v1alpha1.Identity{})
	if !status.IsTrue(i.Status.Conditions, v1alpha1.ConditionRevoked) {
		t.Error("the consumer is not told")
	}
	if get(b, b.space(), "default", &v1alpha1.ResourceOffer{}) == nil {
		t.Error("removed while the goodbye is waited for")
	}
	b.reconcile()
	if again := get(b, b.space(), v1alpha1.IdentityName, &v1alpha1.Identity{}); again.ResourceVersion != i.ResourceVersion {
		t.Error("told twice")
	}
	t.Run("goodbye", func(t *testing.T) {
		b.identityGoodbye()
		b.reconcile()
		b.wantNothingLeft()
	})
}

func TestEndAfterSilence(t *testing.T) {
	t.Parallel()
	b := peered(t)
	b.endTenant()
	b.reconcile()
	b.step(goodbyeFor + time.Minute)
	b.reconcile()
	b.wantNothingLeft()
}

func TestEndByForce(t *testing.T) {
	t.Parallel()
	b := peered(t)
	b.patch(`{"metadata":{"annotations":{"` + v1alpha1.AnnotationForce + `":"true"}}}`)
	b.endTenant()
	b.reconcile()
	b.wantNothingLeft()
}

// TestEndFromAnywhere ends tenants that never came to be whole.
func TestEndFromAnywhere(t *testing.T) {
	t.Parallel()
	for looks := range 3 {
		t.Run(fmt.Sprint(looks, " looks"), func(t *testing.T) {
			b := newBench(t)
			for range looks {
				b.reconcile()
			}
			b.endTenant()
			b.reconcile()
			b.wantNothingLeft()
		})
	}
	t.Run("namespace gone", func(t *testing.T) {
		b := peered(t)
		b.drop(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.space()}})
		b.identityGoodbye() // the namespace controller deletes what is in it
		b.reconcile()
		b.reconcile()
		b.wantNothingLeft()
	})
}

func TestAbandon(t *testing.T) {
	t.Parallel()
	b := peered(t, func(t *v1alpha1.Tenant) {
		t.Spec.AbandonAfter = &metav1.Duration{Duration: time.Hour}
	})
	b.step(59 * time.Minute)
	if res := b.reconcile(); res.RequeueAfter > 2*time.Minute || b.tenant().DeletionTimestamp != nil {
		t.Fatalf("%v: an hour is an hour", res)
	}
	b.step(3 * time.Minute)
	// A new process, or a cluster that was down itself, gives the consumer time.
	b.restart(b.c)
	b.reconcile()
	if b.tenant().DeletionTimestamp != nil {
		t.Fatal("abandoned at the first sight")
	}
	b.step(settleFor)
	b.reconcile()
	if !b.said(v1alpha1.ReasonAbandoned) {
		t.Error("no event says why")
	}
	b.reconcile()
	b.wantNothingLeft()
}

func TestDrainersEnd(t *testing.T) {
	t.Parallel()
	b := peered(t)
	d := &drainer{err: errors.New("not yet")}
	b.drainers = []Drainer{d}
	b.identityGoodbye()
	b.reconcile()
	if _, err := b.Reconcile(t.Context(), request(b.name)); err == nil || b.tenant() == nil {
		t.Fatalf("%v: what the tenant runs is removed before the rest", err)
	}
	if get(b, b.space(), v1alpha1.ConsumerRole, &rbacv1.RoleBinding{}) != nil {
		t.Error("the rights did not go first")
	}
	b.step(giveUpAfter + time.Minute)
	b.reconcile()
	if !b.said("LeftBehind could not remove what it runs") {
		t.Error("no event says what was left behind")
	}
	b.wantNothingLeft()
}

// TestCrashAnywhere lets the process die at the writes of the end.
func TestCrashAnywhere(t *testing.T) {
	t.Parallel()
	dead := errors.New("the process has died")
	for _, start := range []struct {
		name string
		end  func(*bench)
	}{
		{"goodbye", (*bench).identityGoodbye},
		{"force", func(b *bench) {
			b.patch(`{"metadata":{"annotations":{"` + v1alpha1.AnnotationForce + `":"true"}}}`)
			b.endTenant()
		}},
	} {
		t.Run(start.name, func(t *testing.T) {
			t.Parallel()
			kubetest.CrashPoints(t, func(after int) (int, bool) {
				b := peered(t)
				start.end(b)
				writes, died := 0, false
				b.restart(interceptor.NewClient(b.c, everyWrite(func() error {
					if died || writes >= after {
						died = true
						return dead
					}
					writes++
					return nil
				})))
				for i := 0; i < 10 && !died && b.tenant() != nil; i++ {
					if _, err := b.Reconcile(t.Context(), request(b.name)); err != nil && !errors.Is(err, dead) {
						t.Fatalf("write %d: %v", after, err)
					}
				}
				b.restart(b.c)
				for i := 0; i < 10 && b.tenant() != nil; i++ {
					b.reconcile()
				}
				if left := b.left(); len(left) > 0 {
					t.Errorf("died before write %d, left behind: %v", after, left)
				}
				return writes, died
			})
		})
	}
}

func TestOrphanedIdentity(t *testing.T) {
	t.Parallel()
	t.Run("no tenant", func(t *testing.T) { orphanedIdentity(t, false) })
	t.Run("tenant of another peering", func(t *testing.T) { orphanedIdentity(t, true) })
}

func orphanedIdentity(t *testing.T, another bool) {
	b := peered(t)
	key := request(v1alpha1.IdentityName)
	key.Namespace = b.space()
	g := &goodbye{client: b.c, live: b.c}
	look := func() *v1alpha1.Identity {
		if _, err := g.Reconcile(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		return get(b, b.space(), v1alpha1.IdentityName, &v1alpha1.Identity{})
	}
	if look() == nil {
		t.Fatal("one that lives stays")
	}
	b.identityGoodbye()
	if look() == nil {
		t.Fatal("its Tenant takes care of it")
	}
	if err := b.c.Patch(t.Context(), b.tenant(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Fatal(err)
	}
	b.endTenant()
	later := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: b.name}, Spec: v1alpha1.TenantSpec{ClusterID: osloID, PeeringUID: romeUID}}
	if another {
		if err := b.c.Create(t.Context(), later); err != nil {
			t.Fatal(err)
		}
	}
	if look() != nil {
		t.Error("nobody will ever let go of it")
	}
}

func TestInvitationsGo(t *testing.T) {
	t.Parallel()
	b := peered(t)
	g := &invitations{client: b.c, live: b.c, clock: b.clock}
	look := func() *v1alpha1.Invitation {
		res, err := g.Reconcile(t.Context(), request(b.name))
		if err != nil {
			t.Fatal(err)
		}
		i := get(b, "", b.name, &v1alpha1.Invitation{})
		if i != nil && res.RequeueAfter <= 0 {
			t.Error("it is never looked at again")
		}
		return i
	}
	if look() == nil {
		t.Fatal("a good one stays")
	}
	b.step(2*time.Hour + time.Minute)
	if look() != nil {
		t.Error("it is good for nothing any more")
	}
}

// TestEndWithoutFarewell: what the consumer could do goes even if its last right cannot
// be given, and the end comes all the same.
func TestEndWithoutFarewell(t *testing.T) {
	t.Parallel()
	b := peered(t)
	b.restart(interceptor.NewClient(b.c, interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, o ...client.ApplyOption) error {
			return errors.New("exceeded quota")
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, p client.Patch, o ...client.SubResourcePatchOption) error {
			if _, ok := obj.(*v1alpha1.Identity); ok {
				return errors.New("denied by a webhook")
			}
			return c.SubResource(sub).Patch(ctx, obj, p, o...)
		},
	}))
	b.endTenant()
	if _, err := b.Reconcile(t.Context(), request(b.name)); err == nil {
		t.Error("nothing tries again")
	}
	if get(b, b.space(), v1alpha1.ConsumerRole, &rbacv1.RoleBinding{}) != nil {
		t.Error("the consumer has its rights still")
	}
	b.step(giveUpAfter)
	if _, err := b.Reconcile(t.Context(), request(b.name)); err == nil || b.tenant() == nil {
		t.Errorf("%v: the notice is given up as it fails for the first time", err)
	}
	b.step(giveUpAfter)
	b.reconcile()
	b.wantNothingLeft()
}

// TestEndKeepsVolumes: a namespace with volume claims is not deleted, and a later tenant
// of the same name does not get it.
func TestEndKeepsVolumes(t *testing.T) {
	t.Parallel()
	b := peered(t)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-" + b.name, Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}}
	if err := b.c.Create(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-" + b.name, Name: "ending", Labels: map[string]string{v1alpha1.LabelTenant: b.name},
		Finalizers: []string{v1alpha1.FinalizerShadowPod, "example.org/theirs"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.org/c"}}}}
	if err := b.c.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	b.arm("shop-" + b.name)
	emptied := 0
	b.empty = func(_ context.Context, n *corev1.Namespace) error {
		emptied++
		if n = get(b, "", n.Name, n); n.Labels[v1alpha1.LabelTenant] != b.name || !b.armed(n.Name) {
			t.Error("the namespace is handed over, or the manager's rights in it are taken, before it is emptied")
		}
		return nil
	}
	b.endTenant()
	b.reconcile()
	if get(b, "shop-"+b.name, v1alpha1.ConsumerPodsRole, &rbacv1.RoleBinding{}) != nil {
		t.Error("the rights in the mapped namespace do not go first")
	}
	b.identityGoodbye()
	b.reconcile()
	if emptied != 1 || b.armed("shop-"+b.name) {
		t.Errorf("emptied %d times; the manager keeps its rights in a namespace that is nobody's: %t", emptied, b.armed("shop-"+b.name))
	}
	n := get(b, "", "shop-"+b.name, &corev1.Namespace{})
	if n == nil || n.DeletionTimestamp != nil {
		t.Fatal("volumes were deleted silently")
	}
	if n.Labels[v1alpha1.LabelTenant] != "" || n.Labels[v1alpha1.LabelManagedBy] != "" {
		t.Errorf("%v: a later tenant of this name would get the volumes", n.Labels)
	}
	if got := get(b, pod.Namespace, pod.Name, &corev1.Pod{}); len(got.Finalizers) != 1 || got.Finalizers[0] != "example.org/theirs" {
		t.Errorf("a pod that ends in it is held for ever: %v", got.Finalizers)
	}
	got := pod.DeepCopy()
	got.Finalizers = nil
	if err := b.c.Patch(t.Context(), got, client.MergeFrom(pod)); err != nil {
		t.Fatal(err)
	}
	if !b.said(v1alpha1.ReasonVolumesKept) {
		t.Error("nobody is told")
	}
	if left := b.left(); len(left) != 1 || left[0] != "namespace" {
		t.Errorf("left behind: %v", left)
	}
}
