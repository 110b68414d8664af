package kubelet

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/access"
	"github.com/pelago-dev/pelago/internal/kubetest"
	"github.com/pelago-dev/pelago/internal/trust"
	"github.com/pelago-dev/pelago/offloading/stats"
)

const (
	peering = "milan"
	podUID  = "0b6a5d38-34a2-4d6f-8f6c-0a4f4a8f8a10"
)

// store is a reader of objects in memory.
type store struct {
	mu      sync.Mutex
	pods    []corev1.Pod
	nodes   []corev1.Node
	shadows map[string]*v1alpha1.ShadowPod
	tenants map[string]string // of namespaces
	fault   error
}

func (s *store) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault != nil {
		return s.fault
	}
	switch into := obj.(type) {
	case *corev1.Pod:
		for i := range s.pods {
			if client.ObjectKeyFromObject(&s.pods[i]) == key {
				s.pods[i].DeepCopyInto(into)
				return nil
			}
		}
	case *corev1.Node:
		for i := range s.nodes {
			if s.nodes[i].Name == key.Name {
				s.nodes[i].DeepCopyInto(into)
				return nil
			}
		}
	case *corev1.Namespace:
		if into.Name = key.Name; s.tenants[key.Name] != "" {
			into.Labels = map[string]string{v1alpha1.LabelTenant: s.tenants[key.Name]}
		}
		return nil
	case *v1alpha1.ShadowPod:
		if found := s.shadows[key.Name]; found != nil {
			found.DeepCopyInto(into)
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func (s *store) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	node, _ := o.FieldSelector.RequiresExactMatch(podsOfNode)
	into := list.(*corev1.PodList)
	for _, p := range s.pods {
		if p.Spec.NodeName == node {
			into.Items = append(into.Items, p)
		}
	}
	return s.fault
}

// link is a peer, and a fleet of it alone.
type link struct {
	store   *store
	base    *url.URL
	rt      http.RoundTripper
	err     error
	removed bool
}

func (l *link) TenantNamespace() string                      { return "pelago-tenant-rome" }
func (l *link) Reader() client.Reader                        { return l.store }
func (l *link) Stream() (*url.URL, http.RoundTripper, error) { return l.base, l.rt, l.err }
func (l *link) Watch(client.Object) error                    { return nil }
func (l *link) Peer(name string) (Peer, bool)                { return l, name == peering && !l.removed }
func (l *link) StateSource(func(string) []reconcile.Request) source.Source {
	return nil
}

// figures are what a provider says of usage.
type figures struct {
	mu    sync.Mutex
	pods  []stats.Pod
	err   error
	asked int
}

func (f *figures) Pods(context.Context, string) ([]stats.Pod, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	return f.pods, f.err
}

// authority signs certificates of clients.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "clients"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{key: key, cert: cert}
}

func (a *authority) pem() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}))
}

