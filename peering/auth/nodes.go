package auth

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/throttle"
)

const (
	// managerAccount is the service account of the program that asks.
	managerAccount = "pelago-manager"
	// maxNodeRequest bounds a signing request; those of nodes have some 500 bytes.
	maxNodeRequest = 4096
	// maxNodeNames is how many addresses a virtual node may have.
	maxNodeNames = 8
	// maxNodeLife is the longest that is approved.
	maxNodeLife = 31 * 24 * time.Hour
	// Approvals beyond this rate wait: a hundred nodes renew once in weeks.
	nodesPerSecond = 2
	nodesAtOnce    = 100
	// nodeLimit bounds one reconcile.
	nodeLimit = 15 * time.Second
	// addressLimit is how long a new request waits for the status of a pod that has its address.
	// That is less than the manager waits, so that it is said what was missing.
	addressLimit = 50 * time.Second
)

// Cache is what the manager's cache may be limited to for this room.
func Cache() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&certificatesv1.CertificateSigningRequest{}: {
			Field: fields.OneTermEqualSelector("spec.signerName", certificatesv1.KubeletServingSignerName),
		},
	}
}

// nodes approves the serving certificates of virtual nodes, which this cluster's
// manager asks for. The signer's authority is that of the cluster in many of them, so
// that every byte of a request has to be right.
type nodes struct {
	cached   client.Reader
	direct   client.Client
	clock    clock.PassiveClock
	rand     io.Reader
	username string
	// namespace is that of the manager.
	namespace string
	pace      *rate.Limiter
	// waiting is since when requests wait for the address of a pod, by this clock alone: a
	// time.Time by the name of the request, which no other has again.
	waiting sync.Map
}

func registerNodes(mgr ctrl.Manager, o Options) error {
	n := newNodes(mgr.GetClient(), o)
	ours := predicate.NewPredicateFuncs(func(obj client.Object) bool {
		csr, ok := obj.(*certificatesv1.CertificateSigningRequest)
		return ok && n.concerns(csr)
	})
	err := ctrl.NewControllerManagedBy(mgr).Named("node-certificates").
		For(&certificatesv1.CertificateSigningRequest{}, builder.WithPredicates(ours)).
		WithOptions(controller.Options{RateLimiter: throttle.NewLimiter(), NeedLeaderElection: ptr.To(false)}).
		Complete(n)
	if err != nil {
		return fmt.Errorf("adding the approval of virtual nodes' certificates: %w", err)
	}
	return nil
}

func newNodes(cached client.Reader, o Options) *nodes {
	return &nodes{
		cached: cached, direct: o.Direct, clock: o.Clock, rand: o.Rand, pace: rate.NewLimiter(nodesPerSecond, nodesAtOnce),
		namespace: o.Namespace, username: "system:serviceaccount:" + o.Namespace + ":" + managerAccount,
	}
}

// concerns reports whether a signing request is one to look at: ours, and open.
func (n *nodes) concerns(csr *certificatesv1.CertificateSigningRequest) bool {
	return csr.Spec.SignerName == certificatesv1.KubeletServingSignerName && csr.Spec.Username == n.username &&
		csr.DeletionTimestamp.IsZero() && len(csr.Status.Conditions) == 0 && len(csr.Status.Certificate) == 0
}

// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests,verbs=get;list;watch,roleName=pelago-auth
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests/approval,verbs=update,roleName=pelago-auth
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=signers,resourceNames=kubernetes.io/kubelet-serving,verbs=approve,roleName=pelago-auth
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get,roleName=pelago-auth
// +kubebuilder:rbac:groups="",resources=pods,verbs=list,roleName=pelago-auth,namespace=pelago-system

