package test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// budgets holds that a budget of home's keeps pods at a provider that takes budgets from evictions
// there, as many as it says: a number, or a share of which home counts what it comes to.
func budgets(t *testing.T, c *continuum) {
	c.patchTenant(t, "milan", "rome", func(x *v1alpha1.Tenant) { x.Spec.DisruptionBudgets = new(true) })
	t.Cleanup(func() { c.patchTenant(t, "milan", "rome", func(x *v1alpha1.Tenant) { x.Spec.DisruptionBudgets = nil }) })
	s := c.offloaded(t, "rome", "--pod-offloading-strategy", "Remote", "--cluster-selector", "region=north")
	s.create(t, s.deployment("web", 2))
	pods := s.runningAll(t, "web", 2)
	two, half := intstr.FromInt32(2), intstr.FromString("50%")
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: policyv1.PodDisruptionBudgetSpec{
		MinAvailable: &two, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}}
	s.create(t, budget)
	s.least(t, "web", 2)
	for i := range pods {
		if err := s.evict(t, &pods[i]); !apierrors.IsTooManyRequests(err) {
			t.Fatalf("milan evicts one of two pods of which two must stay: %v", err)
		}
	}

	before := budget.DeepCopy()
	budget.Spec.MinAvailable, budget.Spec.MaxUnavailable = nil, &half
	if err := c.Clients["rome"].Patch(t.Context(), budget, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	s.least(t, "web", 1)
	evicted, err := c.twin("milan", &pods[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := s.evict(t, &pods[0]); err != nil {
		t.Fatalf("milan may not evict one of two pods of which half may go: %v", err)
	}
	s.eventually(t, offloadLimit, "another one runs there", func() error {
		now, err := c.twin("milan", &pods[0])
		if err == nil && (now.UID == evicted.UID || now.Status.Phase != corev1.PodRunning) {
			err = fmt.Errorf("it is %s, %s, and was %s", now.UID, now.Status.Phase, evicted.UID)
		}
		return err
	})
	s.runningAll(t, "web", 2)

	if err := c.Clients["rome"].Delete(t.Context(), budget); err != nil {
		t.Fatal(err)
	}
	s.eventually(t, patience, "milan has no budget any more", func() error {
		if _, err := get[policyv1.PodDisruptionBudget](c, "milan", s.name+"-rome", "web"); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %v", err)
		}
		return nil
	})
}

// least waits until a budget at milan keeps so many pods, and milan has counted them.
func (s shop) least(t *testing.T, name string, want int) {
	t.Helper()
	s.eventually(t, offloadLimit, fmt.Sprintf("milan keeps %d pods", want), func() error {
		b, err := get[policyv1.PodDisruptionBudget](s.continuum, "milan", s.name+"-rome", name)
		if err != nil {
			return err
		}
		if least := b.Spec.MinAvailable; least == nil || least.IntValue() != want || b.Status.ObservedGeneration != b.Generation || int(b.Status.CurrentHealthy) < want {
			return fmt.Errorf("of at least %v; %+v", least, b.Status)
		}
		return nil
	})
}

// evict has milan's owner evict a pod, as a drain of a node does.
func (s shop) evict(t *testing.T, pod *corev1.Pod) error {
	t.Helper()
	twin, err := s.twin("milan", pod)
	if err != nil {
		t.Fatal(err)
	}
	return s.Clients["milan"].SubResource("eviction").Create(t.Context(), twin, &policyv1.Eviction{})
}

// ingresses holds that a provider has the Ingresses for hosts that its owner allows, with the class
// that he says, that home learns by which address its controller has them reached, and that those for
// other hosts stay home, with the reason.
func ingresses(t *testing.T, c *continuum) {
	c.patchTenant(t, "milan", "rome", func(x *v1alpha1.Tenant) {
		x.Spec.Ingress = &v1alpha1.TenantIngress{Class: "outer", Hosts: []string{"shop.example"}}
	})
	t.Cleanup(func() { c.patchTenant(t, "milan", "rome", func(x *v1alpha1.Tenant) { x.Spec.Ingress = nil }) })
	s := c.offloaded(t, "rome", "--pod-offloading-strategy", "Remote", "--cluster-selector", "region=north")
	there := s.name + "-rome"
	s.create(t, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}}}})
	s.create(t, s.deployment("web", 1))
	s.runningAll(t, "web", 1)
	for name, host := range map[string]string{"front": "www.shop.example", "foreign": "bank.example"} {
		s.create(t, &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"inner.example/rewrite": "/"}}, Spec: networkingv1.IngressSpec{
			IngressClassName: new("inner"), Rules: []networkingv1.IngressRule{{Host: host, IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
				Paths: []networkingv1.HTTPIngressPath{{Path: "/", PathType: new(networkingv1.PathTypePrefix), Backend: networkingv1.IngressBackend{
					Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}}}}}}}}}}})
	}
	var made *networkingv1.Ingress
	s.eventually(t, offloadLimit, "milan has the Ingress", func() (err error) {
		made, err = get[networkingv1.Ingress](c, "milan", there, "front")
		return err
	})
	rule := made.Spec.Rules[0]
	if class := made.Spec.IngressClassName; class == nil || *class != "outer" || rule.Host != "www.shop.example" || rule.HTTP.Paths[0].Backend.Service.Name != "web" || made.Annotations["inner.example/rewrite"] != "" {
		t.Errorf("the Ingress at milan is %+v with the annotations %v; want the class outer, and no annotations of home's controller", made.Spec, made.Annotations)
	}
	if _, err := get[corev1.Service](c, "milan", there, "web"); err != nil {
		t.Errorf("the Service behind it: %v", err)
	}
	s.eventually(t, offloadLimit, "home is told why the other one is not there", func() error {
		out, err := s.kubectl(t, "get", "events", "--field-selector", "reason=NotReflected", "-o", "custom-columns=NAME:.involvedObject.name,SAYS:.message")
		if err == nil && !strings.Contains(out, "Ingress foreign is not carried to milan: the provider refuses it") {
			err = fmt.Errorf("the events are\n%s", out)
		}
		return err
	})
	home := v1alpha1.HomeObject{Kind: "Ingress", Namespace: s.name, Name: "foreign"}
	asked, err := get[v1alpha1.ShadowObject](c, "milan", v1alpha1.TenantNamespace("rome"), v1alpha1.ShadowObjectName(home))
	if err != nil {
		t.Fatal(err)
	}
	if cond := meta.FindStatusCondition(asked.Status.Conditions, v1alpha1.ConditionAccepted); cond == nil || !strings.Contains(cond.Message, "bank.example") {
		t.Errorf("milan's owner sees %+v, want the host that is not rome's", cond)
	}
	if _, err := get[networkingv1.Ingress](c, "milan", there, "foreign"); !apierrors.IsNotFound(err) {
		t.Errorf("an Ingress at milan for a host that is not rome's: %v, want none", err)
	}

	// milan has no controller for the class; this is what one says.
	before := made.DeepCopy()
	made.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "192.0.2.7"}}
	if err := c.Clients["milan"].Status().Patch(t.Context(), made, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	s.eventually(t, 6*time.Minute, "home knows its address at milan", func() error {
		if out := c.Pelago(t, "rome", "explain", "namespace", s.name); !strings.Contains(out, "192.0.2.7") {
			return fmt.Errorf("pelago explain namespace says\n%s", out)
		}
		return nil
	})
	if err := c.Clients["rome"].Delete(t.Context(), &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "front"}}); err != nil {
		t.Fatal(err)
	}
	s.eventually(t, patience, "it goes from milan with the one at home", func() error {
		if _, err := get[networkingv1.Ingress](c, "milan", there, "front"); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %v", err)
		}
		return nil
	})
}
