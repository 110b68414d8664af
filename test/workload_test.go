package test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// callerImage has a shell and curl.
const callerImage = "pelago.test/caller:1"

// offloadLimit ends a wait for a namespace to be offloaded, or a pod to run.
const offloadLimit = patience

// goneLimit is how long a deleted namespace may take to go. Kubernetes deletes none while
// its discovery calls an aggregated API stale, and it asks Pelago's again once a minute.
const goneLimit = 2 * time.Minute

// shop is a namespace of a scenario.
type shop struct {
	*continuum
	cluster, name string
}

// leaving are namespaces on their way out, as cluster and name.
type leaving struct {
	mu  sync.Mutex
	all [][2]string
}

func (l *leaving) add(cluster, namespace string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, [2]string{cluster, namespace})
}

// goneAtLast has parts wait for the pods of their namespaces alone, and the whole test for the
// namespaces: those that go while Pelago begins anew take up to a minute more.
func (c *continuum) goneAtLast(t *testing.T) {
	c.leaving = &leaving{}
	t.Cleanup(func() {
		for _, each := range c.leaving.all {
			c.namespaceGone(t, each[0], each[1])
		}
	})
}

// namespaceGone waits until a namespace is gone.
func (c *continuum) namespaceGone(t *testing.T, cluster, name string) {
	t.Helper()
	eventually(t, goneLimit, "namespace "+name+" is gone", func() error {
		n, err := get[corev1.Namespace](c, cluster, "", name)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there: %+v, %v", n.Status.Conditions, err)
	})
}

// shop makes a namespace and removes it when the test ends.
func (c *continuum) shop(t *testing.T, cluster string) shop {
	t.Helper()
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "shop-"}}
	if err := c.Clients[cluster].Create(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	s := shop{c, cluster, n.Name}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), goneLimit)
		defer cancel()
		if err := c.Clients[cluster].Delete(ctx, n); err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("deleting namespace %s: %v", n.Name, err)
		}
		if c.leaving == nil {
			c.namespaceGone(t, cluster, n.Name)
			return
		}
		c.leaving.add(cluster, n.Name)
		eventually(t, goneLimit, "namespace "+n.Name+" has no pods", func() error {
			left, err := s.pods("")
			if err == nil && len(left) > 0 {
				err = fmt.Errorf("it has %d", len(left))
			}
			return err
		})
	})
	eventually(t, patience, "the default service account is there", func() error {
		_, err := get[corev1.ServiceAccount](c, cluster, n.Name, "default")
		return err
	})
	return s
}

// offloaded makes a namespace and offloads it.
func (c *continuum) offloaded(t *testing.T, cluster string, args ...string) shop {
	t.Helper()
	s := c.shop(t, cluster)
	c.Pelago(t, cluster, append([]string{"offload", "namespace", s.name}, args...)...)
	return s
}

// sleeper is a pod that runs until it is told to end.
func (s shop) sleeper(name string) *corev1.Pod {
	return s.script(name, "trap 'exit 0' TERM; echo started; while true; do sleep 0.2; done")
}

// script is a pod that runs a line of shell.
func (s shop) script(name, line string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.name, Labels: map[string]string{"app": name}},
		Spec:       boxSpec(line),
	}
}

func boxSpec(line string) corev1.PodSpec {
	grace := int64(5)
	return corev1.PodSpec{
		TerminationGracePeriodSeconds: &grace,
		Containers: []corev1.Container{{
			Name: "main", Image: boxImage, ImagePullPolicy: corev1.PullNever, Command: []string{"sh", "-c", line},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("8Mi")}},
		}},
	}
}

// onto pins a pod to a node, as people would.
func onto(pod *corev1.Pod, node string) *corev1.Pod {
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	return pod
}

// create makes an object. What is no fault of the object is tried again: admission waits for a manager, who may be
// beginning anew on a busy machine. That none is kept out while managers are replaced is held elsewhere.
func (s shop) create(t *testing.T, obj client.Object) {
	t.Helper()
	if obj.GetNamespace() == "" {
		obj.SetNamespace(s.name)
	}
	for deadline, tries := time.Now().Add(patience), 1; ; tries++ {
		begin := time.Now()
		err := s.Clients[s.cluster].Create(t.Context(), obj)
		if tries > 1 && apierrors.IsAlreadyExists(err) { // the answer of an earlier try was lost
			err = s.Clients[s.cluster].Get(t.Context(), client.ObjectKeyFromObject(obj), obj)
		}
		if err == nil {
			return
		}
		passing := apierrors.IsInternalError(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err)
		if !passing || time.Now().After(deadline) {
			t.Fatalf("creating %T %s: %v", obj, obj.GetName(), err)
		}
		t.Logf("creating %T %s is tried again: %v", obj, obj.GetName(), err)
		pause(begin)
	}
}

