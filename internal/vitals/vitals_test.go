package vitals

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/internal/access"
	"github.com/pelago-dev/pelago/internal/kubetest"
	"github.com/pelago-dev/pelago/internal/trust"
)

// serve starts a server that shows one metric, and returns how to get a path of it.
func serve(t *testing.T, ask access.Ask) (*Server, func(path, token string) (int, string)) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "pelago_test", Help: "A test."}, func() float64 { return 1 }))
	s, err := Listen(Options{Address: "127.0.0.1:0", Ask: ask, Gatherer: registry, Logger: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	unverified := &tls.Config{InsecureSkipVerify: true} // the server makes its certificate in memory, and it proves nothing, as the package says
	browser := &http.Client{Transport: &http.Transport{TLSClientConfig: unverified}, Timeout: time.Minute}
	t.Cleanup(browser.CloseIdleConnections)
	return s, func(path, token string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.Address().String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		answer, err := browser.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(text)
	}
}

// tokens makes tokens of a new service account, which may read metrics or not.
func tokens(t *testing.T, server *kubetest.APIServer, c client.Client, may bool) func() string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: server.Namespace(t), Name: "reader"}}
	if err := c.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	if may {
		name := metav1.ObjectMeta{Name: server.Name(t, "metrics")}
		role := &rbacv1.ClusterRole{ObjectMeta: name, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}}
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name.Name},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: account.Namespace, Name: account.Name}},
		}
		for _, o := range []client.Object{role, binding} {
			if err := c.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Delete(context.WithoutCancel(t.Context()), o) })
		}
	}
	return func() string {
		request := &authenticationv1.TokenRequest{}
		if err := c.SubResource("token").Create(t.Context(), account, request); err != nil {
			t.Fatal(err)
		}
		return request.Status.Token
	}
}

func TestMetricsNeedRights(t *testing.T) {
	server := kubetest.Server(t)
	c := server.Client(t)
	_, get := serve(t, trust.Ask(c))
	cases := []struct {
		reason, token string
		want          int
	}{
		{"without a token nobody is known", "", http.StatusUnauthorized},
		{"a made-up token is nobody's", "made.up.token", http.StatusUnauthorized},
		{"a token too long to be one is not even asked about", strings.Repeat("x", 9<<10), http.StatusUnauthorized},
		{"known, without the right", tokens(t, server, c, false)(), http.StatusForbidden},
	}
	for _, c := range cases {
		if status, text := get("/metrics", c.token); status != c.want || strings.Contains(text, "pelago_test") {
			t.Errorf("%s: got %d, want %d: %s", c.reason, status, c.want, text)
		}
	}
	// The authorizer of the API server learns of a new binding by a watch; a refusal is
	// remembered by token, so each attempt takes a new one.
	next := tokens(t, server, c, true)
	allowed, status, text := "", 0, ""
	for end := time.Now().Add(2 * time.Minute); status != http.StatusOK && time.Now().Before(end); {
		allowed = next()
		status, text = get("/metrics", allowed)
	}
	if status != http.StatusOK || !strings.Contains(text, "pelago_test 1") {
		t.Errorf("with the right: got %d: %s", status, text)
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		if status, text := get(path, ""); status != http.StatusOK || text != "ok\n" {
			t.Errorf("%s: got %d: %s", path, status, text)
		}
	}
	for _, path := range []string{"/", "/debug/pprof/", "/metrics/x"} {
		if status, _ := get(path, allowed); status != http.StatusNotFound {
			t.Errorf("%s: got %d, want nothing there", path, status)
		}
	}
}

func TestReadyz(t *testing.T) {
	s, get := serve(t, nil)
	fault := errors.New("caches are not filled yet")
	s.AddReadyzCheck("b", func(*http.Request) error { return nil })
	s.AddReadyzCheck("a", func(*http.Request) error { return fault })
	if status, text := get("/readyz", ""); status != http.StatusServiceUnavailable || text != "a: caches are not filled yet\n" {
		t.Errorf("not ready: got %d: %s", status, text)
	}
	s.AddReadyzCheck("a", func(*http.Request) error { return nil })
	if status, _ := get("/readyz", ""); status != http.StatusOK {
		t.Errorf("ready: got %d", status)
	}
}
