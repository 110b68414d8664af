package provider

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestAddressVersion holds that a pod's version is told with its addresses, stays as long as they do,
// and is never told alone.
func TestAddressVersion(t *testing.T) {
	at := func(version string, addresses ...string) *corev1.Pod {
		p := &corev1.Pod{}
		p.UID, p.ResourceVersion, p.Status = "u", version, corev1.PodStatus{Phase: corev1.PodRunning}
		for _, a := range addresses {
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: a})
		}
		return p
	}
	restarted := func(p *corev1.Pod) *corev1.Pod {
		p.Status.Message = "it was restarted"
		return p
	}
	another := func(p *corev1.Pod) *corev1.Pod {
		p.UID = "v"
		return p
	}
	older := func(s *v1alpha1.ShadowPodStatus) { s.AddressVersion = 0 }
	for _, c := range []struct {
		reason string
		before []*corev1.Pod // told one after the other
		edit   func(*v1alpha1.ShadowPodStatus)
		now    *corev1.Pod
		hidden bool
		want   int64
	}{
		{"it has no address yet", nil, nil, at("7"), false, 0},
		{"it has one", []*corev1.Pod{at("7")}, nil, at("8", "10.42.0.7"), false, 8},
		{"it has the same later", []*corev1.Pod{at("8", "10.42.0.7")}, nil, at("9", "10.42.0.7"), false, 8},
		{"and says something else", []*corev1.Pod{at("8", "10.42.0.7")}, nil, restarted(at("9", "10.42.0.7")), false, 8},
		{"it has another one", []*corev1.Pod{at("8", "10.42.0.7")}, nil, at("9", "10.42.0.8"), false, 9},
		{"it has one more", []*corev1.Pod{at("8", "10.42.0.7")}, nil, at("9", "10.42.0.7", "fd00::7"), false, 9},
		{"it has lost it", []*corev1.Pod{at("8", "10.42.0.7")}, nil, at("9"), false, 0},
		{"it is another pod with the same", []*corev1.Pod{at("8", "10.42.0.7")}, nil, another(at("9", "10.42.0.7")), false, 9},
		{"an earlier build has told the address", []*corev1.Pod{at("8", "10.42.0.7")}, older, at("9", "10.42.0.7"), false, 0},
		{"and more is told now", []*corev1.Pod{at("8", "10.42.0.7")}, older, restarted(at("9", "10.42.0.7")), false, 9},
		{"addresses are not told", nil, nil, at("8", "10.42.0.7"), true, 0},
		{"its version is no number", nil, nil, at("x", "10.42.0.7"), false, 0},
	} {
		f := facts{shadow: &v1alpha1.ShadowPod{}, addresses: !c.hidden}
		for _, pod := range append(c.before, c.now) {
			p := plan{status: *f.shadow.Status.DeepCopy()}
			if pod == c.now && c.edit != nil {
				c.edit(&p.status)
				c.edit(&f.shadow.Status)
			}
			f.pod = pod
			p.tell(f, &pod.Status)
			f.shadow.Status = p.status
		}
		if got := f.shadow.Status.AddressVersion; got != c.want {
			t.Errorf("%s: %d, want %d", c.reason, got, c.want)
		}
		p := plan{status: *f.shadow.Status.DeepCopy()}
		if p.pending(); p.status.AddressVersion != 0 {
			t.Errorf("%s: a pod that is lost has %d", c.reason, p.status.AddressVersion)
		}
	}
}
