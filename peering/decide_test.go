package peering

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
)

func TestRefusal(t *testing.T) {
	cases := []struct {
		reason, after, text string
		code                int
		want                refusal
	}{
		{"wrong, used and expired tokens are one", "", `{"reason":"InvitationRefused","message":"no"}`, 403,
			refusal{reason: "InvitationRefused", message: refusedSentence, stalled: true}},
		{"a taken name", "", `{"reason":"NameRefused","message":"taken"}`, 409, refusal{reason: "NameRefused", message: "the provider says: taken", stalled: true}},
		{"a second peering", "", `{"reason":"Duplicate","message":"x"}`, 409, refusal{reason: "Duplicate", message: "the provider says: x", stalled: true}},
		{"too old", "", `{"reason":"Unsupported","message":"x"}`, 422, refusal{reason: "Unsupported", message: "the provider says: x", stalled: true}},
		{"a mistake of ours", "", `{"reason":"Invalid","message":"x"}`, 400, refusal{reason: "Invalid", message: "the provider says: x", stalled: true}},
		{"not yet", "2", `{"reason":"Waiting","message":"x"}`, 503, refusal{reason: "Waiting", message: "the provider says: x", after: 2 * time.Second}},
		{"too often", "3", `{"reason":"TooManyFailures","message":"x"}`, 429, refusal{reason: "AuthUnreachable", message: "the provider says: x", after: 3 * time.Second}},
		{"something else answers there", "soon", "<html>", 404, refusal{reason: "AuthUnreachable", message: "the provider says: HTTP status 404"}},
		{"no order to wait for ever", "1000000", `{}`, 503, refusal{reason: "AuthUnreachable", message: "the provider says: HTTP status 503"}},
	}
	for _, c := range cases {
		if diff := cmp.Diff(c.want, *refused(c.code, c.after, []byte(c.text)), cmp.AllowUnexported(refusal{})); diff != "" {
			t.Errorf("%s: %s", c.reason, diff)
		}
	}
}

func TestVerify(t *testing.T) {
	a, b := newAuthority(t), newAuthority(t)
	leaf := func(by *authority, change func(*x509.Certificate)) *x509.Certificate {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		text := by.sign(t, &key.PublicKey, func(c *x509.Certificate) {
			c.DNSNames, c.ExtKeyUsage = []string{v1alpha1.AuthService}, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
			if change != nil {
				change(c)
			}
		})
		block, _ := pem.Decode(text)
		parsed, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	own := leaf(a, nil)
	pin, leafPin := sha256.Sum256(a.cert.Raw), sha256.Sum256(own.Raw)
	cases := []struct {
		reason string
		chain  []*x509.Certificate
		pin    []byte
		good   bool
	}{
		{"the pinned authority", []*x509.Certificate{own, a.cert}, pin[:], true},
		{"the authority is not shown", []*x509.Certificate{own}, pin[:], false},
		{"another authority", []*x509.Certificate{leaf(b, nil), b.cert}, pin[:], false},
		{"another authority that shows the pinned one too", []*x509.Certificate{leaf(b, nil), b.cert, a.cert}, pin[:], false},
		{"another server of the same authority", []*x509.Certificate{leaf(a, func(c *x509.Certificate) { c.DNSNames = []string{"other"} }), a.cert}, pin[:], false},
		{"a certificate for clients", []*x509.Certificate{leaf(a, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }), a.cert}, pin[:], false},
		{"an old certificate", []*x509.Certificate{leaf(a, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }), a.cert}, pin[:], false},
		{"a pinned leaf is no authority", []*x509.Certificate{own, a.cert}, leafPin[:], false},
		{"nothing", nil, pin[:], false},
	}
	for _, c := range cases {
		err := verify(c.chain, c.pin, time.Now())
		if (err == nil) != c.good || err != nil && !errors.Is(err, errUntrusted) {
			t.Errorf("%s: %v, want good: %v", c.reason, err, c.good)
		}
	}
}

