package provider

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// onward puts the pod on the virtual node of oslo.
func onward(f *facts) {
	f.beyond = &beyond{node: "n1", peering: "oslo", space: "shop-milan-rome", views: []v1alpha1.NetworkView{
		{Real: "10.42.0.0/16", View: "10.80.0.0/16"}, {Real: "10.77.0.0/16", View: "10.77.0.0/16"}, {Real: "fd42::/48", View: "fd80::/48"}}}
}

// TestBeyondAddresses: a tenant is told by which address its pod is seen here, if that is not the one that it really
// has where it went, which is looked at again while nobody knows.
func TestBeyondAddresses(t *testing.T) {
	for _, c := range []struct {
		name, addresses, want string
		again                 bool
	}{
		{"a view", "10.80.0.5", "10.80.0.5", false},
		{"its own", "10.77.0.5", "", false},
		{"one of each", "10.77.0.5 fd80::5", "fd80::5", false},
		{"both views", "10.80.0.5 fd80::5", "10.80.0.5 fd80::5", false},
		{"no view yet", "10.81.0.5", "", true},
		{"one of them has none", "10.80.0.5 fd81::5", "10.80.0.5", true},
		{"none", "", "", false},
	} {
		f := newScene(withPod("a"), onward)
		f.addresses = true
		f.pod.Status = corev1.PodStatus{Phase: corev1.PodRunning}
		for _, a := range strings.Fields(c.addresses) {
			f.pod.Status.PodIPs = append(f.pod.Status.PodIPs, corev1.PodIP{IP: a})
		}
		if len(f.pod.Status.PodIPs) > 0 {
			f.pod.Status.PodIP = f.pod.Status.PodIPs[0].IP
		}
		p := decide(f)
		var got []string
		for _, ip := range lastStatus(&v1alpha1.ShadowPod{Status: p.status}).PodIPs {
			got = append(got, ip.IP)
		}
		if strings.Join(got, " ") != c.want || (p.again == viewsPause) != c.again {
			t.Errorf("%s: told %v, again in %s; want %q, again %t", c.name, got, p.again, c.want, c.again)
		}
		if strings.Contains(p.status.Pod, "10.77.") {
			t.Errorf("%s: an address of the far side is told: %s", c.name, p.status.Pod)
		}
	}
}

func about(kind corev1.PodConditionType, status corev1.ConditionStatus, reason, message string) corev1.PodCondition {
	return corev1.PodCondition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(noon.Add(-time.Minute))}
}

