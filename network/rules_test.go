package network

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/policy"
)

// ruled is a world with an offloaded namespace, of which db runs at milan and web at home.
type ruled struct {
	*world
	space   string
	ruler   *ruler
	db, web *corev1.Pod
}

func newRuled(t *testing.T) *ruled {
	t.Helper()
	w := newWorld(t)
	w.rome.config.Network.Pods = []string{"10.42.0.0/16"}
	w.settle()
	return offloaded(w)
}

// offloaded makes the namespace and the pods.
func offloaded(of *world) *ruled {
	of.t.Helper()
	w := &ruled{world: of}
	w.space = w.rome.peer + "-shop"
	w.world.space(w.space, nil)
	w.create(&v1alpha1.NamespaceOffloading{ObjectMeta: at(w.space, v1alpha1.OffloadingName)})
	w.create(&v1alpha1.NamespaceMap{ObjectMeta: at(w.here(), v1alpha1.NamespaceMapName), Spec: v1alpha1.NamespaceMapSpec{
		Namespaces: map[string]v1alpha1.NamespaceMapping{w.space: {Strategy: v1alpha1.MappingDefaultName}}}})
	w.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.rome.peer, Labels: map[string]string{
		v1alpha1.LabelType: v1alpha1.TypeVirtualNode, v1alpha1.LabelPeering: w.rome.peer, labelWorld: w.milan.peer}}})
	w.db, w.web = w.pod("db", w.rome.peer, "10.254.0.5"), w.pod("web", w.rome.nodes[0], "10.42.0.7")
	w.again()
	return w
}

func (w *ruled) here() string  { return v1alpha1.PeeringNamespace(w.rome.peer) }
func (w *ruled) there() string { return v1alpha1.TenantNamespace(w.milan.peer) }

// again starts the manager anew.
func (w *ruled) again() {
	w.ruler = &ruler{client: w.rome.client, clock: w.clock, fleet: fakeFleet{w.rome}, events: w.rome.recorded, patience: remoteLimit,
		looked: map[types.NamespacedName]time.Time{}, told: map[types.NamespacedName]said{}, bound: map[types.NamespacedName]policy.Scope{}}
	list := w.ruler.client
	w.ruler.client = unhidden{list, w.raw}
}

// unhidden shows what a side of the world does not look for otherwise.
type unhidden struct {
	client.Client
	raw client.Reader
}

func (u unhidden) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return u.raw.List(ctx, list, opts...)
}

func (w *ruled) pod(name, node, address string) *corev1.Pod {
	w.t.Helper()
	p := w.create(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.space, Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{NodeName: node, AutomountServiceAccountToken: new(false), Containers: []corev1.Container{{Name: "c", Image: "i",
			Ports: []corev1.ContainerPort{{Name: "sql", ContainerPort: 5432}}}}},
	}).(*corev1.Pod)
	if address != "" {
		p.Status.PodIP, p.Status.PodIPs = address, []corev1.PodIP{{IP: address}}
		w.status(p)
	}
	return p
}

func (w *ruled) policy(spec string) {
	w.t.Helper()
	p := &networkingv1.NetworkPolicy{ObjectMeta: at(w.space, "db")}
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		w.t.Fatal(err)
	}
	_ = w.raw.Delete(ctx, &networkingv1.NetworkPolicy{ObjectMeta: at(w.space, "db")})
	w.create(p)
}

// reconcile looks until nothing is written any more, and returns how often something was.
func (w *ruled) reconcile() (writes int, last ctrl.Result) {
	w.t.Helper()
	for range 10 {
		before := w.writes
		w.clock.Step(ruleRest)
		result, err := w.ruler.Reconcile(ctx, ctrl.Request{NamespacedName: types.NamespacedName{Namespace: w.space, Name: w.rome.peer}})
		if err != nil {
			w.t.Fatal(err)
		}
		if last = result; w.writes == before {
			return writes, last
		}
		writes += w.writes - before
	}
	w.t.Fatal("it writes and writes")
	return 0, last
}

