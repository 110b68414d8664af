package reflection

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// spaceWith is a namespace with labels, as "key=value".
func spaceWith(pairs ...string) *corev1.Namespace {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x", Labels: map[string]string{}}}
	for _, pair := range pairs {
		key, value, _ := strings.Cut(pair, "=")
		n.Labels[v1alpha1.GroupVersion.Group+"/"+key] = value
	}
	return n
}

// here are the labels of a namespace that is here for milan, and offloaded.
var here = []string{"offloaded=true", "managed-by=pelago-manager", "tenant=milan", "home-namespace=shop"}

// TestLeaves: of which namespaces objects may go to providers.
func TestLeaves(t *testing.T) {
	offloaded, onward := spaceWith(here...).Labels[v1alpha1.LabelOffloaded], v1alpha1.LabelOnward
	if offloaded != "true" || onward != "pelago.dev/onward" {
		t.Fatal("the labels have other names")
	}
	for _, c := range []struct {
		reason string
		labels []string
		more   string
		want   bool
	}{
		{"its own", []string{"offloaded=true"}, "", true},
		{"not offloaded", nil, "", false},
		{"a tenant's that says nothing", here, "", false},
		{"a tenant's that says no", here, "onward=false", false},
		{"a tenant's that lets it", here, "onward=true", true},
		{"not offloaded by its owner", here[1:], "onward=true", false},
		{"labelled by somebody else", []string{"offloaded=true", "tenant=milan", "home-namespace=shop"}, "onward=true", false},
		{"it has come from afar", append([]string{"origin-namespace=shop", "origin-owner=0123456789abcdef"}, here...), "onward=true", false},
		{"half said", append([]string{"origin-owner=0123456789abcdef"}, here...), "onward=true", false},
		{"its own, and from afar", []string{"offloaded=true", "origin-namespace=shop"}, "", false},
	} {
		n := spaceWith(c.labels...)
		if key, value, ok := strings.Cut(c.more, "="); ok {
			n.Labels["pelago.dev/"+key] = value
		}
		if got := leaves(n); got != c.want {
			t.Errorf("%s: %v", c.reason, got)
		}
	}
}

// link carries addresses from one prefix to another: what is 10.FROM at one side is 10.TO at the
// next, and only that is the tenant's.
type link struct {
	network
	from, to string
}

func (l link) Translate(_ string, here netip.Addr) (netip.Addr, bool) {
	rest, ok := strings.CutPrefix(here.String(), l.from)
	if !ok {
		return netip.Addr{}, false
	}
	return netip.MustParseAddr(l.to + rest), true
}

func (l link) Allows(_ string, a netip.Addr) bool { return strings.HasPrefix(a.String(), l.to) }

// hops are two worlds in a row: what is the mapped namespace of the first is home of the second.
func hops(t *testing.T) (milan, rome *world) {
	t.Helper()
	milan, rome = newWorld(t), newWorld(t)
	rome.home = milan.remote
	rome.label(rome.remote, map[string]string{v1alpha1.LabelManagedBy: component, v1alpha1.LabelTenant: rome.name, v1alpha1.LabelHomeNamespace: rome.home,
		v1alpha1.LabelOriginNamespace: milan.home, v1alpha1.LabelOriginOwner: "0123456789abcdef", v1alpha1.LabelOffloaded: "true"})
	rome.mapped(v1alpha1.MappedNamespace{Name: rome.remote, Phase: v1alpha1.MappingReady})
	milan.lets(true)
	for i, w := range []*world{milan, rome} {
		net := link{from: fmt.Sprintf("10.%d.", i+1), to: fmt.Sprintf("10.%d.", i+2)}
		w.addresses, w.allowed = net, net
		w.restart()
		var words []string
		for _, kind := range carried {
			words = append(words, v1alpha1.FeatureOfKind(kind))
		}
		w.build(words...)
		w.terms(func(terms *v1alpha1.TenantTerms) {
			terms.DisruptionBudgets, terms.Ingress = new(true), &v1alpha1.TenantIngress{Class: "tenants", Hosts: []string{"example"}}
		})
	}
	return milan, rome
}

