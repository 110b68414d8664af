package reflection

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

func service(namespace, name string) *corev1.Service {
	return &corev1.Service{ObjectMeta: objectMeta(namespace, name), Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": name}, Ports: []corev1.ServicePort{{Name: "web", Port: 80, TargetPort: intstr.FromInt32(8080)}}}}
}

// terms changes what the provider's owner allows.
func (w *world) terms(edit func(*v1alpha1.TenantTerms)) {
	w.t.Helper()
	t := get(w, "", w.name, &v1alpha1.Tenant{})
	edit(&t.Spec.TenantTerms)
	w.update(t)
}

// as looks at an object of a kind, from both sides.
func (w *world) as(kind, name string) {
	w.t.Helper()
	w.kind = kind
	w.both(name)
}

// TestLabelsStay: an object with more labels than travel goes with the others, and its owner is
// told once, until that is mended.
func TestLabelsStay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pod("web")
	s := service(w.home, "web")
	s.Labels = map[string]string{}
	for i := range 65 {
		s.Labels[fmt.Sprintf("l%02d", i)] = "x"
	}
	w.create(s)
	w.as(kindService, "web")
	w.clock.Step(rereadEvery)
	w.as(kindService, "web")
	there := get(w, w.remote, "web", &corev1.Service{})
	if there == nil || there.Labels["l63"] != "x" || there.Labels["l64"] != "" {
		t.Errorf("it is not there with the first 64: %+v", there)
	}
	if n := w.told("is not carried to " + w.name + " as it is: 1 of its 65 labels"); n != 1 {
		t.Errorf("told %d times", n)
	}
	delete(s.Labels, "l00")
	w.update(s)
	w.clock.Step(rereadEvery)
	w.as(kindService, "web")
	if n := w.told("labels"); n != 0 || get(w, w.remote, "web", &corev1.Service{}).Labels["l64"] != "x" {
		t.Errorf("told %d times when it is mended", n)
	}
}

// TestServiceTravels: one goes with the pods of its namespace, as the provider allows, and
// keeps what the provider has given it.
func TestServiceTravels(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := service(w.home, "web")
	s.Spec.Type, s.Spec.ExternalIPs = corev1.ServiceTypeNodePort, []string{"192.0.2.1"}
	w.create(s)
	made := func() *corev1.Service { return get(w, w.remote, "web", &corev1.Service{}) }
	w.as(kindService, "web")
	if w.shadow("web") != nil {
		t.Fatal("it travels before a pod of its namespace does")
	}
	pod := w.pod("web")
	w.both("web")
	first := made()
	if first == nil || first.Spec.Type != corev1.ServiceTypeClusterIP || len(first.Spec.ExternalIPs) > 0 || first.Spec.Ports[0].NodePort != 0 || first.Spec.ClusterIP == s.Spec.ClusterIP {
		t.Fatalf("%+v", first)
	}
	before := w.writes
	w.both("web")
	if w.writes != before {
		t.Errorf("%d writes though nothing changes", w.writes-before)
	}
	if w.answer("web") != "True/"+v1alpha1.ReasonTypeNotAllowed || w.told("not carried to "+w.name+" as it is: there it is a ClusterIP") != 1 {
		t.Errorf("it is no NodePort there, and %s", w.answer("web"))
	}
	w.terms(func(terms *v1alpha1.TenantTerms) { terms.Services = &v1alpha1.TenantServices{NodePorts: true} })
	w.both("web")
	if w.answer("web") != "True/Ready" {
		t.Errorf("allowed, and it is %s", w.answer("web"))
	}
	if got := made(); got.Spec.Type != corev1.ServiceTypeNodePort || got.Spec.ClusterIP != first.Spec.ClusterIP || got.Spec.Ports[0].NodePort == 0 {
		t.Errorf("allowed: %+v", got.Spec)
	}
	s = get(w, w.home, "web", s)
	s.Spec.Ports[0].Port, s.Spec.Selector = 81, map[string]string{"app": "other"}
	w.update(s)
	w.both("web")
	if got := made(); got.Spec.Ports[0].Port != 81 || got.Spec.Selector["app"] != "other" || got.Spec.ClusterIP != first.Spec.ClusterIP {
		t.Errorf("changed at home: %+v", got.Spec)
	}
	w.terms(func(terms *v1alpha1.TenantTerms) {
		terms.Reflection = &v1alpha1.TenantReflection{Deny: []string{kindService}}
	})
	w.both("web")
	w.both("web")
	if made() != nil || w.answer("web") != "False/Refused" || w.told("refuses it") != 1 {
		t.Errorf("denied, and it stays: %s", w.answer("web"))
	}
	w.terms(func(terms *v1alpha1.TenantTerms) { terms.Reflection = nil })
	w.both("web")
	if made() == nil {
		t.Error("allowed again, and not made")
	}
	w.remove(pod)
	w.both("web")
	w.clock.Step(grace)
	w.both("web")
	if w.shadow("web") != nil || made() != nil {
		t.Error("it stays though no pod of its namespace is there")
	}
}

