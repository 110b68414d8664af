package offer

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/home"
	"github.com/pelago-dev/pelago/internal/kube"
)

const (
	sent     = v1alpha1.ConditionSent
	offered  = v1alpha1.ConditionOffered
	isTaken  = v1alpha1.ConditionAccepted
	ready    = v1alpha1.ConditionReady
	stalled  = v1alpha1.ConditionStalled
	yesTaken = "True/Accepted"
)

func TestNegotiation(t *testing.T) {
	w := newWorld(t)
	w.ask(w.here("default"), v1alpha1.ResourceRequestSpec{Resources: list(cpu, "4")})
	w.consume("default") // finalizer
	if w.consume("default"); w.request(w.there("default")).Spec.Decision != "" {
		t.Error("something was decided before there was an offer")
	}
	w.expect("sent", w.here("default"), sent, "True/Ready", offered, "False/Pending", ready, "False/Pending")
	w.settle("default")
	w.expect("at home", w.here("default"), sent, "True/Ready", offered, "True/Offered", isTaken, yesTaken, ready, "True/Ready", stalled, "absent")
	w.expect("at the provider", w.there("default"), offered, "True/Offered", isTaken, yesTaken)
	for _, key := range []client.ObjectKey{w.there("default"), w.here("default")} {
		o := w.offer(key)
		if got := amountsOf(o.Spec.Resources); got[cpu] != 4000 || got[memory] != 50 {
			t.Errorf("offer in %s: %v", key.Namespace, got)
		}
		if len(o.OwnerReferences) != 1 || len(o.Status.Conditions) != 1 || o.Status.Conditions[0].Reason != v1alpha1.ReasonAccepted {
			t.Errorf("offer in %s: owners %v, conditions %v", key.Namespace, o.OwnerReferences, o.Status.Conditions)
		}
	}
	before, writes := w.versions(), w.writes
	w.settle("default")
	if w.writes != writes {
		t.Errorf("a second round made %d calls that write, want none", w.writes-writes)
	}
	if diff := cmp.Diff(before, w.versions()); diff != "" || len(before) != 4 {
		t.Errorf("a second round changed (-before +after)\n%s", diff)
	}
	var heard []string
	for len(w.recorded.Events) > 0 {
		heard = append(heard, strings.Fields(<-w.recorded.Events)[1])
	}
	if diff := cmp.Diff([]string{"Offered", "Accepted", "Offered", "Accepted"}, heard, sorted()); diff != "" {
		t.Errorf("events (-want +got)\n%s", diff)
	}
}

func TestOfferFollowsCapacity(t *testing.T) {
	w := newWorld(t)
	w.ask(w.here("default"), v1alpha1.ResourceRequestSpec{})
	w.settle("default")
	free := func(c string) {
		a := ample()
		a.Free = list(cpu, c, memory, "50", pods, "100", "example.com/gpu", "1")
		w.reader.set(func() { w.reader.answer = a })
	}
	free("5")
	if res := w.provide("default"); res.RequeueAfter <= 0 || res.RequeueAfter > time.Second {
		t.Errorf("within the second of the last write: again in %s, want at most 1s", res.RequeueAfter)
	}
	if got := amountsOf(w.offer(w.there("default")).Spec.Resources)[cpu]; got != 8000 {
		t.Errorf("two writes in one second: %d", got)
	}
	w.clock.Step(time.Second)
	w.provide("default")
	w.consume("default")
	if got := amountsOf(w.offer(w.here("default")).Spec.Resources)[cpu]; got != 5000 {
		t.Errorf("one second later %d at home, want 5000", got)
	}
	free("0")
	w.clock.Step(time.Second)
	w.settle("default")
	w.expect("nothing left", w.here("default"), offered, "False/NothingFree", isTaken, yesTaken, ready, "False/NothingFree")
	if got := amountsOf(w.offer(w.here("default")).Spec.Resources); got.usable() {
		t.Errorf("nothing is free, and offered is %v", got)
	}
	free("6")
	w.clock.Step(time.Second)
	w.settle("default")
	w.expect("capacity is back", w.here("default"), ready, "True/Ready")
	w.reader.set(func() { w.reader.panics = true })
	before := w.versions()
	w.clock.Step(time.Second)
	w.settle("default")
	w.expect("the reader is broken", w.there("default"), offered, "True/Offered")
	if c := w.request(w.there("default")).Status.Conditions; !strings.Contains(c[0].Message, "last good") {
		t.Errorf("the condition does not say that the reader is broken: %v", c)
	}
	if after := w.versions(); before[w.there("").Namespace+"/offer/default"] != after[w.there("").Namespace+"/offer/default"] {
		t.Error("a broken reader changed the offer")
	}
}

