package kubelet

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func itoa(n int32) string { return strconv.Itoa(int(n)) }

// do sends a request and returns the status and the text.
func do(t *testing.T, c *http.Client, method, url, token string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// Every endpoint, and what is none, without credentials, without rights and with them.
func TestEveryRequestIsAuthorised(t *testing.T) {
	reached := 0
	s := newStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reached++
		fmt.Fprint(w, "a line")
	}))
	other := newAuthority(t)
	strangers := map[string]*tls.Certificate{"nobody": nil, "a certificate of another authority": other.user(t, "system:masters")}
	cases := []struct {
		method, path string
		with         int
	}{
		{"GET", "/healthz", 200}, {"GET", "/pods", 200}, {"GET", "/pods/", 200}, {"GET", "/runningpods/", 200}, {"GET", "/stats/summary", 200},
		{"GET", "/metrics", 200}, {"GET", "/metrics/resource", 200},
		{"GET", "/containerLogs/shop/web-0/web", 200},
		{"GET", "/exec/shop/web-0/web?command=ls&output=1", 400}, {"POST", "/exec/shop/web-0/web?command=ls&output=1", 400},
		{"POST", "/exec/shop/web-0/" + podUID + "/web?command=ls&output=1", 400},
		{"GET", "/attach/shop/web-0/web?output=1", 400}, {"POST", "/attach/shop/web-0/web?output=1", 400},
		{"GET", "/portForward/shop/web-0", 400}, {"POST", "/portForward/shop/web-0", 400},
		{"POST", "/run/shop/web-0/web?cmd=ls", 404}, {"GET", "/configz", 404}, {"GET", "/debug/pprof/heap", 404}, {"GET", "/logs/", 404},
		{"GET", "/checkpoint/shop/web-0/web", 404}, {"PUT", "/pods", 404}, {"DELETE", "/containerLogs/shop/web-0/web", 404},
		{"GET", "/", 404}, {"GET", "/stats/../exec/shop/web-0/web", 404}, {"GET", "//exec/shop/web-0/web", 404},
	}
	for _, c := range cases {
		for who, certificate := range strangers {
			if got, text := do(t, s.caller(t, certificate), c.method, s.url(c.path), ""); got != 401 || text != "Unauthorized\n" {
				t.Errorf("%s %s by %s: got %d %q", c.method, c.path, who, got, text)
			}
		}
		if got, _ := do(t, s.caller(t, s.not), c.method, s.url(c.path), ""); got != 403 {
			t.Errorf("%s %s without rights: got %d", c.method, c.path, got)
		}
		before := reached
		if got, text := do(t, s.caller(t, s.may), c.method, s.url(c.path), ""); got != c.with {
			t.Errorf("%s %s with all rights: got %d, want %d: %s", c.method, c.path, got, c.with, text)
		}
		if carried := reached > before; carried != strings.HasPrefix(c.path, "/containerLogs") && c.with == 200 {
			t.Errorf("%s %s reached the provider: %t", c.method, c.path, carried)
		}
	}
	if reached != 1 {
		t.Errorf("the provider was reached %d times, want once", reached)
	}
}

// A token of a service account counts as well, with just the rights it has: whoever
// reads metrics reads no logs.
func TestTokens(t *testing.T) {
	s := newStage(t, http.NotFoundHandler())
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.cluster.Namespace(t), Name: "metrics"}}
	if err := s.client.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	user := "system:serviceaccount:" + account.Namespace + ":metrics"
	rule := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes/metrics", "nodes/stats"}, Verbs: []string{"get"}}
	s.allow(t, user, rule)
	s.await(t, user, "get", "metrics")
	request := &authenticationv1.TokenRequest{}
	if err := s.client.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	token := request.Status.Token
	for path, want := range map[string]int{
		"/metrics/resource": 200, "/stats/summary": 200, "/metrics": 200,
		"/containerLogs/shop/web-0/web": 403, "/pods": 403, "/healthz": 403, "/exec/shop/web-0/web?command=ls&output=1": 403,
	} {
		if got, text := do(t, s.caller(t, nil), "GET", s.url(path), token); got != want {
			t.Errorf("%s: got %d, want %d: %s", path, got, want, text)
		}
	}
	if got, _ := do(t, s.caller(t, nil), "GET", s.url("/metrics"), "made.up.token"); got != 401 {
		t.Errorf("a made-up token: got %d", got)
	}
}

