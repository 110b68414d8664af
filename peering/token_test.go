package peering

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// withTokens makes the provider one whose API server signs no certificates.
func (s *stage) withTokens() {
	s.t.Helper()
	ctx := s.t.Context()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.tenant, Name: v1alpha1.IdentityName}}
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.tenant, Name: v1alpha1.ConsumerTokenRole},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, ResourceNames: []string{v1alpha1.IdentityName}, Verbs: []string{"create"}}},
	}
	subject := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.tenant, Name: v1alpha1.IdentityName}}
	objects := []client.Object{account, role}
	for i, name := range []string{v1alpha1.ConsumerRole, v1alpha1.ConsumerTokenRole} {
		objects = append(objects, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.tenant, Name: []string{"account", "token"}[i]}, Subjects: subject,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		})
	}
	for _, obj := range objects {
		if err := s.client.Create(ctx, obj); err != nil {
			s.t.Fatal(err)
		}
	}
	s.auth.bend = func(i *v1alpha1.IdentityStatus) { i.CredentialType, i.Certificate = v1alpha1.CredentialToken, "" }
	s.auth.answers = []func(http.ResponseWriter){nil}
	s.auth.answers[0] = func(w http.ResponseWriter) {
		life := int64(3600)
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &life}}
		if err := s.client.SubResource("token").Create(ctx, account, request); err != nil {
			refuse(503, v1alpha1.ReasonWaiting, err.Error())(w)
			return
		}
		spec := s.auth.lastSpec
		answer, err := s.auth.accept(spec)
		if err != nil {
			refuse(503, v1alpha1.ReasonWaiting, err.Error())(w)
			return
		}
		from, to := metav1.NewTime(s.clock.Now()), request.Status.ExpirationTimestamp
		answer.NotBefore, answer.NotAfter = &from, &to
		json.NewEncoder(w).Encode(map[string]any{"status": answer, "token": request.Status.Token})
	}
}

// TestToken peers with a provider that signs no certificates, and renews the token by
// itself at two thirds of its life.
func TestToken(t *testing.T) {
	s := newStage(t)
	s.withTokens()
	p := s.peer()
	_, old := s.credential()
	if old.Token == "" || p.Status.Credential.Type != v1alpha1.CredentialToken {
		t.Fatalf("credential %+v", p.Status.Credential)
	}
	s.clock.SetTime(old.renewAfter().Add(time.Second))
	s.until("it is renewed", func(*v1alpha1.Peering) bool { _, c := s.credential(); return c.Token != old.Token })
	_, c := s.credential()
	if !c.NotAfter.After(s.clock.Now()) || c.NotBefore.Before(old.NotBefore) {
		t.Errorf("the new token lives from %s to %s", c.NotBefore, c.NotAfter)
	}
	p = s.until("it is ready", ready)
	text, _ := json.Marshal(p)
	s.secrets(&credential{Key: []byte(c.Token), Request: []byte(old.Token)}, text)
	s.delete(p)
	s.untilGone()
	s.expectNothing()
}

// TestProxy reaches endpoint and API server through an HTTP proxy.
func TestProxy(t *testing.T) {
	s := newStage(t)
	var tunnels atomic.Int64
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		tunnels.Add(1)
		out, err := net.Dial("tcp", r.Host)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		w.WriteHeader(http.StatusOK)
		in, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		go func() { io.Copy(out, in); out.Close() }()
		go func() { io.Copy(in, out); in.Close() }()
	}))
	t.Cleanup(proxy.Close)
	s.peer(func(p *v1alpha1.Peering) { p.Spec.Consume.ProxyURL = proxy.URL })
	if tunnels.Load() < 2 {
		t.Errorf("%d tunnels, want one to the endpoint and one to the API server", tunnels.Load())
	}
}
