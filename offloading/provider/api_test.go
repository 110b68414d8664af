package provider

import (
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// Pods with tokens of home are made to call home's API server once it can be reached, those
// without are not; those that run stay as they are, and follow their ShadowPods as ever.
func TestHomeAPI(t *testing.T) {
	b := newBench(t)
	api := func(at string) func(string) (netip.AddrPort, bool) {
		return func(tenant string) (netip.AddrPort, bool) {
			if tenant != b.tenant || at == "" {
				return netip.AddrPort{}, false
			}
			return netip.MustParseAddrPort(at), true
		}
	}
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
	anew := func(reason string, at func(string) (netip.AddrPort, bool), want string) {
		t.Helper()
		b.homeAPI = at
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
	b.homeAPI = api("10.82.255.2:443")
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