// TestServiceFromOutside: where the network brings endpoints of home's, who comes from outside is sent to
// pods of the node that he called, whatever the type was before or becomes.
func TestServiceFromOutside(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := service(w.home, "web")
	s.Spec.Type = corev1.ServiceTypeLoadBalancer
	w.create(s)
	w.pod("web")
	w.terms(func(terms *v1alpha1.TenantTerms) {
		terms.Services = &v1alpha1.TenantServices{NodePorts: true, LoadBalancers: true}
	})
	is := func(reason string, kind corev1.ServiceType, want corev1.ServiceExternalTrafficPolicy) {
		t.Helper()
		w.as(kindService, "web")
		got := get(w, w.remote, "web", &corev1.Service{}).Spec
		if checked := got.HealthCheckNodePort != 0; got.Type != kind || got.ExternalTrafficPolicy != want || checked != (kind == corev1.ServiceTypeLoadBalancer && want == corev1.ServiceExternalTrafficPolicyLocal) {
			t.Errorf("%s: a %s by %q, health checks at %d", reason, got.Type, got.ExternalTrafficPolicy, got.HealthCheckNodePort)
		}
	}
	const local = corev1.ServiceExternalTrafficPolicyLocal
	is("without a network", corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyCluster)
	w.addresses, w.allowed = network{}, network{}
	w.restart()
	is("with one", corev1.ServiceTypeLoadBalancer, local)
	before := w.writes
	if is("nothing changes", corev1.ServiceTypeLoadBalancer, local); w.writes != before {
		t.Errorf("%d writes though nothing changes", w.writes-before)
	}
	made := get(w, w.remote, "web", &corev1.Service{})
	made.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
	w.update(made)
	is("changed by hand", corev1.ServiceTypeLoadBalancer, local)
	for _, kind := range []corev1.ServiceType{corev1.ServiceTypeNodePort, corev1.ServiceTypeClusterIP, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort} {
		s = get(w, w.home, "web", s)
		s.Spec.Type = kind
		w.update(s)
		want := local
		if kind == corev1.ServiceTypeClusterIP {
			want = ""
		}
		is("of another type at home", kind, want)
	}
}

