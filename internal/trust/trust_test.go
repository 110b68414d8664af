package trust

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/pelago-dev/pelago/internal/access"
	"github.com/pelago-dev/pelago/internal/kube"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// The authorities are those of the real API server, and follow its ConfigMap: also in a
// replica that does not lead, which answers callers all the same.
func TestFollow(t *testing.T) {
	server := kubetest.Server(t)
	c := server.Client(t)
	namespace := server.Namespace(t)
	mgr, err := ctrl.NewManager(server.Config, ctrl.Options{
		Scheme: kubetest.Scheme(), Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"},
		LeaderElection: true, LeaderElectionNamespace: namespace, LeaderElectionID: kubetest.TakenLease(t, c, namespace),
	})
	if err != nil {
		t.Fatal(err)
	}
	a, err := Follow(mgr)
	if err != nil {
		t.Fatal(err)
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
	eventually(t, "whom the cluster trusts has been read", func() bool {
		return c.Get(t.Context(), client.ObjectKey{Namespace: trustNamespace, Name: trustName}, &corev1.ConfigMap{}) == nil
	})
	gate := access.New(access.Options{Authorities: a, Ask: func(_ context.Context, o kube.Object) error {
		if review, ok := o.(*authorizationv1.SubjectAccessReview); ok {
			review.Status.Allowed = len(review.Spec.User) > 0
		}
		return nil
	}})
	pair, err := tls.X509KeyPair(server.Config.CertData, server.Config.KeyData)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{certificate}}
	anything := access.Asked{Path: &authorizationv1.NonResourceAttributes{Path: "/", Verb: "get"}}
	eventually(t, "who has a certificate of the cluster is known", func() bool { return gate.Status(r, anything) == http.StatusOK })
}

func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-deadline:
			t.Fatalf("not in time: %s", what)
		case <-tick.C:
		}
	}
}
