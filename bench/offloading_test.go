package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

const (
	pairs = 15
	// What the product promises, on 2 cores, both clusters on the same machine.
	startMore  = 0.15 // seconds that an offloaded pod may take longer, p50
	statusMost = 1.0  // seconds from Running there to Running here, p90
	benchImage = "pelago.test/bench:1"
)

// TestOffloading measures one pod alone, from its creation to Running: at home and
// offloaded in turn, with real containers, so that what differs is ours; and how long
// after it runs there home knows.
func TestOffloading(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sandbox.yaml")
	text := "clusters:\n- name: rome\n  nodes: 1\n  addons: [coredns]\n- name: milan\n  nodes: 1\n  addons: [coredns, load-balancer]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := kubetest.Sandbox(t, kubetest.Options{Name: "bench", File: file, Pelago: true})
	c := kubetest.NewContinuum(t, s, "rome", "milan")
	s.Run(t, "image", "build", benchImage, "--from-packages", "busybox-static")
	s.Run(t, "image", "load", benchImage, "rome", "milan")
	if r := c.Shell(t, "rome", c.Invite(t, "milan")); r.Code != 0 {
		t.Fatalf("peering: exit %d\n%s%s", r.Code, r.Out, r.Errs)
	}
	for _, name := range []string{"plain", "away"} {
		if err := c.Clients["rome"].Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	until(t, time.Minute, "the virtual node is there", func() error {
		return c.Clients["rome"].Get(t.Context(), client.ObjectKey{Name: "milan"}, &corev1.Node{})
	})
	c.Pelago(t, "rome", "offload", "namespace", "away", "--pod-offloading-strategy", "Remote")

	var plain, away, lag sample
	for i := range pairs + 1 {
		p, _ := start(t, c, "plain", fmt.Sprintf("p%d", i))
		a, l := start(t, c, "away", fmt.Sprintf("p%d", i))
		if a > 5*time.Second {
			t.Logf("pod %d took %s", i, a)
			for _, cluster := range []string{"rome", "milan"} {
				t.Logf("%s: %s", cluster, c.Kubectl(t, cluster, "get", "events", "-A", "--sort-by=.lastTimestamp"))
				t.Logf("%s: %s", cluster, c.Kubectl(t, cluster, "logs", "-n", v1alpha1.SystemNamespace, "deploy/pelago-manager", "--tail=30"))
			}
		}
		if i > 0 { // the first of each fills caches
			plain, away, lag = append(plain, p), append(away, a), append(lag, l)
		}
	}
	t.Logf("create to Running: plain %s; offloaded %s; Running there to Running here %s", plain, away, lag)
	t.Logf("ratio %.2f", away.quantile(0.5).Seconds()/plain.quantile(0.5).Seconds())
	atMost(t, "an offloaded pod's start, longer than a plain one's, p50", (away.quantile(0.5) - plain.quantile(0.5)).Seconds(), startMore, "s")
	atMost(t, "status home, p90", lag.quantile(0.9).Seconds(), statusMost, "s")
}

// start makes a pod in a namespace of rome, waits until it is Running and removes it. It
// returns how long that took, and how long before that it was Running at milan.
func start(t *testing.T, c *kubetest.Continuum, namespace, name string) (took, lag time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	here, err := c.Clients["rome"].Watch(ctx, &corev1.PodList{}, client.InNamespace(namespace))
	if err != nil {
		t.Fatal(err)
	}
	defer here.Stop()
	there, err := c.Clients["milan"].Watch(ctx, &corev1.PodList{}, client.HasLabels{v1alpha1.LabelHomeUID})
	if err != nil {
		t.Fatal(err)
	}
	defer there.Stop()
	grace := int64(0)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &grace, Containers: []corev1.Container{{
			Name: "main", Image: benchImage, ImagePullPolicy: corev1.PullNever, Command: []string{"sleep", "1000"},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1m")}},
		}}},
	}
	begin := time.Now()
	if err := c.Clients["rome"].Create(ctx, pod); err != nil {
		t.Fatal(err)
	}
	var ran time.Time
	for took == 0 {
		var e watch.Event
		open := false
		select {
		case e, open = <-here.ResultChan():
			if isRunning(e, name) {
				took = time.Since(begin)
			}
		case e, open = <-there.ResultChan():
			if isRunning(e, name) && ran.IsZero() {
				ran = time.Now()
			}
		}
		if !open {
			t.Fatalf("%s/%s was not Running in time", namespace, name)
		}
	}
	if !ran.IsZero() {
		lag = max(0, took-ran.Sub(begin))
	}
	if err := c.Clients["rome"].Delete(ctx, pod); err != nil {
		t.Fatal(err)
	}
	for e := range here.ResultChan() {
		if gone, ok := e.Object.(*corev1.Pod); ok && e.Type == watch.Deleted && gone.Name == name {
			return took, lag
		}
	}
	t.Fatalf("%s/%s was not gone in time", namespace, name)
	return 0, 0
}

func isRunning(e watch.Event, name string) bool {
	pod, ok := e.Object.(*corev1.Pod)
	return ok && pod.Name == name && pod.Status.Phase == corev1.PodRunning
}
