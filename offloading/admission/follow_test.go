package admission

import (
	"context"
	"testing"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// checked is a manager whose checks of readiness can be asked.
type checked struct {
	ctrl.Manager
	checks map[string]healthz.Checker
}

func (c checked) AddReadyzCheck(name string, check healthz.Checker) error {
	c.checks[name] = check
	return nil
}

// TestStandby: a replica that does not lead is ready when it has all that answers are made
// from, and its first answer waits for nothing.
func TestStandby(t *testing.T) {
	t.Parallel()
	server := kubetest.Server(t)
	c := server.Client(t)
	namespace := server.Namespace(t)
	create(t, c, &v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.OffloadingName},
		Spec: v1alpha1.NamespaceOffloadingSpec{PodOffloadingStrategy: v1alpha1.PodsRemote}})
	name := server.Name(t, "milan")
	create(t, c, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		v1alpha1.LabelType: v1alpha1.TypeVirtualNode, v1alpha1.LabelPeering: name, v1alpha1.LabelRequest: "default"}}})
	inner, err := ctrl.NewManager(server.Config, ctrl.Options{
		Scheme: c.Scheme(), Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"},
		LeaderElection: true, LeaderElectionNamespace: namespace, LeaderElectionID: kubetest.TakenLease(t, c, namespace),
		Controller: config.Controller{SkipNameValidation: ptr.To(true)}, // another test registers too
		Cache:      cache.Options{ReaderFailOnMissingInformer: true},    // what nobody follows is an error, not a wait
	})
	if err != nil {
		t.Fatal(err)
	}
	mgr := checked{inner, map[string]healthz.Checker{}}
	if err := Register(mgr, Options{Authority: NewAuthority(c, namespace)}); err != nil {
		t.Fatal(err)
	}
	handler, err := Handler(Options{Reader: mgr.GetClient(), Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	if ready := mgr.checks["admission"]; ready == nil || ready(nil) == nil {
		t.Error("ready before anything is read")
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	if ready := mgr.checks["admission"]; ready != nil {
		eventually(t, "it is ready", func() bool { return ready(nil) == nil })
	}
	owned := `{"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"u","controller":true}]},"spec":{"containers":[{"name":"c","image":"c"}]}}`
	if answer := answerOf(t, post(handler, reviewOf(namespace, owned))); !answer.Allowed || len(answer.Patch) == 0 {
		t.Errorf("the first answer is %+v", answer)
	}
	unfollowed := &corev1.ServiceAccountList{}
	if err := mgr.GetClient().List(ctx, unfollowed); err == nil {
		t.Error("what nobody follows is read all the same: this test shows nothing")
	}
}
