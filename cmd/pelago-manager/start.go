package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
	"github.com/pelago-dev/pelago/internal/home"
	"github.com/pelago-dev/pelago/internal/serving"
	"github.com/pelago-dev/pelago/internal/trust"
	"github.com/pelago-dev/pelago/internal/vitals"
	"github.com/pelago-dev/pelago/network"
	"github.com/pelago-dev/pelago/network/dns"
	"github.com/pelago-dev/pelago/peering/tenant"
)

// A replica that dies without a word is followed by the next one after leaseTerm and a
// retry, which is less than the ten seconds after which peers and pods would notice. One
// that cannot renew its Lease for leaseRenewal begins anew.
const (
	leaseTerm    = 6 * time.Second
	leaseRenewal = 4 * time.Second
	leaseRetry   = time.Second
)

// addressVariable holds the address of this pod.
const addressVariable = "POD_IP"

// resolverFile says of a pod how it finds names.
const resolverFile = "/etc/resolv.conf"

// endLimit is how long parts of the program may take to end.
const endLimit = 10 * time.Second

// start runs the program until ctx ends.
func start(ctx context.Context, args []string, socket *serving.Socket) error {
	s, err := parse(args)
	if err != nil {
		return err
	}
	s.socket = socket
	logger, err := newLogger(os.Stdout, s.level)
	if err != nil {
		return err
	}
	useLogger(logger)
	config, err := clusterConfig()
	if err != nil {
		return err
	}
	return run(logr.NewContext(ctx, logger), config, s)
}

// clusterConfig finds the cluster this program runs in, or for a developer the one that
// KUBECONFIG names.
func clusterConfig() (*rest.Config, error) {
	config, err := rest.InClusterConfig()
	if errors.Is(err, rest.ErrNotInCluster) && os.Getenv("KUBECONFIG") != "" {
		config, err = clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	}
	if err != nil {
		return nil, fmt.Errorf("finding the cluster to work in: %w", err)
	}
	config.QPS = -1 // the API server's own fairness is the limit
	config.UserAgent = "pelago-manager/" + version
	return config, nil
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("registering kinds: %w", err)
	}
	return scheme, nil
}

// run shows the program's vitals from the first moment on, and its rooms as soon as the
// settings have been read.
func run(ctx context.Context, config *rest.Config, s settings) error {
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	direct, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	shown, err := vitals.Listen(vitals.Options{
		Address: s.address, Ask: trust.Ask(direct), Gatherer: s.registry, Logger: logr.FromContextOrDiscard(ctx).WithName("vitals"),
	})
	if err != nil {
		return err
	}
	ready := &readiness{}
	shown.AddReadyzCheck("manager", ready.check)
	group, inner := errgroup.WithContext(ctx)
	group.Go(func() error { return shown.Serve(inner) })
	group.Go(func() error { return runRooms(inner, config, direct, s, shown, ready) })
	return group.Wait()
}

func runRooms(ctx context.Context, config *rest.Config, direct client.Client, s settings, shown *vitals.Server, ready *readiness) error {
	leads := s.rooms[0].leads
	h, err := home.New(ctx, home.Options{
		Config: config, Client: direct, Namespace: s.namespace, Version: version,
		Leads: leads, Random: rand.Reader, Metrics: s.registry, Network: runs(s.rooms, networkRoom),
	})
	if err != nil {
		return away(err)
	}
	mgr, err := ctrl.NewManager(config, managerOptions(ctx, direct.Scheme(), s))
	if err != nil {
		return away(fmt.Errorf("making the manager: %w", err))
	}
	if err := errors.Join(h.Register(probed{mgr, shown}), mgr.Add(ready)); err != nil {
		return err
	}
	shared := deps{
		home: h, direct: direct, namespace: s.namespace, listen: s.listen, socket: s.socket, address: os.Getenv(addressVariable),
		fleet: fleet.New(fleet.Options{Scheme: mgr.GetScheme(), Logger: mgr.GetLogger().WithName("fleet")}),
		usage: tenant.NewUsage(), domain: clusterDomain(resolverFile), reader: s.reader,
	}
	if runs(s.rooms, networkRoom) {
		shared.network = network.New(network.Options{Home: h, Fleet: network.Connections(shared.fleet), Domain: shared.domain})
	}
	for _, r := range s.rooms {
		if err := r.register(probed{mgr, shown}, shared); err != nil {
			return fmt.Errorf("starting %s: %w", r.name, err)
		}
	}
	logr.FromContextOrDiscard(ctx).Info("starting", "version", version, "cluster", h.Info().Name, "clusterID", h.ID())
	if err := mgr.Start(ctx); err != nil {
		return away(fmt.Errorf("running the controllers: %w", err))
	}
	return nil
}

