package provider

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// fakeHomes says where one tenant's API server is, or that it is coming.
type fakeHomes struct {
	tenant string
	mu     sync.Mutex
	at     string // "" is nowhere
	coming bool
	tell   func()
}

// HomeAPI implements Homes.
func (h *fakeHomes) HomeAPI(tenant string) (netip.AddrPort, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if tenant != h.tenant || h.at == "" {
		return netip.AddrPort{}, tenant == h.tenant && h.coming
	}
	return netip.MustParseAddrPort(h.at), false
}

// TenantViewSource implements Homes.
func (h *fakeHomes) TenantViewSource(mapper func(string) []reconcile.Request) source.Source {
	return source.Func(func(_ context.Context, q queue) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.tell = func() {
			for _, r := range mapper(h.tenant) {
				q.Add(r)
			}
		}
		return nil
	})
}

// become says where it is, and tells who listens.
func (h *fakeHomes) become(at string, coming bool) {
	h.mu.Lock()
	h.at, h.coming = at, coming
	tell := h.tell
	h.mu.Unlock()
	if tell != nil {
		tell()
	}
}

// Pods with tokens of home are made to call home's API server once it can be reached, those
// without are not; those that run stay as they are, and follow their ShadowPods as ever.
func TestHomeAPI(t *testing.T) {
	b := newBench(t)
	api := func(at string) Homes { return &fakeHomes{tenant: b.tenant, at: at} }
	calls := func(pod *corev1.Pod) string {
		var text string
		for _, e := range pod.Spec.Containers[0].Env {
			text += e.Name + "=" + e.Value + " "
		}
		for _, a := range pod.Spec.HostAliases {
			text += a.IP
		}
		return text
	}
	const there = "KUBERNETES_SERVICE_HOST=kubernetes.default.svc KUBERNETES_SERVICE_PORT=443 KUBERNETES_SERVICE_PORT_HTTPS=443 10.81.255.2"
	// anew loses the pod, so that it is made again.
	anew := func(reason string, at Homes, want string) {
		t.Helper()
		b.homes = at
		b.must(b.c.Delete(t.Context(), b.pod(), client.GracePeriodSeconds(0)))
		b.settle()
		b.clock.SetTime(b.clock.Now().Add(time.Hour)) // the more often, the longer it waits
		b.settle()
		b.want(reason, calls(b.pod()), want)
	}
	b.shadowPod(corev1.RestartPolicyAlways)
	b.settle()
	b.want("without a network", calls(b.pod()), "")
	anew("without tokens", api("10.81.255.2:443"), "")

	s := b.get(b.uid)
	s.Annotations = map[string]string{v1alpha1.AnnotationTokens: "true"}
	b.must(b.c.Update(t.Context(), s))
	b.settle()
	b.want("one that runs", calls(b.pod()), "")
	anew("a home that cannot be reached", api(""), "")
	anew("a home that can", api("10.81.255.2:443"), there)

	before := b.pod()
	b.homes = api("10.82.255.2:443")
	s = b.get(b.uid)
	s.Spec.Pod = podText(corev1.RestartPolicyAlways, image("busybox:2"))
	b.must(b.c.Update(t.Context(), s))
	b.clock.SetTime(b.clock.Now().Add(changeEvery))
	b.settle()
	after := b.pod()
	b.want("pod", string(after.UID), string(before.UID))
	b.want("image", after.Spec.Containers[0].Image, "busybox:2")
	b.want("one that runs", calls(after), there)
	b.want("message", condition(b.get(b.uid).Status.Conditions).Message, "")
}

// A pod with tokens is not made while home's API server may be coming, and is as soon as it is
// there, or is not coming any more; one without is made at once.
func TestHomeAPIComing(t *testing.T) {
	for _, c := range []struct {
		reason, at, want string
		tokens           bool
	}{
		{"it comes", "10.81.255.2:443", "10.81.255.2", true},
		{"it does not", "", "", true},
		{"without tokens", "", "", false},
	} {
		t.Run(c.reason, func(t *testing.T) {
			b := newBench(t)
			homes := &fakeHomes{tenant: b.tenant, coming: true}
			b.homes = homes
			b.shadowPod(corev1.RestartPolicyAlways, func(s *v1alpha1.ShadowPod) {
				if c.tokens {
					s.Annotations = map[string]string{v1alpha1.AnnotationTokens: "true"}
				}
			})
			if c.tokens {
				for range 3 {
					again, err := b.once(b.uid)
					if err != nil || again <= 0 || again > 2*busyAgain {
						t.Fatalf("it is looked at again after %s: %v", again, err)
					}
					b.clock.SetTime(b.clock.Now().Add(again))
				}
				if pods, _, _, err := b.find(t.Context(), b.tenant, b.uid); err != nil || len(pods) > 0 {
					t.Fatalf("%d pods are made before it is known: %v", len(pods), err)
				}
			}
			want := []reconcile.Request{b.key(b.uid)}
			if !c.tokens {
				b.settle()
				want = nil
			}
			if diff := cmp.Diff(want, b.memory.awaiting(b.tenant)); diff != "" {
				t.Error(diff)
			}
			if got := b.memory.awaiting("other"); got != nil {
				t.Errorf("of another tenant wait %v", got)
			}
			homes.become(c.at, false)
			b.settle()
			var got string
			for _, a := range b.pod().Spec.HostAliases {
				got += a.IP
			}
			b.want("home's API server", got, c.want)
			if got := b.memory.awaiting(b.tenant); got != nil {
				t.Errorf("what was made waits still: %v", got)
			}
		})
	}
}
