package stats

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/access"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// certificate makes one, signed by a parent or by itself.
func certificate(t testing.TB, template, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	if parent == nil {
		parent, parentKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c, key
}

func newCA(t testing.TB) (*x509.Certificate, *ecdsa.PrivateKey) {
	return certificate(t, &x509.Certificate{Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil, nil)
}

// fixed is kubelets that say what the test wants.
type fixed struct {
	said  figures
	asked []string
}

func (f *fixed) read(_ context.Context, nodes []*corev1.Node) figures {
	for _, n := range nodes {
		f.asked = append(f.asked, n.Name)
	}
	return f.said
}

// front is a request of the API server on behalf of somebody.
func front(t testing.TB, path string) (*http.Request, *access.Authorities) {
	t.Helper()
	ca, key := newCA(t)
	proxy, _ := certificate(t, &x509.Certificate{Subject: pkix.Name{CommonName: "front"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, ca, key)
	a := &access.Authorities{}
	err := a.Set(map[string]string{
		"requestheader-client-ca-file": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw})),
		"requestheader-allowed-names":  `["front"]`, "requestheader-username-headers": `["X-Remote-User"]`,
	})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Header.Set("X-Remote-User", "rome")
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{proxy}}
	return r, a
}

// A tenant is told of its pods in its namespaces, and of nothing else, on the real API
// server.
func TestHandler(t *testing.T) {
	server := kubetest.Server(t)
	c := server.Client(t)
	tenant := server.Name(t, "rome")
	mapped, foreign := server.Namespace(t), server.Namespace(t)
	node := server.Name(t, "node")
	label := func(name string, labels map[string]string) {
		ns := &corev1.Namespace{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: name}, ns); err != nil {
			t.Fatal(err)
		}
		for k, v := range labels {
			ns.Labels[k] = v
		}
		if err := c.Update(t.Context(), ns); err != nil {
			t.Fatal(err)
		}
	}
	label(mapped, map[string]string{v1alpha1.LabelTenant: tenant, v1alpha1.LabelHomeNamespace: "shop"})
	real := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	if err := c.Create(t.Context(), real); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Delete(context.Background(), real) })
	kubelets := &fixed{said: figures{node: {}}}
	pod := func(namespace, name string, labels map[string]string) {
		t.Helper()
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels, Annotations: map[string]string{
				v1alpha1.AnnotationHomeNamespace: "shop", v1alpha1.AnnotationHomeName: name,
			}},
			Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "web", Image: "x"}}},
		}
		if err := c.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		p.Status.Phase = corev1.PodRunning
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", RestartCount: 3, Image: "x"}}
		if err := c.Status().Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		bytes := uint64(7)
		kubelets.said[node][string(p.UID)] = used{containers: []Container{{Name: "web", WorkingSetBytes: &bytes}}}
	}
	ours := map[string]string{v1alpha1.LabelTenant: tenant, v1alpha1.LabelHomeUID: "uid-1"}
	pod(mapped, "web-0", ours)
	pod(mapped, "unlabelled", nil)
	pod(mapped, "another", map[string]string{v1alpha1.LabelTenant: "paris", v1alpha1.LabelHomeUID: "uid-2"})
	pod(foreign, "outside", ours)

	path := Path + "/" + Version + "/namespaces/" + v1alpha1.TenantNamespace(tenant) + "/" + Resource
	r, trusted := front(t, path)
	h := &handler{kubelets: kubelets, places: make(chan struct{}, 1), options: Options{Reader: c, Authorities: trusted, Clock: clock.RealClock{}, Logger: logr.Discard()}}
	get := func(path string, change func(*http.Request)) (int, string) {
		w, asked := httptest.NewRecorder(), r.Clone(t.Context())
		asked.URL.Path = path
		if change != nil {
			change(asked)
		}
		h.ServeHTTP(w, asked)
		return w.Code, w.Body.String()
	}
	code, text := get(path, nil)
	var list List
	if err := json.Unmarshal([]byte(text), &list); err != nil || code != 200 || len(list.Items) != 1 {
		t.Fatalf("got %d %s", code, text)
	}
	got := list.Items[0]
	if got.Metadata != (Home{Namespace: "shop", Name: "web-0", UID: "uid-1"}) || got.Containers[0].Restarts != 3 || *got.Containers[0].WorkingSetBytes != 7 {
		t.Errorf("got %s", text)
	}
	if diff := cmp.Diff([]string{node}, kubelets.asked); diff != "" {
		t.Errorf("asked of nodes: %s", diff)
	}
	cases := []struct {
		reason, path string
		change       func(*http.Request)
		code         int
		want         string
	}{
		{"nobody", path, func(r *http.Request) { r.TLS = nil }, 401, "only the API server"},
		{"a user's header without the proxy", path, func(r *http.Request) { r.TLS = &tls.ConnectionState{} }, 401, "only the API server"},
		{"the group", Path, nil, 200, `"kind":"APIGroup"`},
		{"the version", Path + "/" + Version, nil, 200, `"name":"podstats"`},
		{"a namespace that is no tenant's", Path + "/" + Version + "/namespaces/" + mapped + "/podstats", nil, 200, `"items":[]`},
		{"all namespaces", Path + "/" + Version + "/podstats", nil, 404, "tenant namespaces only"},
		{"something else", Path + "/" + Version + "/namespaces/a/pods", nil, 404, "podstats only"},
		{"a path within a path", Path + "/" + Version + "/namespaces/a/b/podstats", nil, 404, "podstats only"},
		{"writing", path, func(r *http.Request) { r.Method = http.MethodDelete }, 405, "can only be listed"},
		{"too many at once", path, func(*http.Request) { h.places <- struct{}{} }, 429, "try again"},
	}
	for _, c := range cases {
		if code, text := get(c.path, c.change); code != c.code || !strings.Contains(text, c.want) {
			t.Errorf("%s: got %d %s", c.reason, code, text)
		}
	}
}

