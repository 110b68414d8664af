package auth

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/prometheus/client_golang/prometheus"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/home"
	"github.com/pelago-dev/pelago/internal/kubetest"
	"github.com/pelago-dev/pelago/internal/status"
)

// patience bounds every wait of these tests.
const patience = 60 * time.Second

// fakeHome is a provider's settings.
type fakeHome struct {
	mu     sync.Mutex
	id     string
	config home.Config
	url    string
	known  []string // what the leading manager knows
}

func (f *fakeHome) ID() string { return f.id }
func (f *fakeHome) Config() home.Config {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.config
}
func (f *fakeHome) Info() v1alpha1.ClusterInfo {
	f.mu.Lock()
	defer f.mu.Unlock()
	return v1alpha1.ClusterInfo{ID: f.id, Name: "milan", Version: "v0.3.0", Features: f.known}
}
func (f *fakeHome) RootCA() (string, error) { return "inside", nil }
func (f *fakeHome) APIServer() (url, ca, proxy string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.url == "" {
		return "", "", "", fmt.Errorf("set apiServer.url")
	}
	return f.url, "CA of milan", "", nil
}
func (f *fakeHome) set(url string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.url = url
}
func (f *fakeHome) knows(features ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.known = features
}
func (f *fakeHome) Source(handler.EventHandler) source.Source {
	return source.Func(func(context.Context, workqueue.TypedRateLimitingInterface[reconcile.Request]) error { return nil })
}

// world is a provider on the shared API server with everything that is not this
// package's played by the test: the Tenants' controller and the signer.
type world struct {
	t      testing.TB
	server *kubetest.APIServer
	client client.WithWatch
	kube   kubernetes.Interface
	home   *fakeHome
	shake  *handshake
	ctx    context.Context
	suffix string // of all names of this world
	events *events.FakeRecorder

	mu     sync.Mutex
	signer signer
	still  bool // the Tenants' controller does nothing
}

// signer makes a certificate from a template that follows the signing request.
type signer func(template *x509.Certificate) *x509.Certificate

func newWorld(t testing.TB) *world {
	t.Helper()
	server := kubetest.Server(t)
	ctx, cancel := context.WithTimeout(log.IntoContext(context.Background(), logr.Discard()), 5*time.Minute)
	t.Cleanup(cancel)
	kube, err := kubernetes.NewForConfig(server.Config)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		t: t, server: server, client: server.Client(t), kube: kube, ctx: ctx, suffix: server.Name(t, ""),
		home:   &fakeHome{id: newUUID(), url: "https://milan:6443", known: []string{v1alpha1.FeaturePeering}},
		events: events.NewFakeRecorder(1000),
		signer: func(c *x509.Certificate) *x509.Certificate { return c },
	}
	counted, err := newMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Home: w.home, Direct: w.client, Clock: clock.RealClock{}, Rand: rand.Reader}
	w.shake = newHandshake(o, indexed{w.cache()}, w.events, counted)
	t.Cleanup(w.clear)
	for _, list := range []client.ObjectList{&v1alpha1.TenantList{}, &certificatesv1.CertificateSigningRequestList{}} {
		go w.play(list)
	}
	return w
}

// cache returns a running cache with the index of invitations.
func (w *world) cache() cache.Cache {
	w.t.Helper()
	c, err := cache.New(w.server.Config, cache.Options{Scheme: kubetest.Scheme()})
	if err != nil {
		w.t.Fatal(err)
	}
	if err := indexInvitations(c); err != nil {
		w.t.Fatal(err)
	}
	go func() { _ = c.Start(w.ctx) }()
	if !c.WaitForCacheSync(w.ctx) {
		w.t.Fatal("the cache does not sync")
	}
	return c
}

func (w *world) name(base string) string { return base + w.suffix }

