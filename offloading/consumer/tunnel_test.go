package consumer

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// fakeTunnels are as the test says; its zero value knows nothing.
type fakeTunnels struct {
	peering string
	mu      sync.Mutex
	state   tunnel
	tell    func()
	// here and there are up to which versions gateways know pods, if they say so.
	says     bool
	here     int64
	there    int64
	gateways func()
	asked    int
	// after and upTo are of which versions they know pods before these have addresses here, if any.
	heralds     bool
	after, upTo int64
}

// become says how the tunnels are, and tells who listens.
func (f *fakeTunnels) become(state tunnel) {
	f.mu.Lock()
	f.state = state
	tell := f.tell
	f.mu.Unlock()
	if tell != nil {
		tell()
	}
}

// Alive implements Tunnels.
func (f *fakeTunnels) Alive(string) (alive, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state == tunnelAlive, f.state == tunnelAlive || f.state == tunnelDead
}

// TunnelSource implements Tunnels.
func (f *fakeTunnels) TunnelSource(mapper func(string) []reconcile.Request) source.Source {
	return f.source(&f.tell, mapper)
}

// source has tell called to wake the pods of the peering.
func (f *fakeTunnels) source(tell *func(), mapper func(string) []reconcile.Request) source.Source {
	return source.Func(func(_ context.Context, q queue) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		*tell = func() {
			for _, r := range mapper(f.peering) {
				q.Add(r)
			}
		}
		return nil
	})
}

// readyOf is the condition Ready of a pod, as "True" or "False/Reason".
func readyOf(s corev1.PodStatus) string {
	for _, c := range s.Conditions {
		if c.Type == corev1.PodReady && c.Reason != "" {
			return string(c.Status) + "/" + c.Reason
		} else if c.Type == corev1.PodReady {
			return string(c.Status)
		}
	}
	return ""
}

// TestCut is when a pod is not ready because of its tunnel.
func TestCut(t *testing.T) {
	was := func(f *facts) { // by this or an earlier process
		f.tunnel = tunnelDead
		cut(*f, &f.pod.Status)
		f.tunnel = tunnelUnknown
	}
	tunnelled := func(s tunnel) func(*facts) { return func(f *facts) { f.tunnel = s } }
	started := func(ago time.Duration) func(*facts) { return func(f *facts) { f.began = noon.Add(-ago) } }
	unready := func(f *facts) {
		s := running()
		s.Conditions[1].Status, s.Conditions[2].Status = corev1.ConditionFalse, corev1.ConditionFalse
		said(s)(f)
	}
	condition := func(c corev1.PodCondition) func(*facts) {
		return func(f *facts) {
			for i := range f.pod.Status.Conditions {
				if f.pod.Status.Conditions[i].Type == c.Type {
					f.pod.Status.Conditions[i] = c
					return
				}
			}
			f.pod.Status.Conditions = append(f.pod.Status.Conditions, c)
		}
	}
	ready := condition(corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionTrue})
	unreadied := condition(corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionFalse, Reason: "ContainersNotReady"})
	notReady := condition(corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "Other"})
	gated := func(f *facts) { f.pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "shut"}} }
	runs, cut := []func(*facts){alive, carried, said(running())}, "False/"+v1alpha1.ReasonTunnelDown
	for _, c := range []struct {
		reason string
		edit   []func(*facts)
		want   string // "" is no such condition
		again  time.Duration
	}{
		{"it is dead", append(runs, tunnelled(tunnelDead)), cut, 0},
		{"it is alive", append(runs, tunnelled(tunnelAlive)), "True", 0},
		{"the network is off", append(runs, tunnelled(tunnelNone)), "True", 0},
		{"it is not known", append(runs, tunnelled(tunnelUnknown), started(0)), "True", 0},
		{"it was dead, and is not known", append(runs, was, started(10*time.Second)), cut, 50 * time.Second},
		{"it was dead, and was not known for long", append(runs, was, started(settling)), "True", 0},
		{"it was dead, and the clock went back", append(runs, was, started(-time.Hour)), "True", 0},
		{"it was dead, and the network is off", append(runs, was, tunnelled(tunnelNone)), "True", 0},
		{"it was dead, and is alive", append(runs, was, tunnelled(tunnelAlive)), "True", 0},
		{"it was dead, and is", append(runs, was, tunnelled(tunnelDead)), cut, 0},
		{"it is dead, and so are the containers", append(runs, tunnelled(tunnelDead), unready), cut, 0},
		{"it was dead, and the containers are", append(runs, was, tunnelled(tunnelAlive), unready), "False", 0},
		{"it is dead, and the provider refuses this cluster", append(runs, tunnelled(tunnelDead), linked(refusing)), cut, 0},
		{"it is dead, and there is no connection yet", append(runs, tunnelled(tunnelDead), linked(unknown)), cut, 0},
		{"it is dead, and the provider has not been read", append(runs, tunnelled(tunnelDead), linked(blind)), cut, 0},
		{"it is alive, and there is no connection yet", append(runs, was, ready, tunnelled(tunnelAlive), linked(unknown)), "True", 0},
		{"it is alive, and the provider has not been read", append(runs, was, ready, tunnelled(tunnelAlive), linked(blind)), "True", 0},
		{"it is alive, and the containers were not ready when last seen", append(runs, was, unreadied, tunnelled(tunnelAlive), linked(blind)), "False/ContainersNotReady", 0},
		{"it is alive, and a gate has shut", append(runs, was, ready, gated, tunnelled(tunnelAlive), linked(blind)), "False/ReadinessGatesNotReady", 0},
		{"it is alive, and the pod was not ready for another reason", append(runs, notReady, tunnelled(tunnelAlive), linked(blind)), "False/Other", 0},
		{"it was dead, is not known, and there is no connection yet", append(runs, was, ready, tunnelled(tunnelUnknown), linked(unknown), started(10*time.Second)), cut, 50 * time.Second},
		{"it was dead, was not known for long, and there is no connection yet", append(runs, was, ready, tunnelled(tunnelUnknown), linked(unknown), started(settling)), "True", 0},
		{"it was dead, the network is off, and there is no connection yet", append(runs, was, ready, tunnelled(tunnelNone), linked(unknown)), "True", 0},
		{"it was dead, is alive, and the provider does not answer", append(runs, was, ready, tunnelled(tunnelAlive), linked(away)), "False/" + v1alpha1.ReasonPeerUnreachable, 0},
		{"it is dead, and the provider does not answer", append(runs, tunnelled(tunnelDead), linked(away)), "False/" + v1alpha1.ReasonPeerUnreachable, 0},
		{"it is dead, and the pod waits", []func(*facts){carried, tunnelled(tunnelDead)}, "", 0},
		{"it is dead, and the pod has ended", append(runs, said(ended(corev1.PodSucceeded, 0)), tunnelled(tunnelDead)), "False", 0},
		{"it is dead, and the pod had ended", append(runs, finished(corev1.PodSucceeded), tunnelled(tunnelDead)), "False", 0},
	} {
		f := given(c.edit...)
		p := decide(f)
		got := f.pod.Status
		if p.status != nil {
			got = *p.status
		}
		if readyOf(got) != c.want || p.again != c.again {
			t.Errorf("%s: %q, again after %s, want %q after %s", c.reason, readyOf(got), p.again, c.want, c.again)
		}
		if p.warnings != nil {
			t.Errorf("%s: the provider is asked what is wrong there", c.reason)
		}
	}
}

