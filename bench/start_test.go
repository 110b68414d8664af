package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/bench/plot"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

const (
	pairs = 25
	// What the product promises, on 2 cores, both clusters on the same machine.
	startMore  = 0.15 // seconds that an offloaded pod may take longer, p50
	statusMost = 1.0  // seconds from Running there to Running here, p90
	batchLeast = 0.8  // pods a second of a batch, of as many plain ones
	benchImage = "pelago.test/bench:1"
	// What is made in this namespace of rome runs at milan.
	awayNamespace = "away"
	// So many pods are made at once, so many times.
	batch, batches = 20, 7
)

// TestStart measures pods from their creation to Running: at home and offloaded in turn,
// with real containers, so that what differs is ours. One alone, and how long after it
// runs there home knows; then a batch at once.
func TestStart(t *testing.T) {
	c := continuum(t, smallClusters)
	c.Run(t, "image", "build", benchImage, "--from-packages", "busybox-static")
	c.Run(t, "image", "load", benchImage, "rome", "milan")
	peer(t, c)
	for _, place := range [][2]string{{"rome", "plain"}, {"milan", "plain"}, {"rome", awayNamespace}} {
		if err := c.Clients[place[0]].Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: place[1]}}); err != nil {
			t.Fatal(err)
		}
	}
	c.Pelago(t, "rome", "offload", "namespace", awayNamespace, "--pod-offloading-strategy", "Remote")

	var here, there, away, lag sample
	for i := range pairs + 1 {
		p, _ := start(t, c, "rome", "plain", fmt.Sprintf("p%d", i))
		q, _ := start(t, c, "milan", "plain", fmt.Sprintf("p%d", i))
		a, l := start(t, c, "rome", awayNamespace, fmt.Sprintf("p%d", i))
		if a > 5*time.Second {
			t.Logf("pod %d took %s", i, a)
			for _, cluster := range []string{"rome", "milan"} {
				t.Logf("%s: %s", cluster, c.Kubectl(t, cluster, "get", "events", "-A", "--sort-by=.lastTimestamp"))
				t.Logf("%s: %s", cluster, c.Kubectl(t, cluster, "logs", "-n", v1alpha1.SystemNamespace, "-l", "app.kubernetes.io/name=pelago-manager", "--prefix", "--tail=30"))
			}
		}
		if i > 0 { // the first of each fills caches
			here, there, away, lag = append(here, p), append(there, q), append(away, a), append(lag, l)
		}
	}
	// The nodes of two clusters are not alike, so the faster of the two is the baseline.
	plain := min(here.quantile(0.5), there.quantile(0.5))
	t.Logf("create to Running: plain at home %s; plain at the provider %s; offloaded %s; Running there to Running here %s", here, there, away, lag)
	t.Logf("ratio to the faster plain one %.2f", away.quantile(0.5).Seconds()/plain.Seconds())
	atMost(t, "an offloaded pod's start, longer than a plain one's, p50", (away.quantile(0.5) - plain).Seconds(), startMore, "s")
	atMost(t, "status home, p90", lag.quantile(0.9).Seconds(), statusMost, "s")
	chart := startChart(here, there, away)
	t.Run("Batch", func(t *testing.T) { draw(t, "start", chart, batchChart(startBatches(t, c))) })
}

// The places where pods are started, as charts have them.
const atHome, atProvider, offloaded = "plain at home", "plain at the provider", "offloaded"

// startChart draws how long one pod takes.
func startChart(here, there, away sample) (c plot.Chart) {
	c.Title = "create to Running, seconds"
	for _, group := range []struct {
		name     string
		quantile float64
	}{{"p50", 0.5}, {"p90", 0.9}} {
		c.Set(group.name, atHome, here.quantile(group.quantile).Seconds())
		c.Set(group.name, atProvider, there.quantile(group.quantile).Seconds())
		c.Set(group.name, offloaded, away.quantile(group.quantile).Seconds())
	}
	return c
}

// batchChart draws how long a batch takes.
func batchChart(took []sample) (c plot.Chart) {
	c.Title = fmt.Sprintf("%d at once, until the last is Running, p50, seconds", batch)
	for i, name := range []string{atHome, atProvider, offloaded} {
		c.Set("", name, took[i].quantile(0.5).Seconds())
	}
	return c
}