func TestSettingsReachOffers(t *testing.T) {
	w := newWorld(t)
	w.ask(w.here("default"), v1alpha1.ResourceRequestSpec{})
	w.settle("default")
	w.clock.Step(time.Second)
	w.settings = home.Config{Cluster: home.Cluster{Labels: map[string]string{"color": "blue"}}, Offer: home.Offer{Reserve: "20%"}}
	w.settle("default")
	o := w.offer(w.here("default"))
	if amountsOf(o.Spec.Resources)[cpu] != 6000 || o.Spec.Labels["color"] != "blue" {
		t.Errorf("after a change of settings: %v, %v", o.Spec.Resources, o.Spec.Labels)
	}
	w.clock.Step(time.Second)
	w.settings.Offer.Rules = []home.Rule{{Consumers: []string{w.name}, Deny: []string{"*"}}}
	w.settle("default")
	w.expect("all is denied", w.here("default"), offered, "False/Filtered")
}

func TestSeveralRequests(t *testing.T) {
	w := newWorld(t)
	w.ask(w.there("a"), v1alpha1.ResourceRequestSpec{Resources: list(cpu, "5", memory, "20", pods, "10")})
	w.ask(w.there("b"), v1alpha1.ResourceRequestSpec{Resources: list(cpu, "5", memory, "20", pods, "10")})
	w.ask(w.there("bad"), v1alpha1.ResourceRequestSpec{Resources: list("cpus", "1")})
	for _, name := range []string{"a", "b", "bad"} {
		w.provide(name)
	}
	sum := amountsOf(w.offer(w.there("a")).Spec.Resources)[cpu] + amountsOf(w.offer(w.there("b")).Spec.Resources)[cpu]
	if sum != 8000 {
		t.Errorf("two offers have %d together, 8000 are free", sum)
	}
	w.expect("a bad request", w.there("bad"), offered, "False/Invalid", isTaken, "False/Invalid", stalled, "True/Invalid")
	if w.offer(w.there("bad")) != nil {
		t.Error("a bad request has an offer")
	}
}

func TestLimits(t *testing.T) {
	w := newWorld(t)
	tenant := &v1alpha1.Tenant{}
	if err := w.client.Get(ctx, client.ObjectKey{Name: w.name}, tenant); err != nil {
		t.Fatal(err)
	}
	tenant.Spec.Limits = &v1alpha1.TenantLimits{Resources: list(cpu, "4")}
	if err := w.client.Update(ctx, tenant); err != nil {
		t.Fatal(err)
	}
	tenant.Status.Used = list(cpu, "1")
	if err := w.client.Status().Update(ctx, tenant); err != nil {
		t.Fatal(err)
	}
	w.ask(w.there("a"), v1alpha1.ResourceRequestSpec{})
	w.provide("a")
	if got := amountsOf(w.offer(w.there("a")).Spec.Resources)[cpu]; got != 3000 {
		t.Errorf("offered %d of a limit of 4 CPUs with 1 in use, want 3000", got)
	}
}

