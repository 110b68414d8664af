package test

import (
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

const transitFile = `clusters:
- name: rome
  nodes: 2
  addons: [coredns]
- name: milan
  nodes: 1
  addons: [coredns]
- name: oslo
  nodes: 1
  addons: [coredns]
`

// TestTransit has pods of one namespace of rome's, at two providers with the same addresses, reach
// each other through rome.
func TestTransit(t *testing.T) { inBoth(t, transitFile, transitHolds) }

func transitHolds(t *testing.T, file string) {
	s := kubetest.Sandbox(t, kubetest.Options{Name: "transit", File: sandboxFile(t, file), Pelago: true})
	c := newContinuum(t, s, "rome", "milan", "oslo")
	box(t, s, "rome", "milan", "oslo")
	for _, provider := range []string{"milan", "oslo"} {
		c.peer(t, "rome", provider)
		c.nodeReady(t, "rome", provider)
	}
	t.Run("TestNetwork", func(t *testing.T) {
		if r := c.TryPelago(t, "rome", "test", "network", "--settle", "90s"); r.Code != 0 {
			t.Errorf("not all ways are good: exit %d\n%s%s", r.Code, r.Out, r.Errs)
		}
	})
	t.Run("Pods", func(t *testing.T) { transit(t, c) })
}

// transit has a pod at milan call one at oslo, by name and address, and nobody else of milan's.
func transit(t *testing.T, c *continuum) {
	x := &crossing{shop: c.offloaded(t, "rome")}
	for _, name := range []string{"caller", "data"} {
		x.create(t, whoService(name, name, nil))
	}
	x.create(t, whoPod("", "caller", "milan"))
	x.create(t, whoPod("", "data", "oslo"))
	there := c.shop(t, "milan")
	there.create(t, whoPod("", "stranger", "milan-1"))
	x.running(t, "caller")
	x.running(t, "data")
	x.stranger = there.running(t, "stranger")
	var caller, data *corev1.Pod
	views := map[string][]v1alpha1.NetworkView{} // by which addresses providers see what rome publishes
	x.eventually(t, 2*networkLimit, "both pods have addresses, and each provider sees the other one's pods", func() (err error) {
		for name, pod := range map[string]**corev1.Pod{"caller": &caller, "data": &data} {
			if *pod, err = get[corev1.Pod](c, "rome", x.name, name); err != nil {
				return err
			}
			if (*pod).Status.PodIP == "" {
				return fmt.Errorf("%s has no address", name)
			}
		}
		for provider, of := range map[string]*corev1.Pod{"milan": data, "oslo": caller} {
			n, err := get[v1alpha1.NetworkConfig](c, "rome", v1alpha1.PeeringNamespace(provider), v1alpha1.NetworkConsumer)
			if err != nil {
				return err
			}
			views[provider] = n.Status.Views
			if !covers(n.Status.Views, of.Status.PodIP) {
				return fmt.Errorf("%s has no view of %s, it has %v of %v", provider, of.Status.PodIP, n.Status.Views, n.Spec.Pods)
			}
		}
		return nil
	})
	as := seen(t, views["oslo"], caller.Status.PodIP)
	for _, host := range []string{"data", "data." + x.name + ".svc.cluster.local"} {
		x.eventually(t, 3*networkLimit, "caller reaches data by "+host, func() error { // an address that is new is noticed within a minute
			_, _, err := x.ask("rome", caller, host, 80)
			return err
		})
		x.reaches(t, caller, host, 80, as, "data")
	}
	address := seen(t, views["milan"], data.Status.PodIP)
	x.reaches(t, caller, address, webPort, as, "data")
	x.misses(t, "milan", x.stranger, address)
	x.reaches(t, data, "caller", 80, seen(t, views["milan"], data.Status.PodIP), "caller")
}

// covers says whether an address is in a range that has a view.
func covers(views []v1alpha1.NetworkView, address string) bool {
	a, err := netip.ParseAddr(address)
	if err != nil {
		return false
	}
	_, ok := v1alpha1.ViewOf(views, a)
	return ok
}