// TestAfar: what a tenant is told of a pod that went onward. It is ready only if this cluster says so,
// and nothing names where it is.
func TestAfar(t *testing.T) {
	const leak = "n1 and oslo and shop-milan-rome and pelago-tenant-rome of https://api.oslo.example"
	for _, c := range []struct {
		reason string
		status corev1.PodStatus
		want   string // the condition ContainersReady
		says   string
	}{
		{"ready", corev1.PodStatus{Conditions: []corev1.PodCondition{about("Ready", "True", "", ""), about("ContainersReady", "True", "", "")}}, "True  ", ""},
		{"its kubelet says why not", corev1.PodStatus{Conditions: []corev1.PodCondition{about("Ready", "False", "ContainersNotReady", "containers with unready status: [web]"),
			about("ContainersReady", "False", "ContainersNotReady", "containers with unready status: [web]")}}, "False ContainersNotReady containers with unready status: [web]", ""},
		{"the tunnel is dead", corev1.PodStatus{Conditions: []corev1.PodCondition{about("Ready", "False", v1alpha1.ReasonTunnelDown, leak), about("ContainersReady", "True", "", "")}},
			"False NotReached the provider does not reach the pod through its network", ""},
		{"not all gateways know it", corev1.PodStatus{Conditions: []corev1.PodCondition{about("Ready", "False", v1alpha1.ReasonGatewaysBehind, leak), about("ContainersReady", "False", v1alpha1.ReasonGatewaysBehind, leak)}},
			"False NotReached not all gateways on the way to the pod know its address yet", ""},
		{"it does not answer", corev1.PodStatus{Conditions: []corev1.PodCondition{about("Ready", "False", v1alpha1.ReasonPeerUnreachable, ""), about("ContainersReady", "False", v1alpha1.ReasonPeerUnreachable, "")}},
			"False NotReached the provider does not hear where the pod runs, so whether its containers are ready is not known", ""},
		{"it does not take it", corev1.PodStatus{Reason: "NotAdmitted", Message: leak, Conditions: []corev1.PodCondition{about("Ready", "False", "NotAdmitted", leak), about("ContainersReady", "False", "NotAdmitted", leak)}},
			"False NotAdmitted the provider's owner knows more", "NotAdmitted"},
		{"a reason that is a text", corev1.PodStatus{Reason: leak, Message: leak, Conditions: []corev1.PodCondition{about("ContainersReady", "False", leak, leak)}}, "False  the provider's owner knows more", ""},
	} {
		c.status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
			Reason: "CrashLoopBackOff", Message: "back-off restarting container web in pod web-0_shop-milan-rome(4f6f) on n1.example at oslo, 10.0.0.1"}}}}
		f := newScene(withPod("a"), onward)
		c.status.Phase = corev1.PodRunning
		f.pod.Status = c.status
		before := f.pod.Status.DeepCopy()
		p := decide(f)
		for _, word := range []string{"n1", "oslo", "shop-milan-rome", "pelago-tenant", "10.0.0.1"} {
			if strings.Contains(p.status.Pod, word) {
				t.Errorf("%s: %s is told: %s", c.reason, word, p.status.Pod)
			}
		}
		if !strings.Contains(p.status.Pod, "back-off restarting container web in pod web-0_[node](4f6f)") {
			t.Errorf("%s: what a container waits for is not told: %s", c.reason, p.status.Pod)
		}
		said := lastStatus(&v1alpha1.ShadowPod{Status: p.status})
		got := ""
		for _, one := range said.Conditions {
			if one.Type == corev1.ContainersReady {
				got = string(one.Status) + " " + one.Reason + " " + one.Message
			}
		}
		if got != c.want || said.Reason != c.says {
			t.Errorf("%s: %q and %q, want %q and %q", c.reason, got, said.Reason, c.want, c.says)
		}
		if diff := cmp.Diff(before, &f.pod.Status); diff != "" {
			t.Errorf("%s: the pod was changed: %s", c.reason, diff)
		}
	}
}

// TestTaken: a pod that is refused where it went is given up in time, if nothing of it began.
func TestTaken(t *testing.T) {
	refused := func(age time.Duration) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status = corev1.PodStatus{Phase: corev1.PodPending, Reason: v1alpha1.ReasonLimitExceeded, Message: "oslo"}
			p.Status.Conditions = []corev1.PodCondition{about(corev1.PodReadyToStartContainers, "False", v1alpha1.ReasonLimitExceeded, "oslo")}
			p.Status.Conditions[0].LastTransitionTime = metav1.NewTime(noon.Add(-age))
		}
	}
	began := func(p *corev1.Pod) { p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main"}} }
	for _, c := range []struct {
		reason string
		facts  []scene
		want   outcome
	}{
		{"it has a while", []scene{withPod("a", refused(4*time.Second)), onward}, outcome{Accepted: "True Running", Phase: "Pending", Ref: "a", Again: 6 * time.Second}},
		{"then its tenant is told", []scene{withPod("a", refused(10*time.Second)), onward}, outcome{Do: "remove web-0 pinned", Accepted: "False Unschedulable", Phase: "Pending", Ref: "a", First: true,
			Message: "no node of the provider had room within 10s"}},
		{"here such a status means nothing", []scene{withPod("a", refused(time.Hour))}, outcome{Accepted: "True Running", Phase: "Pending", Ref: "a"}},
		{"it began", []scene{withPod("a", refused(time.Hour), began), onward}, outcome{Accepted: "True Running", Phase: "Pending", Ref: "a"}},
		{"it runs", []scene{withPod("a", refused(time.Hour), inPhase(corev1.PodRunning)), onward}, outcome{Accepted: "True Running", Phase: "Running", Ref: "a"}},
		{"it waits there", []scene{withPod("a", refused(time.Hour), because(v1alpha1.ReasonNameTaken)), onward}, outcome{Accepted: "True Running", Phase: "Pending", Ref: "a"}},
		{"one that must not run twice stays", []scene{withPod("a", refused(time.Hour)), onward, policy(corev1.RestartPolicyNever)}, outcome{Accepted: "True Running", Phase: "Pending", Ref: "a"}},
	} {
		if diff := cmp.Diff(c.want, said(decide(newScene(c.facts...)))); diff != "" {
			t.Errorf("%s: %s", c.reason, diff)
		}
	}
}

