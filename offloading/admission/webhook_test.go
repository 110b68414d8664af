package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// shelf is a cache with fixed content.
type shelf struct {
	err        error
	namespaces map[string]*corev1.Namespace
	offloading map[string]*v1alpha1.NamespaceOffloading
	nodes      []corev1.Node
	offers     map[client.ObjectKey]*v1alpha1.ResourceOffer
	refusals   map[string][]v1alpha1.Refusal
}

func (s *shelf) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	if s.err != nil {
		return s.err
	}
	missing := apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	switch o := obj.(type) {
	case *corev1.Namespace:
		if n := s.namespaces[key.Name]; n != nil {
			n.DeepCopyInto(o)
			return nil
		}
	case *v1alpha1.NamespaceOffloading:
		if n := s.offloading[key.Namespace]; n != nil {
			n.DeepCopyInto(o)
			return nil
		}
	case *v1alpha1.ResourceOffer:
		if n := s.offers[key]; n != nil {
			n.DeepCopyInto(o)
			return nil
		}
	}
	return missing
}

func (s *shelf) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if s.err != nil {
		return s.err
	}
	var o client.ListOptions
	o.ApplyOptions(opts)
	switch l := list.(type) {
	case *corev1.NodeList:
		l.Items = s.nodes
	case *v1alpha1.NamespaceMapList:
		l.Items = []v1alpha1.NamespaceMap{{Status: v1alpha1.NamespaceMapStatus{Refusals: s.refusals[o.Namespace]}}}
	}
	return nil
}

func newShelf() *shelf {
	milan, oslo := remoteNode("milan"), remoteNode("oslo")
	return &shelf{
		namespaces: map[string]*corev1.Namespace{
			"shop":     {ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.LabelOffloaded: "true"}}},
			"labelled": {ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.LabelOffload: "true"}}},
			"remote":   {}, "ending": {},
		},
		offloading: map[string]*v1alpha1.NamespaceOffloading{
			"remote": {Spec: v1alpha1.NamespaceOffloadingSpec{PodOffloadingStrategy: v1alpha1.PodsRemote}},
			"ending": {ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: time.Now()}}, Spec: v1alpha1.NamespaceOffloadingSpec{PodOffloadingStrategy: v1alpha1.PodsRemote}},
		},
		nodes:    []corev1.Node{*milan, *oslo},
		offers:   map[client.ObjectKey]*v1alpha1.ResourceOffer{},
		refusals: map[string][]v1alpha1.Refusal{},
	}
}

func handlerOf(t testing.TB, s *shelf) (http.Handler, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	h, err := Handler(Options{Reader: s, Metrics: registry, Clock: clocktesting.NewFakePassiveClock(time.Now())})
	if err != nil {
		t.Fatal(err)
	}
	return h, registry
}

func reviewOf(namespace, pod string) string {
	return `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u1","resource":{"group":"","version":"v1","resource":"pods"},` +
		`"operation":"CREATE","namespace":"` + namespace + `","object":` + pod + `}}`
}

func post(h http.Handler, body string) *httptest.ResponseRecorder { return postAt(h, Path, body) }

