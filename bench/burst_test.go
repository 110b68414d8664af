package bench

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

const (
	// makers is how many requests at a time make and delete what a benchmark wants many of.
	makers = 20
	// hollowNodes of each cluster take 110 pods each.
	hollowNodes = 64
	// hollowMark is the label of hollow nodes, and their taint.
	hollowMark = "sandbox.pelago.dev/hollow"
	// burstLabel is what all pods of a burst have as app.
	burstLabel = "burst"
)

// hollowClusters are a consumer and a provider with room for thousands of pods. What
// runs there starts at once, so that what is measured is the control planes and us.
var hollowClusters = fmt.Sprintf(`clusters:
- name: rome
  nodes: 1
  hollow: %[1]d
  hollowStart: 10ms
  addons: [coredns]
- name: milan
  nodes: 1
  hollow: %[1]d
  hollowStart: 10ms
  addons: [coredns, load-balancer]
`, hollowNodes)

// hollowContinuum starts them and peers them. At milan what arrives runs on hollow
// nodes alone: tolerations do not travel and nothing is offered on tainted nodes, so
// the taint goes; the real node keeps what it runs and takes nothing new.
func hollowContinuum(t *testing.T) *kubetest.Continuum {
	t.Helper()
	c := continuum(t, hollowClusters)
	peer(t, c)
	c.Kubectl(t, "milan", "cordon", "milan-1")
	c.Kubectl(t, "milan", "taint", "nodes", "-l", hollowMark, hollowMark+":NoSchedule-")
	// More objects than tenants usually have.
	c.Kubectl(t, "milan", "patch", "tenants.pelago.dev", "rome", "--type=merge", "-p",
		`{"spec":{"objects":{"shadowpods.pelago.dev":10000,"shadowobjects.pelago.dev":2000,"resourcerequests.pelago.dev":200,"resourceoffers.pelago.dev":204}}}`)
	return c
}

// hasRoom waits until rome's virtual node takes so many pods.
func hasRoom(t *testing.T, c *kubetest.Continuum, pods int) {
	t.Helper()
	poll(t, time.Second, 2*time.Minute, fmt.Sprintf("milan offers room for %d pods", pods), func() error {
		node := &corev1.Node{}
		if err := c.Clients["rome"].Get(t.Context(), client.ObjectKey{Name: "milan"}, node); err != nil {
			return err
		}
		if got := node.Status.Allocatable.Pods(); got.CmpInt64(int64(pods)) < 0 {
			return fmt.Errorf("it offers room for %s", got)
		}
		return nil
	})
}

// burst makes many pods at once in a namespace of a cluster. They are bare pods, made by
// many clients: the controllers of Deployments and Jobs make 20 a second at most, and any
// way of running pods would look equally fast behind them.
type burst struct {
	c                  *kubetest.Continuum
	cluster, namespace string
	// plain pods run on hollow nodes of the cluster; others go where their namespace
	// sends them.
	plain bool
	// real pods have a container that runs until it is killed.
	real bool
	// kind is what they have beside themselves; nothing if empty.
	kind kind
}

func (b burst) name(i int) string { return fmt.Sprintf("p-%05d", i) }

func (b burst) pod(i int) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: b.name(i), Namespace: b.namespace, Labels: map[string]string{"app": burstLabel}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "main", Image: benchImage, ImagePullPolicy: corev1.PullNever,
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("1m"), corev1.ResourceMemory: resource.MustParse("1Mi"),
			}},
		}}},
	}
	if b.real {
		// A second, in which sleep hears nothing: pods without it are gone from the API before their
		// containers are, and the end of one burst would be work of the next. No token: mounting one
		// takes time of its own.
		grace, token := int64(1), false
		pod.Spec.TerminationGracePeriodSeconds, pod.Spec.AutomountServiceAccountToken = &grace, &token
		pod.Spec.Containers[0].Command = []string{"sleep", "1000"}
	}
	b.kind.refer(pod, pod.Name)
	if b.plain {
		pod.Spec.NodeSelector = map[string]string{hollowMark: "true"}
		pod.Spec.Tolerations = []corev1.Toleration{{Key: hollowMark, Operator: corev1.TolerationOpExists}}
	}
	return pod
}

// limit bounds how long n pods may take to start, or to end.
func (b burst) limit(n int) time.Duration {
	return 2*time.Minute + time.Duration(n)*150*time.Millisecond
}

// start makes n pods and waits until their cluster shows all of them Running. It returns how long
// that took, and how long each took from the request that made it.
func (b burst) start(t *testing.T, n int) (all time.Duration, each sample) {
	t.Helper()
	return startAll(t, n, b)
}

