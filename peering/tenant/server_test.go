package tenant

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

func init() { ctrl.SetLogger(logr.Discard()) }

// bench is a reconciler on a real API server, with a clock of its own: ahead of the API
// server's, so that nothing is made later than it shows.
type bench struct {
	*reconciler
	t      testing.TB
	server *kubetest.APIServer
	c      client.WithWatch
	clock  *clocktesting.FakePassiveClock
	heard  *events.FakeRecorder
	name   string
}

// newBench makes a Tenant of a unique name and a reconciler for it.
func newBench(t testing.TB, change ...func(*v1alpha1.Tenant)) *bench {
	t.Helper()
	server := kubetest.Server(t)
	b := &bench{t: t, server: server, c: server.Client(t), name: server.Name(t, "rome"),
		clock: clocktesting.NewFakePassiveClock(time.Now().Add(5 * time.Second)), heard: events.NewFakeRecorder(1000)}
	b.restart(b.c)
	tenant := &v1alpha1.Tenant{
		ObjectMeta: metav1.ObjectMeta{Name: b.name},
		Spec:       v1alpha1.TenantSpec{ClusterID: string(uuid.NewUUID()), PeeringUID: string(uuid.NewUUID())},
	}
	for _, f := range change {
		f(tenant)
	}
	if err := b.c.Create(t.Context(), tenant); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.clean)
	return b
}

// restart is what a new process knows: nothing.
func (b *bench) restart(c client.Client) {
	b.reconciler = newReconciler(c, c, Options{Clock: b.clock, QuotaGrace: -time.Hour})
	b.events = b.heard
	b.usage.Complete()
}

// clean removes what the test has left.
func (b *bench) clean() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: b.name}}
	objects := []client.Object{b.peering(), &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: flowName(b.name)}}, tenant,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.space()}}}
	for _, obj := range objects {
		b.c.Delete(ctx, obj)
		if _, ok := obj.(*corev1.Namespace); ok {
			b.finish(ctx, obj.GetName())
			continue
		}
		b.c.Patch(ctx, obj, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
	}
}

// finish plays the namespace controller: a namespace that is being deleted goes, with
// all that the tests put into it.
func (b *bench) finish(ctx context.Context, name string) {
	for _, obj := range []client.Object{&v1alpha1.Identity{}, &v1alpha1.NamespaceMap{}, &v1alpha1.ShadowPod{}, &v1alpha1.ResourceRequest{}, &v1alpha1.ResourceOffer{}, &coordinationv1.Lease{},
		&corev1.ResourceQuota{}, &corev1.ServiceAccount{}, &rbacv1.RoleBinding{}} {
		b.c.DeleteAllOf(ctx, obj, client.InNamespace(name))
	}
	n := &corev1.Namespace{}
	if b.c.Get(ctx, client.ObjectKey{Name: name}, n) == nil {
		n.Spec.Finalizers = nil
		b.c.SubResource("finalize").Update(ctx, n)
	}
}

func (b *bench) space() string { return v1alpha1.TenantNamespace(b.name) }

func (b *bench) peering() *v1alpha1.Peering {
	return &v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: b.name}}
}

// reconcile looks once.
func (b *bench) reconcile() ctrl.Result {
	b.t.Helper()
	res, err := b.Reconcile(b.t.Context(), request(b.name))
	if err != nil {
		b.t.Fatal(err)
	}
	b.checkStatus()
	return res
}

// settle looks until nothing is due soon.
func (b *bench) settle() {
	b.t.Helper()
	var last string
	for range 20 {
		res := b.reconcile()
		now := b.versions()
		if now == last && (res.RequeueAfter == 0 || res.RequeueAfter > soon) {
			return
		}
		last = now
	}
	b.t.Fatal("the tenant does not settle")
}

// checkStatus holds what must be true of every status.
func (b *bench) checkStatus() {
	b.t.Helper()
	tenant := b.tenant()
	if tenant == nil {
		return
	}
	for _, c := range tenant.Status.Conditions {
		if c.Reason == "" || c.ObservedGeneration == 0 {
			b.t.Errorf("condition %s has reason %q and generation %d", c.Type, c.Reason, c.ObservedGeneration)
		}
		if c.Type == v1alpha1.ConditionStalled && c.Status != metav1.ConditionTrue {
			b.t.Error("Stalled is there only while it is True")
		}
		if c.Status != metav1.ConditionTrue && c.Message == "" {
			b.t.Errorf("condition %s is %s and does not say why", c.Type, c.Status)
		}
	}
}