// Reconcile approves one signing request if it is right. One that is not stays as it
// is: whoever made it removes it. A pod can ask before the API has its address.
func (n *nodes) Reconcile(ctx context.Context, req reconcile.Request) (ctrl.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, nodeLimit)
	defer cancel()
	var none ctrl.Result
	waits := false
	defer func() {
		if !waits {
			n.waiting.Delete(req.Name)
		}
	}()
	csr := &certificatesv1.CertificateSigningRequest{}
	if err := n.cached.Get(ctx, req.NamespacedName, csr); err != nil {
		return none, client.IgnoreNotFound(err)
	}
	if !n.concerns(csr) {
		return none, nil
	}
	now := n.clock.Now()
	asked, err := parseNodeRequest(csr.Spec.Request, n.rand)
	if err == nil {
		err = n.approvable(ctx, csr, asked)
	}
	refused := refusedRequest{}
	if errors.As(err, &refused) && refused.early {
		since, _ := n.waiting.LoadOrStore(req.Name, now)
		waits = now.Sub(since.(time.Time)) < addressLimit
	}
	switch {
	case waits:
		return ctrl.Result{RequeueAfter: time.Second}, nil
	case errors.As(err, &refused):
		log.FromContext(ctx).Info("signing request of a virtual node not approved", "request", csr.Name, "cause", refused.Error())
		return none, nil
	case err != nil:
		return none, err
	case !n.pace.AllowN(now, 1):
		return ctrl.Result{RequeueAfter: time.Second}, nil
	}
	csr = csr.DeepCopy()
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue,
		Reason: "PelagoVirtualNode", Message: "It is for a virtual node of this cluster.",
	})
	// The update carries the version that was checked.
	err = n.direct.SubResource("approval").Update(ctx, csr)
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		return none, fmt.Errorf("approving signing request %s: %w", csr.Name, err)
	}
	return none, nil
}

// refusedRequest is what is wrong with a signing request.
type refusedRequest struct {
	text  string
	early bool // it may be right in a moment
}

// Error is the text.
func (r refusedRequest) Error() string { return r.text }

func wrong(format string, args ...any) error {
	return refusedRequest{text: fmt.Sprintf(format, args...)}
}

// approvable reads the node that a request is for and where the manager is, and judges the
// request by them. What the node says of itself the manager has written: alone it would make
// any address its own, that of the API server too.
func (n *nodes) approvable(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, asked *nodeRequest) error {
	node := &corev1.Node{}
	err := n.direct.Get(ctx, client.ObjectKey{Name: asked.node}, node)
	switch {
	case apierrors.IsNotFound(err):
		return wrong("subject: there is no node of that name")
	case err != nil:
		return fmt.Errorf("reading the node: %w", err)
	}
	if err := checkNode(&csr.Spec, asked, node); err != nil {
		return err
	}
	managers := &corev1.PodList{}
	if err := n.direct.List(ctx, managers, client.InNamespace(n.namespace), client.MatchingLabels{"app.kubernetes.io/name": managerAccount}); err != nil {
		return fmt.Errorf("listing the pods of the manager: %w", err)
	}
	return checkAddresses(asked, managers.Items)
}

// nodeRequest is what is in a signing request.
type nodeRequest struct {
	node  string
	hosts []string
	ips   []net.IP
}

// parseNodeRequest reads a signing request for a node's serving certificate. It has to
// be, but for the key, byte by byte what encoders make of what is read here: there is
// no room for anything that is not looked at.
func parseNodeRequest(text []byte, random io.Reader) (*nodeRequest, error) {
	if len(text) > maxNodeRequest {
		return nil, wrong("request: more than %d characters", maxNodeRequest)
	}
	block, rest := pem.Decode(text)
	if block == nil || block.Type != requestBlock || len(rest) > 0 || len(block.Headers) > 0 || !sameBlock(string(text), block) {
		return nil, wrong("request: not exactly one PEM block %s", requestBlock)
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, wrong("request: not a certificate request in DER")
	}
	key, ok := csr.PublicKey.(*ecdsa.PublicKey)
	switch {
	case !ok || key.Curve != elliptic.P256():
		return nil, wrong("key: not of the curve P-256")
	case csr.SignatureAlgorithm != x509.ECDSAWithSHA256 || csr.CheckSignature() != nil:
		return nil, wrong("signature: not made by the key in the request with SHA-256")
	case len(csr.DNSNames)+len(csr.IPAddresses) > maxNodeNames:
		return nil, wrong("names: more than %d", maxNodeNames)
	}
	name, isNode := strings.CutPrefix(csr.Subject.CommonName, "system:node:")
	if !isNode || name == "" {
		return nil, wrong("subject: not CN=system:node:NAME, O=system:nodes")
	}
	same, err := written(csr, name, random)
	switch {
	case err != nil:
		return nil, err
	case !same:
		return nil, wrong("request: holds more or other things than CN=system:node:NAME, O=system:nodes, host names and addresses")
	}
	return &nodeRequest{node: name, hosts: csr.DNSNames, ips: csr.IPAddresses}, nil
}

