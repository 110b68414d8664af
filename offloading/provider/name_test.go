package provider

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/offloading/shadow"
)

// Pods are made with home's names once there are any; those that run stay as they are, both
// when that begins and when it ends, and follow their ShadowPods as ever.
func TestHomeNames(t *testing.T) {
	b := newBench(t)
	nameServer := netip.MustParseAddr("169.254.77.53")
	resolver := func(pod *corev1.Pod) string {
		text := string(pod.Spec.DNSPolicy)
		if c := pod.Spec.DNSConfig; c != nil {
			text += " " + strings.Join(c.Nameservers, ",") + " " + strings.Join(c.Searches, ",")
		}
		return text
	}
	const homes = "None 169.254.77.53,fd77::53 shop.svc.cluster.local,svc.cluster.local,cluster.local"
	// switched goes on with another option in a new program, and changes the image.
	switched := func(server netip.Addr, want, tag string) {
		t.Helper()
		before := b.pod()
		b.want("names", resolver(before), want)
		b.restart(b.c)
		b.nameServers = nil
		if server.IsValid() {
			b.nameServers = func() []netip.Addr { return []netip.Addr{server, netip.MustParseAddr("fd77::53")} }
		}
		b.settle()
		b.want("version", b.pod().ResourceVersion, before.ResourceVersion)
		s := b.get(b.uid)
		s.Spec.Pod = podText(corev1.RestartPolicyAlways, image(tag))
		b.must(b.c.Update(t.Context(), s))
		b.clock.SetTime(b.clock.Now().Add(changeEvery))
		b.settle()
		after := b.pod()
		b.want("pod", string(after.UID), string(before.UID))
		b.want("names", resolver(after), want)
		b.want("image", after.Spec.Containers[0].Image, tag)
		b.want("applied", after.Annotations[v1alpha1.AnnotationApplied], shadow.Hash(b.get(b.uid).Spec))
		b.want("message", condition(b.get(b.uid).Status.Conditions).Message, "")
	}
	b.shadowPod(corev1.RestartPolicyAlways)
	b.settle()
	switched(nameServer, "ClusterFirst", "busybox:2")
	b.must(b.c.Delete(t.Context(), b.pod(), client.GracePeriodSeconds(0)))
	b.settle() // it is lost, and made anew
	switched(netip.Addr{}, homes, "busybox:3")
}

// A pod that was made at a third cluster has the names of that one. While its namespace says wrongly
// where that is, it is not made.
func TestNamesOfOrigin(t *testing.T) {
	b := newBench(t)
	label := func(namespace, owner string) {
		t.Helper()
		n := &corev1.Namespace{}
		b.must(b.c.Get(t.Context(), client.ObjectKey{Name: b.space}, n))
		n.Labels[v1alpha1.LabelOriginNamespace], n.Labels[v1alpha1.LabelOriginOwner] = namespace, owner
		b.must(b.c.Update(t.Context(), n))
	}
	b.nameServers = func() []netip.Addr { return []netip.Addr{netip.MustParseAddr("169.254.77.53")} }
	label("bank", "milan")
	b.shadowPod(corev1.RestartPolicyAlways)
	b.settle()
	if c := condition(b.get(b.uid).Status.Conditions); c == nil || c.Reason != v1alpha1.ReasonNamespaceMissing || !strings.Contains(c.Message, "says wrongly where its pods were made") {
		t.Fatalf("it is told %v", c)
	}
	label("bank", "0123456789abcdef")
	b.settle()
	if got := strings.Join(b.pod().Spec.DNSConfig.Searches, " "); got != "bank.svc.cluster.local svc.cluster.local cluster.local" {
		t.Errorf("it looks for names in %s", got)
	}
}