// slow is kubelets that answer when they are told to.
type slow struct{ asked, answer chan struct{} }

func (s slow) read(context.Context, []*corev1.Node) figures {
	s.asked <- struct{}{}
	<-s.answer
	return nil
}

// A tenant that asks many times at once keeps no place from the others.
func TestOnePlacePerTenant(t *testing.T) {
	c := kubetest.Server(t).Client(t)
	path := Path + "/" + Version + "/namespaces/" + v1alpha1.TenantNamespace("greedy") + "/" + Resource
	r, trusted := front(t, path)
	kubelets := slow{make(chan struct{}, 2), make(chan struct{})}
	h := &handler{kubelets: kubelets, places: make(chan struct{}, 2), options: Options{Reader: c, Authorities: trusted, Clock: clock.RealClock{}, Logger: logr.Discard()}}
	codes := make(chan int, 4)
	for range 4 {
		go func() {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r.Clone(t.Context()))
			codes <- w.Code
		}()
	}
	<-kubelets.asked
	if len(h.places) != 1 {
		t.Errorf("%d places are taken", len(h.places))
	}
	close(kubelets.answer)
	for range 4 {
		if code := <-codes; code != 200 {
			t.Errorf("got %d", code)
		}
	}
}

// kubelet plays a node's kubelet behind a certificate.
func kubelet(t testing.TB, cert *x509.Certificate, key *ecdsa.PrivateKey, serve http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewUnstartedServer(serve)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}}}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func TestKubelets(t *testing.T) {
	ca, caKey := newCA(t)
	server := func(change func(*x509.Certificate)) *x509.Certificate {
		c := &x509.Certificate{Subject: pkix.Name{CommonName: "system:node:n"}, IPAddresses: []net.IP{net.ParseIP("192.0.2.1")}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
		if change != nil {
			change(c)
		}
		return c
	}
	good, goodKey := certificate(t, server(nil), ca, caKey)
	self, selfKey := certificate(t, server(func(c *x509.Certificate) { c.IPAddresses = nil }), nil, nil)
	old, oldKey := certificate(t, server(func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	}), ca, caKey)
	named, namedKey := certificate(t, server(func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.ParseIP("192.0.2.9")} }), ca, caKey)
	const said = `{"node":{"nodeName":"n"},"pods":[{"podRef":{"uid":"u"},"containers":[{"name":"web","startTime":"2026-01-01T00:00:00Z","cpu":{"time":"2026-01-01T00:00:01Z","usageNanoCores":5,"usageCoreNanoSeconds":6},"memory":{"workingSetBytes":7}}]},{"podRef":{"uid":""}}]}`
	serve := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer narrow" || r.URL.String() != "/stats/summary?only_cpu_and_memory=true" {
				w.WriteHeader(401)
			}
			fmt.Fprint(w, text)
		}
	}
	cases := []struct {
		reason string
		cert   *x509.Certificate
		key    *ecdsa.PrivateKey
		serve  http.HandlerFunc
		pods   int
	}{
		{"of the cluster's authority", good, goodKey, serve(said), 1},
		{"that signs for itself", self, selfKey, serve(said), 1},
		{"of the authority, expired", old, oldKey, serve(said), 0},
		{"of the authority, for another address", named, namedKey, serve(said), 0},
		{"that redirects", good, goodKey, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://example.com", http.StatusFound)
		}, 0},
		{"that says nonsense", good, goodKey, serve(`[]`), 0},
		{"that says too much", good, goodKey, serve(`{"pods":[` + strings.Repeat(`{"podRef":{"uid":"x"}},`, maxPods) + `{}]}`), 0},
		{"that is too long", good, goodKey, serve(`{"x":"` + strings.Repeat("x", maxSummary) + `"}`), 0},
	}
	for _, c := range cases {
		address := kubelet(t, c.cert, c.key, c.serve)
		k, err := newKubelets(Options{Clock: clock.RealClock{}, Logger: logr.Discard(), Config: &rest.Config{TLSClientConfig: rest.TLSClientConfig{
			CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw}),
		}}})
		if err != nil {
			t.Fatal(err)
		}
		k.token, k.aged = "narrow", time.Now().Add(time.Hour)
		asked := ""
		k.dial = func(ctx context.Context, network, at string) (net.Conn, error) {
			asked = at
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}}}
		got := k.read(t.Context(), []*corev1.Node{node})
		if len(got["n"]) != c.pods || asked != "192.0.2.1:10250" {
			t.Errorf("%s: got %v from %s", c.reason, got, asked)
		}
		if c.pods == 0 {
			continue
		}
		if one := got["n"]["u"].containers[0]; *one.CPUNanoCores != 5 || *one.CPUCoreNanoSeconds != 6 || *one.WorkingSetBytes != 7 {
			t.Errorf("%s: got %v", c.reason, one)
		}
		asked = ""
		if k.read(t.Context(), []*corev1.Node{node}); asked != "" {
			t.Errorf("%s: asked again at once", c.reason)
		}
		k.client.CloseIdleConnections()
	}
	for _, address := range []string{"127.0.0.1", "169.254.169.254", "0.0.0.0", "kubernetes.default.svc"} {
		node := &corev1.Node{Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}}}
		if at, err := addressOf(node); err == nil {
			t.Errorf("a kubelet is looked for at %s", at)
		}
	}
}

