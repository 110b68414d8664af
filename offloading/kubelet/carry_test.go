package kubelet

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// provider is what the test has a provider do, and what it saw.
type provider struct {
	mu    sync.Mutex
	serve http.HandlerFunc
	seen  *http.Request
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.seen = r.Clone(context.Background())
	serve := p.serve
	p.mu.Unlock()
	serve(w, r)
}

func (p *provider) set(serve http.HandlerFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.serve, p.seen = serve, nil
}

func (p *provider) last() *http.Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen
}

// echo switches protocols, sends back what comes, and "end" when no more comes.
func echo(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Connection", "Upgrade")
	w.Header().Set("Upgrade", r.Header.Get("Upgrade"))
	w.Header().Set("X-Stream-Protocol-Version", "v4.channel.k8s.io")
	w.Header().Set("Set-Cookie", "evil=1")
	w.WriteHeader(http.StatusSwitchingProtocols)
	c, in, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	_, _ = io.Copy(c, in) // a first byte may have been read by the server
	_, _ = io.WriteString(c, "end")
}

// upgrade opens a stream and returns the answer and the connection behind it.
func (s *stage) upgrade(t *testing.T, method, path, kind string, header http.Header) (*http.Response, *tls.Conn, *bufio.Reader) {
	t.Helper()
	// The certificate is self-made until a signer has signed; who serves has its own tests.
	c, err := tls.Dial("tcp", s.address(), &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{*s.may}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	r, err := http.NewRequest(method, s.url(path), nil)
	if err != nil {
		t.Fatal(err)
	}
	if header != nil {
		r.Header = header
	}
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", kind)
	if err := r.Write(c); err != nil {
		t.Fatal(err)
	}
	buffered := bufio.NewReader(c)
	res, err := http.ReadResponse(buffered, r)
	if err != nil {
		t.Fatal(err)
	}
	return res, c, buffered
}

func TestStreams(t *testing.T) {
	p := &provider{serve: echo}
	s := newStage(t, p)
	cases := []struct{ reason, method, kind, path, want string }{
		{"exec by SPDY", "POST", "SPDY/3.1", "/exec/shop/web-0/web?command=sh&command=-c&command=a+b&input=1&output=1&error=1&tty=1",
			"/api/v1/namespaces/shop-rome/pods/web-0/exec?command=sh&command=-c&command=a+b&container=web&stdin=true&stdout=true&tty=true"},
		{"exec by WebSocket, with the UID", "GET", "websocket", "/exec/shop/web-0/" + podUID + "/web?command=ls&output=1&error=1",
			"/api/v1/namespaces/shop-rome/pods/web-0/exec?command=ls&container=web&stderr=true&stdout=true"},
		{"attach", "POST", "SPDY/3.1", "/attach/shop/web-0/web?output=1", "/api/v1/namespaces/shop-rome/pods/web-0/attach?container=web&stdout=true"},
		{"port-forward by SPDY", "POST", "SPDY/3.1", "/portForward/shop/web-0", "/api/v1/namespaces/shop-rome/pods/web-0/portforward"},
		{"port-forward by WebSocket", "GET", "websocket", "/portForward/shop/web-0?port=80%2C443", "/api/v1/namespaces/shop-rome/pods/web-0/portforward?ports=80&ports=443"},
	}
	for _, c := range cases {
		res, conn, in := s.upgrade(t, c.method, c.path, c.kind, http.Header{
			"Authorization": {"Bearer secret"}, "Cookie": {"a=b"}, "Impersonate-User": {"root"}, "X-Forwarded-For": {"1.2.3.4"}, "X-Remote-User": {"root"},
			"Sec-Websocket-Protocol":    {"v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.c2VjcmV0, base64url.bearer.authorization.k8s.io.channel.k8s.io"},
			"X-Stream-Protocol-Version": {"v4.channel.k8s.io", "portforward.k8s.io"}, "Sec-Websocket-Key": {"key"},
		})
		if res.StatusCode != http.StatusSwitchingProtocols {
			text, _ := io.ReadAll(in)
			t.Errorf("%s: got %d: %s", c.reason, res.StatusCode, text)
			continue
		}
		if diff := cmp.Diff(http.Header{"Connection": {"Upgrade"}, "Upgrade": {c.kind}, "X-Stream-Protocol-Version": {"v4.channel.k8s.io"}}, res.Header); diff != "" {
			t.Errorf("%s: what comes back: %s", c.reason, diff)
		}
		seen := p.last()
		if got := seen.URL.String(); got != c.want || seen.Method != c.method {
			t.Errorf("%s: asked for %s %s, want %s", c.reason, seen.Method, got, c.want)
		}
		want := http.Header{"Accept": {"*/*"}, "User-Agent": {"pelago"}, "Connection": {"Upgrade"}, "Upgrade": {c.kind},
			"X-Stream-Protocol-Version": {"v4.channel.k8s.io", "portforward.k8s.io"}, "Sec-Websocket-Protocol": {"v5.channel.k8s.io"}}
		if c.kind == "websocket" {
			want.Set("Sec-Websocket-Key", "key")
		}
		if c.method == "POST" {
			want.Set("Content-Length", "0")
		}
		if diff := cmp.Diff(want, seen.Header); diff != "" {
			t.Errorf("%s: what travels: %s", c.reason, diff)
		}
		// Both ways, then half closed: what was on its way still arrives.
		if _, err := io.WriteString(conn, strings.Repeat("x", 100_000)); err != nil {
			t.Fatal(err)
		}
		if err := conn.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(in)
		if err != nil || len(text) != 100_003 || !strings.HasSuffix(string(text), "xend") {
			t.Errorf("%s: %d bytes came back, %v", c.reason, len(text), err)
		}
	}
}

func TestLogs(t *testing.T) {
	p := &provider{}
	s := newStage(t, p)
	p.set(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.Header().Set("Set-Cookie", "evil=1")
		w.Header().Set("Trailer", "X-Late")
		w.Header().Set("Link", "<x>")
		w.WriteHeader(http.StatusEarlyHints)
		fmt.Fprint(w, "<b>a line</b>")
		w.Header().Set("X-Late", "1")
	})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url("/containerLogs/shop/web-0/web?tailLines=5&timestamps=true&previous=true&stream=All&x=y"), nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := s.caller(t, s.may).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(res.Body)
	res.Body.Close()
	res.Header.Del("Date")
	want := http.Header{"Content-Type": {"text/plain; charset=utf-8"}, "X-Content-Type-Options": {"nosniff"}}
	if diff := cmp.Diff(want, res.Header); diff != "" || len(res.Trailer) > 0 || string(text) != "<b>a line</b>" {
		t.Errorf("got %q, trailers %v, headers %s", text, res.Trailer, diff)
	}
	if p.last() == nil {
		t.Fatal("the provider was not reached")
	}
	if got := p.last().URL.String(); got != "/api/v1/namespaces/shop-rome/pods/web-0/log?container=web&previous=true&tailLines=5&timestamps=true" {
		t.Errorf("asked for %s", got)
	}
}

