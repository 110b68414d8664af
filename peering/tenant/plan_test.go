package tenant

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

const (
	romeID  = "11111111-1111-1111-1111-111111111111"
	osloID  = "22222222-2222-2222-2222-222222222222"
	romeUID = "33333333-3333-3333-3333-333333333333"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func rome() *v1alpha1.Tenant {
	return &v1alpha1.Tenant{
		ObjectMeta: metav1.ObjectMeta{Name: "rome", UID: "tenant-1", CreationTimestamp: metav1.NewTime(noon)},
		Spec:       v1alpha1.TenantSpec{ClusterID: romeID, PeeringUID: romeUID, CredentialType: v1alpha1.CredentialCertificate},
	}
}

func TestJudge(t *testing.T) {
	now := metav1.NewTime(noon)
	change := func(f func(*corev1.Namespace)) *corev1.Namespace {
		n := tenantNamespace(rome())
		f(n)
		return n
	}
	for _, c := range []struct {
		name, reason string
		namespace    *corev1.Namespace
		want         verdict
	}{
		{"none", "", nil, absent},
		{"ours", "as made", tenantNamespace(rome()), ours},
		{"no owner", "the owner may be taken off by hand", change(func(n *corev1.Namespace) { n.OwnerReferences = nil }), ours},
		{"no labels", "the labels may be taken off by hand", change(func(n *corev1.Namespace) { n.Labels = nil }), ours},
		{"going", "deleted by hand", change(func(n *corev1.Namespace) { n.DeletionTimestamp = &now }), leaving},
		{"earlier", "an earlier tenant of the name left it", change(func(n *corev1.Namespace) { n.OwnerReferences[0].UID = "tenant-0" }), leaving},
		{"foreign", "somebody else made it", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "pelago-tenant-rome"}}, foreign},
		{"other tenant", "made for another", change(func(n *corev1.Namespace) { n.OwnerReferences = nil; n.Labels[v1alpha1.LabelTenant] = "oslo" }), foreign},
	} {
		if got := judge(c.namespace, rome()); got != c.want {
			t.Errorf("%s: %v, want %v: %s", c.name, got, c.want, c.reason)
		}
	}
}

func TestQuota(t *testing.T) {
	tenant := rome()
	tenant.Spec.Objects = map[string]int32{"secrets": 3, "resourceoffers.pelago.dev": 500}
	q, err := quota(tenant)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[corev1.ResourceName]int64{"count/secrets": 3, "count/resourceoffers.pelago.dev": 500, "count/pods": 0,
		"count/identities.pelago.dev": 5, "count/resourcerequests.pelago.dev": 16,
		"count/networkpaths.pelago.dev": v1alpha1.MaxNetworkPaths + objectSlack} {
		if got, ok := q.Spec.Hard[name]; !ok || got.Value() != want {
			t.Errorf("%s is %s, want %d", name, got.String(), want)
		}
	}
	for name, bound := range map[string]int32{"secrets": -1, "count/secrets": 1, "Foo": 1, "a b": 1, "": 1, "a/b": 1,
		"rolebindings.rbac.authorization.k8s.io": 1, "leases.coordination.k8s.io": 0, "serviceaccounts": 0, "identities.pelago.dev": 0, "resourcequotas": 0,
		"resourcerequest.pelago.dev": 1, "networkpath.pelago.dev": 1} {
		tenant.Spec.Objects = map[string]int32{name: bound}
		if _, err := quota(tenant); err == nil || !strings.Contains(err.Error(), "spec.objects") {
			t.Errorf("%q %d: %v, want an error that names the field", name, bound, err)
		}
	}
}

// TestQuotaMost holds that an owner cannot allow more than consumers read, and is told.
func TestQuotaMost(t *testing.T) {
	for name := range objectBounds {
		if _, is := objectMost[name]; ownKind(name) && !is {
			t.Errorf("nothing bounds what an owner may set for %s", name)
		}
	}
	for name, most := range objectMost {
		if objectBounds[name] > most {
			t.Errorf("by default there are %d %s, and consumers read %d", objectBounds[name], name, most)
		}
		for _, c := range []struct{ set, hard int32 }{{most, most}, {most + 1, most}} {
			tenant := rome()
			tenant.Spec.Objects = map[string]int32{name: c.set}
			q, err := quota(tenant)
			if err != nil {
				t.Fatal(err)
			}
			got, told := q.Spec.Hard[corev1.ResourceName("count/"+name)], capped(tenant)
			if got.Value() != int64(c.hard) || (told != "") != (c.set > most) {
				t.Errorf("%d %s are allowed where %d are set, and the owner is told %q", got.Value(), name, c.set, told)
			}
			if told != "" && (!strings.Contains(told, "spec.objects["+name+"]") || !strings.Contains(told, fmt.Sprintf("set it to %d or less", most))) {
				t.Errorf("the owner is told %q, want the field and the remedy", told)
			}
		}
	}
}

