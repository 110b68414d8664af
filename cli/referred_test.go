package cli

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestExplainWhatIsMissing reads from a server whether what a pod refers to is there, and
// whether it travelled.
func TestExplainWhatIsMissing(t *testing.T) {
	s := newStage(t, 0)
	s.install("rome", id2)
	const name = "lacking-shop"
	s.space(name, nil)
	in := func(object string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: name, Name: object} }
	s.create(&corev1.ServiceAccount{ObjectMeta: in("default")})
	node := virtualNode("pisa", "pisa", corev1.ConditionTrue)
	status := node.Status
	s.create(&node)
	node.Status = status
	if err := s.c.Status().Update(t.Context(), &node); err != nil {
		t.Fatal(err)
	}
	space := newNamespace("pelago-peering-pisa")
	s.create(space)
	mapped := &v1alpha1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: space.Name, Name: v1alpha1.NamespaceMapName}}
	s.create(mapped)
	mapped.Status.Objects = []v1alpha1.ReflectedObject{{Kind: "Ingress", Namespace: name, Name: "web", Refused: true, Reason: v1alpha1.ReasonRefused, Message: "the provider refuses it; ask its owner"}}
	mapped.Status.Namespaces = map[string]v1alpha1.MappedNamespace{name: {Name: name + "-rome", Phase: v1alpha1.MappingReady}}
	if err := s.c.Status().Update(t.Context(), mapped); err != nil {
		t.Fatal(err)
	}
	pod := podOn(name, "web", "pisa")
	pod.Spec.Containers[0].Name, pod.Spec.Containers[0].Image = "c", "c"
	from := func(object, key string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: object}, Key: key}}
	}
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", ValueFrom: from("login", "password")}, {Name: "B", ValueFrom: from("none", "x")}, {Name: "C", ValueFrom: from("large", "x")}}
	s.create(&pod, &v1alpha1.NamespaceOffloading{ObjectMeta: in(v1alpha1.OffloadingName)},
		&corev1.Secret{ObjectMeta: in("login"), Data: map[string][]byte{"user": []byte(marked)}}, &corev1.Secret{ObjectMeta: in("large"), Data: map[string][]byte{"x": []byte(marked)}})
	began := metav1.Now()
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending, StartTime: &began}
	if err := s.c.Status().Update(t.Context(), &pod); err != nil {
		t.Fatal(err)
	}
	for i, message := range []string{"Secret large is not carried to pisa: it was too large", "Secret large is not carried to pisa: its data has 70000 bytes, at most 65536",
		"Secret large is not carried to oslo: beside the point", "Secret none is not carried to pisa: there is no such Secret in this namespace"} {
		s.create(&corev1.Event{ObjectMeta: in("e" + string(rune('a'+i))), InvolvedObject: corev1.ObjectReference{Kind: "Secret", Namespace: name, Name: "large"}, Type: "Warning",
			Reason: "NotReflected", Message: message, ReportingController: "pelago-manager", LastTimestamp: metav1.NewTime(began.Add(time.Duration(i) * time.Minute))})
	}
	if all := s.run("status"); !strings.Contains(all.out, "Ingress lacking-shop/web at pisa: the provider refuses it (Refused)\n  → ask its owner\n") {
		t.Errorf("status: %+v", all)
	}
	got := s.run("explain", "pod", "web", "-n", name, "-o", "json")
	for _, want := range []string{"Secret login is there at home, without the key password; there is no Secret none in namespace lacking-shop of this cluster; " +
		"Secret large is there at home and has not travelled to pisa: its data has 70000 bytes, at most 65536 (said "} {
		if got.code != 0 || !strings.Contains(got.out, want) || strings.Contains(got.out, "too large") || strings.Contains(got.out, marked) {
			t.Errorf("it lacks %q: %+v", want, got)
		}
	}
}
