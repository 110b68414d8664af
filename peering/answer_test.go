package peering

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

const peeringUID = "0d1f2a3b-4c5d-4e6f-8a9b-0c1d2e3f4a5b"

// question is a key of ours, and what an answer to it has to fit.
func question(t testing.TB) expected {
	t.Helper()
	key, request, err := newKey(rand.Reader, peeringUID)
	if err != nil {
		t.Fatal(err)
	}
	return expected{clusterID: remoteID, user: v1alpha1.UserPrefix + peeringUID, key: key, request: request, now: time.Now()}
}

// goodReply is an answer with nothing wrong.
func goodReply(t testing.TB, a *authority, want expected) map[string]any {
	t.Helper()
	text, err := json.Marshal(map[string]any{"status": v1alpha1.IdentityStatus{
		Cluster:   &v1alpha1.ClusterInfo{ID: remoteID, Name: "milan", Version: "v0.3.0", KubernetesVersion: "v1.36.3+k3s1", Features: []string{"peering/v1"}},
		ServerURL: "https://milan.example:6443", ServerCA: string(a.pem), ProxyURL: "http://proxy.example:3128",
		TenantNamespace: "pelago-tenant-rome", CredentialType: v1alpha1.CredentialCertificate,
		RequestSHA256: fingerprint(want.request), Certificate: string(a.issue(t, string(want.request), time.Hour)),
	}})
	if err != nil {
		t.Fatal(err)
	}
	var reply map[string]any
	if err := json.Unmarshal(text, &reply); err != nil {
		t.Fatal(err)
	}
	return reply
}

func TestParseReply(t *testing.T) {
	a, want := newAuthority(t), question(t)
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := parseKey(want.key)
	if err != nil {
		t.Fatal(err)
	}
	user := pkix.Name{CommonName: want.user}
	certificate := func(public any, subject pkix.Name, change func(*x509.Certificate)) string {
		return string(a.sign(t, public, func(c *x509.Certificate) {
			c.Subject = subject
			if change != nil {
				change(c)
			}
		}))
	}
	set := func(path string, value any) func(map[string]any) {
		return func(reply map[string]any) {
			keys := strings.Split(path, ".")
			for _, k := range keys[:len(keys)-1] {
				reply = reply[k].(map[string]any)
			}
			reply[keys[len(keys)-1]] = value
		}
	}
	now := time.Now()
	asToken := func(token string, from, to time.Time) func(map[string]any) {
		return func(reply map[string]any) {
			set("status.credentialType", "ServiceAccountToken")(reply)
			set("status.certificate", "")(reply)
			set("status.notBefore", metav1.NewTime(from))(reply)
			set("status.notAfter", metav1.NewTime(to))(reply)
			set("token", token)(reply)
		}
	}
	long := strings.Repeat("x", 70_000)
	many := bundle(t, 11)
	full := strings.Repeat(string(a.pem), maxAuthorities/len(a.pem))
	cases := []struct {
		reason string
		change func(map[string]any)
		err    string
	}{
		{"a good answer", func(map[string]any) {}, ""},
		{"what this version does not know is passed over", set("status.tomorrow", "x"), ""},
		{"the system's authorities", set("status.serverCA", ""), ""},
		{"more authorities than a chain may have, with text around", set("status.serverCA", "# of milan\n"+many+"# the end\n"), ""},
		{"as large authorities as a status may hold", set("status.serverCA", full), ""},
		{"a good token", asToken("abc.def-ghi_j", now, now.Add(time.Hour)), ""},
		{"no status", set("status", map[string]any{}), "cluster: missing"},
		{"another cluster", set("status.cluster.id", homeID), "cluster.id"},
		{"no id", set("status.cluster.id", "milan"), "cluster.id"},
		{"a name that is none", set("status.cluster.name", "Milan!"), "cluster.name"},
		{"a name that is too long", set("status.cluster.name", strings.Repeat("a", 41)), "cluster.name"},
		{"a version with a line in it", set("status.cluster.version", "v1\nReady"), "cluster.version"},
		{"a feature twice", set("status.cluster.features", []string{"a", "a"}), "cluster.features"},
		{"a feature that is no word", set("status.cluster.features", []string{"a b"}), "cluster.features"},
		{"too many features", set("status.cluster.features", strings.Split(strings.Repeat("a,", 70), ",")), "cluster.features"},
		{"plain HTTP", set("status.serverURL", "http://milan.example"), "serverURL"},
		{"no address", set("status.serverURL", ""), "serverURL"},
		{"an address with a user", set("status.serverURL", "https://u:p@milan.example"), "serverURL"},
		{"an address with a query", set("status.serverURL", "https://milan.example/?a=b"), "serverURL"},
		{"an address without a host", set("status.serverURL", "https://:6443"), "serverURL"},
		{"an address that is too long", set("status.serverURL", "https://"+strings.Repeat("a", 300)), "serverURL"},
		{"a proxy that is none", set("status.proxyURL", "socks5://x:1"), "proxyURL"},
		{"an authority that is none", set("status.serverCA", "nothing"), "serverCA"},
		{"an authority that is too large", set("status.serverCA", full+long), "serverCA: too large"},
		{"an answer that is too large", set("status.tomorrow", strings.Repeat("x", maxReply)), "too large"},
		{"a chain that is too long", set("status.certificate", many), "not certificates"},
		{"a key as authority", set("status.serverCA", string(want.key)), "serverCA"},
		{"a namespace that is no tenant's", set("status.tenantNamespace", "kube-system"), "tenantNamespace"},
		{"a tenant without a name", set("status.tenantNamespace", "pelago-tenant-"), "tenantNamespace"},
		{"a path as namespace", set("status.tenantNamespace", "pelago-tenant-a/../b"), "tenantNamespace"},
		{"another request", set("status.requestSHA256", strings.Repeat("0", 64)), "requestSHA256"},
		{"another type", set("status.credentialType", "Password"), "credentialType"},
		{"no certificate", set("status.certificate", ""), "certificate"},
		{"for another key", set("status.certificate", certificate(&other.PublicKey, user, nil)), "another key"},
		{"for another user", set("status.certificate", certificate(key.Public(), pkix.Name{CommonName: v1alpha1.UserPrefix + homeID}, nil)), "another subject"},
		{"for a group as well", set("status.certificate", certificate(key.Public(), pkix.Name{CommonName: want.user, Organization: []string{"system:masters"}}, nil)), "another subject"},
		{"for servers", set("status.certificate", certificate(key.Public(), user, func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		})), "client authentication"},
		{"expired", set("status.certificate", certificate(key.Public(), user, func(c *x509.Certificate) { c.NotAfter = now.Add(-time.Second) })), "not valid now"},
		{"valid much later", set("status.certificate", certificate(key.Public(), user, func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = now.Add(48*time.Hour), now.Add(72*time.Hour)
		})), "not valid now"},
		{"a token beside a certificate", set("token", "abc"), "token"},
		{"a token with a line in it", asToken("abc\r\nX-Evil: 1", now, now.Add(time.Hour)), "token"},
		{"no token", asToken("", now, now.Add(time.Hour)), "token"},
		{"a token that has ended", asToken("abc", now.Add(-time.Hour), now), "not valid now"},
		{"a token that lives too short", asToken("abc", now.Add(-time.Hour), now.Add(4*time.Minute)), "lives less"},
		{"a token that will live too short", asToken("abc", now.Add(10*time.Minute), now.Add(12*time.Minute)), "lives less"},
		{"a token that ends before it begins", asToken("abc", now.Add(2*time.Hour), now.Add(time.Hour)), "not valid now"},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			reply := goodReply(t, a, want)
			c.change(reply)
			text, err := json.Marshal(reply)
			if err != nil {
				t.Fatal(err)
			}
			got, err := parseReply(text, want)
			if c.err == "" && (err != nil || got == nil) {
				t.Errorf("refused: %v", err)
			}
			if c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("error %v, want one about %s", err, c.err)
			}
			if err != nil && bytes.Contains([]byte(err.Error()), want.key) {
				t.Error("the key is in an error")
			}
		})
	}
}