// rules are those of a place, as text: of each shard its pods and rules.
func (w *ruled) rules(namespace string) string {
	w.t.Helper()
	list := &v1alpha1.NetworkRulesList{}
	if err := w.raw.List(ctx, list, client.InNamespace(namespace)); err != nil {
		w.t.Fatal(err)
	}
	var text strings.Builder
	for _, o := range list.Items {
		for _, r := range o.Spec.Rules {
			fmt.Fprintf(&text, "%s %s %s%v any=%t perPod=%t\n", r.Policy, r.Direction, r.Protocol, r.Ports, r.AnyPeer, r.PerPod)
		}
		for _, p := range o.Spec.Pods {
			who := strings.Join(p.Addresses, ",")
			if p.UID != "" {
				who = "?"
				for _, known := range []*corev1.Pod{w.db, w.web} {
					if string(known.UID) == p.UID {
						who = known.Name
					}
				}
			}
			fmt.Fprintf(&text, "%s isolated=%v selected=%v peer=%v ports=%v\n", who, p.Isolated, p.Selected, p.PeerOf, p.Ports)
		}
	}
	return text.String()
}

// blocks are those of single addresses in the rules of a place.
func (w *ruled) blocks(namespace string) string {
	w.t.Helper()
	list := &v1alpha1.NetworkRulesList{}
	if err := w.raw.List(ctx, list, client.InNamespace(namespace)); err != nil {
		w.t.Fatal(err)
	}
	var all []string
	for _, o := range list.Items {
		for _, r := range o.Spec.Rules {
			for _, b := range r.Blocks {
				all = append(all, b.First)
			}
		}
	}
	return strings.Join(all, " ")
}

func (w *ruled) want(namespace, reason, want string) {
	w.t.Helper()
	if got := w.rules(namespace); got != strings.TrimPrefix(want, "\n") {
		w.t.Errorf("%s: in %s there is\n%swant%s", reason, namespace, got, want)
	}
}

const dbFromWeb = `{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 5432}]}]}`

// TestRules follows a policy, pods and their labels through both sides: what is written is what is
// needed, for each change one object on a side, and nothing where nothing changes.
func TestRules(t *testing.T) {
	w := newRuled(t)
	if writes, _ := w.reconcile(); writes != 0 || w.rules(w.here())+w.rules(w.there()) != "" {
		t.Errorf("without a policy there are %d writes", writes)
	}
	w.policy(dbFromWeb)
	w.reconcile()
	w.want(w.here(), "web is open, and db is isolated but for web here as well", `
db Ingress TCP[{5432 5432}] any=false perPod=false
10.42.0.7 isolated=[] selected=[] peer=[] ports=[]
10.254.0.5 isolated=[Ingress] selected=[0] peer=[] ports=[]
10.42.0.7 isolated=[] selected=[] peer=[0] ports=[]
`)
	w.want(w.there(), "db is isolated but for web", `
db Ingress TCP[{5432 5432}] any=false perPod=false
db isolated=[Ingress] selected=[0] peer=[] ports=[]
10.42.0.7 isolated=[] selected=[] peer=[0] ports=[]
`)
	w.again()
	if writes, _ := w.reconcile(); writes != 0 {
		t.Errorf("a restart writes %d times", writes)
	}
	w.change(w.web, `{"metadata":{"labels":{"app":"other"}}}`)
	if writes, _ := w.reconcile(); writes != 2 {
		t.Errorf("a pod that is no peer any more costs %d writes, want one on either side", writes)
	}
	w.want(w.there(), "web is no peer", `
db Ingress TCP[{5432 5432}] any=false perPod=false
db isolated=[Ingress] selected=[0] peer=[] ports=[]
`)
	// A pod is known before it has an address.
	late := w.pod("late", w.rome.peer, "")
	if writes, _ := w.reconcile(); writes != 1 || !strings.Contains(w.rules(w.there()), "? isolated=[] selected=[]") {
		t.Errorf("%s, that has no address: %d writes, and there is\n%s", late.Name, writes, w.rules(w.there()))
	}
	// Nobody is told of addresses that he is told of nowhere else.
	w.policy(`{podSelector: {}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {}}], ports: [{port: sql}]}]}`)
	w.pod("stray", w.rome.nodes[1], "10.99.0.1")
	w.reconcile()
	if text := w.rules(w.there()); strings.Contains(text, "10.99.0.1") || !strings.Contains(text, "10.42.0.7 isolated=[] selected=[] peer=[0] ports=[{0 [5432]}]") {
		t.Errorf("of strays and named ports there is\n%s", text)
	}
	if text := w.rules(w.here()); !strings.Contains(text, "10.99.0.1 isolated=[Egress] selected=[0]") || !strings.Contains(text, "10.254.0.5 isolated=[] selected=[] peer=[0] ports=[{0 [5432]}]") ||
		!strings.Contains(text, "10.254.0.5 isolated=[Egress] selected=[0]") || !strings.Contains(text, "10.42.0.7 isolated=[] selected=[] peer=[0]") {
		t.Errorf("for home's gateways there is\n%s", text)
	}
	// What is mapped may be called if its own address may, of which the provider is not told.
	orders := w.create(&v1alpha1.IPMapping{ObjectMeta: at(w.space, "orders"), Spec: v1alpha1.IPMappingSpec{Address: "192.0.2.50", Ports: []v1alpha1.IPMappingPort{{Name: "sql", Port: 5432}}}}).(*v1alpha1.IPMapping)
	orders.Status.Address = "10.255.255.4"
	orders.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, ObservedGeneration: orders.Generation, Reason: "Ready", LastTransitionTime: metav1.Now()}}
	w.status(orders)
	for block, want := range map[string][2]string{"192.0.2.50/32": {"10.255.255.4 192.0.2.50", "10.255.255.4 192.0.2.50"}, "10.255.255.4/32": {"10.255.255.4 192.0.2.50", "10.255.255.4"}, "192.0.2.51/32": {"192.0.2.51", "192.0.2.51"}} {
		w.policy(fmt.Sprintf(`{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: %s}}]}]}`, block))
		w.reconcile()
		if got := [2]string{w.blocks(w.here()), w.blocks(w.there())}; got != want {
			t.Errorf("of a policy for %s the blocks are %q, want %q", block, got, want)
		}
	}
	// What is not offloaded any more needs no rules.
	w.change(&v1alpha1.NamespaceMap{ObjectMeta: at(w.here(), v1alpha1.NamespaceMapName)}, `{"spec":{"namespaces":null}}`)
	if writes, _ := w.reconcile(); writes != 0 {
		t.Errorf("pods are guarded no more while they are still there: %d writes", writes)
	}
	for _, p := range []*corev1.Pod{w.db, late} {
		if err := w.raw.Delete(ctx, p, client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
	}
	w.reconcile()
	w.want(w.here(), "after the end", "")
	w.want(w.there(), "after the end", "")
}