// Who may get nodes/proxy, as monitoring often may, must not run commands by GET.
func TestCommandsNeedCreate(t *testing.T) {
	s := newStage(t, http.NotFoundHandler())
	name := s.cluster.Name(t, "reader")
	s.allow(t, name, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes/proxy"}, Verbs: []string{"get"}})
	s.await(t, name, "get", "proxy")
	reader := s.ca.user(t, name)
	for path, want := range map[string]int{
		"/exec/shop/web-0/web?command=ls&output=1": 403, "/attach/shop/web-0/web?output=1": 403, "/portForward/shop/web-0?port=80": 403,
		"/pods": 200,
	} {
		if got, text := do(t, s.caller(t, reader), "GET", s.url(path), ""); got != want {
			t.Errorf("%s: got %d, want %d: %s", path, got, want, text)
		}
	}
}

func TestAttributes(t *testing.T) {
	cases := []struct {
		reason, method, path string
		want                 []string
	}{
		{"pods have their own subresource", "GET", "/pods", []string{"get pods", "get proxy"}},
		{"running pods too", "GET", "/runningpods/", []string{"get pods", "get proxy"}},
		{"a name that only begins alike is none of them", "GET", "/podsandmore", []string{"get proxy"}},
		{"health", "GET", "/healthz/ping", []string{"get healthz", "get proxy"}},
		{"figures", "GET", "/stats/summary", []string{"get stats"}},
		{"metrics", "GET", "/metrics/resource", []string{"get metrics"}},
		{"the node's logs", "GET", "/logs/x", []string{"get log"}},
		{"settings", "GET", "/configz", []string{"get configz", "get proxy"}},
		{"containers' logs", "GET", "/containerLogs/a/b/c", []string{"get proxy"}},
		{"commands, by POST", "POST", "/exec/a/b/c", []string{"create proxy"}},
		{"commands, by a WebSocket", "GET", "/exec/a/b/c", []string{"create proxy"}},
		{"connections", "GET", "/portForward/a/b", []string{"create proxy"}},
		{"a method nobody needs has no verb", "OPTIONS", "/pods", []string{" pods", " proxy"}},
		{"deleting", "DELETE", "/x", []string{"delete proxy"}},
	}
	for _, c := range cases {
		var got []string
		for _, a := range attributes("milan", c.method, c.path) {
			if a.Resource.Name != "milan" || a.Resource.Resource != "nodes" || a.Resource.Group != "" || a.Path != nil {
				t.Errorf("%s: asks about %v", c.reason, a)
			}
			got = append(got, a.Resource.Verb+" "+a.Resource.Subresource)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", c.reason, diff)
		}
	}
}

// Metrics have no label that callers make up.
func TestEndpoint(t *testing.T) {
	for path, want := range map[string]string{"/exec/a/b/c": "exec", "/x": "other", "/": "other", strings.Repeat("/x", 100): "other"} {
		if got := endpoint(segments(path)); got != want {
			t.Errorf("%q: got %s, want %s", path, got, want)
		}
	}
}

// A port is its node's as long as the process lives, and afterwards if it is free.
func TestPorts(t *testing.T) {
	s := newStage(t, http.NotFoundHandler())
	told := []string{}
	first := s.kubelets.Ports(s.node.Name)
	if first == 0 || s.kubelets.Ports("unknown") != 0 {
		t.Fatalf("ports are %d and %d", first, s.kubelets.Ports("unknown"))
	}
	s.kubelets.close(s.node.Name)
	if got := s.kubelets.Ports(s.node.Name); got != 0 {
		t.Errorf("closed, it has port %d", got)
	}
	other := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
	if _, err := s.kubelets.open(other); err != nil {
		t.Fatal(err)
	}
	if _, err := s.kubelets.open(s.node); err != nil {
		t.Fatal(err)
	}
	if again := s.kubelets.Ports(s.node.Name); again != first || s.kubelets.Ports("other") == first {
		t.Errorf("back, it has port %d, and had %d", again, first)
	}
	_ = told
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.kubelets.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := s.kubelets.open(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "late"}}); err == nil {
		t.Error("a port was opened after the end")
	}
}

func TestBook(t *testing.T) {
	alive := map[string]bool{}
	b := newBook(100, 3)
	is := func(n string) bool { return alive[n] }
	cases := []struct {
		reason string
		node   string
		said   int32
		alive  []string
		want   []int32
	}{
		{"the lowest is first", "a", 0, nil, []int32{100, 101, 102}},
		{"what it says it has is taken up again", "a", 102, nil, []int32{102, 100, 101, 102}},
		{"what it says is out of range", "a", 80, nil, []int32{100, 101, 102}},
	}
	for _, c := range cases {
		if diff := cmp.Diff(c.want, b.candidates(c.node, c.said, is)); diff != "" {
			t.Errorf("%s: %s", c.reason, diff)
		}
	}
	b.note("a", 100)
	b.note("b", 101)
	alive["a"], alive["b"] = true, true
	if diff := cmp.Diff([]int32{102}, b.candidates("c", 101, is)); diff != "" {
		t.Errorf("what another has cannot be had: %s", diff)
	}
	if diff := cmp.Diff([]int32{100, 102}, b.candidates("a", 0, is)); diff != "" {
		t.Errorf("its own is first: %s", diff)
	}
	alive["b"] = false
	if diff := cmp.Diff([]int32{102, 101}, b.candidates("c", 101, is)); diff != "" {
		t.Errorf("that of one that is gone is last: %s", diff)
	}
	b.note("c", 101)
	if _, has := b.of["b"]; has || b.of["c"] != 101 || len(b.by) != 2 {
		t.Errorf("after taking over: %v %v", b.of, b.by)
	}
}

// TestStrangersKeepNoConnection holds that whoever is refused keeps no place by announcing a body that
// never comes.
func TestStrangersKeepNoConnection(t *testing.T) {
	s := newStage(t, http.NotFoundHandler())
	for who, certificate := range map[string]*tls.Certificate{"a stranger": nil, "a user without rights": s.not} {
		config := &tls.Config{InsecureSkipVerify: true} // self-made: who calls is what is tried, not whom
		if certificate != nil {
			config.Certificates = []tls.Certificate{*certificate}
		}
		c, err := tls.Dial("tcp", s.address(), config)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, "POST /exec/shop/web-0/web HTTP/1.1\r\nHost: node\r\nContent-Length: 10\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if err := c.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(text), "HTTP/1.1 40") {
			t.Errorf("%s has the connection, and %q: %v", who, text, err)
		}
	}
}