// TestQuotaSlack holds that a count which was never stored does not stop a handshake.
func TestQuotaSlack(t *testing.T) {
	for name, needed := range objectNeeds {
		if bound, bounded := objectBounds[name]; bounded && bound < needed+objectSlack {
			t.Errorf("%s is bounded by %d; %d are needed, and %d may be counted that do not exist", name, bound, needed, objectSlack)
		}
	}
}

func TestPlanQuota(t *testing.T) {
	want, err := quota(rome())
	if err != nil {
		t.Fatal(err)
	}
	have := func(f func(*corev1.ResourceQuota)) *corev1.ResourceQuota {
		q := want.DeepCopy()
		q.CreationTimestamp = metav1.NewTime(noon)
		q.Status = corev1.ResourceQuotaStatus{Hard: want.Spec.Hard.DeepCopy(), Used: want.Spec.Hard.DeepCopy()}
		if f != nil {
			f(q)
		}
		return q
	}
	uncounted := func(q *corev1.ResourceQuota) { delete(q.Status.Used, "count/identities.pelago.dev") }
	for _, c := range []struct {
		name, reason string
		have         *corev1.ResourceQuota
		after        time.Duration
		removed      time.Time
		want         quotaPlan
	}{
		{"none", "it is made", nil, 0, time.Time{}, quotaPlan{apply: true}},
		{"taken away", "the cluster gets time to learn of our kinds", nil, 0, noon.Add(-time.Second), quotaPlan{again: 4 * time.Second}},
		{"long enough", "it is made again", nil, 0, noon.Add(-quotaPause), quotaPlan{apply: true}},
		{"new", "no quota controller has seen it", have(func(q *corev1.ResourceQuota) { q.Status = corev1.ResourceQuotaStatus{} }), 0, time.Time{}, quotaPlan{}},
		{"counted", "it binds", have(nil), 0, time.Time{}, quotaPlan{counted: true}},
		{"more", "others may bound other things", have(func(q *corev1.ResourceQuota) { q.Spec.Hard["count/events"] = q.Spec.Hard["count/pods"] }), 0, time.Time{}, quotaPlan{counted: true}},
		{"changed by hand", "it is set right", have(func(q *corev1.ResourceQuota) { q.Spec.Hard["count/pods"] = q.Spec.Hard["count/secrets"] }), 0, time.Time{}, quotaPlan{apply: true}},
		{"uncounted", "the controller may need a moment", have(uncounted), time.Second, time.Time{}, quotaPlan{again: time.Second}},
		{"uncounted for long", "it would refuse every Identity", have(uncounted), 3 * time.Second, time.Time{}, quotaPlan{remove: true, again: quotaPause}},
		{"unknown resource", "an owner's slip blocks nothing", have(func(q *corev1.ResourceQuota) { delete(q.Status.Used, "count/jobs.batch") }), time.Hour, time.Time{}, quotaPlan{counted: true}},
		{"uncounted for ever", "an owner's entry that nobody counts does not make the quota anew for ever", have(func(q *corev1.ResourceQuota) { q.Spec.Hard["count/others.pelago.dev"] = q.Spec.Hard["count/pods"] }), time.Hour, time.Time{}, quotaPlan{counted: true}},
	} {
		want := want.DeepCopy()
		if c.name == "uncounted for ever" {
			want.Spec.Hard["count/others.pelago.dev"] = want.Spec.Hard["count/pods"]
		}
		got := planQuota(c.have, want, noon.Add(c.after), c.removed)
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(quotaPlan{})); diff != "" {
			t.Errorf("%s: %s\n%s", c.name, c.reason, diff)
		}
	}
}

