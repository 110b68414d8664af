package bench

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

const (
	rounds = 9
	// What the product promises, on 2 cores.
	peerLAN, peerWAN, unpeerMost = 2.0, 4.0, 3.0 // seconds
	idleMost                     = 0.4           // MB an hour, both directions together, outside of tunnels
	idleManyMost                 = 2.0           // the same with 100 namespaces
	tunnelMost                   = 5.0           // what asks whether a tunnel lives, and tells numbers through it
	idleWindow                   = 2 * time.Minute
)

// TestPeering measures one line to offer accepted, and unpeer, on the LAN and at 50 ms
// round trip, against what the two API servers need for the least that any such
// exchange does; then what an idle peering sends, and all of it once more in band.
func TestPeering(t *testing.T) {
	c := continuum(t, smallClusters)
	took, unpeer, bare := measure(t, c)
	outside := took
	t.Logf("LAN: peer %s; unpeer %s; bare exchange %s; ratio %.1f", took, unpeer, bare, took.quantile(0.5).Seconds()/bare.quantile(0.5).Seconds())
	atMost(t, "one line to offer accepted on the LAN, p50", took.quantile(0.5).Seconds(), peerLAN, "s")
	atMost(t, "unpeer on the LAN, p50", unpeer.quantile(0.5).Seconds(), unpeerMost, "s")

	c.Run(t, "link", "set", "rome", "milan", "--delay", "25ms")
	took, unpeer, _ = measure(t, c)
	t.Logf("50 ms: peer %s; unpeer %s", took, unpeer)
	atMost(t, "one line to offer accepted at 50 ms, p50", took.quantile(0.5).Seconds(), peerWAN, "s")
	atMost(t, "unpeer at 50 ms, p50", unpeer.quantile(0.5).Seconds(), unpeerMost, "s")
	c.Run(t, "link", "set", "rome", "milan")

	peer(t, c)
	all, control := idle(t, c, idleWindow)
	atMost(t, "idle control traffic of a peering, both directions, IP bytes", control, idleMost, "MB/h")
	atMost(t, "what asks twice a second whether an idle tunnel lives, both directions, IP bytes", all-control, tunnelMost, "MB/h")
	c.Pelago(t, "rome", "unpeer", "milan")
	parted(t, c)
	inBand(t, c, outside, all)

	peer(t, c)
	config := rest.CopyConfig(c.Configs["milan"])
	config.Impersonate.UserName = "system:serviceaccount:" + v1alpha1.SystemNamespace + ":pelago-manager" // nobody else makes a tenant's
	manager, err := client.New(config, client.Options{Scheme: kubetest.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("busy-%d", i), Labels: map[string]string{v1alpha1.LabelTenant: "rome", v1alpha1.LabelManagedBy: "bench"}}}
		if err := manager.Create(t.Context(), namespace); err != nil {
			t.Fatal(err)
		}
	}
	_, control = idle(t, c, idleWindow)
	atMost(t, "the same with 100 namespaces", control, idleManyMost, "MB/h")
	c.Pelago(t, "rome", "unpeer", "milan")
}

// measure peers, by invitations with these terms, and unpeers in turn with the bare exchange.
func measure(t *testing.T, c *kubetest.Continuum, terms ...string) (took, unpeer, bare sample) {
	t.Helper()
	for range rounds {
		bare = append(bare, exchange(t, c))
		line := c.Invite(t, "milan", terms...)
		begin := time.Now()
		if r := c.Shell(t, "rome", line); r.Code != 0 {
			t.Fatalf("peering: exit %d\n%s%s", r.Code, r.Out, r.Errs)
		}
		until(t, 20*time.Second, "the offer is accepted", func() error {
			request := &v1alpha1.ResourceRequest{}
			key := client.ObjectKey{Namespace: v1alpha1.PeeringNamespace("milan"), Name: v1alpha1.DefaultRequestName}
			if err := c.Clients["rome"].Get(t.Context(), key, request); err != nil {
				return err
			}
			for _, condition := range request.Status.Conditions {
				if condition.Type == v1alpha1.ConditionAccepted && condition.Status == metav1.ConditionTrue {
					return nil
				}
			}
			return fmt.Errorf("conditions %v", request.Status.Conditions)
		})
		took = append(took, time.Since(begin))
		r := c.TryPelago(t, "rome", "unpeer", "milan")
		if r.Code != 0 {
			t.Fatalf("unpeer: exit %d\n%s%s", r.Code, r.Out, r.Errs)
		}
		unpeer = append(unpeer, r.Took)
		parted(t, c)
	}
	return took, unpeer, bare
}