func TestTenantStates(t *testing.T) {
	w := newWorld(t)
	set := func(s v1alpha1.TenantState) {
		w.patch(&v1alpha1.Tenant{}, client.ObjectKey{Name: w.name}, `{"spec":{"state":"`+string(s)+`"}}`)
	}
	w.ask(w.here("old"), v1alpha1.ResourceRequestSpec{})
	w.settle("old")
	set(v1alpha1.TenantCordoned)
	w.ask(w.here("new"), v1alpha1.ResourceRequestSpec{})
	w.settle("new")
	w.settle("old")
	w.expect("cordoned", w.here("old"), isTaken, yesTaken, ready, "False/Cordoned")
	w.expect("cordoned", w.here("new"), offered, "False/Cordoned", isTaken, "False/Cordoned", ready, "False/Cordoned")
	set(v1alpha1.TenantDrained)
	w.settle("old")
	w.expect("drained", w.here("old"), offered, "False/Drained", isTaken, "False/Drained", ready, "False/Drained")
	if w.offer(w.there("old")) != nil || w.offer(w.here("old")) != nil {
		t.Error("a drained tenant still has an offer")
	}
	set(v1alpha1.TenantActive)
	w.settle("old")
	w.expect("active again", w.here("old"), ready, "True/Ready")
}

func TestWithdrawnAndDeclined(t *testing.T) {
	w := newWorld(t)
	w.ask(w.here("default"), v1alpha1.ResourceRequestSpec{})
	w.settle("default")
	if err := w.client.Delete(ctx, w.offer(w.there("default"))); err != nil {
		t.Fatal(err)
	}
	w.settle("default")
	w.expect("deleted at the provider", w.here("default"), offered, "False/Withdrawn", isTaken, "False/Withdrawn")
	if w.offer(w.here("default")) != nil {
		t.Error("the copy of a withdrawn offer stays")
	}
	w.clock.Step(withdrawnFor - 15*time.Second)
	w.settle("default")
	w.expect("15 s later", w.here("default"), offered, "False/Withdrawn")
	w.clock.Step(15 * time.Second)
	w.settle("default")
	w.expect("30 s later", w.here("default"), ready, "True/Ready")

	w.patch(&v1alpha1.ResourceRequest{}, w.here("default"), `{"spec":{"decision":"Declined"}}`)
	w.settle("default")
	w.expect("declined", w.here("default"), isTaken, "False/Declined", ready, "False/Declined")
	w.expect("declined", w.there("default"), isTaken, "False/Declined")
	if w.offer(w.there("default")) != nil {
		t.Error("a declined offer stays")
	}
	w.patch(&v1alpha1.ResourceRequest{}, w.here("default"), `{"spec":{"decision":null,"acceptance":"Manual"}}`)
	w.settle("default")
	w.expect("thought better of", w.here("default"), offered, "True/Offered", isTaken, "False/Undecided", ready, "False/Undecided")
	w.patch(&v1alpha1.ResourceRequest{}, w.here("default"), `{"spec":{"decision":"Accepted"}}`)
	w.settle("default")
	w.expect("accepted by hand", w.here("default"), isTaken, yesTaken, ready, "True/Ready")
}

// Both sides keep what the other one knows and they do not.
func TestUnknownFields(t *testing.T) {
	w := newWorld(t)
	w.ask(w.here("default"), v1alpha1.ResourceRequestSpec{Resources: list(cpu, "2", memory, "20")})
	w.settle("default")
	w.patch(kindOf("ResourceRequest"), w.there("default"), `{"spec":{"future":{"a":1}}}`)
	w.patch(kindOf("ResourceOffer"), w.there("default"), `{"spec":{"future":{"b":2},"labels":{"kubernetes.io/arch":"evil","color":"red"}}}`)
	w.patch(&v1alpha1.ResourceRequest{}, w.here("default"), `{"spec":{"resources":{"cpu":"3","memory":null}}}`)
	w.settle("default")
	request, copied := kindOf("ResourceRequest"), kindOf("ResourceOffer")
	if err := w.client.Get(ctx, w.there("default"), request); err != nil {
		t.Fatal(err)
	}
	if err := w.client.Get(ctx, w.here("default"), copied); err != nil {
		t.Fatal(err)
	}
	if _, kept, _ := unstructured.NestedMap(request.Object, "spec", "future"); !kept {
		t.Error("the consumer took out what it does not know")
	}
	resources, _, _ := unstructured.NestedMap(request.Object, "spec", "resources")
	if diff := cmp.Diff(map[string]any{"cpu": "3"}, resources); diff != "" {
		t.Errorf("resources at the provider (-want +got)\n%s", diff)
	}
	if _, kept, _ := unstructured.NestedMap(copied.Object, "spec", "future"); !kept {
		t.Error("the copy lacks what the consumer does not know")
	}
}