// TestAliasTravels: a Service becomes another name and ceases to be one, and is not taken where an Ingress
// could lead to it.
func TestAliasTravels(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.as(kindService, "base")
	s := service(w.home, "base")
	w.create(s)
	w.pod("base")
	there := func() *corev1.Service { return get(w, w.remote, "base", &corev1.Service{}) }
	is := func(reason string, want corev1.ServiceType, name string) {
		t.Helper()
		w.both("base")
		w.both("base") // what cannot be changed has been deleted
		if got := there(); got == nil || got.Spec.Type != want || got.Spec.ExternalName != name || w.answer("base") != "True/Ready" {
			t.Errorf("%s: %+v, %s", reason, got, w.answer("base"))
		}
	}
	is("a Service", corev1.ServiceTypeClusterIP, "")
	s = get(w, w.home, "base", s)
	s.Spec.Type, s.Spec.ExternalName, s.Spec.ClusterIP, s.Spec.ClusterIPs = corev1.ServiceTypeExternalName, "base.example.org", "", nil
	w.update(s)
	is("another name", corev1.ServiceTypeExternalName, "base.example.org")
	before := w.writes
	if is("nothing changes", corev1.ServiceTypeExternalName, "base.example.org"); w.writes != before {
		t.Errorf("%d writes though nothing changes", w.writes-before)
	}
	s = get(w, w.home, "base", s)
	s.Spec.ExternalName = "base.example.com"
	w.update(s)
	is("another other name", corev1.ServiceTypeExternalName, "base.example.com")
	s = get(w, w.home, "base", s)
	s.Spec.ExternalName = "web." + w.home + ".svc.cluster.local"
	w.update(s)
	is("home's own Service", corev1.ServiceTypeExternalName, "web."+w.remote+".svc.cluster.local")
	w.mapped(v1alpha1.MappedNamespace{Name: w.remote, Phase: v1alpha1.MappingPending})
	w.both("base")
	if got := there(); got == nil || got.Spec.ExternalName != "web."+w.remote+".svc.cluster.local" || w.answer("base") != "False/NamespaceMissing" {
		t.Errorf("its namespace is not ready for a moment: %+v, %s", got, w.answer("base"))
	}
	w.mapped(v1alpha1.MappedNamespace{Name: w.remote, Phase: v1alpha1.MappingReady})
	is("it is again", corev1.ServiceTypeExternalName, "web."+w.remote+".svc.cluster.local")
	s = get(w, w.home, "base", s)
	s.Spec.ExternalName = "web.kube-system.svc.cluster.local"
	w.update(s)
	w.both("base")
	w.both("base")
	if there() != nil || w.answer("base") != "False/Refused" || w.told("refuses it") != 1 {
		t.Errorf("a Service that is not offloaded: %+v, %s", there(), w.answer("base"))
	}
	s = get(w, w.home, "base", s)
	s.Spec.ExternalName = "base.example.com"
	w.update(s)
	is("a name of the world again", corev1.ServiceTypeExternalName, "base.example.com")
	w.terms(func(terms *v1alpha1.TenantTerms) {
		terms.Ingress = &v1alpha1.TenantIngress{Class: "public", Hosts: []string{"example.org"}}
	})
	w.both("base")
	w.both("base")
	if got := there(); got != nil || w.answer("base") != "False/Refused" || w.told("refuses it") != 1 {
		t.Errorf("the tenant has Ingresses: %+v, %s", got, w.answer("base"))
	}
	w.terms(func(terms *v1alpha1.TenantTerms) { terms.Ingress = nil })
	is("without Ingresses again", corev1.ServiceTypeExternalName, "base.example.com")
	s = get(w, w.home, "base", s)
	s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeClusterIP, ""
	w.update(s)
	is("a Service again", corev1.ServiceTypeClusterIP, "")
}

// TestServiceConflict: one of another's is not touched.
func TestServiceConflict(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	theirs := service(w.remote, "web")
	w.create(theirs)
	w.create(service(w.home, "web"))
	w.pod("web")
	w.as(kindService, "web")
	w.both("web")
	if got := get(w, w.remote, "web", &corev1.Service{}); got.ResourceVersion != theirs.ResourceVersion || w.answer("web") != "False/NameTaken" || w.told("another name") != 1 {
		t.Errorf("touched, or not told once: %s", w.answer("web"))
	}
}