// TestTunnelDown holds that a dead tunnel shows in Ready alone, that it is written once, and that
// all is as before when it is over; of a process that does not know yet, too.
func TestTunnelDown(t *testing.T) {
	w := newWorld(t)
	p := w.runs("web")
	before := w.now(p).Status
	w.clock.Step(time.Minute)
	w.tunnels.become(tunnelDead)
	w.reconcile(p)
	got := w.now(p)
	c := condition(got, corev1.PodReady)
	if c.Status != corev1.ConditionFalse || c.Reason != v1alpha1.ReasonTunnelDown || !c.LastTransitionTime.Time.Equal(w.clock.Now()) {
		t.Errorf("dead: %+v", c)
	}
	without := func(s corev1.PodStatus) corev1.PodStatus {
		s = *s.DeepCopy()
		for i := range s.Conditions {
			if s.Conditions[i].Type == corev1.PodReady {
				s.Conditions[i] = corev1.PodCondition{Type: corev1.PodReady, ObservedGeneration: s.Conditions[i].ObservedGeneration}
			}
		}
		return s
	}
	if diff := cmp.Diff(without(before), without(got.Status)); diff != "" {
		t.Errorf("dead, beside Ready (-before +after)\n%s", diff)
	}
	quiet := func(when string) {
		t.Helper()
		writes := w.total
		if w.reconcile(p); w.total != writes || readyOf(w.now(p).Status) != "False/"+v1alpha1.ReasonTunnelDown {
			t.Errorf("%s: %d writes, %s", when, w.total-writes, readyOf(w.now(p).Status))
		}
	}
	quiet("dead still")
	w.tunnels.become(tunnelUnknown)
	w.restart()
	quiet("a new process does not know yet")
	w.peer.state = starting
	quiet("nor is it connected")
	w.tunnels.become(tunnelAlive)
	for _, state := range []fleet.State{starting, answering} {
		w.peer.state = state
		w.reconcile(p)
		after := w.now(p).Status
		for i := range after.Conditions {
			after.Conditions[i].LastTransitionTime, before.Conditions[i].LastTransitionTime = metav1.Time{}, metav1.Time{}
		}
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("alive, connected %t (-before +after)\n%s", state == answering, diff)
		}
	}
}

// tunnelDies holds, with everything running, that pods follow their tunnel without being asked.
func (w *world) tunnelDies() {
	w.t.Helper()
	many := 20
	if kubetest.All() {
		many = 100
	}
	var all []*corev1.Pod
	for i := range many {
		all = append(all, w.pod(fmt.Sprint("behind-", i)))
	}
	for _, p := range all {
		w.await("the pod is carried", func() bool { return w.shadow(p) != nil })
		w.tell(p, running(), accepted(metav1.ConditionTrue, v1alpha1.ReasonRunning, ""))
	}
	for _, c := range []struct {
		state tunnel
		want  string
	}{{tunnelAlive, "True"}, {tunnelDead, "False/" + v1alpha1.ReasonTunnelDown}, {tunnelAlive, "True"}} {
		began := time.Now()
		w.tunnels.become(c.state)
		w.await("all pods are "+c.want, func() bool {
			list := &corev1.PodList{}
			if err := w.admin.List(ctx, list, client.InNamespace(w.home)); err != nil {
				w.t.Fatal(err)
			}
			for i := range list.Items {
				if p := &list.Items[i]; strings.HasPrefix(p.Name, "behind-") && readyOf(p.Status) != c.want {
					return false
				}
			}
			return true
		})
		w.t.Logf("%d pods are %s after %s", many, c.want, time.Since(began))
	}
	for _, p := range all {
		w.drop(p)
		w.await("the end is asked for", func() bool { s := w.shadow(p); return s == nil || s.DeletionTimestamp != nil })
		w.release(string(p.UID))
	}
}
