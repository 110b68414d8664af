package shadow

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/internal/kubetest"
)

func whole(*corev1.PodSpec) {}

// TestSparseAgainstServer: what is left out the provider's API server puts in.
func TestSparseAgainstServer(t *testing.T) {
	server := kubetest.Server(t)
	c := server.Client(t)
	ground := Ground{Namespace: server.Namespace(t), Tenant: "rome"}
	home := homePod()
	home.Spec.Hostname, home.Spec.Subdomain = "", ""
	home.Spec.Volumes = append(home.Spec.Volumes, corev1.Volume{Name: "secret", VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: "s", DefaultMode: ptr.To[int32](0o644)}}},
		corev1.Volume{Name: "both", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{DefaultMode: ptr.To[int32](0o644)}}})
	web := &home.Spec.Containers[0]
	web.ReadinessProbe.HTTPGet.Scheme = corev1.URISchemeHTTP
	web.LivenessProbe, web.StartupProbe = web.ReadinessProbe.DeepCopy(), web.ReadinessProbe.DeepCopy()
	unset := home.DeepCopy() // as home's API server makes of a pod that says nothing
	unset.Spec.SecurityContext = &corev1.PodSecurityContext{}
	for _, home := range []*corev1.Pod{home, unset} {
		var stored [2]*corev1.Pod
		for i, lighten := range []func(*corev1.PodSpec){whole, sparse} {
			s, _, err := forge(home, here, lighten)
			if err != nil {
				t.Fatal(err)
			}
			pod, _, err := Make(s, ground)
			if err != nil {
				t.Fatal(err)
			}
			pod.Name = server.Name(t, "web")
			stored[i] = create(t, c, pod)
			if err := c.Get(context.Background(), client.ObjectKeyFromObject(stored[i]), stored[i]); err != nil {
				t.Fatal(err)
			}
			t.Logf("%d bytes", len(s.Spec.Pod))
		}
		if diff := cmp.Diff(stored[0].Spec, stored[1].Spec); diff != "" {
			t.Errorf("the pod of a ShadowPod without defaults is another one (-with +without):\n%s", diff)
		}
		// A pod that an earlier build asked for has only its record to change.
		before, want := stored[0].DeepCopy(), made(t, forged(t, home))
		if c := Compare(before, want); c.Resize || len(c.Ephemeral)+len(c.Impossible) > 0 {
			t.Errorf("to follow without defaults it takes %+v", c)
		}
		if Apply(stored[0], want); !cmp.Equal(before.Spec, stored[0].Spec) {
			t.Error(cmp.Diff(before.Spec, stored[0].Spec))
		}
	}
}

// TestSparseKeeps: what is not a default is not left out.
func TestSparseKeeps(t *testing.T) {
	other := corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, DNSPolicy: corev1.DNSDefault, TerminationGracePeriodSeconds: ptr.To[int64](0), EnableServiceLinks: ptr.To(false),
		SecurityContext: &corev1.PodSecurityContext{SupplementalGroups: []int64{1}},
		Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{DefaultMode: ptr.To[int32](0)}}},
			{VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{DefaultMode: ptr.To[int32](0o600)}}}},
		Containers: []corev1.Container{{
			TerminationMessagePath: "/x", TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError, ImagePullPolicy: corev1.PullIfNotPresent,
			Ports: []corev1.ContainerPort{{Protocol: corev1.ProtocolUDP}},
			LivenessProbe: &corev1.Probe{TimeoutSeconds: 2, PeriodSeconds: 1, SuccessThreshold: 3, FailureThreshold: 1,
				ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Scheme: corev1.URISchemeHTTPS}}},
		}},
	}
	want := other.DeepCopy()
	if sparse(&other); !cmp.Equal(want, &other) {
		t.Error(cmp.Diff(want, &other))
	}
}

// TestAsked: a ShadowPod of an earlier build, with all defaults, is not written anew, one of
// another pod is.
func TestAsked(t *testing.T) {
	home := homePod()
	want := forged(t, home)
	earlier, _, err := forge(home, here, whole)
	if err != nil {
		t.Fatal(err)
	}
	if Hash(earlier.Spec) == Hash(want.Spec) {
		t.Error("nothing is left out")
	}
	for _, hash := range []string{Hash(want.Spec), Hash(earlier.Spec)} {
		if !Asked(hash, want, home, here) {
			t.Error("what was asked is asked again")
		}
	}
	changed := home.DeepCopy()
	changed.Spec.Containers[0].Image = "web:2"
	if Asked(Hash(want.Spec), forged(t, changed), changed, here) || Asked(Hash(earlier.Spec), forged(t, changed), changed, here) || Asked("", want, home, here) {
		t.Error("what was never asked counts as asked")
	}
}

// TestForgedTextsComeBack: the hash of a ShadowPod is the same after JSON, whatever bytes
// an annotation has.
func TestForgedTextsComeBack(t *testing.T) {
	home := homePod()
	home.Annotations["note"] = "a\xff\xfeb"
	s := forged(t, home)
	back := s.DeepCopy()
	if err := json.Unmarshal([]byte(text(t, s)), back); err != nil {
		t.Fatal(err)
	}
	if Hash(back.Spec) != Hash(s.Spec) {
		t.Errorf("%q comes back as %q", s.Spec.Annotations["note"], back.Spec.Annotations["note"])
	}
}

// TestReportIsShort: a report has no words for nothing, loses none of a message, and tells
// the same as a longer one of an earlier build.
func TestReportIsShort(t *testing.T) {
	status := running()
	const words = `x,"lastState":{},"lastProbeTime":null`
	status.Message, status.Conditions[3].Message = words, words
	short, err := Report(&status, 0, "")
	if err != nil {
		t.Fatal(err)
	}
	bare := strings.ReplaceAll(short, text(t, words), "")
	for _, word := range []string{"null", "lastState", "lastProbeTime", "lastTransitionTime"} {
		if strings.Contains(bare, word) {
			t.Errorf("%s is in %s", word, bare)
		}
	}
	told, err := decodeStatus(short)
	if err != nil {
		t.Fatal(err)
	}
	if told.Message != words || condition(told.Conditions, corev1.ContainersReady).Message != words {
		t.Errorf("a message has changed in %s", short)
	}
	earlier := text(t, told)
	if earlier == short || !Told(earlier, short) || !Told(short, short) {
		t.Errorf("%s does not tell what %s does", short, earlier)
	}
	told.ContainerStatuses[0].RestartCount++
	if Told(text(t, told), short) || Told("", short) || Told("{", short) {
		t.Error("what was not told counts as told")
	}
}