// lets says whether the tenant lets its pods go onward from its mapped namespace, that is offloaded.
func (w *world) lets(onward bool) {
	w.t.Helper()
	w.label(w.remote, map[string]string{v1alpha1.LabelManagedBy: component, v1alpha1.LabelTenant: w.name, v1alpha1.LabelHomeNamespace: w.home,
		v1alpha1.LabelOffloaded: "true", v1alpha1.LabelOnward: fmt.Sprint(onward)})
}

// pass lets both hops look at an object.
func pass(kind, name string, hops ...*world) {
	for _, w := range hops {
		w.t.Helper()
		w.as(kind, name)
	}
}

// user is a pod that refers to a Secret and a ConfigMap.
func (w *world) user(name string) *corev1.Pod {
	return w.podWith(name, func(spec *corev1.PodSpec) {
		spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "login"}}
		spec.Volumes = []corev1.Volume{{Name: "settings", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: named("settings")}}}}
	})
}

// TestTwoHops: all that pods need goes on once, follows what is done to it at home and goes with
// it; nobody's labels but the last hop's are on it, and addresses are those of the last hop.
func TestTwoHops(t *testing.T) {
	t.Parallel()
	milan, rome := hops(t)
	web := service(milan.home, "web")
	web.Labels = map[string]string{"team": "blue"}
	settings := &corev1.ConfigMap{ObjectMeta: objectMeta(milan.home, "settings"), Data: map[string]string{"a": "1"}}
	login, slice := pullSecret(milan.home, "login", "s3cret"), sliceOf(milan.home, "web-1", "web", endpoint("10.1.0.1", "node-1"), endpoint("10.1.0.2", milan.name))
	for _, obj := range []metav1.Object{web, settings, login, slice} {
		obj.SetAnnotations(map[string]string{"note": "x"})
	}
	milan.create(web)
	milan.create(settings)
	milan.create(login)
	milan.create(slice)
	milan.create(&policyv1.PodDisruptionBudget{ObjectMeta: objectMeta(milan.home, "web"), Spec: policyv1.PodDisruptionBudgetSpec{
		MinAvailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}})
	milan.create(&networkingv1.Ingress{ObjectMeta: objectMeta(milan.home, "shop"), Spec: networkingv1.IngressSpec{
		Rules: []networkingv1.IngressRule{{Host: "shop.example", IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
			Paths: []networkingv1.HTTPIngressPath{{Path: "/", PathType: new(networkingv1.PathTypePrefix), Backend: networkingv1.IngressBackend{
				Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}}}}}}}}}}})
	milan.user("web")
	rome.user("web")
	all := [][2]string{{kindService, "web"}, {kindConfigMap, "settings"}, {kindSecret, "login"}, {kindBudget, "web"}, {kindIngress, "shop"}, {kindSlice, "web-1"}}
	for _, o := range all {
		pass(o[0], o[1], milan, rome)
		if rome.answer(o[1]) != "True/Ready" {
			t.Fatalf("%s %s: %q at the first hop", o[0], o[1], rome.answer(o[1]))
		}
	}
	service, budget := get(rome, rome.remote, "web", &corev1.Service{}), get(rome, rome.remote, "web", &policyv1.PodDisruptionBudget{})
	ingress := get(rome, rome.remote, "shop", &networkingv1.Ingress{})
	if service.Spec.Selector["app"] != "web" || service.Labels["team"] != "blue" || budget.Spec.MinAvailable.IntValue() != 1 || ingress.Spec.Rules[0].Host != "shop.example" ||
		rome.password("login") != "s3cret" || rome.madeMap("settings").Data["a"] != "1" {
		t.Errorf("it is another one at the end: %v %v %v", service.Spec, budget.Spec, ingress.Spec)
	}
	if got := shown(rome.slice("web-1")); got != "10.3.0.1 ready serving" {
		t.Errorf("endpoints at the end: %s", got)
	}
	for _, o := range []metav1.Object{service, budget, ingress, rome.made("login"), rome.madeMap("settings"), rome.slice("web-1")} {
		said := fmt.Sprint(o.GetLabels(), o.GetAnnotations())
		if strings.Contains(said, milan.name+" ") || strings.Contains(said, milan.name+"]") || o.GetLabels()[v1alpha1.LabelTenant] != rome.name || o.GetLabels()[v1alpha1.LabelHomeNamespace] != rome.home {
			t.Errorf("it says whose it was: %s", said)
		}
	}
	slice.Endpoints[0].Conditions.Ready = new(false)
	milan.update(slice)
	pass(kindSlice, "web-1", milan, rome)
	if got := shown(rome.slice("web-1")); got != "10.3.0.1 serving" {
		t.Errorf("a change at home: %s", got)
	}

	own := sliceOf(rome.home, "web-own", "web", endpoint("10.2.0.7", "node-9"), endpoint("10.2.0.8", rome.name))
	for key, value := range get(rome, rome.home, "web", &corev1.Service{}).Labels {
		own.Labels[key] = value // as Kubernetes does
	}
	rome.create(own)
	milan.sweep()
	rome.kind = kindSlice
	rome.says("pods of the first hop, without those that are at the second", "web-own", "10.3.0.7 ready serving")

	milan.lets(false)
	milan.kind = kindSlice
	pass(kindSlice, "web-1", rome)
	if rome.slice("web-1") != nil || shown(milan.slice("web-1")) == "no slice" {
		t.Error("a tenant that does not let it: its endpoints stay, or go at the first hop too")
	}
	if err := rome.raw.Delete(ctx, rome.made("login")); err != nil {
		t.Fatal(err)
	}
	login.Data[jsonKey] = login2
	milan.update(login)
	pass(kindSecret, "login", milan, rome)
	if rome.password("login") != "s3cret" {
		t.Error("a change goes on though the tenant does not let it")
	}
	milan.lets(true)
	pass(kindSlice, "web-1", rome)
	if rome.slice("web-1") == nil {
		t.Error("lets it again, and nothing goes")
	}
	for _, o := range all {
		kind, _ := kindOf(o[0])
		obj := kind.New()
		obj.SetNamespace(milan.home)
		obj.SetName(o[1])
		milan.remove(obj)
		for range 2 {
			pass(o[0], o[1], milan, rome)
		}
		if made := get(rome, rome.remote, o[1], kind.New()); made != nil || rome.shadow(o[1]) != nil {
			milan.clock.Step(grace)
			rome.clock.Step(grace)
			pass(o[0], o[1], milan, rome)
			if made := get(rome, rome.remote, o[1], kind.New()); made != nil || rome.shadow(o[1]) != nil {
				t.Errorf("%s %s is gone at home, and stays at the end", o[0], o[1])
			}
		}
	}
}

