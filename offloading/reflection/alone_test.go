package reflection

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/retry"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// newAlone is a world with a network in which the home namespace is mapped, and nothing of it is at
// the provider: the Service web with a slice, and beside it one of each other kind.
func newAlone(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.addresses, w.allowed = network{}, network{}
	w.restart()
	w.showing()
	var features []string
	for _, kind := range carried {
		features = append(features, v1alpha1.FeatureOfKind(kind))
	}
	w.build(features...)
	w.maps(w.home)
	s := service(w.home, "web")
	s.Labels = map[string]string{"shared": "yes"}
	w.create(s)
	w.create(service(w.home, "db"))
	w.create(sliceOf(w.home, "web-1", "web", endpoint("10.1.0.1", "node-1")))
	w.create(sliceOf(w.home, "db-1", "db", endpoint("10.1.0.2", "node-1")))
	w.create(pullSecret(w.home, "registry", "s3cret"))
	w.create(configMap(w.home, "app", nil))
	w.create(&policyv1.PodDisruptionBudget{ObjectMeta: objectMeta(w.home, "web"), Spec: policyv1.PodDisruptionBudgetSpec{
		MinAvailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}})
	backend := networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}}}
	w.create(&networkingv1.Ingress{ObjectMeta: objectMeta(w.home, "web"), Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: "shop.example",
		IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{
			{Path: "/", PathType: new(networkingv1.PathTypePrefix), Backend: backend}}}}}}}})
	return w
}

