package test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// hostileShadowPods has a consumer that writes ShadowPods by hand, with the credential
// it holds, and holds that it gets no more than one that Pelago writes for.
func hostileShadowPods(t *testing.T, c *continuum) {
	s := c.offloaded(t, "rome", "--pod-offloading-strategy", "Remote")
	s.create(t, s.sleeper("honest"))
	honest := s.running(t, "honest")
	// Rome's own manager would take away what it has not written.
	scale := func(replicas string) {
		c.Kubectl(t, "rome", "scale", "-n", v1alpha1.SystemNamespace, "deploy/pelago-manager", "--replicas="+replicas)
		c.Kubectl(t, "rome", "rollout", "status", "-n", v1alpha1.SystemNamespace, "deploy/pelago-manager", "--timeout=3m")
	}
	scale("0")
	c.Kubectl(t, "rome", "wait", "--for=delete", "pods", "-n", v1alpha1.SystemNamespace, "-l", "app.kubernetes.io/name=pelago-manager", "--timeout=3m")
	t.Cleanup(func() { scale("2") })
	config := c.consumerConfig(t, "rome", "milan")
	peer, err := client.New(config, client.Options{Scheme: kubetest.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	yes, root := true, int64(0)
	hostPath := corev1.Volume{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}
	cases := []struct {
		name   string
		change func(*corev1.PodSpec)
		says   string // the field in the refusal; "" if it is stripped
	}{
		{"privileged", func(p *corev1.PodSpec) {
			p.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: &yes, RunAsUser: &root}
		}, "privileged"},
		{"hostPath", func(p *corev1.PodSpec) { p.Volumes = []corev1.Volume{hostPath} }, "hostPath"},
		{"hostNetwork", func(p *corev1.PodSpec) { p.HostNetwork = true }, "hostNetwork"},
		{"hostPID", func(p *corev1.PodSpec) { p.HostPID = true }, "hostPID"},
		{"hostPort", func(p *corev1.PodSpec) {
			p.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
		}, "hostPort"},
		{"nodeName", func(p *corev1.PodSpec) { p.NodeName = "milan-1" }, "nodeName"},
		{"system priority", func(p *corev1.PodSpec) { p.PriorityClassName = "system-node-critical" }, "priorityClassName"},
		{"service account", func(p *corev1.PodSpec) { p.ServiceAccountName, p.AutomountServiceAccountToken = "admin", &yes }, ""},
		{"tolerations", func(p *corev1.PodSpec) {
			p.Tolerations = []corev1.Toleration{{Key: "node-role.kubernetes.io/control-plane", Operator: corev1.TolerationOpExists}}
		}, ""},
	}
	shadows := map[string]*v1alpha1.ShadowPod{}
	for _, each := range cases {
		spec := boxSpec("sleep 1000")
		each.change(&spec)
		text, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		shadow := &v1alpha1.ShadowPod{
			ObjectMeta: metav1.ObjectMeta{Name: string(uuid.NewUUID()), Namespace: v1alpha1.TenantNamespace("rome")},
			Spec: v1alpha1.ShadowPodSpec{
				Home: v1alpha1.HomePod{Namespace: s.name, Name: strings.ToLower(strings.ReplaceAll(each.name, " ", "-"))}, Request: v1alpha1.DefaultRequestName,
				Labels: map[string]string{v1alpha1.LabelTenant: "somebody-else"}, Annotations: map[string]string{"k8s.v1.cni.cncf.io/networks": "host"}, Pod: string(text),
			},
		}
		if err := peer.Create(t.Context(), shadow); err != nil {
			t.Fatalf("%s: %v", each.name, err)
		}
		shadows[each.name] = shadow
		t.Cleanup(func() {
			if err := peer.Delete(context.Background(), shadow); client.IgnoreNotFound(err) != nil {
				t.Errorf("deleting the shadow pod: %v", err)
			}
		})
	}
	for _, each := range cases {
		shadow := shadows[each.name]
		var pods corev1.PodList // none of what is refused, one of what is stripped
		of := client.MatchingLabels{v1alpha1.LabelHomeUID: shadow.Name}
		s.eventually(t, offloadLimit, each.name+" is answered", func() error {
			now := &v1alpha1.ShadowPod{}
			if err := c.Clients["milan"].Get(t.Context(), client.ObjectKeyFromObject(shadow), now); err != nil {
				return err
			}
			got := condition(now.Status.Conditions, v1alpha1.ConditionAccepted)
			if each.says != "" {
				if text := fmt.Sprint(now.Status.Conditions); !strings.HasPrefix(got, "Accepted=False") || !strings.Contains(text, each.says) {
					return fmt.Errorf("%s, want a refusal that names %s: %s", got, each.says, text)
				}
				return c.Clients["milan"].List(t.Context(), &pods, of)
			}
			if !strings.HasPrefix(got, "Accepted=True") {
				return fmt.Errorf("%s", got)
			}
			if err := c.Clients["milan"].List(t.Context(), &pods, of); err != nil || len(pods.Items) != 1 {
				return fmt.Errorf("it has %d pods, want one: %v", len(pods.Items), err)
			}
			return nil
		})
		for _, pod := range pods.Items {
			switch {
			case each.says != "":
				t.Errorf("%s: a pod was made", each.name)
			case pod.Spec.ServiceAccountName != "default" || pod.Spec.AutomountServiceAccountToken == nil || *pod.Spec.AutomountServiceAccountToken,
				pod.Labels[v1alpha1.LabelTenant] != "rome", len(pod.Annotations["k8s.v1.cni.cncf.io/networks"]) > 0:
				t.Errorf("%s: account %s, labels %v, annotations %v", each.name, pod.Spec.ServiceAccountName, pod.Labels, pod.Annotations)
			}
			for _, toleration := range pod.Spec.Tolerations {
				if strings.Contains(toleration.Key, "control-plane") || toleration.Key == "" {
					t.Errorf("%s: tolerates %v", each.name, toleration)
				}
			}
		}
	}
	if twin, err := c.twin("milan", honest); err != nil || twin.Status.Phase != corev1.PodRunning {
		t.Errorf("the honest pod: %v", err)
	}
}
