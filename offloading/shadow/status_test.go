package shadow

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

func TestReport(t *testing.T) {
	status := running()
	status.HostIPs = []corev1.HostIP{{IP: "192.168.0.1"}}
	status.Message = strings.Repeat("é", 5000)
	status.ContainerStatuses[0].User = &corev1.ContainerUser{}
	status.ContainerStatuses[0].VolumeMounts = []corev1.VolumeMountStatus{{Name: "x"}}
	status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Message: strings.Repeat("x", 9000)}
	text, err := Report(&status, 3, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, not := range []string{`"podIP"`, "192.168.0.1", "nominated", "Guaranteed", "PodScheduled", "user", "volumeMounts", `"Ready"`} {
		if strings.Contains(text, not) {
			t.Errorf("the report tells %s: %s", not, text)
		}
	}
	var got corev1.PodStatus
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]corev1.PodIP{{IP: "10.1.1.1"}, {IP: "fd01::1"}}, got.PodIPs); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
	c := got.ContainerStatuses[0]
	if c.RestartCount != 5 || len(c.LastTerminationState.Terminated.Message) != maxContainerMsg || len(got.Message) > maxMessageText || !strings.HasSuffix(got.Message, "é...") {
		t.Errorf("restarts %d, messages of %d and %d bytes", c.RestartCount, len(c.LastTerminationState.Terminated.Message), len(got.Message))
	}
}

// However large a pod's status is, its report fits.
func TestReportFits(t *testing.T) {
	var status corev1.PodStatus
	long := strings.Repeat("x", 10000)
	list := amounts()
	for i := range 20 {
		list[corev1.ResourceName(fmt.Sprintf("example.com/%d-%s", i, long[:50]))] = amounts("cpu", "1")["cpu"]
	}
	for i := range 200 {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{Name: fmt.Sprint("c", i), Image: long[:500], ImageID: long[:500], ContainerID: long[:250],
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: long, ContainerID: long[:250]}}, Resources: &corev1.ResourceRequirements{Requests: list, Limits: list},
			AllocatedResources: list})
	}
	status.InitContainerStatuses, status.EphemeralContainerStatuses = status.ContainerStatuses, status.ContainerStatuses
	text, err := Report(&status, 0, "")
	if err != nil || len(text) > maxStatusText {
		t.Fatalf("%d bytes, %v", len(text), err)
	}
	if _, err := decodeStatus(text); err != nil {
		t.Error(err)
	}
}

func TestUrgent(t *testing.T) {
	waiting := func(reason string) corev1.PodStatus {
		return corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{Name: "web",
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}}}
	}
	restarted, unready := running(), running()
	restarted.ContainerStatuses[0].RestartCount++
	unready.Conditions[1].Status = corev1.ConditionFalse
	moved := running()
	moved.Message, moved.Conditions[2].Reason = "x", "y"
	for _, c := range []struct {
		reason      string
		before, now *corev1.PodStatus
		want        bool
	}{
		{"a pod that was made", nil, ptr.To(waiting("ContainerCreating")), false},
		{"a pod without containers yet", &corev1.PodStatus{}, &corev1.PodStatus{Phase: corev1.PodPending}, false},
		{"waiting for another reason", ptr.To(waiting("ContainerCreating")), ptr.To(waiting("ErrImagePull")), false},
		{"started", ptr.To(waiting("ContainerCreating")), ptr.To(running()), true},
		{"the same", ptr.To(running()), ptr.To(running()), false},
		{"texts", ptr.To(running()), &moved, false},
		{"not ready", ptr.To(running()), &unready, true},
		{"restarted", ptr.To(running()), &restarted, true},
		{"ended", ptr.To(running()), ptr.To(ended(0)), true},
		{"nothing to tell", ptr.To(running()), nil, false},
	} {
		if got := Urgent(c.before, c.now); got != c.want {
			t.Errorf("%s: urgent is %t", c.reason, got)
		}
	}
}

