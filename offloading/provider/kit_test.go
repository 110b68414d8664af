package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
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

var oneClient struct {
	sync.Once
	c client.WithWatch
}

func sharedClient(t testing.TB, server *kubetest.APIServer) client.WithWatch {
	t.Helper()
	oneClient.Do(func() { oneClient.c = server.Client(t) })
	if oneClient.c == nil {
		t.Fatal("there is no client")
	}
	return oneClient.c
}

// bench is a reconciler on a real API server with a clock of its own, one tenant and
// one mapped namespace. The test plays the scheduler and the kubelet.
type bench struct {
	*reconciler
	t      testing.TB
	c      client.WithWatch
	clock  *clocktesting.FakePassiveClock
	heard  *events.FakeRecorder
	tenant string
	space  string // the mapped namespace
	home   string
	limits Limits
	uid    string
}

func newBench(t testing.TB) *bench {
	t.Helper()
	server := kubetest.Server(t)
	b := &bench{t: t, c: sharedClient(t, server), tenant: server.Name(t, "rome"), home: "shop",
		clock: clocktesting.NewFakePassiveClock(time.Now()), heard: events.NewFakeRecorder(1000)}
	b.space = b.home + "-" + b.tenant
	b.restart(b.c)
	b.clockBack()
	b.must(b.c.Create(t.Context(), &v1alpha1.Tenant{
		ObjectMeta: metav1.ObjectMeta{Name: b.tenant},
		Spec:       v1alpha1.TenantSpec{ClusterID: string(uuid.NewUUID()), PeeringUID: string(uuid.NewUUID())},
	}))
	b.must(b.c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.tenantSpace(),
		Labels: map[string]string{v1alpha1.LabelTenant: b.tenant}}}))
	b.namespace()
	m := &v1alpha1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: b.tenantSpace(), Name: v1alpha1.NamespaceMapName}}
	b.must(b.c.Create(t.Context(), m))
	m.Status.Namespaces = map[string]v1alpha1.MappedNamespace{b.home: {Name: b.space, Phase: v1alpha1.MappingReady}}
	b.must(b.c.Status().Update(t.Context(), m))
	t.Cleanup(b.clean)
	return b
}

// clockBack ends the time after a start in which the cache is not trusted.
func (b *bench) clockBack() { b.first.Do(func() { b.began = b.clock.Now().Add(-time.Hour) }) }

// restart is what a new process knows: nothing.
func (b *bench) restart(c client.Client) {
	b.reconciler = newReconciler(c, c, Options{Clock: b.clock, Limits: b.limits})
	b.events = b.heard
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) tenantSpace() string { return v1alpha1.TenantNamespace(b.tenant) }

// namespace makes the mapped namespace.
func (b *bench) namespace() {
	b.t.Helper()
	b.must(b.c.Create(b.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.space,
		Labels: map[string]string{v1alpha1.LabelTenant: b.tenant, v1alpha1.LabelHomeNamespace: b.home}}}))
	b.account()
}

// account plays the controller of service accounts.
func (b *bench) account() {
	b.t.Helper()
	b.must(b.c.Create(b.t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: b.space, Name: "default"}}))
}

func (b *bench) clean() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	off := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	shadows, pods := &v1alpha1.ShadowPodList{}, &corev1.PodList{}
	_ = b.c.List(ctx, shadows, client.InNamespace(b.tenantSpace()))
	for i := range shadows.Items {
		_ = b.c.Patch(ctx, &shadows.Items[i], off)
		_ = b.c.Delete(ctx, &shadows.Items[i])
	}
	_ = b.c.List(ctx, pods, client.InNamespace(b.space))
	for i := range pods.Items {
		_ = b.c.Patch(ctx, &pods.Items[i], off)
		_ = b.c.Delete(ctx, &pods.Items[i], client.GracePeriodSeconds(0))
	}
	_ = b.c.DeleteAllOf(ctx, &v1alpha1.NamespaceMap{}, client.InNamespace(b.tenantSpace()))
	_ = b.c.Delete(ctx, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: b.tenant}})
	b.dropNamespace(ctx, b.space)
	b.dropNamespace(ctx, b.tenantSpace())
}

// dropNamespace plays the namespace controller.
func (b *bench) dropNamespace(ctx context.Context, name string) {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_ = b.c.Delete(ctx, n)
	_ = b.c.DeleteAllOf(ctx, &corev1.ServiceAccount{}, client.InNamespace(name))
	if b.c.Get(ctx, client.ObjectKeyFromObject(n), n) == nil {
		n.Spec.Finalizers = nil
		_ = b.c.SubResource("finalize").Update(ctx, n)
	}
}

// podText is the JSON of a small pod.
func podText(policy corev1.RestartPolicy, change ...func(*corev1.PodSpec)) string {
	grace := int64(30)
	spec := corev1.PodSpec{RestartPolicy: policy, TerminationGracePeriodSeconds: &grace,
		Containers: []corev1.Container{{Name: "main", Image: "busybox:1"}}}
	for _, f := range change {
		f(&spec)
	}
	text, err := json.Marshal(spec)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// shadowPod makes a ShadowPod and remembers its UID.
func (b *bench) shadowPod(policy corev1.RestartPolicy, change ...func(*v1alpha1.ShadowPod)) *v1alpha1.ShadowPod {
	b.t.Helper()
	s := &v1alpha1.ShadowPod{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.tenantSpace(), Name: string(uuid.NewUUID()), Finalizers: []string{v1alpha1.FinalizerShadowPod}},
		Spec: v1alpha1.ShadowPodSpec{Home: v1alpha1.HomePod{Namespace: b.home, Name: "web-0"}, Request: "default",
			Labels: map[string]string{"app": "web"}, Pod: podText(policy)},
	}
	for _, f := range change {
		f(s)
	}
	b.must(b.c.Create(b.t.Context(), s))
	b.uid = s.Name
	return s
}

