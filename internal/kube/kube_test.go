package kube

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// newClient is one of a few kinds.
func newClient(t *testing.T, config *rest.Config) *Client {
	t.Helper()
	scheme, mapper := runtime.NewScheme(), apimeta.NewDefaultRESTMapper(nil)
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, coordinationv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), apimeta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), apimeta.RESTScopeRoot)
	mapper.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), apimeta.RESTScopeNamespace)
	mapper.Add(v1alpha1.GroupVersion.WithKind("NetworkConfig"), apimeta.RESTScopeNamespace)
	c, err := New(config, scheme, mapper)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// front is a server in front of the API server of tests, which is told what to do.
type front struct {
	*httptest.Server
	mu     sync.Mutex
	judge  func(w http.ResponseWriter, r *http.Request) (answered bool)
	asked  []*http.Request
	behind http.Handler
	// streams are the watches that go on.
	streams map[*stream]bool
}

// stream is a watch, into which can be written.
type stream struct {
	*io.PipeReader
	in   *io.PipeWriter
	from io.Closer
}

// Close ends it at both ends.
func (s *stream) Close() error { return errors.Join(s.PipeReader.Close(), s.from.Close()) }

// watched takes a watch into the streams.
func (f *front) watched(r *http.Response) error {
	if r.Request.URL.Query().Get("watch") == "" || r.StatusCode != http.StatusOK {
		return nil
	}
	out, in := io.Pipe()
	s, from := &stream{out, in, r.Body}, r.Body
	r.Body = s
	f.mu.Lock()
	f.streams[s] = true
	f.mu.Unlock()
	go func() {
		_, err := io.Copy(in, from)
		_ = in.CloseWithError(err)
		f.mu.Lock()
		delete(f.streams, s)
		f.mu.Unlock()
	}()
	return nil
}

// watches are the streams that there are.
func (f *front) watches() []*stream {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Keys(f.streams))
}

// say says something in all watches, and ends them.
func (f *front) say(text string) (heard int) {
	for _, s := range f.watches() {
		if _, err := io.WriteString(s.in, text); err == nil {
			heard++
		}
		_ = s.in.Close()
	}
	return heard
}

func newFront(t *testing.T, begin func(*httptest.Server)) (*front, *kubetest.APIServer) {
	t.Helper()
	api := kubetest.Server(t)
	transport, err := rest.TransportFor(api.Config)
	if err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(api.Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	f := &front{streams: map[*stream]bool{}}
	f.behind = &httputil.ReverseProxy{Transport: transport, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Header.Del("Authorization")
	}, ModifyResponse: f.watched, ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }}
	f.Server = httptest.NewUnstartedServer(f)
	begin(f.Server)
	t.Cleanup(func() {
		f.CloseClientConnections()
		f.Close()
	})
	return f, api
}

// ServeHTTP answers as it was told to, or as the API server does.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	judge := f.judge
	f.asked = append(f.asked, r)
	f.mu.Unlock()
	if judge == nil || !judge(w, r) {
		f.behind.ServeHTTP(w, r)
	}
}

// now has it judge requests from now on, those that wait for an answer too.
func (f *front) now(judge func(w http.ResponseWriter, r *http.Request) bool) {
	f.judging(judge)
	f.CloseClientConnections()
}

// judging has it judge new requests.
func (f *front) judging(judge func(w http.ResponseWriter, r *http.Request) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.judge = judge
}

// heads are the values of a header in what was asked with a method.
func (f *front) heads(method, name string) (all []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.asked {
		if r.Method == method {
			all = append(all, r.Header.Get(name))
		}
	}
	return all
}