// TestSentHome: a pod that was sent home from where it went is made anew here, and its tenant is
// not told that it failed. It would be of one that is not always restarted, so these stay there.
func TestSentHome(t *testing.T) {
	refused := func(p *corev1.Pod) {
		p.Status = corev1.PodStatus{Phase: corev1.PodPending, Reason: v1alpha1.ReasonUnschedulable, Message: "oslo"}
		p.Status.Conditions = []corev1.PodCondition{about(corev1.PodReadyToStartContainers, "False", v1alpha1.ReasonUnschedulable, "oslo"),
			about(corev1.DisruptionTarget, "True", "EvictionByEvictionAPI", "")}
	}
	known := told("a", "Pending", 0)
	for _, c := range []struct {
		reason string
		facts  []scene
		phase  string
		makes  bool
	}{
		{"it is leaving", []scene{withPod("a", refused, beingDeleted(30, time.Second)), onward, known}, "Pending", false},
		{"it has left", []scene{withPod("a", refused, beingDeleted(0, time.Second)), onward, known}, "Pending", false},
		{"it is gone", []scene{known}, "Pending", true},
		{"one that must not run twice", []scene{known, policy(corev1.RestartPolicyOnFailure)}, "Failed", false},
	} {
		p := decide(newScene(c.facts...))
		if p.status.Phase != c.phase || p.create != c.makes || strings.Contains(p.status.Pod, "oslo") {
			t.Errorf("%s: %s, made anew %t, %s", c.reason, p.status.Phase, p.create, p.status.Pod)
		}
	}
}

// TestPassedOn: what a provider of this cluster's warns of is told on, as if this one did.
func TestPassedOn(t *testing.T) {
	hidden := (&beyond{node: "oslo-gpu", peering: "oslo", space: "shop-milan-rome"}).hidden()
	for _, c := range []struct {
		reason, by, event, message string
		want                       string
	}{
		{"a warning of oslo's", component, v1alpha1.ReasonProviderWarning, `oslo: FailedMount: no volume for web-0_shop-milan-rome(4f) of pelago-tenant-rome at oslo, oslo-gpu and 10.0.0.1`,
			"FailedMount: no volume for web-0_[node](4f) of [node] at [node], [node] and [address]"},
		{"without a message", component, v1alpha1.ReasonProviderWarning, "oslo: Unhealthy", "Unhealthy: "},
		{"a reason that is not told", component, v1alpha1.ReasonProviderWarning, "oslo: PolicyViolation: s3cret", ""},
		{"the words of somebody else", "me", v1alpha1.ReasonProviderWarning, "oslo: FailedMount: x", ""},
		{"what this cluster tells its own", component, "OffloadingRefused", "oslo: FailedMount: x", ""},
		{"a text that is none", component, v1alpha1.ReasonProviderWarning, "oslo", ""},
	} {
		e := &corev1.Event{Type: corev1.EventTypeWarning, Reason: c.event, Message: c.message, ReportingController: c.by,
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", UID: "u"}}
		got := ""
		if w, ok := warningOf(e, func(word string) bool { return isHidden(hidden, word) }); ok {
			got = w.Reason + ": " + w.Message
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.reason, got, c.want)
		}
	}
}

