package cli

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

var linePattern = regexp.MustCompile(`^pelago peer milan --cluster-id ` + id1 + ` --auth-url https://192\.0\.2\.7:[0-9]+ --ca-sha256 [0-9a-f]{64} --token ([A-Za-z0-9_-]{43})\n$`)

func TestGenerate(t *testing.T) {
	s := newStage(t, 0)
	s.install("milan", id1)
	got := s.run("generate", "peer-command", "--ttl", "2h", "--consumer", "rome")
	match := linePattern.FindStringSubmatch(got.out)
	if got.code != 0 || match == nil {
		t.Fatalf("inviting: %+v", got)
	}
	token := match[1]
	if strings.Contains(got.err, token) || !strings.Contains(got.err, "Keep this secret") {
		t.Errorf("the hints are %q", got.err)
	}
	var invitations v1alpha1.InvitationList
	if err := s.c.List(t.Context(), &invitations); err != nil {
		t.Fatal(err)
	}
	var found *v1alpha1.Invitation
	for i := range invitations.Items {
		s.t.Cleanup(func() { s.drop(&invitations.Items[i]) })
		if invitations.Items[i].Spec.TokenSHA256 == v1alpha1.TokenHash(token) {
			found = &invitations.Items[i]
		}
	}
	if found == nil || found.Spec.Consumer != "rome" || time.Until(found.Spec.Expires.Time).Round(time.Minute) != 2*time.Hour {
		t.Fatalf("the invitation is %+v", found)
	}
	if text, _ := json.Marshal(found); strings.Contains(string(text), token) {
		t.Error("the invitation holds the token")
	}
	if found.Spec.Tenant != nil {
		t.Errorf("the invitation has terms: %+v", found.Spec.Tenant)
	}
	got = s.run("generate", "peer-command", "--direct-paths")
	if err := s.c.List(t.Context(), &invitations); err != nil {
		t.Fatal(err)
	}
	direct := slices.IndexFunc(invitations.Items, func(i v1alpha1.Invitation) bool { return i.Spec.Tenant != nil && i.Spec.Tenant.DirectPaths })
	if got.code != 0 || direct < 0 || !strings.Contains(got.out, "pelago peer milan") || strings.Contains(got.out, "direct") {
		t.Errorf("with direct paths: %+v, %+v", got, invitations.Items)
	}
	got = s.run("generate", "peer-command", "-o", "yaml")
	documents := strings.Split(got.out, "---\n")
	var peering v1alpha1.Peering
	if len(documents) != 2 || yaml.UnmarshalStrict([]byte(documents[1]), &peering) != nil || peering.Name != "milan" || peering.Spec.Consume.TokenSecret == "" {
		t.Errorf("as manifests: %+v", got)
	}
	if got := s.run("status"); got.code != 0 || !strings.Contains(got.out, "for anybody, who will be called rome here, ends in") {
		t.Errorf("status with an invitation: %+v", got)
	}
}