func (b *bench) key(uid string) ctrl.Request {
	return ctrl.Request{NamespacedName: types.NamespacedName{Namespace: b.tenantSpace(), Name: uid}}
}

// once calls Reconcile once.
func (b *bench) once(uid string) (time.Duration, error) {
	res, err := b.Reconcile(b.t.Context(), b.key(uid))
	return res.RequeueAfter, err
}

// settle calls Reconcile until it changes nothing any more, going on in time as it asks.
func (b *bench) settle(uids ...string) {
	b.t.Helper()
	if len(uids) == 0 {
		uids = []string{b.uid}
	}
	for _, uid := range uids {
		for i := 0; ; i++ {
			before := b.picture(uid)
			again, err := b.once(uid)
			if err != nil {
				b.t.Fatalf("Reconcile: %v", err)
			}
			if again > 0 && again <= writeStarting {
				b.clock.SetTime(b.clock.Now().Add(again))
			} else if b.picture(uid) == before {
				break
			}
			if i > 30 {
				b.t.Fatal("it never settles")
			}
		}
	}
}

// picture is the versions of everything there is of a home UID.
func (b *bench) picture(uid string) string {
	text := ""
	if s := b.get(uid); s != nil {
		text = s.ResourceVersion
	}
	for _, pod := range b.podsOf(uid) {
		text += " " + string(pod.UID) + "/" + pod.ResourceVersion
	}
	return text
}

// get reads a ShadowPod, nil if it is gone.
func (b *bench) get(uid string) *v1alpha1.ShadowPod {
	b.t.Helper()
	s := &v1alpha1.ShadowPod{}
	err := b.c.Get(b.t.Context(), b.key(uid).NamespacedName, s)
	if apierrors.IsNotFound(err) {
		return nil
	}
	b.must(err)
	return s
}

// podsOf reads all pods of a home UID.
func (b *bench) podsOf(uid string) []corev1.Pod {
	b.t.Helper()
	list := &corev1.PodList{}
	b.must(b.c.List(b.t.Context(), list, client.MatchingLabels{v1alpha1.LabelHomeUID: uid}))
	return list.Items
}

// pod is the one pod there is.
func (b *bench) pod() *corev1.Pod {
	b.t.Helper()
	pods := b.podsOf(b.uid)
	if len(pods) != 1 {
		b.t.Fatalf("there are %d pods, want 1; the shadow pod is %s", len(pods), b.show())
	}
	return &pods[0]
}

func (b *bench) noPod() {
	b.t.Helper()
	if pods := b.podsOf(b.uid); len(pods) != 0 {
		b.t.Fatalf("there are %d pods, want none", len(pods))
	}
}

func (b *bench) show() string {
	s := b.get(b.uid)
	if s == nil {
		return "gone"
	}
	text, _ := json.Marshal(s.Status)
	return fmt.Sprintf("%v %s", s.Finalizers, text)
}

// bind plays the scheduler.
func (b *bench) bind(node string) {
	b.t.Helper()
	pod := b.pod()
	b.must(b.c.SubResource("binding").Create(b.t.Context(), pod, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace}, Target: corev1.ObjectReference{Kind: "Node", Name: node}}))
}

// node makes a node that is ready or not.
func (b *bench) node(ready corev1.ConditionStatus) *corev1.Node {
	b.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: kubetest.Server(b.t).Name(b.t, "node")}}
	b.must(b.c.Create(b.t.Context(), n))
	b.t.Cleanup(func() { _ = b.c.Delete(context.Background(), n) })
	n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourcePods: resource.MustParse("100")}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	b.must(b.c.Status().Update(b.t.Context(), n))
	return n
}

// status plays the kubelet.
func (b *bench) status(change func(*corev1.PodStatus)) {
	b.t.Helper()
	pod := b.pod()
	change(&pod.Status)
	b.must(b.c.Status().Update(b.t.Context(), pod))
}

// phase is a pod status as of a kubelet.
func running(s *corev1.PodStatus) {
	s.Phase = corev1.PodRunning
	s.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	s.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", Ready: true, Image: "busybox:1",
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}}}
}

// endedAs is the status of a pod whose container ended at a moment.
func endedAs(phase corev1.PodPhase, code int32, at time.Time) func(*corev1.PodStatus) {
	return func(s *corev1.PodStatus) {
		s.Phase = phase
		s.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "PodCompleted"}}
		s.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", Image: "busybox:1", State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.NewTime(at)}}}}
	}
}

// kubeletDone plays the last thing that a kubelet does with a pod that is deleted.
func (b *bench) kubeletDone() {
	b.t.Helper()
	pod := b.pod()
	b.must(client.IgnoreNotFound(b.c.Delete(b.t.Context(), pod, client.GracePeriodSeconds(0))))
}

// reason is that of the condition Accepted, with its status.
func (b *bench) reason() string {
	b.t.Helper()
	s := b.get(b.uid)
	if s == nil {
		return "gone"
	}
	if c := condition(s.Status.Conditions); c != nil {
		return string(c.Status) + " " + c.Reason
	}
	return ""
}

func (b *bench) want(what, got, want string) {
	b.t.Helper()
	if got != want {
		b.t.Fatalf("%s: %q, want %q; the shadow pod is %s", what, got, want, b.show())
	}
}