func TestJudge(t *testing.T) {
	begin := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	later := metav1.NewTime(begin.Add(time.Second))
	peering := func(name, id string, at metav1.Time) v1alpha1.Peering {
		return v1alpha1.Peering{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), CreationTimestamp: at},
			Spec:       v1alpha1.PeeringSpec{ClusterID: id, Consume: &v1alpha1.Consume{}},
		}
	}
	provides := peering("athens", remoteID, begin)
	provides.Spec = v1alpha1.PeeringSpec{ClusterID: remoteID, Provide: &v1alpha1.Provide{}}
	cases := []struct {
		reason string
		p      v1alpha1.Peering
		others []v1alpha1.Peering
		want   string
		says   string
	}{
		{"a good one", peering("milan", remoteID, begin), nil, "", ""},
		{"itself is no duplicate", peering("milan", remoteID, begin), []v1alpha1.Peering{peering("milan", remoteID, begin)}, "", ""},
		{"a reserved name", peering("kube-x", remoteID, begin), nil, "Invalid", "metadata.name"},
		{"itself", peering("milan", homeID, begin), nil, "Invalid", "spec.clusterID"},
		{"the second of two", peering("milan", remoteID, later), []v1alpha1.Peering{peering("zz", remoteID, begin)}, "Duplicate", "pelago unpeer zz"},
		{"the first of two", peering("milan", remoteID, begin), []v1alpha1.Peering{peering("aa", remoteID, later)}, "", ""},
		{"at once: by name", peering("milan", remoteID, begin), []v1alpha1.Peering{peering("aa", remoteID, begin)}, "Duplicate", "aa"},
		{"the other direction is there", peering("milan", remoteID, later), []v1alpha1.Peering{provides}, "Duplicate", "add its spec.consume there"},
		{"another cluster", peering("milan", remoteID, later), []v1alpha1.Peering{peering("aa", homeID, begin)}, "", ""},
	}
	for _, c := range cases {
		reason, message := judge(&c.p, homeID, c.others)
		if reason != c.want || !strings.Contains(message, c.says) {
			t.Errorf("%s: %q %q", c.reason, reason, message)
		}
	}
}

func TestCredential(t *testing.T) {
	begin := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	c := &credential{
		UID: peeringUID, Key: []byte("key"), Request: []byte("request"), Certificate: []byte("cert"), CA: []byte("ca"),
		Server: "https://a:1", Proxy: "http://p:1", TenantNamespace: "pelago-tenant-rome", ClusterID: remoteID,
		NotBefore: begin, NotAfter: begin.Add(30 * time.Hour), NextKey: []byte("k2"), NextRequest: []byte("r2"),
		Invitation: "y", Used: "z", Farewell: true, OwnServer: "https://c:3", OwnProxy: "http://s:3",
	}
	back, err := load(&corev1.Secret{Data: c.store()})
	if diff := cmp.Diff(c, back); diff != "" || err != nil {
		t.Errorf("a Secret and back: %v %s", err, diff)
	}
	if got := c.renewAfter(); !got.Equal(begin.Add(20 * time.Hour)) {
		t.Errorf("renewed after %s, want two thirds of its life", got)
	}
	conn := c.connection("milan", &v1alpha1.Consume{ServerURL: "https://b:2", ProxyURL: "http://q:2"})
	want := fleet.Connection{
		Peering: "milan", ClusterID: remoteID, ServerURL: "https://b:2", ProxyURL: "http://q:2", CA: c.CA,
		Certificate: c.Certificate, Key: c.Key, TenantNamespace: c.TenantNamespace,
	}
	if diff := cmp.Diff(want, conn, cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
		t.Errorf("the owner's addresses come first: %s", diff)
	}
	want.ServerURL, want.ProxyURL = "https://c:3", "http://s:3"
	if diff := cmp.Diff(want, c.connection("milan", nil), cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
		t.Errorf("also when it does not consume any more: %s", diff)
	}
	want.ServerURL, want.ProxyURL = c.Server, c.Proxy
	if diff := cmp.Diff(want, c.connection("milan", &v1alpha1.Consume{}), cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
		t.Errorf("but not when the owner has taken them back: %s", diff)
	}
	for _, change := range []func(map[string][]byte){
		func(d map[string][]byte) { delete(d, keyKey) },
		func(d map[string][]byte) { delete(d, keyRequest) },
		func(d map[string][]byte) { delete(d, keyServer) },
		func(d map[string][]byte) { delete(d, keyNotAfter) },
		func(d map[string][]byte) { d[keyNotAfter] = []byte("soon") },
		func(d map[string][]byte) { d[keyNotAfter] = d[keyNotBefore] },
	} {
		data := c.store()
		change(data)
		if _, err := load(&corev1.Secret{Data: data}); err == nil {
			t.Errorf("a damaged Secret was read: %v", data)
		}
	}
}

func TestInvitationSecret(t *testing.T) {
	data := map[string][]byte{"token": []byte("x")}
	cases := []struct {
		reason string
		secret corev1.Secret
		want   bool
	}{
		{"a token", corev1.Secret{Type: corev1.SecretTypeOpaque, Data: data}, true},
		{"no token in it", corev1.Secret{Type: corev1.SecretTypeOpaque}, false},
		{"a service account's", corev1.Secret{Type: corev1.SecretTypeServiceAccountToken, Data: data}, false},
		{"a credential", corev1.Secret{Type: corev1.SecretTypeOpaque, Data: data, ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.LabelManagedBy: component}}}, false},
		{"a tombstone", corev1.Secret{Type: corev1.SecretTypeOpaque, Data: data, ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.LabelTombstone: "a"}}}, false},
		{"a resource reader's", corev1.Secret{Type: corev1.SecretTypeOpaque, Data: map[string][]byte{"token": []byte("x"), "ca.crt": []byte("y")}}, false},
		{"the endpoint's authority", corev1.Secret{Type: corev1.SecretTypeOpaque, Data: data, ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.AuthTLSName}}, false},
	}
	for _, c := range cases {
		if got := invitationSecret(&c.secret); got != c.want {
			t.Errorf("%s: %v", c.reason, got)
		}
	}
}

