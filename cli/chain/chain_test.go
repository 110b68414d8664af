package chain

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

var update = flag.Bool("update", false, "write golden files anew")

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func yes(kinds ...string) (all []metav1.Condition) {
	for _, kind := range kinds {
		all = append(all, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady, ObservedGeneration: 3})
	}
	return all
}

func no(kind, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message, ObservedGeneration: 3}
}

// whole is a peering in both directions in which all is well.
func whole() Facts {
	list := v1alpha1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi")}
	request := v1alpha1.ResourceRequest{ObjectMeta: metav1.ObjectMeta{Name: "default", Generation: 3}}
	request.Status.Conditions = yes(v1alpha1.ConditionSent, v1alpha1.ConditionOffered, v1alpha1.ConditionAccepted)
	offer := v1alpha1.ResourceOffer{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Spec: v1alpha1.ResourceOfferSpec{Resources: list}}
	p := &v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: "milan", Generation: 3}, Spec: v1alpha1.PeeringSpec{ClusterID: "8f14e45f-ceea-4e7a-9c1d-0d5f3b6a1c2e",
		Consume: &v1alpha1.Consume{AuthURL: "https://milan.example:30443", TokenSecret: "invitation-milan"}, Provide: &v1alpha1.Provide{Tenant: "milan"}}}
	p.Status = v1alpha1.PeeringStatus{ServerURL: "https://milan.example:6443", Features: []string{"offers/v1", "peering/v1"},
		Credential: &v1alpha1.CredentialStatus{Type: v1alpha1.CredentialCertificate, NotAfter: metav1.NewTime(now.Add(720 * time.Hour)), RenewAfter: metav1.NewTime(now.Add(480 * time.Hour))},
		Conditions: yes(v1alpha1.ConditionIdentityReady, v1alpha1.ConditionReachable, v1alpha1.ConditionCompatible)}
	t := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "milan", Generation: 3}, Spec: v1alpha1.TenantSpec{ClusterID: p.Spec.ClusterID, PeeringUID: "c9f0f895-fb98-4b91-8f3f-1d2a3b4c5d6e"}}
	contact := metav1.NewTime(now.Add(-time.Minute))
	t.Status = v1alpha1.TenantStatus{Namespace: "pelago-tenant-milan", LastContact: &contact,
		Conditions: yes(v1alpha1.ConditionNamespaceReady, v1alpha1.ConditionRightsReady, v1alpha1.ConditionConsumerAlive)}
	return Facts{Now: now, Peering: p, Requests: []v1alpha1.ResourceRequest{request}, Offers: []v1alpha1.ResourceOffer{offer},
		Tenant: t, TenantRequests: []v1alpha1.ResourceRequest{*request.DeepCopy()}, TenantOffers: []v1alpha1.ResourceOffer{offer}}
}