// issue makes a certificate; change may alter it.
func (a *authority) issue(t testing.TB, template *x509.Certificate, public any) []byte {
	t.Helper()
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, public, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// user is a client certificate.
func (a *authority) user(t testing.TB, name string) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der := a.issue(t, &x509.Certificate{Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, key.Public())
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// stage is a virtual node's port on a real API server's word, before a provider that
// the test plays.
type stage struct {
	kubelets *Kubelets
	server   *server
	node     *corev1.Node
	store    *store
	link     *link
	figures  *figures
	may, not *tls.Certificate // certificates of users with all rights and with none
	cluster  *kubetest.APIServer
	client   client.WithWatch
	ca       *authority
}

func newStage(t testing.TB, provider http.Handler) *stage {
	t.Helper()
	cluster := kubetest.Server(t)
	s := &stage{cluster: cluster, client: cluster.Client(t), ca: newAuthority(t), figures: &figures{}}
	there := httptest.NewTLSServer(provider)
	t.Cleanup(there.Close)
	base, err := url.Parse(there.URL)
	if err != nil {
		t.Fatal(err)
	}
	name := cluster.Name(t, "milan")
	s.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		v1alpha1.LabelType: v1alpha1.TypeVirtualNode, v1alpha1.LabelPeering: peering,
	}}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: "192.0.2.7"},
	}}}
	s.store = &store{nodes: []corev1.Node{*s.node}, shadows: map[string]*v1alpha1.ShadowPod{
		podUID: {Status: v1alpha1.ShadowPodStatus{Ref: &v1alpha1.PodRef{Namespace: "shop-rome", Name: "web-0", UID: "x"}}},
	}, pods: []corev1.Pod{
		{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0", UID: podUID}, Spec: corev1.PodSpec{NodeName: name, Containers: []corev1.Container{{Name: "web"}}}, Status: corev1.PodStatus{Phase: corev1.PodRunning}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "elsewhere", UID: "other"}, Spec: corev1.PodSpec{NodeName: "node-1"}},
	}}
	rt := there.Client().Transport.(*http.Transport)
	rt.DisableCompression = true
	s.link = &link{store: s.store, base: base, rt: rt}
	trusted := &access.Authorities{}
	if err := trusted.Set(map[string]string{"client-ca-file": s.ca.pem()}); err != nil {
		t.Fatal(err)
	}
	counted, err := newMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Fleet: s.link, Address: "127.0.0.1", FirstPort: freePort(t), Stats: s.figures, Clock: clock.RealClock{}}
	gate := access.New(access.Options{Ask: trust.Ask(s.client), Authorities: trusted, Questions: 32})
	s.kubelets = newKubelets(o, home{client: s.store, fleet: s.link}, gate, counted, logr.Discard())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.kubelets.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Error("the ports do not close")
		}
	})
	if s.server, err = s.kubelets.open(s.node); err != nil {
		t.Fatal(err)
	}
	s.users(t)
	return s
}

// users makes a user who may do everything to nodes, and one who may do nothing.
func (s *stage) users(t testing.TB) {
	t.Helper()
	may := s.cluster.Name(t, "may")
	// An administrator's rights: what fewer give is what the tables of rights are about.
	s.allow(t, may, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"*"}, Verbs: []string{"*"}})
	s.await(t, may, "create", "proxy")
	s.may, s.not = s.ca.user(t, may), s.ca.user(t, s.cluster.Name(t, "not"))
}

// allow gives a user rights.
func (s *stage) allow(t testing.TB, user string, rule rbacv1.PolicyRule) {
	t.Helper()
	name := metav1.ObjectMeta{Name: user}
	for _, o := range []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: name, Rules: []rbacv1.PolicyRule{rule}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}}},
	} {
		if err := s.client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.client.Delete(context.Background(), o) })
	}
}

// await waits until the API server has heard of a right.
func (s *stage) await(t testing.TB, user, verb, part string) {
	t.Helper()
	eventually(t, "the right is in force", func() bool {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Resource: "nodes", Subresource: part, Name: s.node.Name}}}
		if err := s.client.Create(t.Context(), review); err != nil {
			t.Fatal(err)
		}
		return review.Status.Allowed
	})
}

// caller is an HTTP client with a certificate, or none.
func (s *stage) caller(t testing.TB, certificate *tls.Certificate) *http.Client {
	t.Helper()
	config := &tls.Config{InsecureSkipVerify: true} // self-made until a signer has signed
	if certificate != nil {
		config.Certificates = []tls.Certificate{*certificate}
	}
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}, Timeout: 30 * time.Second}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func (s *stage) url(path string) string {
	return "https://" + s.address() + path
}

func (s *stage) address() string {
	return net.JoinHostPort("127.0.0.1", itoa(s.kubelets.Ports(s.node.Name)))
}

func freePort(t testing.TB) int32 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return int32(l.Addr().(*net.TCPAddr).Port)
}

func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-deadline:
			t.Fatalf("not in time: %s", what)
		case <-tick.C:
		}
	}
}
