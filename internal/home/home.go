// Package home is this cluster as its owner describes it: its settings, from the
// ConfigMap pelago-config, its id, made once, and what it tells others of itself.
// Settings follow their ConfigMap while the program runs; a bad change is refused
// and the last good settings stay. It never writes the settings.
package home

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// features are what this version of Pelago can do with a peer, sorted.
var features = []string{
	v1alpha1.FeatureDomains, v1alpha1.FeatureOffers, v1alpha1.FeatureOnward, v1alpha1.FeaturePeering,
	v1alpha1.FeatureOfKind("ConfigMap"), v1alpha1.FeatureOfKind("EndpointSlice"), v1alpha1.FeatureOfKind("Ingress"), v1alpha1.FeatureOfKind("NetworkPolicy"), v1alpha1.FeatureParts,
	v1alpha1.FeatureOfKind("PodDisruptionBudget"), v1alpha1.FeatureOfKind("Secret"), v1alpha1.FeatureServiceFamilies, v1alpha1.FeatureOfKind("Service"),
}

// Where the settings and the authority of the API server are.
const (
	rootCAName = "kube-root-ca.crt"
	rootCAKey  = "ca.crt"
)

// callLimit bounds each call that New makes.
const callLimit = 15 * time.Second

// Options are what a Home is made of.
type Options struct {
	// Config reaches this cluster's API server.
	Config *rest.Config
	// Client reads and writes without a cache.
	Client client.Client
	// Namespace of Pelago; v1alpha1.SystemNamespace if empty.
	Namespace string
	// Version of Pelago, like v0.3.0.
	Version string
	// Leads says that this is one of the programs of which one leads: it makes the cluster's id if there is none, and
	// says on its Lease which build it is. Others wait for both.
	Leads bool
	// Network says that this cluster's network is on, which is told to peers. Only who leads says it.
	Network bool
	// IDWait is how long to wait for the id; two minutes if zero.
	IDWait time.Duration
	// Random is where the id comes from.
	Random io.Reader
	// Clock tells when to look again; the real one if nil.
	Clock clock.Clock
	// Metrics, if set, gets pelago_settings_valid.
	Metrics prometheus.Registerer
}

// Home is this cluster. It is safe for concurrent use.
type Home struct {
	options   Options
	id        string
	began     time.Time
	discovery discovery.ServerVersionInterface
	valid     prometheus.Gauge
	listeners listeners

	mu         sync.RWMutex
	config     Config
	rootCA     string // as peers take it
	kubernetes string
	leader     *build // nil in programs that lead, and until one has said which it is
}

// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;watch,namespace=pelago-system
// +kubebuilder:rbac:groups="",resources=configmaps,resourceNames=pelago-cluster-id,verbs=update,namespace=pelago-system
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;watch,namespace=pelago-system,roleName=pelago-auth
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,resourceNames=pelago-manager,verbs=get;list;watch,namespace=pelago-system,roleName=pelago-auth

// New reads the settings and the id, which it makes or waits for. It fails if there
// are no settings or they are wrong: a program cannot begin without.
func New(ctx context.Context, o Options) (*Home, error) {
	if o.Namespace == "" {
		o.Namespace = v1alpha1.SystemNamespace
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.IDWait == 0 {
		o.IDWait = 2 * time.Minute
	}
	versions, err := discovery.NewDiscoveryClientForConfig(o.Config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	h := &Home{options: o, began: o.Clock.Now(), discovery: versions, valid: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "pelago_settings_valid",
		Help: "1 if the ConfigMap pelago-config is in use as it stands, 0 if it has mistakes and the last good settings hold.",
	})}
	if o.Metrics != nil {
		if err := o.Metrics.Register(h.valid); err != nil {
			return nil, fmt.Errorf("registering metrics: %w", err)
		}
	}
	if err := h.load(ctx); err != nil {
		return nil, err
	}
	if h.id, err = h.findID(ctx); err != nil {
		return nil, err
	}
	return h, nil
}

// load reads everything but the id for the first time.
func (h *Home) load(ctx context.Context) error {
	settings, err := h.read(ctx, v1alpha1.ConfigName)
	if err != nil {
		return fmt.Errorf("reading the settings: %w", err)
	}
	if h.config, err = Parse(settings.Data[ConfigKey]); err != nil {
		return fmt.Errorf("reading ConfigMap %s/%s, key %s: %w", h.options.Namespace, v1alpha1.ConfigName, ConfigKey, err)
	}
	h.valid.Set(1)
	root, err := h.read(ctx, rootCAName)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading the authority of the API server: %w", err)
	}
	h.takeRoot(ctx, root.Data[rootCAKey])
	return h.readVersion(ctx)
}

func (h *Home) read(ctx context.Context, name string) (*corev1.ConfigMap, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	found := &corev1.ConfigMap{}
	return found, h.options.Client.Get(ctx, client.ObjectKey{Namespace: h.options.Namespace, Name: name}, found)
}

// readVersion asks the API server for its version.
func (h *Home) readVersion(ctx context.Context) error {
	done := make(chan error, 1)
	var version string
	go func() { // discovery takes no context; its client has a time limit of its own
		v, err := h.discovery.ServerVersion()
		if err == nil {
			version = v.GitVersion
		}
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("asking the API server for its version: %w", err)
		}
	case <-ctx.Done():
		return ctx.Err()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kubernetes = version
	return nil
}

// ID is the cluster's id; it never changes.
func (h *Home) ID() string { return h.id }

// Config returns the settings in force, a copy.
func (h *Home) Config() Config {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.config.clone()
}

// Info is what this cluster says of itself to others. It has no features as long as no manager has said
// which build leads.
func (h *Home) Info() v1alpha1.ClusterInfo {
	h.mu.RLock()
	defer h.mu.RUnlock()
	info := v1alpha1.ClusterInfo{ID: h.id, Name: h.config.Cluster.Name, KubernetesVersion: h.kubernetes}
	switch {
	case h.options.Leads:
		info.Version, info.Features = h.options.Version, h.features()
	case h.leader != nil:
		info.Version, info.Features = h.leader.Version, slices.Clone(h.leader.Features)
	}
	return info
}

// features are what this build can do with a peer in this cluster, sorted.
func (h *Home) features() []string {
	all := slices.Clone(features)
	if h.options.Network {
		all = append(all, v1alpha1.FeatureNetwork, v1alpha1.FeatureNetworkPolicy, v1alpha1.FeatureDirectPaths, v1alpha1.FeaturePathsBehind, v1alpha1.FeatureCallers)
		slices.Sort(all)
	}
	return all
}

// errNoURL says why nobody can consume from this cluster.
var errNoURL = errors.New("the address at which consumers reach this cluster's API server is not known: set apiServer.url in ConfigMap " +
	v1alpha1.ConfigName + " (pelago install --api-server-url https://HOST:PORT)")

// APIServer is how consumers reach this cluster's API server: its address, the
// authority in PEM that signed its certificate, and a proxy before it, if any. The
// error says what the owner has to set before this cluster can provide.
func (h *Home) APIServer() (url, ca, proxy string, err error) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	s := h.config.APIServer
	if s.URL == "" {
		return "", "", "", errNoURL
	}
	if s.CA != "" {
		return s.URL, bare(s.CA), s.ProxyURL, nil
	}
	ca, err = h.authority()
	return s.URL, ca, s.ProxyURL, err
}
