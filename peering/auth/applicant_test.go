package auth

import (
	"crypto/elliptic"
	"encoding/json"
	"net/http"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/peering/claim"
)

func TestParse(t *testing.T) {
	good := newConsumer(t, "rome")
	for name, test := range map[string]struct {
		change func(*v1alpha1.IdentitySpec)
		field  string // "" if it is good
		reason string
	}{
		"as it should be":        {func(*v1alpha1.IdentitySpec) {}, "", "what consumers send"},
		"no versions":            {func(s *v1alpha1.IdentitySpec) { s.Cluster.Version, s.Cluster.KubernetesVersion = "", "" }, "", "versions are not required"},
		"build metadata":         {func(s *v1alpha1.IdentitySpec) { s.Cluster.KubernetesVersion = "v1.36.3+k3s1" }, "", "distributions write it"},
		"no id":                  {func(s *v1alpha1.IdentitySpec) { s.Cluster.ID = "" }, "spec.cluster.id", "nobody"},
		"id in upper case":       {func(s *v1alpha1.IdentitySpec) { s.Cluster.ID = strings.ToUpper("aabbccdd-7a2f-4c51-9d3c-2f1c7c1f6a10") }, "spec.cluster.id", "one way of writing"},
		"id with a newline":      {func(s *v1alpha1.IdentitySpec) { s.Cluster.ID += "\n" }, "spec.cluster.id", "one way of writing"},
		"no name":                {func(s *v1alpha1.IdentitySpec) { s.Cluster.Name = "" }, "spec.cluster.name", "nobody"},
		"long name":              {func(s *v1alpha1.IdentitySpec) { s.Cluster.Name = strings.Repeat("a", 41) }, "spec.cluster.name", "namespaces could not have it"},
		"name with a dot":        {func(s *v1alpha1.IdentitySpec) { s.Cluster.Name = "a.b" }, "spec.cluster.name", "not a label"},
		"name with a slash":      {func(s *v1alpha1.IdentitySpec) { s.Cluster.Name = "../kube-system" }, "spec.cluster.name", "not a label"},
		"long version":           {func(s *v1alpha1.IdentitySpec) { s.Cluster.Version = strings.Repeat("1", 65) }, "spec.cluster.version", "bounded"},
		"version with an escape": {func(s *v1alpha1.IdentitySpec) { s.Cluster.Version = "v1\x1b[2J" }, "spec.cluster.version", "people see it in terminals"},
		"kubernetes version":     {func(s *v1alpha1.IdentitySpec) { s.Cluster.KubernetesVersion = "<b>" }, "spec.cluster.kubernetesVersion", "people see it in browsers"},
		"many features":          {func(s *v1alpha1.IdentitySpec) { s.Cluster.Features = make([]string, 65) }, "spec.cluster.features", "bounded"},
		"long feature":           {func(s *v1alpha1.IdentitySpec) { s.Cluster.Features = []string{"a", strings.Repeat("f", 65)} }, "spec.cluster.features[1]", "bounded"},
		"feature twice":          {func(s *v1alpha1.IdentitySpec) { s.Cluster.Features = []string{"a", "a"} }, "spec.cluster.features[1]", "a set"},
		"no peering":             {func(s *v1alpha1.IdentitySpec) { s.PeeringUID = "" }, "spec.peeringUID", "no user"},
		"peering with a colon":   {func(s *v1alpha1.IdentitySpec) { s.PeeringUID = "x:y" }, "spec.peeringUID", "another user"},
		"request for another": {func(s *v1alpha1.IdentitySpec) {
			s.Request = requestFor(t, ecdsaKey(t, elliptic.P256()), "system:admin")
		},
			"spec.request", "the subject is not this peering's user"},
		"no request": {func(s *v1alpha1.IdentitySpec) { s.Request = "" }, "spec.request", "nothing is asked for"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := good.spec.DeepCopy()
			test.change(spec)
			body, err := json.Marshal(application{Token: "secret", Spec: *spec})
			if err != nil {
				t.Fatal(err)
			}
			got, err := parse(body)
			if test.field == "" {
				if err != nil || got.tokenHash != v1alpha1.TokenHash("secret") {
					t.Errorf("%s: %v", test.reason, err)
				}
				return
			}
			if reasonOf(err) != v1alpha1.ReasonInvalid || !strings.HasPrefix(err.Error(), test.field+":") {
				t.Errorf("%s: got %v, want a refusal of %s", test.reason, err, test.field)
			}
		})
	}
}

