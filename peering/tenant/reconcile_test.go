package tenant

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

func TestTenantIsMade(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.reconcile()
	if tenant := b.tenant(); len(tenant.Finalizers) != 1 || get(b, "", b.space(), &corev1.Namespace{}) != nil {
		t.Fatal("the finalizer is stored before anything else exists")
	}
	b.settle()
	for _, kind := range []string{v1alpha1.ConditionNamespaceReady, v1alpha1.ConditionRightsReady, v1alpha1.ConditionConsumerAlive, v1alpha1.ConditionReady} {
		b.want(kind, metav1.ConditionTrue, v1alpha1.ReasonReady)
	}
	namespace := get(b, "", b.space(), &corev1.Namespace{})
	want := map[string]string{v1alpha1.LabelManagedBy: component, v1alpha1.LabelTenant: b.name,
		"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/enforce-version": "latest"}
	if !contains(namespace.Labels, want) {
		t.Errorf("labels %v, want %v", namespace.Labels, want)
	}
	binding := get(b, b.space(), v1alpha1.ConsumerRole, &rbacv1.RoleBinding{})
	tenant := b.tenant()
	if binding.RoleRef.Name != v1alpha1.ConsumerRole || len(binding.Subjects) != 1 || binding.Subjects[0].Name != v1alpha1.UserPrefix+tenant.Spec.PeeringUID {
		t.Errorf("the binding is of %v to %v", binding.RoleRef, binding.Subjects)
	}
	schema := get(b, "", flowName(b.name), &flowcontrolv1.FlowSchema{})
	if schema.Spec.PriorityLevelConfiguration.Name != v1alpha1.PriorityLevel || schema.Spec.DistinguisherMethod.Type != flowcontrolv1.FlowDistinguisherMethodByUserType {
		t.Errorf("the flow schema is %+v", schema.Spec)
	}
	if get(b, b.space(), v1alpha1.IdentityName, &coordinationv1.Lease{}) == nil {
		t.Error("the Lease is missing")
	}
	if get(b, b.space(), v1alpha1.IdentityName, &corev1.ServiceAccount{}) != nil {
		t.Error("a service account without need")
	}
	peering := get(b, "", b.name, &v1alpha1.Peering{})
	if peering.Spec.ClusterID != tenant.Spec.ClusterID || peering.Spec.Provide.Tenant != b.name || peering.Spec.Consume != nil {
		t.Errorf("the peering is %+v", peering.Spec)
	}
	if tenant.Status.Namespace != b.space() || tenant.Status.ObservedGeneration != tenant.Generation {
		t.Errorf("status %+v", tenant.Status)
	}
}

func TestTenantWithToken(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(t *v1alpha1.Tenant) { t.Spec.CredentialType = v1alpha1.CredentialToken })
	b.settle()
	account := get(b, b.space(), v1alpha1.IdentityName, &corev1.ServiceAccount{})
	if account == nil || *account.AutomountServiceAccountToken {
		t.Errorf("service account %v", account)
	}
	for name, role := range map[string]string{v1alpha1.ConsumerRole: v1alpha1.ConsumerRole, v1alpha1.ConsumerTokenRole: v1alpha1.ConsumerTokenRole, authTokenBinding: v1alpha1.ConsumerTokenRole} {
		if binding := get(b, b.space(), name, &rbacv1.RoleBinding{}); binding == nil || binding.RoleRef.Name != role {
			t.Errorf("binding %s is %v, want role %s", name, binding, role)
		}
	}
}

// TestNothingToDo counts every write of a reconciler that has nothing to do.
func TestNothingToDo(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.settle()
	b.introduce()
	b.renew(b.clock.Now())
	b.settle()
	before := b.versions()
	writes := 0
	counting := interceptor.NewClient(b.c, everyWrite(func() error { writes++; return nil }))
	b.restart(counting)
	b.reconcile()
	if writes != 0 {
		t.Errorf("%d writes, want none", writes)
	}
	if diff := cmp.Diff(before, b.versions()); diff != "" {
		t.Errorf("versions changed:\n%s", diff)
	}
}

// everyWrite calls f before every write, which does not happen if f fails.
func everyWrite(f func() error) interceptor.Funcs {
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.CreateOption) error {
			if err := f(); err != nil {
				return err
			}
			return c.Create(ctx, obj, o...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.DeleteOption) error {
			if err := f(); err != nil {
				return err
			}
			return c.Delete(ctx, obj, o...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, o ...client.PatchOption) error {
			if err := f(); err != nil {
				return err
			}
			return c.Patch(ctx, obj, p, o...)
		},
		Apply: func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, o ...client.ApplyOption) error {
			if err := f(); err != nil {
				return err
			}
			return c.Apply(ctx, obj, o...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, p client.Patch, o ...client.SubResourcePatchOption) error {
			if err := f(); err != nil {
				return err
			}
			return c.SubResource(sub).Patch(ctx, obj, p, o...)
		},
	}
}