// parted waits until the provider is ready for another peering.
func parted(t *testing.T, c *kubetest.Continuum) {
	t.Helper()
	until(t, time.Minute, "the provider is ready for the next round", func() error {
		for key, obj := range map[client.ObjectKey]client.Object{
			{Name: "rome"}:                           &v1alpha1.Tenant{},
			{Name: v1alpha1.TenantNamespace("rome")}: &corev1.Namespace{},
		} {
			if err := c.Clients["milan"].Get(t.Context(), key, obj); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%s is still there (%v)", key.Name, err)
			}
		}
		return nil
	})
}

// inBand holds a peering in band to what is promised of others, and tells what it sends beside them.
func inBand(t *testing.T, c *kubetest.Continuum, outside sample, idleOutside float64) {
	t.Helper()
	took, unpeer, _ := measure(t, c, "--in-band")
	t.Logf("in band: peer %s; unpeer %s; peer %.2f of out of band", took, unpeer, took.quantile(0.5).Seconds()/outside.quantile(0.5).Seconds())
	atMost(t, "one line to offer accepted in band, p50", took.quantile(0.5).Seconds(), peerLAN, "s")
	atMost(t, "unpeer in band, p50", unpeer.quantile(0.5).Seconds(), unpeerMost, "s")
	c.Run(t, "link", "set", "rome", "milan", "--delay", "25ms")
	took, unpeer, _ = measure(t, c, "--in-band")
	t.Logf("in band at 50 ms: peer %s; unpeer %s", took, unpeer)
	atMost(t, "one line to offer accepted in band at 50 ms, p50", took.quantile(0.5).Seconds(), peerWAN, "s")
	atMost(t, "unpeer in band at 50 ms, p50", unpeer.quantile(0.5).Seconds(), unpeerMost, "s")
	c.Run(t, "link", "set", "rome", "milan")
	peer(t, c, "--in-band")
	until(t, time.Minute, "the tunnel of the invitation has gone", func() error {
		var openings v1alpha1.NetworkConfigList
		err := c.Clients["rome"].List(t.Context(), &openings, client.InNamespace(v1alpha1.NetworkNamespace))
		if err == nil && len(openings.Items) > 0 {
			err = fmt.Errorf("%s is there", openings.Items[0].Name)
		}
		return err
	})
	inside, _ := idle(t, c, idleWindow)
	t.Logf("idle in band: %.2f of out of band", inside/idleOutside)
	atMost(t, "an idle peering in band, both directions, IP bytes", inside, tunnelMost+2*idleMost, "MB/h")
	c.Pelago(t, "rome", "unpeer", "milan")
	parted(t, c)
}

// exchange is the baseline: a certificate signed by the provider's own signer, a
// namespace with a role in it, and one object written with that certificate. No
// program of ours takes part.
func exchange(t *testing.T, c *kubetest.Continuum) time.Duration {
	t.Helper()
	admin, err := kubernetes.NewForConfig(c.Configs["milan"])
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	begin := time.Now()
	name := fmt.Sprintf("bare-%d", begin.UnixNano())
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: name}}, key)
	must(err)
	csr := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), SignerName: certificatesv1.KubeAPIServerClientSignerName,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth, certificatesv1.UsageDigitalSignature},
		},
	}
	csr, err = admin.CertificatesV1().CertificateSigningRequests().Create(ctx, csr, metav1.CreateOptions{})
	must(err)
	csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Bench"}}
	_, err = admin.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, name, csr, metav1.UpdateOptions{})
	must(err)
	_, err = admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	must(err)
	until(t, 20*time.Second, "the certificate is signed", func() error {
		csr, err := admin.CertificatesV1().CertificateSigningRequests().Get(ctx, name, metav1.GetOptions{})
		if err == nil && len(csr.Status.Certificate) == 0 {
			err = fmt.Errorf("not yet")
		}
		return err
	})
	must(c.Clients["rome"].Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	took := time.Since(begin)
	must(admin.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}))
	must(c.Clients["rome"].Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	must(admin.CertificatesV1().CertificateSigningRequests().Delete(ctx, name, metav1.DeleteOptions{}))
	return took
}