// written reports whether an encoder writes the same from what was read.
func written(csr *x509.CertificateRequest, node string, random io.Reader) (bool, error) {
	other, err := ecdsa.GenerateKey(elliptic.P256(), random)
	if err != nil {
		return false, fmt.Errorf("making a key to compare with: %w", err)
	}
	der, err := x509.CreateCertificateRequest(random, &x509.CertificateRequest{
		Subject:  pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
		DNSNames: csr.DNSNames, IPAddresses: csr.IPAddresses,
	}, other)
	if err != nil {
		return false, nil // these names cannot be written
	}
	again, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return false, fmt.Errorf("reading what was written: %w", err)
	}
	want := bytes.Replace(again.RawTBSCertificateRequest, again.RawSubjectPublicKeyInfo, csr.RawSubjectPublicKeyInfo, 1)
	return bytes.Equal(want, csr.RawTBSCertificateRequest), nil
}

// checkNode judges a request by the node that it is for: one of ours, with these very
// names and addresses.
func checkNode(spec *certificatesv1.CertificateSigningRequestSpec, asked *nodeRequest, node *corev1.Node) error {
	switch {
	case node.Labels[v1alpha1.LabelType] != v1alpha1.TypeVirtualNode || !node.DeletionTimestamp.IsZero():
		return wrong("subject: node %s is no virtual node", node.Name)
	case node.Name != asked.node:
		return wrong("subject: another node")
	case !servingUsages(spec.Usages):
		return wrong("usages: not exactly digital signature and server auth")
	case spec.ExpirationSeconds == nil || time.Duration(*spec.ExpirationSeconds)*time.Second > maxNodeLife:
		return wrong("expirationSeconds: more than %s", maxNodeLife)
	case len(asked.ips) == 0:
		return wrong("names: there is no address")
	}
	for _, host := range asked.hosts {
		// The signer's authority may be the API server's: its names are no node's, nor is any that
		// means something in DNS beyond this cluster, or is that of a Service. Nodes of earlier builds have one.
		if host != node.Name || host == "kubernetes" || strings.Contains(host, ".") || host == "localhost" || !has(node, corev1.NodeHostName, host) {
			return wrong("names: %q is not the host name of node %s", host, node.Name)
		}
	}
	for _, ip := range asked.ips {
		if ip.IsLoopback() || ip.IsUnspecified() || ip.IsMulticast() || ip.IsLinkLocalUnicast() || !hasIP(node, ip) {
			return wrong("names: %s is not an address of node %s", ip, node.Name)
		}
	}
	return nil
}

// checkAddresses judges the addresses of a request by what the kubelets say of the pods of the
// manager, which serves for all virtual nodes.
func checkAddresses(asked *nodeRequest, managers []corev1.Pod) error {
	for _, ip := range asked.ips {
		if !slices.ContainsFunc(managers, func(p corev1.Pod) bool { return servesAt(&p, ip) }) {
			return refusedRequest{fmt.Sprintf("names: %s is not the address of a pod of %s", ip, managerAccount), true}
		}
	}
	return nil
}

// servesAt says whether a pod has an address. One that has ended has none: its may be another's.
func servesAt(p *corev1.Pod, ip net.IP) bool {
	return p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed &&
		slices.ContainsFunc(p.Status.PodIPs, func(a corev1.PodIP) bool { return ip.Equal(net.ParseIP(a.IP)) })
}

func has(node *corev1.Node, kind corev1.NodeAddressType, value string) bool {
	return slices.ContainsFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Type == kind && a.Address == value })
}

func hasIP(node *corev1.Node, ip net.IP) bool {
	return slices.ContainsFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool {
		return a.Type == corev1.NodeInternalIP && ip.Equal(net.ParseIP(a.Address))
	})
}

func servingUsages(usages []certificatesv1.KeyUsage) bool {
	return len(usages) == 2 && slices.Contains(usages, certificatesv1.UsageDigitalSignature) && slices.Contains(usages, certificatesv1.UsageServerAuth)
}
