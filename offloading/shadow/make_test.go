package shadow

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// container is a hand-written pod with one container that has the given fields too.
func container(more string) string {
	return `{"containers":[{"name":"web","image":"web:1"` + more + `}]}`
}

// pod is a hand-written pod with the given fields too.
func pod(more string) string {
	return `{"containers":[{"name":"web","image":"web:1"}]` + more + `}`
}

func volume(source string) string { return pod(`,"volumes":[{"name":"v",` + source + `}]`) }

func TestHostileShadowPods(t *testing.T) {
	const anywhere, unlessPrivileged = true, false
	cases := []struct {
		reason string
		pod    string
		field  string
		always bool
	}{
		{"a privileged container owns the node", container(`,"securityContext":{"privileged":true}`), "spec.containers[0].securityContext.privileged", unlessPrivileged},
		{"also as an init container", pod(`,"initContainers":[{"name":"i","image":"i","securityContext":{"privileged":true}}]`), "spec.initContainers[0].securityContext.privileged", unlessPrivileged},
		{"capabilities beyond baseline", container(`,"securityContext":{"capabilities":{"add":["CHOWN","SYS_ADMIN"]}}`), "securityContext.capabilities.add", unlessPrivileged},
		{"all capabilities", container(`,"securityContext":{"capabilities":{"add":["ALL"]}}`), "securityContext.capabilities.add", unlessPrivileged},
		{"an unmasked /proc", container(`,"securityContext":{"procMount":"Unmasked"}`), "securityContext.procMount", unlessPrivileged},
		{"a SELinux user", container(`,"securityContext":{"seLinuxOptions":{"user":"root"}}`), "seLinuxOptions.user", unlessPrivileged},
		{"a SELinux role", pod(`,"securityContext":{"seLinuxOptions":{"role":"r"}}`), "seLinuxOptions.role", unlessPrivileged},
		{"a SELinux type of the host", pod(`,"securityContext":{"seLinuxOptions":{"type":"spc_t"}}`), "seLinuxOptions.type", unlessPrivileged},
		{"no AppArmor", pod(`,"securityContext":{"appArmorProfile":{"type":"Unconfined"}}`), "appArmorProfile.type", unlessPrivileged},
		{"no seccomp", container(`,"securityContext":{"seccompProfile":{"type":"Unconfined"}}`), "seccompProfile.type", unlessPrivileged},
		{"a sysctl of the node", pod(`,"securityContext":{"sysctls":[{"name":"kernel.msgmax","value":"1"}]}`), "spec.securityContext.sysctls", unlessPrivileged},
		{"the kubelet as a scanner", container(`,"livenessProbe":{"httpGet":{"port":80,"host":"169.254.169.254"}}`), "livenessProbe.httpGet.host", unlessPrivileged},
		{"the kubelet as a scanner, by a hook", container(`,"lifecycle":{"preStop":{"tcpSocket":{"port":80,"host":"10.0.0.1"}}}`), "lifecycle.preStop.tcpSocket.host", unlessPrivileged},
		{"mounts into the node", container(`,"volumeMounts":[{"name":"v","mountPath":"/v","mountPropagation":"Bidirectional"}]`), "mountPropagation", unlessPrivileged},
		{"a process of a Windows host", pod(`,"securityContext":{"windowsOptions":{"hostProcess":true}}`), "windowsOptions.hostProcess", anywhere},
		{"an account of the provider's directory", pod(`,"securityContext":{"windowsOptions":{"gmsaCredentialSpecName":"g"}}`), "gmsaCredentialSpecName", anywhere},
		{"the node's network", pod(`,"hostNetwork":true`), "spec.hostNetwork", anywhere},
		{"the node's processes", pod(`,"hostPID":true`), "spec.hostPID", anywhere},
		{"the node's IPC", pod(`,"hostIPC":true`), "spec.hostIPC", anywhere},
		{"a port of the node", container(`,"ports":[{"containerPort":80,"hostPort":80}]`), "ports[0].hostPort", anywhere},
		{"a node of one's choice", pod(`,"nodeName":"control-plane"`), "spec.nodeName", anywhere},
		{"a scheduler of one's choice", pod(`,"schedulerName":"own"`), "spec.schedulerName", anywhere},
		{"a system priority", pod(`,"priorityClassName":"system-node-critical"`), "spec.priorityClassName", anywhere},
		{"a runtime class", pod(`,"runtimeClassName":"runc-privileged"`), "spec.runtimeClassName", anywhere},
		{"a device", pod(`,"resourceClaims":[{"name":"gpu","resourceClaimName":"gpu"}]`), "spec.resourceClaims", anywhere},
		{"a device of a container", container(`,"resources":{"claims":[{"name":"gpu"}]}`), "resources.claims", anywhere},
		{"the node's files", volume(`"hostPath":{"path":"/"}`), "volumes[0].hostPath", anywhere},
		{"a volume claim", volume(`"persistentVolumeClaim":{"claimName":"c"}`), "volumes[0].persistentVolumeClaim", anywhere},
		{"a claim made for the pod", volume(`"ephemeral":{"volumeClaimTemplate":{"spec":{}}}`), "volumes[0].ephemeral", anywhere},
		{"a driver on the node", volume(`"csi":{"driver":"secrets"}`), "volumes[0].csi", anywhere},
		{"network storage", volume(`"nfs":{"server":"10.0.0.1","path":"/"}`), "volumes[0].nfs", anywhere},
		{"a block device", container(`,"volumeDevices":[{"name":"v","devicePath":"/dev/x"}]`), "volumeDevices", anywhere},
		{"a token of the provider", volume(`"projected":{"sources":[{"serviceAccountToken":{"path":"t"}}]}`), "serviceAccountToken", anywhere},
		{"a trust bundle", volume(`"projected":{"sources":[{"clusterTrustBundle":{"path":"t","name":"n"}}]}`), "clusterTrustBundle", anywhere},
		{"a certificate of the provider", volume(`"projected":{"sources":[{"podCertificate":{"signerName":"s/s","keyType":"ED25519"}}]}`), "podCertificate", anywhere},
		{"the node's name, by the environment", container(`,"env":[{"name":"N","valueFrom":{"fieldRef":{"fieldPath":"spec.nodeName"}}}]`), "env[0].valueFrom.fieldRef", anywhere},
		{"the node's address, by the environment", container(`,"env":[{"name":"N","valueFrom":{"fieldRef":{"fieldPath":"status.hostIP"}}}]`), "env[0].valueFrom.fieldRef", anywhere},
		{"the provider's labels, by a file", volume(`"downwardAPI":{"items":[{"path":"p","fieldRef":{"fieldPath":"metadata.labels"}}]}`), "items[0].fieldRef", anywhere},
		{"the provider's annotations, by a projected file", volume(`"projected":{"sources":[{"downwardAPI":{"items":[{"path":"p","fieldRef":{"fieldPath":"metadata.annotations['pelago.dev/applied']"}}]}}]}`), "items[0].fieldRef", anywhere},
		{"two containers of one name", `{"containers":[{"name":"a","image":"a"},{"name":"a","image":"b"}]}`, "spec.containers[1].name", anywhere},
		{"an init container of the same name", `{"containers":[{"name":"a","image":"a"}],"initContainers":[{"name":"a","image":"b"}]}`, "spec.containers[0].name", anywhere},
		{"two volumes of one name", pod(`,"volumes":[{"name":"v"},{"name":"v"}]`), "spec.volumes[1].name", anywhere},
		{"a container without a name", `{"containers":[{"image":"a"}]}`, "spec.containers[0].name", anywhere},
		{"a field that nobody knows", pod(`,"hostEverything":true`), "hostEverything", anywhere},
		{"a field in another case", pod(`,"HostNetwork":true`), "HostNetwork", anywhere},
		{"a field twice", pod(`,"hostNetwork":true,"hostNetwork":false`), "hostNetwork", anywhere},
		{"no JSON", `{`, "spec.pod", anywhere},
		{"no object", `[]`, "spec.pod", anywhere},
		{"null", `null`, "spec.pod", anywhere},
		{"a list for a text", pod(`,"hostname":["x"]`), "spec.pod", anywhere},
		{"more after the object", pod("") + `{}`, "spec.pod", anywhere},
		{"a thousand containers", `{"containers":[` + strings.TrimSuffix(strings.Repeat(`{},`, 1000), ",") + `]}`, "1000 items, at most 64", anywhere},
		{"65 init containers", pod(`,"initContainers":[` + strings.TrimSuffix(strings.Repeat(`{},`, 65), ",") + `]`), "65 items, at most 64", anywhere},
		{"129 volumes", pod(`,"volumes":[` + strings.TrimSuffix(strings.Repeat(`{},`, 129), ",") + `]`), "129 items, at most 128", anywhere},
		{"1025 variables", container(`,"env":[` + strings.TrimSuffix(strings.Repeat(`{},`, 1025), ",") + `]`), "1025 items, at most 1024", anywhere},
		{"a huge text", pod(`,"hostname":"` + strings.Repeat("x", maxPodText) + `"`), "at most 65536", anywhere},
		{"too deep", pod(`,"x":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000)), "deep", anywhere},
		{"deeper than any parser", strings.Repeat("[", 100000), "spec.pod", anywhere},
		{"a quantity that takes minutes", container(`,"resources":{"limits":{"cpu":"1e999999999"}}`), "limits.cpu", anywhere},
		{"the same, said twice", container(`,"resources":{"limits":{"cpu":"1e999999999","cpu":"1"}}`), "cpu", anywhere},
		{"the same as a number", container(`,"resources":{"limits":{"cpu":1e999999999}}`), "spec.pod", anywhere},
		{"a long quantity", container(`,"resources":{"limits":{"cpu":"` + strings.Repeat("1", 33) + `"}}`), "limits.cpu", anywhere},
		{"a quantity in a volume", volume(`"emptyDir":{"sizeLimit":"1e-999999999"}`), "sizeLimit", anywhere},
		{"a quantity in the downward API", container(`,"env":[{"name":"N","valueFrom":{"resourceFieldRef":{"resource":"limits.cpu","divisor":"1e999999999"}}}]`), "divisor", anywhere},
		{"a quantity of the pod", pod(`,"resources":{"limits":{"cpu":"1e999999999"}}`), "limits.cpu", anywhere},
		{"an object for a quantity", pod(`,"resources":{"limits":{"cpu":{}}}`), "limits.cpu", anywhere},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			start := time.Now()
			for _, level := range []v1alpha1.PodSecurity{"", v1alpha1.PodSecurityBaseline, v1alpha1.PodSecurityRestricted, v1alpha1.PodSecurityPrivileged} {
				g := there
				g.PodSecurity = level
				got, _, err := Make(handwritten(c.pod), g)
				if level == v1alpha1.PodSecurityPrivileged && !c.always {
					if err != nil {
						t.Errorf("a privileged tenant is refused: %v", err)
					}
					continue
				}
				var refusal *Refusal
				if !errors.As(err, &refusal) || got != nil {
					t.Fatalf("level %q: made %v, error %v", level, got, err)
				}
				if !strings.Contains(err.Error(), c.field) || len(err.Error()) > maxRefusal {
					t.Errorf("level %q: %q does not name %s, or is too long", level, err, c.field)
				}
			}
			if took := time.Since(start); took > 20*time.Second {
				t.Errorf("took %s", took)
			}
		})
	}
}

func TestHostileMetadata(t *testing.T) {
	many := map[string]string{}
	for i := range 129 {
		many[fmt.Sprint("k", i)] = "v"
	}
	cases := []struct {
		reason string
		change func(*v1alpha1.ShadowPod)
		field  string
	}{
		{"not a UID", func(s *v1alpha1.ShadowPod) { s.Name = "web" }, "metadata.name"},
		{"a name with a slash", func(s *v1alpha1.ShadowPod) { s.Spec.Home.Name = "../x" }, "spec.home.name"},
		{"a namespace with a dot", func(s *v1alpha1.ShadowPod) { s.Spec.Home.Namespace = "a.b" }, "spec.home.namespace"},
		{"a request that is no label", func(s *v1alpha1.ShadowPod) { s.Spec.Request = "a b" }, "spec.request"},
		{"an evil label key", func(s *v1alpha1.ShadowPod) { s.Spec.Labels = map[string]string{"a/b/c": ""} }, "spec.labels"},
		{"a label key with a line", func(s *v1alpha1.ShadowPod) { s.Spec.Labels = map[string]string{"a\nb": ""} }, "spec.labels"},
		{"an evil label value", func(s *v1alpha1.ShadowPod) { s.Spec.Labels = map[string]string{"a": "b c"} }, "spec.labels"},
		{"an evil annotation key", func(s *v1alpha1.ShadowPod) { s.Spec.Annotations = map[string]string{"a b": ""} }, "spec.annotations"},
		{"a long annotation", func(s *v1alpha1.ShadowPod) {
			s.Spec.Annotations = map[string]string{"a": strings.Repeat("x", maxAnnotation+1)}
		}, "spec.annotations"},
		{"much in annotations", func(s *v1alpha1.ShadowPod) {
			s.Spec.Annotations = map[string]string{"a": strings.Repeat("x", maxAnnotation), "b": strings.Repeat("x", maxAnnotation)}
		}, "spec.annotations: 32770 bytes"},
		{"too many labels", func(s *v1alpha1.ShadowPod) { s.Spec.Labels = many }, "spec.labels"},
		{"too many annotations", func(s *v1alpha1.ShadowPod) { s.Spec.Annotations = many }, "spec.annotations"},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			s := handwritten(pod(""))
			c.change(s)
			if _, _, err := Make(s, there); err == nil || !strings.Contains(err.Error(), c.field) {
				t.Errorf("the error is %v, and should name %s", err, c.field)
			}
		})
	}
}

// What is not refused is stripped.
func TestHostileShadowPodsGetNothing(t *testing.T) {
	s := handwritten(pod(`,"serviceAccountName":"admin","serviceAccount":"admin","automountServiceAccountToken":true,"priority":2000001000,
		"tolerations":[{"operator":"Exists"}],"nodeSelector":{"node-role.kubernetes.io/control-plane":"","kubernetes.io/arch":"arm64"},
		"schedulingGates":[{"name":"g"}],"overhead":{"cpu":"1k"},"preemptionPolicy":"PreemptLowerPriority","runtimeClassName":"pelago",
		"affinity":{"nodeAffinity":{},"podAffinity":{},"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[
			{"topologyKey":"h","namespaceSelector":{}},{"topologyKey":"h","namespaces":["kube-system"]},{"topologyKey":"h","namespaces":["shop"]}]}},
		"topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"h","whenUnsatisfiable":"DoNotSchedule","minDomains":5}],
		"readinessGates":[{"conditionType":"a"}],"volumes":[{"name":"kube-api-access-1","projected":{"sources":[{"serviceAccountToken":{"path":"t"}}]}}]`))
	s.Labels, s.Annotations, s.Finalizers = map[string]string{"x": "y"}, map[string]string{v1alpha1.AnnotationApplied: "lie"}, []string{"x/y"}
	s.Spec.Labels = map[string]string{"app": "web", v1alpha1.LabelTenant: "other", v1alpha1.LabelManagedBy: "me", "sub.pelago.dev/x": "y"}
	s.Spec.Annotations = map[string]string{"k8s.v1.cni.cncf.io/networks": "host", "cni.projectcalico.org/ipAddrs": "1", v1alpha1.AnnotationHomeUID: "lie",
		annotationParts: "lie", "container.apparmor.security.beta.kubernetes.io/web": "unconfined", "note": "n", v1alpha1.AnnotationHomeLabels: "a"}
	got := made(t, s)
	want := &corev1.Pod{Spec: corev1.PodSpec{
		Containers:         []corev1.Container{{Name: "web", Image: "web:1"}},
		ServiceAccountName: "default", AutomountServiceAccountToken: ptr.To(false), NodeSelector: map[string]string{"kubernetes.io/arch": "arm64"},
		Affinity:                  &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{}},
		TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "h", WhenUnsatisfiable: corev1.ScheduleAnyway}},
	}}
	want.Namespace, want.Name = "shop-rome", "web-0"
	want.Labels = map[string]string{"app": "web", v1alpha1.LabelManagedBy: ManagedBy, v1alpha1.LabelTenant: "rome", v1alpha1.LabelRequest: "default", v1alpha1.LabelHomeUID: homeUID}
	want.Annotations = map[string]string{"note": "n", v1alpha1.AnnotationApplied: Hash(s.Spec), v1alpha1.AnnotationHomeNamespace: "shop",
		v1alpha1.AnnotationHomeName: "web-0", v1alpha1.AnnotationHomeUID: homeUID, v1alpha1.AnnotationHomeLabels: "a", annotationParts: got.Annotations[annotationParts]}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if strings.Contains(got.Annotations[annotationParts], "lie") {
		t.Error("the record of what was asked is the peer's")
	}
}

// TestMakeLeavesOut holds that an ephemeral container is left out that is refused, with a reason that
// names it, and that all else of the pod is as if it were not there.
func TestMakeLeavesOut(t *testing.T) {
	const fine = `{"name":"fine","image":"i"}`
	for _, c := range []struct {
		reason, all, name, field string
		always                   bool
	}{
		{"a privileged one", fine + `,{"name":"bad","image":"i","securityContext":{"privileged":true}}`, `"bad"`, "spec.ephemeralContainers[1].securityContext.privileged", false},
		{"one of kubectl debug", `{"name":"bad","image":"i","securityContext":{"capabilities":{"add":["SYS_PTRACE"]}}},` + fine, `"bad"`, "spec.ephemeralContainers[0].securityContext.capabilities.add", false},
		{"one that is a process of a Windows host", fine + `,{"name":"bad","image":"i","securityContext":{"windowsOptions":{"hostProcess":true}}}`, `"bad"`, "hostProcess", true},
		{"one with the name of a container", `{"name":"web","image":"i"},` + fine, `"web"`, "spec.ephemeralContainers[0].name", true},
		{"one with the name of another", fine + "," + fine, `"fine"`, "spec.ephemeralContainers[1].name", true},
		{"one without a name", `{"image":"i"},` + fine, `""`, "spec.ephemeralContainers[0].name", true},
	} {
		s := handwritten(pod(`,"ephemeralContainers":[` + c.all + `]`))
		want := made(t, handwritten(pod(`,"ephemeralContainers":[`+fine+`]`)))
		got, left, err := Make(s, there)
		if err != nil || len(left) != 1 || !strings.Contains(left[0], c.name) || !strings.Contains(left[0], c.field) {
			t.Errorf("%s: left out %q, error %v", c.reason, left, err)
			continue
		}
		got.Annotations[v1alpha1.AnnotationApplied] = want.Annotations[v1alpha1.AnnotationApplied] // of the text, which differs
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-without it +got):\n%s", c.reason, diff)
		}
		g := there
		g.PodSecurity = v1alpha1.PodSecurityPrivileged
		if _, left, err := Make(s, g); err != nil || (len(left) == 1) != c.always {
			t.Errorf("%s, for a privileged tenant: left out %q, error %v", c.reason, left, err)
		}
	}
}

func TestMakeFinalizer(t *testing.T) {
	for policy, want := range map[string]int{"Always": 0, "": 0, "OnFailure": 1, "Never": 1} {
		if got := made(t, handwritten(pod(`,"restartPolicy":"`+policy+`"`))).Finalizers; len(got) != want {
			t.Errorf("a pod with restartPolicy %q has finalizers %v", policy, got)
		}
	}
}

// Setting again what Forge dropped changes nothing, whichever field it is.
func TestMakeDropsWhatForgeDrops(t *testing.T) {
	s := forged(t, homePod())
	want := made(t, s)
	spec, err := decodePod(s.Spec.Pod)
	if err != nil {
		t.Fatal(err)
	}
	home := homePod().Spec
	spec.ServiceAccountName, spec.DeprecatedServiceAccount, spec.AutomountServiceAccountToken = home.ServiceAccountName, home.ServiceAccountName, ptr.To(true)
	spec.Tolerations, spec.Priority, spec.PriorityClassName, spec.PreemptionPolicy = home.Tolerations, home.Priority, home.PriorityClassName, home.PreemptionPolicy
	spec.RuntimeClassName, spec.Overhead, spec.ReadinessGates, spec.NodeSelector = home.RuntimeClassName, home.Overhead, home.ReadinessGates, home.NodeSelector
	spec.SchedulingGates, spec.SchedulingGroup = []corev1.PodSchedulingGate{{Name: "g"}}, &corev1.PodSchedulingGroup{}
	spec.Affinity.NodeAffinity, spec.Affinity.PodAffinity = home.Affinity.NodeAffinity, home.Affinity.PodAffinity
	spec.TopologySpreadConstraints[0].WhenUnsatisfiable, spec.TopologySpreadConstraints[0].MinDomains = corev1.DoNotSchedule, ptr.To[int32](3)
	spec.Volumes = append(spec.Volumes, home.Volumes[3])
	spec.Containers[0].VolumeMounts = append(spec.Containers[0].VolumeMounts, home.Containers[0].VolumeMounts[2])
	spec.Containers[0].Ports[0].HostIP = "0.0.0.0"
	labels := maps.Clone(s.Spec.Labels)
	labels["pelago.dev/tenant"], labels["topology.kubernetes.io/zone"] = "other", "z"
	again := s.DeepCopy()
	again.Spec.Labels, again.Spec.Pod = labels, text(t, spec)
	again.Spec.Annotations["k8s.v1.cni.cncf.io/networks"] = "host"
	got := made(t, again)
	got.Annotations[v1alpha1.AnnotationApplied] = want.Annotations[v1alpha1.AnnotationApplied] // of the text, which differs
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-forged +handwritten):\n%s", diff)
	}
}

func TestMakeIsDeterministic(t *testing.T) {
	want, wantPod := forged(t, homePod()), made(t, forged(t, homePod()))
	for range 20 {
		s := forged(t, homePod())
		if diff := cmp.Diff(want, s); diff != "" {
			t.Fatalf("Forge:\n%s", diff)
		}
		if diff := cmp.Diff(wantPod, made(t, s)); diff != "" {
			t.Fatalf("Make:\n%s", diff)
		}
	}
	before := text(t, want)
	made(t, want)
	if before != text(t, want) {
		t.Error("Make changes the ShadowPod")
	}
}

func TestManyReasonsAreBounded(t *testing.T) {
	var ports []string
	for i := range 1000 {
		ports = append(ports, fmt.Sprintf(`{"containerPort":%d,"hostPort":%d}`, i+1, i+1))
	}
	_, _, err := Make(handwritten(container(`,"ports":[`+strings.Join(ports, ",")+`]`)), there)
	var refusal *Refusal
	if !errors.As(err, &refusal) || len(refusal.Reasons) > maxReasonCount+1 || len(err.Error()) > maxRefusal || !strings.Contains(err.Error(), "more") {
		t.Errorf("%d reasons in %d bytes: %v", len(refusal.Reasons), len(err.Error()), err)
	}
}

// TestMakeBoundsGrace holds that no tenant keeps a node from being drained for as long as it likes.
func TestMakeBoundsGrace(t *testing.T) {
	for asked, want := range map[int64]int64{0: 0, 30: 30, 600: 600, 601: 600, 1e9: 600} {
		home := homePod()
		home.Spec.TerminationGracePeriodSeconds = &asked
		s := forged(t, home)
		s.Spec.Pod = strings.Replace(s.Spec.Pod, `"terminationGracePeriodSeconds":600`, fmt.Sprintf(`"terminationGracePeriodSeconds":%d`, asked), 1) // as one writes it who is no Pelago
		if got := made(t, s).Spec.TerminationGracePeriodSeconds; got == nil && want != 30 || got != nil && *got != want {
			t.Errorf("%d seconds were asked for, and the pod has %v", asked, got)
		}
	}
}

// TestBaselineSysctls holds the sysctls that the Pod Security Standard baseline allows in the oldest release of Kubernetes that is
// supported, as the policy of k8s.io/pod-security-admission lists them.
func TestBaselineSysctls(t *testing.T) {
	for _, name := range []string{
		"kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range",
		"net.ipv4.ip_unprivileged_port_start", "net.ipv4.ip_local_reserved_ports", "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout",
		"net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem",
	} {
		if _, _, err := Make(handwritten(pod(`,"securityContext":{"sysctls":[{"name":"`+name+`","value":"1"}]}`)), there); err != nil {
			t.Errorf("%s is refused: %v", name, err)
		}
	}
}
