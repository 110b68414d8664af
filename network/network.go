// Package network is, in the manager, by which addresses this cluster and its peers see each
// other's pods. It finds out which addresses are in use here, publishes ranges, endpoints
// and a public key in the NetworkConfigs of every peering whose other side has its network
// on as well, and decides the views of what the others publish. It carries NetworkConfigs
// to providers and back, and keeps and replaces the private keys of tunnels. It compiles
// NetworkPolicies of offloaded namespaces for the gateways of both sides. It has providers
// make direct paths between each other, and makes those that consumers want. It owns the
// kinds NetworkConfig, NetworkRules and NetworkPath. What a peer wrote is checked before it is used, and what goes wrong
// here is never told to him with names of ours. It touches no node: agents do, who read
// what is decided here.
package network

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/home"
	"github.com/pelago-dev/pelago/internal/throttle"
	"github.com/pelago-dev/pelago/network/dns"
)

// component is the value of LabelManagedBy on what this package makes, and the reporter of
// its events.
const component = "pelago-network"

// Home is this cluster.
type Home interface {
	// ID of this cluster.
	ID() string
	// Config returns the settings in force.
	Config() home.Config
	// APIServer is how consumers reach this cluster's API server.
	APIServer() (url, ca, proxy string, err error)
	// Source tells of every change of these.
	Source(to handler.EventHandler) source.Source
}

// Options is what New needs. Home and Fleet are required.
type Options struct {
	// Home is this cluster.
	Home Home
	// Fleet is the connections to providers; see Connections.
	Fleet Fleet
	// Namespace is where agents have their Leases; v1alpha1.NetworkNamespace if empty.
	Namespace string
	// Domain is what this cluster is called in its own DNS; "" if that is not known.
	Domain string
	// Clock tells the time; the real one if nil.
	Clock clock.PassiveClock
	// Metrics gets those of this package; the manager's own if nil.
	Metrics prometheus.Registerer
	// Rand is where keys come from; the system's if nil.
	Rand io.Reader
}

// Network answers by which addresses pods are seen, from memory. Until it has looked for the
// first time it lets whoever asks wait, for patience at most; from then on it answers at once.
type Network struct {
	options   Options
	known     chan struct{}
	first     sync.Once
	waiting   sync.Once
	impatient chan struct{}
	asked     atomic.Pointer[time.Time] // for the first time
	now       atomic.Pointer[picture]
	tunnels   tunnels
	listeners listeners // of what is in the picture
	paths     paths
}

// patience is how long the first answer is waited for: a manager that has just begun must not
// tell providers that addresses which they have mean nothing any more.
const patience = 10 * time.Second

// comingUnknown is how long an API server may be coming while nothing is known.
const comingUnknown = time.Minute

// New makes a Network that knows nothing until Register's controllers run.
func New(o Options) *Network {
	o.Namespace = cmp.Or(o.Namespace, v1alpha1.NetworkNamespace)
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	if o.Metrics == nil {
		o.Metrics = metrics.Registry
	}
	return &Network{options: o, known: make(chan struct{}), impatient: make(chan struct{})}
}

// Translate is the address by which pods at the provider of a peering reach a pod that has an
// address here; false if they cannot.
func (n *Network) Translate(peering string, here netip.Addr) (there netip.Addr, ok bool) {
	return n.look().there.View(consumerKey(peering), here)
}

// Carries says whether pods at the provider of a peering reach anything here by IPv4, or by IPv6.
func (n *Network) Carries(peering string, ipv4 bool) bool {
	return n.look().there.Has(consumerKey(peering), ipv4)
}

// Allows says whether an address is one by which this cluster sees a tenant's pods.
func (n *Network) Allows(tenant string, address netip.Addr) bool {
	key, _, ok := n.look().views.Real(address)
	return ok && key == providerKey(tenant)
}

// TenantViews are the prefixes by which this cluster sees what is a tenant's, and nothing else.
func (n *Network) TenantViews(tenant string) []netip.Prefix {
	return n.look().views.Views(providerKey(tenant))
}

// View is the address by which this cluster sees a pod of the provider of a peering, that has
// an address there; false if it does not.
func (n *Network) View(peering string, real netip.Addr) (here netip.Addr, ok bool) {
	return n.look().views.View(consumerKey(peering), real)
}

// HomeAPI is where pods of a tenant here reach the API server of their home. If there is none
// it says whether one may be coming, which is over in a minute.
func (n *Network) HomeAPI(tenant string) (at netip.AddrPort, coming bool) {
	p, key, now := n.look(), providerKey(tenant), n.options.Clock.Now()
	if p == nothing {
		asked := n.asked.Load()
		return at, asked != nil && now.Before(asked.Add(comingUnknown))
	}
	return p.apis[key], now.Before(p.coming[key])
}

// NameServers are where pods of tenants here find the names of their homes: at an address of a
// family that they have, and of both while that is not known. It answers at once.
func (n *Network) NameServers() []netip.Addr {
	if p := n.now.Load(); p != nil && len(p.nameServers) > 0 {
		return p.nameServers
	}
	return []netip.Addr{dns.Address(), dns.Address6()}
}

