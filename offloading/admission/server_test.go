package admission

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/deploy"
	"github.com/pelago-dev/pelago/internal/kubetest"
	"github.com/pelago-dev/pelago/internal/serving"
)

// within is how long the API server may take to follow what was changed.
const within = 2 * time.Minute

// testLabel is on namespaces and objects of one test: the API server is shared, and what
// is tested here would be felt by all.
const testLabel = "admission.test"

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, within, true, func(context.Context) (bool, error) { return f(), nil })
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// chart is the objects of a kind as the chart makes them.
func chart(t *testing.T, kind string) []*unstructured.Unstructured {
	t.Helper()
	objects, err := deploy.Render(map[string]any{
		"config":  map[string]any{"cluster": map[string]any{"name": "rome"}},
		"tenants": map[string]any{"privileged": []any{"trusted"}},
	}, deploy.Release{})
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() != kind })
}

// chartWebhook is the chart's webhook configuration for one test only.
func chartWebhook(t *testing.T, name, test string) *admissionregistrationv1.MutatingWebhookConfiguration {
	t.Helper()
	found := chart(t, "MutatingWebhookConfiguration")
	if len(found) != 1 {
		t.Fatalf("the chart has %d webhook configurations", len(found))
	}
	config := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found[0].Object, config); err != nil {
		t.Fatal(err)
	}
	config.Name = name
	for i := range config.Webhooks {
		metav1.AddLabelToSelector(config.Webhooks[i].NamespaceSelector, testLabel, test)
	}
	return config
}

func create(t *testing.T, c client.Client, obj client.Object) {
	t.Helper()
	if err := c.Create(t.Context(), obj); err != nil {
		t.Fatalf("making %T %s: %v", obj, obj.GetName(), err)
	}
	if obj.GetNamespace() == "" {
		t.Cleanup(func() { _ = c.Delete(context.Background(), obj) })
	}
}

func label(t *testing.T, c client.Client, namespace string, labels map[string]string) {
	t.Helper()
	ns := &corev1.Namespace{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: namespace}, ns); err != nil {
		t.Fatal(err)
	}
	before := ns.DeepCopy()
	for k, v := range labels {
		ns.Labels[k] = v
	}
	if err := c.Patch(t.Context(), ns, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

func simplePod(namespace, name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c"}}}}
}

func tolerated(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool { return t.Key == v1alpha1.TaintVirtualNode })
}

// served is a webhook that runs until stop is called.
type served struct {
	config *admissionregistrationv1.MutatingWebhookConfiguration
	stop   func()
	// kept counts the requests at KeepHomePath.
	kept atomic.Int64
}

// serve runs the webhook, and lets the API server ask it as the chart says, but patiently,
// for one test.
func serve(t *testing.T, c client.Client, namespace, test string) *served {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: TLSSecret}}
	create(t, c, secret)
	authority := serving.NewAuthority(serving.AuthorityOptions{
		Client: c, Secret: client.ObjectKeyFromObject(secret), Subject: "test", Names: []string{"127.0.0.1"}})
	if err := authority.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	handler, err := Handler(Options{Reader: c, Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	s := &served{config: chartWebhook(t, test, test)}
	mux := http.NewServeMux()
	mux.Handle(Path, handler)
	mux.HandleFunc(KeepHomePath, func(w http.ResponseWriter, r *http.Request) {
		s.kept.Add(1)
		handler.ServeHTTP(w, r)
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- (&serving.Server{Authority: authority, Handler: mux}).Serve(ctx, listener)
	}()
	s.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		ended <- nil
	}
	t.Cleanup(s.stop)
	for i := range s.config.Webhooks {
		url := "https://" + listener.Addr().String() + *s.config.Webhooks[i].ClientConfig.Service.Path
		s.config.Webhooks[i].ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: authority.Bundle()}
		s.config.Webhooks[i].TimeoutSeconds = ptr.To[int32](30) // the chart's are too short for a machine that is busy with other tests
	}
	create(t, c, s.config)
	return s
}