func FuzzParseReply(f *testing.F) {
	a, want := newAuthority(f), question(f)
	good, err := json.Marshal(goodReply(f, a, want))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"status":{"cluster":{"id":"` + remoteID + `","name":"a","features":["a"]},"credentialType":"ServiceAccountToken"},"token":"x"}`))
	f.Add([]byte(`{"status":null,"token":7}`))
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----"))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := parseReply(text, want)
		if err != nil {
			return
		}
		// What is accepted is good for a Secret, a status and a connection.
		if got.cluster.ID != remoteID || checkInfo(&got.cluster, remoteID) != nil || checkURL(got.server, "https") != nil ||
			!strings.HasPrefix(got.tenantNamespace, v1alpha1.TenantNamespacePrefix) || !got.notAfter.After(want.now) ||
			checkAuthorities(string(got.ca)) != nil || (got.token == "") == (len(got.certificate) == 0) {
			t.Errorf("accepted: %+v", got)
		}
	})
}

func FuzzRefused(f *testing.F) {
	f.Add(403, "7", []byte(`{"reason":"InvitationRefused","message":"no"}`))
	f.Add(503, "-1", []byte(`{"reason":"Waiting","message":"a\u0000\u202eb"}`))
	f.Add(200, "99999999999", []byte("<html>"))
	f.Fuzz(func(t *testing.T, code int, after string, text []byte) {
		got := refused(code, after, text)
		if got.reason == "" || len(got.message) > 4*400 || strings.ContainsAny(got.message, "\n\r\x00\x1b") || got.after < 0 || got.after > time.Hour {
			t.Errorf("%+v", got)
		}
	})
}