// play watches one kind and does what the other programs would.
func (w *world) play(list client.ObjectList) {
	for w.ctx.Err() == nil {
		watched, err := w.client.Watch(w.ctx, list.DeepCopyObject().(client.ObjectList))
		if err != nil {
			return
		}
		for e := range watched.ResultChan() {
			switch obj := e.Object.(type) {
			case *v1alpha1.Tenant:
				if strings.HasSuffix(obj.Name, w.suffix) && e.Type != "DELETED" {
					w.settle(obj)
				}
			case *certificatesv1.CertificateSigningRequest:
				if strings.HasSuffix(obj.Labels[v1alpha1.LabelTenant], w.suffix) && e.Type != "DELETED" {
					w.sign(obj)
				}
			}
		}
		watched.Stop()
	}
}

// settle is the Tenants' controller.
func (w *world) settle(t *v1alpha1.Tenant) {
	w.mu.Lock()
	still := w.still
	w.mu.Unlock()
	if still || ready(t) {
		return
	}
	namespace := v1alpha1.TenantNamespace(t.Name)
	_ = w.client.Create(w.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	_ = w.client.Create(w.ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.IdentityName}})
	for _, kind := range needed {
		status.True(&t.Status.Conditions, t.Generation, kind, v1alpha1.ReasonReady, "")
	}
	_ = w.client.Status().Update(w.ctx, t)
}

var (
	signerKey, _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	signerCert   = &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "signer"}}
)

// sign is the signer of the cluster.
func (w *world) sign(csr *certificatesv1.CertificateSigningRequest) {
	w.mu.Lock()
	shape := w.signer
	w.mu.Unlock()
	if !hasApproval(csr) || len(csr.Status.Certificate) > 0 || shape == nil {
		return
	}
	block, _ := pem.Decode(csr.Spec.Request)
	asked, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return
	}
	now := time.Now()
	template := shape(&x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: asked.Subject, PublicKey: asked.PublicKey,
		NotBefore: now.Add(-5 * time.Minute), NotAfter: now.Add(time.Duration(*csr.Spec.ExpirationSeconds) * time.Second),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	der, err := x509.CreateCertificate(rand.Reader, template, signerCert, template.PublicKey, signerKey)
	if err != nil {
		return
	}
	csr.Status.Certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	_, _ = w.kube.CertificatesV1().CertificateSigningRequests().UpdateStatus(w.ctx, csr, metav1.UpdateOptions{})
}

func (w *world) setSigner(s signer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.signer = s
}

// clear removes what this world has made. Its context may be over by then.
func (w *world) clear() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var tenants v1alpha1.TenantList
	var invitations v1alpha1.InvitationList
	var requests certificatesv1.CertificateSigningRequestList
	for _, list := range []client.ObjectList{&tenants, &invitations, &requests} {
		if err := w.client.List(ctx, list); err != nil {
			w.t.Errorf("clearing: %v", err)
		}
	}
	for i := range tenants.Items {
		if t := &tenants.Items[i]; strings.HasSuffix(t.Name, w.suffix) {
			w.clearTenant(ctx, t)
		}
	}
	for i := range invitations.Items {
		if strings.HasSuffix(invitations.Items[i].Name, w.suffix) {
			_ = w.client.Delete(ctx, &invitations.Items[i])
		}
	}
	for i := range requests.Items {
		if strings.HasSuffix(requests.Items[i].Labels[v1alpha1.LabelTenant], w.suffix) {
			_ = w.client.Delete(ctx, &requests.Items[i])
		}
	}
}

func (w *world) clearTenant(ctx context.Context, t *v1alpha1.Tenant) {
	namespace := v1alpha1.TenantNamespace(t.Name)
	id := &v1alpha1.Identity{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.IdentityName}}
	_ = w.client.Patch(ctx, id, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
	_ = w.client.Delete(ctx, id)
	_ = w.client.Patch(ctx, t, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
	_ = w.client.Delete(ctx, t)
	_ = w.client.DeleteAllOf(ctx, &corev1.ServiceAccount{}, client.InNamespace(namespace))
	_ = w.kube.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{})
	_, _ = w.kube.CoreV1().Namespaces().Finalize(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.UpdateOptions{})
}