// TestWebhook goes the whole way: the chart's configuration, the real API server, our
// server with a certificate of our authority. When we are away, pods of offloaded
// namespaces wait and nobody else does.
func TestWebhook(t *testing.T) {
	t.Parallel()
	server := kubetest.Server(t)
	c := server.Client(t)
	test := server.Name(t, "webhook")
	offloaded, labelled, other := server.Namespace(t), server.Namespace(t), server.Namespace(t)
	hooks := serve(t, c, other, test)
	label(t, c, offloaded, map[string]string{testLabel: test, v1alpha1.LabelOffloaded: "true"})
	label(t, c, labelled, map[string]string{testLabel: test, v1alpha1.LabelOffload: "true"})
	label(t, c, other, map[string]string{testLabel: test})
	reserved := server.Name(t, "kube-early") // labelled before there were policies
	create(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: reserved, Labels: map[string]string{testLabel: test, v1alpha1.LabelOffload: "true"}}})
	create(t, c, &v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: offloaded, Name: v1alpha1.OffloadingName},
		Spec: v1alpha1.NamespaceOffloadingSpec{PodOffloadingStrategy: v1alpha1.PodsRemote}})
	for _, namespace := range []string{offloaded, labelled} {
		eventually(t, "the API server asks", func() bool {
			pod := simplePod(namespace, "try")
			if err := c.Create(t.Context(), pod, client.DryRunAll); err != nil {
				t.Fatal(err)
			}
			return tolerated(pod)
		})
	}

	local, remote := realNode("worker"), remoteNode("milan")
	for _, want := range []struct {
		namespace     string
		local, remote bool
	}{{offloaded, false, true}, {labelled, true, true}, {other, true, false}, {reserved, true, false}} {
		pod := simplePod(want.namespace, "p")
		create(t, c, pod)
		if fits(t, pod, local) != want.local || fits(t, pod, remote) != want.remote {
			t.Errorf("in %s: %+v %+v", want.namespace, pod.Spec.Affinity, pod.Spec.Tolerations)
		}
		for _, toleration := range pod.Spec.Tolerations {
			if (toleration.TolerationSeconds == nil) != (want.namespace == offloaded) && toleration.Key != v1alpha1.TaintVirtualNode {
				t.Errorf("in %s the toleration of %s ends: %v", want.namespace, toleration.Key, toleration.TolerationSeconds)
			}
		}
	}

	all := simplePod(reserved, "all")
	all.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	if create(t, c, all); !fits(t, all, local) || fits(t, all, remote) {
		t.Errorf("one that tolerates everything in %s: %+v", reserved, all.Spec.Affinity)
	}

	yes := true
	daemon, bound := simplePod(offloaded, "daemon"), simplePod(offloaded, "bound")
	daemon.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "d", UID: "d", Controller: &yes}}
	bound.Spec.NodeName = "worker"
	hooks.stop()
	for _, namespace := range []string{offloaded, labelled} {
		if err := c.Create(t.Context(), simplePod(namespace, "away")); err == nil || !strings.Contains(err.Error(), "offloading.pelago.dev") {
			t.Errorf("while we are away, in %s: %v", namespace, err)
		}
	}
	for _, pod := range []*corev1.Pod{simplePod(other, "away"), simplePod(reserved, "away"), daemon, bound} {
		if err := c.Create(t.Context(), pod); err != nil {
			t.Errorf("our outage stops %s: %v", pod.Name, err)
		}
	}
}