// FuzzParse: nothing panics, every refusal is one the consumer can read, and what is
// accepted has the form that the kinds demand.
func FuzzParse(f *testing.F) {
	c := newConsumer(f, "rome")
	body, err := json.Marshal(application{Token: newToken(), Spec: c.spec})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body)
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"token":1}`))
	f.Add([]byte(`null`))
	f.Add([]byte(`{"spec":{"cluster":{"id":"x","features":[null]}},"new":{}} `))
	f.Add(append(body, body...))
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := parse(body)
		if err != nil {
			if status := err.(*refusal).status; status != http.StatusBadRequest {
				t.Fatalf("refused with %d", status)
			}
			return
		}
		s := got.spec
		if !claim.UUID(s.Cluster.ID) || !claim.UUID(s.PeeringUID) || len(s.Cluster.Name) > 40 || len(s.Cluster.Features) > 64 {
			t.Fatalf("accepted %+v", s)
		}
	})
}

// FuzzUsable: only the token itself, for whom the invitation is bound to, in time.
func FuzzUsable(f *testing.F) {
	c := newConsumer(f, "rome")
	f.Add("token", "token", int64(10), "", "")
	f.Add("token", "", int64(-10), "id", "key")
	f.Add("", "", int64(0), "id", "")
	now := time.Unix(1_800_000_000, 0)
	f.Fuzz(func(t *testing.T, invited, shown string, left int64, boundID, boundKey string) {
		i := v1alpha1.Invitation{Spec: v1alpha1.InvitationSpec{
			TokenSHA256: v1alpha1.TokenHash(invited), Expires: metav1.NewTime(now.Add(time.Duration(left % 1e12))),
		}}
		if boundID != "" {
			i.Status.BoundTo = &v1alpha1.Binding{ClusterID: boundID, PublicKeySHA256: boundKey}
		}
		a := c.applicant(t, shown)
		want := invited == shown && (boundID == "" && left%1e12 > 0 || boundID == c.spec.Cluster.ID && boundKey == a.request.keyHash)
		if got := usable([]v1alpha1.Invitation{i}, a, now) != nil; got != want {
			t.Fatalf("usable is %t, want %t", got, want)
		}
	})
}

func TestUsable(t *testing.T) {
	rome := newConsumer(t, "rome")
	a := rome.applicant(t, "token")
	now := time.Now()
	bound := &v1alpha1.Binding{ClusterID: rome.spec.Cluster.ID, PublicKeySHA256: a.request.keyHash}
	for name, test := range map[string]struct {
		change func(*v1alpha1.Invitation)
		want   bool
		reason string
	}{
		"new":                {func(*v1alpha1.Invitation) {}, true, "nobody has used it"},
		"another token":      {func(i *v1alpha1.Invitation) { i.Spec.TokenSHA256 = v1alpha1.TokenHash("other") }, false, "not this invitation"},
		"expires now":        {func(i *v1alpha1.Invitation) { i.Spec.Expires = metav1.NewTime(now) }, false, "the end is not included"},
		"being deleted":      {func(i *v1alpha1.Invitation) { i.DeletionTimestamp = ptr.To(metav1.NewTime(now)) }, false, "the owner has taken it back"},
		"bound":              {func(i *v1alpha1.Invitation) { i.Status.BoundTo = bound }, true, "it is this cluster's and key's"},
		"bound, expired":     {func(i *v1alpha1.Invitation) { i.Status.BoundTo = bound; i.Spec.Expires = metav1.NewTime(now) }, true, "who came in time may finish"},
		"bound to other key": {func(i *v1alpha1.Invitation) { i.Status.BoundTo = &v1alpha1.Binding{ClusterID: bound.ClusterID} }, false, "another key's"},
		"bound to other id": {func(i *v1alpha1.Invitation) {
			i.Status.BoundTo = &v1alpha1.Binding{PublicKeySHA256: bound.PublicKeySHA256}
		}, false, "another cluster's"},
	} {
		i := v1alpha1.Invitation{Spec: v1alpha1.InvitationSpec{TokenSHA256: v1alpha1.TokenHash("token"), Expires: metav1.NewTime(now.Add(time.Minute))}}
		test.change(&i)
		if got := usable([]v1alpha1.Invitation{i}, a, now) != nil; got != test.want {
			t.Errorf("%s: usable is %t: %s", name, got, test.reason)
		}
	}
}

func TestPlace(t *testing.T) {
	rome := newConsumer(t, "rome")
	a := rome.applicant(t, "")
	gone := ptr.To(metav1.Now())
	own := v1alpha1.Tenant{
		ObjectMeta: metav1.ObjectMeta{Name: "rome", UID: "own", Annotations: map[string]string{v1alpha1.AnnotationInvitation: "i"}},
		Spec:       v1alpha1.TenantSpec{ClusterID: rome.spec.Cluster.ID, PeeringUID: rome.spec.PeeringUID},
	}
	changed := func(change func(*v1alpha1.Tenant)) v1alpha1.Tenant {
		t := own.DeepCopy()
		change(t)
		return *t
	}
	other := func(change func(*v1alpha1.Tenant)) v1alpha1.Tenant {
		return changed(func(t *v1alpha1.Tenant) {
			t.Name, t.UID, t.Annotations = "other", "other", nil
			t.Spec.ClusterID, t.Spec.PeeringUID = "x", "y"
			change(t)
		})
	}
	for name, test := range map[string]struct {
		tenants []v1alpha1.Tenant
		used    string // Invitation.status.tenantUID
		want    string
		mine    bool
		reason  string
	}{
		"nobody there":           {nil, "", "granted", false, "the name is free"},
		"others there":           {[]v1alpha1.Tenant{other(func(*v1alpha1.Tenant) {})}, "", "granted", false, "they have nothing in common"},
		"own":                    {[]v1alpha1.Tenant{own}, "", "granted", true, "made before the last crash"},
		"own, recorded":          {[]v1alpha1.Tenant{own}, "own", "granted", true, "asked again"},
		"own, deleting":          {[]v1alpha1.Tenant{changed(func(t *v1alpha1.Tenant) { t.DeletionTimestamp = gone })}, "own", v1alpha1.ReasonInvitationRefused, false, "the peering has ended"},
		"gone":                   {nil, "own", v1alpha1.ReasonInvitationRefused, false, "the invitation is void"},
		"made again":             {[]v1alpha1.Tenant{own}, "former", v1alpha1.ReasonInvitationRefused, false, "the invitation is void"},
		"of another invitation":  {[]v1alpha1.Tenant{changed(func(t *v1alpha1.Tenant) { t.Annotations[v1alpha1.AnnotationInvitation] = "j" })}, "", v1alpha1.ReasonDuplicate, false, "ids are no proof"},
		"of no invitation":       {[]v1alpha1.Tenant{changed(func(t *v1alpha1.Tenant) { t.Annotations = nil })}, "", v1alpha1.ReasonDuplicate, false, "ids are no proof"},
		"earlier one, ending":    {[]v1alpha1.Tenant{other(func(t *v1alpha1.Tenant) { t.Spec.ClusterID, t.DeletionTimestamp = own.Spec.ClusterID, gone })}, "", v1alpha1.ReasonWaiting, false, "unpeered a moment ago"},
		"name of an ending one":  {[]v1alpha1.Tenant{other(func(t *v1alpha1.Tenant) { t.Name, t.DeletionTimestamp = "rome", gone })}, "", v1alpha1.ReasonWaiting, false, "free in a moment"},
		"own and a twin by user": {[]v1alpha1.Tenant{own, other(func(t *v1alpha1.Tenant) { t.Spec.PeeringUID = own.Spec.PeeringUID })}, "", v1alpha1.ReasonDuplicate, false, "two tenants with one user"},
		"a twin by user and own": {[]v1alpha1.Tenant{other(func(t *v1alpha1.Tenant) { t.Spec.PeeringUID = own.Spec.PeeringUID }), own}, "", v1alpha1.ReasonDuplicate, false, "whatever the order"},
	} {
		i := &v1alpha1.Invitation{ObjectMeta: metav1.ObjectMeta{UID: "i"}, Status: v1alpha1.InvitationStatus{TenantUID: test.used}}
		_, mine, err := place(test.tenants, i, a)
		if got := reasonOf(err); got != test.want || (mine != nil) != test.mine {
			t.Errorf("%s: got %s, mine is %t, want %s, %t: %s", name, got, mine != nil, test.want, test.mine, test.reason)
		}
	}
}

func TestTerms(t *testing.T) {
	defaults := v1alpha1.TenantTerms{
		State: v1alpha1.TenantActive, PodSecurity: v1alpha1.PodSecurityRestricted,
		Objects: map[string]int32{"a": 1, "b": 2}, AbandonAfter: &metav1.Duration{Duration: time.Hour},
	}
	own := &v1alpha1.TenantTerms{State: v1alpha1.TenantCordoned, Limits: &v1alpha1.TenantLimits{Namespaces: ptr.To(int32(3))}, Objects: map[string]int32{"b": 7},
		Services: &v1alpha1.TenantServices{NodePorts: true}, DisruptionBudgets: ptr.To(false), Reachability: v1alpha1.ReachNone, DirectPaths: true, Translate: true}
	want := v1alpha1.TenantTerms{
		State: v1alpha1.TenantCordoned, PodSecurity: v1alpha1.PodSecurityRestricted, Limits: own.Limits,
		Objects: map[string]int32{"a": 1, "b": 7}, AbandonAfter: defaults.AbandonAfter, Services: own.Services, DisruptionBudgets: own.DisruptionBudgets, Reachability: v1alpha1.ReachNone, DirectPaths: true, Translate: true,
	}
	if diff := cmp.Diff(want, terms(own, defaults)); diff != "" {
		t.Errorf("the invitation's terms come before the defaults: %s", diff)
	}
	defaults.DirectPaths, defaults.Translate = true, true
	if got := terms(&v1alpha1.TenantTerms{}, defaults); !got.DirectPaths || !got.Translate {
		t.Error("an invitation that says nothing of direct paths takes away what the settings allow")
	}
	if diff := cmp.Diff(defaults, terms(nil, defaults)); diff != "" || defaults.Objects["b"] != 2 {
		t.Errorf("the defaults alone: %s", diff)
	}
}

// TestTermsAll holds that an invitation has its say about every field of the terms, and
// that the page of the Invitation names each.
func TestTermsAll(t *testing.T) {
	own := v1alpha1.TenantTerms{
		State: v1alpha1.TenantCordoned, Limits: &v1alpha1.TenantLimits{Namespaces: ptr.To(int32(3))}, PodSecurity: v1alpha1.PodSecurityRestricted,
		NamespaceNames: []string{"shop"}, Objects: map[string]int32{"b": 7}, Reflection: &v1alpha1.TenantReflection{Deny: []string{"Secret"}},
		Services: &v1alpha1.TenantServices{NodePorts: true}, Ingress: &v1alpha1.TenantIngress{Class: "c", Hosts: []string{"h"}}, DisruptionBudgets: ptr.To(true),
		Reachability: v1alpha1.ReachNone, Callers: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}, DirectPaths: true, Translate: true,
		AbandonAfter: &metav1.Duration{Duration: time.Hour},
	}
	page, err := os.ReadFile("../../docs/kinds/invitation.md")
	if err != nil {
		t.Fatal(err)
	}
	_, row, _ := strings.Cut(string(page), "\n| `tenant` |")
	row, _, _ = strings.Cut(row, "\n")
	fields := reflect.ValueOf(own)
	for i := range fields.NumField() {
		name, _, _ := strings.Cut(fields.Type().Field(i).Tag.Get("json"), ",")
		if fields.Field(i).IsZero() {
			t.Errorf("this test says nothing of %s", name)
		}
		if !strings.Contains(row, "`"+name+"`") {
			t.Errorf("docs/kinds/invitation.md does not name %s", name)
		}
	}
	if diff := cmp.Diff(own, terms(&own, v1alpha1.TenantTerms{})); diff != "" {
		t.Errorf("what the invitation says alone: %s", diff)
	}
}