func postAt(h http.Handler, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func answerOf(t *testing.T, w *httptest.ResponseRecorder) *admissionv1.AdmissionResponse {
	t.Helper()
	var out admissionv1.AdmissionReview
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || w.Code != http.StatusOK || out.Response == nil {
		t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	if out.APIVersion != "admission.k8s.io/v1" || out.Kind != "AdmissionReview" || out.Response.UID != "u1" {
		t.Errorf("the answer is not to this request: %s", w.Body)
	}
	return out.Response
}

const smallPod = `{"metadata":{"ownerReferences":[{"kind":"ReplicaSet","uid":"rs1","controller":true}]},"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"2"}}}]}}`

// TestAnswers: what is decided by what the cache says of the namespace.
func TestAnswers(t *testing.T) {
	future, past := metav1.NewTime(time.Now().Add(time.Hour)), metav1.NewTime(time.Now().Add(-time.Hour))
	refused := func(node, owner string, until metav1.Time) func(*shelf) {
		return func(s *shelf) {
			s.refusals["pelago-peering-milan"] = []v1alpha1.Refusal{{Owner: owner, Node: node, Count: 1, Until: until}}
		}
	}
	tenants := func(labels ...string) func(*shelf) {
		return func(s *shelf) {
			for _, n := range s.namespaces {
				metav1.SetMetaDataLabel(&n.ObjectMeta, v1alpha1.LabelTenant, "milan")
				for i := 0; i < len(labels); i += 2 {
					n.Labels[labels[i]] = labels[i+1]
				}
			}
		}
	}
	left := func(name, reason string) v1alpha1.ClusterOffloading {
		return v1alpha1.ClusterOffloading{Name: name, Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionOffloadingRequired, Status: metav1.ConditionFalse, Reason: reason}}}
	}
	for _, c := range []struct {
		reason, namespace string
		change            func(*shelf)
		allowed           bool
		contains          []string
		lacks             []string
	}{
		{"strategy of the namespace", "remote", nil, true, []string{v1alpha1.TaintVirtualNode, `"operator":"In"`}, []string{"NotIn"}},
		{"the label alone means the defaults", "labelled", nil, true, []string{v1alpha1.TaintVirtualNode, "NotIn"}, nil},
		{"neither: it has just ended", "shop", nil, true, nil, []string{v1alpha1.TaintVirtualNode}},
		{"what ends brings pods home", "ending", nil, true, nil, []string{v1alpha1.TaintVirtualNode}},
		{"refused lately", "remote", refused("milan", "rs1", future), true, []string{`"key":"metadata.name","operator":"NotIn","values":["milan"]`}, nil},
		{"refused lately, which the pod says", "remote", refused("milan", "rs1", future), true, []string{`{"op":"add","path":"/metadata/annotations","value":{"pelago.dev/avoids":"milan"}}`}, nil},
		{"refused lately by the only one", "remote", func(s *shelf) {
			refused("milan", "rs1", future)(s)
			s.nodes = s.nodes[:1]
		}, true, nil, []string{"metadata.name", "avoids"}},
		{"refused lately by the only one that is ready", "remote", func(s *shelf) {
			refused("milan", "rs1", future)(s)
			s.nodes[1].Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}
		}, true, nil, []string{"metadata.name", "avoids"}},
		{"refused lately by the only one that is not cordoned", "remote", func(s *shelf) {
			refused("milan", "rs1", future)(s)
			s.nodes[1].Spec.Unschedulable = true
		}, true, nil, []string{"metadata.name", "avoids"}},
		{"refused lately by the only one, with home", "labelled", func(s *shelf) {
			refused("milan", "rs1", future)(s)
			s.nodes = s.nodes[:1]
		}, true, []string{`"values":["milan"]`, "avoids"}, nil},
		{"refused long ago", "remote", refused("milan", "rs1", past), true, nil, []string{"metadata.name"}},
		{"another owner was refused", "remote", refused("milan", "rs2", future), true, nil, []string{"metadata.name"}},
		{"too small", "remote", func(s *shelf) {
			s.offers[client.ObjectKey{Namespace: "pelago-peering-milan", Name: "default"}] = &v1alpha1.ResourceOffer{Spec: v1alpha1.ResourceOfferSpec{
				Resources: amounts("cpu", "8"), Shapes: []v1alpha1.NodeShape{{Largest: []v1alpha1.ResourceList{amounts("cpu", "1")}}}}}
		}, true, []string{`"values":["milan"]`}, nil},
		{"a tenant's that does not let it", "remote", tenants(), true, nil, []string{v1alpha1.TaintVirtualNode}},
		{"a tenant's that lets it", "remote", tenants(v1alpha1.LabelOnward, "true"), true, []string{v1alpha1.TaintVirtualNode}, nil},
		{"a tenant's of a tenant", "remote", tenants(v1alpha1.LabelOnward, "true", v1alpha1.LabelOriginNamespace, "shop"), true, nil, []string{v1alpha1.TaintVirtualNode}},
		{"one that was a tenant's", "remote", tenants(v1alpha1.LabelTenant, "", v1alpha1.LabelHomeNamespace, "shop"), true, nil, []string{v1alpha1.TaintVirtualNode}},
		{"a tenant's, with the label alone", "labelled", tenants(), true, nil, []string{v1alpha1.TaintVirtualNode}},
		{"a build that does not know of it", "remote", func(s *shelf) {
			s.offloading["remote"].Status.Clusters = []v1alpha1.ClusterOffloading{
				left("oslo", v1alpha1.ReasonNotSelected), left("paris", v1alpha1.ReasonUnsupported), left("milan", v1alpha1.ReasonUnsupported)}
		}, true, []string{`{"key":"pelago.dev/peering","operator":"NotIn","values":["milan","paris"]}`}, nil},
		{"the cache fails", "remote", func(s *shelf) { s.err = errors.New("no cache") }, false, []string{"pelago cannot say", "no cache", `"code":503`}, nil},
		{"a namespace that nobody knows", "nowhere", nil, false, []string{"pelago cannot say"}, nil},
	} {
		t.Run(c.reason, func(t *testing.T) {
			s := newShelf()
			if c.change != nil {
				c.change(s)
			}
			h, _ := handlerOf(t, s)
			w := post(h, reviewOf(c.namespace, smallPod))
			got := answerOf(t, w)
			if got.Allowed != c.allowed {
				t.Errorf("allowed %t: %s", got.Allowed, w.Body)
			}
			text := string(got.Patch) + w.Body.String()
			for _, want := range c.contains {
				if !strings.Contains(text, want) {
					t.Errorf("no %s in %s", want, text)
				}
			}
			for _, not := range c.lacks {
				if strings.Contains(text, not) {
					t.Errorf("%s in %s", not, text)
				}
			}
		})
	}
}

