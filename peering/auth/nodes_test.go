package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// nodeTemplate is what the manager asks for.
func nodeTemplate(node string) *x509.CertificateRequest {
	return &x509.CertificateRequest{
		Subject:  pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
		DNSNames: []string{node}, IPAddresses: []net.IP{net.ParseIP("192.0.2.7")},
	}
}

func newKey(t testing.TB) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func virtualNode(name string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelType: v1alpha1.TypeVirtualNode}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: "192.0.2.7"}, {Type: corev1.NodeHostName, Address: name},
		}},
	}
}

func servingSpec(text string) certificatesv1.CertificateSigningRequestSpec {
	return certificatesv1.CertificateSigningRequestSpec{
		Request: []byte(text), SignerName: certificatesv1.KubeletServingSignerName, ExpirationSeconds: ptr.To(int32(86400)),
		Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
	}
}

// Only what the manager would write itself about a virtual node of this cluster passes.
func TestNodeRequests(t *testing.T) {
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	good := requestOfTemplate(t, newKey(t), nodeTemplate("milan"))
	with := func(change func(*x509.CertificateRequest)) string {
		template := nodeTemplate("milan")
		change(template)
		return requestOfTemplate(t, newKey(t), template)
	}
	uri, _ := url.Parse("spiffe://x")
	type parts struct {
		text string
		spec func(*certificatesv1.CertificateSigningRequestSpec)
		node func(*corev1.Node)
	}
	cases := []struct {
		reason string
		parts  parts
		want   string
	}{
		{"as the manager asks", parts{text: good}, ""},
		{"by its address alone", parts{text: with(func(r *x509.CertificateRequest) { r.DNSNames = nil })}, ""},
		{"another organization beside", parts{text: with(func(r *x509.CertificateRequest) {
			r.Subject.Organization = append(r.Subject.Organization, "system:masters")
		})}, "holds more"},
		{"another organization", parts{text: with(func(r *x509.CertificateRequest) { r.Subject.Organization = []string{"system:masters"} })}, "holds more"},
		{"no organization", parts{text: with(func(r *x509.CertificateRequest) { r.Subject.Organization = nil })}, "holds more"},
		{"more in the subject", parts{text: with(func(r *x509.CertificateRequest) { r.Subject.Country = []string{"IT"} })}, "holds more"},
		{"a user's name", parts{text: with(func(r *x509.CertificateRequest) { r.Subject.CommonName = "admin" })}, "subject: not CN="},
		{"a mail address", parts{text: with(func(r *x509.CertificateRequest) { r.EmailAddresses = []string{"a@example.com"} })}, "holds more"},
		{"a URI", parts{text: with(func(r *x509.CertificateRequest) { r.URIs = []*url.URL{uri} })}, "holds more"},
		{"an extension: an authority", parts{text: with(func(r *x509.CertificateRequest) {
			r.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Critical: true, Value: []byte{0x30, 0x03, 0x01, 0x01, 0xff}}}
		})}, "holds more"},
		{"the API server's name", parts{text: with(func(r *x509.CertificateRequest) { r.DNSNames = append(r.DNSNames, "kubernetes.default.svc") })}, `"kubernetes.default.svc" is not the host name`},
		{"the API server's address", parts{text: with(func(r *x509.CertificateRequest) { r.IPAddresses = append(r.IPAddresses, net.ParseIP("10.96.0.1")) })}, "10.96.0.1 is not an address"},
		{"no address", parts{text: with(func(r *x509.CertificateRequest) { r.IPAddresses = nil })}, "there is no address"},
		{"many names", parts{text: with(func(r *x509.CertificateRequest) { r.DNSNames = strings.Split(strings.Repeat("milan,", 8)+"milan", ",") })}, "names: more than 8"},
		{"an RSA key", parts{text: requestOfTemplate(t, rsaKey, nodeTemplate("milan"))}, "key: not of the curve P-256"},
		{"another curve", parts{text: requestOfTemplate(t, p384, nodeTemplate("milan"))}, "key: not of the curve P-256"},
		{"two requests", parts{text: good + good}, "not exactly one PEM block"},
		{"text beside", parts{text: "x\n" + good}, "not exactly one PEM block"},
		{"nothing", parts{text: ""}, "not exactly one PEM block"},
		{"too long", parts{text: strings.Repeat("x", 5000)}, "more than 4096"},
		{"for clients", parts{text: good, spec: func(s *certificatesv1.CertificateSigningRequestSpec) {
			s.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
		}}, "usages"},
		{"for both", parts{text: good, spec: func(s *certificatesv1.CertificateSigningRequestSpec) {
			s.Usages = append(s.Usages, certificatesv1.UsageClientAuth)
		}}, "usages"},
		{"for ever", parts{text: good, spec: func(s *certificatesv1.CertificateSigningRequestSpec) { s.ExpirationSeconds = nil }}, "expirationSeconds"},
		{"for a year", parts{text: good, spec: func(s *certificatesv1.CertificateSigningRequestSpec) { s.ExpirationSeconds = ptr.To(int32(31536000)) }}, "expirationSeconds"},
		{"a real node", parts{text: good, node: func(n *corev1.Node) { n.Labels = nil }}, "is no virtual node"},
		{"a node that ends", parts{text: good, node: func(n *corev1.Node) { n.DeletionTimestamp = ptr.To(metav1.Unix(1, 0)) }}, "is no virtual node"},
		{"a node with another address", parts{text: good, node: func(n *corev1.Node) { n.Status.Addresses = n.Status.Addresses[1:] }}, "192.0.2.7 is not an address"},
		{"a loopback address", parts{text: with(func(r *x509.CertificateRequest) { r.IPAddresses = []net.IP{net.ParseIP("127.0.0.1")} }), node: func(n *corev1.Node) { n.Status.Addresses[0].Address = "127.0.0.1" }}, "127.0.0.1 is not an address"},
	}
	for _, c := range cases {
		spec, node := servingSpec(c.parts.text), virtualNode("milan")
		if c.parts.spec != nil {
			c.parts.spec(&spec)
		}
		if c.parts.node != nil {
			c.parts.node(node)
		}
		asked, err := parseNodeRequest(spec.Request, rand.Reader)
		if err == nil {
			err = checkNode(&spec, asked, node)
		}
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.reason, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: got %v, want %q", c.reason, err, c.want)
		case c.want != "" && !errors.As(err, &refusedRequest{}):
			t.Errorf("%s: %v would be tried again", c.reason, err)
		}
	}
	for _, name := range []string{"kubernetes", "localhost", "kubernetes.default", "api.example.com", "shop.default.svc"} {
		spec, node := servingSpec(requestOfTemplate(t, newKey(t), nodeTemplate(name))), virtualNode(name)
		asked, err := parseNodeRequest(spec.Request, rand.Reader)
		if err == nil {
			err = checkNode(&spec, asked, node)
		}
		if err == nil {
			t.Errorf("a node may be called %s", name)
		}
	}
}

