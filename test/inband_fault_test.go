package test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// readyFile is what makes a kept pod ready.
const readyFile = "/ready"

// Agents are deleted so often in turn, and home has to know soon each time how its pod is: a tunnel
// that goes over from one agent to another in a bad moment is a matter of chance.
const (
	agentRounds = 12
	agentLimit  = 20 * time.Second
)

// kept is a pod of rome's that runs at milan through all faults.
type kept struct {
	*crossing
	home, twin *corev1.Pod
	// after counts the pods that were made after a fault.
	after int
}

// faults holds that an offloaded pod lives through what may break while clusters are peered in
// band, that home knows soon afterwards how it is, and can make more. The credential of the shortest
// life is renewed meanwhile.
func (b *inBand) faults(t *testing.T) {
	b.note(t)
	b.shortLived(t, "milan")
	b.byLine(t)
	first := b.firstCredential(t, "rome", "milan")
	b.introduced(t)
	b.nodeReady(t, "rome", "milan")
	// What is left when these have ended is looked at.
	t.Run("Kept", func(t *testing.T) {
		x := &crossing{shop: b.offloaded(t, "rome", "--pod-offloading-strategy", "Remote")}
		busy := x.gatewayOf(t, "milan")
		x.vacate(t, "milan", busy) // it is stopped, and no pod of the test with it
		k := x.keep(t)
		t.Run("milan's agents deleted in turn", k.agentsInTurn)
		for _, f := range b.strikes(x, busy) {
			t.Run(f.name, func(t *testing.T) { k.struck(t, f) })
		}
		t.Run("credential renewed", func(t *testing.T) {
			b.gatewayOn(t, busy)
			eventually(t, healLimit, "milan is reached", func() error { return b.reached(true) })
			k.well(t, time.Now(), "the node came back") // by a connection through the gateway that is there now
			b.renewed(t, "rome", "milan", first)
			k.well(t, time.Now(), "a renewal")
		})
	})
	b.Pelago(t, "rome", "unpeer", "milan")
	b.withoutTunnels(t, 2*time.Minute) // the node that was stopped begins anew
}

// keep makes the pod that is to stay.
func (x *crossing) keep(t *testing.T) *kept {
	t.Helper()
	pod := x.script("kept", fmt.Sprintf("touch %s; trap 'exit 0' TERM; echo started; while true; do sleep 0.2; done", readyFile))
	pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 1, ProbeHandler: corev1.ProbeHandler{
		Exec: &corev1.ExecAction{Command: []string{"test", "-f", readyFile}}}}
	x.create(t, pod)
	k := &kept{crossing: x, home: x.running(t, pod.Name)}
	var err error
	if k.twin, err = x.twin("milan", k.home); err != nil {
		t.Fatal(err)
	}
	return k
}

// strikes are the faults. The last one stops the node of milan's gateway.
func (b *inBand) strikes(x *crossing, node string) []fault {
	return []fault{
		{name: "link cut", strike: func(t *testing.T) {
			t.Cleanup(func() { b.Run(t, "link", "heal", "rome", "milan") })
			b.Run(t, "link", "cut", "rome", "milan")
			eventually(t, unreachableLimit, "rome sees that milan is away", func() error { return b.reached(false) })
		}, heal: func(t *testing.T) {
			b.Run(t, "link", "heal", "rome", "milan")
			begin := time.Now()
			eventually(t, reachableLimit, "rome sees that milan is back", func() error { return b.reached(true) })
			t.Logf("%sreached again %s after the link was healed", measured, time.Since(begin).Round(100*time.Millisecond))
		}},
		{name: "milan's agent deleted", strike: func(t *testing.T) { x.deleteAgent(t, "milan", x.gatewayOf(t, "milan")) }},
		{name: "rome's agent deleted", strike: func(t *testing.T) {
			gateway, err := b.gateway("rome", v1alpha1.NetworkKey(v1alpha1.PeeringNamespace("milan")))
			if err != nil {
				t.Fatal(err)
			}
			x.deleteAgent(t, "rome", gateway)
		}},
		{name: "milan's managers deleted", strike: func(t *testing.T) { b.strike(t, "milan") }},
		{name: "rome's managers deleted", strike: func(t *testing.T) { b.strike(t, "rome") }},
		{name: "milan's gateway node stopped", strike: func(t *testing.T) {
			b.gatewayOn(t, node)
			x.stop(t, "milan", node)
		}},
	}
}