// Lines come as they are written, and a stream ends with the peering and the caller.
func TestFollowing(t *testing.T) {
	p := &provider{}
	s := newStage(t, p)
	gone := make(chan struct{}, 1)
	p.set(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "one")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		gone <- struct{}{}
	})
	ends := map[string]func(context.CancelFunc){ // in any order
		"the caller leaves":            func(cancel context.CancelFunc) { cancel() },
		"the connection is taken away": func(context.CancelFunc) { s.server.cut() },
		"the node is gone, and is back": func(context.CancelFunc) {
			s.kubelets.close(s.node.Name)
			var err error
			if s.server, err = s.kubelets.open(s.node); err != nil {
				t.Fatal(err)
			}
		},
	}
	for reason, end := range ends {
		ctx, cancel := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url("/containerLogs/shop/web-0/web?follow=true"), nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := s.caller(t, s.may).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(res.Body).ReadString('\n')
		if err != nil || line != "one\n" {
			t.Errorf("%s: read %q, %v", reason, line, err)
		}
		end(cancel)
		select {
		case <-gone:
		case <-time.After(20 * time.Second):
			t.Errorf("%s: the provider still sends", reason)
		}
		res.Body.Close()
		cancel()
	}
}

// A stream whose two ends are still open ends with the peering, and leaves nothing.
func TestStreamsEnd(t *testing.T) {
	p := &provider{serve: echo}
	s := newStage(t, p)
	before := runtime.NumGoroutine()
	var open []*tls.Conn
	for range 5 {
		res, c, _ := s.upgrade(t, "POST", "/attach/shop/web-0/web?output=1&input=1", "SPDY/3.1", nil)
		if res.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("got %d", res.StatusCode)
		}
		open = append(open, c)
	}
	s.server.cut()
	for _, c := range open {
		if _, err := io.ReadAll(c); err != nil && errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a stream goes on: %v", err)
		}
		c.Close()
	}
	eventually(t, "goroutines end", func() bool { return runtime.NumGoroutine() <= before+2 })
}