// TestLive: a namespace younger than the cache is read from the API server.
func TestLive(t *testing.T) {
	h, err := Handler(Options{Reader: &shelf{}, Live: newShelf(), Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	if got := answerOf(t, post(h, reviewOf("remote", smallPod))); !got.Allowed || len(got.Patch) == 0 {
		t.Errorf("got %+v", got)
	}
}

// TestRequests: what is not the API server's business with us.
func TestRequests(t *testing.T) {
	h, registry := handlerOf(t, newShelf())
	for _, c := range []struct {
		reason, method, kind, body string
		code                       int
	}{
		{"reading", http.MethodGet, "application/json", "", http.StatusMethodNotAllowed},
		{"a form", http.MethodPost, "text/plain", "x", http.StatusUnsupportedMediaType},
		{"no JSON", http.MethodPost, "application/json", "{", http.StatusBadRequest},
		{"another kind", http.MethodPost, "application/json", `{"apiVersion":"v1","kind":"Pod"}`, http.StatusBadRequest},
		{"an old version", http.MethodPost, "application/json", `{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{"uid":"1"}}`, http.StatusBadRequest},
		{"no request", http.MethodPost, "application/json", `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`, http.StatusBadRequest},
		{"too large", http.MethodPost, "application/json", strings.Repeat(" ", maxBody+1), http.StatusRequestEntityTooLarge},
	} {
		r := httptest.NewRequest(c.method, Path, strings.NewReader(c.body))
		r.Header.Set("Content-Type", c.kind)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.code || w.Body.Len() == 0 {
			t.Errorf("%s: %d %q, want %d with a reason", c.reason, w.Code, w.Body, c.code)
		}
	}
	other := strings.Replace(reviewOf("remote", smallPod), `"resource":"pods"`, `"resource":"services"`, 1)
	if got := answerOf(t, post(h, other)); !got.Allowed || len(got.Patch) > 0 {
		t.Errorf("a Service is changed: %+v", got)
	}
	if got := answerOf(t, post(h, reviewOf("remote", `{"spec":{"containers":1}}`))); got.Allowed || got.Result.Code != http.StatusBadRequest {
		t.Errorf("a pod that is none: %+v", got)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := 0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if m.GetCounter().GetValue() > 0 || m.GetHistogram() != nil {
				counted++
			}
		}
	}
	if counted != 4 {
		t.Errorf("%d metrics; want malformed, ignored, refused and the time", counted)
	}
}

// Every outcome is counted from the beginning: an alert looks for an increase, which a series
// that begins with the trouble does not show.
func TestOutcomesAreThere(t *testing.T) {
	_, registry := handlerOf(t, newShelf())
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[outcome]bool{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "pelago_admission_pods_total" && m.GetCounter().GetValue() == 0 {
				found[outcome(m.GetLabel()[0].GetValue())] = true
			}
		}
	}
	if !found[outcomeFailed] || len(found) != 8 {
		t.Errorf("a new program counts %v", found)
	}
}

// TestFull: beyond the bound on all bodies together requests are sent away, not stored.
func TestFull(t *testing.T) {
	h, _ := handlerOf(t, newShelf())
	hook := h.(*webhook)
	if !hook.room.TryAcquire(maxInFlight) {
		t.Fatal("no room at the beginning")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := httptest.NewRequest(http.MethodPost, Path, io.NopCloser(bytes.NewReader([]byte("{}")))).WithContext(ctx)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("got %d", w.Code)
	}
	hook.room.Release(maxInFlight)
	answerOf(t, post(h, reviewOf("remote", smallPod)))
	if !hook.room.TryAcquire(maxInFlight) {
		t.Error("a request keeps its room after its end")
	}
}

