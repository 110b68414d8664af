package bench

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/bench/plot"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

const (
	// envChurn is how long pods and namespaces come and go, instead of churnUsual.
	envChurn   = "PELAGO_BENCH_CHURN"
	churnUsual = time.Hour
	// churnPods come and go in each round, and a namespace with what its pod needs.
	churnPods = 200
	// churnMore is by how much of what it was a manager's memory may have grown in the
	// second half.
	churnMore = 1.1
)

// TestChurn holds that the memory of managers does not grow with what has been: pods
// and namespaces with their objects come and go for an hour.
func TestChurn(t *testing.T) {
	lasting := churnUsual
	if text := os.Getenv(envChurn); text != "" {
		var err error
		if lasting, err = time.ParseDuration(text); err != nil || lasting < time.Minute {
			t.Fatalf("%s is %q; write a time of at least a minute, like 1h", envChurn, text)
		}
	}
	c := hollowContinuum(t)
	hasRoom(t, c, churnPods)
	b := burst{c: c, cluster: "rome", namespace: "away"}
	if err := c.Clients["rome"].Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.namespace}}); err != nil {
		t.Fatal(err)
	}
	c.Pelago(t, "rome", "offload", "namespace", b.namespace, "--pod-offloading-strategy", "Remote")
	before := started(t, c)
	var memory []float64
	for begin := time.Now(); time.Since(begin) < lasting; {
		b.start(t, churnPods)
		b.end(t, churnPods)
		churnNamespace(t, c, fmt.Sprintf("churn-%d", len(memory)))
		_, most := vitals(t, c)
		memory = append(memory, most)
	}
	if after := started(t, c); !slices.Equal(before, after) {
		t.Errorf("managers were replaced meanwhile, so their memory says nothing: %v, then %v", before, after)
	}
	if len(memory) < 8 {
		t.Fatalf("only %d rounds in %s, which say nothing", len(memory), lasting)
	}
	chart := plot.Chart{Title: "memory of the largest manager, MiB, by round"}
	for i := range 10 {
		k := i * (len(memory) - 1) / 9
		chart.Set(fmt.Sprint(k+1), "after it", memory[k])
	}
	draw(t, "bench-churn", chart)
	half, quarter := len(memory)/2, len(memory)/4
	early, late := middle(memory[quarter:half]), middle(memory[half+quarter:])
	t.Logf("%d rounds of %d pods and a namespace: %.1f MiB in the second quarter, %.1f in the last", len(memory), churnPods, early, late)
	atMost(t, "memory of a manager in the last quarter, of that in the second", late/early, churnMore, "×")
	atMost(t, "memory of a manager after churn", late, burstMemory, "MiB")
}

// churnNamespace offloads a namespace with a pod and what it refers to, and removes it.
func churnNamespace(t *testing.T, c *kubetest.Continuum, name string) {
	t.Helper()
	rome := c.Clients["rome"]
	meta := metav1.ObjectMeta{Name: "settings", Namespace: name}
	pod := burst{c: c, namespace: name}.pod(0)
	pod.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{
		{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: meta.Name}}},
		{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: meta.Name}}},
	}
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
		&v1alpha1.NamespaceOffloading{
			ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.OffloadingName, Namespace: name},
			Spec:       v1alpha1.NamespaceOffloadingSpec{NamespaceMappingStrategy: v1alpha1.MappingDefaultName, PodOffloadingStrategy: v1alpha1.PodsRemote},
		},
		&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"a": name}},
		&corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"b": []byte(name)}},
		&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Selector: pod.Labels, Ports: []corev1.ServicePort{{Port: 80}}}},
	} {
		if err := rome.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	poll(t, 100*time.Millisecond, itemLimit, name+" is offloaded", func() error {
		o := &v1alpha1.NamespaceOffloading{}
		if err := rome.Get(t.Context(), client.ObjectKey{Namespace: name, Name: v1alpha1.OffloadingName}, o); err != nil {
			return err
		}
		if o.Status.Phase != v1alpha1.OffloadingPhaseReady {
			return fmt.Errorf("its phase is %q", o.Status.Phase)
		}
		return nil
	})
	if err := rome.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	poll(t, 100*time.Millisecond, itemLimit, "the pod of "+name+" runs", func() error {
		if err := rome.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		if pod.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("it is %s: %v", pod.Status.Phase, pod.Status.Conditions)
		}
		return nil
	})
	if err := rome.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		t.Fatal(err)
	}
	poll(t, time.Second, itemLimit, name+" is gone, here and there", func() error {
		if err := rome.Get(t.Context(), client.ObjectKey{Name: name}, &corev1.Namespace{}); client.IgnoreNotFound(err) != nil || err == nil {
			return fmt.Errorf("it is there (%v)", err)
		}
		return none(t, c, "milan", &corev1.NamespaceList{}, client.MatchingLabels{v1alpha1.LabelHomeNamespace: name})
	})
}

// started says which pods of managers there are, and how often each began again.
func started(t *testing.T, c *kubetest.Continuum) []string {
	t.Helper()
	var found []string
	for _, cluster := range []string{"rome", "milan"} {
		pods := &corev1.PodList{}
		if err := c.Clients[cluster].List(t.Context(), pods, client.InNamespace(v1alpha1.SystemNamespace)); err != nil {
			t.Fatal(err)
		}
		for i := range pods.Items {
			for _, s := range pods.Items[i].Status.ContainerStatuses {
				found = append(found, fmt.Sprintf("%s/%s/%s %d", cluster, pods.Items[i].Name, s.Name, s.RestartCount))
			}
		}
	}
	slices.Sort(found)
	return found
}

// middle is the median.
func middle(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
