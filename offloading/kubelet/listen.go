package kubelet

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/access"
	"github.com/pelago-dev/pelago/internal/lobby"
)

// Bounds of one port; of connections, of all ports together. A request that is no stream ends like that
// of a kubelet.
const (
	headerTime  = 10 * time.Second
	requestTime = 4 * time.Hour
	keptTime    = 2 * time.Minute
	headerBytes = 256 << 10
	endTime     = 3 * time.Second
	mostOpen    = 1024
	// perAddress is how many of them one address may have: an API server has all the logs and commands that
	// somebody follows, of all virtual nodes, from one. Who waits there without a request makes room for these.
	// The rest is for other addresses.
	perAddress = 900
)

// Kubelets are the ports of all virtual nodes. It is a runnable of the manager.
type Kubelets struct {
	options Options
	home    home
	gate    *access.Gate
	metrics *metrics
	logger  logr.Logger
	lobby   *lobby.Lobby
	linger  time.Duration

	mu      sync.Mutex
	ended   bool
	servers map[string]*server
	ports   book
	told    map[*subscriber]struct{}
	running sync.WaitGroup
}

// subscriber is who wants to know when the port of a node is known.
type subscriber struct {
	mapper func(node string) []reconcile.Request
	queue  workqueue.TypedRateLimitingInterface[reconcile.Request]
}

func newKubelets(o Options, h home, gate *access.Gate, m *metrics, logger logr.Logger) *Kubelets {
	return &Kubelets{
		options: o, home: h, gate: gate, metrics: m, logger: logger, linger: lingerTime,
		lobby: lobby.New(mostOpen, perAddress), servers: map[string]*server{}, ports: newBook(o.FirstPort, ports), told: map[*subscriber]struct{}{},
	}
}

// Ports returns the port of a virtual node's kubelet API, 0 while there is none.
func (k *Kubelets) Ports(node string) int32 {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s := k.servers[node]; s != nil {
		return s.port
	}
	return 0
}

// Source tells a controller when the port of a node has become known or has changed.
// The mapper must return quickly.
func (k *Kubelets) Source(mapper func(node string) []reconcile.Request) source.Source {
	return source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		s := &subscriber{mapper: mapper, queue: q}
		k.mu.Lock()
		k.told[s] = struct{}{}
		var names []string
		for name := range k.servers {
			names = append(names, name)
		}
		k.mu.Unlock()
		for _, name := range names {
			s.tell(name)
		}
		return nil
	})
}

func (s *subscriber) tell(node string) {
	for _, r := range s.mapper(node) {
		s.queue.Add(r)
	}
}

// NeedLeaderElection says that only the leader opens ports.
func (k *Kubelets) NeedLeaderElection() bool { return true }

// Start waits for ctx to end, and closes all ports then.
func (k *Kubelets) Start(ctx context.Context) error {
	<-ctx.Done()
	k.mu.Lock()
	k.ended = true
	var open []*server
	for name, s := range k.servers {
		open = append(open, s)
		delete(k.servers, name)
	}
	k.mu.Unlock()
	for _, s := range open {
		s.close()
	}
	k.running.Wait()
	return nil
}

// open opens the port of a node, unless it is open.
func (k *Kubelets) open(node *corev1.Node) (*server, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s := k.servers[node.Name]; s != nil {
		s.setPeering(node.Labels[v1alpha1.LabelPeering])
		return s, nil
	}
	if k.ended {
		return nil, fmt.Errorf("opening the port of node %s: this program is ending", node.Name)
	}
	taken := func(name string) bool { return k.servers[name] != nil }
	listener, port, err := k.ports.listen(node.Name, node.Status.DaemonEndpoints.KubeletEndpoint.Port, taken, func(port int32) (net.Listener, error) {
		return net.Listen("tcp", net.JoinHostPort(k.options.Address, strconv.Itoa(int(port))))
	})
	if err != nil {
		return nil, fmt.Errorf("opening the port of node %s: %w", node.Name, err)
	}
	s, err := newServer(k, node.Name, port)
	if err != nil {
		_ = listener.Close()
		return nil, err
	}
	s.setPeering(node.Labels[v1alpha1.LabelPeering])
	k.servers[node.Name] = s
	received := k.lobby.Receive(s.http, listener)
	k.running.Go(func() { s.serve(received) })
	k.logger.Info("kubelet API opened", "node", node.Name, "port", port)
	for t := range k.told {
		t.tell(node.Name)
	}
	return s, nil
}

// close closes the port of a node, if it is open.
func (k *Kubelets) close(node string) {
	k.mu.Lock()
	s := k.servers[node]
	delete(k.servers, node)
	k.mu.Unlock()
	if s != nil {
		s.close()
		k.logger.Info("kubelet API closed", "node", node, "port", s.port)
	}
}

// nodesOf are the nodes of a peering.
func (k *Kubelets) nodesOf(peering string) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var names []string
	for name, s := range k.servers {
		if s.peering() == peering {
			names = append(names, name)
		}
	}
	return names
}

// newHTTP is the HTTP server of one port: TLS with the certificate of this moment, a
// client's certificate wanted but judged by the gate, and HTTP/1.1 only, as upgraded
// connections are.
func newHTTP(s *server, logger logr.Logger) *http.Server {
	return &http.Server{
		Handler: s,
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, ClientAuth: tls.RequestClientCert,
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.certificate.Load(), nil },
		},
		TLSNextProto:      map[string]func(*http.Server, *tls.Conn, http.Handler){},
		ReadHeaderTimeout: headerTime, ReadTimeout: requestTime, WriteTimeout: requestTime,
		IdleTimeout: keptTime, MaxHeaderBytes: headerBytes,
		ErrorLog: slog.NewLogLogger(logr.ToSlogHandler(logger.V(1)), slog.LevelInfo),
	}
}