// TestStarting holds which pods do nothing but start.
func TestStarting(t *testing.T) {
	waiting := func(reason string) corev1.PodStatus {
		return corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{
			{Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}},
		}}
	}
	with := func(s corev1.PodStatus, change func(*corev1.PodStatus)) *corev1.PodStatus {
		change(&s)
		return &s
	}
	for _, c := range []struct {
		reason string
		status *corev1.PodStatus
		want   bool
	}{
		{"no status", nil, false},
		{"made", &corev1.PodStatus{}, true},
		{"seen by no scheduler", &corev1.PodStatus{Phase: corev1.PodPending}, true},
		{"on a node", with(waiting("ContainerCreating"), func(s *corev1.PodStatus) {
			s.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}
		}), true},
		{"no node has room", with(corev1.PodStatus{Phase: corev1.PodPending}, func(s *corev1.PodStatus) {
			s.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse}}
		}), false},
		{"after its init containers", ptr.To(waiting("PodInitializing")), true},
		{"no image", ptr.To(waiting("ErrImagePull")), false},
		{"an error in an init container", with(waiting("PodInitializing"), func(s *corev1.PodStatus) {
			s.InitContainerStatuses = waiting("CrashLoopBackOff").ContainerStatuses
		}), false},
		{"one container runs", with(waiting("ContainerCreating"), func(s *corev1.PodStatus) {
			s.ContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
		}), false},
		{"again", with(waiting("ContainerCreating"), func(s *corev1.PodStatus) { s.ContainerStatuses[0].RestartCount = 1 }), false},
		{"running", &corev1.PodStatus{Phase: corev1.PodRunning}, false},
		{"something is the matter", &corev1.PodStatus{Phase: corev1.PodPending, Reason: "UnexpectedAdmissionError"}, false},
	} {
		if got := Starting(c.status); got != c.want {
			t.Errorf("%s: starting is %t", c.reason, got)
		}
	}
}

// reporting is a ShadowPod whose provider reports a status.
func reporting(t testing.TB, home *corev1.Pod, status corev1.PodStatus) *v1alpha1.ShadowPod {
	t.Helper()
	s := forged(t, home)
	report, err := Report(&status, 0, "")
	if err != nil {
		t.Fatal(err)
	}
	s.Status.Pod = report
	return s
}

func next(t testing.TB, home *corev1.Pod, s *v1alpha1.ShadowPod) corev1.PodStatus {
	t.Helper()
	got, err := Status(home, s, here.Address, viewed)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

var earlier = metav1.Unix(1600000000, 0)

func atHome() *corev1.Pod {
	home := homePod()
	home.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: corev1.PodQOSBurstable, Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: earlier},
		{Type: "example.com/gate", Status: corev1.ConditionTrue, LastTransitionTime: earlier},
	}}
	return home
}

func TestStatus(t *testing.T) {
	home := atHome()
	got := next(t, home, reporting(t, home, running()))
	r := running()
	want := corev1.PodStatus{
		Phase: corev1.PodRunning, HostIP: "10.0.0.9", HostIPs: []corev1.HostIP{{IP: "10.0.0.9"}}, PodIP: "10.81.1.1",
		PodIPs: []corev1.PodIP{{IP: "10.81.1.1"}, {IP: "fd81::1"}}, QOSClass: corev1.PodQOSBurstable, StartTime: r.StartTime,
		ObservedGeneration: 1,
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: earlier},
			{Type: "example.com/gate", Status: corev1.ConditionTrue, LastTransitionTime: earlier},
			{Type: corev1.PodInitialized, Status: corev1.ConditionTrue, ObservedGeneration: 1},
			{Type: corev1.ContainersReady, Status: corev1.ConditionTrue, ObservedGeneration: 1},
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, ObservedGeneration: 1},
		},
		ContainerStatuses: r.ContainerStatuses,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(atHome(), home); diff != "" {
		t.Errorf("the home pod was changed:\n%s", diff)
	}
}