// clusterDomain is what the cluster is called in its own DNS, by what its kubelets tell pods; "" of a
// program that is in no pod, or in one that has other names.
func clusterDomain(file string) string {
	conf, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer conf.Close()
	_, domain, err := dns.ReadResolver(conf)
	if err != nil {
		return ""
	}
	return domain
}

// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=create,namespace=pelago-system
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,resourceNames=pelago-manager,verbs=get;update;patch,namespace=pelago-system
// +kubebuilder:rbac:groups="";events.k8s.io,resources=events,verbs=create;patch

func managerOptions(ctx context.Context, scheme *runtime.Scheme, s settings) ctrl.Options {
	patience, term, renewal, retry := endLimit, leaseTerm, leaseRenewal, leaseRetry
	here := cache.ByObject{Namespaces: map[string]cache.Config{s.namespace: {}}}
	told := cache.ByObject{Namespaces: here.Namespaces, Field: fields.OneTermEqualSelector(metav1.ObjectNameField, v1alpha1.AdmissionName)}
	common := map[client.Object]cache.ByObject{
		&corev1.Secret{}:    here,
		&corev1.ConfigMap{}: here,
		&rbacv1.Role{}:      told,
		&corev1.Pod{}:       {Transform: trimPod},
		&corev1.Node{}:      {Transform: trimNode},
	}
	if !s.rooms[0].leads { // it follows who does
		common[&coordinationv1.Lease{}] = cache.ByObject{Namespaces: here.Namespaces, Field: fields.OneTermEqualSelector(metav1.ObjectNameField, v1alpha1.ManagerLease)}
	}
	return ctrl.Options{
		Scheme:                        scheme,
		Logger:                        logr.FromContextOrDiscard(ctx),
		Cache:                         cache.Options{DefaultTransform: trim, ByObject: bounds(s.rooms, common)},
		Metrics:                       metricsserver.Options{BindAddress: "0"}, // vitals serves them
		LeaderElection:                s.rooms[0].leads,
		LeaderElectionID:              v1alpha1.ManagerLease,
		LeaderElectionNamespace:       s.namespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &term,
		RenewDeadline:                 &renewal,
		RetryPeriod:                   &retry,
		GracefulShutdownTimeout:       &patience,
		BaseContext:                   func() context.Context { return ctx },
	}
}

// probed is a manager whose checks of readiness are shown by our own server.
type probed struct {
	ctrl.Manager
	shown *vitals.Server
}

// AddReadyzCheck makes /readyz depend on a check.
func (p probed) AddReadyzCheck(name string, check healthz.Checker) error {
	p.shown.AddReadyzCheck(name, vitals.Check(check))
	return nil
}

// readiness is set when the manager has filled its caches.
type readiness struct{ is atomic.Bool }

var _ manager.LeaderElectionRunnable = (*readiness)(nil)

// NeedLeaderElection reports that a replica which waits for its turn is ready.
func (r *readiness) NeedLeaderElection() bool { return false }

// Start is called by the manager once its caches are filled.
func (r *readiness) Start(ctx context.Context) error {
	r.is.Store(true)
	<-ctx.Done()
	return nil
}

func (r *readiness) check(*http.Request) error {
	if !r.is.Load() {
		return errors.New("still starting")
	}
	return nil
}