var login2 = login("other")

// TestOnwardShare: a tenant's objects leave room at a provider for others', and what is there stays.
func TestOnwardShare(t *testing.T) {
	t.Parallel()
	_, rome := hops(t)
	rome.user("web")
	rome.create(&corev1.ConfigMap{ObjectMeta: objectMeta(rome.home, "settings"), Data: map[string]string{"a": "1"}})
	rome.create(pullSecret(rome.home, "login", "s3cret"))
	rome.consumer.share = 1
	rome.as(kindConfigMap, "settings")
	rome.as(kindSecret, "login")
	if rome.madeMap("settings") == nil || rome.made("login") != nil || rome.told("no more go onward") == 0 {
		t.Error("more than its share goes, or less, or nobody is told")
	}
	rome.as(kindConfigMap, "settings")
	if rome.madeMap("settings") == nil {
		t.Error("what is there goes")
	}
	rome.label(rome.home, map[string]string{v1alpha1.LabelOffloaded: "true"})
	rome.as(kindSecret, "login")
	if rome.made("login") == nil {
		t.Error("this cluster's own has that share too")
	}
}

// TestCopiedLabels: slices that this cluster makes of a tenant's Service have its labels, and are
// neither swept nor taken over.
func TestCopiedLabels(t *testing.T) {
	t.Parallel()
	w := newSlices(t)
	own := sliceOf(w.remote, "web-x", "web", endpoint("10.9.0.7", "node-9"))
	for key, value := range get(w, w.remote, "web", &corev1.Service{}).Labels {
		own.Labels[key] = value
	}
	w.create(own)
	w.sweep()
	if got := w.slice("web-x"); got == nil || got.Labels[v1alpha1.LabelManagedBy] != manager {
		t.Fatalf("swept, or without the labels: %v", got)
	}
	if answer, _ := w.hostile(v1alpha1.HomeObject{Kind: kindSlice, Namespace: w.home, Name: "web-x"}, sliceText("10.201.0.1")); answer != "False/NameTaken" {
		t.Errorf("a tenant that names it: %s", answer)
	}
	if got := shown(w.slice("web-x")); !strings.HasPrefix(got, "10.9.0.7") {
		t.Errorf("it says %s", got)
	}
}