func TestBadOffer(t *testing.T) {
	w := newWorld(t)
	w.ask(w.here("default"), v1alpha1.ResourceRequestSpec{})
	w.settle("default")
	good := w.offer(w.here("default"))
	w.patch(kindOf("ResourceOffer"), w.there("default"), `{"spec":{"resources":{"cpu":"-4"}}}`)
	w.consume("default")
	w.expect("a bad offer", w.here("default"), offered, "False/Invalid", ready, "False/Invalid")
	if diff := cmp.Diff(good.Spec, w.offer(w.here("default")).Spec); diff != "" {
		t.Errorf("a bad offer changed the copy\n%s", diff)
	}
	if got := w.request(w.there("default")).Spec.Decision; got != "" {
		t.Errorf("a bad offer is %s", got)
	}
}

// TestDenied holds that a provider whose quota or policy takes no request has not taken rights away.
func TestDenied(t *testing.T) {
	w := newWorld(t)
	w.ask(w.here("default"), v1alpha1.ResourceRequestSpec{})
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: w.peer.namespace, Name: "none"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/resourcerequests.pelago.dev": *resource.NewQuantity(0, resource.DecimalSI)}}}
	w.create(q)
	q.Status = corev1.ResourceQuotaStatus{Hard: q.Spec.Hard, Used: q.Spec.Hard}
	if err := w.client.Status().Update(ctx, q); err != nil {
		t.Fatal(err)
	}
	probe := &v1alpha1.ResourceRequest{ObjectMeta: metav1.ObjectMeta{Namespace: w.peer.namespace, Name: "probe"}}
	for limit := time.Now().Add(time.Minute); !kube.DenialOf(w.client.Create(ctx, probe.DeepCopy(), client.DryRunAll)).ByQuota(); {
		if time.Now().After(limit) {
			t.Fatal("the quota does not count")
		}
	}
	w.consume("default")
	w.consume("default")
	w.expect("a quota", w.here("default"), sent, "False/LimitExceeded", ready, "False/LimitExceeded")
	for reason, err := range map[string]error{
		v1alpha1.ReasonNotAdmitted: apierrors.NewForbidden(schema.GroupResource{}, "x", errors.New("ValidatingAdmissionPolicy 'strict' with binding 'strict' denied request: no")),
		v1alpha1.ReasonForbidden:   apierrors.NewForbidden(schema.GroupResource{}, "x", errors.New(`User "rome" cannot create resource "resourcerequests"`)),
	} {
		request := &v1alpha1.ResourceRequest{}
		if _, err := w.consumer.notSent(request, "milan", err); err != nil || request.Status.Conditions[0].Reason != reason {
			t.Errorf("%v, want %s: %+v", err, reason, request.Status.Conditions)
		}
	}
}

func TestAway(t *testing.T) {
	w := newWorld(t)
	w.ask(w.here("default"), v1alpha1.ResourceRequestSpec{})
	w.settle("default")
	w.peer.away = true
	w.consume("default")
	w.expect("away", w.here("default"), sent, "False/PeerUnreachable", offered, "True/Offered", isTaken, yesTaken, ready, "False/PeerUnreachable")
	w.clock.Step(lifetime + time.Second)
	w.consume("default")
	w.expect("away until the offer ended", w.here("default"), isTaken, "False/Expired")
	w.peer.away = false
	w.consume("default")
	w.expect("back with an old offer", w.here("default"), sent, "True/Ready", isTaken, "False/Expired", ready, "False/Expired")
	w.settle("default")
	w.expect("renewed", w.here("default"), ready, "True/Ready")
	w.peer.missing = true
	w.consume("default")
	w.expect("not connected", w.here("default"), sent, "False/Waiting")
}

