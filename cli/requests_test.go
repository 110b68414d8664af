package cli

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/chain"
)

// requestIn makes a request with conditions.
func requestIn(namespace, name string, all ...metav1.Condition) v1alpha1.ResourceRequest {
	r := v1alpha1.ResourceRequest{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	r.Status.Conditions = all
	return r
}

var agreed = []metav1.Condition{is(v1alpha1.ConditionSent), is(v1alpha1.ConditionOffered), is(v1alpha1.ConditionAccepted)}

// TestRequests holds that no request that is not whole passes for well.
func TestRequests(t *testing.T) {
	const milan = "pelago-peering-milan"
	stalled := metav1.Condition{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonInvalid, Message: `spec.resources: there is no resource "foo"`}
	offered := func(reason, message string) []metav1.Condition {
		return []metav1.Condition{is(v1alpha1.ConditionSent), isNot(v1alpha1.ConditionOffered, reason, message), isNot(v1alpha1.ConditionAccepted, reason, message)}
	}
	cases := []struct {
		reason  string
		request v1alpha1.ResourceRequest
		problem string // what is shown
		pending string
		remedy  string
	}{
		{"whole", requestIn(milan, "batch", agreed...), "", "", ""},
		{"declined by its owner", requestIn(milan, "batch", is(v1alpha1.ConditionSent), is(v1alpha1.ConditionOffered), isNot(v1alpha1.ConditionAccepted, v1alpha1.ReasonDeclined, "x")), "", "", ""},
		{"stalled", requestIn(milan, "batch", stalled), `request batch of milan: spec.resources: there is no resource "foo"`, "", "kubectl -n pelago-peering-milan edit resourcerequest batch"},
		{"the default one follows its peering", requestIn(milan, "default", stalled), `request default of milan: spec.resources: there is no resource "foo"`, "", "kubectl edit peering milan"},
		{"refused by the provider", requestIn(milan, "batch", offered(v1alpha1.ReasonInvalid, "no")...), "request batch of milan: no", "", "edit resourcerequest batch"},
		{"without rights there", requestIn(milan, "batch", isNot(v1alpha1.ConditionSent, v1alpha1.ReasonForbidden, "no")), "request batch of milan: no", "", "pelago unpeer milan --force"},
		{"a quota there", requestIn(milan, "batch", isNot(v1alpha1.ConditionSent, v1alpha1.ReasonLimitExceeded, "no")), "request batch of milan: no", "", "kubectl edit tenant rome"},
		{"a policy there", requestIn(milan, "batch", isNot(v1alpha1.ConditionSent, v1alpha1.ReasonNotAdmitted, "no")), "request batch of milan: no", "", "or ask the provider's owner"},
		{"undecided", requestIn(milan, "batch", is(v1alpha1.ConditionSent), is(v1alpha1.ConditionOffered), isNot(v1alpha1.ConditionAccepted, v1alpha1.ReasonUndecided, "set spec.decision")), "",
			"request batch of milan: waits for your decision", `kubectl -n pelago-peering-milan patch resourcerequest batch --type merge -p '{"spec":{"decision":"Accepted"}}'`},
		{"full by our own", requestIn(milan, "batch", offered(v1alpha1.ReasonNothingFree, "nothing free")...), "",
			"request batch of milan: gets nothing while other requests of this cluster hold default (4 cpu, 8Gi memory, 110 pods)", "kubectl edit peering milan"},
		{"cordoned there", requestIn(milan, "batch", offered(v1alpha1.ReasonCordoned, "nothing new")...), "", "request batch of milan: nothing new", "pelago uncordon tenant rome"},
		{"nobody has looked", requestIn(milan, "batch"), "", "request batch of milan: nobody has looked at it yet", ""},
		{"anywhere", requestIn("default", "batch", stalled), "request batch in namespace default: nobody answers it: requests belong into the namespace of a provider, pelago-peering-NAME", "", "kubectl -n default delete resourcerequest batch"},
		{"of nobody", requestIn("pelago-peering-oslo", "batch"), "request batch in namespace pelago-peering-oslo: nobody answers it: this cluster does not use oslo", "", "delete resourcerequest batch"},
		{"a consumer's here", requestIn("pelago-tenant-milan", "batch", stalled), "", "", ""},
	}
	for _, c := range cases {
		s := busy()
		s.deployments, s.peerings, s.tenants, s.invitations, s.tombstones = s.deployments[1:], s.peerings[:1], nil, nil, nil
		s.nodes, s.offloadings, s.pods, s.maps = nil, nil, nil, nil
		s.peerings[0].Status.TenantNamespace = "pelago-tenant-rome"
		s.requests = []v1alpha1.ResourceRequest{c.request}
		if c.request.Name != "default" {
			s.requests = append(s.requests, requestIn(milan, "default", agreed...))
		}
		r := s.report(now)
		for _, one := range []struct {
			what, want string
			got        []Problem
		}{{"problem", c.problem, r.Problems}, {"pending", c.pending, r.Pending}} {
			text, remedy := "", ""
			if len(one.got) > 0 {
				text, remedy = one.got[0].Object+": "+one.got[0].Message, one.got[0].Remedy
			}
			if len(one.got) > 1 || text != one.want || one.want != "" && !strings.Contains(remedy, c.remedy) {
				t.Errorf("%s: %s is %+v, want %q and %q", c.reason, one.what, one.got, one.want, c.remedy)
			}
		}
	}
}

// TestUnmetPeering holds that a peering without resources is told once: by its requests if
// they say why, by itself if they do not.
func TestUnmetPeering(t *testing.T) {
	s := busy()
	s.nodes, s.offloadings, s.pods, s.maps = nil, nil, nil, nil
	s.deployments, s.peerings, s.tenants, s.tombstones = s.deployments[1:], s.peerings[:1], nil, nil
	s.requests = nil
	full := isNot(v1alpha1.ConditionResourcesAccepted, v1alpha1.ReasonNothingFree, "request default: full")
	s.peerings[0].Status.Conditions = []metav1.Condition{is(v1alpha1.ConditionReachable), full, isNot(v1alpha1.ConditionReady, v1alpha1.ReasonNothingFree, "full")}
	if r := s.report(now); len(r.Problems) != 1 || len(r.Pending) != 0 {
		t.Errorf("without a request: %+v, %+v", r.Problems, r.Pending)
	}
	s.requests = []v1alpha1.ResourceRequest{requestIn("pelago-peering-milan", "default", isNot(v1alpha1.ConditionOffered, v1alpha1.ReasonNothingFree, "full"))}
	if r := s.report(now); len(r.Problems) != 0 || len(r.Pending) != 1 {
		t.Errorf("with a request that says why: %+v, %+v", r.Problems, r.Pending)
	}
	s.peerings[0].Status.Conditions = []metav1.Condition{isNot(v1alpha1.ConditionReachable, v1alpha1.ReasonPeerUnreachable, "x"), full, isNot(v1alpha1.ConditionReady, v1alpha1.ReasonPeerUnreachable, "x")}
	if r := s.report(now); len(r.Problems) != 1 || r.Problems[0].Reason != v1alpha1.ReasonPeerUnreachable || len(r.Pending) != 0 {
		t.Errorf("a peering that is broken: %+v, %+v", r.Problems, r.Pending)
	}
}

func TestContact(t *testing.T) {
	if got := contact(true, when(-time.Hour), now, false); got != "now" {
		t.Errorf("a cluster that answers was heard of %s", got)
	}
	if got := contact(true, when(-time.Hour), now, true); got != "now, in band" {
		t.Errorf("a cluster that answers through the tunnel was heard of %s", got)
	}
	if got := contact(false, when(-time.Hour), now, false); got != "60m ago" {
		t.Errorf("a cluster that does not answer was heard of %s", got)
	}
	s := busy()
	s.deployments = nil
	r := s.report(now)
	if slices.ContainsFunc(r.Peerings, func(p PeeringReport) bool { return p.InContact }) {
		t.Error("without pelago-manager somebody is heard of")
	}
}

func TestOffers(t *testing.T) {
	offer := func(cpu, memory string, accepted bool) OfferReport {
		return OfferReport{Accepted: accepted, Resources: v1alpha1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory)}}
	}
	cases := []struct {
		want string
		list []OfferReport
	}{
		{"4 cpu, 8Gi", []OfferReport{offer("4", "8Gi", true)}},
		{"3.9 cpu, 8Gi (open)", []OfferReport{offer("3990m", "8Gi", false)}},
		{"2 offers: 7.9 cpu, 9Gi", []OfferReport{offer("3920m", "8Gi", true), offer("4", "1Gi", true)}},
		{"2 offers: 5 cpu, 9Gi (1 open)", []OfferReport{offer("4", "8Gi", true), offer("1", "1Gi", false)}},
		{"0 cpu, 0", []OfferReport{{Accepted: true}}},
	}
	for _, c := range cases {
		if got := offers(c.list); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestImageOf(t *testing.T) {
	for before, want := range map[string]string{
		"":                                "pelago.dev/pelago:v2",
		"pelago.dev/pelago:v1":            "pelago.dev/pelago:v2",
		"registry.example:5000/p/pelago":  "registry.example:5000/p/pelago:v2",
		"registry.example:5000/p:dev":     "registry.example:5000/p:v2",
		"mirror.example/p:v1@sha256:0123": "mirror.example/p:v2",
		"mirror.example/p@sha256:0123":    "mirror.example/p:v2",
	} {
		if got := imageOf(before, "v2"); got != want {
			t.Errorf("after %q it is %q, want %q", before, got, want)
		}
	}
}

func TestLeaving(t *testing.T) {
	p := func(provide bool, message string) *v1alpha1.Peering {
		deleted := at(-5 * time.Second)
		p := &v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: "milan", DeletionTimestamp: &deleted}}
		if provide {
			p.Spec.Provide = &v1alpha1.Provide{Tenant: "milan"}
		}
		p.Status.Conditions = []metav1.Condition{isNot(v1alpha1.ConditionReady, v1alpha1.ReasonTerminating, message)}
		return p
	}
	silent := "the provider has not answered since noon and could not be told; to go without: pelago unpeer milan --force (annotation pelago.dev/force=true)"
	cases := []struct {
		reason string
		p      *v1alpha1.Peering
		now    time.Time
		forced bool
		want   string
	}{
		{"the remedy is the command's", p(false, silent), now, false, "the provider has not answered since noon and could not be told"},
		{"a consumer has a moment", p(true, "waiting until Tenant milan is gone"), now, false, "waiting up to 10 s for milan to say goodbye"},
		{"the moment is over", p(true, "waiting until Tenant milan is gone"), now.Add(time.Minute), false, "waiting until Tenant milan is gone"},
		{"nobody waits who forces", p(true, "waiting until Tenant milan is gone"), now, true, "waiting until Tenant milan is gone"},
		{"nothing is known", &v1alpha1.Peering{}, now, false, ""},
	}
	for _, c := range cases {
		if d := cmp.Diff(c.want, leaving(c.p, c.now, c.forced)); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.reason, d)
		}
	}
	for _, c := range [][3]string{
		{v1alpha1.ReasonWaiting, "the provider says: the provider could not finish just now; try again", "waiting for the provider"},
		{v1alpha1.ReasonWaiting, "the provider says: tenant rome is changing", "the provider says: tenant rome is changing"},
		{v1alpha1.ReasonNameRefused, "the provider says: taken", "the provider says: taken"},
		{v1alpha1.ReasonReady, "a (annotation x=y) b\n c", "a b c"},
	} {
		if got := chain.Plain(c[0], c[1]); got != c[2] {
			t.Errorf("%q is said as %q", c[1], got)
		}
	}
}

// TestRefusalNamesTheTenant holds that a line to copy for the provider has the name that
// the provider knows this cluster by.
func TestRefusalNamesTheTenant(t *testing.T) {
	milan := v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: "milan"}, Status: v1alpha1.PeeringStatus{TenantNamespace: "pelago-tenant-rome-2"}}
	o := &v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: v1alpha1.OffloadingName}}
	o.Status.Phase = v1alpha1.OffloadingPhaseAllFailed
	for reason, want := range map[string]string{
		v1alpha1.ReasonDrained:       "pelago uncordon tenant rome-2",
		v1alpha1.ReasonNameForbidden: "pelago offload namespace shop --namespace-mapping-strategy DefaultName",
	} {
		o.Status.Clusters = []v1alpha1.ClusterOffloading{atCluster("milan", isNot(v1alpha1.ConditionReady, reason, ""))}
		if err := failure(o, tenantNames([]v1alpha1.Peering{milan})); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", reason, err, want)
		}
	}
}