// idle counts what passes between the two clusters for a while in which nobody does
// anything, in megabytes an hour, and what of that is control traffic outside of a tunnel.
// The counters are in the sandbox's internet, so they see every IP byte of both directions,
// acknowledgements included.
func idle(t *testing.T, c *kubetest.Continuum, window time.Duration) (all, control float64) {
	t.Helper()
	counter := newCounter(t, c)
	// What happened just before is not idle. A tunnel at rest moves some 27 kB meanwhile.
	until(t, 5*time.Minute, "the peering has come to rest", func() error {
		before := counter.read(t)
		<-time.After(20 * time.Second)
		now := counter.read(t)
		if more, tunnel := now.all-before.all, now.tunnel-before.tunnel; more-tunnel > 20_000 || tunnel > 50_000 {
			return fmt.Errorf("%d bytes in 20 s, %d of them in a tunnel", more, tunnel)
		}
		return nil
	})
	before := counter.read(t)
	<-time.After(window)
	now := counter.read(t)
	moved, tunnel := now.all-before.all, now.tunnel-before.tunnel
	if moved == 0 {
		t.Fatal("the counters saw nothing: heartbeats at least must pass")
	}
	perHour := float64(time.Hour) / float64(window) / 1e6
	return float64(moved) * perHour, float64(moved-tunnel) * perHour
}

// counter counts the bytes between rome's only node and milan's network.
type counter struct{ c *kubetest.Continuum }

const counterTable = "pelagobench"

func newCounter(t *testing.T, c *kubetest.Continuum) counter {
	t.Helper()
	var status struct {
		Clusters []struct {
			Name    string
			Network []netip.Prefix
		}
	}
	c.JSON(t, &status, "status", "-o", "json")
	for _, cluster := range status.Clusters {
		if cluster.Name != "milan" {
			continue
		}
		c.Run(t, "run", "rome", "--", "nft", fmt.Sprintf(`
add table ip %[1]s
delete table ip %[1]s
table ip %[1]s {
	chain out {
		type filter hook postrouting priority 300
		ip daddr %[2]s counter
		ip daddr %[2]s meta l4proto udp counter
	}
	chain in {
		type filter hook prerouting priority -350
		ip saddr %[2]s counter
		ip saddr %[2]s meta l4proto udp counter
	}
}`, counterTable, cluster.Network[0]))
		return counter{c}
	}
	t.Fatalf("the sandbox has no cluster milan: %+v", status)
	return counter{}
}

// passed is how many bytes there were of all, and of UDP, which is tunnels.
type passed struct{ all, tunnel int64 }

// read is what the counters of both directions hold.
func (k counter) read(t *testing.T) (p passed) {
	t.Helper()
	for line := range strings.Lines(k.c.Run(t, "run", "rome", "--", "nft", "list", "table", "ip", counterTable)) {
		_, text, counts := strings.Cut(line, " bytes ")
		if !counts {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
		if err != nil {
			t.Fatalf("reading the counters: %v", err)
		}
		if strings.Contains(line, "udp") {
			p.tunnel += n
		} else {
			p.all += n
		}
	}
	return p
}

// bytes is how many there were of all.
func (k counter) bytes(t *testing.T) int64 {
	t.Helper()
	return k.read(t).all
}