func TestStatusReadiness(t *testing.T) {
	home := atHome()
	home.Status.Conditions[1].Status = corev1.ConditionFalse
	got := next(t, home, reporting(t, home, running()))
	if c := condition(got.Conditions, corev1.PodReady); c.Status != corev1.ConditionFalse || !strings.Contains(c.Message, "example.com/gate") {
		t.Errorf("with a gate that is shut, Ready is %+v", c)
	}
	if !isTrue(got.Conditions, corev1.ContainersReady) {
		t.Error("the containers are ready")
	}
	hostile := running()
	report := text(t, corev1.PodStatus{Phase: corev1.PodRunning, Conditions: append(hostile.Conditions, corev1.PodCondition{Type: "example.com/gate", Status: corev1.ConditionTrue},
		corev1.PodCondition{Type: "x\ny", Status: "Maybe"}, corev1.PodCondition{Type: corev1.PodInitialized, Status: "Maybe"})})
	s := forged(t, home)
	s.Status.Pod = report
	got = next(t, home, s)
	if isTrue(got.Conditions, "example.com/gate") || isTrue(got.Conditions, corev1.PodReady) || condition(got.Conditions, "x\ny") != nil || len(got.Conditions) != 5 {
		t.Errorf("a provider opens home's gate: %s", shown(got.Conditions))
	}
}

func shown(v any) string { b, _ := json.Marshal(v); return string(b) }

func TestStatusTimes(t *testing.T) {
	now := metav1.Unix(1700000500, 0)
	home := atHome()
	home.Status = next(t, home, reporting(t, home, running()))
	Stamp(&home.Status, now)
	for _, c := range home.Status.Conditions {
		if told[c.Type] && c.LastTransitionTime != now || !told[c.Type] && c.Type != corev1.PodReady && c.LastTransitionTime != earlier {
			t.Errorf("%s changed at %s", c.Type, c.LastTransitionTime)
		}
	}
	same := next(t, home, reporting(t, home, running()))
	if diff := cmp.Diff(home.Status, same); diff != "" {
		t.Errorf("the same report changes (-before +after):\n%s", diff)
	}
	home.Status = Unreachable(home)
	if isTrue(home.Status.Conditions, corev1.PodReady) || isTrue(home.Status.Conditions, corev1.ContainersReady) ||
		condition(home.Status.Conditions, corev1.PodReady).Reason != v1alpha1.ReasonPeerUnreachable {
		t.Errorf("an unreachable pod has %+v", home.Status.Conditions)
	}
	Stamp(&home.Status, metav1.NewTime(now.Add(time.Minute)))
	if again := Unreachable(home); cmp.Diff(home.Status, again) != "" {
		t.Error("unreachable twice is not the same")
	}
	if back := next(t, home, reporting(t, home, running())); !isTrue(back.Conditions, corev1.PodReady) || !condition(back.Conditions, corev1.PodReady).LastTransitionTime.IsZero() {
		t.Errorf("after the link is back: %+v", back.Conditions)
	}
}

func TestStatusPhase(t *testing.T) {
	for _, c := range []struct {
		reason         string
		home           corev1.PodPhase
		said, reported string
		want           corev1.PodPhase
		fails          bool
	}{
		{"the provider's word goes before the report", "Running", "Failed", "Running", "Failed", false},
		{"no word yet", "Pending", "", "Running", "Running", false},
		{"an end stays an end", "Succeeded", "Running", "Running", "Succeeded", false},
		{"lost and made again", "Running", "Pending", "Pending", "Pending", false},
		{"nothing known", "Running", "", "", "Running", false},
		{"nothing known of a new pod", "", "", "", "Pending", false},
		{"unknown", "Running", "Unknown", "Running", "Running", false},
		{"an invention", "Running", "Sleeping", "Running", "", true},
		{"an invention in the report", "Running", "", "Sleeping", "", true},
	} {
		home := atHome()
		home.Status.Phase = c.home
		s := forged(t, home)
		s.Status.Phase, s.Status.Pod = c.said, fmt.Sprintf(`{"phase":%q}`, c.reported)
		got, err := Status(home, s, "", viewed)
		if (err != nil) != c.fails || got.Phase != c.want {
			t.Errorf("%s: phase %q, error %v", c.reason, got.Phase, err)
		}
	}
}