// A stream whose caller has said all he will ends also where the provider says nothing, and has not heard of it.
func TestLeftStreamsEnd(t *testing.T) {
	p := &provider{serve: func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", r.Header.Get("Upgrade"))
		w.WriteHeader(http.StatusSwitchingProtocols)
		c, in, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.Copy(io.Discard, in)
		_, _ = c.(*tls.Conn).NetConn().Read(make([]byte, 1)) // not the end of what is said, but of the connection
	}}
	s := newStage(t, p)
	s.kubelets.linger = 50 * time.Millisecond
	before := runtime.NumGoroutine()
	for range 5 {
		res, c, _ := s.upgrade(t, "POST", "/attach/shop/web-0/web?output=1&input=1", "SPDY/3.1", nil)
		if res.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("got %d", res.StatusCode)
		}
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "goroutines end", func() bool { return runtime.NumGoroutine() <= before+2 })
}

// Whatever a provider answers, no more than a short text of it gets through.
func TestHostileAnswers(t *testing.T) {
	p := &provider{}
	s := newStage(t, p)
	cases := []struct {
		reason string
		serve  http.HandlerFunc
		code   int
		want   string
	}{
		{"its own words", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(400)
			fmt.Fprint(w, `{"kind":"Status","message":"container \"web\" is waiting\nto start"}`)
		}, 400, `container "web" is waiting to start`},
		{"a redirection is not told of", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://169.254.169.254/", http.StatusFound)
		}, 502, "the cluster that runs the pod gave an answer that is none (status 302)"},
		{"our credential refused is not the caller's", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", "Basic")
			w.WriteHeader(401)
		}, 502, "the cluster that runs the pod gave an answer that is none (status 401)"},
		{"nothing is nothing", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, 502, "the cluster that runs the pod gave an answer that is none (status 204)"},
		{"an endless refusal", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(500)
			for range 1000 {
				if _, err := fmt.Fprint(w, strings.Repeat("x", 10_000)); err != nil {
					return
				}
			}
		}, 500, strings.Repeat("x", maxText)},
		{"characters that move a terminal", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(403); fmt.Fprint(w, "no\x1b[2J\xff!") }, 403, "no [2J !"},
		{"no text", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }, 404, "the cluster that runs the pod refused: Not Found"},
		{"an upgrade nobody wanted", func(w http.ResponseWriter, r *http.Request) { echo(w, r) }, 502, "the cluster that runs the pod gave an answer that is none (status 101)"},
		{"a connection that breaks", func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }, 500,
			"cluster milan, which runs the pod, does not answer; try again when the peering is reachable"},
	}
	for _, c := range cases {
		p.set(c.serve)
		got, text := do(t, s.caller(t, s.may), "GET", s.url("/containerLogs/shop/web-0/web"), "")
		if got != c.code || text != c.want {
			t.Errorf("%s: got %d %q, want %d %q", c.reason, got, text, c.code, c.want)
		}
	}
	p.set(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "no upgrade") })
	res, _, in := s.upgrade(t, "POST", "/attach/shop/web-0/web?output=1", "SPDY/3.1", nil)
	if res.StatusCode != http.StatusBadGateway {
		text, _ := io.ReadAll(in)
		t.Errorf("an answer where an upgrade was wanted: got %d %s", res.StatusCode, text)
	}
}