func until(t *testing.T, what string, done func() bool) {
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

// TestClient holds that objects are read and written, Kubernetes' own as protobuf, and that nothing of an
// object stays that was there before it was read.
func TestClient(t *testing.T) {
	f, api := newFront(t, (*httptest.Server).Start)
	api.Client(t) // which makes our kinds known
	c, namespace := newClient(t, &rest.Config{Host: f.URL}), api.Namespace(t)
	of := metav1.ObjectMeta{Namespace: namespace, Name: "one", Annotations: map[string]string{"was": "here"}}
	lease, own := &coordinationv1.Lease{ObjectMeta: of}, &v1alpha1.NetworkConfig{ObjectMeta: of}
	own.Name, own.Spec.Pods = v1alpha1.NetworkProvider, []string{"10.1.0.0/16"}
	for _, o := range []Object{lease, own} {
		if err := c.Create(t.Context(), o); err != nil || o.GetUID() == "" {
			t.Fatalf("making %T: %v", o, err)
		}
		uid := o.GetUID()
		if err := c.Create(t.Context(), o.DeepCopyObject().(Object)); err == nil {
			t.Errorf("making %T again is no error", o)
		}
		if err := c.Patch(t.Context(), o, types.MergePatchType, []byte(`{"metadata":{"annotations":{"was":null,"is":"here"}}}`)); err != nil {
			t.Fatal(err)
		}
		o.SetAnnotations(map[string]string{"other": "where"})
		if err := c.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: o.GetName()}, o); err != nil {
			t.Fatal(err)
		}
		if a := o.GetAnnotations(); o.GetUID() != uid || len(a) != 1 || a["is"] != "here" {
			t.Errorf("%T is read as %v", o, o)
		}
	}
	if err := c.Get(t.Context(), types.NamespacedName{Name: "none"}, &corev1.Node{}); !apierrors.IsNotFound(err) {
		t.Errorf("what is not there: %v", err)
	}
	if got := strings.Join(f.heads(http.MethodPost, "Content-Type"), " "); got != "application/vnd.kubernetes.protobuf application/vnd.kubernetes.protobuf application/json application/json" {
		t.Errorf("objects are written as %s", got)
	}
	if got := f.heads(http.MethodGet, "Accept"); !strings.HasPrefix(got[0], "application/vnd.kubernetes.protobuf") || !strings.HasPrefix(got[1], "application/json") {
		t.Errorf("objects are wanted as %s", got)
	}
	for _, wrong := range []Object{&corev1.Pod{}, &metav1.PartialObjectMetadata{}} {
		if err := c.Get(t.Context(), types.NamespacedName{Name: "x"}, wrong); err == nil {
			t.Errorf("%T can be read", wrong)
		}
	}
}

// TestAuthority holds that who answers has to have a certificate of the authority in a file.
func TestAuthority(t *testing.T) {
	f, api := newFront(t, (*httptest.Server).StartTLS)
	authority := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	key := types.NamespacedName{Namespace: api.Namespace(t), Name: "none"}
	c := newClient(t, &rest.Config{Host: f.URL, TLSClientConfig: rest.TLSClientConfig{CAFile: authority}})
	if err := c.Get(t.Context(), key, &corev1.ConfigMap{}); !apierrors.IsNotFound(err) {
		t.Errorf("a server of the authority: %v", err)
	}
	if err := newClient(t, &rest.Config{Host: f.URL}).Get(t.Context(), key, &corev1.ConfigMap{}); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a server that nobody vouches for: %v", err)
	}
}

// TestToken holds, in a time of its own, that a token is read from its file again: an API server takes
// it for an hour.
func TestToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file, seen := filepath.Join(t.TempDir(), "token"), ""
		write := func(token string) {
			if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("first")
		c := newClient(t, &rest.Config{Host: "http://api", BearerTokenFile: file, Transport: answers(func(r *http.Request) {
			seen = r.Header.Get("Authorization")
		})})
		get := func() {
			if err := c.Get(t.Context(), types.NamespacedName{Namespace: "x", Name: "none"}, &corev1.ConfigMap{}); !apierrors.IsNotFound(err) {
				t.Errorf("what is not there: %v", err)
			}
		}
		if get(); seen != "Bearer first" {
			t.Errorf("it asks with %q", seen)
		}
		write("second")
		<-time.After(2 * time.Minute)
		if get(); seen != "Bearer second" {
			t.Errorf("two minutes later it asks with %q", seen)
		}
	})
}

// answers is a server that has nothing.
type answers func(*http.Request)

// RoundTrip answers that.
func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	a(r)
	w := httptest.NewRecorder()
	http.NotFound(w, r)
	return w.Result(), nil
}

// run runs a cache until the test ends or stop is called.
func run(t *testing.T, ctx context.Context, c *Cache) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() { c.Run(ctx); close(ended) }()
	stop = func() { cancel(); <-ended }
	t.Cleanup(stop)
	return stop
}
