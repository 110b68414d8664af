package cluster

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"
)

func readCertificate(t *testing.T, path string) *x509.Certificate {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// withCredentials is a cluster whose certificates lie in a folder of the test.
func withCredentials(t *testing.T, number int) *Cluster {
	t.Helper()
	c := in(t, plan().Clusters[number])
	if err := c.credentials(); err != nil {
		t.Fatal(err)
	}
	return c
}

// text shows what a certificate says of its owner.
func text(cert *x509.Certificate) string {
	var addresses []string
	for _, ip := range cert.IPAddresses {
		addresses = append(addresses, ip.String())
	}
	slices.Sort(addresses)
	return fmt.Sprintf("CN=%s O=%v names=%v addresses=%v use=%v CA=%t", cert.Subject.CommonName, cert.Subject.Organization, cert.DNSNames, addresses, cert.ExtKeyUsage, cert.IsCA)
}

const (
	client = "use=[clientAuth] CA=false"
	server = "use=[serverAuth] CA=false"
)

func TestCertificatesOfADualStackCluster(t *testing.T) {
	c := withCredentials(t, 1)
	for file, want := range map[string]string{
		"ca.crt":             "CN=ca O=[] names=[] addresses=[] use=[] CA=true",
		"front-proxy-ca.crt": "CN=front-proxy-ca O=[] names=[] addresses=[] use=[] CA=true",
		"apiserver.crt": "CN=kube-apiserver O=[] names=[localhost kubernetes kubernetes.default kubernetes.default.svc kubernetes.default.svc.cluster.local milan-control]" +
			" addresses=[10.43.0.1 127.0.0.1 198.18.97.2 ::1 fd43::1 fd5a:70e1:a90:61::2] " + server,
		"etcd.crt":               "CN=etcd O=[] names=[localhost] addresses=[127.0.0.1 ::1] " + server,
		"metrics-server.crt":     "CN=metrics-server O=[] names=[metrics-server.kube-system.svc] addresses=[] " + server,
		"kubelet-milan-2.crt":    "CN=system:node:milan-2 O=[system:nodes] names=[milan-2] addresses=[198.18.97.12 fd5a:70e1:a90:61::c] " + server,
		"node-milan-2.crt":       "CN=system:node:milan-2 O=[system:nodes] names=[] addresses=[] " + client,
		"admin.crt":              "CN=kubernetes-admin O=[system:masters] names=[] addresses=[] " + client,
		"apiserver-kubelet.crt":  "CN=kube-apiserver-kubelet-client O=[system:masters] names=[] addresses=[] " + client,
		"apiserver-etcd.crt":     "CN=kube-apiserver O=[] names=[] addresses=[] " + client,
		"controller-manager.crt": "CN=system:kube-controller-manager O=[] names=[] addresses=[] " + client,
		"scheduler.crt":          "CN=system:kube-scheduler O=[] names=[] addresses=[] " + client,
		"kube-proxy.crt":         "CN=system:kube-proxy O=[] names=[] addresses=[] " + client,
		"front-proxy-client.crt": "CN=front-proxy-client O=[] names=[] addresses=[] " + client,
		"kubelet-milan-3.crt":    "CN=system:node:milan-3 O=[system:nodes] names=[milan-3] addresses=[198.18.97.13 fd5a:70e1:a90:61::d] " + server,
	} {
		cert := readCertificate(t, c.pki(file))
		if d := cmp.Diff(want, text(cert)); d != "" {
			t.Errorf("%s (-want +got):\n%s", file, d)
		}
		if now := time.Now(); cert.NotBefore.After(now.Add(-time.Minute)) || cert.NotAfter.Before(now.Add(300*24*time.Hour)) {
			t.Errorf("%s is good from %s to %s", file, cert.NotBefore, cert.NotAfter)
		}
	}
}

func TestCertificatesAreSignedByTheRightAuthority(t *testing.T) {
	c := withCredentials(t, 0)
	roots := map[string]*x509.CertPool{}
	for _, name := range []string{"ca", "front-proxy-ca"} {
		roots[name] = x509.NewCertPool()
		roots[name].AddCert(readCertificate(t, c.pki(name+".crt")))
	}
	files, err := filepath.Glob(c.pki("*.crt"))
	if err != nil || len(files) < 14 {
		t.Fatalf("certificates are %v, %v", files, err)
	}
	serials := map[string]string{}
	for _, file := range files {
		signer := "ca"
		if strings.HasPrefix(filepath.Base(file), "front-proxy") {
			signer = "front-proxy-ca"
		}
		cert := readCertificate(t, file)
		for name, pool := range roots {
			_, err := cert.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
			if (err == nil) != (name == signer) {
				t.Errorf("%s and authority %s: %v, want it signed by %s alone", filepath.Base(file), name, err, signer)
			}
		}
		if other, taken := serials[cert.SerialNumber.String()]; taken {
			t.Errorf("%s and %s have the same serial number", file, other)
		}
		serials[cert.SerialNumber.String()] = file
	}
}

func TestTwoClustersTrustEachOtherNot(t *testing.T) {
	rome, athens := withCredentials(t, 0), withCredentials(t, 2)
	roots := x509.NewCertPool()
	roots.AddCert(readCertificate(t, rome.pki("ca.crt")))
	_, err := readCertificate(t, athens.pki("admin.crt")).Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	if err == nil {
		t.Error("rome takes the administrator of athens for its own")
	}
}

// snapshot is the text and mode of every file below a folder.
func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		info, statErr := entry.Info()
		name, _ := filepath.Rel(dir, path)
		found[name] = fmt.Sprintf("%v %s", info.Mode(), content)
		return errors.Join(err, statErr)
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestSecretsAreTheOwnersAlone(t *testing.T) {
	c := withCredentials(t, 1)
	secrets := 0
	for name, content := range snapshot(t, c.files()) {
		secret := strings.HasSuffix(name, ".key") || strings.Contains(name, "kubeconfig")
		if secret {
			secrets++
		}
		if secret && !strings.HasPrefix(content, "-rw------- ") {
			t.Errorf("%s has mode %s", name, content[:10])
		}
		if !secret && strings.Contains(content, "PRIVATE KEY") {
			t.Errorf("%s holds a private key", name)
		}
	}
	if secrets < 25 {
		t.Errorf("only %d files are secret", secrets)
	}
	info, err := os.Stat(c.pki(""))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder of keys has mode %v, %v", info.Mode(), err)
	}
	key, err := os.ReadFile(c.pki("memberlist.key"))
	if err != nil || len(key) != 64 {
		t.Errorf("the secret of the load balancers has %d characters, %v", len(key), err)
	}
}