// Alive says whether the tunnel to the provider of a peering carries packets both ways, by what
// its gateway said last. It is not known before that, nor where there is no network.
func (n *Network) Alive(peering string) (alive, known bool) {
	n.look()
	return n.tunnels.state(consumerKey(peering))
}

// Behind says whose gateways have not said yet that they know a pod: that of home, one of the
// pods on a virtual node of a peering that has an address since a resourceVersion here, and that of
// the provider, where it has one since a resourceVersion there. A version of 0 is not asked for.
// Who says nothing of pods, as of an older build, is not behind.
func (n *Network) Behind(peering, node string, here, there int64) (home, provider bool) {
	return n.tunnels.pods.behind(consumerKey(peering), node, here, there)
}

// Heralded says whether home's gateways know a pod on a virtual node of a peering, that has no address
// here yet, from what the provider's gateway has told them, and else whether they may still come to
// know it so. The pod is on that node since a resourceVersion here, and has an address since one at the
// provider. Neither is true where somebody says nothing of pods, or is of an older build.
func (n *Network) Heralded(peering, node string, here, there int64) (known, may bool) {
	return n.tunnels.pods.heralded(consumerKey(peering), node, here, there)
}

// InBandSource tells of the peerings of which InBand says something else.
func (n *Network) InBandSource(mapper func(peering string) []reconcile.Request) source.Source {
	return n.listeners.source(consumerKey(""), mapper)
}

// TenantAlive says the same of the tunnel to a tenant.
func (n *Network) TenantAlive(tenant string) (alive, known bool) {
	n.look()
	return n.tunnels.state(providerKey(tenant))
}

// InvitationAlive says the same of the tunnel of an invitation in band.
func (n *Network) InvitationAlive(invitation string) (alive, known bool) {
	n.look()
	return n.tunnels.state(v1alpha1.InvitationPrefix + invitation)
}

// TunnelSource tells of the peerings of which Alive says something else.
func (n *Network) TunnelSource(mapper func(peering string) []reconcile.Request) source.Source {
	return n.tunnels.listeners.source(consumerKey(""), mapper)
}

// GatewaySource tells of the peerings of which Behind or Heralded may say something else.
func (n *Network) GatewaySource(mapper func(peering string) []reconcile.Request) source.Source {
	return n.tunnels.pods.listeners.source(consumerKey(""), mapper)
}

// TenantTunnelSource tells of the tenants of which TenantAlive says something else.
func (n *Network) TenantTunnelSource(mapper func(tenant string) []reconcile.Request) source.Source {
	return n.tunnels.listeners.source(providerKey(""), mapper)
}

// Known says whether anything is known. Before that an address which means nothing may mean
// something in a moment.
func (n *Network) Known() bool { return n.look() != nothing }

// ViewSource tells of the peerings of which Translate or View say something else.
func (n *Network) ViewSource(mapper func(peering string) []reconcile.Request) source.Source {
	return n.listeners.source(consumerKey(""), mapper)
}

// TenantViewSource tells of the tenants of which Allows, TenantViews or HomeAPI say something else.
func (n *Network) TenantViewSource(mapper func(tenant string) []reconcile.Request) source.Source {
	return n.listeners.source(providerKey(""), mapper)
}

// look returns what is known, or nothing if it does not become known soon.
func (n *Network) look() *picture {
	n.waiting.Do(func() {
		n.asked.Store(new(n.options.Clock.Now()))
		time.AfterFunc(patience, func() { close(n.impatient) })
	})
	select {
	case <-n.known:
	case <-n.impatient:
	}
	if p := n.now.Load(); p != nil {
		return p
	}
	return nothing
}

// learn replaces what is known, and then wakes whoever asks for what is not as it was, who never
// sees what was before. It comes after what was decided is written, as far as that could be: what
// others were told then follows from what is stored, whoever decides next.
func (n *Network) learn(p *picture) {
	before := n.now.Swap(p)
	if before == nil {
		before = nothing
	}
	n.tunnels.want(p.tunnels)
	n.first.Do(func() { close(n.known) })
	tell(&n.listeners, before.words, p.words)
}

// +kubebuilder:rbac:groups=pelago.dev,resources=peerings;tenants;namespacemaps,verbs=get;list;watch
// +kubebuilder:rbac:groups=pelago.dev,resources=peerings/status,verbs=patch
// +kubebuilder:rbac:groups=pelago.dev,resources=networkconfigs,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=pelago.dev,resources=networkconfigs/status,verbs=patch
// +kubebuilder:rbac:groups=pelago.dev,resources=networkpaths,verbs=get;list;watch
// +kubebuilder:rbac:groups=pelago.dev,resources=networkpaths/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=nodes;pods;namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.k8s.io,resources=servicecidrs,verbs=get;list;watch
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get;list;watch,namespace=pelago-network
// +kubebuilder:rbac:groups="",resources=secrets,verbs=create,namespace=pelago-network
// +kubebuilder:rbac:groups="",resources=secrets,resourceNames=pelago-network-keys,verbs=get;update,namespace=pelago-network