// gatewayOn waits until milan's gateway is on a node, which it leaves when that is in trouble.
func (b *inBand) gatewayOn(t *testing.T, node string) {
	t.Helper()
	eventually(t, 2*time.Minute, "milan's gateway is on "+node, func() error {
		now, err := b.gateway("milan", v1alpha1.NetworkKey(v1alpha1.TenantNamespace("rome")))
		if err == nil && now != node {
			err = fmt.Errorf("it is on %s", now)
		}
		return err
	})
}

// struck has a fault happen, and the pod change at milan while it lasts.
func (k *kept) struck(t *testing.T, f fault) {
	f.strike(t)
	k.turn(t, false)
	begin := time.Now()
	if f.heal != nil {
		f.heal(t)
	}
	k.shown(t, false)
	t.Logf("%s%s: home shows what changed meanwhile %s later", measured, f.name, time.Since(begin).Round(100*time.Millisecond))
	k.turn(t, true)
	k.well(t, begin, f.name)
}

// agentsInTurn deletes the agents of milan's nodes one after the other, many times.
func (k *kept) agentsInTurn(t *testing.T) {
	nodes, longest := k.nodes(t, "milan"), time.Duration(0)
	for i := range agentRounds {
		ready := i%2 == 1
		begin := time.Now()
		k.deleteAgent(t, "milan", nodes[i%len(nodes)])
		k.turn(t, ready)
		k.shownWithin(t, agentLimit, ready)
		longest = max(longest, time.Since(begin))
	}
	t.Logf("%sof %d agents of milan deleted in turn: home shows what changed at most %s after a deletion", measured, agentRounds, longest.Round(100*time.Millisecond))
	if longest > 2*agentLimit {
		t.Errorf("a deletion and what home showed of a change after it took %s, of which at most %s are the new agent's", longest, agentLimit)
	}
}

// turn makes the pod ready at milan, or not.
func (k *kept) turn(t *testing.T, ready bool) {
	t.Helper()
	command := "rm"
	if ready {
		command = "touch"
	}
	k.Kubectl(t, "milan", "exec", "-n", k.twin.Namespace, k.twin.Name, "--", command, readyFile)
}

// shown waits until home shows whether the pod's container is ready at milan. What home says of a pod whose
// provider is away leaves that as it was.
func (k *kept) shown(t *testing.T, ready bool) {
	t.Helper()
	k.shownWithin(t, healLimit, ready)
}

func (k *kept) shownWithin(t *testing.T, limit time.Duration, ready bool) {
	t.Helper()
	k.eventually(t, limit, fmt.Sprintf("home shows that it is ready: %t", ready), func() error {
		pod, err := get[corev1.Pod](k.continuum, "rome", k.name, k.home.Name)
		switch {
		case err != nil:
			return err
		case len(pod.Status.ContainerStatuses) != 1 || pod.Status.ContainerStatuses[0].Ready != ready:
			return fmt.Errorf("its containers are %+v", pod.Status.ContainerStatuses)
		case ready:
			return isReady(pod)
		}
		return nil
	})
}

// well holds that the pod is what it was and is shown as it is, and that another one can be made, and
// tells how long that took.
func (k *kept) well(t *testing.T, begin time.Time, what string) {
	t.Helper()
	k.shown(t, true)
	fresh := time.Since(begin)
	k.after++
	pod := k.sleeper(fmt.Sprintf("after-%d", k.after))
	k.create(t, pod)
	k.running(t, pod.Name)
	took := time.Since(begin)
	k.eventually(t, offloadLimit, "the log of the new pod is read", func() error {
		out, err := k.kubectl(t, "logs", pod.Name)
		if err == nil && !strings.Contains(out, "started") {
			err = fmt.Errorf("it is %q", out)
		}
		return err
	})
	t.Logf("%safter %s: the status is up to date after %s, and a new pod ready after %s", measured, what, fresh.Round(100*time.Millisecond), took.Round(100*time.Millisecond))
	home, err := get[corev1.Pod](k.continuum, "rome", k.name, k.home.Name)
	if err != nil {
		t.Fatal(err)
	}
	twin, err := k.crossing.twin("milan", k.home)
	if err != nil {
		t.Fatal(err)
	}
	for _, each := range []struct {
		where       string
		before, now *corev1.Pod
	}{{"home", k.home, home}, {"milan", k.twin, twin}} {
		before, now := each.before.Status.ContainerStatuses[0], each.now.Status.ContainerStatuses[0]
		if each.now.UID != each.before.UID || now.RestartCount != 0 || now.ContainerID != before.ContainerID {
			t.Errorf("at %s it is %s with the container %s and %d restarts, and was %s with %s", each.where,
				each.now.UID, now.ContainerID, now.RestartCount, each.before.UID, before.ContainerID)
		}
	}
}
