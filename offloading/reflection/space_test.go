package reflection

import (
	"context"
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
	w.terms(func(terms *v1alpha1.TenantTerms) { terms.Services = &v1alpha1.TenantServices{NodePorts: true} })
	w.both("web")
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
			Paths: []networkingv1.HTTPIngressPath{{Path: "/", PathType: new(networkingv1.PathTypePrefix), Backend: networkingv1.IngressBackend{
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
