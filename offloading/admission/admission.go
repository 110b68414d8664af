// Package admission gives the pods of offloaded namespaces the terms under which the
// scheduler may bind them to virtual nodes, as their NamespaceOffloading says, and keeps
// them off virtual nodes that have no room for them or have refused their like. The
// decision is a pure function; around it is a webhook that answers from caches on every
// replica. What keeps all other pods off virtual nodes needs no process: these are
// ValidatingAdmissionPolicies in the chart. Only so that the scheduler does not choose
// what they refuse, other pods that tolerate the taint of virtual nodes are asked about
// too, and made without us if we do not answer. The package never refuses a pod because
// no cluster has room, never one of a namespace that is not offloaded, and never writes a
// pod; an outage of ours stops nobody else.
package admission

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/serving"
)

// Path is where the API server asks Handler about pods of offloaded namespaces.
const Path = "/admission/pods"

// TLSSecret is the name of the Secret with the authority of the manager's server; the
// chart makes it, empty.
const TLSSecret = "pelago-manager-tls"

// +kubebuilder:rbac:groups="",resources=secrets,resourceNames=pelago-manager-tls,verbs=get;update,namespace=pelago-system
// +kubebuilder:rbac:groups="",resources=nodes;namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=pelago.dev,resources=namespaceoffloadings;namespacemaps;resourceoffers,verbs=get;list;watch

// Options are what admission needs from outside.
type Options struct {
	// Reader is the manager's cache.
	Reader client.Reader
	// Live reads from the API server what the cache does not have yet; Reader if nil.
	Live client.Reader
	// Authority of the server on which Handler is mounted; Register keeps it known to the
	// API server.
	Authority *serving.Authority
	// Clock is the real one if nil.
	Clock clock.PassiveClock
	// Metrics is controller-runtime's registry if nil.
	Metrics prometheus.Registerer
}

// NewAuthority is the authority of the manager's server, kept in TLSSecret. The client
// has no cache.
func NewAuthority(direct client.Client, namespace string) *serving.Authority {
	host := v1alpha1.ManagerService + "." + namespace
	return serving.NewAuthority(serving.AuthorityOptions{
		Client: direct, Secret: client.ObjectKey{Namespace: namespace, Name: TLSSecret},
		Subject: "Pelago manager", Names: []string{host + ".svc", host, v1alpha1.ManagerService},
		Voids: " and restart pelago-manager",
	})
}

// Handler is the webhook, at Path and KeepHomePath. Every replica answers.
func Handler(o Options) (http.Handler, error) {
	if o.Live == nil {
		o.Live = o.Reader
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Metrics == nil {
		o.Metrics = ctrlmetrics.Registry
	}
	counted := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "pelago_admission_pods_total", Help: "Pods that were asked about, by outcome.",
	}, []string{"outcome"})
	for _, o := range outcomes {
		counted.WithLabelValues(string(o)) // a series that begins with the trouble shows no increase
	}
	took := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "pelago_admission_seconds", Help: "How long the answer to a pod took.",
		Buckets: []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1, 5},
	})
	if err := errors.Join(o.Metrics.Register(counted), o.Metrics.Register(took)); err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	return newWebhook(&gatherer{reader: o.Reader, live: o.Live, clock: o.Clock, limit: rate.NewLimiter(liveRate, liveBurst)}, counted, took), nil
}

// Register has every replica follow what Handler answers from, and keeps Options.Authority
// known to the API server, from one replica at a time.
func Register(mgr ctrl.Manager, o Options) error {
	if err := follow(mgr); err != nil {
		return err
	}
	return registerBundle(mgr, o.Authority)
}

// answerLimit is how long an answer to the API server may take at most.
const answerLimit = 10 * time.Second
