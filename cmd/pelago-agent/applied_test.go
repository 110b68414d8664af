package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/netns"
	"github.com/pelago-dev/pelago/network/netnstest"
)

// applied is what the Lease of a node says of the pods that gateways know.
func (s *side) applied(i int) map[string]v1alpha1.AppliedPods {
	s.t.Helper()
	l, _ := s.lease(i)
	var all map[string]v1alpha1.AppliedPods
	if text := l.Annotations[v1alpha1.AnnotationAppliedPods]; text != "" {
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			s.t.Errorf("%s: %v", s.Nodes[i].Name, err)
		}
	}
	return all
}

// knows waits until rome's gateway says that those of both sides know a pod, by its versions at home
// and at milan.
func (w *world) knows(t *testing.T, here, there int64) {
	t.Helper()
	g := w.rome.gateway(t)
	deadline := time.Now().Add(netnstest.Patience)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		known := w.rome.applied(g)["peering-milan"]
		if known.Peer != nil && *known.Peer >= there && known.Away["milan"] >= here {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("of a pod of %d here and %d there is known %+v", here, there, known)
		}
		<-tick.C
	}
}

func versionOf(t *testing.T, o client.Object) int64 {
	t.Helper()
	n, err := strconv.ParseInt(o.GetResourceVersion(), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// unapplied holds that a gateway does not say that it knows a pod as long as its node cannot be made
// what that needs, and says so when it can.
func (w *world) unapplied(t *testing.T, g int) {
	t.Helper()
	n := w.rome.Nodes[g]
	nft := exec.Command("nft", "-i")
	in, err := nft.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	n.Must(netns.In(n.File, nft.Start))
	let := sync.OnceFunc(func() { _ = in.Close(); _ = nft.Wait() })
	t.Cleanup(let)
	// The table is somebody else's now, as long as that lives.
	if _, err := io.WriteString(in, "delete table inet pelago; add table inet pelago { flags owner; }\n"); err != nil {
		t.Fatal(err)
	}
	until(t, "the agent cannot make what is wanted", netnstest.Patience, func() bool {
		status, _ := get(t, n, "/readyz", "")
		return status != http.StatusOK
	})
	here := pod("shop", "api", "milan", w.rome.view(0, 5, true), w.rome.view(0, 5, false))
	w.rome.create(here)
	rome := w.rome.api.Client(t)
	if err := rome.Get(t.Context(), client.ObjectKeyFromObject(here), here); err != nil {
		t.Fatal(err)
	}
	version := versionOf(t, here)
	for range 2 {
		before, _ := w.rome.lease(g)
		until(t, "the Lease is renewed", netnstest.Patience, func() bool {
			l, _ := w.rome.lease(g)
			return l.Spec.RenewTime.After(before.Spec.RenewTime.Time)
		})
	}
	if known := w.rome.applied(g)["peering-milan"]; known.Away["milan"] >= version {
		t.Errorf("a pod of %d is said to be known, and is not: %+v", version, known)
	}
	let()
	w.knows(t, version, 0)
	if err := rome.Delete(t.Context(), here, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
}

// testApplied holds that pods are reached as soon as the Lease says that both gateways know them, and
// that a provider's Lease says nothing of it, nor that of a node that is no gateway.
func testApplied(t *testing.T, w *world) {
	rome, milan := w.rome.api.Client(t), w.milan.api.Client(t)
	to := netip.MustParseAddr(w.rome.view(0, 5, true))
	var took []time.Duration
	for round := range 4 {
		there := pod("shop-rome", "api", w.milan.Nodes[0].Name, "10.42.1.5", "fd42:0:0:1::5", v1alpha1.LabelTenant, "rome", v1alpha1.LabelHomeUID, "other")
		here := pod("shop", "api", "milan", w.rome.view(0, 5, true), w.rome.view(0, 5, false))
		begin := time.Now()
		if round%2 == 0 { // whichever side is first
			w.milan.create(there)
			w.rome.create(here)
		} else {
			w.rome.create(here)
			w.milan.create(there)
		}
		// Something else of it changes, which is known without a plan.
		said := &corev1.Pod{}
		for _, o := range []struct {
			c   client.Client
			pod *corev1.Pod
		}{{milan, there}, {rome, here}} {
			if err := o.c.Get(t.Context(), client.ObjectKeyFromObject(o.pod), said); err != nil {
				t.Fatal(err)
			}
			said.Status.Message = "said"
			if err := o.c.Status().Update(t.Context(), said); err != nil {
				t.Fatal(err)
			}
			o.pod.ResourceVersion = said.ResourceVersion
		}
		w.knows(t, versionOf(t, here), versionOf(t, there))
		took = append(took, time.Since(begin).Round(time.Millisecond))
		from := w.rome.Nodes[round%2].Pod
		c, _, err := from.Dial(to, netnstest.Silence)
		if err != nil {
			t.Errorf("round %d: %s does not reach a pod that both gateways are said to know: %v", round, from.Name, err)
		} else {
			_ = c.Close()
		}
		for _, o := range []struct {
			c   client.Client
			pod *corev1.Pod
		}{{milan, there}, {rome, here}} {
			if err := o.c.Delete(t.Context(), o.pod, client.GracePeriodSeconds(0)); err != nil {
				t.Fatal(err)
			}
		}
		until(t, "what is gone is not reached", netnstest.Patience, func() bool {
			c, _, err := w.rome.Nodes[0].Pod.Dial(to, netnstest.Silence)
			if err == nil {
				_ = c.Close()
			}
			return err != nil
		})
	}
	slices.Sort(took)
	t.Logf("both gateways were said to know a pod after %v", took)
	g := w.rome.gateway(t)
	w.unapplied(t, g)
	if text := w.rome.applied(1 - g); text != nil {
		t.Errorf("a node that is no gateway says %v", text)
	}
	for i := range w.milan.Nodes {
		if text := w.milan.applied(i); text != nil {
			t.Errorf("the provider says %v", text)
		}
	}
}