// TestNodeLost: the node controller takes Ready away from the pods of a node that does not
// answer, and nothing else, and gives it back; so does home. That such a pod will be made
// anew there is no disruption of home's, before it has ended.
func TestNodeLost(t *testing.T) {
	home, there := atHome(), running()
	ready := condition(there.Conditions, corev1.PodReady)
	home.Status = next(t, home, reporting(t, home, there))
	if !isTrue(home.Status.Conditions, corev1.PodReady) {
		t.Fatalf("it is not ready: %s", shown(home.Status.Conditions))
	}
	ready.Status = corev1.ConditionFalse
	there.Conditions = append(there.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByTaintManager"})
	home.Status = next(t, home, reporting(t, home, there))
	c := condition(home.Status.Conditions, corev1.PodReady)
	if c == nil || c.Status != corev1.ConditionFalse || c.Reason != reasonNodeNotReady || condition(home.Status.Conditions, corev1.DisruptionTarget) != nil {
		t.Errorf("on a node that does not answer: %s", shown(home.Status.Conditions))
	}
	gates := running()
	shut := condition(gates.Conditions, corev1.PodReady)
	shut.Status, shut.Reason = corev1.ConditionFalse, "ReadinessGatesNotReady"
	if got := next(t, home, reporting(t, home, gates)); !isTrue(got.Conditions, corev1.PodReady) {
		t.Errorf("a gate of the provider's own shuts home's pod: %s", shown(got.Conditions))
	}
	condition(there.Conditions, corev1.PodReady).Status = corev1.ConditionTrue
	if home.Status = next(t, home, reporting(t, home, there)); !isTrue(home.Status.Conditions, corev1.PodReady) {
		t.Errorf("it is back: %s", shown(home.Status.Conditions))
	}
	there.Phase = corev1.PodFailed
	if got := next(t, home, reporting(t, home, there)); !isTrue(got.Conditions, corev1.DisruptionTarget) {
		t.Errorf("it has failed, and home does not know of what: %s", shown(got.Conditions))
	}
}

// A pod that was lost is Failed although its last report says that it runs.
func TestStatusOfLostPod(t *testing.T) {
	home := atHome()
	home.Status = next(t, home, reporting(t, home, running()))
	s := reporting(t, home, running())
	s.Status.Phase = "Failed"
	got := next(t, home, s)
	if got.Phase != corev1.PodFailed || got.ContainerStatuses[0].Ready || isTrue(got.Conditions, corev1.PodReady) || isTrue(got.Conditions, corev1.ContainersReady) {
		t.Errorf("the lost pod is %s", shown(got))
	}
}

func TestHostileStatus(t *testing.T) {
	home := atHome()
	long := strings.Repeat("x", 20000)
	status := corev1.PodStatus{Phase: corev1.PodRunning, Reason: long, Message: long, PodIP: "10.1.1.9", PodIPs: []corev1.PodIP{{IP: "1.2.3.4"}}, HostIP: "1.2.3.4",
		QOSClass: corev1.PodQOSGuaranteed, NominatedNodeName: "x",
		ContainerStatuses: []corev1.ContainerStatus{{Name: "ghost"}, {Name: "web", RestartCount: -5, Image: long, ImageID: "a\x00b", AllocatedResources: amounts("cpu", "-1"),
			State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: long, Message: long}, Running: &corev1.ContainerStateRunning{}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: long}}}},
		InitContainerStatuses: []corev1.ContainerStatus{{Name: "ghost"}}, EphemeralContainerStatuses: []corev1.ContainerStatus{{Name: "ghost"}},
	}
	s := forged(t, home)
	s.Status.Pod = text(t, status)
	got := next(t, home, s)
	c := got.ContainerStatuses[0]
	if len(got.ContainerStatuses) != 1 || len(got.InitContainerStatuses)+len(got.EphemeralContainerStatuses) != 0 {
		t.Errorf("containers that the pod has not got: %s", shown(got))
	}
	if got.PodIP != "" || got.PodIPs != nil || got.HostIP != here.Address || got.QOSClass != corev1.PodQOSBurstable || got.NominatedNodeName != "" {
		t.Errorf("home's own was overwritten: %s", shown(got))
	}
	if c.RestartCount != 0 || c.Image != "" || c.ImageID != "ab" || len(c.AllocatedResources) != 0 || c.State.Waiting != nil || len(c.LastTerminationState.Terminated.Message) > maxContainerMsg {
		t.Errorf("taken over: %s", shown(c))
	}
	if len(got.Reason)+len(got.Message) > maxReasonText+maxMessageText {
		t.Error("texts without a bound")
	}
	for reason, bad := range map[string]func(*v1alpha1.ShadowPod){
		"another pod's":    func(s *v1alpha1.ShadowPod) { s.Name = strings.Replace(homeUID, "0", "1", 1) },
		"no JSON":          func(s *v1alpha1.ShadowPod) { s.Status.Pod = "{" },
		"an evil quantity": func(s *v1alpha1.ShadowPod) { s.Status.Pod = `{"allocatedResources":{"cpu":"1e999999999"}}` },
		"many containers": func(s *v1alpha1.ShadowPod) {
			s.Status.Pod = `{"containerStatuses":[` + strings.Repeat("{},", 64) + `{}]}`
		},
		"larger than there": func(s *v1alpha1.ShadowPod) { s.Status.Pod = `{"message":"` + strings.Repeat("x", maxStatusText) + `"}` },
	} {
		s := reporting(t, home, running())
		bad(s)
		if _, err := Status(home, s, "", viewed); err == nil {
			t.Errorf("%s: believed", reason)
		} else if len(err.Error()) > 512 {
			t.Errorf("%s: an error of %d bytes", reason, len(err.Error()))
		}
	}
}