// Register adds both sides to a manager, before the fleet runs.
func (n *Network) Register(mgr ctrl.Manager) error {
	if n.options.Home == nil || n.options.Fleet == nil {
		return errors.New("registering the network: Home and Fleet are required")
	}
	// The manager's cache holds the Leases of tenants; those of agents, and what is in front of
	// tunnels beside them, have one of their own.
	agents, err := cluster.New(mgr.GetConfig(), func(o *cluster.Options) {
		o.Scheme, o.HTTPClient = mgr.GetScheme(), mgr.GetHTTPClient()
		o.Cache = cache.Options{DefaultNamespaces: map[string]cache.Config{n.options.Namespace: {}}}
	})
	if err != nil {
		return fmt.Errorf("making the cache of agents' Leases: %w", err)
	}
	if err := mgr.Add(agents); err != nil {
		return fmt.Errorf("adding the cache of agents' Leases: %w", err)
	}
	r := newDecider(n, mgr.GetClient(), mgr.GetAPIReader(), mgr.GetEventRecorder(component))
	r.leases, r.near = agents.GetCache(), agents.GetCache()
	if err := r.meter.register(n.options.Metrics); err != nil {
		return err
	}
	if err := n.paths.register(n.options.Metrics); err != nil {
		return err
	}
	if err := mgr.Add(r.agents); err != nil {
		return fmt.Errorf("adding the watch over agents: %w", err)
	}
	if err := n.registerDecider(mgr, r, agents.GetCache()); err != nil {
		return fmt.Errorf("setting up the controller of networks: %w", err)
	}
	if err := n.registerCarrier(mgr, r); err != nil {
		return fmt.Errorf("setting up the carrier of network configs: %w", err)
	}
	if err := n.registerMapper(mgr); err != nil {
		return fmt.Errorf("setting up the controller of mappings: %w", err)
	}
	if err := n.registerRuler(mgr); err != nil {
		return fmt.Errorf("setting up the controller of network rules: %w", err)
	}
	if err := n.registerPather(mgr); err != nil {
		return fmt.Errorf("setting up the controller of direct paths: %w", err)
	}
	return nil
}

func (n *Network) registerDecider(mgr ctrl.Manager, r *decider, near cache.Cache) error {
	all := toAll()
	return ctrl.NewControllerManagedBy(mgr).Named("network").
		Watches(&v1alpha1.NetworkConfig{}, r.rationed()).
		Watches(&v1alpha1.NetworkPath{}, r.rationed()).
		Watches(&v1alpha1.NetworkRules{}, r.rationed(), builder.WithPredicates(come())).
		Watches(&v1alpha1.Peering{}, all).
		Watches(&v1alpha1.Invitation{}, all).
		Watches(&v1alpha1.Tenant{}, all, builder.WithPredicates(tenantChanged())).
		Watches(&v1alpha1.NamespaceMap{}, all, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.NamespaceOffloading{}, all, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Namespace{}, all, builder.WithPredicates(ours())).
		Watches(&corev1.Node{}, all, builder.WithPredicates(nodeChanged())).
		Watches(&networkingv1.ServiceCIDR{}, all).
		WatchesRawSource(source.Kind[client.Object](near, &coordinationv1.Lease{}, r.agents.handler())).
		WatchesRawSource(source.Kind[client.Object](near, &corev1.Service{}, all)).
		WatchesRawSource(source.Kind[client.Object](near, &discoveryv1.EndpointSlice{}, all)).
		WatchesRawSource(source.Channel(r.agents.changed, all)).
		WatchesRawSource(n.paths.listeners.source(providerKey(""), func(string) []reconcile.Request { return []reconcile.Request{whole} })).
		WatchesRawSource(n.options.Home.Source(all)).
		WithOptions(controller.Options{MaxConcurrentReconciles: 1, RateLimiter: &r.retries}).
		Complete(r)
}

func (n *Network) registerCarrier(mgr ctrl.Manager, r *decider) error {
	if err := n.options.Fleet.WatchWithin(remoteConfig("", ""), bounds); err != nil {
		return fmt.Errorf("watching at providers: %w", err)
	}
	c := &carrier{client: mgr.GetClient(), clock: n.options.Clock, fleet: n.options.Fleet, refused: r.refused, tell: r.agents.wake}
	return ctrl.NewControllerManagedBy(mgr).Named("network-config-consumer").
		Watches(&v1alpha1.NetworkConfig{}, toPeering()).
		WatchesRawSource(n.options.Fleet.StateSource(ofPeer)).
		WatchesRawSource(n.options.Fleet.Source(remoteConfig("", ""), ofPeerObject)).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4, RateLimiter: &c.retries}).
		Complete(c)
}

// retried tries soon what a cache was behind of, and with growing pauses what is wrong.
func retried(l *throttle.Rests, req ctrl.Request, err error, format string, args ...any) (ctrl.Result, error) {
	if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		return l.Again(req, time.Second), nil
	}
	return ctrl.Result{}, fmt.Errorf(format+": %w", append(args, err)...)
}