func TestRepair(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.settle()
	inSpace := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: b.space(), Name: name} }
	ctx := t.Context()
	for _, c := range []struct {
		name  string
		spoil func()
	}{
		{"quota gone", func() { b.drop(&corev1.ResourceQuota{ObjectMeta: inSpace(quotaName)}) }},
		{"lease gone", func() { b.drop(&coordinationv1.Lease{ObjectMeta: inSpace(v1alpha1.IdentityName)}) }},
		{"binding gone", func() { b.drop(&rbacv1.RoleBinding{ObjectMeta: inSpace(v1alpha1.ConsumerRole)}) }},
		{"flow gone", func() {
			b.drop(&flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: flowName(b.name)}})
		}},
		{"peering gone", func() { b.drop(b.peering()) }},
		{"namespace gone", func() {
			b.drop(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.space()}})
			b.finish(ctx, b.space())
		}},
		{"stranger in the binding", func() {
			binding := get(b, b.space(), v1alpha1.ConsumerRole, &rbacv1.RoleBinding{})
			binding.Subjects = append(binding.Subjects, rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: "eve"})
			if err := b.c.Update(ctx, binding); err != nil {
				t.Fatal(err)
			}
		}},
		{"other role, no labels", func() {
			b.drop(&rbacv1.RoleBinding{ObjectMeta: inSpace(v1alpha1.ConsumerRole)})
			other := &rbacv1.RoleBinding{ObjectMeta: inSpace(v1alpha1.ConsumerRole), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}}
			if err := b.c.Create(ctx, other); err != nil {
				t.Fatal(err)
			}
		}},
		{"lax namespace", func() {
			n := get(b, "", b.space(), &corev1.Namespace{})
			n.Labels["pod-security.kubernetes.io/enforce"] = "privileged"
			if err := b.c.Update(ctx, n); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.spoil()
			b.settle()
			b.want(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
			for i, obj := range b.children() {
				if isNil(obj) {
					t.Errorf("child %d is missing", i)
				}
			}
			binding := get(b, b.space(), v1alpha1.ConsumerRole, &rbacv1.RoleBinding{})
			if len(binding.Subjects) != 1 || binding.RoleRef.Name != v1alpha1.ConsumerRole {
				t.Errorf("the binding is of %s to %v", binding.RoleRef.Name, binding.Subjects)
			}
			if level := get(b, "", b.space(), &corev1.Namespace{}).Labels["pod-security.kubernetes.io/enforce"]; level != "restricted" {
				t.Errorf("pod security is %q", level)
			}
		})
	}
}

func TestForeignNamespace(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	theirs := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.space(), Labels: map[string]string{"team": "a"}}}
	if err := b.c.Create(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	b.settle()
	b.want(v1alpha1.ConditionNamespaceReady, metav1.ConditionFalse, v1alpha1.ReasonNameRefused)
	b.want(v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonNameRefused)
	if b.condition(v1alpha1.ConditionRightsReady).Status == metav1.ConditionTrue {
		t.Error("rights in a namespace that is not ours")
	}
	if !b.said("NameRefused") {
		t.Error("no event says so")
	}
	b.drop(&v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: b.name}})
	b.reconcile()
	if b.tenant() != nil {
		t.Error("the tenant does not go")
	}
	if got := get(b, "", b.space(), &corev1.Namespace{}); got == nil || got.DeletionTimestamp != nil || len(got.Labels) != 2 {
		t.Errorf("the foreign namespace was touched: %v", got)
	}
}

