package peering

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// endpoint plays pelago-auth and the provider's manager.
type endpoint struct {
	stage     *stage
	url, pin  string
	clusterID string

	mu      sync.Mutex
	keys    map[string]bool // requests seen
	calls   int
	answers []func(http.ResponseWriter) // instead of accepting
	bend    func(*v1alpha1.IdentityStatus)

	lastSpec v1alpha1.IdentitySpec
}

func newEndpoint(s *stage) *endpoint {
	s.t.Helper()
	own := newAuthority(s.t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	leaf := own.sign(s.t, &key.PublicKey, func(c *x509.Certificate) {
		c.DNSNames, c.ExtKeyUsage = []string{v1alpha1.AuthService}, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	})
	block, _ := pem.Decode(leaf)
	// Every test has a cluster of its own: two Peerings with one are duplicates.
	id := s.server.Name(s.t, "")[1:] + remoteID[8:]
	e := &endpoint{stage: s, keys: map[string]bool{}, clusterID: id}
	server := httptest.NewUnstartedServer(http.HandlerFunc(e.serve))
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{
		{Certificate: [][]byte{block.Bytes, own.cert.Raw}, PrivateKey: key},
	}}
	server.StartTLS()
	s.t.Cleanup(server.Close)
	sum := sha256.Sum256(own.cert.Raw)
	e.url, e.pin = server.URL, hex.EncodeToString(sum[:])
	return e
}

func refuse(code int, reason, message string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.WriteHeader(code)
		json.NewEncoder(w).Encode(map[string]string{"reason": reason, "message": message})
	}
}

func (e *endpoint) serve(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls++
	var body struct {
		Token string
		Spec  v1alpha1.IdentitySpec
	}
	err := json.NewDecoder(r.Body).Decode(&body)
	e.lastSpec = body.Spec
	if len(e.answers) > 0 {
		e.answers[0](w)
		e.answers = e.answers[1:]
		return
	}
	if err != nil || r.URL.Path != v1alpha1.AuthPath || strings.Contains(r.URL.String(), token) || body.Token != token {
		refuse(403, v1alpha1.ReasonInvitationRefused, "the invitation is not accepted")(w)
		return
	}
	e.keys[body.Spec.Request] = true
	answer, err := e.accept(body.Spec)
	if err != nil {
		refuse(503, v1alpha1.ReasonWaiting, err.Error())(w)
		return
	}
	json.NewEncoder(w).Encode(map[string]any{"status": answer})
}

// accept makes what a provider makes, as often as it is asked.
func (e *endpoint) accept(spec v1alpha1.IdentitySpec) (*v1alpha1.IdentityStatus, error) {
	s, ctx := e.stage, context.Background()
	if err := s.grant(spec.PeeringUID); err != nil {
		return nil, err
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: s.tenant, Name: v1alpha1.IdentityName}}
	if err := s.client.Create(ctx, lease); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	identity := s.identity()
	identity.Spec = spec
	identity.Spec.Cluster.Version = "v0.0.1" // presenting has to mend that
	if err := s.client.Create(ctx, identity); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	return s.answer(spec.Request)
}

// answer issues a certificate and stores it in the Identity's status.
func (s *stage) answer(request string) (*v1alpha1.IdentityStatus, error) {
	config := rest.CopyConfig(s.server.Config)
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, err
	}
	identity := s.identity()
	if err := s.client.Get(context.Background(), client.ObjectKeyFromObject(identity), identity); err != nil {
		return nil, err
	}
	before := identity.DeepCopy()
	identity.Status = v1alpha1.IdentityStatus{
		Cluster:   &v1alpha1.ClusterInfo{ID: s.auth.clusterID, Name: "milan", Version: "v0.4.0", Features: []string{"offers/v1", "peering/v1", "warp/v9"}},
		ServerURL: config.Host, ServerCA: string(config.CAData), TenantNamespace: s.tenant,
		CredentialType: v1alpha1.CredentialCertificate, RequestSHA256: fingerprint([]byte(request)),
		Certificate: string(s.cluster.issue(s.t, request, s.life)),
	}
	if s.auth.bend != nil {
		s.auth.bend(&identity.Status)
	}
	if err := s.client.Status().Patch(context.Background(), identity, client.MergeFrom(before)); err != nil {
		return nil, err
	}
	return &identity.Status, nil
}

// grant binds the consumer's user to its rights, once.
func (s *stage) grant(uid string) error {
	ctx := context.Background()
	pelago := []string{v1alpha1.GroupVersion.Group}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: s.tenant, Name: v1alpha1.ConsumerRole}, Rules: []rbacv1.PolicyRule{
		{APIGroups: pelago, Resources: []string{"identities"}, ResourceNames: []string{v1alpha1.IdentityName}, Verbs: []string{"get", "list", "watch", "patch", "delete"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{v1alpha1.IdentityName}, Verbs: []string{"get", "patch"}},
		{APIGroups: pelago, Resources: []string{"resourcerequests"}, Verbs: []string{"get", "list", "watch", "create", "patch", "delete"}},
		{APIGroups: pelago, Resources: []string{"resourceoffers"}, Verbs: []string{"get", "list", "watch"}},
	}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.tenant, Name: v1alpha1.ConsumerRole},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: v1alpha1.ConsumerRole},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: v1alpha1.UserPrefix + uid}},
	}
	for _, obj := range []client.Object{role, binding} {
		if err := s.client.Create(ctx, obj); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("granting: %w", err)
		}
	}
	return nil
}
