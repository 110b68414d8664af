package test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// reachLimit is how soon a change of reachability has to hold: it is seconds.
const reachLimit = 15 * time.Second

// reachability changes what both sides of a running peering let be reached, and looks who is.
func reachability(t *testing.T, c *continuum) {
	x := newCrossing(t, c)
	data := x.data[0]
	front, neighbour := seen(t, x.rome, x.front.Status.PodIP), seen(t, x.rome, x.neighbour.Status.PodIP)
	stranger := seen(t, x.milan, x.stranger.Status.PodIP)
	t.Cleanup(func() { x.say(t, "", "", "") })
	for _, s := range []struct {
		home, provider, space v1alpha1.Reachability
		usual, all            bool // whether pods of the offloaded namespace are reached, and those of neither
	}{
		{"", "", "", true, false},
		{v1alpha1.ReachFull, v1alpha1.ReachFull, "", true, true},
		{v1alpha1.ReachFull, v1alpha1.ReachOffloadedOnly, "", true, false},
		{v1alpha1.ReachNone, v1alpha1.ReachFull, "", false, false},
		{v1alpha1.ReachFull, v1alpha1.ReachNone, "", false, false},
		{v1alpha1.ReachFull, v1alpha1.ReachFull, v1alpha1.ReachNone, false, true},
		{v1alpha1.ReachOffloadedOnly, "", v1alpha1.ReachFull, true, false},
	} {
		x.say(t, s.home, s.provider, s.space)
		t.Run(fmt.Sprintf("home %q provider %q namespace %q", s.home, s.provider, s.space), func(t *testing.T) {
			for _, w := range []struct {
				cluster string
				from    *corev1.Pod
				to      string
				want    bool
			}{
				{"rome", x.front, data.Status.PodIP, s.usual},
				{"rome", data, front, s.usual},
				{"rome", x.neighbour, stranger, s.all},
				{"milan", x.stranger, neighbour, s.all},
			} {
				x.eventually(t, reachLimit, fmt.Sprintf("whether %s reaches %s is %t", w.from.Name, w.to, w.want), func() error {
					_, server, err := x.ask(w.cluster, w.from, w.to, webPort)
					if (err == nil) != w.want {
						return fmt.Errorf("%q answers: %w", server, err)
					}
					return nil
				})
			}
			x.eventually(t, networkLimit, "the tunnel stays alive", func() error {
				p, err := get[v1alpha1.Peering](c, "rome", "", "milan")
				if err != nil {
					return err
				}
				if got, want := condition(p.Status.Conditions, v1alpha1.ConditionNetworkReady), v1alpha1.ConditionNetworkReady+"=True(Ready)"; got != want {
					err = fmt.Errorf("it is %s, want %s", got, want)
				}
				return err
			})
		})
	}
}

// say has home, the provider and the namespace at home say what of their pods may be reached.
func (x *crossing) say(t *testing.T, home, provider, space v1alpha1.Reachability) {
	t.Helper()
	peering, err := get[v1alpha1.Peering](x.continuum, "rome", "", "milan")
	if err != nil {
		t.Fatal(err)
	}
	tenant, err := get[v1alpha1.Tenant](x.continuum, "milan", "", "rome")
	if err != nil {
		t.Fatal(err)
	}
	o, err := x.offloading()
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range []struct {
		cluster string
		object  client.Object
		set     func()
	}{
		{"rome", peering, func() { peering.Spec.Reachability = home }},
		{"milan", tenant, func() { tenant.Spec.Reachability = provider }},
		{"rome", o, func() { o.Spec.Reachability = space }},
	} {
		before := change.object.DeepCopyObject().(client.Object)
		change.set()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // also when the test is over
		defer cancel()
		if err := x.Clients[change.cluster].Patch(ctx, change.object, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
}
