package reflection

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// hostile makes a ShadowObject by hand, and returns what the provider says of it.
func (w *world) hostile(home v1alpha1.HomeObject, object string) (answer, message string) {
	w.t.Helper()
	s := shadowOf(home, object)
	s.Namespace = w.TenantNamespace()
	w.create(s)
	defer w.remove(s)
	w.clock.Step(readEvery)
	if _, err := w.provider.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s)}); err != nil {
		w.t.Fatal(err)
	}
	c := meta.FindStatusCondition(get(w, s.Namespace, s.Name, s).Status.Conditions, v1alpha1.ConditionAccepted)
	return string(c.Status) + "/" + c.Reason, c.Message
}

// TestHostileSlices: by hand, with all rights of a tenant (CVE-2021-25740): nothing of it
// becomes an EndpointSlice, and the answer says what is wrong and what to do.
func TestHostileSlices(t *testing.T) {
	t.Parallel()
	w := newSlices(t)
	foreign := service(w.remote, "theirs")
	w.create(foreign)
	taken := sliceOf(w.remote, "taken", "theirs", endpoint("10.0.0.1", "node-1"))
	w.create(taken)
	elsewhere := service(w.TenantNamespace(), "tenant")
	mark(elsewhere, w.name, w.home)
	w.create(elsewhere)
	of := func(service, text string) string { return strings.Replace(text, `"web"`, `"`+service+`"`, 1) }
	six := func(address string) string { return strings.Replace(sliceText(address), "IPv4", "IPv6", 1) }
	for _, c := range []struct {
		reason       string
		home         v1alpha1.HomeObject
		object       string
		answer, says string
	}{
		{"the machine itself", w.of("a"), sliceText("127.0.0.1"), "False/Refused", "endpoints[0].address"},
		{"the machine itself, as IPv6", w.of("b"), six("::1"), "False/Refused", "endpoints[0].address"},
		{"a cloud's metadata", w.of("c"), sliceText("10.201.0.1", "169.254.169.254"), "False/Refused", "endpoints[1].address"},
		{"the link", w.of("d"), six("fe80::1"), "False/Refused", "leave it out"},
		{"many", w.of("e"), sliceText("224.0.0.1"), "False/Refused", "leave it out"},
		{"anything", w.of("f"), sliceText("0.0.0.0"), "False/Refused", "leave it out"},
		{"a pod or a node of the provider", w.of("g"), sliceText("10.0.0.7"), "False/Refused", "not one of this tenant's in the network between the clusters; send addresses of that only"},
		{"the same, as IPv6", w.of("h"), six("fd00:999::7"), "False/Refused", "not one of this tenant's"},
		{"a name", w.of("i"), strings.Replace(sliceText("kubernetes.default"), "IPv4", "FQDN", 1), "False/Refused", "type: "},
		{"the wrong type", w.of("j"), six("10.201.0.1"), "False/Refused", "not of the type IPv6"},
		{"another Service's, of the provider", w.of("k"), of("theirs", sliceText("10.201.0.1")), "False/Refused", "the Service theirs in namespace " + w.remote + " is not yours"},
		{"one in another namespace", w.of("l"), of("tenant", sliceText("10.201.0.1")), "False/Waiting", "no Service tenant has come from " + w.home},
		{"one by a path", w.of("m"), of("../web", sliceText("10.201.0.1")), "False/Refused", "no name of a Service"},
		{"of no Service", w.of("n"), of("", sliceText("10.201.0.1")), "False/Refused", "name the Service"},
		{"a slice that is there", w.of("taken"), sliceText("10.201.0.1"), "False/NameTaken", "not yours"},
		{"a node", w.of("o"), strings.Replace(sliceText("10.201.0.1"), `"address"`, `"nodeName":"node-1","address"`, 1), "False/Refused", "nodeName"},
		{"a pod", w.of("p"), strings.Replace(sliceText("10.201.0.1"), `"address"`, `"targetRef":{},"address"`, 1), "False/Refused", "targetRef"},
		{"a label of the provider's controllers", w.of("q"), strings.Replace(sliceText("10.201.0.1"), `{"content"`, `{"labels":{"endpointslice.kubernetes.io/managed-by":"x"},"content"`, 1), "False/Refused", "labels: "},
		{"too many", w.of("r"), sliceText(strings.Split(strings.Repeat("10.201.0.1,", 1001), ",")[:1001]...), "False/Refused", "1001 endpoints"},
		{"a namespace that is not mapped", v1alpha1.HomeObject{Kind: kindSlice, Namespace: "kube-system", Name: "x"}, sliceText("10.201.0.1"), "False/NamespaceMissing", ""},
	} {
		answer, message := w.hostile(c.home, c.object)
		if answer != c.answer || !strings.Contains(message, c.says) {
			t.Errorf("%s: %s %q, want %s %q", c.reason, answer, message, c.answer, c.says)
		}
	}
	w.allowed = nil
	w.restart()
	if answer, message := w.hostile(w.of("s"), sliceText("10.201.0.1")); answer != "False/Refused" || !strings.Contains(message, "there is no network with this tenant") || !strings.Contains(message, "leave EndpointSlices out") {
		t.Errorf("without a network: %s %q", answer, message)
	}
	list := &discoveryv1.EndpointSliceList{}
	if err := w.raw.List(ctx, list, client.InNamespace(w.remote)); err != nil || len(list.Items) != 1 || list.Items[0].ResourceVersion != taken.ResourceVersion {
		t.Errorf("%d slices are there, or one was touched: %v", len(list.Items), err)
	}
}