// TestPeering breaks each link of the chain once: everything before it is done, it says
// why and what to do, and nothing is claimed of what comes after it.
func TestPeering(t *testing.T) {
	// fresh is how a peering begins.
	fresh := func(f *Facts) { f.Peering.Status = v1alpha1.PeeringStatus{} }
	identity := func(reason, message string) func(*Facts) {
		return func(f *Facts) {
			fresh(f)
			f.Token = true
			f.Peering.Status.Conditions = []metav1.Condition{no(v1alpha1.ConditionIdentityReady, reason, message)}
		}
	}
	after := func(kind, reason, message string) func(*Facts) {
		return func(f *Facts) {
			for i, c := range f.Peering.Status.Conditions {
				if c.Type == kind {
					f.Peering.Status.Conditions[i] = no(kind, reason, message)
				}
			}
		}
	}
	request := func(kind, reason, message string) func(*Facts) {
		return func(f *Facts) {
			for i, c := range f.Requests[0].Status.Conditions {
				if c.Type == kind {
					f.Requests[0].Status.Conditions[i] = no(kind, reason, message)
				}
			}
		}
	}
	cases := []struct {
		name, reason string
		spoil        func(*Facts)
	}{
		{"well", "all is well", func(*Facts) {}},
		{"removed", "somebody removes it", func(f *Facts) { f.Peering.DeletionTimestamp = &metav1.Time{Time: now} }},
		{"duplicate", "there are two with one cluster", func(f *Facts) {
			f.Peering.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonDuplicate, Message: "peering mailand is with the same cluster"}}
		}},
		{"uninvited", "the token is gone, and nothing came of it", fresh},
		{"again", "it was made again", identity(v1alpha1.ReasonInvitationMissing, "Secret pelago-system/peering-milan holds the credential of an earlier Peering")},
		{"untried", "nobody has tried the token yet", func(f *Facts) { fresh(f); f.Token = true }},
		{"silent", "the endpoint does not answer", identity(v1alpha1.ReasonAuthUnreachable, "dialing milan.example:30443: connection refused")},
		{"untrusted", "somebody else answers", identity(v1alpha1.ReasonUntrusted, "the certificate is of another authority")},
		{"refused", "the token is no good", identity(v1alpha1.ReasonInvitationRefused, "the invitation is not valid")},
		{"unsigned", "the signer does not sign", identity(v1alpha1.ReasonSigningFailed, "no certificate after 10s")},
		{"expired", "the credential has ended", func(f *Facts) { f.Now = now.Add(721 * time.Hour) }},
		{"unreachable", "the network is cut", after(v1alpha1.ConditionReachable, v1alpha1.ReasonPeerUnreachable, "i/o timeout")},
		{"forbidden", "the provider has taken the rights away", after(v1alpha1.ConditionReachable, v1alpha1.ReasonForbidden, "403")},
		{"incompatible", "versions do not go together", after(v1alpha1.ConditionCompatible, v1alpha1.ReasonUnsupported, "milan runs v9 without peering/v1")},
		{"unasked", "the default request is not there yet", func(f *Facts) { f.Requests = nil }},
		{"unsent", "the request does not get through", request(v1alpha1.ConditionSent, v1alpha1.ReasonPeerUnreachable, "i/o timeout")},
		{"nothing", "the provider is full", request(v1alpha1.ConditionOffered, v1alpha1.ReasonNothingFree, "0 cpu free")},
		{"declined", "the owner has declined", request(v1alpha1.ConditionAccepted, v1alpha1.ReasonDeclined, "")},
		{"tenantless", "the tenant has been removed", func(f *Facts) { f.Tenant = nil }},
		{"cordoned", "the tenant is cordoned", func(f *Facts) { f.Tenant.Spec.State = v1alpha1.TenantCordoned }},
		{"quiet", "the consumer is silent", func(f *Facts) {
			f.Tenant.Status.Conditions[2] = no(v1alpha1.ConditionConsumerAlive, v1alpha1.ReasonSilent, "not heard of since 11:00")
		}},
		{"stale", "the status is of an earlier generation", func(f *Facts) {
			after(v1alpha1.ConditionReachable, v1alpha1.ReasonPeerUnreachable, "i/o timeout")(f)
			f.Peering.Generation = 4
		}},
	}
	for _, c := range cases {
		f := whole()
		c.spoil(&f)
		chains := Peering(f)
		broken := 0
		for _, one := range chains {
			stopped := false
			for _, s := range one.Steps {
				if stopped && s != (Step{Fact: s.Fact, State: Unknown}) {
					t.Errorf("%s: after the broken step it claims %+v", c.reason, s)
				}
				if s.State != Done && !stopped {
					stopped = true
					broken++
					if s.Evidence == "" {
						t.Errorf("%s: %q is not so, and nothing shows why", c.reason, s.Fact)
					}
					if s.State == Broken && s.Remedy == "" {
						t.Errorf("%s: nothing is said of what to do about %q", c.reason, s.Fact)
					}
				}
			}
		}
		if (broken > 0) != (c.name != "well") {
			t.Errorf("%s: %d chains stop", c.reason, broken)
		}
		golden(t, c.name, chains)
	}
}

// TestTokenUnread holds that who may not read a token is told so, and of what comes after it, but is told of a missing one
// where the manager has said that it is.
func TestTokenUnread(t *testing.T) {
	for reason, want := range map[string]State{v1alpha1.ReasonAuthUnreachable: Aside, v1alpha1.ReasonInvitationMissing: Broken} {
		f := whole()
		f.Peering.Status = v1alpha1.PeeringStatus{Conditions: []metav1.Condition{no(v1alpha1.ConditionIdentityReady, reason, "x")}}
		f.TokenUnread = true
		c := Peering(f)[0]
		i := slices.IndexFunc(c.Steps, func(s Step) bool { return s.Fact == "there is an invitation to show" })
		if i < 0 || c.Steps[i].State != want || len(c.Stops()) == 0 {
			t.Errorf("where it says %s: %+v", reason, c.Steps)
		}
	}
}

// TestBranches holds that a broken request hides no other one, and that one which gets
// nothing says who has it.
func TestBranches(t *testing.T) {
	f := whole()
	for i := range f.Requests {
		f.Requests[i].Namespace, f.Offers[i].Namespace = "pelago-peering-milan", "pelago-peering-milan"
	}
	bad, full := f.Requests[0].DeepCopy(), f.Requests[0].DeepCopy()
	bad.Name, full.Name = "bad", "full"
	bad.Status.Conditions = []metav1.Condition{no(v1alpha1.ConditionSent, v1alpha1.ReasonInvalid, "x")}
	full.Status.Conditions[1] = no(v1alpha1.ConditionOffered, v1alpha1.ReasonNothingFree, "nothing free")
	f.Requests = []v1alpha1.ResourceRequest{*bad, f.Requests[0], *full}
	f.Peering.Status.TenantNamespace = "pelago-tenant-rome"
	c := Peering(f)[0]
	golden(t, "branches", []Chain{c})
	if stops := c.Stops(); len(stops) != 2 || !strings.Contains(stops[1].Evidence, "default (4 cpu, 8Gi memory)") || !strings.Contains(stops[1].Remedy, "kubectl edit peering milan") {
		t.Errorf("it stops at %+v", stops)
	}
	if got := RemedyAt(v1alpha1.ReasonDrained, f.Peering); !strings.HasSuffix(got, "pelago uncordon tenant rome") {
		t.Errorf("the remedy of Drained is %q", got)
	}
	f.Peering.Status.TenantNamespace = "pelago-tenant-$(reboot)"
	if got := RemedyAt(v1alpha1.ReasonDrained, f.Peering); !strings.HasSuffix(got, "pelago uncordon tenant THIS-CLUSTER") {
		t.Errorf("the provider's word comes into a line to copy: %q", got)
	}
	f.Peering.Status.Conditions[1] = no(v1alpha1.ConditionReachable, v1alpha1.ReasonPeerUnreachable, "x")
	if stops := Peering(f)[0].Stops(); len(stops) != 1 {
		t.Errorf("an unreachable provider stops at %+v", stops)
	}
}