func TestWhere(t *testing.T) {
	p := &provider{serve: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "carried") }}
	s := newStage(t, p)
	const path = "/containerLogs/shop/web-0/web"
	shadow := s.store.shadows[podUID]
	cases := []struct {
		reason, path string
		change       func()
		code         int
		want         string
	}{
		{"all is well", path, func() {}, 200, "carried"},
		{"no such pod", "/containerLogs/shop/web-1/web", func() {}, 404, `pod "web-1" does not exist on node `},
		{"a pod of another node", "/containerLogs/shop/elsewhere/web", func() {}, 404, `pod "elsewhere" does not exist on node `},
		{"no name of a namespace", "/containerLogs/Shop/web-0/web", func() {}, 400, "the namespace in the path is no name of one"},
		{"no name of a pod", "/containerLogs/shop/web_0/web", func() {}, 400, "the pod in the path is no name of one"},
		{"no name of a container", "/containerLogs/shop/web-0/we%20b", func() {}, 400, "the container in the path is no name of one"},
		{"a question that is none", path + "?tailLines=many", func() {}, 400, "tailLines must be a whole number of 0 or more"},
		{"not made yet", path, func() {
			shadow.Status.Ref = nil
		}, 400, `container "web" in pod "web-0" is waiting to start: cluster milan has not made it yet`},
		{"refused", path, func() {
			shadow.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Reason: "Refused", Message: "hostPath\x00"}}
		}, 400, `container "web" in pod "web-0" is waiting to start: Refused: hostPath`},
		{"a name that leads elsewhere", path, func() {
			shadow.Status.Ref = &v1alpha1.PodRef{Namespace: "a/../b", Name: "web-0"}
		}, 502, `cluster milan names no valid pod for "web-0"`},
		{"a pod that leads elsewhere", path, func() {
			shadow.Status.Ref = &v1alpha1.PodRef{Namespace: "a", Name: "web-0/exec?x"}
		}, 502, `cluster milan names no valid pod for "web-0"`},
		{"not known there", path, func() { delete(s.store.shadows, podUID) }, 400, `container "web" in pod "web-0" is waiting to start: it is not known to cluster milan yet`},
		{"the peer is away", path, func() {
			s.store.shadows[podUID] = shadow
			shadow.Status.Ref = &v1alpha1.PodRef{Namespace: "shop-rome", Name: "web-0"}
			s.link.err = errors.New("away")
		}, 500, "cluster milan, which runs the pod, does not answer; try again when the peering is reachable"},
		{"no peering", path, func() { s.link.removed = true }, 500, "there is no connection to cluster milan, which runs the pods of node "},
	}
	for _, c := range cases {
		s.store.mu.Lock()
		c.change()
		s.store.mu.Unlock()
		got, text := do(t, s.caller(t, s.may), "GET", s.url(c.path), "")
		if text = strings.TrimSuffix(text, s.node.Name); got != c.code || text != c.want {
			t.Errorf("%s: got %d %q, want %d %q", c.reason, got, text, c.code, c.want)
		}
	}
	res, _, _ := s.upgrade(t, "POST", "/exec/shop/web-0/another-uid/web?command=ls&output=1", "SPDY/3.1", nil)
	if res.StatusCode != 404 {
		t.Errorf("a pod of another UID: got %d", res.StatusCode)
	}
}

// An upgraded connection ends when nothing passes, sooner once its caller has ended.
func TestIdleConnectionsEnd(t *testing.T) {
	for reason, idle := range map[string][2]time.Duration{"silent": {50 * time.Millisecond, time.Hour}, "half closed": {time.Hour, 50 * time.Millisecond}} {
		ours, theirs := net.Pipe()
		ctx, end := context.WithCancel(t.Context())
		l := watch(ctx, end, ours, idle[0], idle[1])
		if reason == "half closed" {
			l.passed(0, true)
		}
		if _, err := theirs.Read(make([]byte, 1)); err == nil {
			t.Errorf("%s: goes on", reason)
		}
		l.Close()
		end()
	}
}