// maps says which namespaces of home are to be at the provider.
func (w *world) maps(namespaces ...string) {
	w.t.Helper()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { // a manager may say something of it meanwhile
		m := get(w, mapKey(w.name).Namespace, mapKey(w.name).Name, &v1alpha1.NamespaceMap{})
		m.Spec.Namespaces = map[string]v1alpha1.NamespaceMapping{}
		for _, n := range namespaces {
			m.Spec.Namespaces[n] = v1alpha1.NamespaceMapping{Strategy: v1alpha1.MappingDefaultName}
		}
		return w.raw.Update(ctx, m)
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// look lets everything look at all objects that newAlone has made, Services first.
func (w *world) look() {
	w.t.Helper()
	for _, home := range []struct{ kind, name string }{
		{kindService, "web"}, {kindService, "db"}, {kindSlice, "web-1"}, {kindSlice, "db-1"},
		{kindSecret, "registry"}, {kindConfigMap, "app"}, {kindBudget, "web"}, {kindIngress, "web"},
	} {
		w.as(home.kind, home.name)
	}
}

// areThere fails the test unless these objects are at the provider, and no other.
func (w *world) areThere(reason string, want ...string) {
	w.t.Helper()
	list := &v1alpha1.ShadowObjectList{}
	if err := w.raw.List(ctx, list, client.InNamespace(w.TenantNamespace())); err != nil {
		w.t.Fatal(err)
	}
	var got []string
	for i := range list.Items {
		got = append(got, list.Items[i].Spec.Home.Kind+"/"+list.Items[i].Spec.Home.Name)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		w.t.Errorf("%s: there are %q, want %q", reason, got, want)
	}
	web := get(w, w.remote, "web", &corev1.Service{}) != nil
	if sent := slices.Contains(want, "Service/web"); web != sent {
		w.t.Errorf("%s: that the Service web is in the mapped namespace is %t", reason, web)
	}
}

const graceLimit = grace

// TestServiceAlone: what sends a Service, and its slice, where no pod of its namespace is; that
// nothing else of the namespace goes with it; and what takes it away.
func TestServiceAlone(t *testing.T) {
	t.Parallel()
	w := newAlone(t)
	web := []string{"EndpointSlice/web-1", "Service/web"}
	all, deny := ruleOf(kindService, v1alpha1.ReflectAll, "shared", "yes"), ruleOf(kindService, v1alpha1.ReflectDeny)
	grace := func() {
		t.Helper()
		w.look()
		w.clock.Step(grace)
		w.look()
		w.look() // slices are looked at again when their Service has gone
	}
	annotate := func(value string) {
		t.Helper()
		s := get(w, w.home, "web", &corev1.Service{})
		s.Annotations = map[string]string{v1alpha1.AnnotationReflect: value}
		w.update(s)
	}
	w.rules()
	w.look()
	w.areThere("no rule")
	w.rules(ruleOf(kindSlice, v1alpha1.ReflectAll), ruleOf(kindIngress, v1alpha1.ReflectAll), ruleOf(kindBudget, v1alpha1.ReflectAll), ruleOf(kindSecret, v1alpha1.ReflectAll))
	w.look()
	w.areThere("a rule for the other kinds")
	w.rules(all)
	w.look()
	w.areThere("a rule", web...)
	w.kind = kindSlice
	w.says("a rule", "web-1", "10.201.0.1 ready serving")
	writes := w.writes
	if w.look(); w.writes != writes {
		t.Errorf("%d writes though nothing changes", w.writes-writes)
	}
	t.Run("its slice follows", func(t *testing.T) {
		s := get(w, w.home, "web-1", &discoveryv1.EndpointSlice{})
		s.Endpoints = append(s.Endpoints, endpoint("10.1.0.3", "node-2"))
		w.update(s)
		w.kind = kindSlice
		w.says("a pod more", "web-1", "10.201.0.1 ready serving, 10.201.0.3 ready serving")
	})
	t.Run("the rule goes", func(t *testing.T) {
		w.rules()
		for kind, name := range map[string]string{kindService: "web", kindSlice: "web-1"} {
			w.kind = kind
			if res := w.send(name); res.RequeueAfter <= 0 || res.RequeueAfter > graceLimit {
				t.Errorf("%s %s is looked at again after %s, and its grace is %s", kind, name, res.RequeueAfter, graceLimit)
			}
		}
		w.look()
		w.areThere("for the grace", web...)
		grace()
		w.areThere("after the grace")
	})
	t.Run("Deny", func(t *testing.T) {
		w.rules(all)
		w.look()
		w.areThere("before", web...)
		w.rules(deny, all)
		w.look()
		w.areThere("denied")
		annotate("true")
		w.look()
		w.areThere("denied in spite of the hand")
		annotate("false")
		w.rules(all)
		w.look()
		w.areThere("kept by hand")
	})
	t.Run("by hand", func(t *testing.T) {
		w.rules()
		annotate("true")
		w.look()
		w.areThere("its annotation", web...)
		annotate("yes")
		grace()
		w.areThere("no annotation")
	})
	t.Run("another cluster is selected", func(t *testing.T) {
		w.rules(all)
		w.maps()
		w.look()
		w.areThere("not mapped")
		w.maps(w.home)
		w.look()
		w.areThere("mapped", web...)
		w.maps()
		grace()
		w.areThere("not mapped any more")
		w.maps(w.home)
	})
	t.Run("unoffloaded", func(t *testing.T) {
		w.look()
		w.areThere("before", web...)
		w.label(w.home, nil)
		w.look()
		w.areThere("it is being left", web...)
		w.maps()
		w.look()
		w.areThere("it is not offloaded")
		w.label(w.home, map[string]string{v1alpha1.LabelOffloaded: "true"})
		w.maps(w.home)
	})
	t.Run("deleted", func(t *testing.T) {
		w.look()
		w.areThere("before", web...)
		w.remove(get(w, w.home, "web", &corev1.Service{}))
		w.remove(get(w, w.home, "web-1", &discoveryv1.EndpointSlice{}))
		w.look()
		w.areThere("it is gone from home")
	})
	if n := w.told(""); n != 0 {
		t.Errorf("%d events though all went as it should", n)
	}
}

// TestServiceAloneAndPods: a pod that comes and goes brings and takes the rest of its namespace, and
// leaves what is sent.
func TestServiceAloneAndPods(t *testing.T) {
	t.Parallel()
	w := newAlone(t)
	web := []string{"EndpointSlice/web-1", "Service/web"}
	w.rules(ruleOf(kindService, v1alpha1.ReflectAll, "shared", "yes"))
	w.look()
	w.areThere("before", web...)
	uid := get(w, w.remote, "web", &corev1.Service{}).UID
	pod := w.pod("web", "registry")
	w.look()
	w.look()
	w.areThere("a pod is there", append(web, "EndpointSlice/db-1", "Service/db", "Secret/registry", "PodDisruptionBudget/web", "Ingress/web")...)
	w.remove(pod)
	w.look()
	w.clock.Step(grace)
	w.look()
	w.look()
	w.areThere("the pod has gone", web...)
	if s := get(w, w.remote, "web", &corev1.Service{}); s == nil || s.UID != uid {
		t.Errorf("it was made anew: %+v", s)
	}
}

// TestServiceAloneRefused: what the provider refuses is told and shown as where pods are.
func TestServiceAloneRefused(t *testing.T) {
	t.Parallel()
	w := newAlone(t)
	w.create(service(w.remote, "web"))
	w.rules(ruleOf(kindService, v1alpha1.ReflectAll, "shared", "yes"))
	w.as(kindService, "web")
	w.as(kindService, "web")
	if n := w.told("the provider has a Service of this name that is not this cluster's"); n != 1 {
		t.Errorf("told %d times", n)
	}
	if all := w.shown(); len(all) != 1 || all[0].Name != "web" || all[0].Reason != v1alpha1.ReasonNameTaken || !all[0].Refused {
		t.Errorf("the NamespaceMap shows %+v", all)
	}
	if w.as(kindSlice, "web-1"); w.shadow("web-1") != nil {
		t.Error("its slice is there")
	}
}

// TestServiceAloneIsNotBelieved: a provider that shows a Service as sent that is not gets no slice of it,
// and the Service goes again.
func TestServiceAloneIsNotBelieved(t *testing.T) {
	t.Parallel()
	w := newAlone(t)
	w.rules(ruleOf(kindService, v1alpha1.ReflectAll, "shared", "yes"))
	db := v1alpha1.HomeObject{Kind: kindService, Namespace: w.home, Name: "db"}
	shows := &v1alpha1.ShadowObject{ObjectMeta: objectMeta(w.TenantNamespace(), v1alpha1.ShadowObjectName(db)), Spec: v1alpha1.ShadowObjectSpec{Home: db, Object: `{"content":{}}`}}
	w.create(shows)
	w.kind = kindSlice
	w.send("db-1")
	w.areThere("what the provider shows", "Service/db")
	w.look()
	w.clock.Step(grace)
	w.look()
	w.look()
	w.areThere("after the grace", "EndpointSlice/web-1", "Service/web")
}

// TestServiceAloneIsFound: by the list once a minute, and not where it is not to be.
func TestServiceAloneIsFound(t *testing.T) {
	t.Parallel()
	w := newAlone(t)
	all := ruleOf(kindService, v1alpha1.ReflectAll, "shared", "yes")
	for _, c := range []struct {
		reason string
		want   string
		rules  []v1alpha1.ReflectionRule
	}{
		{"no rule", "", nil},
		{"Deny first", "", []v1alpha1.ReflectionRule{ruleOf(kindService, v1alpha1.ReflectDeny), all}},
		{"a rule", "Service/web", []v1alpha1.ReflectionRule{all}},
		{"it is there", "", []v1alpha1.ReflectionRule{all}},
	} {
		w.rules(c.rules...)
		if got := w.list(); got != c.want || w.lists != 0 {
			t.Errorf("%s: %q is woken, want %q, and %d lists of what no pod refers to", c.reason, got, c.want, w.lists)
		}
	}
	w.rules(ruleOf(kindService, v1alpha1.ReflectAll))
	w.maps()
	if got := w.list(); got != "" {
		t.Errorf("not mapped: %q is woken", got)
	}
	w.maps(w.home)
	w.state.Reachable = false
	if got := w.list(); got != "" {
		t.Errorf("the provider is away: %q is woken", got)
	}
	w.state.Reachable = true
	if got := w.list(); got != "Service/db" {
		t.Errorf("the other one: %q is woken", got)
	}
}

// TestServiceAloneWakes: what asks for it at once.
func TestServiceAloneWakes(t *testing.T) {
	t.Parallel()
	w := newAlone(t)
	w.rules(ruleOf(kindService, v1alpha1.ReflectAll, "shared", "yes"))
	wakers := wakers{cache: indexed{w.raw}, fleet: w, spaces: w.consumer.spaces, addresses: true}
	web, slice := at(w.name, v1alpha1.HomeObject{Kind: kindService, Namespace: w.home, Name: "web"}), at(w.name, v1alpha1.HomeObject{Kind: kindSlice, Namespace: w.home, Name: "web-1"})
	woken := func(reason string, by func(q queue), want ...reconcile.Request) {
		t.Helper()
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer q.ShutDown()
		by(q)
		got := map[reconcile.Request]bool{}
		for q.Len() > 0 {
			r, _ := q.Get()
			q.Done(r)
			if peering, _, _ := split(r); peering == w.name { // other worlds have nodes here, too
				got[r] = true
			}
		}
		for _, r := range want {
			if !got[r] {
				t.Errorf("%s: %s is not asked for, of %v", reason, r, got)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s: %v are asked for, want %v", reason, got, want)
		}
	}
	key := mapKey(w.name)
	now := get(w, key.Namespace, key.Name, &v1alpha1.NamespaceMap{})
	before := now.DeepCopy()
	before.Spec.Namespaces = nil
	woken("it is mapped", func(q queue) { wakers.maps().Update(ctx, event.UpdateEvent{ObjectOld: before, ObjectNew: now}, q) }, web, slice)
	woken("the manager begins", func(q queue) { wakers.maps().Create(ctx, event.CreateEvent{Object: now}, q) }, web, slice)
	woken("nothing is mapped anew", func(q queue) { wakers.maps().Update(ctx, event.UpdateEvent{ObjectOld: now, ObjectNew: now}, q) })
	theirs := get(w, w.TenantNamespace(), v1alpha1.NamespaceMapName, &v1alpha1.NamespaceMap{})
	theirs.Spec = now.Spec
	woken("the map of a tenant", func(q queue) { wakers.maps().Create(ctx, event.CreateEvent{Object: theirs}, q) })
	woken("the provider answers", func(q queue) { add(q, wakers.ofPeer(w.name)) }, web, slice)
	nodes := &corev1.NodeList{}
	if err := w.raw.List(ctx, nodes, client.MatchingLabels{v1alpha1.LabelPeering: w.name}); err != nil || len(nodes.Items) != 1 {
		t.Fatalf("%d virtual nodes: %v", len(nodes.Items), err)
	}
	node := &nodes.Items[0]
	woken("its virtual node is back", func(q queue) { wakers.nodes().Create(ctx, event.CreateEvent{Object: node}, q) }, web, slice)
	rules := get(w, w.home, v1alpha1.OffloadingName, &v1alpha1.NamespaceOffloading{})
	changed := rules.DeepCopy()
	changed.Generation++
	woken("the rules change", func(q queue) {
		wakers.offloadings().Update(ctx, event.UpdateEvent{ObjectOld: rules, ObjectNew: changed}, q)
	}, web, slice)
	s := get(w, w.home, "web", &corev1.Service{})
	annotated := s.DeepCopy()
	annotated.ResourceVersion, annotated.Annotations = "x", map[string]string{v1alpha1.AnnotationReflect: "false"}
	woken("its annotation changes", func(q queue) {
		wakers.ofHome(kindService).Update(ctx, event.UpdateEvent{ObjectOld: s, ObjectNew: annotated}, q)
	}, web, slice)
	other := s.DeepCopy()
	other.ResourceVersion = "x"
	woken("something else of it does", func(q queue) {
		wakers.ofHome(kindService).Update(ctx, event.UpdateEvent{ObjectOld: s, ObjectNew: other}, q)
	}, web)
	w.look()
	w.rules()
	woken("no rule is left", func(q queue) {
		wakers.offloadings().Update(ctx, event.UpdateEvent{ObjectOld: rules, ObjectNew: changed}, q)
	}, web, slice)
	woken("it is not mapped any more", func(q queue) { wakers.maps().Update(ctx, event.UpdateEvent{ObjectOld: now, ObjectNew: before}, q) }, web, slice)
	woken("nothing is", func(q queue) { wakers.maps().Delete(ctx, event.DeleteEvent{Object: now}, q) }, web, slice)
	woken("its virtual node is back, and no rule sends it", func(q queue) { wakers.nodes().Create(ctx, event.CreateEvent{Object: node}, q) }, web, slice)
}

// aloneInManager: a Service of a namespace without a pod, and its slice, follow its mapping, its annotation
// and the rules as soon as they change.
func (w *world) aloneInManager(space string, cache client.Reader) {
	w.t.Helper()
	there := func(kind, name string) bool {
		home := v1alpha1.HomeObject{Kind: kind, Namespace: space, Name: name}
		return get(w, w.TenantNamespace(), v1alpha1.ShadowObjectName(home), &v1alpha1.ShadowObject{}) != nil
	}
	await := func(reason string, want bool) {
		w.t.Helper()
		began := time.Now()
		w.await(fmt.Sprintf("%s: that the Service alone and its slice are there is %t", reason, want), func() bool {
			service, slice := there(kindService, "catalogue"), there(kindSlice, "catalogue-1")
			if time.Since(began) > listEvery { // long too late
				w.t.Fatalf("%s: that the Service is there is %t, its slice %t, want %t", reason, service, slice, want)
			}
			return service == want && slice == want
		})
		if took := time.Since(began); took > listEvery*2/3 {
			w.t.Errorf("%s: only after %s, as if no event had done it", reason, took)
		}
	}
	s := service(space, "catalogue")
	s.Annotations = map[string]string{v1alpha1.AnnotationReflect: "true"}
	w.create(s)
	w.create(sliceOf(space, "catalogue-1", "catalogue", endpoint("10.1.0.9", "node-1")))
	w.create(service(space, "other"))
	o := &v1alpha1.NamespaceOffloading{ObjectMeta: objectMeta(space, v1alpha1.OffloadingName)}
	w.create(o)
	w.maps(space)
	await("it is mapped", true)
	o.Spec.Reflection = []v1alpha1.ReflectionRule{ruleOf(kindService, v1alpha1.ReflectDeny)}
	w.update(o)
	await("a rule keeps it home", false)
	o.Spec.Reflection = nil
	w.update(o)
	await("no rule does", true)
	s.Annotations[v1alpha1.AnnotationReflect] = "false"
	w.update(s)
	await("its annotation keeps it home", false)
	s.Annotations[v1alpha1.AnnotationReflect] = "true"
	w.update(s)
	await("its annotation sends it", true)
	w.label(space, map[string]string{"world": w.name})
	w.await("the manager has seen that", func() bool {
		n := &corev1.Namespace{}
		return cache.Get(ctx, client.ObjectKey{Name: space}, n) == nil && n.Labels[v1alpha1.LabelOffloaded] == ""
	})
	w.maps()
	await("it is not offloaded any more", false)
	if there(kindService, "other") {
		w.t.Error("another one went with it")
	}
}