// TestTokensStay: the tokens of a tenant's pods stay where these are, also where all Secrets go.
func TestTokensStay(t *testing.T) {
	t.Parallel()
	_, rome := hops(t)
	name := v1alpha1.TokenSecretPrefix + "0a1b2c3d-0000-4000-8000-0000000000ff"
	rome.create(&corev1.Secret{ObjectMeta: objectMeta(rome.home, name), Type: v1alpha1.TokenSecretType, Data: map[string][]byte{"a": []byte("s3cret")}})
	rome.pod("web", name)
	rome.rules(ruleOf(kindSecret, v1alpha1.ReflectAll))
	rome.woken = nil
	if got := rome.list(); strings.Contains(got, name) {
		t.Errorf("listed: %s", got)
	}
	rome.as(kindSecret, name)
	if rome.shadow(name) != nil || rome.made(name) != nil {
		t.Error("they go on")
	}
}

// TestGoesBy: which slices of a namespace travel, by who made them.
func TestGoesBy(t *testing.T) {
	ours := []string{"pelago.dev", "managed-by=reflection", "tenant=milan", "home-namespace=shop"}
	for _, c := range []struct {
		reason string
		by     []string // the label of Kubernetes, and ours
		onward bool
		want   bool
	}{
		{"this cluster's", []string{"endpointslice-controller.k8s.io"}, false, true},
		{"with labels of a Service of ours", append([]string{"endpointslice-controller.k8s.io"}, ours[1:]...), false, false},
		{"the same, and it goes onward", append([]string{"endpointslice-controller.k8s.io"}, ours[1:]...), true, true},
		{"a tenant's", ours, false, false},
		{"a tenant's, and it goes onward", ours, true, true},
		{"ours, for nobody", ours[:2], true, false},
		{"another tenant's", []string{"pelago.dev", "managed-by=reflection", "tenant=oslo", "home-namespace=shop"}, true, false},
		{"of another namespace", []string{"pelago.dev", "managed-by=reflection", "tenant=milan", "home-namespace=bank"}, true, false},
		{"somebody's", []string{"me"}, true, true},
		{"somebody's with our labels", append([]string{"me"}, ours[1:]...), true, false},
	} {
		slice := &discoveryv1.EndpointSlice{}
		slice.Labels = spaceWith(c.by[1:]...).Labels
		slice.Labels[discoveryv1.LabelManagedBy] = c.by[0]
		if got := goesBy(slice, spaceWith(append([]string{fmt.Sprintf("onward=%v", c.onward)}, here...)...)); got != c.want {
			t.Errorf("%s: %v", c.reason, got)
		}
	}
}
