package shadow

import (
	"encoding/json"
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

func FuzzMake(f *testing.F) {
	s := forged(f, homePod())
	f.Add(s.Spec.Pod, "app", "web")
	f.Add(container(`,"securityContext":{"privileged":true}`), "pelago.dev/tenant", "x")
	f.Add(container(`,"resources":{"limits":{"cpu":"1e99"}}`), "a/b/c", "\n")
	f.Add(volume(`"hostPath":{"path":"/"}`), "", "")
	f.Add(`{"containers":null}`, "k", "v")
	f.Fuzz(func(t *testing.T, pod, key, value string) {
		s := handwritten(pod)
		s.Spec.Labels, s.Spec.Annotations = map[string]string{key: value}, map[string]string{key: value}
		got, _, err := Make(s, there)
		if err != nil {
			var refusal *Refusal
			if !errors.As(err, &refusal) || len(err.Error()) > maxRefusal {
				t.Fatalf("not a bounded refusal: %v", err)
			}
			return
		}
		if got.Labels[v1alpha1.LabelTenant] != "rome" || got.Namespace != "shop-rome" || got.Name != "web-0" {
			t.Fatalf("made %s/%s with %v", got.Namespace, got.Name, got.Labels)
		}
		spec := got.Spec
		if spec.HostNetwork || spec.HostPID || spec.HostIPC || spec.NodeName != "" || len(spec.Tolerations) > 0 || spec.ServiceAccountName != "default" {
			t.Fatalf("made %v", spec)
		}
		for _, c := range spec.Containers {
			if c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged {
				t.Fatal("made a privileged container")
			}
		}
		for _, v := range spec.Volumes {
			if v.HostPath != nil || v.CSI != nil {
				t.Fatal("made a volume of the node")
			}
		}
		again, _, err := Make(s, there)
		if err != nil || cmp.Diff(got, again) != "" {
			t.Fatal("the same ShadowPod makes another pod")
		}
		if diff := cmp.Diff(Changes{}, Compare(got, again)); diff != "" {
			t.Fatal(diff)
		}
	})
}

func FuzzStatus(f *testing.F) {
	home := atHome()
	s := reporting(f, home, running())
	f.Add(s.Status.Pod, "Running", home.Name)
	f.Add(`{"phase":"Failed","containerStatuses":[{"name":"web","state":{"terminated":{"exitCode":1,"finishedAt":"2026-01-01T00:00:00Z"}}}]}`, "", "x")
	f.Add(`{"allocatedResources":{"cpu":"1e99"},"conditions":[{"type":"Ready","status":"True"}]}`, "Failed", "10.0.0.1")
	f.Add(`{"podIPs":[{"ip":"::ffff:10.1.0.1"},{"ip":"fd01::1%eth0"},{"ip":"fd01::1"},{"ip":"10.1.0.2"}]}`, "Running", "x")
	f.Fuzz(func(t *testing.T, report, phase, address string) {
		s := s.DeepCopy()
		s.Status.Pod, s.Status.Phase = report, phase
		got, err := Status(home, s, address, viewed)
		if err != nil {
			if len(err.Error()) > 1024 {
				t.Fatalf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		for i, p := range got.PodIPs {
			if a, err := netip.ParseAddr(p.IP); err != nil || i > 1 || !own.Contains(a) && !own6.Contains(a) || i == 0 && got.PodIP != p.IP {
				t.Fatalf("believed the addresses %q, %v", got.PodIP, got.PodIPs)
			}
		}
		if (got.PodIP != "") != (len(got.PodIPs) > 0) || len(got.ContainerStatuses) > 1 || len(got.Conditions) > 2+len(told)+1 || got.QOSClass != corev1.PodQOSBurstable {
			t.Fatalf("believed %+v", got)
		}
		text, err := json.Marshal(got)
		if err != nil {
			t.Fatalf("a status that cannot be written: %v", err)
		}
		if len(text) > 65536 {
			t.Fatalf("a status of %d bytes", len(text))
		}
	})
}