// managed follows a policy through a manager that runs, with no more rights at milan than a
// consumer has.
func (w *world) managed(t *testing.T) {
	t.Helper()
	r := offloaded(w)
	r.policy(dbFromWeb)
	isolated := "db isolated=[Ingress] selected=[0]"
	peer := "10.42.0.7 isolated=[] selected=[] peer=[0]"
	both := func() bool {
		text := r.rules(r.there())
		return strings.Contains(text, isolated) && strings.Contains(text, peer)
	}
	within(t, "milan is told of the policy", both)
	began := time.Now()
	r.change(r.web, `{"metadata":{"labels":{"app":"other"}}}`)
	within(t, "web is no peer", func() bool { return !strings.Contains(r.rules(r.there()), peer) })
	t.Logf("a label that changes is told after %s", time.Since(began))
	r.change(r.web, `{"metadata":{"labels":{"app":"web"}}}`)
	within(t, "web is a peer again", both)
	// More than once: a look that is on its way for another reason repairs one only.
	for _, namespace := range []string{r.there(), r.there(), r.there(), r.here(), r.here(), r.here()} {
		if err := w.raw.Delete(ctx, &v1alpha1.NetworkRules{ObjectMeta: at(namespace, v1alpha1.NetworkRulesName(r.space, 0))}); err != nil {
			t.Fatal(err)
		}
		within(t, "what somebody deletes is there again", func() bool { return both() && r.rules(r.here()) != "" })
	}
	if err := w.raw.Delete(ctx, &networkingv1.NetworkPolicy{ObjectMeta: at(r.space, "db")}); err != nil {
		t.Fatal(err)
	}
	within(t, "without the policy there are no rules", func() bool { return r.rules(r.there())+r.rules(r.here()) == "" })
	r.policy(dbFromWeb)
	within(t, "the policy is back", both)
	r.change(&v1alpha1.NamespaceMap{ObjectMeta: at(r.here(), v1alpha1.NamespaceMapName)}, `{"spec":{"namespaces":null}}`)
	if err := w.raw.Delete(ctx, r.db, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	within(t, "what is not offloaded any more has no rules", func() bool { return r.rules(r.there())+r.rules(r.here()) == "" })
}

// TestRulesUntilTheEnd holds that pods are guarded as long as they are there and a tunnel is, also when their peering is being ended.
func TestRulesUntilTheEnd(t *testing.T) {
	w := newRuled(t)
	w.policy(dbFromWeb)
	w.reconcile()
	here, there := w.rules(w.here()), w.rules(w.there())
	if here == "" || there == "" {
		t.Fatal("there are no rules")
	}
	p := &v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: w.rome.peer}}
	w.change(p, `{"metadata":{"finalizers":["test.example/held"]}}`)
	if err := w.raw.Delete(ctx, p); err != nil {
		t.Fatal(err)
	}
	defer w.change(p, `{"metadata":{"finalizers":null}}`)
	w.reconcile()
	w.want(w.here(), "while the peering ends", here)
	w.want(w.there(), "while the peering ends", there)
}