func TestPlanRights(t *testing.T) {
	tenant := rome()
	want := bindings(tenant, "pelago-system")
	names := func(list []*rbacv1.RoleBinding) (found []string) {
		for _, b := range list {
			found = append(found, b.Name)
		}
		return found
	}
	stranger := *want[0].DeepCopy()
	stranger.Subjects = append(stranger.Subjects, rbacv1.Subject{Kind: "User", Name: "eve"})
	other := *want[0].DeepCopy()
	other.RoleRef.Name = "cluster-admin"
	for _, c := range []struct {
		name, reason  string
		have          []rbacv1.RoleBinding
		want          []*rbacv1.RoleBinding
		apply, remove []string
	}{
		{"new", "it is made", nil, want, []string{"pelago-consumer"}, nil},
		{"there", "nothing to do", []rbacv1.RoleBinding{*want[0]}, want, nil, nil},
		{"stranger", "nobody else gets in", []rbacv1.RoleBinding{stranger}, want, []string{"pelago-consumer"}, nil},
		{"other role", "a role cannot be changed in place", []rbacv1.RoleBinding{other}, want, []string{"pelago-consumer"}, []string{"pelago-consumer"}},
		{"farewell", "the swap", []rbacv1.RoleBinding{*want[0]}, []*rbacv1.RoleBinding{farewell(tenant)}, []string{"pelago-farewell"}, []string{"pelago-consumer"}},
		{"none", "a tenant in doubt has none", []rbacv1.RoleBinding{*want[0]}, nil, nil, []string{"pelago-consumer"}},
	} {
		got := planRights(c.have, c.want)
		if diff := cmp.Diff([2][]string{c.apply, c.remove}, [2][]string{names(got.apply), names(got.remove)}); diff != "" {
			t.Errorf("%s: %s\n%s", c.name, c.reason, diff)
		}
	}
	tenant.Spec.CredentialType = v1alpha1.CredentialToken
	list := bindings(tenant, "pelago-system")
	if diff := cmp.Diff([]string{"pelago-consumer", "pelago-consumer-token", "pelago-auth-token"}, names(list)); diff != "" {
		t.Error(diff)
	}
	if got := list[0].Subjects[0]; got.Kind != "ServiceAccount" || got.Name != "consumer" || got.Namespace != "pelago-tenant-rome" {
		t.Errorf("the subject is %v, want the service account of the tenant namespace", got)
	}
	if got := list[2].Subjects[0]; got.Name != "pelago-auth" || got.Namespace != "pelago-system" {
		t.Errorf("the endpoint is %v", got)
	}
}

func TestPlanPeering(t *testing.T) {
	now := metav1.NewTime(noon)
	make := func(name, id, provides string, age time.Duration) v1alpha1.Peering {
		p := v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(noon.Add(-age))}, Spec: v1alpha1.PeeringSpec{ClusterID: id}}
		if provides != "" {
			p.Spec.Provide = &v1alpha1.Provide{Tenant: provides}
		}
		return p
	}
	going := make("rome", romeID, "", 0)
	going.DeletionTimestamp = &now
	others := make("rome", osloID, "", 0)
	others.DeletionTimestamp = &now
	for _, c := range []struct {
		name, reason, want string
		have               []v1alpha1.Peering
	}{
		{"none", "it is made", "create rome", nil},
		{"there", "nothing to do", "", []v1alpha1.Peering{make("rome", romeID, "rome", 0)}},
		{"consumes", "one Peering holds both directions", "add rome", []v1alpha1.Peering{make("rome", romeID, "", 0)}},
		{"other name", "the cluster counts, not the name", "add capital", []v1alpha1.Peering{make("capital", romeID, "", 0)}},
		{"other tenant", "an earlier tenant's name is replaced", "add rome", []v1alpha1.Peering{make("rome", romeID, "gone", 0)}},
		{"oldest", "of two, the one that was first", "add first", []v1alpha1.Peering{make("second", romeID, "", 0), make("first", romeID, "", time.Hour)}},
		{"going", "what people delete is not made again", "wait", []v1alpha1.Peering{going}},
		{"taken", "two clusters, one name", "conflict", []v1alpha1.Peering{make("rome", osloID, "", 0)}},
		{"taken by one that goes", "its name is free soon; nobody has to act, and nothing is given before", "wait, said", []v1alpha1.Peering{others}},
		{"taken elsewhere", "ours has another name", "add capital", []v1alpha1.Peering{make("rome", osloID, "", time.Hour), make("capital", romeID, "", 0)}},
	} {
		got, plan := "", planPeering(rome(), c.have, nil)
		switch {
		case plan.wait && plan.conflict != "":
			got = "wait, said"
		case plan.wait:
			got = "wait"
		case plan.conflict != "":
			got = "conflict"
		case plan.create != nil:
			got = "create " + plan.create.Name
		case plan.add != nil:
			got = "add " + plan.add.Name
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q: %s", c.name, got, c.want, c.reason)
		}
	}
}

