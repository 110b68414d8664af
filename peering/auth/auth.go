// Package auth is the door for clusters that this one does not know yet, and the
// hand that gives out credentials. A cluster that holds an invitation comes to the
// endpoint once; what it gets is an Identity in a tenant namespace of its own, and a
// credential that is good for nothing else. Later credentials are asked for in that
// Identity. It runs as a program of its own, pelago-auth: the only one that strangers
// can talk to and the only one that approves certificates. It makes Tenants but none
// of their rights, approves no certificate it has not asked for itself but those that virtual
// nodes serve with, and reads no Secret but its own authority.
package auth

import (
	"crypto/rand"
	"fmt"
	"io"
	"net"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/home"
)

// component is the value of v1alpha1.LabelManagedBy on what this package makes, and
// the name under which it reports events.
const component = v1alpha1.AuthService

// Refused attempts beyond this rate are not even looked at.
const (
	failuresPerSecond = 10
	failuresAtOnce    = 20
)

// Attempts with one invitation beyond this rate wait.
const (
	attemptsPerSecond = 1
	attemptsAtOnce    = 10
)

// Home is this cluster as others see it.
type Home interface {
	// ID of this cluster.
	ID() string
	// Config is the settings in force.
	Config() home.Config
	// Info is what this cluster says of itself.
	Info() v1alpha1.ClusterInfo
	// APIServer is how consumers reach this cluster's API server; the error says what
	// its owner has to set.
	APIServer() (url, ca, proxy string, err error)
	// RootCA is the authority in PEM of the API server as this cluster's own pods know it.
	RootCA() (string, error)
	// Source tells a controller of every change of the above.
	Source(to handler.EventHandler) source.Source
}

// Options are what the endpoint needs from outside. Only Home is required.
type Options struct {
	// Home is this cluster.
	Home Home
	// Namespace of Pelago, with the Secret of the endpoint's authority;
	// v1alpha1.SystemNamespace if empty.
	Namespace string
	// Address to listen on; ":9443" if empty.
	Address string
	// Listener is listened on instead of Address, if set.
	Listener net.Listener
	// Clock is the real one if nil.
	Clock clock.Clock
	// Rand is where keys come from; crypto/rand if nil.
	Rand io.Reader
	// Direct reads and writes without a cache; made from the manager's settings if nil.
	Direct client.WithWatch
	// Metrics is controller-runtime's registry if nil.
	Metrics prometheus.Registerer
}

// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch,roleName=pelago-auth

// Register adds the endpoint and the renewal of credentials to a manager. Several
// replicas work side by side: whatever two of them do at once, the API server lets
// one win.
func Register(mgr ctrl.Manager, o Options) error {
	if err := o.complete(mgr); err != nil {
		return err
	}
	if err := indexInvitations(mgr.GetFieldIndexer()); err != nil {
		return err
	}
	counted, err := newMetrics(o.Metrics)
	if err != nil {
		return err
	}
	recorder := mgr.GetEventRecorder(component)
	shake := newHandshake(o, indexed{mgr.GetClient()}, recorder, counted)
	listener := &server{
		address:   o.Address,
		listener:  o.Listener,
		handler:   &endpoint{shake: shake, clock: o.Clock, metrics: counted},
		authority: newAuthority(o.Direct, client.ObjectKey{Namespace: o.Namespace, Name: v1alpha1.AuthTLSName}, o.Clock, o.Rand),
	}
	if err := mgr.Add(listener); err != nil {
		return fmt.Errorf("adding the authentication endpoint: %w", err)
	}
	if err := mgr.AddReadyzCheck("auth", listener.ready); err != nil {
		return fmt.Errorf("adding the check of the authentication endpoint: %w", err)
	}
	if err := registerNodes(mgr, o); err != nil {
		return err
	}
	return registerRenewal(mgr, o, shake.issuers[v1alpha1.CredentialCertificate], recorder, counted)
}

// complete fills in what was left out.
func (o *Options) complete(mgr ctrl.Manager) error {
	if o.Namespace == "" {
		o.Namespace = v1alpha1.SystemNamespace
	}
	if o.Address == "" {
		o.Address = ":9443"
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	if o.Metrics == nil {
		o.Metrics = ctrlmetrics.Registry
	}
	if o.Direct != nil {
		return nil
	}
	direct, err := client.NewWithWatch(mgr.GetConfig(), client.Options{
		Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient(),
	})
	if err != nil {
		return fmt.Errorf("making a client without a cache: %w", err)
	}
	o.Direct = direct
	return nil
}

// newHandshake puts together what one application needs.
func newHandshake(o Options, invitations finder, recorder events.EventRecorder, counted *metrics) *handshake {
	return &handshake{
		home:        o.Home,
		direct:      o.Direct,
		invitations: invitations,
		clock:       o.Clock,
		recorder:    recorder,
		metrics:     counted,
		failures:    rate.NewLimiter(failuresPerSecond, failuresAtOnce),
		issuers: map[v1alpha1.CredentialType]issuer{
			v1alpha1.CredentialCertificate: &certificates{client: o.Direct, clock: o.Clock},
			v1alpha1.CredentialToken:       &tokens{client: o.Direct, clock: o.Clock},
		},
	}
}