func TestDeletion(t *testing.T) {
	gone := func(w *world, key client.ObjectKey) bool {
		return apierrors.IsNotFound(w.client.Get(ctx, key, &v1alpha1.ResourceRequest{}))
	}
	for _, c := range []struct {
		reason      string
		change      func(*world)
		here, there bool // gone after one reconcile
	}{
		{"the provider is told first", func(*world) {}, true, true},
		{"the provider is away: wait", func(w *world) { w.peer.away = true }, false, false},
		{"not connected: wait", func(w *world) { w.peer.missing = true }, false, false},
		{"the provider has no copy", func(w *world) {
			_ = w.client.Delete(ctx, w.request(w.there("default")))
		}, true, true},
		{"the peering is gone", func(w *world) {
			_ = w.client.Delete(ctx, &v1alpha1.Peering{ObjectMeta: w.peeringMeta()})
			w.peer.away = true
		}, true, false},
		{"the peering does not consume any more", func(w *world) {
			w.patch(&v1alpha1.Peering{}, client.ObjectKey{Name: w.name}, `{"spec":{"consume":null,"provide":{"tenant":"x"}}}`)
			w.peer.away = true
		}, true, false},
	} {
		w := newWorld(t)
		w.ask(w.here("default"), v1alpha1.ResourceRequestSpec{})
		w.settle("default")
		c.change(w)
		if err := w.client.Delete(ctx, w.request(w.here("default"))); err != nil {
			t.Fatal(err)
		}
		w.consume("default")
		if gone(w, w.here("default")) != c.here || gone(w, w.there("default")) != c.there {
			t.Errorf("%s: gone here %v, there %v; want %v, %v", c.reason, gone(w, w.here("default")), gone(w, w.there("default")), c.here, c.there)
		}
		if c.here && c.there {
			if w.provide("default"); w.offer(w.there("default")) != nil || w.offer(w.here("default")) != nil {
				t.Errorf("%s: an offer stays without its request", c.reason)
			}
		}
	}
}

func TestOrphans(t *testing.T) {
	w := newWorld(t)
	w.ask(w.here("default"), v1alpha1.ResourceRequestSpec{})
	w.settle("default")
	if err := w.client.Delete(ctx, &v1alpha1.Peering{ObjectMeta: w.peeringMeta()}); err != nil {
		t.Fatal(err)
	}
	w.consume("default")
	w.expect("no peering", w.here("default"), sent, "False/Waiting", ready, "False/Waiting", stalled, "True/Waiting")
	if f := w.request(w.here("default")).Finalizers; len(f) > 0 {
		t.Errorf("finalizers of a request to nobody: %v", f)
	}
}

// A namespace whose label and name differ is nobody's tenant namespace.
func TestForeignNamespace(t *testing.T) {
	w := newWorld(t)
	other := newWorld(t) // whose tenant is there
	w.ask(w.there("default"), v1alpha1.ResourceRequestSpec{})
	w.patch(&corev1.Namespace{}, client.ObjectKey{Name: w.there("").Namespace}, `{"metadata":{"labels":{"`+v1alpha1.LabelTenant+`":"`+other.name+`"}}}`)
	w.provide("default")
	w.expect("foreign", w.there("default"), offered, "False/Waiting")
	if w.offer(w.there("default")) != nil {
		t.Error("an offer in a foreign namespace")
	}
}

// A new request of an old name does not inherit the old one's offer.
func TestSameNameAgain(t *testing.T) {
	w := newWorld(t)
	w.ask(w.there("default"), v1alpha1.ResourceRequestSpec{})
	w.provide("default")
	old := w.offer(w.there("default"))
	if err := w.client.Delete(ctx, w.request(w.there("default"))); err != nil {
		t.Fatal(err)
	}
	w.ask(w.there("default"), v1alpha1.ResourceRequestSpec{})
	w.pass(w.provide("default"))
	w.provide("default")
	if fresh := w.offer(w.there("default")); fresh == nil || fresh.UID == old.UID {
		t.Error("the old request's offer stays")
	}
}