// TestWelcome: a cluster that only claims the id of a Peering does not get into it.
func TestWelcome(t *testing.T) {
	named := func(uid, consumer string) *v1alpha1.Invitation {
		return &v1alpha1.Invitation{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}, Spec: v1alpha1.InvitationSpec{Consumer: consumer}}
	}
	mine := v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: "capital"}, Spec: v1alpha1.PeeringSpec{ClusterID: romeID}}
	older := mine
	older.CreationTimestamp = metav1.NewTime(noon)
	joined := mine
	joined.Name, joined.CreationTimestamp, joined.Spec.Provide = "joined", metav1.NewTime(noon.Add(time.Hour)), &v1alpha1.Provide{Tenant: "rome"}
	for _, c := range []struct {
		name, reason string
		invitation   *v1alpha1.Invitation
		have         []v1alpha1.Peering
		add, refuse  bool
	}{
		{"named", "the owner has said so", named("i-1", "capital"), []v1alpha1.Peering{mine}, true, false},
		{"not named", "the id is only claimed", named("i-1", ""), []v1alpha1.Peering{mine}, false, true},
		{"named another", "the id is only claimed", named("i-1", "rome"), []v1alpha1.Peering{mine}, false, true},
		{"another invitation", "it is not the one used", named("i-2", "capital"), []v1alpha1.Peering{mine}, false, true},
		{"no invitation", "it is gone", nil, []v1alpha1.Peering{mine}, false, true},
		{"provides already", "it was decided before", nil, []v1alpha1.Peering{older, joined}, false, false},
	} {
		tenant := rome()
		tenant.Annotations = map[string]string{v1alpha1.AnnotationInvitation: "i-1"}
		plan := planPeering(tenant, c.have, c.invitation)
		if (plan.add != nil) != c.add || (plan.conflict != "") != c.refuse || c.refuse && !strings.Contains(plan.conflict, "--consumer capital") || plan.create != nil {
			t.Errorf("%s: %+v: %s", c.name, plan, c.reason)
		}
	}
}

func TestSpent(t *testing.T) {
	used := v1alpha1.InvitationStatus{Tenant: "rome", TenantUID: "tenant-1", BoundTo: &v1alpha1.Binding{Time: metav1.NewTime(noon)}}
	contact := func(at time.Time) *v1alpha1.Tenant {
		tenant := rome()
		tenant.Status.LastContact = &metav1.Time{Time: at}
		return tenant
	}
	other := rome()
	other.UID = types.UID("tenant-2")
	for _, c := range []struct {
		name, reason string
		status       v1alpha1.InvitationStatus
		tenant       *v1alpha1.Tenant
		after        time.Duration
		want         bool
		wait         time.Duration
	}{
		{"fresh", "it may still be used", v1alpha1.InvitationStatus{}, nil, 0, false, 2 * time.Hour},
		{"expired", "people may look why it was refused", v1alpha1.InvitationStatus{}, nil, 90 * time.Minute, false, 30 * time.Minute},
		{"long expired", "nobody looks any more", v1alpha1.InvitationStatus{}, nil, 2 * time.Hour, true, 0},
		{"bound", "its Tenant is on the way", v1alpha1.InvitationStatus{BoundTo: used.BoundTo}, nil, 0, false, 2 * time.Hour},
		{"used", "the consumer may not have its answer yet", used, rome(), 0, false, 2 * time.Hour},
		{"contact before", "a sign of life of before proves nothing", used, contact(noon), 0, false, 2 * time.Hour},
		{"contact", "the consumer has its credential", used, contact(noon.Add(time.Minute)), 0, true, 0},
		{"gone", "void with its Tenant", used, nil, 0, true, 0},
		{"another", "a later Tenant of the name is not its", used, other, 0, true, 0},
	} {
		i := &v1alpha1.Invitation{Spec: v1alpha1.InvitationSpec{Expires: metav1.NewTime(noon.Add(time.Hour))}, Status: c.status}
		void, wait := spent(i, c.tenant, false, noon.Add(c.after))
		if void != c.want || wait != c.wait {
			t.Errorf("%s: %v after %v, want %v after %v: %s", c.name, void, wait, c.want, c.wait, c.reason)
		}
	}
}

