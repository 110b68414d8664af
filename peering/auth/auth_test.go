package auth

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// TestRegister runs all of it as the program does: a cluster comes with its
// invitation and renews, and metrics say so.
func TestRegister(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	namespace := w.server.Namespace(t)
	emptySecret(t, w.client, namespace)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	mgr, err := ctrl.NewManager(w.server.Config, ctrl.Options{
		Scheme: kubetest.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{ // the Identities of other tests are not ours
			&v1alpha1.Identity{}: {Namespaces: map[string]cache.Config{v1alpha1.TenantNamespace(w.name("rome")): {}}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	if err := Register(mgr, Options{Home: w.home, Namespace: namespace, Listener: listener, Metrics: registry}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(w.ctx)
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the manager ended with %v", err)
		}
	}()
	d := &door{world: w, address: listener.Addr().String(), client: &http.Client{Timeout: patience, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // pinning has its own tests
	}}}
	token, _ := w.invite()
	rome := newConsumer(t, w.name("rome"))
	if status, _, body := d.post(token, rome); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	id := &v1alpha1.Identity{}
	key := client.ObjectKey{Namespace: v1alpha1.TenantNamespace(w.name("rome")), Name: v1alpha1.IdentityName}
	if err := w.client.Get(w.ctx, key, id); err != nil {
		t.Fatal(err)
	}
	rome.newKey(t)
	id.Spec.Request = rome.spec.Request
	if err := w.client.Update(w.ctx, id); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the credential is renewed", func() bool {
		return w.client.Get(w.ctx, key, id) == nil && id.Status.RequestSHA256 == hashOf(rome.spec.Request)
	})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := map[string]bool{}
	for _, f := range families {
		counted[f.GetName()] = f.GetHelp() != ""
	}
	for _, name := range []string{"pelago_invitations_total", "pelago_credentials_issued_total", "pelago_auth_request_seconds"} {
		if !counted[name] {
			t.Errorf("there is no metric %s with a help text", name)
		}
	}
	secret := &corev1.Secret{}
	if err := w.client.Get(w.ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.AuthTLSName}, secret); err != nil || len(secret.Data) != 2 {
		t.Errorf("the authority is not stored: %v", err)
	}
}