func TestQuery(t *testing.T) {
	log, exec, forward := target{part: "log", container: "c"}, target{part: "exec", container: "c"}, target{part: "portforward"}
	cases := []struct {
		reason      string
		target      target
		asked, want string
		err         string
	}{
		{"everything of a log", log, "follow=true&previous=true&sinceSeconds=5&tailLines=0&limitBytes=10&timestamps=1&stream=All",
			"container=c&follow=true&limitBytes=10&previous=true&sinceSeconds=5&tailLines=0&timestamps=true", ""},
		{"one stream of a log", log, "stream=Stderr", "container=c&stream=Stderr", ""},
		{"one stream and its end", log, "stream=Stdout&tailLines=1", "", "tailLines can only be given with stream=All"},
		{"since a time", log, "sinceTime=2026-01-02T03:04:05.5%2B01:00", "container=c&sinceTime=2026-01-02T02%3A04%3A05.5Z", ""},
		{"flags that are not set", log, "follow=false&previous=0", "container=c", ""},
		{"what is not known does not travel", log, "insecureSkipTLSVerifyBackend=true&container=other", "container=c", ""},
		{"the old name of tailLines", log, "tail=all", "container=c", ""},
		{"negative", log, "tailLines=-1", "", "tailLines must be a whole number of 0 or more"},
		{"none at all", log, "limitBytes=0", "", "limitBytes must be a whole number of 1 or more"},
		{"two beginnings", log, "sinceSeconds=1&sinceTime=2026-01-02T03:04:05Z", "", "only one of sinceTime and sinceSeconds can be given"},
		{"no time", log, "sinceTime=yesterday", "", "sinceTime must be a time like 2006-01-02T15:04:05Z"},
		{"no stream", log, "stream=x", "", "stream must be All, Stdout or Stderr"},
		{"a terminal has one stream", exec, "command=a&command=b&error=1&output=1&tty=1&input=1", "command=a&command=b&container=c&stdin=true&stdout=true&tty=true", ""},
		{"no stream to a command", exec, "command=a", "", "at least one of input, output and error has to be asked for"},
		{"no command", exec, "output=1", "", "a command of 1 to 4096 words has to be given"},
		{"attaching has no command", target{part: "attach", container: "c"}, "output=1&command=a", "container=c&stdout=true", ""},
		{"ports, as API servers join them", forward, "port=1,65535", "ports=1&ports=65535", ""},
		{"ports apart, as kubelets take them too", forward, "port=1&port=65535", "ports=1&ports=65535", ""},
		{"no port", forward, "port=0", "", "port must be a number from 1 to 65535"},
		{"a port is missing", forward, "port=1,", "", "port must be a number from 1 to 65535"},
		{"too many ports", forward, "port=2&port=1" + strings.Repeat(",1", 63), "", "at most 64 ports can be given"},
	}
	for _, c := range cases {
		asked, err := url.ParseQuery(c.asked)
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.target.query(asked)
		if text := fmt.Sprint(err); c.err != "" && text != c.err || c.err == "" && (err != nil || got.Encode() != c.want) {
			t.Errorf("%s: got %q, %v", c.reason, got.Encode(), err)
		}
	}
}

// Whatever a path and a query hold, what is asked of a provider is about the one pod.
func FuzzRequest(f *testing.F) {
	f.Add("/containerLogs/shop/web-0/web", "tailLines=1&sinceTime=2026-01-02T03:04:05Z")
	f.Add("/exec/shop/web-0/web", "command=a&output=1")
	f.Add("/portForward/shop/web-0/x", "port=80,443")
	f.Add("/exec/../../x", "command=%00&&;=")
	f.Fuzz(func(t *testing.T, path, query string) {
		parts := segments(path)
		endpoint(parts)
		attributes("milan", "GET", path)
		asked, _ := url.ParseQuery(query)
		for _, part := range []string{"log", "exec", "attach", "portforward"} {
			to := target{part: part}
			for i, p := range parts {
				switch i {
				case 1:
					to.namespace = p
				case 2:
					to.pod = p
				case 3:
					to.container = p
				}
			}
			if to.check() != nil {
				continue
			}
			if strings.ContainsAny(to.namespace+to.pod, "/?#%\\ ") || to.pod == ".." || to.namespace == ".." {
				t.Errorf("%q is a pod's name", to.pod)
			}
			q, err := to.query(asked)
			if err != nil {
				continue
			}
			if again, err := url.ParseQuery(q.Encode()); err != nil || again.Get("container") != to.container && part != "portforward" {
				t.Errorf("%q became %q", query, q.Encode())
			}
		}
	})
}
