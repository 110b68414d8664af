package verify

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Every object of a check carries checkLabel with the slug. The pods that all
// checks share are those of slug webName, numbered by webLabel.
const (
	checkLabel = "pelago.dev/verify"
	webLabel   = "pelago.dev/verify-node"
	webName    = "web"

	mainContainer = "main"
	httpPort      = 8080
	workDir       = "/work"
)

// serve is a web server that answers each request with $ANSWER (the pod's name
// unless set otherwise) and the address the request came from.
const serve = `mkdir -p /work/cgi-bin
cat > /work/cgi-bin/who <<'END'
#!/bin/sh
echo "Content-Type: text/plain"
echo
echo "$ANSWER $REMOTE_ADDR"
END
chmod 755 /work/cgi-bin/who
exec httpd -f -p 8080 -h /work`

// web names the shared pod on the i-th node.
func web(i int) string { return webName + "-" + strconv.Itoa(i) }

func (e *env) labels() map[string]string { return map[string]string{checkLabel: e.slug} }

func (e *env) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: e.namespace, Name: name, Labels: e.labels()}
}

// pod returns a pod that runs a script of the shell.
func (e *env) pod(name, script string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: e.meta(name), Spec: e.podSpec(script)}
}

// template returns the same for a workload.
func (e *env) template(script string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: e.labels()}, Spec: e.podSpec(script)}
}

func (e *env) podSpec(script string) corev1.PodSpec {
	spec := corev1.PodSpec{
		TerminationGracePeriodSeconds: new(int64(1)),
		AutomountServiceAccountToken:  new(false),
		EnableServiceLinks:            new(false),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: new(true), RunAsUser: new(int64(65534)), RunAsGroup: new(int64(65534)), FSGroup: new(int64(65534)),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{
			Name: mainContainer, Image: e.Busybox, ImagePullPolicy: corev1.PullNever,
			Command: []string{"sh", "-c", script},
			Env:     []corev1.EnvVar{{Name: "ANSWER", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("5m"), corev1.ResourceMemory: resource.MustParse("8Mi"),
			}},
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
			VolumeMounts: []corev1.VolumeMount{{Name: "work", MountPath: workDir}},
		}},
		Volumes: []corev1.Volume{{Name: "work", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
	}
	for _, taint := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		spec.Tolerations = append(spec.Tolerations, corev1.Toleration{
			Key: taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(5)),
		})
	}
	if script == serve {
		spec.Containers[0].ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, TimeoutSeconds: 3, ProbeHandler: corev1.ProbeHandler{
			HTTPGet: &corev1.HTTPGetAction{Path: "/cgi-bin/who", Port: intstr.FromInt32(httpPort)},
		}}
	}
	return spec
}

// onNode lets the scheduler place a pod on one node only.
func onNode(spec *corev1.PodSpec, node string) {
	spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{isNode(node)}},
	}}
}

// isNode is the term that selects a node by its name, whatever its labels.
func isNode(node string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{
		{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
	}}
}

// service returns a Service of port 80 before the check's web servers, or those
// with these labels; in as many families as the cluster has.
func (e *env) service(name string, selector map[string]string) *corev1.Service {
	if selector == nil {
		selector = e.labels()
	}
	return &corev1.Service{ObjectMeta: e.meta(name), Spec: corev1.ServiceSpec{
		Selector:       selector,
		IPFamilyPolicy: new(corev1.IPFamilyPolicyPreferDualStack),
		Ports:          []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(httpPort)}},
	}}
}

// webService returns a Service before the shared pods.
func (e *env) webService(name string) *corev1.Service {
	return e.service(name, map[string]string{checkLabel: webName})
}

func (e *env) createPod(ctx context.Context, p *corev1.Pod) error {
	if _, err := e.client.CoreV1().Pods(e.namespace).Create(ctx, p, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating pod %s: %w", p.Name, err)
	}
	return nil
}

func (e *env) createService(ctx context.Context, s *corev1.Service) (*corev1.Service, error) {
	made, err := e.client.CoreV1().Services(e.namespace).Create(ctx, s, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("creating service %s: %w", s.Name, err)
	}
	return made, nil
}