// startAll starts n pods of each burst at the same time. It returns when the last of all ran, and
// how long each pod took, in the order of bursts.
func startAll(t *testing.T, n int, bursts ...burst) (all time.Duration, each sample) {
	t.Helper()
	limited, cancel := context.WithTimeout(t.Context(), bursts[0].limit(n*len(bursts)))
	defer cancel()
	group, ctx := errgroup.WithContext(limited)
	made, ran := make([][]time.Time, len(bursts)), make([][]time.Time, len(bursts))
	running := make([]<-chan watch.Event, len(bursts))
	for i, b := range bursts {
		made[i], ran[i] = make([]time.Time, n), make([]time.Time, n)
		running[i] = watchAll(ctx, t, b.c.Clients[b.cluster], &corev1.PodList{}, client.InNamespace(b.namespace), client.MatchingFields{"status.phase": string(corev1.PodRunning)})
	}
	begin, before := time.Now(), processors(t)
	for i, b := range bursts {
		spread(group, n, func(k int) error {
			made[i][k] = time.Now()
			return b.c.Clients[b.cluster].Create(ctx, b.pod(k))
		})
		group.Go(func() error { return b.seeRunning(running[i], ran[i]) })
	}
	if err := group.Wait(); err != nil {
		t.Fatalf("after %s: %v", time.Since(begin), err)
	}
	busy := processors(t).busySince(before)
	for i, b := range bursts {
		var own sample
		for k := range n {
			own = append(own, ran[i][k].Sub(made[i][k]))
		}
		last, end := slices.MaxFunc(made[i], time.Time.Compare), slices.MaxFunc(ran[i], time.Time.Compare)
		t.Logf("%d pods of %s: the last was asked for after %.1f s and all ran after %.1f, the processors of this machine busy for %.0f %% of that; each took %s",
			n, b.namespace, last.Sub(begin).Seconds(), end.Sub(begin).Seconds(), 100*busy, own)
		all, each = max(all, end.Sub(begin)), append(each, own...)
	}
	return all, each
}

// seeRunning notes when each of a burst's pods ran, until all did.
func (b burst) seeRunning(running <-chan watch.Event, ran []time.Time) error {
	index := map[string]int{}
	for i := range ran {
		index[b.name(i)] = i
	}
	seen := 0
	for e := range running {
		pod, ok := e.Object.(*corev1.Pod)
		if !ok || e.Type == watch.Deleted {
			continue
		}
		if i, ours := index[pod.Name]; ours && ran[i].IsZero() {
			ran[i] = time.Now()
			if seen++; seen == len(ran) {
				return nil
			}
		}
	}
	return fmt.Errorf("%d of %d pods of %s run", seen, len(ran), b.namespace)
}

// load is what all processors of this machine have done since it began, in ticks.
type load struct{ busy, all float64 }

func processors(t *testing.T) load {
	t.Helper()
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	var l load
	fields := strings.Fields(strings.SplitN(string(text), "\n", 2)[0])
	for i, field := range fields[1:min(len(fields), 9)] { // guests are in the others
		ticks, err := strconv.ParseFloat(field, 64)
		if err != nil {
			t.Fatalf("reading /proc/stat: %v", err)
		}
		l.all += ticks
		if i != 3 && i != 4 { // idle, and waiting for a disk
			l.busy += ticks
		}
	}
	return l
}

// busySince is the share of the time since then that they were busy.
func (l load) busySince(then load) float64 { return (l.busy - then.busy) / max(1, l.all-then.all) }

// watchAll sends what there is of a list and every change, until the context ends. An
// API server ends a watch whose reader is slow for a moment; it is begun again then,
// and sends what there is once more.
func watchAll(ctx context.Context, t *testing.T, c client.WithWatch, list client.ObjectList, which ...client.ListOption) <-chan watch.Event {
	t.Helper()
	changes, err := c.Watch(ctx, list, which...)
	if err != nil {
		t.Fatal(err)
	}
	out := make(chan watch.Event)
	go func() {
		defer close(out)
		for err == nil {
			for e := range changes.ResultChan() {
				select {
				case out <- e:
				case <-ctx.Done():
				}
			}
			changes.Stop()
			if ctx.Err() != nil {
				return
			}
			changes, err = c.Watch(ctx, list, which...)
		}
	}()
	return out
}

// end deletes n pods and waits until nothing of them is left in either cluster.
func (b burst) end(t *testing.T, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), b.limit(n))
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	spread(group, n, func(i int) error {
		return b.c.Clients[b.cluster].Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: b.name(i), Namespace: b.namespace}})
	})
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	poll(t, time.Second, b.limit(n), "the pods are gone", func() error {
		if err := none(t, b.c, b.cluster, &corev1.PodList{}, client.InNamespace(b.namespace)); err != nil {
			return err
		}
		if err := none(t, b.c, "milan", &v1alpha1.ShadowPodList{}, client.InNamespace(v1alpha1.TenantNamespace("rome"))); err != nil {
			return err
		}
		return none(t, b.c, "milan", &corev1.PodList{}, client.HasLabels{v1alpha1.LabelHomeUID})
	})
}

// none fails while there are objects of a kind in a cluster.
func none(t *testing.T, c *kubetest.Continuum, cluster string, list client.ObjectList, which ...client.ListOption) error {
	t.Helper()
	if err := c.Clients[cluster].List(t.Context(), list, append(which, client.Limit(1))...); err != nil {
		return err
	}
	if meta.LenList(list) > 0 {
		return fmt.Errorf("%s has something in its %T", cluster, list)
	}
	return nil
}

// spread calls do for 0 to n-1, many at a time, until one fails. Who was deleted already
// is no failure.
func spread(group *errgroup.Group, n int, do func(i int) error) {
	for first := range min(makers, n) {
		group.Go(func() error {
			for i := first; i < n; i += makers {
				if err := do(i); err != nil && !apierrors.IsNotFound(err) {
					return err
				}
			}
			return nil
		})
	}
}