// TestIngressTravels: only for hosts that are allowed. The Secrets it names stay home: no
// provider gets a key for saying that it accepts an Ingress.
func TestIngressTravels(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(&networkingv1.Ingress{ObjectMeta: objectMeta(w.home, "shop"), Spec: networkingv1.IngressSpec{
		TLS: []networkingv1.IngressTLS{{Hosts: []string{"shop.example"}, SecretName: "registry"}},
		Rules: []networkingv1.IngressRule{{Host: "shop.example", IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
			Paths: []networkingv1.HTTPIngressPath{{Path: "/", PathType: new(networkingv1.PathTypeImplementationSpecific), Backend: networkingv1.IngressBackend{
				Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}}}}}}}}}}})
	w.create(pullSecret(w.home, "registry", "s3cret"))
	w.pod("web")
	made := func() *networkingv1.Ingress { return get(w, w.remote, "shop", &networkingv1.Ingress{}) }
	look := func() {
		t.Helper()
		w.as(kindIngress, "shop")
		w.as(kindSecret, "registry")
		w.kind = kindIngress
	}
	look()
	if made() != nil || w.answer("shop") != "False/Refused" {
		t.Fatal("made, though the provider allows no Ingresses")
	}
	w.terms(func(terms *v1alpha1.TenantTerms) {
		terms.Ingress = &v1alpha1.TenantIngress{Class: "tenants", Hosts: []string{"example"}}
	})
	look()
	if got := made(); got == nil || *got.Spec.IngressClassName != "tenants" || w.answer("shop") != "True/Ready" || w.made("registry") != nil {
		t.Fatalf("%+v, its key %v", got, w.made("registry") != nil)
	}
	w.told("") // of earlier looks
	w.send("shop")
	w.send("shop")
	if made, told := *made().Spec.Rules[0].HTTP.Paths[0].PathType, w.told("as it is: 1 of its paths"); made != networkingv1.PathTypePrefix || told != 1 {
		t.Errorf("its path is of the type %s there, and home was told %d times", made, told)
	}
	for range bareAfter {
		look()
	}
	w.send("shop")
	if w.answer("shop") != "True/"+v1alpha1.ReasonSecretMissing || w.told("as it is: a Secret of its TLS is not there") != 1 {
		t.Errorf("it is there without its certificate, and %s", w.answer("shop"))
	}
	w.create(pullSecret(w.remote, "registry", "s3cret"))
	if look(); w.answer("shop") != "True/Ready" {
		t.Errorf("its certificate is there, and it is %s", w.answer("shop"))
	}
	if err := w.raw.Delete(ctx, pullSecret(w.remote, "registry", "s3cret")); err != nil {
		t.Fatal(err)
	}
	w.terms(func(terms *v1alpha1.TenantTerms) { terms.Ingress.Hosts = []string{"other.example"} })
	look()
	w.clock.Step(grace)
	look()
	if made() != nil {
		t.Error("it stays for a host that is not allowed any more")
	}
}

// TestBudgetTravels: if the provider's owner allows it, and else home is told why not.
func TestBudgetTravels(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(&policyv1.PodDisruptionBudget{ObjectMeta: objectMeta(w.home, "web"), Spec: policyv1.PodDisruptionBudgetSpec{
		MinAvailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}})
	w.pod("web")
	made := func() *policyv1.PodDisruptionBudget { return get(w, w.remote, "web", &policyv1.PodDisruptionBudget{}) }
	w.as(kindBudget, "web")
	if made() != nil || w.answer("web") != "False/Refused" {
		t.Fatalf("an owner who says nothing takes it: %s", w.answer("web"))
	}
	w.send("web")
	if w.told("without spec.disruptionBudgets of its Tenant a provider takes no PodDisruptionBudget") == 0 {
		t.Error("home is not told the remedy")
	}
	w.terms(func(terms *v1alpha1.TenantTerms) { terms.DisruptionBudgets = new(true) })
	w.both("web")
	if got := made(); got == nil || got.Spec.MinAvailable.IntValue() != 1 || got.Spec.Selector.MatchLabels["app"] != "web" {
		t.Fatalf("%+v", got)
	}
	w.terms(func(terms *v1alpha1.TenantTerms) { terms.DisruptionBudgets = new(false) })
	w.both("web")
	if made() != nil || w.answer("web") != "False/Refused" {
		t.Error("not allowed, and it stays")
	}
	if err := w.raw.Get(ctx, client.ObjectKey{Namespace: w.home, Name: "web"}, &policyv1.PodDisruptionBudget{}); err != nil {
		t.Errorf("home's was touched: %v", err)
	}
}

// TestBound: a pod that refers to nothing brings the Services of its namespace when it is bound.
func TestBound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(service(w.home, "web"))
	bound := w.podWith("bound", func(*corev1.PodSpec) {})
	pending := bound.DeepCopy()
	pending.Spec.NodeName = ""
	wakers := wakers{cache: indexed{w.raw}, fleet: w, spaces: func(context.Context, string, string) (bool, error) { return true, nil }}
	woken := func(old, now *corev1.Pod) bool {
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer q.ShutDown()
		wakers.pods().Update(t.Context(), event.UpdateEvent{ObjectOld: old, ObjectNew: now}, q)
		want := at(w.name, v1alpha1.HomeObject{Kind: kindService, Namespace: w.home, Name: "web"})
		for q.Len() > 0 {
			r, _ := q.Get()
			q.Done(r)
			if r == want {
				return true
			}
		}
		return false
	}
	if !woken(pending, bound) {
		t.Error("its Service is not looked at")
	}
	if woken(bound, bound) || woken(pending, pending) {
		t.Error("nothing has happened, and its Service is looked at")
	}
}