func TestStatusKeepsEnds(t *testing.T) {
	for _, c := range []struct {
		policy corev1.RestartPolicy
		exit   int32
		kept   bool
	}{{corev1.RestartPolicyNever, 1, true}, {corev1.RestartPolicyOnFailure, 0, true}, {corev1.RestartPolicyOnFailure, 1, false}, {corev1.RestartPolicyAlways, 0, false}} {
		home := atHome()
		home.Spec.RestartPolicy = c.policy
		home.Status.ContainerStatuses = ended(c.exit).ContainerStatuses
		got := next(t, home, reporting(t, home, running()))
		if kept := got.ContainerStatuses[0].State.Terminated != nil; kept != c.kept {
			t.Errorf("%s, exit %d: the end is kept: %t", c.policy, c.exit, kept)
		}
	}
}

// TestStatusKeepsEndsOfTheirOwn holds that containers go by their own policies and rules, as the API
// server has it, and that an ephemeral container never begins again.
func TestStatusKeepsEndsOfTheirOwn(t *testing.T) {
	always, never, onFailure := corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyOnFailure
	on := func(action corev1.ContainerRestartRuleAction, op corev1.ContainerRestartRuleOnExitCodesOperator, codes ...int32) corev1.ContainerRestartRule {
		return corev1.ContainerRestartRule{Action: action, ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: op, Values: codes}}
	}
	const again, all, in, out = corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleActionRestartAllContainers,
		corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn
	for _, c := range []struct {
		reason string
		pod    corev1.RestartPolicy
		policy *corev1.ContainerRestartPolicy
		rules  []corev1.ContainerRestartRule
		exit   int32
		kept   bool
	}{
		{"never, in a pod that always restarts", corev1.RestartPolicyAlways, &never, nil, 1, true},
		{"on failure, and it has not failed", corev1.RestartPolicyAlways, &onFailure, nil, 0, true},
		{"on failure, and it has", corev1.RestartPolicyNever, &onFailure, nil, 1, false},
		{"always, in a pod that never restarts", corev1.RestartPolicyNever, &always, nil, 0, false},
		{"never but after this code", corev1.RestartPolicyNever, &never, []corev1.ContainerRestartRule{on(again, in, 4, 42)}, 42, false},
		{"never, and this is another code", corev1.RestartPolicyNever, &never, []corev1.ContainerRestartRule{on(again, in, 4, 42)}, 1, true},
		{"never but after all codes except this", corev1.RestartPolicyNever, &never, []corev1.ContainerRestartRule{on(again, out, 42)}, 42, true},
		{"never but after all codes except others", corev1.RestartPolicyNever, &never, []corev1.ContainerRestartRule{on(again, out, 42)}, 1, false},
		{"the first rule of this code does nothing", corev1.RestartPolicyNever, &never, []corev1.ContainerRestartRule{on("Wait", in, 1), on(again, in, 1)}, 1, true},
		{"a rule that says nothing of codes", corev1.RestartPolicyNever, &never, []corev1.ContainerRestartRule{{Action: again}}, 1, true},
		{"rules without a policy", corev1.RestartPolicyNever, nil, []corev1.ContainerRestartRule{on(again, in, 1)}, 1, true},
		{"all containers may begin again", corev1.RestartPolicyNever, &never, []corev1.ContainerRestartRule{on(all, in, 3)}, 1, false},
	} {
		home := atHome()
		home.Spec.RestartPolicy = c.pod
		home.Spec.Containers[0].RestartPolicy, home.Spec.Containers[0].RestartPolicyRules = c.policy, c.rules
		home.Status.ContainerStatuses = ended(c.exit).ContainerStatuses
		got := next(t, home, reporting(t, home, running()))
		if kept := got.ContainerStatuses[0].State.Terminated != nil; kept != c.kept {
			t.Errorf("%s: the end is kept: %t", c.reason, kept)
		}
	}
	home := atHome()
	home.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "web-debug", Image: "debug:1"}}}
	home.Status.EphemeralContainerStatuses = ended(0).ContainerStatuses
	home.Status.EphemeralContainerStatuses[0].Name = "web-debug"
	home.Status.EphemeralContainerStatuses[0].Resources, home.Status.EphemeralContainerStatuses[0].AllocatedResources = nil, nil
	begun := running()
	begun.EphemeralContainerStatuses = running().ContainerStatuses
	begun.EphemeralContainerStatuses[0].Name = "web-debug"
	for reason, status := range map[string]corev1.PodStatus{"runs again": begun, "is not there": running()} {
		got := next(t, home, reporting(t, home, status)).EphemeralContainerStatuses
		if diff := cmp.Diff(home.Status.EphemeralContainerStatuses, got); diff != "" {
			t.Errorf("an ephemeral container that has ended %s (-before +after):\n%s", reason, diff)
		}
	}
}

// Home's pod is observed only once the provider has what it is now.
func TestStatusObservedGeneration(t *testing.T) {
	home := atHome()
	s := reporting(t, home, running())
	s.Generation, s.Status.ObservedGeneration = 2, 1
	if got := next(t, home, s).ObservedGeneration; got != 0 {
		t.Errorf("observed %d before the provider took the ShadowPod", got)
	}
	s.Status.ObservedGeneration = 2
	if got := next(t, home, s).ObservedGeneration; got != 1 {
		t.Errorf("observed %d after it", got)
	}
	home.Generation, home.Spec.Containers[0].Image = 2, "web:2"
	if got := next(t, home, s).ObservedGeneration; got != 0 {
		t.Errorf("observed %d of what was not sent yet", got)
	}
}