func TestCredentialsAreMadeOnce(t *testing.T) {
	c := withCredentials(t, 1)
	before := snapshot(t, c.files())
	if err := c.credentials(); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(before, snapshot(t, c.files())); d != "" {
		t.Errorf("the second call changed (-before +after):\n%s", d)
	}
	if err := os.Remove(c.pki("scheduler.crt")); err != nil {
		t.Fatal(err)
	}
	if err := c.credentials(); err != nil {
		t.Fatal(err)
	}
	after := snapshot(t, c.files())
	for name := range before {
		changed, mine := before[name] != after[name], strings.HasPrefix(name, "pki/scheduler.")
		if changed != mine {
			t.Errorf("after scheduler.crt was lost, %s changed: %t", name, changed)
		}
	}
}

func TestKubeconfigs(t *testing.T) {
	c := withCredentials(t, 1)
	for path, user := range map[string]string{
		c.Kubeconfig(): "kubernetes-admin", c.kubeconfig("scheduler"): "system:kube-scheduler", c.kubeconfig("node-milan-1"): "system:node:milan-1",
	} {
		config, err := clientcmd.BuildConfigFromFlags("", path)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		block, _ := pem.Decode(config.CertData)
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil || cert.Subject.CommonName != user || config.Host != "https://198.18.97.2:6443" || config.CertFile != "" || config.Insecure {
			t.Errorf("%s: user %v at %s, %v, want %s", path, cert.Subject, config.Host, err, user)
		}
	}
	config, err := c.Config()
	if err != nil || len(config.CAData) == 0 || config.QPS < 100 {
		t.Errorf("the administrator's configuration: %v, %v", config, err)
	}
}

func TestSpoiltAuthority(t *testing.T) {
	for _, file := range []string{"ca.crt", "ca.key"} {
		c := withCredentials(t, 0)
		if err := os.WriteFile(c.pki(file), []byte("nonsense"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := c.credentials(); err == nil || !strings.Contains(err.Error(), c.pki(file)) {
			t.Errorf("with a spoilt %s: %v", file, err)
		}
	}
}

// madeOnce are the files that are never written again, the first ones first.
func madeOnce(t *testing.T, c *Cluster) (names []string) {
	t.Helper()
	for _, pattern := range []string{"*.key", "*.crt"} {
		found, err := filepath.Glob(c.pki(pattern))
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, found...)
	}
	return names
}

// TestFullDisk: up works when there is room again.
func TestFullDisk(t *testing.T) {
	for _, path := range madeOnce(t, withCredentials(t, 1)) {
		name := filepath.Base(path)
		c := in(t, plan().Clusters[1])
		if err := errors.Join(os.MkdirAll(c.pki(""), 0o700), os.Symlink("/dev/full", c.pki(name+".new"))); err != nil {
			t.Fatal(err)
		}
		if err := c.credentials(); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), name) {
			t.Errorf("while there is no room for %s: %v", name, err)
		}
		if _, err := os.Stat(c.pki(name)); err == nil {
			t.Errorf("there was no room for %s, and it is there", name)
		}
		if err := c.credentials(); err != nil {
			t.Errorf("with room for %s again: %v", name, err)
		}
		if left, err := filepath.Glob(c.pki("*.new")); err != nil || len(left) > 0 {
			t.Errorf("%v, %v remain", left, err)
		}
	}
}

// TestEmptyFilesAreMadeAgain: they are what a full disk has left. The key of an authority is
// older than its certificate, which others may have signed their own by.
func TestEmptyFilesAreMadeAgain(t *testing.T) {
	for _, path := range madeOnce(t, withCredentials(t, 1)) {
		name := filepath.Base(path)
		if strings.HasSuffix(name, "ca.key") {
			continue
		}
		c := in(t, plan().Clusters[1])
		if err := errors.Join(os.MkdirAll(c.pki(""), 0o700), os.WriteFile(c.pki(name), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(name, "ca.") { // those are empty before any other is made
			if err := errors.Join(c.credentials(), os.Truncate(c.pki(name), 0)); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.credentials(); err != nil {
			t.Errorf("with an empty %s: %v", name, err)
		}
		if info, err := os.Stat(c.pki(name)); err != nil || info.Size() == 0 {
			t.Errorf("%s is empty still, %v", name, err)
		}
	}
}