// On the real API server: what the manager's account has asked for is approved, what
// others ask stays open, however right it is.
func TestNodesApproval(t *testing.T) {
	server := kubetest.Server(t)
	c := server.Client(t)
	node := virtualNode(server.Name(t, "milan"))
	if err := c.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Delete(t.Context(), node) })
	node.Status = virtualNode(node.Name).Status
	for _, address := range []string{"10.96.0.1", "192.0.2.8", "192.0.2.9", "192.0.2.10"} {
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address})
	}
	if err := c.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	system := server.Namespace(t)
	managerPod(t, c, system, "manager", managerAccount, corev1.PodRunning, "192.0.2.7")
	managerPod(t, c, system, "ended", managerAccount, corev1.PodSucceeded, "192.0.2.8")
	managerPod(t, c, system, "other", "other", corev1.PodRunning, "192.0.2.9")
	account := "system:serviceaccount:" + system + ":" + managerAccount
	ask := func(user string, template *x509.CertificateRequest) *certificatesv1.CertificateSigningRequest {
		t.Helper()
		config := rest.CopyConfig(server.Config)
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
		as, err := client.New(config, client.Options{Scheme: kubetest.Scheme()})
		if err != nil {
			t.Fatal(err)
		}
		csr := &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{Name: server.Name(t, "csr")}, Spec: servingSpec(requestOfTemplate(t, newKey(t), template)),
		}
		if err := as.Create(t.Context(), csr); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Delete(t.Context(), csr) })
		return csr
	}
	n := newNodes(c, Options{Direct: c, Clock: clock.RealClock{}, Rand: rand.Reader, Namespace: system})
	stranger := nodeTemplate(node.Name)
	stranger.DNSNames = append(stranger.DNSNames, "kubernetes.default.svc")
	at := func(address string) *x509.CertificateRequest { // as the manager's account can have the node say
		template := nodeTemplate(node.Name)
		template.IPAddresses = []net.IP{net.ParseIP(address)}
		return template
	}
	cases := []struct {
		reason, user string
		template     *x509.CertificateRequest
		want         bool
	}{
		{"the manager's", account, nodeTemplate(node.Name), true},
		{"another account's", "system:serviceaccount:default:default", nodeTemplate(node.Name), false},
		{"the manager's, for a node that is not there", account, nodeTemplate("nowhere"), false},
		{"the manager's, for another name beside", account, stranger, false},
		{"the manager's, at the API server's address", account, at("10.96.0.1"), false},
		{"the manager's, where a pod of it was", account, at("192.0.2.8"), false},
		{"the manager's, at another pod's address", account, at("192.0.2.9"), false},
	}
	for _, k := range cases {
		csr := ask(k.user, k.template)
		for range 2 { // again does nothing
			if _, err := n.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(csr)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(csr), csr); err != nil {
			t.Fatal(err)
		}
		if got := hasApproval(csr); got != k.want || len(csr.Status.Conditions) > 1 {
			t.Errorf("%s: approved %t, conditions %v", k.reason, got, csr.Status.Conditions)
		}
	}
	csr := ask(account, at("192.0.2.10"))
	look := func() (time.Duration, bool) {
		t.Helper()
		res, err := n.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(csr)})
		if err = errors.Join(err, c.Get(t.Context(), client.ObjectKeyFromObject(csr), csr)); err != nil {
			t.Fatal(err)
		}
		return res.RequeueAfter, hasApproval(csr)
	}
	ahead := testingclock.NewFakePassiveClock(time.Now().Add(2 * time.Minute)) // of the API server's
	n.clock = ahead
	for _, k := range []struct{ after, again time.Duration }{{0, time.Second}, {3 * time.Second, time.Second}, {time.Minute, 0}, {time.Hour, time.Second}} {
		ahead.SetTime(ahead.Now().Add(k.after))
		if again, approved := look(); again != k.again || approved {
			t.Errorf("without the pod's address, after %v more: again in %v, want %v; approved %t", k.after, again, k.again, approved)
		}
	}
	ahead.SetTime(ahead.Now().Add(3 * time.Second))
	managerPod(t, c, system, "late", managerAccount, corev1.PodRunning, "192.0.2.10")
	if _, approved := look(); !approved {
		t.Error("not approved when the pod has its address")
	}
	if _, there := n.waiting.Load(csr.Name); there {
		t.Error("remembered when it is approved")
	}
	n.pace.SetBurst(0)
	csr = ask(account, nodeTemplate(node.Name))
	if res, err := n.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(csr)}); err != nil || res.RequeueAfter == 0 {
		t.Errorf("beyond the rate: %v, %v", res, err)
	}
}

// managerPod makes a pod, and says of it what a kubelet would.
func managerPod(t *testing.T, c client.Client, namespace, name, app string, phase corev1.PodPhase, address string) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app.kubernetes.io/name": app}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c"}}},
	}
	if err := c.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	pod.Status = corev1.PodStatus{Phase: phase, PodIP: address, PodIPs: []corev1.PodIP{{IP: address}}}
	if err := c.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}

func FuzzNodeRequest(f *testing.F) {
	f.Add([]byte(requestOfTemplate(f, newKey(f), nodeTemplate("milan"))))
	f.Add([]byte("-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		asked, err := parseNodeRequest(text, rand.Reader)
		if err == nil && (asked.node == "" || len(asked.hosts)+len(asked.ips) > maxNodeNames) {
			t.Errorf("%q passed as %v", text, asked)
		}
	})
}