// get reads an object; nil if it is not there.
func get[T client.Object](b *bench, namespace, name string, into T) T {
	b.t.Helper()
	got, err := read(b.t.Context(), b.c, namespace, name, into)
	if err != nil {
		b.t.Fatal(err)
	}
	return got
}

func (b *bench) tenant() *v1alpha1.Tenant { return get(b, "", b.name, &v1alpha1.Tenant{}) }

func (b *bench) condition(kind string) metav1.Condition {
	b.t.Helper()
	c := meta.FindStatusCondition(b.tenant().Status.Conditions, kind)
	if c == nil {
		return metav1.Condition{}
	}
	return *c
}

// want checks a condition.
func (b *bench) want(kind string, status metav1.ConditionStatus, reason string) {
	b.t.Helper()
	if c := b.condition(kind); c.Status != status || c.Reason != reason {
		b.t.Errorf("%s is %s %s (%s), want %s %s", kind, c.Status, c.Reason, c.Message, status, reason)
	}
}

// children are the objects that a tenant has; those with no name are listed by kind.
func (b *bench) children() []client.Object {
	return []client.Object{
		get(b, "", b.space(), &corev1.Namespace{}),
		get(b, b.space(), quotaName, &corev1.ResourceQuota{}),
		get(b, b.space(), v1alpha1.IdentityName, &coordinationv1.Lease{}),
		get(b, b.space(), v1alpha1.ConsumerRole, &rbacv1.RoleBinding{}),
		get(b, "", flowName(b.name), &flowcontrolv1.FlowSchema{}),
		get(b, "", b.name, &v1alpha1.Peering{}),
	}
}

// versions are the resource versions of the tenant and its children in one string.
func (b *bench) versions() string {
	b.t.Helper()
	var all []string
	if tenant := b.tenant(); tenant != nil {
		all = append(all, tenant.ResourceVersion)
	}
	for _, obj := range b.children() {
		if obj != nil && !isNil(obj) {
			all = append(all, obj.GetResourceVersion())
		}
	}
	return strings.Join(all, " ")
}

func isNil(obj client.Object) bool {
	switch o := obj.(type) {
	case *corev1.Namespace:
		return o == nil
	case *corev1.ResourceQuota:
		return o == nil
	case *coordinationv1.Lease:
		return o == nil
	case *rbacv1.RoleBinding:
		return o == nil
	case *flowcontrolv1.FlowSchema:
		return o == nil
	case *v1alpha1.Peering:
		return o == nil
	}
	return false
}

// introduce plays the authentication endpoint: it makes the Identity.
func (b *bench) introduce() *v1alpha1.Identity {
	b.t.Helper()
	tenant := b.tenant()
	i := &v1alpha1.Identity{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.space(), Name: v1alpha1.IdentityName, Finalizers: []string{v1alpha1.FinalizerGoodbye}},
		Spec: v1alpha1.IdentitySpec{
			Cluster:    v1alpha1.ClusterInfo{ID: tenant.Spec.ClusterID, Name: "rome", Version: "v0.1.0"},
			PeeringUID: tenant.Spec.PeeringUID, Request: "x",
		},
	}
	if err := b.c.Create(b.t.Context(), i); err != nil {
		b.t.Fatal(err)
	}
	return i
}

// renew plays the consumer's heartbeat.
func (b *bench) renew(at time.Time) {
	b.t.Helper()
	l := get(b, b.space(), v1alpha1.IdentityName, &coordinationv1.Lease{})
	l.Spec.RenewTime = &metav1.MicroTime{Time: at}
	if err := b.c.Update(b.t.Context(), l); err != nil {
		b.t.Fatal(err)
	}
}

// step moves the clock.
func (b *bench) step(d time.Duration) { b.clock.SetTime(b.clock.Now().Add(d)) }

// patch changes the spec of the tenant.
func (b *bench) patch(patch string) {
	b.t.Helper()
	err := b.c.Patch(b.t.Context(), &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: b.name}}, client.RawPatch(types.MergePatchType, []byte(patch)))
	if err != nil {
		b.t.Fatal(err)
	}
}

// drop deletes an object by hand.
func (b *bench) drop(obj client.Object) {
	b.t.Helper()
	if err := b.c.Delete(b.t.Context(), obj); err != nil && !apierrors.IsNotFound(err) {
		b.t.Fatal(err)
	}
}

// said reports whether an event with these words was recorded, and forgets all.
func (b *bench) said(words string) bool {
	found := false
	for {
		select {
		case e := <-b.heard.Events:
			found = found || strings.Contains(e, words)
		default:
			return found
		}
	}
}
