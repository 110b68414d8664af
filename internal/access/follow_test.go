package access

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	config := &corev1.ConfigMap{}
	eventually(t, "the ConfigMap is there", func() bool {
		return c.Get(t.Context(), client.ObjectKey{Namespace: trustNamespace, Name: trustName}, config) == nil
	})
	want, err := parse(config.Data)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "it has been read", func() bool {
		got := a.get()
		return (got.clients == nil) == (want.clients == nil) && (got.clients == nil || got.clients.Equal(want.clients)) && len(got.users) == len(want.users)
	})
}

// A token is judged by the real API server.
func TestTokenOfTheCluster(t *testing.T) {
	server := kubetest.Server(t)
	c := server.Client(t)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: server.Namespace(t), Name: "caller"}}
	name := metav1.ObjectMeta{Name: server.Name(t, "access")}
	for _, o := range []client.Object{
		account,
		&rbacv1.ClusterRole{ObjectMeta: name, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes/stats"}, Verbs: []string{"get"}}}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name.Name},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: account.Namespace, Name: account.Name}}},
	} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Delete(context.Background(), o) })
	}
	token := func() string {
		asked := &authenticationv1.TokenRequest{}
		if err := c.SubResource("token").Create(t.Context(), account, asked); err != nil {
			t.Fatal(err)
		}
		return asked.Status.Token
	}
	g := New(Options{Client: c})
	node := func(part string) Asked {
		return Asked{Resource: &authorizationv1.ResourceAttributes{Resource: "nodes", Name: "milan", Subresource: part, Verb: "get", Version: "v1"}}
	}
	eventually(t, "the right is in force", func() bool { return g.Status(bearer(token()), node("stats")) == http.StatusOK })
	if got := g.Status(bearer(token()), node("proxy")); got != http.StatusForbidden {
		t.Errorf("without the right: got %d", got)
	}
	if got := g.Status(bearer("made.up.token"), node("stats")); got != http.StatusUnauthorized {
		t.Errorf("a made-up token: got %d", got)
	}
	if got := g.Status(httptest.NewRequest(http.MethodGet, "/", nil), node("stats")); got != http.StatusUnauthorized {
		t.Errorf("nothing at all: got %d", got)
	}
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
