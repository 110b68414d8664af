package kubelet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/pelago-dev/pelago/internal/access"
)

// server is the kubelet API of one virtual node.
type server struct {
	*Kubelets
	node        string
	port        int32
	of          atomic.Pointer[string] // the peering behind the node
	certificate atomic.Pointer[tls.Certificate]
	http        *http.Server
	usage       usage

	ctx    context.Context // of everything that is carried
	end    context.CancelFunc
	stream atomic.Pointer[streams]
}

// streams is what is carried for a node until its provider is removed.
type streams struct {
	ctx context.Context
	cut context.CancelFunc
}

func newServer(k *Kubelets, node string, port int32) (*server, error) {
	s := &server{Kubelets: k, node: node, port: port}
	certificate, err := selfSigned(node, k.options.Clock.Now())
	if err != nil {
		return nil, fmt.Errorf("making a certificate for node %s: %w", node, err)
	}
	s.setCertificate(certificate)
	s.setPeering("")
	s.ctx, s.end = context.WithCancel(context.Background())
	s.renew()
	s.http = newHTTP(s, k.logger)
	return s, nil
}

func (s *server) setCertificate(c *tls.Certificate) { s.certificate.Store(c) }
func (s *server) setPeering(name string)            { s.of.Store(&name) }
func (s *server) peering() string                   { return *s.of.Load() }

// serve answers until the server is closed.
func (s *server) serve(l net.Listener) {
	if err := s.http.ServeTLS(l, "", ""); err != nil && !errors.Is(err, http.ErrServerClosed) {
		s.logger.Error(err, "kubelet API ended", "node", s.node)
	}
}

// close ends the server and everything that is carried.
func (s *server) close() {
	s.end()
	patience, cancel := context.WithTimeout(context.Background(), endTime)
	defer cancel()
	if s.http.Shutdown(patience) != nil {
		_ = s.http.Close()
	}
}

// cut ends everything that is carried; new requests are carried again.
func (s *server) cut() {
	old := s.stream.Load()
	s.renew()
	old.cut()
}

func (s *server) renew() {
	ctx, cut := context.WithCancel(s.ctx)
	s.stream.Store(&streams{ctx: ctx, cut: cut})
}

// ServeHTTP answers one request, if its sender may have an answer.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := segments(r.URL.Path)
	counted := &status{ResponseWriter: w}
	defer func() { s.metrics.requests.WithLabelValues(endpoint(path), fmt.Sprint(counted.code())).Inc() }()
	if got := s.gate.Status(r, attributes(s.node, r.Method, r.URL.Path)...); got != http.StatusOK {
		access.Refuse(counted, got)
		return
	}
	s.route(counted, r, path)
}

// route finds what was asked for. Paths are taken literally: nothing is cleaned, so
// that what was authorised is what is done.
func (s *server) route(w http.ResponseWriter, r *http.Request, path []string) {
	get := r.Method == http.MethodGet
	post := r.Method == http.MethodPost
	switch n := len(path); {
	case get && n == 1 && path[0] == "healthz":
		answer(w, "text/plain; charset=utf-8", []byte("ok"))
	case get && n == 1 && path[0] == "pods":
		s.pods(w, r, false)
	case get && n == 1 && path[0] == "runningpods":
		s.pods(w, r, true)
	case get && n == 2 && path[0] == "stats" && path[1] == "summary":
		s.summary(w, r)
	case get && n == 2 && path[0] == "metrics" && path[1] == "resource":
		s.resource(w, r)
	case get && n == 1 && path[0] == "metrics":
		answer(w, metricsType, fmt.Appendf(nil, "# HELP kubelet_node_name The node's name. The count is always 1.\n# TYPE kubelet_node_name gauge\nkubelet_node_name{node=%q} 1\n", s.node))
	case get && n == 4 && path[0] == "containerLogs":
		s.carry(w, r, target{namespace: path[1], pod: path[2], container: path[3], part: "log"})
	case (get || post) && (n == 4 || n == 5) && (path[0] == "exec" || path[0] == "attach"):
		t := target{namespace: path[1], pod: path[2], container: path[n-1], part: path[0]}
		if n == 5 {
			t.uid = path[3]
		}
		s.carry(w, r, t)
	case (get || post) && (n == 3 || n == 4) && path[0] == "portForward":
		t := target{namespace: path[1], pod: path[2], part: "portforward"}
		if n == 4 {
			t.uid = path[3]
		}
		s.carry(w, r, t)
	default:
		http.NotFound(w, r)
	}
}

// segments are the parts of a path, of which one slash at its end is none.
func segments(path string) []string {
	path = strings.TrimSuffix(strings.TrimPrefix(path, "/"), "/")
	if strings.Count(path, "/") > 8 {
		return nil
	}
	return strings.Split(path, "/")
}

// endpoints are what is offered, for metrics.
var endpoints = []string{"healthz", "pods", "runningpods", "stats", "metrics", "containerLogs", "exec", "attach", "portForward"}

func endpoint(path []string) string {
	if len(path) > 0 && slices.Contains(endpoints, path[0]) {
		return path[0]
	}
	return "other"
}

// attributes are what a request needs, one of them: the subresources of nodes of the
// kubelet's own fine-grained authorisation. Commands and connections into pods need
// the verb create whatever the method: who may only read must not run commands by a
// WebSocket's GET.
func attributes(node, method, path string) []access.Asked {
	verb := map[string]string{
		http.MethodPost: "create", http.MethodGet: "get", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
	}[method]
	below := func(root string) bool { return path == root || strings.HasPrefix(path, root+"/") }
	var parts []string
	switch {
	case below("/pods"), below("/runningpods"):
		parts = []string{"pods", "proxy"}
	case below("/healthz"):
		parts = []string{"healthz", "proxy"}
	case below("/configz"):
		parts = []string{"configz", "proxy"}
	case below("/stats"):
		parts = []string{"stats"}
	case below("/metrics"):
		parts = []string{"metrics"}
	case below("/logs"):
		parts = []string{"log"}
	case below("/checkpoint"):
		parts = []string{"checkpoint"}
	case below("/statusz"):
		parts = []string{"statusz"}
	case below("/flagz"):
		parts = []string{"configz"}
	default:
		parts = []string{"proxy"}
	}
	if below("/exec") || below("/attach") || below("/portForward") || below("/run") {
		verb = "create"
	}
	var asked []access.Asked
	for _, part := range parts {
		asked = append(asked, access.Asked{Resource: &authorizationv1.ResourceAttributes{
			Verb: verb, Version: "v1", Resource: "nodes", Subresource: part, Name: node,
		}})
	}
	return asked
}

// answer writes a whole answer.
func answer(w http.ResponseWriter, kind string, body []byte) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(body)
}

// status remembers the code that was answered.
type status struct {
	http.ResponseWriter
	wrote int
}

// WriteHeader begins the answer.
func (s *status) WriteHeader(code int) {
	if s.wrote == 0 || s.wrote < http.StatusOK {
		s.wrote = code
	}
	s.ResponseWriter.WriteHeader(code)
}

// Unwrap lets flushing and taking over the connection through.
func (s *status) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s *status) code() int {
	if s.wrote == 0 {
		return http.StatusOK
	}
	return s.wrote
}