func TestBackoff(t *testing.T) {
	want := []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 30 * time.Second, 30 * time.Second}
	for i, w := range want {
		if got := backoff(i, introduceMin, introduceMax, 0); got != w {
			t.Errorf("after %d failures %s, want %s", i, got, w)
		}
		if got := backoff(i, introduceMin, introduceMax, 0.999); got < w*2/3 || got >= w {
			t.Errorf("after %d failures with jitter %s of %s", i, got, w)
		}
	}
	if got := backoff(1_000_000, time.Second, time.Minute, 0); got != time.Minute {
		t.Errorf("after very many failures %s", got)
	}
	var m memory
	now := time.Now()
	if wait := m.failed("a", "x", now, time.Second, time.Minute, 5*time.Second, 0); wait != 5*time.Second {
		t.Errorf("asked to wait 5 s, waits %s", wait)
	}
	if m.pause("a", "x", now.Add(time.Second)) != 4*time.Second || m.pause("a", "y", now) != 0 || m.pause("b", "x", now) != 0 {
		t.Error("the pause is for the same thing only")
	}
}

func TestAccepted(t *testing.T) {
	request := func(name string, condition ...metav1.Condition) v1alpha1.ResourceRequest {
		return v1alpha1.ResourceRequest{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1alpha1.ResourceRequestStatus{Conditions: condition}}
	}
	yes := metav1.Condition{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted}
	no := metav1.Condition{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNothingFree, Message: "full"}
	bad := metav1.Condition{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonInvalid, Message: "there is no such resource"}
	cases := []struct {
		reason   string
		requests []v1alpha1.ResourceRequest
		want     string
	}{
		{"nothing asked for, nothing to say", nil, ""},
		{"one accepted is enough", []v1alpha1.ResourceRequest{request("a", no), request("b", yes)}, "True Accepted "},
		{"the default request's reason is shown", []v1alpha1.ResourceRequest{request("a"), request("default", no)}, "False NothingFree request default: full"},
		{"a request that breaks a rule", []v1alpha1.ResourceRequest{request("a", bad)}, "False Invalid request a: there is no such resource"},
		{"no answer yet", []v1alpha1.ResourceRequest{request("a")}, "False Pending request a: waiting for an offer"},
	}
	for _, c := range cases {
		v := &visit{Peering: &v1alpha1.Peering{}}
		v.accepted(c.requests)
		got := ""
		if s := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.ConditionResourcesAccepted); s != nil {
			got = string(s.Status) + " " + s.Reason + " " + s.Message
		}
		if got != c.want {
			t.Errorf("%s: %q", c.reason, got)
		}
	}
}

func TestLastContact(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 10, 42, 0, time.UTC)
	minute := func(m int) *metav1.Time {
		at := metav1.NewTime(time.Date(2026, 3, 1, 12, m, 0, 0, time.UTC))
		return &at
	}
	cases := []struct {
		reason       string
		contact      time.Time
		stored, want *metav1.Time
	}{
		{"never", time.Time{}, nil, nil},
		{"the first", now, nil, minute(10)},
		{"lasting, and written lately", now, minute(6), minute(6)},
		{"lasting, and written long ago", now, minute(5), minute(10)},
		{"over: at once", now.Add(-time.Minute), minute(8), minute(9)},
		{"written by a clock that was ahead", now, minute(30), minute(10)},
		{"over, and written by a clock that was ahead", now.Add(-5 * time.Minute), minute(30), minute(5)},
		{"never back", now.Add(-5 * time.Minute), minute(8), minute(8)},
	}
	for _, c := range cases {
		v := &visit{Peering: &v1alpha1.Peering{}, now: now, contact: c.contact}
		v.Status.LastContact = c.stored
		(&reconciler{}).remember(v)
		if diff := cmp.Diff(c.want, v.Status.LastContact); diff != "" {
			t.Errorf("%s: %s", c.reason, diff)
		}
	}
}

func TestPrintable(t *testing.T) {
	cases := map[string]string{
		"plain":                  "plain",
		" a\nb\x1b[31mc":         "a b [31mc",
		"a\u202eb\u2066c":        "a b c",
		"\xff\xfe":               "",
		"größer":                 "größer",
		strings.Repeat("ä", 400): strings.Repeat("ä", 300) + "…",
	}
	for in, want := range cases {
		if got := printable(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