// TestSliceNeedsItsService: a slice is there while its Service is, and is looked at when
// that comes, goes or changes hands.
func TestSliceNeedsItsService(t *testing.T) {
	t.Parallel()
	w := newSlices(t)
	w.create(sliceOf(w.home, "web-1", "web", endpoint("10.1.0.1", "node-1")))
	w.send("web-1")
	made := func() *corev1.Service { return get(w, w.remote, "web", &corev1.Service{}) }
	w.remove(made())
	w.take("web-1")
	if w.slice("web-1") != nil || w.answer("web-1") != "False/Waiting" {
		t.Fatalf("made without its Service: %s", w.answer("web-1"))
	}
	if w.send("web-1"); w.told("") != 0 {
		t.Error("home is told of a moment's wait")
	}
	w.as(kindService, "web")
	w.kind = kindSlice
	if got := woken(w, made(), nil); got != w.key("web-1").String() {
		t.Errorf("the Service comes, and wakes %q", got)
	}
	w.take("web-1")
	if shown(w.slice("web-1")) != "10.201.0.1 ready serving" || w.answer("web-1") != "True/Ready" {
		t.Fatalf("not made with its Service: %s", w.answer("web-1"))
	}
	ours := made()
	theirs := ours.DeepCopy()
	delete(theirs.Labels, v1alpha1.LabelTenant)
	w.update(theirs)
	if got := woken(w, theirs, ours); got != w.key("web-1").String() {
		t.Errorf("the Service changes hands, and wakes %q", got)
	}
	if got := woken(w, ours, ours) + woken(w, foreign(ours), nil) + woken(w, service(w.remote, "web"), nil); got != "" {
		t.Errorf("nothing, others' and another Service wake %q", got)
	}
	w.take("web-1")
	if w.slice("web-1") != nil || w.answer("web-1") != "False/Refused" {
		t.Errorf("it stays with somebody else's Service: %s", w.answer("web-1"))
	}
}

// foreign is a Service like one, of another tenant's namespace.
func foreign(s *corev1.Service) *corev1.Service {
	s = s.DeepCopy()
	s.Namespace += "-x"
	return s
}

// woken is what the provider looks at when a Service is so now and was so before, nil if it
// was not there.
func woken(w *world, now, before client.Object) string {
	w.t.Helper()
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	h := (&watcher{client: w.raw, pace: newPacer(w.clock)}).services(w.provider.notes)
	if before == nil {
		h.Create(context.Background(), event.CreateEvent{Object: now}, q)
	} else {
		h.Update(context.Background(), event.UpdateEvent{ObjectOld: before, ObjectNew: now}, q)
	}
	var all []string
	for q.Len() > 0 {
		r, _ := q.Get()
		q.Done(r)
		all = append(all, r.String())
	}
	return strings.Join(all, " ")
}
