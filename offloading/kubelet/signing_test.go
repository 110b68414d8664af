package kubelet

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"testing"
	"time"

	"github.com/go-logr/logr"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	testingclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

func TestNextStep(t *testing.T) {
	now := time.Unix(2e9, 0)
	want := names{hosts: []string{"milan"}, ips: []net.IP{net.ParseIP("192.0.2.7")}}
	other := names{hosts: []string{"milan"}, ips: []net.IP{net.ParseIP("192.0.2.8")}}
	cases := []struct {
		reason string
		state  serving
		want   names
		step   step
		wait   time.Duration
	}{
		{"a node without an address needs none", serving{}, names{}, stepNothing, 0},
		{"the first is asked for", serving{}, want, stepAsk, 0},
		{"what is asked for is looked at", serving{pending: &pending{names: want}}, want, stepLook, 0},
		{"what is asked for other addresses is dropped", serving{pending: &pending{names: other}}, want, stepDrop, 0},
		{"a good one stays until two thirds of its life", serving{names: want, renew: now.Add(time.Hour)}, want, stepNothing, time.Hour},
		{"an aged one is replaced", serving{names: want, renew: now}, want, stepAsk, 0},
		{"one for other addresses is replaced", serving{names: other, renew: now.Add(time.Hour)}, want, stepAsk, 0},
		{"after a failure there is a pause", serving{pause: now.Add(time.Minute)}, want, stepNothing, time.Minute},
	}
	for _, c := range cases {
		if step, wait := c.state.next(now, c.want); step != c.step || wait != c.wait {
			t.Errorf("%s: got %d, %s", c.reason, step, wait)
		}
	}
}

// On the real API server, with the signer played: a certificate is asked for, taken
// into use, renewed, and no signing request is left behind, whatever happens.
func TestServingCertificate(t *testing.T) {
	server := kubetest.Server(t)
	c := server.Client(t)
	kube, err := kubernetes.NewForConfig(server.Config)
	if err != nil {
		t.Fatal(err)
	}
	ctx := log.IntoContext(t.Context(), logr.Discard())
	clk := testingclock.NewFakePassiveClock(time.Now())
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: server.Name(t, "milan")}}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.7"}}
	ca := newAuthority(t)
	var inUse *tls.Certificate
	use := func(c *tls.Certificate) { inUse = c }
	step := func(certs *certificates) time.Duration {
		t.Helper()
		wait, err := certs.advance(ctx, node, use)
		if err != nil {
			t.Fatal(err)
		}
		return wait
	}
	stored := func() *certificatesv1.CertificateSigningRequest {
		csr := &certificatesv1.CertificateSigningRequest{}
		err := c.Get(ctx, client.ObjectKey{Name: requestName(node.Name)}, csr)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			t.Fatal(err)
		}
		return csr
	}
	sign := func(csr *certificatesv1.CertificateSigningRequest) {
		t.Helper()
		block, _ := pem.Decode(csr.Spec.Request)
		asked, err := x509.ParseCertificateRequest(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test"}}
		if csr, err = kube.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, csr.Name, csr, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		now := clk.Now()
		der := ca.issue(t, &x509.Certificate{
			Subject: asked.Subject, DNSNames: asked.DNSNames, IPAddresses: asked.IPAddresses, NotBefore: now, NotAfter: now.Add(30 * time.Hour),
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		}, asked.PublicKey)
		csr.Status.Certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
		if _, err := kube.CertificatesV1().CertificateSigningRequests().UpdateStatus(ctx, csr, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	lost := newCertificates(c, c, clk)
	step(lost) // a process that ends here leaves its request behind
	certs := newCertificates(c, c, clk)
	step(certs)
	if stored() != nil {
		t.Error("the request whose key is lost is still there")
	}
	step(certs)
	if wait := step(certs); wait != lookAgain || inUse != nil {
		t.Errorf("not signed: come again after %s, %v", wait, inUse)
	}
	sign(stored())
	if wait := step(certs); inUse == nil || wait < 19*time.Hour || wait > 21*time.Hour || stored() != nil {
		t.Fatalf("signed: come again after %s, in use %v, request %v", wait, inUse != nil, stored())
	}
	first := inUse
	clk.SetTime(clk.Now().Add(21 * time.Hour))
	step(certs)
	sign(stored())
	if step(certs); inUse == first {
		t.Error("it was not renewed at two thirds of its life")
	}
	// Nobody signs any more: what is in use stays, and nothing is left behind.
	first = inUse
	clk.SetTime(clk.Now().Add(21 * time.Hour))
	step(certs)
	clk.SetTime(clk.Now().Add(signLimit))
	if wait := step(certs); wait != pauseMin || inUse != first || stored() != nil {
		t.Errorf("not signed in time: come again after %s", wait)
	}
	clk.SetTime(clk.Now().Add(pauseMin))
	step(certs)
	if err := c.Delete(ctx, stored()); err != nil {
		t.Fatal(err)
	}
	if wait := step(certs); wait != 2*pauseMin {
		t.Errorf("removed by others: come again after %s", wait)
	}
	clk.SetTime(clk.Now().Add(2 * pauseMin))
	step(certs)
	if stored() == nil {
		t.Fatal("it is not asked for again")
	}
	if err := certs.forget(ctx, node.Name); err != nil || stored() != nil {
		t.Errorf("the node is gone: %v", err)
	}
}

// A node's port opens with it and closes with it, or when it is no virtual node any more.
func TestReconcile(t *testing.T) {
	s := newStage(t, nil)
	r := &reconciler{client: s.store, fleet: s.link, kubelets: s.kubelets, certificates: newCertificates(s.client, s.client, s.kubelets.options.Clock)}
	request := ctrl.Request{NamespacedName: client.ObjectKey{Name: s.node.Name}}
	run := func() {
		t.Helper()
		if _, err := r.Reconcile(log.IntoContext(t.Context(), logr.Discard()), request); err != nil {
			t.Fatal(err)
		}
	}
	s.kubelets.close(s.node.Name)
	run()
	if s.kubelets.Ports(s.node.Name) == 0 {
		t.Error("a virtual node has no port")
	}
	if got := r.nodesOf(peering); len(got) != 1 || got[0] != request {
		t.Errorf("nodes of the peering: %v", got)
	}
	s.store.nodes[0].Labels[v1alpha1.LabelType] = "other"
	run()
	if s.kubelets.Ports(s.node.Name) != 0 {
		t.Error("a node that is none of ours has a port")
	}
	s.store.nodes[0].Labels[v1alpha1.LabelType] = v1alpha1.TypeVirtualNode
	run()
	s.store.nodes = nil
	run()
	if s.kubelets.Ports(s.node.Name) != 0 {
		t.Error("a node that is gone has a port")
	}
	csr := &certificatesv1.CertificateSigningRequest{}
	if err := s.client.Get(t.Context(), client.ObjectKey{Name: requestName(s.node.Name)}, csr); !apierrors.IsNotFound(err) {
		t.Errorf("its signing request is left: %v", err)
	}
}

// A name with a dot is left out: it could be anybody's in DNS.
func TestNamesOf(t *testing.T) {
	for name, hosts := range map[string][]string{"milan": {"milan"}, "milan-a.example": nil} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: "192.0.2.7"}, {Type: corev1.NodeHostName, Address: name}}}}
		if got := namesOf(node); !got.equal(names{hosts: hosts, ips: []net.IP{net.ParseIP("192.0.2.7")}}) {
			t.Errorf("%s: %v", name, got)
		}
	}
}
