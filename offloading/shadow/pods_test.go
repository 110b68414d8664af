package shadow

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

const homeUID = "0a1b2c3d-0000-4000-8000-0123456789ab"

var (
	here  = Place{Node: "milan", Request: "default", Address: "10.0.0.9"}
	there = Ground{Namespace: "shop-rome", Tenant: "rome"}
)

// homePod is a pod as home's API server shows it, with much of what pods can have.
func homePod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web-0", UID: homeUID, Generation: 1,
			Labels: map[string]string{"app": "web", "pelago.dev/tenant": "other", "topology.kubernetes.io/zone": "z", "pod-template-hash": "abc"},
			Annotations: map[string]string{
				"note": "a $(HOME) \"b\"\nc", "k8s.v1.cni.cncf.io/networks": "host", "prometheus.io/scrape": "true",
				"kubectl.kubernetes.io/restartedAt": "now", "pelago.dev/home-uid": "x",
			},
		},
		Spec: corev1.PodSpec{
			NodeName: "milan", SchedulerName: "default-scheduler", ServiceAccountName: "robot", DeprecatedServiceAccount: "robot",
			RestartPolicy: corev1.RestartPolicyAlways, DNSPolicy: corev1.DNSClusterFirst, TerminationGracePeriodSeconds: ptr.To[int64](30),
			EnableServiceLinks: ptr.To(true), Priority: ptr.To[int32](7), PriorityClassName: "high", PreemptionPolicy: ptr.To(corev1.PreemptLowerPriority),
			RuntimeClassName: ptr.To("pelago"), Hostname: "web-0", Subdomain: "web", Overhead: amounts("cpu", "1m"),
			SecurityContext:  &corev1.PodSecurityContext{RunAsUser: ptr.To[int64](1000), RunAsNonRoot: ptr.To(true)},
			ImagePullSecrets: []corev1.LocalObjectReference{{Name: "pull"}},
			ReadinessGates:   []corev1.PodReadinessGate{{ConditionType: "example.com/gate"}},
			NodeSelector:     map[string]string{"kubernetes.io/arch": "amd64", "pelago.dev/type": "virtual-node"},
			Tolerations: []corev1.Toleration{{Key: v1alpha1.TaintVirtualNode, Operator: corev1.TolerationOpExists},
				{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}},
			Affinity: &corev1.Affinity{
				NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{}},
				PodAffinity:  &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: "zone"}}},
				PodAntiAffinity: &corev1.PodAntiAffinity{
					RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
						{TopologyKey: "kubernetes.io/hostname", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
						{TopologyKey: "kubernetes.io/hostname", Namespaces: []string{"others"}, LabelSelector: &metav1.LabelSelector{}},
						{TopologyKey: "zone", Namespaces: []string{"others", "shop"}, LabelSelector: &metav1.LabelSelector{}},
					},
				},
			},
			TopologySpreadConstraints: []corev1.TopologySpreadConstraint{
				{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: corev1.DoNotSchedule, MinDomains: ptr.To[int32](2),
					LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, MatchLabelKeys: []string{"pod-template-hash"}},
				{MaxSkew: 2, TopologyKey: "zone", WhenUnsatisfiable: corev1.ScheduleAnyway},
			},
			Volumes: []corev1.Volume{
				{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: ptr.To(resource.MustParse("1Gi"))}}},
				{Name: "settings", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
					LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}, DefaultMode: ptr.To[int32](420)}}},
				{Name: "about", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{DefaultMode: ptr.To[int32](420), Items: []corev1.DownwardAPIVolumeFile{
					file("name", "metadata.name"), file("labels", "metadata.labels"), file("annotations", "metadata.annotations"), file("app", "metadata.labels['app']"),
					{Path: "cpu", ResourceFieldRef: &corev1.ResourceFieldSelector{ContainerName: "web", Resource: "limits.cpu", Divisor: resource.MustParse("1m")}},
				}}}},
				{Name: "kube-api-access-x7x7x", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
					{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}}}}},
			},
			InitContainers: []corev1.Container{{
				Name: "side", Image: "side:1", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways), ImagePullPolicy: corev1.PullIfNotPresent,
				TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: corev1.TerminationMessageReadFile,
			}},
			Containers: []corev1.Container{{
				Name: "web", Image: "web:1", Command: []string{"serve"}, ImagePullPolicy: corev1.PullIfNotPresent,
				TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: corev1.TerminationMessageReadFile,
				Ports:     []corev1.ContainerPort{{ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
				Resources: corev1.ResourceRequirements{Requests: amounts("cpu", "100m"), Limits: amounts("cpu", "1", "memory", "1Gi")},
				ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(8080)}},
					TimeoutSeconds: 1, PeriodSeconds: 10, SuccessThreshold: 1, FailureThreshold: 3},
				Env: []corev1.EnvVar{
					{Name: "PLAIN", Value: "x"}, env("POD", "metadata.name"), env("NODE", "spec.nodeName"), env("NOTE", "metadata.annotations['note']"),
					env("HOST", "status.hostIP"), env("IP", "status.podIP"), env("ACCOUNT", "spec.serviceAccountName"),
				},
				VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}, {Name: "about", MountPath: "/about"},
					{Name: "kube-api-access-x7x7x", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true}},
			}},
		},
	}
}

func file(path, field string) corev1.DownwardAPIVolumeFile {
	return corev1.DownwardAPIVolumeFile{Path: path, FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: field}}
}

func env(name, field string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: field}}}
}

func amounts(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

func forged(t testing.TB, pod *corev1.Pod) *v1alpha1.ShadowPod {
	t.Helper()
	s, _, err := Forge(pod, here)
	if err != nil {
		t.Fatalf("forging: %v", err)
	}
	return s
}

func made(t testing.TB, s *v1alpha1.ShadowPod) *corev1.Pod {
	t.Helper()
	pod, _, err := Make(s, there)
	if err != nil {
		t.Fatalf("making: %v", err)
	}
	return pod
}

// handwritten is a ShadowPod whose pod is a text that somebody chose.
func handwritten(text string) *v1alpha1.ShadowPod {
	return &v1alpha1.ShadowPod{
		ObjectMeta: metav1.ObjectMeta{Name: homeUID},
		Spec:       v1alpha1.ShadowPodSpec{Home: v1alpha1.HomePod{Namespace: "shop", Name: "web-0"}, Request: "default", Pod: text},
	}
}

func text(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