// fakePeer is a provider of the client.
type fakePeer struct {
	base *url.URL
	rt   http.RoundTripper
	err  error
}

func (f *fakePeer) TenantNamespace() string                      { return "pelago-tenant-rome" }
func (f *fakePeer) Stream() (*url.URL, http.RoundTripper, error) { return f.base, f.rt, f.err }

func TestClient(t *testing.T) {
	var count atomic.Int64
	var text atomic.Value
	text.Store(`{"kind":"PodStatsList","items":[{"metadata":{"uid":"u"},"containers":[{"name":"web","workingSetBytes":5},{"name":"web","workingSetBytes":6},{"name":"we b"}]},{"metadata":{}}]}`)
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		count.Add(1)
		if r.URL.Path != "/apis/stats.pelago.dev/v1alpha1/namespaces/pelago-tenant-rome/podstats" {
			w.WriteHeader(404)
		}
		fmt.Fprint(w, text.Load())
	}))
	t.Cleanup(s.Close)
	base, _ := url.Parse(s.URL)
	p := &fakePeer{base: base, rt: s.Client().Transport}
	now := testingclock.NewFakePassiveClock(time.Unix(2e9, 0))
	c := NewClient(func(name string) (Peer, bool) { return p, name == "milan" }, now)
	if count.Load() != 0 {
		t.Error("asked before anybody wanted to know")
	}
	for range 3 {
		pods, err := c.Pods(t.Context(), "milan")
		if err != nil || len(pods) != 1 || len(pods[0].Containers) != 1 || *pods[0].Containers[0].WorkingSetBytes != 5 {
			t.Fatalf("got %v, %v", pods, err)
		}
	}
	if count.Load() != 1 {
		t.Errorf("asked %d times within ten seconds", count.Load())
	}
	now.SetTime(now.Now().Add(usableFor))
	text.Store("nonsense")
	for range 2 {
		if _, err := c.Pods(t.Context(), "milan"); err == nil {
			t.Error("nonsense was taken")
		}
	}
	if count.Load() != 2 || len(c.kept) != 1 {
		t.Errorf("asked %d times, %d answers kept", count.Load(), len(c.kept))
	}
	if _, err := c.Pods(t.Context(), "paris"); !errors.Is(err, errGone) {
		t.Errorf("no peering: %v", err)
	}
}

