package access

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/internal/kube"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

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
	g := New(Options{Ask: func(ctx context.Context, o kube.Object) error { return c.Create(ctx, o) }})
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