func TestNoRequest(t *testing.T) {
	f := whole()
	f.Requests, f.Peering.Spec.Consume.DefaultRequest = nil, new(bool)
	if first := Peering(f)[0].First(); first != nil {
		t.Errorf("a peering that asks for nothing is not whole: %+v", first)
	}
}

func TestTenant(t *testing.T) {
	if first := Tenant(whole()).First(); first != nil {
		t.Errorf("a tenant in which all is well stops at %+v", first)
	}
}

// TestRemedies holds that every reason that people may meet has a remedy, and that names
// are filled in.
func TestRemedies(t *testing.T) {
	for reason := range remedies {
		if got := (At{Name: "milan", Tenant: "rome", Namespace: "shop"}).Remedy(reason); strings.Contains(got, "NAME") || strings.Contains(got, "TENANT") || strings.Contains(got, "SPACE") {
			t.Errorf("the remedy of %s is %q", reason, got)
		}
	}
	if got := Remedy(v1alpha1.ReasonLimitExceeded, "milan"); !strings.Contains(got, "spec.limits") || !strings.Contains(got, "spec.objects") {
		t.Errorf("what is bounded is requests and objects, and the remedy is %q", got)
	}
	if got := Remedy(v1alpha1.ReasonExpired, "milan"); !strings.Contains(got, "its owner runs: pelago unpeer") {
		t.Errorf("a provider takes a new line when its tenant has gone, and the remedy is %q", got)
	}
	if got := Remedy(v1alpha1.ReasonForbidden, "milan"); !strings.Contains(got, "pelago unpeer milan --force") {
		t.Errorf("the remedy of Forbidden is %q", got)
	}
}

func TestAmounts(t *testing.T) {
	list := v1alpha1.ResourceList{"pods": resource.MustParse("110"), "nvidia.com/gpu": resource.MustParse("2"), "cpu": resource.MustParse("3500m"),
		"memory": resource.MustParse("16319380Ki"), "ephemeral-storage": resource.MustParse("0")}
	if d := cmp.Diff("3500m cpu, 15Gi memory, 110 pods, 0 ephemeral-storage, 2 nvidia.com/gpu", Amounts(list)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	asked := v1alpha1.ResourceList{"cpu": resource.MustParse("1000"), "memory": resource.MustParse("1Gi"), "example.com/a": resource.MustParse("2")}
	if d := cmp.Diff("3500m of the 1000 cpu asked for, 15Gi memory, 0 of the 2 example.com/a asked for", Answer(asked, v1alpha1.ResourceList{"cpu": list["cpu"], "memory": list["memory"]})); d != "" {
		t.Errorf("less than asked (-want +got):\n%s", d)
	}
	for in, want := range map[string]string{"8Gi": "8Gi", "1": "1", "10239": "10239", "10240": "10Ki", "128974848": "123Mi", "1Pi": "1Pi"} {
		if got := Amount("memory", resource.MustParse(in)); got != want {
			t.Errorf("%s of memory is %s, want %s", in, got, want)
		}
	}
}

// golden compares chains with a file in testdata.
func golden(t *testing.T, name string, chains []Chain) {
	t.Helper()
	text, err := json.MarshalIndent(chains, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", name+".json")
	if *update {
		if err := os.WriteFile(file, append(text, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("reading the golden file: %v; write it with -update", err)
	}
	if d := cmp.Diff(string(want), string(text)+"\n"); d != "" {
		t.Errorf("%s (-want +got):\n%s", file, d)
	}
}

// TestOlderProvider: what an older provider lacks is said though nothing is broken.
func TestOlderProvider(t *testing.T) {
	f := whole()
	f.Peering.Status.Conditions[2].Message = "milan runs Pelago v0.1.0, which does not know reflection.service/v1"
	c := Peering(f)[0]
	if c.First() != nil || !slices.ContainsFunc(c.Steps, func(s Step) bool { return strings.Contains(s.Evidence, "peering/v1; milan runs Pelago v0.1.0") }) {
		t.Errorf("%+v", c.Steps)
	}
}
