package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
	"github.com/pelago-dev/pelago/internal/kubetest"
	"github.com/pelago-dev/pelago/offloading/shadow"
)

// What the smallest pod may cost, in bytes: its ShadowPod as it comes by the consumer's
// watch, four times in its life (made, running, being deleted, gone), and all of its life
// on the consumer's connection, with HTTP and TLS. To that the benchmark adds TCP, IP and
// what goes by time; its hollow nodes say some 300 bytes less each time.
const (
	madeMost    = 880
	runningMost = 2150
	goingMost   = 2220
	lifeMost    = 9700
)

// wire is a consumer's connection on which bytes are counted.
type wire struct {
	peer    *fleet.Peer
	in, out atomic.Int64
}

// metered is one connection of a wire, below TLS.
type metered struct {
	net.Conn
	w *wire
}

func (c metered) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.w.in.Add(int64(n))
	return n, err
}

func (c metered) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.w.out.Add(int64(n))
	return n, err
}

// wire connects a consumer's fleet with the bench's tenant namespace, and watches
// ShadowPods there.
func (b *bench) wire() *wire {
	b.t.Helper()
	w := &wire{}
	config := rest.CopyConfig(kubetest.Server(b.t).Config)
	b.must(rest.LoadTLSFiles(config))
	f := fleet.New(fleet.Options{Scheme: b.c.Scheme(), Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return metered{c, w}, err
	}})
	b.must(f.Watch(&v1alpha1.ShadowPod{}))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = f.Start(ctx) // it ends with ctx and has no errors
	}()
	b.t.Cleanup(func() {
		cancel()
		<-ended
	})
	b.must(f.Set(b.t.Context(), fleet.Connection{
		Peering: "milan", ServerURL: config.Host, CA: config.CAData, Certificate: config.CertData, Key: config.KeyData, TenantNamespace: b.tenantSpace(),
	}))
	w.peer, _ = f.Peer("milan")
	b.wait("the peer to answer", func() bool { ok, _, err := w.peer.Reachable(); return ok && err == nil })
	return w
}

// shown waits until the consumer sees its ShadowPod as it should be, nil for gone.
func (w *wire) shown(b *bench, what string, is func(*v1alpha1.ShadowPod) bool) {
	b.t.Helper()
	b.wait("the consumer to see that it is "+what, func() bool {
		s := &v1alpha1.ShadowPod{}
		if err := w.peer.Reader().Get(b.t.Context(), client.ObjectKey{Namespace: b.tenantSpace(), Name: b.uid}, s); err != nil {
			return is(nil)
		}
		return is(s)
	})
}

// smallest is the pod of the benchmark as home's API server has it once it is bound: with
// the volume of its service account and all defaults.
func (b *bench) smallest(name string) *corev1.Pod {
	b.t.Helper()
	const volume = "kube-api-access-x7x7x"
	amounts := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1m"), corev1.ResourceMemory: resource.MustParse("1Mi")}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: kubetest.Server(b.t).Namespace(b.t), Name: name, Labels: map[string]string{"app": "burst"}},
		Spec: corev1.PodSpec{
			// What the admission of service accounts adds, which servers of tests do not have.
			ServiceAccountName: "default",
			Volumes: []corev1.Volume{{Name: volume, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: ptr.To[int64](3607), Path: "token"}}}}}}},
			Containers: []corev1.Container{{Name: "main", Image: "pelago.test/bench:1", ImagePullPolicy: corev1.PullNever,
				Resources:    corev1.ResourceRequirements{Requests: amounts},
				VolumeMounts: []corev1.VolumeMount{{Name: volume, ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}}}},
			Tolerations: []corev1.Toleration{{Key: v1alpha1.TaintVirtualNode, Operator: corev1.TolerationOpExists}},
		},
	}
	b.must(b.c.Create(b.t.Context(), pod))
	b.must(b.c.SubResource("binding").Create(b.t.Context(), pod, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace}, Target: corev1.ObjectReference{Kind: "Node", Name: "milan"}}))
	b.must(b.c.Get(b.t.Context(), client.ObjectKeyFromObject(pod), pod))
	if len(pod.Spec.Tolerations) != 3 || pod.Spec.SecurityContext == nil {
		b.t.Fatalf("home's API server has not given the pod what pods get: %v", pod.Spec)
	}
	pod.Namespace = b.home
	return pod
}

