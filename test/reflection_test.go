package test

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// reflection holds that a pod starts there with the ConfigMaps and Secrets it refers to,
// that these follow what is done at home, and that nothing else of its namespace is there.
func reflection(t *testing.T, c *continuum) {
	s := c.offloaded(t, "rome", "--pod-offloading-strategy", "Remote")
	there := s.name + "-rome"
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	settings := &corev1.ConfigMap{ObjectMeta: named("settings"), Data: map[string]string{"color": "blue", "app.conf": "depth=3\n"}}
	s.create(t, settings)
	s.create(t, &corev1.Service{ObjectMeta: named("reads"), Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort,
		Selector: map[string]string{"app": "reads"}, Ports: []corev1.ServicePort{{Port: 80}}}})
	s.create(t, &corev1.Secret{ObjectMeta: named("login"), Data: map[string][]byte{"password": []byte("hunter2")}})
	s.create(t, &corev1.Secret{ObjectMeta: named("private"), Data: map[string][]byte{"key": []byte("x")}})
	large := make([]byte, 1000<<10) // several ShadowObjects
	_, _ = rand.NewChaCha8([32]byte{}).Read(large)
	s.create(t, &corev1.ConfigMap{ObjectMeta: named("large"), BinaryData: map[string][]byte{"all": large}})
	pod := s.script("reads", `sha256sum /etc/large/all; echo "$COLOR $password $(cat /etc/app/app.conf) $(cat /etc/both/password)"; while sleep 1; do cat /etc/app/app.conf; done`)
	main := &pod.Spec.Containers[0]
	main.Env = []corev1.EnvVar{{Name: "COLOR", ValueFrom: &corev1.EnvVarSource{
		ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}, Key: "color"}}}}
	main.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "login"}}}}
	main.VolumeMounts = []corev1.VolumeMount{{Name: "app", MountPath: "/etc/app"}, {Name: "both", MountPath: "/etc/both"}, {Name: "large", MountPath: "/etc/large"}}
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "app", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}},
		{Name: "large", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "large"}}}},
		{Name: "both", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "login"}}}}}}},
	}
	// What only a pod refers to that goes at once takes a minute to go as well, the same one in
	// which the kubelet looks.
	s.create(t, &corev1.ConfigMap{ObjectMeta: named("passing"), Data: map[string]string{"here": "today"}})
	passing := s.sleeper("passing")
	passing.Spec.Volumes = []corev1.Volume{{Name: "passing", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "passing"}}}}}
	s.create(t, passing)
	begin := time.Now()
	s.create(t, pod)
	s.running(t, "reads")
	t.Logf("a pod with a ConfigMap and a Secret runs after %s", time.Since(begin).Round(10*time.Millisecond))
	logs := func(words string) func() error {
		return func() error {
			out, err := s.logs(t, "reads", 0)
			if err == nil && !strings.Contains(out, words) {
				err = fmt.Errorf("the pod says %q", out)
			}
			return err
		}
	}
	s.eventually(t, offloadLimit, "the pod sees what it refers to", logs("blue hunter2 depth=3 hunter2"))
	s.eventually(t, offloadLimit, "all of 1,000 KiB in a ConfigMap is there", logs(fmt.Sprintf("%x  /etc/large/all", sha256.Sum256(large))))
	if _, err := get[corev1.Secret](c, "milan", there, "private"); !apierrors.IsNotFound(err) {
		t.Errorf("a Secret at milan that no pod refers to: %v, want none", err)
	}
	s.eventually(t, offloadLimit, "the Service there has the pod behind it", func() error {
		made, err := get[corev1.Service](c, "milan", there, "reads")
		if err != nil {
			return err
		}
		if made.Spec.Type != corev1.ServiceTypeClusterIP {
			return fmt.Errorf("its type is %s, want ClusterIP: the provider allows no node ports", made.Spec.Type)
		}
		slices := &discoveryv1.EndpointSliceList{}
		err = c.Clients["milan"].List(t.Context(), slices, client.InNamespace(there), client.MatchingLabels{discoveryv1.LabelServiceName: "reads"})
		if err == nil && (len(slices.Items) != 1 || len(slices.Items[0].Endpoints) != 1) {
			err = fmt.Errorf("its endpoints are %+v", slices.Items)
		}
		return err
	})
	s.running(t, "passing")
	made, err := get[corev1.ConfigMap](c, "milan", there, "passing")
	if err != nil {
		t.Fatal(err)
	}
	if made.Labels[v1alpha1.LabelTenant] != "rome" {
		t.Errorf("labels %v", made.Labels)
	}
	if err := c.Clients["rome"].Delete(t.Context(), passing); err != nil {
		t.Fatal(err)
	}
	ruled := s.ruled(t)
	settings.Data["app.conf"] = "depth=4\n"
	if err := c.Clients["rome"].Update(t.Context(), settings); err != nil {
		t.Fatal(err)
	}
	s.fresh(t)
	s.eventually(t, 4*time.Minute, "the pod sees the change", logs("depth=4")) // a kubelet looks every minute or so
	ruled()
	t.Run("unreferenced", func(t *testing.T) {
		s.eventually(t, 3*time.Minute, "what no pod refers to any more is gone", func() error {
			if _, err := get[corev1.ConfigMap](c, "milan", there, "passing"); !apierrors.IsNotFound(err) {
				return fmt.Errorf("it is there: %v", err)
			}
			return nil
		})
	})
}

