package kubelet

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// Times of a signing request.
const (
	askedLife = 30 * 24 * time.Hour
	lookAgain = 500 * time.Millisecond
	signLimit = 60 * time.Second
	pauseMin  = time.Minute
	pauseMax  = time.Hour
)

// errLate says that nobody has signed in time.
var errLate = errors.New("nobody has signed it in time")

// certificates gets each virtual node a serving certificate of the cluster's signer.
// Keys are in memory only: after a restart new ones are asked for.
type certificates struct {
	live   client.Reader
	client client.Client
	clock  clock.PassiveClock

	mu     sync.Mutex
	states map[string]*serving
	warned bool
}

// serving is how far a node's certificate is.
type serving struct {
	names   names     // of the certificate in use
	renew   time.Time // when to replace it; zero if there is none
	pending *pending
	failed  int
	pause   time.Time
}

// pending is a signing request that has not been answered.
type pending struct {
	uid   types.UID
	key   *ecdsa.PrivateKey
	names names
	asked time.Time
}

func newCertificates(live client.Reader, c client.Client, clk clock.PassiveClock) *certificates {
	return &certificates{live: live, client: c, clock: clk, states: map[string]*serving{}}
}

// step is what to do next for a certificate.
type step int

const (
	stepNothing step = iota // until the node or the time says otherwise
	stepDrop                // a signing request for other addresses
	stepLook                // whether it has been signed
	stepAsk                 // for a certificate
)

// next decides what to do, and when to come again if nothing.
func (s *serving) next(now time.Time, want names) (step, time.Duration) {
	switch {
	case want.empty():
		return stepNothing, 0
	case s.pending != nil && !s.pending.names.equal(want):
		return stepDrop, 0
	case s.pending != nil:
		return stepLook, 0
	case now.Before(s.pause):
		return stepNothing, s.pause.Sub(now)
	case !s.renew.IsZero() && s.names.equal(want) && now.Before(s.renew):
		return stepNothing, s.renew.Sub(now)
	}
	return stepAsk, 0
}

// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests,verbs=get;create;delete

// requestName is the only name of a node's signing request: none can be left behind.
func requestName(node string) string { return "pelago-kubelet-" + node }

// advance takes the next step towards a certificate, and says when to come again.
func (c *certificates) advance(ctx context.Context, node *corev1.Node, use install) (time.Duration, error) {
	c.mu.Lock()
	s := c.states[node.Name]
	if s == nil {
		s = &serving{}
		c.states[node.Name] = s
	}
	c.mu.Unlock()
	want := namesOf(node)
	switch step, wait := s.next(c.clock.Now(), want); step {
	case stepDrop:
		s.pending = nil
		return lookAgain, c.remove(ctx, node.Name)
	case stepLook:
		return c.look(ctx, node.Name, s, use)
	case stepAsk:
		return c.ask(ctx, node.Name, s, want)
	default:
		return wait, nil
	}
}

// ask makes a signing request. One of an earlier process, whose key is lost, goes first.
func (c *certificates) ask(ctx context.Context, node string, s *serving, want names) (time.Duration, error) {
	key, text, err := request(node, want)
	if err != nil {
		return 0, fmt.Errorf("making a signing request for node %s: %w", node, err)
	}
	csr := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: requestName(node), Labels: map[string]string{v1alpha1.LabelManagedBy: component}},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: text, SignerName: certificatesv1.KubeletServingSignerName, ExpirationSeconds: ptr.To(int32(askedLife / time.Second)),
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
		},
	}
	err = c.client.Create(ctx, csr)
	switch {
	case apierrors.IsAlreadyExists(err):
		return lookAgain, c.remove(ctx, node)
	case err != nil:
		return 0, fmt.Errorf("creating signing request %s: %w", csr.Name, err)
	}
	s.pending = &pending{uid: csr.UID, key: key, names: want, asked: c.clock.Now()}
	return lookAgain, nil
}

// look takes the certificate into use if it has been signed, and removes the request
// when it has come to an end of any kind.
func (c *certificates) look(ctx context.Context, node string, s *serving, use install) (time.Duration, error) {
	csr := &certificatesv1.CertificateSigningRequest{}
	err := c.live.Get(ctx, client.ObjectKey{Name: requestName(node)}, csr)
	switch {
	case apierrors.IsNotFound(err) || err == nil && csr.UID != s.pending.uid:
		s.pending = nil // somebody has removed it: ask again, but not at once
		return c.failed(ctx, node, s, errors.New("it was removed before it was signed")), nil
	case err != nil:
		return 0, fmt.Errorf("reading signing request %s: %w", requestName(node), err)
	}
	now := c.clock.Now()
	fault := refusedBy(csr)
	if fault == nil && len(csr.Status.Certificate) == 0 {
		if now.Sub(s.pending.asked) < signLimit {
			return lookAgain, nil
		}
		fault = errLate
	}
	if err := c.remove(ctx, node); err != nil {
		return 0, err
	}
	key, wanted := s.pending.key, s.pending.names
	s.pending = nil
	if fault != nil {
		return c.failed(ctx, node, s, fault), nil
	}
	certificate, leaf, err := signed(csr.Status.Certificate, key, wanted, now)
	if err != nil {
		return c.failed(ctx, node, s, err), nil
	}
	use(certificate)
	s.names, s.renew, s.failed = wanted, renewal(leaf), 0
	log.FromContext(ctx).Info("serving certificate granted", "node", node, "notAfter", leaf.NotAfter)
	return max(s.renew.Sub(now), lookAgain), nil
}

// refusedBy is who says that a request will never be signed, nil if nobody does.
func refusedBy(csr *certificatesv1.CertificateSigningRequest) error {
	for _, c := range csr.Status.Conditions {
		if c.Type != certificatesv1.CertificateApproved && c.Status != corev1.ConditionFalse {
			return fmt.Errorf("it is %s, %s", c.Type, c.Reason)
		}
	}
	return nil
}

// failed is how long to wait before the next attempt. The certificate in use stays.
func (c *certificates) failed(ctx context.Context, node string, s *serving, cause error) time.Duration {
	pause := min(pauseMin<<min(s.failed, 6), pauseMax)
	s.failed++
	s.pause = c.clock.Now().Add(pause)
	c.mu.Lock()
	first := !c.warned
	c.warned = true
	c.mu.Unlock()
	logger := log.FromContext(ctx)
	if first {
		logger.Info("no serving certificate for virtual nodes: those made here go on; API servers that check kubelets need one signed by "+
			certificatesv1.KubeletServingSignerName, "node", node, "cause", cause.Error())
	} else {
		logger.V(1).Info("no serving certificate", "node", node, "cause", cause.Error())
	}
	return pause
}

// remove deletes a node's signing request, if there is one.
func (c *certificates) remove(ctx context.Context, node string) error {
	csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: requestName(node)}}
	if err := c.client.Delete(ctx, csr); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting signing request %s: %w", csr.Name, err)
	}
	return nil
}

// forget removes what is left of a node that is gone.
func (c *certificates) forget(ctx context.Context, node string) error {
	c.mu.Lock()
	s := c.states[node]
	delete(c.states, node)
	c.mu.Unlock()
	if s == nil || s.pending == nil {
		return nil
	}
	return c.remove(ctx, node)
}
