package shadow

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// withTokens is a home pod with the automatic volume and one that it names itself.
func withTokens() *corev1.Pod {
	pod := homePod()
	token := func(path, audience string, seconds int64) corev1.VolumeProjection {
		return corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: path, Audience: audience, ExpirationSeconds: ptr.To(seconds)}}
	}
	authority := func(items ...corev1.KeyToPath) corev1.VolumeProjection {
		return corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: AuthorityMap}, Items: items}}
	}
	pod.Spec.Volumes[3].Projected = &corev1.ProjectedVolumeSource{DefaultMode: ptr.To[int32](420), Sources: []corev1.VolumeProjection{
		token("token", "", extended), authority(corev1.KeyToPath{Key: AuthorityKey, Path: "ca.crt", Mode: ptr.To[int32](256)}),
		{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{file("namespace", "metadata.namespace")}}},
	}}
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "vault", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{token("vault/token", "vault", 600), authority()}}}})
	return pod
}

func allowing() Place { return Place{Node: "milan", Request: "default", Tokens: true} }

// TestTokensTravel: where tokens travel, the pod finds them, the authority and the namespace
// where it would at home.
func TestTokensTravel(t *testing.T) {
	home := withTokens()
	s, _, err := Forge(home, allowing())
	if err != nil {
		t.Fatal(err)
	}
	if !HasTokens(s) {
		t.Error("the ShadowPod does not say that it has tokens")
	}
	name := v1alpha1.TokenSecret(homeUID)
	from := func(key, path string, mode *int32) corev1.VolumeProjection {
		return corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Items: []corev1.KeyToPath{{Key: key, Path: path, Mode: mode}}}}
	}
	pod := made(t, s)
	want := []corev1.VolumeProjection{from("token-0", "token", nil), from("ca.crt", "ca.crt", ptr.To[int32](256)),
		{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{file("namespace", "metadata.annotations['pelago.dev/home-namespace']")}}}}
	if diff := cmp.Diff(want, pod.Spec.Volumes[3].Projected.Sources); diff != "" {
		t.Errorf("the automatic volume (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]corev1.VolumeProjection{from("token-1", "vault/token", nil), from("ca.crt", "ca.crt", nil)}, pod.Spec.Volumes[4].Projected.Sources); diff != "" {
		t.Errorf("a volume of the pod's own (-want +got):\n%s", diff)
	}
	if mounts := pod.Spec.Containers[0].VolumeMounts; len(mounts) != 3 || mounts[2].MountPath != "/var/run/secrets/kubernetes.io/serviceaccount" {
		t.Errorf("mounts %+v", mounts)
	}
	if pod.Spec.AutomountServiceAccountToken == nil || *pod.Spec.AutomountServiceAccountToken {
		t.Error("the provider's token is mounted")
	}
	if diff := cmp.Diff([]Token{{"token-0", "", 3600}, {"token-1", "vault", 600}}, Tokens(&home.Spec)); diff != "" {
		t.Errorf("tokens (-want +got):\n%s", diff)
	}
	s.Status.ObservedGeneration = s.Generation
	if !observed(home, s, "") {
		t.Error("the status of a pod with tokens is taken for one of an earlier pod")
	}
}

// TestTokensStay: else the automatic volume is dropped, and a pod that names a token is
// refused.
func TestTokensStay(t *testing.T) {
	home := withTokens()
	_, _, err := Forge(home, Place{Node: "milan", Request: "default"})
	if err == nil || !strings.Contains(err.Error(), "spec.volumes[3].projected.sources[0].serviceAccountToken") || !strings.Contains(err.Error(), "serviceAccountTokens: Allow") {
		t.Errorf("a token that the pod names: %v", err)
	}
	home.Spec.Volumes = home.Spec.Volumes[:4]
	s, _, err := Forge(home, Place{Node: "milan", Request: "default"})
	if err != nil || HasTokens(s) || strings.Contains(s.Spec.Pod, v1alpha1.TokenSecretPrefix) || strings.Contains(s.Spec.Pod, "serviceaccount") {
		t.Errorf("the automatic volume: %v", err)
	}
}

// TestTokensAreBounded: no pod makes home ask for tokens without end.
func TestTokensAreBounded(t *testing.T) {
	pod := withTokens()
	v := &pod.Spec.Volumes[4]
	for i := range maxTokens {
		v.Projected.Sources = append(v.Projected.Sources, corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: fmt.Sprint("t", i)}})
	}
	if _, _, err := Forge(pod, allowing()); err == nil || !strings.Contains(err.Error(), "18 tokens of service accounts, at most 16") {
		t.Errorf("%v", err)
	}
}

// TestOthersTokens: no pod names the Secret with the tokens of another one, nor its own but
// in a projected volume.
func TestOthersTokens(t *testing.T) {
	other, own := v1alpha1.TokenSecret("00000000-0000-0000-0000-000000000000"), v1alpha1.TokenSecret(homeUID)
	projected := func(name string) string {
		return volume(`"projected":{"sources":[{"secret":{"name":"` + name + `"}}]}`)
	}
	for _, c := range []struct{ reason, pod, field string }{
		{"of another pod", projected(other), "sources[0].secret"},
		{"in a volume", volume(`"secret":{"secretName":"` + own + `"}`), "volumes[0].secret"},
		{"in the environment", container(`,"envFrom":[{"secretRef":{"name":"` + own + `"}}]`), "envFrom[0].secretRef"},
		{"in a variable", container(`,"env":[{"name":"A","valueFrom":{"secretKeyRef":{"name":"` + own + `","key":"token-0"}}}]`), "secretKeyRef"},
		{"for pulling images", pod(`,"imagePullSecrets":[{"name":"` + own + `"}]`), "imagePullSecrets"},
		{"its own", projected(own), ""},
	} {
		_, _, err := Make(handwritten(c.pod), there)
		if (err == nil) != (c.field == "") || err != nil && !strings.Contains(err.Error(), c.field) {
			t.Errorf("%s: %v", c.reason, err)
		}
	}
}