// TestVirtualNode: a pod that went onward is not taken for dead because that cluster does not answer,
// is not made a second time, and its ShadowPod stays until its end is known. What is told names nothing.
func TestVirtualNode(t *testing.T) {
	b := newBench(t)
	b.addresses = true
	b.shadowPod(corev1.RestartPolicyAlways)
	b.settle()
	node := b.node(corev1.ConditionTrue)
	node.Labels = map[string]string{v1alpha1.LabelType: v1alpha1.TypeVirtualNode, v1alpha1.LabelPeering: b.tenant + "-oslo"}
	b.must(b.c.Update(t.Context(), node))
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PeeringNamespace(b.tenant + "-oslo")}}
	b.must(b.c.Create(t.Context(), space))
	t.Cleanup(func() { b.dropNamespace(context.Background(), space.Name) })
	m := &v1alpha1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: space.Name, Name: v1alpha1.NamespaceMapName}}
	b.must(b.c.Create(t.Context(), m))
	m.Status.Namespaces = map[string]v1alpha1.MappedNamespace{b.space: {Name: "shop-deep", Phase: v1alpha1.MappingReady}}
	b.must(b.c.Status().Update(t.Context(), m))
	published := &v1alpha1.NetworkConfig{ObjectMeta: metav1.ObjectMeta{Namespace: space.Name, Name: v1alpha1.NetworkProvider}}
	b.must(b.c.Create(t.Context(), published))
	published.Status.Views = []v1alpha1.NetworkView{{Real: "10.42.0.0/16", View: "10.9.0.0/16"}}
	b.must(b.c.Status().Update(t.Context(), published))
	b.bind(node.Name)
	b.status(func(s *corev1.PodStatus) {
		running(s)
		s.PodIP, s.PodIPs = "10.9.0.1", []corev1.PodIP{{IP: "10.9.0.1"}}
		s.HostIP, s.HostIPs = "192.0.2.1", []corev1.HostIP{{IP: "192.0.2.1"}}
		s.Conditions = append(s.Conditions, corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionTrue})
		s.ContainerStatuses[0].RestartCount = 3
		s.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff",
			Message: "in shop-deep at " + b.tenant + "-oslo on " + node.Name}}
	})
	b.settle()
	status := b.get(b.uid).Status
	said := lastStatus(b.get(b.uid))
	if len(said.PodIPs) != 1 || said.PodIPs[0].IP != "10.9.0.1" || status.AddressVersion == 0 || said.ContainerStatuses[0].RestartCount != 3 ||
		strings.Contains(status.Pod, "shop-deep") || strings.Contains(status.Pod, "-oslo") || strings.Contains(status.Pod, node.Name) || strings.Contains(status.Pod, "192.0.2.1") {
		t.Errorf("it is told so: %d %s", status.AddressVersion, status.Pod)
	}

	first := b.pod()
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
	b.must(b.c.Status().Update(t.Context(), node))
	b.must(b.c.SubResource("eviction").Create(t.Context(), first, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: first.Name, Namespace: first.Namespace}})) // or by hand, or as its node is not ready
	b.clock.SetTime(time.Now().Add(time.Hour))
	b.settle()
	if pod := b.pod(); pod.UID != first.UID || pod.DeletionTimestamp == nil {
		t.Fatal("a second one may run beside it")
	}
	b.must(b.c.Delete(t.Context(), b.get(b.uid)))
	b.clock.SetTime(time.Now().Add(3 * time.Hour))
	b.settle()
	b.pod()
	if b.get(b.uid) == nil {
		t.Fatal("its ShadowPod went though it may run")
	}
	b.must(b.c.Delete(t.Context(), b.pod(), client.GracePeriodSeconds(0))) // by who carries pods there, when that answers
	b.settle()
	b.want("the shadow pod", b.show(), "gone")
}

// TestVirtualNodeGone: whoever deletes a virtual node, which is made again at once, ends nothing by
// it, and a pod whose node is gone names nothing either. The cluster collects it if that stays so.
func TestVirtualNodeGone(t *testing.T) {
	b := newBench(t)
	b.shadowPod(corev1.RestartPolicyAlways)
	b.settle()
	admitted := b.pod() // as the webhook does it
	admitted.Spec.Tolerations = append(admitted.Spec.Tolerations, corev1.Toleration{Key: v1alpha1.TaintVirtualNode, Operator: corev1.TolerationOpExists})
	b.must(b.c.Update(t.Context(), admitted))
	b.bind("gone-" + b.tenant)
	b.status(func(s *corev1.PodStatus) {
		running(s)
		s.Reason, s.Message = "Unhappy", "at oslo"
		s.Conditions = append(s.Conditions, corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionFalse, Reason: "Unhappy", Message: "at oslo"})
	})
	b.settle()
	if said := b.get(b.uid).Status.Pod; strings.Contains(said, "oslo") || !strings.Contains(said, untold) {
		t.Errorf("it is told so: %s", said)
	}
	first := b.pod()
	b.must(b.c.Delete(t.Context(), first))
	b.clock.SetTime(time.Now().Add(time.Hour))
	b.settle()
	if pod := b.pod(); pod.UID != first.UID || pod.DeletionTimestamp == nil {
		t.Fatal("a second one may run beside it")
	}
	b.must(b.c.Delete(t.Context(), first, client.GracePeriodSeconds(0))) // by the cluster, when the node stays away
	b.settle()
	if pod := b.pod(); pod.UID == first.UID {
		t.Fatal("it is not made again")
	}
}
