package network

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	corev1 "k8s.io/api/core/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestHop: milan lies between rome, its tenant, and oslo, its provider. Each of both is told of the other by milan's
// views alone, as long as a namespace of rome's that is at milan may run at oslo.
func TestHop(t *testing.T) {
	w := newWorld(t)
	w.settle()
	rome, oslo := w.milan.peer, w.another(w.milan)
	space := rome + "-shop"
	w.space(space, map[string]string{v1alpha1.LabelTenant: rome, v1alpha1.LabelHomeNamespace: "shop"})
	const own, theirs, romes = "10.42.0.0/16", "10.9.0.0/16", "10.8.0.0/16"
	told := func() (toRome, toOslo *v1alpha1.NetworkConfig) {
		t.Helper()
		toOslo = &v1alpha1.NetworkConfig{}
		if err := w.raw.Get(ctx, client.ObjectKey{Namespace: v1alpha1.PeeringNamespace(oslo), Name: v1alpha1.NetworkConsumer}, toOslo); err != nil {
			t.Fatal(err)
		}
		if near, far := w.rome.pair(v1alpha1.NetworkProvider), w.milan.pair(v1alpha1.NetworkProvider); !slices.Equal(near.Spec.Pods, far.Spec.Pods) || !slices.Equal(near.Spec.Transit, far.Spec.Transit) {
			t.Errorf("at rome milan has %v, %v in transit, and at milan %v, %v", near.Spec.Pods, near.Spec.Transit, far.Spec.Pods, far.Spec.Transit)
		}
		return w.rome.pair(v1alpha1.NetworkProvider), toOslo
	}
	view := func(of, real string) string {
		t.Helper()
		c := &v1alpha1.NetworkConfig{}
		key := client.ObjectKey{Namespace: v1alpha1.PeeringNamespace(of), Name: v1alpha1.NetworkProvider}
		if of == rome {
			key = client.ObjectKey{Namespace: v1alpha1.TenantNamespace(of), Name: v1alpha1.NetworkConsumer}
		}
		if err := w.raw.Get(ctx, key, c); err != nil {
			t.Fatal(err)
		}
		for _, v := range c.Status.Views {
			if v.Real == real {
				return v.View
			}
		}
		t.Fatalf("milan has no view of %s of %s", real, of)
		return ""
	}
	holds := func(reason string, toRome, toOslo []string) {
		t.Helper()
		r, o := told()
		for _, c := range []struct {
			who  string
			of   *v1alpha1.NetworkConfig
			more []string
		}{{"rome", r, toRome}, {"oslo", o, toOslo}} {
			if d := cmp.Diff(append([]string{own}, c.more...), c.of.Spec.Pods); d != "" {
				t.Errorf("%s: to %s (-want +got):\n%s", reason, c.who, d)
			}
			if d := cmp.Diff(c.more, c.of.Spec.Transit); d != "" {
				t.Errorf("%s: to %s, in transit (-want +got):\n%s", reason, c.who, d)
			}
		}
	}
	holds("nothing is offloaded", nil, nil)
	w.offloads(oslo, "shop", "inn", v1alpha1.TenantNamespace(rome))
	holds("neither what is called so at rome is rome's at milan, nor where both speak", nil, nil)
	w.offloads(oslo, space)
	holds("rome's namespace may run at oslo", []string{view(oslo, own)}, []string{view(rome, own)})
	if view(oslo, own) == own || view(rome, own) == own {
		t.Fatalf("milan sees oslo as %s and rome as %s", view(oslo, own), view(rome, own))
	}

	// The status of rome's pod at oslo has an address at milan, and from there one at rome.
	far, _ := w.milan.network.View(oslo, addr("10.42.3.4"))
	home, ok := w.rome.network.View(w.rome.peer, far)
	if !ok || home.As4()[3] != 4 {
		t.Errorf("a pod at oslo, %v at milan, is %v at rome (%v)", far, home, ok)
	}
	before := w.writes
	w.milan.restart()
	w.settle()
	if w.writes != before {
		t.Errorf("a new process writes\n%s", w.since(before))
	}

	// Ranges that nobody else has are not shown as they are, until they are not seen so.
	c := &v1alpha1.NetworkConfig{ObjectMeta: at(v1alpha1.PeeringNamespace(oslo), v1alpha1.NetworkProvider)}
	w.change(c, `{"spec":{"pods":[%q]}}`, theirs)
	w.settle()
	if view(oslo, theirs) != theirs {
		t.Fatalf("milan sees oslo as %s", view(oslo, theirs))
	}
	holds("oslo is seen as it is", nil, []string{view(rome, own)})
	w.change(&v1alpha1.Peering{ObjectMeta: named(oslo)}, `{"spec":{"translate":true}}`)
	w.settle()
	if view(oslo, theirs) == theirs {
		t.Fatal("milan sees oslo as it is still")
	}
	if !w.milan.said(theirs + " of " + oslo + " was seen as " + theirs) {
		t.Error("nobody is told that the view has moved")
	}
	holds("oslo is translated", []string{view(oslo, theirs)}, []string{view(rome, own)})
	tenant := &v1alpha1.Tenant{}
	if err := w.raw.Get(ctx, client.ObjectKey{Name: rome}, tenant); err != nil {
		t.Fatal(err)
	}
	changed := tenant.DeepCopy()
	changed.Spec.Translate = true
	if !tenantChanged().Update(event.UpdateEvent{ObjectOld: tenant, ObjectNew: changed}) {
		t.Error("that a tenant is to be translated is not looked at")
	}
	w.rome.config.Network.Pods = []string{romes}
	w.settle()
	if view(rome, romes) != romes {
		t.Fatalf("milan sees rome as %s", view(rome, romes))
	}
	oslosView := view(oslo, theirs)
	if _, o := told(); len(o.Spec.Transit) > 0 {
		t.Errorf("rome is seen as it is, and oslo is told of %v", o.Spec.Transit)
	}
	w.change(&v1alpha1.Tenant{ObjectMeta: named(rome)}, `{"spec":{"translate":true}}`)
	w.settle()
	if view(rome, romes) == romes {
		t.Fatal("milan sees rome as it is still")
	}
	holds("rome is translated", []string{oslosView}, []string{view(rome, romes)})

	// Nothing that both are told names the other, or has an address of it.
	r, o := told()
	for _, c := range []struct {
		to   *v1alpha1.NetworkConfig
		name string
	}{{r, oslo}, {o, rome}} {
		text := strings.Join(slices.Concat(c.to.Spec.Pods, c.to.Spec.External, c.to.Spec.Endpoints, []string{c.to.Spec.APIServer}), " ")
		for _, cond := range c.to.Status.Conditions {
			text += " " + cond.Message
		}
		if strings.Contains(text, c.name) || strings.Contains(text, theirs) || strings.Contains(text, romes) {
			t.Errorf("%s says %s", c.to.Namespace, text)
		}
	}

	n := &corev1.Namespace{ObjectMeta: named(space)}
	if err := w.raw.Get(ctx, client.ObjectKeyFromObject(n), n); err != nil {
		t.Fatal(err)
	}
	if !ours().Create(event.CreateEvent{Object: n}) {
		t.Error("that a tenant's namespace is made is not looked at")
	}
	w.change(n, `{"metadata":{"labels":{%q:null}}}`, v1alpha1.LabelTenant)
	w.settle()
	holds("the namespace is not rome's any more", nil, nil)
}
