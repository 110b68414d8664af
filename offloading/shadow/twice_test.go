package shadow

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestTwice sends a pod on that a provider has made of a ShadowPod, to a provider of its own. What
// the pod sees of its home is home's, and nothing of the cluster between, but for its names.
func TestTwice(t *testing.T) {
	const second = "0a1b2c3d-0000-4000-8000-0000000000ff"
	field := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	first := homePod()
	first.Spec.Containers = first.Spec.Containers[:1]
	c := &first.Spec.Containers[0]
	c.Env, c.EnvFrom, c.VolumeMounts = []corev1.EnvVar{{Name: "NAME", ValueFrom: field("metadata.name")}, {Name: "SPACE", ValueFrom: field("metadata.namespace")},
		{Name: "UID", ValueFrom: field("metadata.uid")}, {Name: "NODE", ValueFrom: field("spec.nodeName")}, {Name: "IP", ValueFrom: field("status.podIP")}}, nil, nil
	file := func(path string) corev1.DownwardAPIVolumeFile {
		return corev1.DownwardAPIVolumeFile{Path: path, FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	first.Spec.Volumes = []corev1.Volume{{Name: "about", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{
		file("metadata.name"), file("metadata.namespace"), file("metadata.uid"), file("metadata.labels"),
	}}}}}
	made := func(of *corev1.Pod, at Place, ground Ground) *corev1.Pod {
		t.Helper()
		s, _, err := Forge(of, at)
		if err != nil {
			t.Fatal(err)
		}
		pod, _, err := Make(s, ground)
		if err != nil {
			t.Fatal(err)
		}
		return pod
	}
	between := made(first, Place{Node: "rome", Request: "default", Address: "10.0.0.9"}, Ground{Namespace: "shop-milan", Tenant: "milan"})
	Resolve(between, "shop", v1alpha1.DefaultDomain, netip.MustParseAddr("169.254.77.53"))
	between.UID, between.Spec.NodeName, between.Annotations["pelago.dev/avoids"] = second, "oslo", "rome-inner"
	if between.Spec.DNSPolicy != corev1.DNSNone {
		t.Fatalf("it has the policy %q for names", between.Spec.DNSPolicy)
	}
	last := made(between, Place{Node: "oslo", Request: "default", Address: "10.7.7.7"}, Ground{Namespace: "shop-milan-rome", Tenant: "rome"})

	if last.Name != first.Name || last.Namespace != "shop-milan-rome" || last.Labels[v1alpha1.LabelTenant] != "rome" || last.Labels[v1alpha1.LabelHomeUID] != second || last.Labels["app"] != "web" {
		t.Errorf("it is %s", text(t, last.ObjectMeta))
	}
	for _, e := range last.Spec.Containers[0].Env {
		want := map[string]string{"NAME": "web-0", "SPACE": "shop", "UID": homeUID, "NODE": "rome", "IP": ""}[e.Name]
		if e.Value != want || (e.Name == "IP") != (e.ValueFrom != nil) {
			t.Errorf("its environment says %s", text(t, e))
		}
	}
	files := map[string]string{}
	for _, item := range last.Spec.Volumes[0].DownwardAPI.Items {
		key := strings.TrimSuffix(strings.TrimPrefix(item.FieldRef.FieldPath, "metadata.annotations['"), "']")
		files[item.Path] = last.Annotations[key]
	}
	for path, want := range map[string]string{"metadata.name": "web-0", "metadata.namespace": "shop", "metadata.uid": homeUID} {
		if files[path] != want {
			t.Errorf("its file %s says %q, want %q", path, files[path], want)
		}
	}
	if !strings.Contains(files["metadata.labels"], `app="web"`) {
		t.Errorf("its labels are %q", files["metadata.labels"])
	}
	if last.Spec.DNSConfig != nil || !clusterNames(last.Spec.DNSPolicy) {
		t.Errorf("it asks for names as %s", text(t, last.Spec.DNSConfig))
	}
	said, err := json.Marshal(last)
	if err != nil {
		t.Fatal(err)
	}
	for _, inner := range []string{"rome-inner", "10.0.0.9", "10.7.7.7", "169.254.77.53", `"milan"`} {
		if strings.Contains(string(said), inner) {
			t.Errorf("%s is told: %s", inner, said)
		}
	}
}