// FuzzHandler: whoever reaches the port may send anything; the answer is quick, and an
// allowed patch is one that admission of the patched pod leaves alone.
func FuzzHandler(f *testing.F) {
	f.Add(reviewOf("remote", smallPod))
	f.Add(reviewOf("labelled", `{"spec":{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{},{"matchExpressions":[{"key":"a","operator":"In","values":["b"]}]}]}}}}}`))
	f.Add(reviewOf("remote", `{"spec":{"containers":[{"resources":{"requests":{"cpu":"1e999999999","memory":9e99999999}}}],"overhead":{"cpu":"1e-999999999"}}}`))
	f.Add(reviewOf("remote", `{"spec":{"tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}]}}`))
	f.Add(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`)
	f.Fuzz(func(t *testing.T, body string) {
		s := newShelf()
		s.nodes[0].Labels["region"] = "it"
		registry := prometheus.NewRegistry()
		h, err := Handler(Options{Reader: s, Metrics: registry})
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		w := post(h, body)
		if took := time.Since(begun); took > time.Minute {
			t.Fatalf("the answer took %s", took)
		}
		if w.Code != http.StatusOK {
			return
		}
		var in, out admissionv1.AdmissionReview
		if json.Unmarshal([]byte(body), &in) != nil || json.Unmarshal(w.Body.Bytes(), &out) != nil || out.Response == nil {
			t.Fatalf("answered %s", w.Body)
		}
		if len(out.Response.Patch) > 0 && (!out.Response.Allowed || in.Request == nil) {
			t.Fatalf("a patch of what is refused: %s", w.Body)
		}
		pod, ok := normal(in.Request.Object.Raw)
		if !ok || s.namespaces[in.Request.Namespace] == nil && s.offloading[in.Request.Namespace] == nil {
			return
		}
		first := answerOfReview(t, post(h, reviewOf(in.Request.Namespace, pod)))
		if len(first.Patch) == 0 {
			return
		}
		patched := applyPatch(t, pod, first.Patch)
		if again := answerOfReview(t, post(h, reviewOf(in.Request.Namespace, string(patched)))); !again.Allowed || len(again.Patch) > 0 {
			t.Fatalf("asked again it patches again: %s\nthen %s, %+v", first.Patch, again.Patch, again.Result)
		}
	})
}

func answerOfReview(t *testing.T, w *httptest.ResponseRecorder) *admissionv1.AdmissionResponse {
	t.Helper()
	var out admissionv1.AdmissionReview
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || out.Response == nil {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return out.Response
}

// BenchmarkAnswer is one pod of a ReplicaSet among 100 virtual nodes.
func BenchmarkAnswer(b *testing.B) {
	s := newShelf()
	s.nodes = nil
	for i := range 100 {
		s.nodes = append(s.nodes, *remoteNode("n" + string(rune('a'+i%26)) + string(rune('a'+i/26))))
	}
	h, _ := handlerOf(b, s)
	body := reviewOf("remote", smallPod)
	for b.Loop() {
		if w := post(h, body); w.Code != http.StatusOK {
			b.Fatal(w.Body)
		}
	}
}

// asked counts what is read.
type asked struct {
	client.Reader
	times int
}

func (a *asked) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	a.times++
	return a.Reader.Get(ctx, key, obj, opts...)
}

// TestLiveReads: whoever asks about namespaces that are nowhere does not have the API
// server asked without end, and namespaces that are known are answered for all the same.
func TestLiveReads(t *testing.T) {
	s, live := newShelf(), &asked{Reader: newShelf()}
	now := clocktesting.NewFakePassiveClock(time.Now())
	h, err := Handler(Options{Reader: s, Live: live, Metrics: prometheus.NewRegistry(), Clock: now})
	if err != nil {
		t.Fatal(err)
	}
	flood := func() {
		for range 10 * liveBurst {
			if w := post(h, reviewOf("nowhere", smallPod)); answerOf(t, w).Allowed || !strings.Contains(w.Body.String(), `"code":503`) {
				t.Fatalf("answered %s", w.Body)
			}
		}
	}
	if flood(); live.times != liveBurst {
		t.Errorf("%d live reads at once, want %d", live.times, liveBurst)
	}
	if answer := answerOf(t, post(h, reviewOf("remote", smallPod))); !answer.Allowed {
		t.Errorf("a namespace that is known: %+v", answer.Result)
	}
	now.SetTime(now.Now().Add(time.Second))
	if flood(); live.times != liveBurst+liveRate {
		t.Errorf("%d live reads after a second, want %d", live.times, liveBurst+liveRate)
	}
}