func TestPeeringOfAnotherCluster(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	other := b.peering()
	other.Spec = v1alpha1.PeeringSpec{ClusterID: osloID, Provide: &v1alpha1.Provide{Tenant: "oslo"}}
	if err := b.c.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	b.settle()
	b.want(v1alpha1.ConditionRightsReady, metav1.ConditionFalse, v1alpha1.ReasonNameRefused)
	b.want(v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonNameRefused)
	if get(b, b.space(), v1alpha1.ConsumerRole, &rbacv1.RoleBinding{}) != nil {
		t.Error("rights for a tenant that nobody sees")
	}
	b.drop(other)
	b.settle()
	b.want(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	b.want(v1alpha1.ConditionStalled, "", "")
}

func TestPeeringInBothDirections(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	mine := b.peering()
	mine.Name = b.server.Name(t, "capital")
	mine.Spec = v1alpha1.PeeringSpec{ClusterID: b.tenant().Spec.ClusterID, Consume: &v1alpha1.Consume{AuthURL: "https://rome:8443", CASHA256: strings.Repeat("a", 64)}}
	if err := b.c.Create(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.c.Delete(context.Background(), mine) })
	b.settle()
	b.want(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	got := get(b, "", mine.Name, &v1alpha1.Peering{})
	if got.Spec.Provide == nil || got.Spec.Provide.Tenant != b.name || got.Spec.Consume == nil {
		t.Errorf("the peering is %+v, want both directions", got.Spec)
	}
	if get(b, "", b.name, &v1alpha1.Peering{}) != nil {
		t.Error("a second peering with one cluster")
	}
	b.drop(&v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: b.name}})
	b.reconcile()
	got = get(b, "", mine.Name, &v1alpha1.Peering{})
	if got == nil || got.Spec.Provide != nil || got.Spec.Consume == nil {
		t.Errorf("the peering is %+v, want what this cluster consumes", got)
	}
}

func TestNamespaceWaitsForQuota(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.quotaGrace = time.Hour
	b.settle()
	b.want(v1alpha1.ConditionNamespaceReady, metav1.ConditionFalse, v1alpha1.ReasonPending)
	b.want(v1alpha1.ConditionRightsReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	q := get(b, b.space(), quotaName, &corev1.ResourceQuota{})
	q.Status = corev1.ResourceQuotaStatus{Hard: q.Spec.Hard.DeepCopy(), Used: q.Spec.Hard.DeepCopy()}
	if err := b.c.Status().Update(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	b.settle()
	b.want(v1alpha1.ConditionNamespaceReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
}

func TestLife(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.settle()
	i := b.introduce()
	start := b.clock.Now()
	b.renew(start)
	b.settle()
	tenant := b.tenant()
	if diff := cmp.Diff(&i.Spec.Cluster, tenant.Status.Cluster); diff != "" {
		t.Errorf("status.cluster:\n%s", diff)
	}
	if got := tenant.Status.LastContact; got == nil || !got.Time.Equal(start.Truncate(time.Minute)) {
		t.Errorf("last contact %v, want %v to the minute", got, start)
	}
	version := tenant.ResourceVersion
	minute := start.Truncate(time.Minute)
	b.clock.SetTime(minute.Add(59 * time.Second))
	b.renew(b.clock.Now())
	b.reconcile()
	if got := b.tenant().ResourceVersion; got != version {
		t.Error("two heartbeats in a minute, two writes")
	}
	b.clock.SetTime(minute.Add(60 * time.Second))
	b.renew(b.clock.Now())
	b.reconcile()
	if got := b.tenant().Status.LastContact; !got.Time.Equal(minute.Add(time.Minute)) {
		t.Errorf("last contact %v a minute later", got)
	}
	b.step(aliveFor)
	b.reconcile()
	b.want(v1alpha1.ConditionConsumerAlive, metav1.ConditionFalse, v1alpha1.ReasonSilent)
	b.want(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonSilent)
	if !b.said("Silent not heard of since") {
		t.Error("no event about the silence")
	}
	b.renew(b.clock.Now())
	b.reconcile()
	b.want(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
}

func TestStates(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	d := &drainer{}
	b.drainers = []Drainer{d}
	b.settle()
	b.patch(`{"spec":{"state":"Cordoned"}}`)
	b.settle()
	b.want(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonCordoned)
	if d.calls != 0 {
		t.Error("cordoning removes nothing")
	}
	b.patch(`{"spec":{"state":"Drained"}}`)
	b.settle()
	b.want(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonDrained)
	if d.calls == 0 {
		t.Error("draining asks nobody to remove anything")
	}
	if get(b, b.space(), v1alpha1.ConsumerRole, &rbacv1.RoleBinding{}) == nil {
		t.Error("a drained tenant keeps its rights")
	}
	b.patch(`{"spec":{"state":"Active"}}`)
	b.settle()
	b.want(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
}

// drainer counts how often it was asked, and fails as told.
type drainer struct {
	calls int
	err   error
}

func (d *drainer) Drain(ctx context.Context, _ *v1alpha1.Tenant) error {
	d.calls++
	if _, bounded := ctx.Deadline(); !bounded {
		return context.DeadlineExceeded
	}
	return d.err
}

func TestUsageInStatus(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.settle()
	b.usage.SetNamespace("x", b.name)
	b.usage.SetPod(running("x", "a", "1", "1500m"))
	b.reconcile()
	tenant := b.tenant()
	if !sameList(tenant.Status.Used, amounts("cpu", "1500m", "pods", "1")) {
		t.Errorf("used %v", tenant.Status.Used)
	}
	b.usage.SetPod(running("x", "b", "2", "1"))
	res := b.reconcile()
	if got := b.tenant(); got.ResourceVersion != tenant.ResourceVersion || res.RequeueAfter > usageEvery {
		t.Errorf("written again at once, or not soon: %v", res)
	}
	b.step(usageEvery)
	b.reconcile()
	if got := b.tenant().Status.Used; !sameList(got, amounts("cpu", "2500m", "pods", "2")) {
		t.Errorf("used %v after a while", got)
	}
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.server.Name(t, "shop"), Labels: childLabels(b.tenant())}}
	if err := b.c.Create(t.Context(), space); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.c.Delete(context.Background(), space)
		b.finish(context.Background(), space.Name)
	})
	b.reconcile()
	if got := b.tenant().Status.Namespaces; got != 1 {
		t.Errorf("%d namespaces, want 1", got)
	}
}

func TestNamesOfChildren(t *testing.T) {
	for _, c := range []struct {
		obj  client.Object
		want string
	}{
		{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "pelago-tenant-rome"}}, "rome"},
		{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{v1alpha1.LabelTenant: "rome"}}}, "rome"},
		{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, ""},
		{&v1alpha1.Identity{ObjectMeta: metav1.ObjectMeta{Namespace: "pelago-tenant-rome", Name: "consumer"}}, "rome"},
		{&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "consumer"}}, ""},
		{&v1alpha1.Identity{ObjectMeta: metav1.ObjectMeta{Namespace: "pelago-tenant-rome", Name: "consumer", Labels: map[string]string{v1alpha1.LabelTenant: "oslo"}}}, "rome"},
		{&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "x", Labels: map[string]string{v1alpha1.LabelTenant: "rome"}}}, ""},
		{&flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: "pelago-tenant-rome", Labels: map[string]string{v1alpha1.LabelTenant: "rome"}}}, "rome"},
	} {
		if got := tenantOf(c.obj); got != c.want {
			t.Errorf("%T %s/%s is of %q, want %q", c.obj, c.obj.GetNamespace(), c.obj.GetName(), got, c.want)
		}
	}
	if got := request("rome").NamespacedName; got != (types.NamespacedName{Name: "rome"}) {
		t.Error(got)
	}
}