// TestBundle: the authority is written where the API server looks, once, and again after
// somebody took it away; other webhooks and other objects are left alone.
func TestBundle(t *testing.T) {
	t.Parallel()
	server := kubetest.Server(t)
	c := server.Client(t)
	test, namespace := server.Name(t, "bundle"), server.Namespace(t)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: TLSSecret}}
	create(t, c, secret)
	authority := NewAuthority(c, namespace)
	config := chartWebhook(t, test, test)
	foreign := config.Webhooks[0].DeepCopy()
	foreign.Name, foreign.ClientConfig.Service.Name = "foreign.example.com", "foreign"
	config.Webhooks = append(config.Webhooks, *foreign)
	create(t, c, config)
	made := config.DeepCopy()
	b := forWebhooks(c, authority)
	b.name = test
	reconcileOnce := func() reconcile.Result {
		t.Helper()
		res, err := b.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: test}})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), client.ObjectKey{Name: test}, config); err != nil {
			t.Fatal(err)
		}
		return res
	}
	if res := reconcileOnce(); res.RequeueAfter == 0 || config.Webhooks[0].ClientConfig.CABundle != nil {
		t.Error("something is written before there is an authority")
	}
	if err := authority.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	check := func(when string) {
		t.Helper()
		for _, w := range config.Webhooks {
			want := string(authority.Bundle())
			if w.Name == foreign.Name {
				want = ""
			}
			if string(w.ClientConfig.CABundle) != want {
				t.Errorf("%s: %s has %q", when, w.Name, w.ClientConfig.CABundle)
			}
			was := made.Webhooks[slices.IndexFunc(made.Webhooks, func(o admissionregistrationv1.MutatingWebhook) bool { return o.Name == w.Name })].DeepCopy()
			was.ClientConfig.CABundle = w.ClientConfig.CABundle
			if diff := cmp.Diff(*was, w); diff != "" {
				t.Errorf("%s: %s has changed: %s", when, w.Name, diff)
			}
		}
	}
	reconcileOnce()
	check("at first")
	version := config.ResourceVersion
	if reconcileOnce(); config.ResourceVersion != version {
		t.Error("written again without need")
	}
	before := config.DeepCopy()
	config.Webhooks[1].ClientConfig.CABundle = nil
	if err := c.Patch(t.Context(), config, client.StrategicMergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	reconcileOnce()
	check("after an edit")
	if res, err := b.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "another"}}); err != nil || res != (reconcile.Result{}) {
		t.Errorf("another object: %v, %v", res, err)
	}

	service := newAPIService().(*unstructured.Unstructured)
	service.Object["spec"] = map[string]any{"group": "stats.pelago.dev", "future": "x"}
	stats := forStats(c, authority)
	service.SetResourceVersion("7")
	old := service.DeepCopy()
	stats.set(service, []byte("pem"))
	patch, err := stats.base(old).Data(service)
	if err != nil || string(patch) != `{"metadata":{"resourceVersion":"7"},"spec":{"caBundle":"cGVt"}}` {
		t.Errorf("the APIService is patched with %s, %v", patch, err)
	}
}

// TestRegister: with a manager the object is found by its name alone.
func TestRegister(t *testing.T) {
	t.Parallel()
	server := kubetest.Server(t)
	c := server.Client(t)
	test, namespace := server.Name(t, "register"), server.Namespace(t)
	create(t, c, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: TLSSecret}})
	create(t, c, chartWebhook(t, v1alpha1.ManagerService, test))
	authority := NewAuthority(c, namespace)
	mgr, err := ctrl.NewManager(server.Config, ctrl.Options{Scheme: c.Scheme(), Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := Register(mgr, Options{Authority: authority}); err != nil {
		t.Fatal(err)
	}
	if err := mgr.Add(&serving.Server{Address: "127.0.0.1:0", Authority: authority, Handler: http.NotFoundHandler()}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	eventually(t, "the authority is made known", func() bool {
		config := &admissionregistrationv1.MutatingWebhookConfiguration{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: v1alpha1.ManagerService}, config); err != nil {
			t.Fatal(err)
		}
		return len(authority.Bundle()) > 0 && string(config.Webhooks[0].ClientConfig.CABundle) == string(authority.Bundle())
	})
}