// pods are those of the namespace whose label app has a value; all if it is empty.
func (s shop) pods(app string) ([]corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var list corev1.PodList
	options := []client.ListOption{client.InNamespace(s.name)}
	if app != "" {
		options = append(options, client.MatchingLabels{"app": app})
	}
	err := s.Clients[s.cluster].List(ctx, &list, options...)
	return list.Items, err
}

// running waits until a pod is Running and Ready, and returns it.
func (s shop) running(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	s.eventually(t, offloadLimit, name+" runs and is ready", func() (err error) {
		if pod, err = get[corev1.Pod](s.continuum, s.cluster, s.name, name); err != nil {
			return err
		}
		return isReady(pod)
	})
	return pod
}

// runningAll waits until an app has exactly so many pods, all ready.
func (s shop) runningAll(t *testing.T, app string, count int) []corev1.Pod {
	t.Helper()
	var pods []corev1.Pod
	s.eventually(t, 2*offloadLimit, fmt.Sprintf("%d pods of %s are ready", count, app), func() (err error) {
		if pods, err = s.pods(app); err != nil {
			return err
		}
		if len(pods) != count {
			return fmt.Errorf("%d pods", len(pods))
		}
		for i := range pods {
			if err := isReady(&pods[i]); err != nil {
				return err
			}
		}
		return nil
	})
	return pods
}

// isReady says what keeps a pod from being ready.
func isReady(pod *corev1.Pod) error {
	if ready := podCondition(pod, corev1.PodReady); pod.Status.Phase != corev1.PodRunning || !strings.HasPrefix(ready, "Ready=True") || pod.DeletionTimestamp != nil {
		return fmt.Errorf("%s on %q: phase %s, %s %s, %s", pod.Name, pod.Spec.NodeName, pod.Status.Phase, ready, pod.Status.Reason, pod.Status.Message)
	}
	return nil
}

func podCondition(pod *corev1.Pod, kind corev1.PodConditionType) string {
	for _, each := range pod.Status.Conditions {
		if each.Type == kind {
			return fmt.Sprintf("%s=%s(%s)", kind, each.Status, each.Reason)
		}
	}
	return string(kind) + "=absent"
}

// eventually waits like the function of that name, and shows what the namespace looks
// like on both sides when it was in vain.
func (s shop) eventually(t *testing.T, limit time.Duration, what string, check func() error) {
	t.Helper()
	before := t.Failed()
	defer func() {
		if t.Failed() && !before {
			s.dump(t)
		}
	}()
	eventually(t, limit, what, check)
}

// never holds that something does not become true for a while. The last look has to be one that saw something.
func never(t *testing.T, window time.Duration, what string, is func() (bool, error)) {
	t.Helper()
	begin := time.Now()
	for blind := false; blind || time.Since(begin) < window; {
		yes, err := is()
		if blind = err != nil; blind && time.Since(begin) > window+patience {
			t.Fatalf("looking whether %s: %v", what, err)
		}
		if yes && !blind {
			t.Errorf("%s, and must not", what)
			return
		}
		<-time.After(200 * time.Millisecond)
	}
}

// dump shows a namespace, once per test, as someone would who looks for the fault.
func (s shop) dump(t *testing.T) {
	t.Helper()
	show := func(cluster string, args ...string) {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		out, err := s.Try(ctx, append([]string{"kubectl", cluster, "--"}, args...)...)
		t.Logf("%s$ kubectl %s\n%s%v", cluster, strings.Join(args, " "), out, err)
	}
	show(s.cluster, "get", "pods,namespaceoffloadings", "-n", s.name, "-o", "wide")
	show(s.cluster, "get", "events", "-n", s.name, "--sort-by=.lastTimestamp")
	show(s.cluster, "get", "nodes", "-o", "wide")
	show(s.cluster, "get", "namespacemaps,resourcerequests,resourceoffers", "-A", "-o", "wide")
	for cluster := range s.Clients {
		if cluster != s.cluster {
			show(cluster, "get", "shadowpods,namespacemaps", "-A", "-o", "wide")
			show(cluster, "get", "pods", "-A", "-l", v1alpha1.LabelHomeUID, "-o", "wide")
		}
		show(cluster, "get", "leases", "-n", v1alpha1.NetworkNamespace, "-o", "yaml")
		show(cluster, "logs", "-n", v1alpha1.NetworkNamespace, "-l", "app.kubernetes.io/name=pelago-agent", "--prefix", "--tail=80")
	}
	show(s.cluster, "logs", "-n", v1alpha1.SystemNamespace, "-l", "app.kubernetes.io/name=pelago-manager", "--prefix", "--tail=40")
}

// twin is the pod that a provider runs for a home pod.
func (c *continuum) twin(provider string, home *corev1.Pod) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var list corev1.PodList
	if err := c.Clients[provider].List(ctx, &list, client.MatchingLabels{v1alpha1.LabelHomeUID: string(home.UID)}); err != nil {
		return nil, err
	}
	if len(list.Items) != 1 {
		return nil, fmt.Errorf("%s runs %d pods for %s, want 1", provider, len(list.Items), home.Name)
	}
	return &list.Items[0], nil
}