// ruled holds that ConfigMaps that a rule picks by a label travel without a pod that refers to
// them and others do not, and that one whose name an object of milan's owner has leaves that
// as it is and says so on itself. It takes the label off the one that travels; gone waits
// until that is not at milan any more.
func (s shop) ruled(t *testing.T) (gone func()) {
	t.Helper()
	there, named := s.name+"-rome", func(name, travels string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Labels: map[string]string{"travels": travels}}
	}
	theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: there, Name: "taken"}, Data: map[string]string{"of": "milan"}}
	if err := s.Clients["milan"].Create(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	labelled := &corev1.ConfigMap{ObjectMeta: named("labelled", "yes"), Data: map[string]string{"of": "rome"}}
	for _, m := range []*corev1.ConfigMap{labelled, {ObjectMeta: named("plain", "no")}, {ObjectMeta: named("taken", "yes"), Data: map[string]string{"of": "rome"}}} {
		s.create(t, m)
	}
	o, err := s.offloading()
	if err != nil {
		t.Fatal(err)
	}
	before := o.DeepCopy()
	o.Spec.Reflection = []v1alpha1.ReflectionRule{{Kind: "ConfigMap", Policy: v1alpha1.ReflectAll, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"travels": "yes"}}}}
	if err := s.Clients[s.cluster].Patch(t.Context(), o, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	s.eventually(t, offloadLimit, "milan has what the rule picks", func() error {
		_, err := get[corev1.ConfigMap](s.continuum, "milan", there, "labelled")
		return err
	})
	s.eventually(t, offloadLimit, "home is told whose name is taken", func() error {
		out, err := s.kubectl(t, "get", "events", "--field-selector", "reason=NotReflected,involvedObject.name=taken", "-o", "custom-columns=SAYS:.message")
		if err == nil && !strings.Contains(out, "the provider has a ConfigMap of this name that is not this cluster's") {
			err = fmt.Errorf("the events are\n%s", out)
		}
		return err
	})
	if is, err := get[corev1.ConfigMap](s.continuum, "milan", there, "taken"); err != nil || is.UID != theirs.UID || is.ResourceVersion != theirs.ResourceVersion {
		t.Errorf("an object of milan's owner was touched: %+v, %v", is, err)
	}
	if _, err := get[corev1.ConfigMap](s.continuum, "milan", there, "plain"); !apierrors.IsNotFound(err) {
		t.Errorf("a ConfigMap at milan that no rule picks: %v, want none", err)
	}
	labelled.Labels["travels"] = "no"
	if err := s.Clients[s.cluster].Update(t.Context(), labelled); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		s.eventually(t, 4*time.Minute, "what the rule picks no more is gone from milan", func() error {
			if _, err := get[corev1.ConfigMap](s.continuum, "milan", there, "labelled"); !apierrors.IsNotFound(err) {
				return fmt.Errorf("it is there: %v", err)
			}
			return nil
		})
	}
}

// fresh holds that pods which are made right after a ConfigMap that they read has changed, or beside one
// that they could do without, have it as it is, each time.
func (s shop) fresh(t *testing.T) {
	t.Helper()
	version := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "version"}, Data: map[string]string{"number": "0"}}
	s.create(t, version)
	optional := true
	for i := range 6 {
		name, beside := fmt.Sprintf("fresh-%d", i), fmt.Sprintf("beside-%d", i)
		version.Data["number"] = fmt.Sprint(i)
		if err := s.Clients[s.cluster].Update(t.Context(), version); err != nil {
			t.Fatal(err)
		}
		s.create(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: beside}, Data: map[string]string{"number": fmt.Sprint(10 + i)}})
		pod := s.script(name, `echo "version $NUMBER beside $BESIDE."; sleep 3600`)
		pod.Spec.Containers[0].Env = []corev1.EnvVar{
			{Name: "NUMBER", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "version"}, Key: "number"}}},
			{Name: "BESIDE", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: beside}, Key: "number", Optional: &optional}}},
		}
		s.create(t, pod)
		var out string
		s.eventually(t, offloadLimit, "a pod says what it has", func() (err error) {
			if out, err = s.logs(t, name, 0); err == nil && !strings.Contains(out, ".") {
				err = fmt.Errorf("the pod says %q", out)
			}
			return err
		})
		if want := fmt.Sprintf("version %d beside %d.", i, 10+i); !strings.Contains(out, want) {
			t.Errorf("a pod made after the change says %q, want %q", out, want)
		}
	}
}