// TestSpentInBand holds that an invitation in band stays until the tunnel of its tenant leads here: it
// is the consumer's way until then.
func TestSpentInBand(t *testing.T) {
	used := v1alpha1.InvitationStatus{Tenant: "rome", TenantUID: "tenant-1", BoundTo: &v1alpha1.Binding{Time: metav1.NewTime(noon)}}
	heard := rome()
	heard.Status.LastContact = &metav1.Time{Time: noon.Add(time.Minute)}
	other := rome()
	other.UID = types.UID("tenant-2")
	for _, c := range []struct {
		name   string
		status v1alpha1.InvitationStatus
		tenant *v1alpha1.Tenant
		led    bool
		after  time.Duration
		want   bool
		wait   time.Duration
	}{
		{"fresh", v1alpha1.InvitationStatus{}, nil, false, 0, false, 2 * time.Hour},
		{"long expired", v1alpha1.InvitationStatus{}, nil, false, 2 * time.Hour, true, 0},
		{"contact, no tunnel", used, heard, false, 0, false, tunnelEvery},
		{"contact, no tunnel, expired", used, heard, false, 2*time.Hour - time.Second, false, time.Second},
		{"contact, no tunnel, long expired", used, heard, false, 2 * time.Hour, true, 0},
		{"tunnel, no contact", used, rome(), true, 0, true, 0},
		{"contact and tunnel", used, heard, true, 0, true, 0},
		{"gone", used, nil, false, 0, true, 0},
		{"another", used, other, false, 0, true, 0},
	} {
		i := &v1alpha1.Invitation{Spec: v1alpha1.InvitationSpec{Expires: metav1.NewTime(noon.Add(time.Hour)), InBand: &v1alpha1.InvitationInBand{}}, Status: c.status}
		if void, wait := spent(i, c.tenant, c.led, noon.Add(c.after)); void != c.want || wait != c.wait {
			t.Errorf("%s: %v after %v, want %v after %v", c.name, void, wait, c.want, c.wait)
		}
	}
}

func TestContact(t *testing.T) {
	at := func(d time.Duration) *coordinationv1.Lease {
		return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: noon.Add(d)}}}
	}
	type look struct {
		now   time.Duration
		lease *coordinationv1.Lease
		want  time.Duration // of the contact after noon; -1h is none
	}
	none := -time.Hour
	for _, c := range []struct {
		name, reason string
		known        time.Duration // status.lastContact
		looks        []look
	}{
		{"never", "no Lease, no contact", none, []look{{0, nil, none}, {0, &coordinationv1.Lease{}, none}}},
		{"first", "the first sight must be believed", none, []look{{time.Minute, at(0), 0}}},
		{"moves", "what counts is when we saw it move", none, []look{{0, at(0), 0}, {90 * time.Second, at(time.Minute), 90 * time.Second}}},
		{"rests", "the same time again is no sign", none, []look{{0, at(0), 0}, {5 * time.Minute, at(0), 0}}},
		{"set back", "a consumer whose clock is set back is alive while it moves", none, []look{{0, at(0), 0}, {5 * time.Minute, at(-time.Hour), 5 * time.Minute}, {6 * time.Minute, at(-59 * time.Minute), 6 * time.Minute}, {9 * time.Minute, at(-59 * time.Minute), 6 * time.Minute}}},
		{"our clock was ahead", "what it saw then counts from now", none, []look{{24 * time.Hour, at(0), 0}, {24 * time.Hour, at(time.Minute), 24 * time.Hour}, {time.Minute, at(time.Minute), time.Minute}, {9 * time.Minute, at(time.Minute), time.Minute}}},
		{"our clock was ahead, and a restart", "nor is it believed for ever", 24 * time.Hour, []look{{time.Minute, nil, time.Minute}, {9 * time.Minute, nil, time.Minute}}},
		{"fast clock", "a consumer that is ahead is alive while it moves", none, []look{{0, at(24 * time.Hour), 0}, {time.Minute, at(24*time.Hour + time.Minute), time.Minute}, {9 * time.Minute, at(24*time.Hour + time.Minute), time.Minute}}},
		{"future after a restart", "a time in the future proves nothing", 0, []look{{time.Hour, at(24 * time.Hour), 0}}},
		{"restart", "what was known is not lost", time.Minute, []look{{time.Hour, at(0), time.Minute}}},
	} {
		m, tenant := newMemory(), rome()
		if c.known != none {
			tenant.Status.LastContact = &metav1.Time{Time: noon.Add(c.known)}
		}
		for i, l := range c.looks {
			want := noon.Add(l.want)
			if l.want == none {
				want = time.Time{}
			}
			if got := m.look(tenant, l.lease, noon.Add(l.now)).contact; !got.Equal(want) {
				t.Errorf("%s, look %d: contact at %v, want %v: %s", c.name, i, got, want, c.reason)
			}
		}
	}
}