// gone waits until a pod is gone at home and at a provider.
func (s shop) gone(t *testing.T, provider string, pod *corev1.Pod) {
	t.Helper()
	s.eventually(t, offloadLimit, pod.Name+" is gone on both sides", func() error {
		now, err := get[corev1.Pod](s.continuum, s.cluster, pod.Namespace, pod.Name)
		if err == nil && now.UID == pod.UID {
			return fmt.Errorf("it is at home, phase %s", now.Status.Phase)
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		if twin, err := s.twin(provider, pod); err == nil {
			return fmt.Errorf("it is at %s, phase %s", provider, twin.Status.Phase)
		}
		return nil
	})
}

// deployment of sleepers.
func (s shop) deployment(name string, replicas int32) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}}, Spec: s.sleeper(name).Spec},
		},
	}
}

// job of a script.
func (s shop) job(name, line string) *batchv1.Job {
	backoff := int32(0)
	spec := boxSpec(line)
	spec.RestartPolicy = corev1.RestartPolicyNever
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.name},
		Spec: batchv1.JobSpec{BackoffLimit: &backoff,
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}}, Spec: spec}},
	}
}

// nodes are the nodes that an app's pods are on, sorted.
func nodesOf(pods []corev1.Pod) []string {
	var nodes []string
	for _, pod := range pods {
		nodes = append(nodes, pod.Spec.NodeName)
	}
	slices.Sort(nodes)
	return nodes
}

// kubectl runs kubectl of the shop's cluster in its namespace, and reports how it ended.
func (s shop) kubectl(t *testing.T, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return s.Try(ctx, append([]string{"kubectl", s.cluster, "--", "-n", s.name}, args...)...)
}

// logs are the last lines of a pod of the shop, all if tail is 0.
func (s shop) logs(t *testing.T, pod string, tail int64) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return s.Logs(ctx, s.cluster, s.name, pod, tail)
}

// offloadings reads the NamespaceOffloading of the shop.
func (s shop) offloading() (*v1alpha1.NamespaceOffloading, error) {
	return get[v1alpha1.NamespaceOffloading](s.continuum, s.cluster, s.name, v1alpha1.OffloadingName)
}

// tokens says whether tokens of home travel with pods of the shop, and waits until the manager knows:
// a pod that is made before gets what was said before.
func (s shop) tokens(t *testing.T, policy v1alpha1.TokenPolicy) {
	t.Helper()
	o, err := s.offloading()
	if err == nil {
		o.Spec.ServiceAccountTokens = policy
		err = s.Clients[s.cluster].Update(t.Context(), o)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.eventually(t, offloadLimit, "the manager knows whether tokens travel", func() error {
		now, err := s.offloading()
		if err == nil && now.Status.ObservedGeneration < o.Generation {
			err = fmt.Errorf("it has seen generation %d of %d", now.Status.ObservedGeneration, o.Generation)
		}
		return err
	})
}

// phase waits for a phase of the offloading.
func (s shop) phase(t *testing.T, want v1alpha1.OffloadingPhase) *v1alpha1.NamespaceOffloading {
	t.Helper()
	var o *v1alpha1.NamespaceOffloading
	s.eventually(t, offloadLimit, "the offloading of "+s.name+" is "+string(want), func() (err error) {
		if o, err = s.offloading(); err != nil {
			return err
		}
		if o.Status.Phase != want {
			text, _ := json.Marshal(o.Status)
			return fmt.Errorf("it is %s: %s", o.Status.Phase, text)
		}
		return nil
	})
	return o
}

// forwarded starts a kubectl port-forward and returns the local address; it ends with
// the test.
func forwarded(t *testing.T, command *exec.Cmd) string {
	t.Helper()
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := command.Process.Signal(os.Interrupt); err != nil {
			t.Errorf("ending port-forward: %v", err)
		}
		_ = command.Wait() // killed by the signal
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if address, found := strings.CutPrefix(lines.Text(), "Forwarding from "); found {
			address, _, _ = strings.Cut(address, " ")
			return address
		}
	}
	t.Fatalf("port-forward ended: %v", lines.Err())
	return ""
}

// fetch gets a page, within ten seconds.
func fetch(t *testing.T, url string) string {
	t.Helper()
	client := http.Client{Timeout: 10 * time.Second}
	var text []byte
	eventually(t, patience, url+" answers", func() error {
		answer, err := client.Get(url)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		text, err = io.ReadAll(answer.Body)
		return err
	})
	return string(text)
}

// file writes a file of the test's.
func file(t *testing.T, content []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// same compares two files.
func same(t *testing.T, name string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(name)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("file came back as %d bytes, want %d: %v", len(got), len(want), err)
	}
}