// invite makes an invitation and returns its token.
func (w *world) invite(change ...func(*v1alpha1.Invitation)) (string, *v1alpha1.Invitation) {
	w.t.Helper()
	token := newToken()
	i := &v1alpha1.Invitation{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("i%d%s", time.Now().UnixNano(), w.suffix)},
		Spec:       v1alpha1.InvitationSpec{TokenSHA256: v1alpha1.TokenHash(token), Expires: metav1.NewTime(time.Now().Add(time.Hour))},
	}
	for _, c := range change {
		c(i)
	}
	if err := w.client.Create(w.ctx, i); err != nil {
		w.t.Fatalf("inviting: %v", err)
	}
	return token, i
}

func newToken() string {
	var b [32]byte
	rand.Read(b[:])
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// consumer is a cluster that comes with an invitation.
type consumer struct {
	key  crypto.Signer
	spec v1alpha1.IdentitySpec
}

func newConsumer(t testing.TB, name string) *consumer {
	t.Helper()
	c := &consumer{spec: v1alpha1.IdentitySpec{PeeringUID: newUUID(), Cluster: v1alpha1.ClusterInfo{
		ID: newUUID(), Name: name, Version: "v0.3.0", KubernetesVersion: "v1.36.3", Features: []string{"offers/v1", "peering/v1"},
	}}}
	c.newKey(t)
	return c
}

func (c *consumer) newKey(t testing.TB) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c.key = key
	c.spec.Request = requestFor(t, key, c.user())
}

func (c *consumer) user() string { return v1alpha1.UserPrefix + c.spec.PeeringUID }

// with is a copy that says something else.
func (c *consumer) with(t testing.TB, change func(*v1alpha1.IdentitySpec)) *consumer {
	other := &consumer{key: c.key, spec: *c.spec.DeepCopy()}
	change(&other.spec)
	other.spec.Request = requestFor(t, other.key, other.user())
	return other
}

func requestFor(t testing.TB, key crypto.Signer, user string) string {
	t.Helper()
	return requestOfTemplate(t, key, &x509.CertificateRequest{Subject: pkix.Name{CommonName: user}})
}

func requestOfTemplate(t testing.TB, key crypto.Signer, template *x509.CertificateRequest) string {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: requestBlock, Bytes: der}))
}

// applicant is the consumer with a token, as the endpoint sees it.
func (c *consumer) applicant(t testing.TB, token string) *applicant {
	t.Helper()
	asked, err := parseRequest(c.spec.Request, c.user())
	if err != nil {
		t.Fatal(err)
	}
	return &applicant{tokenHash: v1alpha1.TokenHash(token), spec: c.spec, request: asked}
}

// leftovers is what there is of a consumer: Tenants, Identities, signing requests.
func (w *world) leftovers(c *consumer) (tenants, identities, requests int) {
	w.t.Helper()
	var ts v1alpha1.TenantList
	var ids v1alpha1.IdentityList
	var csrs certificatesv1.CertificateSigningRequestList
	for _, list := range []client.ObjectList{&ts, &ids, &csrs} {
		if err := w.client.List(w.ctx, list); err != nil {
			w.t.Fatal(err)
		}
	}
	names := map[string]bool{}
	for _, t := range ts.Items {
		if t.Spec.ClusterID == c.spec.Cluster.ID || t.Spec.PeeringUID == c.spec.PeeringUID {
			tenants++
			names[t.Name] = true
		}
	}
	for _, id := range ids.Items {
		if id.Spec.PeeringUID == c.spec.PeeringUID {
			identities++
		}
	}
	for _, csr := range csrs.Items {
		if names[csr.Labels[v1alpha1.LabelTenant]] {
			requests++
		}
	}
	return tenants, identities, requests
}

// eventually polls until done is true.
func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-deadline:
			t.Fatalf("not within %s: %s", patience, what)
		case <-tick.C:
		}
	}
}

func conditionReason(conditions []metav1.Condition, kind string) string {
	if c := meta.FindStatusCondition(conditions, kind); c != nil {
		return string(c.Status) + " " + c.Reason
	}
	return ""
}

func newUUID() string { return string(uuid.NewUUID()) }