func TestGenerateWithoutAddress(t *testing.T) {
	s := newStage(t, 0)
	s.install("milan", "")
	set := func(key, value string) {
		t.Helper()
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"data":{"config.yaml":"cluster: {name: milan}\n`+value+`"}}`))
		object := newConfigMap(key)
		if err := s.c.Patch(t.Context(), object, patch); err != nil {
			t.Fatal(err)
		}
	}
	set(v1alpha1.ConfigName, "")
	if got := s.run("generate", "peer-command"); got.code != 1 || !strings.Contains(got.err, "pelago install --api-server-url") {
		t.Errorf("without an address of the API server: %+v", got)
	}
	set(v1alpha1.ConfigName, `apiServer: {url: 'https://m:6443'}\nauth: {url: 'https://m;reboot:1'}\n`)
	if got := s.run("generate", "peer-command"); got.code != 1 || got.out != "" || !strings.Contains(got.err, "is not of the form") {
		t.Errorf("an address that a shell would act upon: %+v", got)
	}
}

func peerArgs(id string, more ...string) []string {
	return append([]string{"peer", "milan", "--cluster-id", id, "--auth-url", "https://milan.example:30443", "--ca-sha256", hash, "--token", marked}, more...)
}

func TestPeer(t *testing.T) {
	s := newStage(t, 0)
	s.install("rome", id2)
	stop := s.manager(func(p *v1alpha1.Peering) []metav1.Condition {
		s.offer(p.Name)
		return well()
	})
	got := s.run(peerArgs(id1, "--cpu", "4", "--reachability", "none")...)
	if got.code != 0 || got.out != "Peered with milan, which offers 4 cpu, 8Gi memory.\n" {
		t.Fatalf("peering: %+v", got)
	}
	if strings.Contains(got.err+got.out, marked) {
		t.Error("the token is shown")
	}
	p := s.peering("milan")
	if amount := p.Spec.Consume.Resources["cpu"]; p.Spec.ClusterID != id1 || amount.String() != "4" || p.Spec.Consume.TokenSecret != s.tokens()[0] {
		t.Errorf("the Peering is %+v", p.Spec)
	}
	if p.Spec.Reachability != v1alpha1.ReachNone {
		t.Errorf("the reachability is %q", p.Spec.Reachability)
	}
	if got := s.run("peer", "milan", "--reachability", "full"); got.code != 0 || !strings.Contains(got.out, "all pods may be reached by milan") || s.peering("milan").Spec.Reachability != v1alpha1.ReachFull {
		t.Errorf("changing the reachability: %+v", got)
	}
	direct := func(args ...string) (bool, result) {
		got := s.run(append([]string{"peer", "milan"}, args...)...)
		return s.peering("milan").Spec.DirectPaths, got
	}
	if allowed, got := direct("--direct-paths"); got.code != 0 || !allowed || got.out != "Pods at milan may have direct paths to those at other providers.\n" || s.peering("milan").Spec.Reachability != v1alpha1.ReachFull {
		t.Errorf("allowing direct paths: %t, %+v", allowed, got)
	}
	if allowed, got := direct("--reachability", "full", "-o", "json"); got.code != 0 || !allowed || !strings.Contains(got.out, `"directPaths": true`) {
		t.Errorf("changing something else: direct paths %t, %+v", allowed, got)
	}
	if allowed, got := direct("--direct-paths=false", "-o", "json"); got.code != 0 || allowed || !strings.Contains(got.out, `"kind": "Peering"`) || strings.Contains(got.out, `"directPaths": true`) {
		t.Errorf("taking direct paths away: %t, %+v", allowed, got)
	}
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"milan", "--direct-paths", "--dry-run"}, 2, "--dry-run"},
		{[]string{"oslo", "--direct-paths"}, 1, "oslo"},
		{[]string{"--direct-paths"}, 2, "there is no invitation"},
		{[]string{"milan", "--reachability", "some"}, 2, `--reachability "some" is unknown; use none, offloaded-only, full`},
		{[]string{"milan", "--reachability", "none", "--dry-run"}, 2, "--dry-run"},
		{[]string{"oslo", "--reachability", "none"}, 1, "oslo"},
		{[]string{"--reachability", "none"}, 2, "there is no invitation"},
	} {
		if got := s.run(append([]string{"peer"}, c.args...)...); got.code != c.code || !strings.Contains(got.err, c.says) {
			t.Errorf("peer %v: %+v", c.args, got)
		}
	}
	if got := s.run(peerArgs(id1)...); got.code != 0 || !strings.Contains(got.err, "already") {
		t.Errorf("peering again: %+v", got)
	}
	other := strings.Replace(id1, "8", "9", 1)
	if got := s.run(peerArgs(other)...); got.code != 1 || !strings.Contains(got.err, "another cluster ("+id1+")") || !strings.Contains(got.err, "pelago peer OTHER") {
		t.Errorf("a name that is taken: %+v", got)
	}
	if got := s.run(peerArgs(id2)...); got.code != 1 || !strings.Contains(got.err, "of this cluster itself") || strings.Contains(got.err, "Storing") {
		t.Errorf("peering with itself: %+v", got)
	}
	if got := s.run("unpeer", id1); got.code != 0 || got.out != "Peering milan is gone.\n" || s.peering("milan") != nil {
		t.Errorf("unpeering by id: %+v", got)
	}
	if got := s.run("unpeer", "milan"); got.code != 1 || !strings.Contains(got.err, `there is no peering "milan" here`) {
		t.Errorf("unpeering again: %+v", got)
	}
	stop()
	s.sweep()
}

// TestPeerRefused holds that a handshake without hope leaves nothing behind.
func TestPeerRefused(t *testing.T) {
	s := newStage(t, 0)
	s.install("rome", id2)
	cases := []struct {
		reason  string
		answer  []metav1.Condition
		want    string
		forGood bool
	}{
		{"a token that is wrong, used or expired", []metav1.Condition{isNot(v1alpha1.ConditionIdentityReady, v1alpha1.ReasonInvitationRefused, "the invitation is not valid")},
			"the peering was refused (InvitationRefused): the invitation is not valid; ask the provider for a new line", true},
		{"somebody else's endpoint", []metav1.Condition{isNot(v1alpha1.ConditionIdentityReady, v1alpha1.ReasonUntrusted, "the certificate is of another authority; ask for a new line")}, "refused (Untrusted): the certificate is of another authority; ask for a new line\n", true},
		{"versions that do not go together", []metav1.Condition{is(v1alpha1.ConditionIdentityReady), isNot(v1alpha1.ConditionCompatible, v1alpha1.ReasonUnsupported, "no peering/v1")}, "(Unsupported): no peering/v1; upgrade the older side", true},
		{"an endpoint that does not answer is tried again", []metav1.Condition{isNot(v1alpha1.ConditionIdentityReady, v1alpha1.ReasonAuthUnreachable, "connection refused")},
			"peering with milan is not done after 2s: proving the invitation (AuthUnreachable: connection refused); Pelago goes on trying; see: pelago explain peering milan; to give up: pelago unpeer milan", false},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			stop := s.manager(func(*v1alpha1.Peering) []metav1.Condition { return c.answer })
			timeout := "30s"
			if !c.forGood {
				timeout = "2s"
			}
			got := s.run(peerArgs(id1, "--timeout", timeout)...)
			if got.code != 1 || got.out != "" || !strings.Contains(got.err, c.want) {
				t.Errorf("%+v, want %q", got, c.want)
			}
			if gone := s.peering("milan") == nil && len(s.tokens()) == 0; gone != c.forGood {
				t.Errorf("Peering and token are gone: %t, want %t", gone, c.forGood)
			}
			stop()
			s.sweep()
		})
	}
}

// TestPeerInvalid holds that a request nobody can answer is not waited for, and costs no
// invitation.
func TestPeerInvalid(t *testing.T) {
	s := newStage(t, 0)
	s.install("rome", id2)
	ctx := t.Context()
	request := &v1alpha1.ResourceRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "pelago-peering-milan", Name: v1alpha1.DefaultRequestName}}
	s.c.Create(ctx, newNamespace(request.Namespace))
	s.create(request)
	conditions(&request.Status.Conditions, request.Generation, isNot(v1alpha1.ConditionOffered, v1alpha1.ReasonInvalid, "the provider has no such thing"))
	if err := s.c.Status().Update(ctx, request); err != nil {
		t.Fatal(err)
	}
	stop := s.manager(func(*v1alpha1.Peering) []metav1.Condition {
		return []metav1.Condition{is(v1alpha1.ConditionIdentityReady), is(v1alpha1.ConditionReachable), is(v1alpha1.ConditionCompatible),
			isNot(v1alpha1.ConditionResourcesAccepted, v1alpha1.ReasonInvalid, "request default: the provider has no such thing")}
	})
	got := s.run(peerArgs(id1)...)
	if got.code != 1 || !strings.Contains(got.err, "milan is peered, but nothing is offered, for the request is invalid: the provider has no such thing; change spec.consume.resources: kubectl edit peering milan; or end it: pelago unpeer milan") {
		t.Errorf("%+v", got)
	}
	if s.peering("milan") == nil {
		t.Error("the peering is gone, and its invitation with it")
	}
	stop()
	s.sweep()
}

// TestPeerRefusedKeepsProviding holds that undoing takes out only what was put in.
func TestPeerRefusedKeepsProviding(t *testing.T) {
	s := newStage(t, 0)
	s.install("rome", id2)
	s.create(&v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: "mailand"}, Spec: v1alpha1.PeeringSpec{ClusterID: id1, Provide: &v1alpha1.Provide{Tenant: "mailand"}}})
	stop := s.manager(func(p *v1alpha1.Peering) []metav1.Condition {
		if p.Spec.Consume == nil {
			return []metav1.Condition{is(v1alpha1.ConditionReady)}
		}
		return []metav1.Condition{isNot(v1alpha1.ConditionIdentityReady, v1alpha1.ReasonInvitationRefused, "no")}
	})
	got := s.run(peerArgs(id1)...)
	if got.code != 1 || !strings.Contains(got.err, "knows the provider as mailand already") {
		t.Errorf("%+v", got)
	}
	if p := s.peering("mailand"); p == nil || p.Spec.Consume != nil || p.Spec.Provide == nil || len(s.tokens()) > 0 {
		t.Errorf("after the refusal the Peering is %+v, tokens %v", p, s.tokens())
	}
	stop()
	s.sweep()
}

func TestInterrupted(t *testing.T) {
	s := newStage(t, 0)
	s.install("rome", id2)
	ctx, cancel := context.WithCancel(t.Context())
	stop := s.manager(func(*v1alpha1.Peering) []metav1.Condition {
		cancel()
		return nil
	})
	got := programWith(ctx, nil, peerArgs(id1, "--kubeconfig", s.access.Kubeconfig)...)
	if got.code != 1 || !strings.Contains(got.err, "interrupted while peering with milan was not done") || !strings.Contains(got.err, "pelago unpeer milan") {
		t.Errorf("Ctrl-C says %+v", got)
	}
	stop()
	s.sweep()
}

func TestUnpeerThatHangs(t *testing.T) {
	s := newStage(t, 0)
	s.install("rome", id2)
	p := &v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: "milan", Finalizers: []string{v1alpha1.FinalizerConsume}}, Spec: v1alpha1.PeeringSpec{ClusterID: id1, Provide: &v1alpha1.Provide{Tenant: "milan"}}}
	tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "milan"}, Spec: v1alpha1.TenantSpec{ClusterID: id1, PeeringUID: id1}}
	s.create(p, tenant)
	conditions(&p.Status.Conditions, p.Generation, isNot(v1alpha1.ConditionReady, v1alpha1.ReasonTerminating, "waiting for milan to hear goodbye"))
	if err := s.c.Status().Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if got := s.run("unpeer", "milan", "--forget"); got.code != 2 || !strings.Contains(got.err, "still peered") {
		t.Errorf("forgetting what is peered: %+v", got)
	}
	if got := s.run("unpeer", "milan", "--timeout", "1s"); got.code != 1 || !strings.Contains(got.err, "waiting for milan to hear goodbye; ") || !strings.Contains(got.err, "pelago unpeer milan --force") {
		t.Errorf("a peer that does not answer: %+v", got)
	}
	stop := s.manager(func(p *v1alpha1.Peering) []metav1.Condition {
		if p.Annotations[v1alpha1.AnnotationForce] == "true" {
			return well()
		}
		return nil
	})
	if got := s.run("unpeer", "milan", "--force"); got.code != 0 || s.peering("milan") != nil {
		t.Errorf("forcing: %+v", got)
	}
	if err := s.c.Get(t.Context(), client.ObjectKeyFromObject(tenant), tenant); err != nil || tenant.Annotations[v1alpha1.AnnotationForce] != "true" {
		t.Errorf("the tenant is not forced as well: %v, %v", tenant.Annotations, err)
	}
	stop()
	if got := s.run("unpeer", "milan"); got.code != 0 || got.out != "Tenant milan is gone.\n" {
		t.Errorf("a tenant that has lost its peering: %+v", got)
	}
}

// offer puts an offer beside the default request of a peering.
func (s *stage) offer(peering string) {
	ctx := context.Background()
	s.c.Create(ctx, newNamespace(v1alpha1.PeeringNamespace(peering)))
	s.c.Create(ctx, &v1alpha1.ResourceOffer{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.PeeringNamespace(peering), Name: v1alpha1.DefaultRequestName},
		Spec: v1alpha1.ResourceOfferSpec{Expires: metav1.NewTime(time.Now().Add(time.Hour)),
			Resources: v1alpha1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi")}}})
}

// sweep removes what commands have left.
func (s *stage) sweep() {
	s.t.Helper()
	var list v1alpha1.PeeringList
	if err := s.c.List(s.t.Context(), &list); err != nil {
		s.t.Fatal(err)
	}
	for i := range list.Items {
		s.drop(&list.Items[i])
	}
	for _, name := range s.tokens() {
		s.drop(newSecret(name))
	}
}

func TestRefused(t *testing.T) {
	stale := well()
	p := &v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: "milan", Generation: 2}}
	cases := []struct {
		reason     string
		generation int64
		all        []metav1.Condition
		refused    bool
		ready      bool
	}{
		{"all is well", 2, well(), false, true},
		{"all was well before the last change", 1, stale, false, false},
		{"refused", 2, []metav1.Condition{isNot(v1alpha1.ConditionIdentityReady, v1alpha1.ReasonInvitationRefused, "")}, true, false},
		{"refused before the last change, which brought a new token", 1, []metav1.Condition{isNot(v1alpha1.ConditionIdentityReady, v1alpha1.ReasonInvitationRefused, "")}, false, false},
		{"stalled", 2, []metav1.Condition{{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonDuplicate}}, true, false},
		{"the network may heal", 2, []metav1.Condition{isNot(v1alpha1.ConditionIdentityReady, v1alpha1.ReasonAuthUnreachable, "")}, false, false},
		{"nothing known yet", 2, nil, false, false},
	}
	for _, c := range cases {
		conditions(&p.Status.Conditions, c.generation, c.all...)
		r := refused(p)
		if ready, step := milestone(p, true); (r != nil) != c.refused || ready != c.ready || (step == "") {
			t.Errorf("%s: refused %v, ready %t (%s); want %t, %t", c.reason, r, ready, step, c.refused, c.ready)
		}
		if r != nil && !errors.As(error(*r), new(refusal)) {
			t.Errorf("%s: a refusal is not known as one", c.reason)
		}
	}
}