func TestStartCharts(t *testing.T) {
	of := func(n int) sample { return sample{time.Duration(n) * time.Second} }
	got := []plot.Chart{startChart(of(1), of(2), of(3)), batchChart([]sample{of(4), of(5), of(6)})}
	want := []plot.Chart{
		{Title: "create to Running, seconds", Groups: []string{"p50", "p90"}, Series: []plot.Series{
			{Name: "plain at home", Values: []float64{1, 1}}, {Name: "plain at the provider", Values: []float64{2, 2}}, {Name: "offloaded", Values: []float64{3, 3}},
		}},
		{Title: "20 at once, until the last is Running, p50, seconds", Groups: []string{""}, Series: []plot.Series{
			{Name: "plain at home", Values: []float64{4}}, {Name: "plain at the provider", Values: []float64{5}}, {Name: "offloaded", Values: []float64{6}},
		}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// startBatches measures batches at home, at the provider and offloaded in turn, and holds
// the offloaded ones against the faster of the others. It returns how long they took, in that order.
func startBatches(t *testing.T, c *kubetest.Continuum) (took []sample) {
	bursts := []burst{
		{c: c, cluster: "rome", namespace: "plain", real: true},
		{c: c, cluster: "milan", namespace: "plain", real: true},
		{c: c, cluster: "rome", namespace: awayNamespace, real: true},
	}
	took = make([]sample, len(bursts))
	for i := range batches + 1 {
		for k, b := range bursts {
			all, _ := b.start(t, batch)
			b.end(t, batch)
			if i > 0 { // the first of each fills caches
				took[k] = append(took[k], all)
			}
		}
	}
	plain, away := min(took[0].quantile(0.5), took[1].quantile(0.5)), took[2].quantile(0.5)
	t.Logf("%d at once, until the last is Running: plain at home %s; plain at the provider %s; offloaded %s", batch, took[0], took[1], took[2])
	atLeast(t, fmt.Sprintf("%d pods at once, pods a second, of plain ones", batch), plain.Seconds()/away.Seconds(), batchLeast, "×")
	return took
}

// start makes a pod in a namespace of a cluster, waits until it is Running and removes it.
// It returns how long that took, and how long before that it was Running at milan: of one that is
// offloaded that must have been seen, if not before, then after.
func start(t *testing.T, c *kubetest.Continuum, cluster, namespace, name string) (took, lag time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	here, err := c.Clients[cluster].Watch(ctx, &corev1.PodList{}, client.InNamespace(namespace))
	if err != nil {
		t.Fatal(err)
	}
	defer here.Stop()
	there, err := c.Clients["milan"].Watch(ctx, &corev1.PodList{}, client.HasLabels{v1alpha1.LabelHomeUID})
	if err != nil {
		t.Fatal(err)
	}
	defer there.Stop()
	// A second, so that it is gone only when its container is. No token: mounting one takes time of its own.
	grace, token := int64(1), false
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &grace, AutomountServiceAccountToken: &token, Containers: []corev1.Container{{
			Name: "main", Image: benchImage, ImagePullPolicy: corev1.PullNever, Command: []string{"sleep", "1000"},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1m")}},
		}}},
	}
	begin := time.Now()
	if err := c.Clients[cluster].Create(ctx, pod); err != nil {
		t.Fatal(err)
	}
	var ran time.Time
	for took == 0 || namespace == awayNamespace && ran.IsZero() {
		var e watch.Event
		open := false
		select {
		case e, open = <-here.ResultChan():
			if isRunning(e, name) && took == 0 {
				took = time.Since(begin)
			}
		case e, open = <-there.ResultChan():
			if isRunning(e, name) && ran.IsZero() {
				ran = time.Now()
			}
		}
		if !open {
			t.Fatalf("%s/%s was not seen Running in time: at %s after %s, at milan: %t", namespace, name, cluster, took, !ran.IsZero())
		}
	}
	if !ran.IsZero() {
		lag = max(0, took-ran.Sub(begin))
	}
	if err := c.Clients[cluster].Delete(ctx, pod); err != nil {
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
