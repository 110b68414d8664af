package test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/pelago-dev/pelago/internal/kubetest"
)

const (
	boxImage = "pelago.test/box:1" // busybox: a shell, httpd, wget
	webPort  = 8080
	podLimit = 2 * time.Minute
)

// box builds the image that pods of scenarios run, and gives it to clusters.
func box(t *testing.T, s *kubetest.SandboxHandle, clusters ...string) {
	t.Helper()
	s.Run(t, "image", "build", boxImage, "--from-packages", "busybox-static")
	s.Run(t, append([]string{"image", "load", boxImage}, clusters...)...)
}

// place is a namespace of a scenario in one cluster.
type place struct {
	cluster   string
	namespace string
	client    kubernetes.Interface
}

// newPlace makes a namespace in a cluster and removes it when the test ends.
func newPlace(t *testing.T, s *kubetest.SandboxHandle, cluster string) place {
	t.Helper()
	client, err := kubernetes.NewForConfig(s.Config(t, cluster))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), podLimit)
	defer cancel()
	made, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "scenario-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("making a namespace in %s: %v", cluster, err)
	}
	p := place{cluster: cluster, namespace: made.Name, client: client}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), podLimit)
		defer cancel()
		if err := client.CoreV1().Namespaces().Delete(ctx, p.namespace, metav1.DeleteOptions{}); err != nil {
			t.Errorf("removing namespace %s of %s: %v", p.namespace, cluster, err)
		}
	})
	eventually(t, podLimit, "the default service account is there", func() error {
		_, err := client.CoreV1().ServiceAccounts(p.namespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	return p
}

// web starts a pod on a node that answers HTTP with the name of its cluster.
func (p place) web(t *testing.T, name, node string) {
	t.Helper()
	grace := int64(0)
	script := fmt.Sprintf("mkdir -p /www && echo %s > /www/index.html && exec httpd -f -p %d -h /www", p.cluster, webPort)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{
			NodeSelector:                  map[string]string{"kubernetes.io/hostname": node},
			TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{
				Name: "web", Image: boxImage, ImagePullPolicy: corev1.PullNever, Command: []string{"sh", "-c", script},
				ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
					HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(webPort)}}},
			}},
		},
	}
	ctx, cancel := context.WithTimeout(t.Context(), podLimit)
	defer cancel()
	if _, err := p.client.CoreV1().Pods(p.namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatalf("making pod %s in %s: %v", name, p.cluster, err)
	}
}

// ready waits until all pods of the place are ready and returns their addresses by name.
func (p place) ready(t *testing.T) map[string]string {
	t.Helper()
	addresses := map[string]string{}
	eventually(t, podLimit, "all pods in "+p.cluster+" are ready", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		pods, err := p.client.CoreV1().Pods(p.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		clear(addresses)
		for _, pod := range pods.Items {
			if pod.DeletionTimestamp != nil {
				continue
			}
			if !podReady(pod) {
				return fmt.Errorf("pod %s is %s: %+v", pod.Name, pod.Status.Phase, pod.Status.ContainerStatuses)
			}
			addresses[pod.Name] = pod.Status.PodIP
		}
		return nil
	})
	return addresses
}

func podReady(pod corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// remove deletes pods by name.
func (p place) remove(t *testing.T, names ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), podLimit)
	defer cancel()
	for _, name := range names {
		if err := p.client.CoreV1().Pods(p.namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatalf("deleting pod %s in %s: %v", name, p.cluster, err)
		}
	}
}

// nodePort makes a Service of the pods and returns its port on every node.
func (p place) nodePort(t *testing.T) int32 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), podLimit)
	defer cancel()
	service, err := p.client.CoreV1().Services(p.namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Selector: map[string]string{"app": "web"},
			Ports: []corev1.ServicePort{{Port: webPort}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("making a Service in %s: %v", p.cluster, err)
	}
	return service.Spec.Ports[0].NodePort
}

// fetch gets a page from inside a pod.
func (p place) fetch(t *testing.T, s *kubetest.SandboxHandle, pod, address string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := s.Try(ctx, "kubectl", p.cluster, "--", "exec", "-n", p.namespace, pod, "--", "timeout", "5", "wget", "-q", "-O", "-", "http://"+address+"/") // its own time limit, -T, crashes the static busybox
	return strings.TrimSpace(out), err
}

func hostPort(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		t.Fatalf("%q is not a URL: %v", address, err)
	}
	return u.Host
}

func join(host string, port int32) string { return net.JoinHostPort(host, fmt.Sprint(port)) }