// What a provider whose clock is ahead says of one moment is of that moment whenever it is asked; figures with a time
// of their own each time would be rates that nobody has.
func TestTimesAhead(t *testing.T) {
	now := time.Unix(2e9, 0)
	said := func(ahead time.Duration) string {
		at := now.Add(ahead).UTC().Format(time.RFC3339)
		return fmt.Sprintf(`{"items":[{"metadata":{"uid":"u"},"startTime":%[1]q,"containers":[{"name":"web","startTime":%[1]q,"cpuTime":%[1]q,"cpuCoreNanoSeconds":5,"memoryTime":%[1]q}]}]}`, at)
	}
	for _, c := range []struct{ ahead, want time.Duration }{
		{-time.Minute, -time.Minute}, {30 * time.Second, 30 * time.Second}, {maxAhead, maxAhead}, {24 * time.Hour, 0},
	} {
		for _, later := range []time.Duration{0, 15 * time.Second} {
			pods, err := read(strings.NewReader(said(c.ahead)), now.Add(later))
			if err != nil || len(pods) != 1 {
				t.Fatalf("%s ahead: got %v, %v", c.ahead, pods, err)
			}
			want := now.Add(c.want)
			if c.ahead > maxAhead {
				want = want.Add(later)
			}
			one := pods[0].Containers[0]
			for _, got := range []metav1.Time{pods[0].StartTime, one.StartTime, one.CPUTime, one.MemoryTime} {
				if !got.Time.Equal(want) {
					t.Errorf("%s ahead, asked after %s: got %s, want %s", c.ahead, later, got.UTC(), want.UTC())
				}
			}
		}
	}
}

// Whatever a provider says, what is taken of it is bounded and can be true.
func FuzzPodStats(f *testing.F) {
	f.Add([]byte(`{"items":[{"metadata":{"uid":"u"},"containers":[{"name":"web","cpuCoreNanoSeconds":18446744073709551615,"cpuTime":"2999-01-01T00:00:00Z"}]}]}`))
	f.Add([]byte(`{"items":null}`))
	f.Add([]byte(`{"items":{},"items":[1]}`))
	now := time.Unix(2e9, 0)
	f.Fuzz(func(t *testing.T, text []byte) {
		pods, err := read(strings.NewReader(string(text)), now)
		if err == nil && len(pods) > maxPods {
			t.Errorf("%d pods", len(pods))
		}
		for _, p := range pods {
			for _, c := range p.Containers {
				if newest := now.Add(maxAhead); c.CPUTime.After(newest) || c.MemoryTime.After(newest) || c.StartTime.After(newest) || c.WorkingSetBytes != nil && *c.WorkingSetBytes > maxFigure || c.Restarts < 0 {
					t.Errorf("took %v", c)
				}
			}
		}
		_, _ = take(strings.NewReader(string(text)))
	})
}