// TestRefusedTenantGoes: one that an invitation made under a name that cannot be.
func TestRefusedTenantGoes(t *testing.T) {
	t.Parallel()
	for _, made := range []string{"by invitation", "by its owner"} {
		b := newBench(t, func(t *v1alpha1.Tenant) {
			if made == "by invitation" {
				t.Annotations = map[string]string{v1alpha1.AnnotationInvitation: "i-1"}
			}
		})
		if err := b.c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.space()}}); err != nil {
			t.Fatal(err)
		}
		b.settle()
		if b.tenant().DeletionTimestamp != nil {
			t.Errorf("%s: people cannot see why", made)
		}
		b.step(refusedFor + time.Minute)
		b.reconcile()
		if gone := b.tenant().DeletionTimestamp != nil; gone != (made == "by invitation") {
			t.Errorf("%s: deleted is %v", made, gone)
		}
	}
}

// TestWhatConsumersSay is not taken over if people could not be shown it.
func TestWhatConsumersSay(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.settle()
	b.said("")
	for _, change := range []func(*v1alpha1.ClusterInfo){
		func(c *v1alpha1.ClusterInfo) { c.Version = "v1\x1b[2J" },
		func(c *v1alpha1.ClusterInfo) { c.ID = osloID },
		func(c *v1alpha1.ClusterInfo) { c.Features = []string{"a\nb"} },
	} {
		tenant := b.tenant()
		good := v1alpha1.ClusterInfo{ID: tenant.Spec.ClusterID, Name: "rome"}
		tenant.Status.Cluster = good.DeepCopy()
		i := &v1alpha1.Identity{ObjectMeta: metav1.ObjectMeta{Generation: 1}, Spec: v1alpha1.IdentitySpec{Cluster: good}}
		i.Spec.Cluster.Name = "roma"
		b.restart(b.c) // what was heard before makes nothing wait
		b.hear(tenant, i, newTimer())
		if tenant.Status.Cluster.Name != "roma" {
			t.Error("a new name is not taken over")
		}
		change(&i.Spec.Cluster)
		i.Spec.Cluster.Name = "bad"
		i.Generation++
		b.restart(b.c)
		b.hear(tenant, i, newTimer())
		b.hear(tenant, i, newTimer())
		if tenant.Status.Cluster.Name != "roma" || len(b.heard.Events) != 1 {
			t.Errorf("%+v taken over, or %d events", tenant.Status.Cluster, len(b.heard.Events))
		}
		b.said("")
	}
}
