package network

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// viewOf is by which prefix milan sees a range of rome's.
func (w *world) viewOf(real string) string {
	w.t.Helper()
	for _, v := range w.milan.pair(v1alpha1.NetworkConsumer).Status.Views {
		if v.Real == real {
			return v.View
		}
	}
	return ""
}

// TestConnected holds that a peer's range never covers what a node here is connected to, by what
// agents say of that: while they are away too, after a restart, and whatever else is there.
func TestConnected(t *testing.T) {
	const lan, free = "172.20.0.0/16", "172.21.0.0/16"
	w := newWorld(t)
	w.rome.config.Network.Pods = []string{lan}
	s := w.milan
	say := func(node, text string) {
		s.renew(node, map[string]string{v1alpha1.AnnotationNetworks: text})
		w.settle()
	}
	w.settle()
	if got := w.viewOf(lan); got != lan {
		t.Fatalf("what nobody is connected to is seen as %q, not as itself", got)
	}
	// What is broken, and what is told of things that are no nodes, says nothing.
	for _, text := range []string{"", "x", "0.0.0.0/0 128.0.0.0/1", "172.20.0.1/16", strings.Repeat("[", 100_000), strings.Repeat("\n", 5000) + lan} {
		if say(s.nodes[0], text); w.viewOf(lan) != lan || s.said(v1alpha1.ReasonViewMoved) {
			t.Errorf("%.40q moves the view to %q", text, w.viewOf(lan))
		}
	}
	say("nobody", lan)
	if got := w.viewOf(lan); got != lan {
		t.Errorf("a Lease of no node moves the view to %q", got)
	}
	say(s.nodes[1], "x 192.168.77.0/24 172.20.3.0/24")
	moved := w.viewOf(lan)
	if moved == lan || moved == "" || !s.said("it overlaps the nodes here (172.20.3.0/24)") {
		t.Errorf("a view over a network of a node is %q now", moved)
	}
	if d := cmp.Diff([]string{"10.42.0.0/16"}, w.milan.pair(v1alpha1.NetworkProvider).Spec.Pods); d != "" {
		t.Errorf("milan's own ranges (-want +got):\n%s", d)
	}
	for _, c := range []*v1alpha1.NetworkConfig{w.milan.pair(v1alpha1.NetworkConsumer), w.milan.pair(v1alpha1.NetworkProvider)} {
		if text := fmt.Sprint(c.Spec, c.Status); strings.Contains(text, "172.20.3") || strings.Contains(text, "192.168.77") {
			t.Errorf("the peer is told %s", text)
		}
	}
	// A new choice of the peer's, while no agent lives and the manager begins anew.
	w.clock.Step(time.Hour)
	s.restart()
	w.rome.config.Network.Pods = []string{free}
	w.settle()
	w.rome.config.Network.Pods = []string{lan}
	w.settle()
	if got := w.viewOf(lan); got == lan || got == "" {
		t.Errorf("while the agent is away the view is %q", got)
	}
	// The Lease ends with its node, and all that was known of it.
	l := &coordinationv1.Lease{}
	l.Namespace, l.Name = s.namespace, s.nodes[1]
	if err := w.raw.Delete(ctx, l, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	s.decider.agents.gone(s.nodes[1])
	w.rome.config.Network.Pods = []string{free}
	w.settle()
	w.rome.config.Network.Pods = []string{lan}
	w.settle()
	if got := w.viewOf(lan); got != lan {
		t.Errorf("without the node the view is %q", got)
	}
}

// TestMappedStays holds that a peer takes nothing from a mapping by the ranges that it publishes, and a
// mapping nothing from a peer that is seen by its address already.
func TestMappedStays(t *testing.T) {
	const lan, other = "172.20.0.0/16", "172.21.0.0/16"
	w := newWorld(t)
	s := w.milan
	s.config.Network.Mappable = []string{"172.20.7.0/24", "172.21.7.0/24"}
	w.rome.config.Network.Pods = []string{other}
	w.settle()
	if got := w.viewOf(other); got == other || got == "" {
		t.Fatalf("a range over what may be mapped is seen as %q", got)
	}
	s.config.Network.Mappable = s.config.Network.Mappable[:1]
	w.rome.config.Network.Pods = []string{"172.24.0.0/16"}
	w.settle()
	w.rome.config.Network.Pods = []string{other}
	w.settle()
	if got := w.viewOf(other); got != other {
		t.Fatalf("what may not be mapped is seen as %q, not as itself", got)
	}
	m := newMapper(s.decider.network, w.raw, w.raw)
	space := s.namespace
	mapping := func(name, address string) *metav1.Condition {
		t.Helper()
		o := &v1alpha1.IPMapping{ObjectMeta: at(space, name), Spec: v1alpha1.IPMappingSpec{Address: address, Ports: []v1alpha1.IPMappingPort{{Name: "sql", Port: 5432}}}}
		if err := w.raw.Create(ctx, o); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
		if _, err := m.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o)}); err != nil {
			t.Fatal(err)
		}
		if err := w.raw.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			t.Fatal(err)
		}
		return meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionReady)
	}
	if c := mapping("db", "172.20.7.5"); c.Status != metav1.ConditionTrue {
		t.Fatalf("it is not mapped: %s", c.Message)
	}
	// As the owner would have it if he lets less be mapped, and before anybody has looked.
	for _, mappable := range [][]string{{"172.20.7.0/24"}, {}} {
		s.config.Network.Mappable = mappable
		w.rome.config.Network.Pods = []string{lan}
		w.settle()
		if got := w.viewOf(lan); got == lan || got == "" {
			t.Errorf("with %q mappable a range over a mapping is seen as %q", mappable, got)
		}
		s.restart()
		m.network = s.decider.network
		w.rome.config.Network.Pods = []string{other}
		w.settle()
	}
	s.config.Network.Mappable = []string{"172.20.7.0/24", "172.21.7.0/24"}
	w.settle()
	if c := mapping("db", "172.20.7.5"); c.Status != metav1.ConditionTrue {
		t.Errorf("it is not mapped any more: %s", c.Message)
	}
	if c := mapping("late", "172.21.7.5"); c.Reason != v1alpha1.ReasonNotMappable || !strings.Contains(c.Message, "as 172.21.0.0/16") || !strings.Contains(c.Message, "network.reserved") {
		t.Errorf("what a view covers is %+v", c)
	}
	if got := w.viewOf(other); got != other || s.said(v1alpha1.ReasonViewMoved) {
		t.Errorf("a view that was there is %q", got)
	}
}