// kubeletStarts plays a kubelet that says all that one says of a pod that runs.
func (b *bench) kubeletStarts() {
	now := metav1.Now()
	b.status(func(s *corev1.PodStatus) {
		s.Phase, s.StartTime, s.ObservedGeneration = corev1.PodRunning, &now, 1
		s.HostIP, s.PodIP, s.HostIPs, s.PodIPs = "10.0.0.1", "10.1.1.1", []corev1.HostIP{{IP: "10.0.0.1"}}, []corev1.PodIP{{IP: "10.1.1.1"}}
		for _, kind := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady} {
			s.Conditions = append(s.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now, ObservedGeneration: 1})
		}
		pod := b.pod()
		s.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "main", Ready: true, Started: ptr.To(true), Image: "pelago.test/bench:1", ImageID: "pelago.test/bench@sha256:" + strings.Repeat("0", 64),
			ContainerID: "containerd://" + strings.Repeat("1", 64), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
			AllocatedResources: pod.Spec.Containers[0].Resources.Requests, Resources: pod.Spec.Containers[0].Resources.DeepCopy(),
		}}
	})
}

// TestWire: what the life of the smallest pod sends across the link has a bound.
func TestWire(t *testing.T) {
	b := newBench(t)
	config := rest.CopyConfig(kubetest.Server(t).Config)
	config.UserAgent = component + "/v0.0.0" // becomes the name in managedFields
	named, err := client.NewWithWatch(config, client.Options{Scheme: b.c.Scheme()})
	b.must(err)
	b.restart(named)
	b.clockBack()
	node := b.node(corev1.ConditionTrue)
	w := b.wire()
	var life int64
	for i := range 3 { // the first fills HPACK's tables
		states := b.states()
		home := b.smallest(fmt.Sprintf("p-%05d", i))
		in, out := w.in.Load(), w.out.Load()
		s, _, err := shadow.Forge(home, shadow.Place{Node: "milan", Request: v1alpha1.DefaultRequestName, Address: "10.0.0.9"})
		b.must(err)
		s.Namespace, b.uid = b.tenantSpace(), s.Name
		b.must(w.peer.Client().Create(t.Context(), s))
		w.shown(b, "made", func(s *v1alpha1.ShadowPod) bool { return s != nil })
		b.once(b.uid)
		b.bind(node.Name)
		b.kubeletStarts()
		b.settle()
		w.shown(b, "running", func(s *v1alpha1.ShadowPod) bool { return s != nil && s.Status.Phase == "Running" })
		b.must(w.peer.Client().Delete(t.Context(), &v1alpha1.ShadowPod{ObjectMeta: metaOf(b.tenantSpace(), b.uid)}))
		w.shown(b, "being deleted", func(s *v1alpha1.ShadowPod) bool { return s != nil && s.DeletionTimestamp != nil })
		b.must(b.c.Delete(t.Context(), b.pod(), client.GracePeriodSeconds(0)))
		b.settle()
		w.shown(b, "gone", func(s *v1alpha1.ShadowPod) bool { return s == nil })
		life = w.in.Load() - in + w.out.Load() - out
		t.Logf("pod %d: %d bytes came, %d went", i, w.in.Load()-in, w.out.Load()-out)
		for _, most := range []int{madeMost, runningMost, goingMost, goingMost} {
			e := <-states
			t.Logf("%s: %d bytes", e.Type, len(e.Object))
			if len(e.Object) > most {
				t.Errorf("a ShadowPod that is %s has %d bytes, at most %d: every pod sends them across the link\n%s", e.Type, len(e.Object), most, e.Object)
			}
		}
	}
	if life > lifeMost {
		t.Errorf("a pod's life sends %d bytes across the link, at most %d", life, lifeMost)
	}
}

// seen is one event of a watch, as it comes.
type seen struct {
	Type   string
	Object json.RawMessage
}

// states are those of ShadowPods of the tenant, as the API server writes them.
func (b *bench) states() <-chan seen {
	b.t.Helper()
	config := rest.CopyConfig(kubetest.Server(b.t).Config)
	config.APIPath, config.GroupVersion = "/apis", &v1alpha1.GroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(b.c.Scheme()).WithoutConversion()
	c, err := rest.RESTClientFor(config)
	b.must(err)
	list := &v1alpha1.ShadowPodList{}
	b.must(b.c.List(b.t.Context(), list, client.InNamespace(b.tenantSpace())))
	answer, err := c.Get().Namespace(b.tenantSpace()).Resource("shadowpods").Param("watch", "true").Param("resourceVersion", list.ResourceVersion).Stream(b.t.Context())
	b.must(err)
	b.t.Cleanup(func() { _ = answer.Close() })
	all := make(chan seen)
	go func() {
		defer close(all)
		for decoder := json.NewDecoder(answer); ; {
			var e seen
			if decoder.Decode(&e) != nil {
				return // the test is over
			}
			select {
			case all <- e:
			case <-b.t.Context().Done():
				return
			}
		}
	}()
	return all
}