// TestRulesProblems holds that what does not hold is said once, on the NamespaceOffloading, and that
// a provider which refuses, is away or is older costs nothing else.
func TestRulesProblems(t *testing.T) {
	w := newRuled(t)
	w.policy(`{podSelector: {}, ingress: [{ports: [{port: 80, protocol: SCTP}]}]}`)
	w.reconcile()
	w.reconcile()
	if got := w.said(); len(got) != 1 || !strings.Contains(got[0], "PolicyNotEnforced") || !strings.Contains(got[0], "SCTP") {
		t.Errorf("of SCTP is said %q", got)
	}
	w.clock.Step(tellAgain)
	if _, last := w.reconcile(); last.RequeueAfter < time.Minute || last.RequeueAfter > tellAgain {
		t.Errorf("it is looked at again after %s", last.RequeueAfter)
	}
	if got := w.said(); len(got) != 1 {
		t.Errorf("while it is so is said %q", got)
	}
	offloading := &v1alpha1.NamespaceOffloading{ObjectMeta: at(w.space, v1alpha1.OffloadingName)}
	if err := w.raw.Delete(ctx, offloading); err != nil {
		t.Fatal(err)
	}
	w.policy(`{podSelector: {}, policyTypes: [Egress], egress: [{ports: [{port: 81, protocol: SCTP}]}]}`)
	if _, last := w.reconcile(); last.RequeueAfter != untoldWait {
		t.Errorf("what nobody could be told is told again after %s", last.RequeueAfter)
	}
	w.create(&v1alpha1.NamespaceOffloading{ObjectMeta: at(w.space, v1alpha1.OffloadingName)})
	w.reconcile()
	if got := w.said(); len(got) != 1 {
		t.Errorf("once somebody can be told is said %q", got)
	}
	w.policy(dbFromWeb)
	w.reconcile()
	w.said()
	before := w.rules(w.there())
	w.away = true
	w.policy(`{podSelector: {}}`)
	w.reconcile()
	w.want(w.there(), "while milan is away", before)
	if strings.Contains(w.rules(w.here()), "5432") {
		t.Error("home's own rules wait for a provider that is away")
	}
	w.away = false
	real := w.ruler.fleet
	w.ruler.fleet = refusing{real}
	if _, last := w.reconcile(); last.RequeueAfter != retryRefused {
		t.Errorf("what is refused is tried again after %s", last.RequeueAfter)
	}
	if got := w.said(); len(got) != 1 || !strings.Contains(got[0], "refuses the rules") {
		t.Errorf("of a provider that refuses is said %q", got)
	}
	w.ruler.fleet = real
	p := &v1alpha1.Peering{ObjectMeta: named(w.rome.name)}
	if err := w.raw.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
		t.Fatal(err)
	}
	p.Status.Remote.Features = []string{v1alpha1.FeatureNetwork}
	w.status(p)
	w.reconcile()
	w.want(w.there(), "nothing is written at an older one", before)
	if got := w.said(); len(got) != 1 || !strings.Contains(got[0], "upgrade it") {
		t.Errorf("of an older provider is said %q", got)
	}
}

// said are the events since the last call.
func (w *ruled) said() (all []string) {
	for {
		select {
		case text := <-w.rome.recorded.Events:
			if strings.Contains(text, v1alpha1.ReasonPolicyNotEnforced) {
				all = append(all, text)
			}
		default:
			return all
		}
	}
}

// refusing is a fleet whose peers admit no NetworkRules.
type refusing struct{ Fleet }

func (f refusing) Peer(name string) (Peer, bool) {
	p, ok := f.Fleet.Peer(name)
	return refusingPeer{p}, ok
}

type refusingPeer struct{ Peer }

func (p refusingPeer) Client() client.Client { return refuser{p.Peer.Client()} }

type refuser struct{ client.Client }

func (refuser) Patch(_ context.Context, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
	return apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("networkrules").GroupResource(), o.GetName(), fmt.Errorf("not today"))
}
