package test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// heralds holds that home's gateway knows pods from the provider's before they have addresses at home, so that
// their address and Ready are one write: of some pods at least, as a machine may be too busy for that to be in time.
func heralds(t *testing.T, c *continuum) {
	s := c.offloaded(t, "rome", "--pod-offloading-strategy", "Remote")
	s.phase(t, v1alpha1.OffloadingPhaseReady)
	w, err := c.Clients["rome"].Watch(t.Context(), &corev1.PodList{}, client.InNamespace(s.name))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	const many = 4
	tries, late := 0, many
	for ; tries < 6 && late == many; tries++ { // who is late for one of them is for all that come with it
		name := fmt.Sprintf("web%d", tries)
		s.create(t, s.deployment(name, many))
		s.runningAll(t, name, many)
		late = addressedFirst(t, w, name, many)
		t.Logf("%d of %d pods had an address before they were ready", late, many)
	}
	if late == many {
		t.Errorf("no pod of %d times %d is told of before it has an address here", tries, many)
	}
	s.eventually(t, patience, "home's gateway says what it was told", func() error {
		var leases coordinationv1.LeaseList
		if err := c.Clients["rome"].List(t.Context(), &leases, client.InNamespace(v1alpha1.NetworkNamespace)); err != nil {
			return err
		}
		for i := range leases.Items {
			var said map[string]v1alpha1.AppliedPods
			text := leases.Items[i].Annotations[v1alpha1.AnnotationAppliedPods]
			if json.Unmarshal([]byte(text), &said) == nil && said["peering-milan"].Heralded != nil && said["peering-milan"].Heralded.UpTo > 0 {
				return nil
			}
		}
		return fmt.Errorf("none of %d Leases does", len(leases.Items))
	})
}

// addressedFirst waits until as many pods of a Deployment are ready, and counts those whose address home wrote before
// that, as its gateway did not know them yet.
func addressedFirst(t *testing.T, w watch.Interface, of string, many int) (n int) {
	t.Helper()
	waited, ready := map[string]bool{}, map[string]bool{}
	for len(ready) < many {
		e, open := <-w.ResultChan()
		pod, is := e.Object.(*corev1.Pod)
		if !open || !is {
			t.Fatalf("the watch of pods ended: %+v", e)
		}
		for _, cond := range pod.Status.Conditions {
			if cond.Type == corev1.PodReady && strings.HasPrefix(pod.Name, of+"-") {
				waited[pod.Name] = waited[pod.Name] || cond.Reason == v1alpha1.ReasonGatewaysBehind
				if cond.Status == corev1.ConditionTrue {
					ready[pod.Name] = true
				}
			}
		}
	}
	for name := range ready {
		if waited[name] {
			n++
		}
	}
	return n
}
