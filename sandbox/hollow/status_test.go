package hollow

import (
	"encoding/json"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// sidecar gives a pod an init container that ends and one that stays.
func sidecar(p *corev1.Pod) {
	always := corev1.ContainerRestartPolicyAlways
	p.Spec.InitContainers = []corev1.Container{{Name: "prepare", Image: "busybox"}, {Name: "proxy", Image: "envoy", RestartPolicy: &always}}
}

// states renders containers, one word each.
func states(all []corev1.ContainerStatus) []string {
	var out []string
	for _, c := range all {
		state := c.Name + " runs"
		if c.State.Terminated != nil {
			state = c.Name + " " + c.State.Terminated.Reason
		}
		if c.Ready {
			state += ", ready"
		}
		out = append(out, state)
	}
	return out
}

// isReady tells what a status says of being ready.
func isReady(s corev1.PodStatus) corev1.ConditionStatus {
	for _, c := range s.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status
		}
	}
	return corev1.ConditionUnknown
}

func TestStatusOfPods(t *testing.T) {
	own, host := []netip.Addr{netip.MustParseAddr("10.42.128.1"), netip.MustParseAddr("fd42::8000")}, []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	onHost := func(p *corev1.Pod) { p.Spec.HostNetwork = true }
	began := pod(corev1.PodRunning, sidecar)
	for _, c := range []struct {
		reason  string
		got     patch
		phase   corev1.PodPhase
		ready   corev1.ConditionStatus
		podIP   string
		podIPs  int
		inits   []string
		regular []string
	}{
		{"one that runs", running(pod(corev1.PodPending, sidecar), own, host, noon), corev1.PodRunning, corev1.ConditionTrue, "10.42.128.1", 2,
			[]string{"prepare Completed, ready", "proxy runs, ready"}, []string{"web runs, ready"}},
		{"one on the network of its node", running(pod(corev1.PodPending, onHost), nil, host, noon), corev1.PodRunning, corev1.ConditionTrue, "127.0.0.1", 1,
			nil, []string{"web runs, ready"}},
		{"one that ended well", endedAs(began, exitFine, noon.Add(time.Minute)), corev1.PodSucceeded, corev1.ConditionFalse, "", 0,
			[]string{"prepare Completed, ready", "proxy Completed, ready"}, []string{"web Completed"}},
		{"one that was killed", endedAs(began, exitKilled, noon.Add(time.Minute)), corev1.PodFailed, corev1.ConditionFalse, "", 0,
			[]string{"prepare Completed, ready", "proxy Error"}, []string{"web Error"}},
	} {
		s := c.got.Status
		if s.Phase != c.phase || isReady(s) != c.ready || s.PodIP != c.podIP || len(s.PodIPs) != c.podIPs {
			t.Errorf("%s: phase %s, ready %s, address %q of %d", c.reason, s.Phase, isReady(s), s.PodIP, len(s.PodIPs))
		}
		if d := cmp.Diff(c.inits, states(s.InitContainerStatuses)); d != "" {
			t.Errorf("%s: init containers (-want +got):\n%s", c.reason, d)
		}
		if d := cmp.Diff(c.regular, states(s.ContainerStatuses)); d != "" {
			t.Errorf("%s: containers (-want +got):\n%s", c.reason, d)
		}
	}
}

// TestPatchLeavesOthersAlone guards that the patch is of one life of a pod, and
// has nothing in it that the scheduler or the API server wrote.
func TestPatchLeavesOthersAlone(t *testing.T) {
	text, err := endedAs(pod(corev1.PodRunning), exitFine, noon).text("u-1")
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]map[string]any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]any{"uid": "u-1"}, got["metadata"]); d != "" {
		t.Errorf("metadata (-want +got):\n%s", d)
	}
	for _, field := range []string{"podIP", "podIPs", "hostIP", "startTime", "qosClass", "nominatedNodeName"} {
		if _, there := got["status"][field]; there {
			t.Errorf("the patch of an end writes %s", field)
		}
	}
	for _, c := range got["status"]["conditions"].([]any) {
		if c.(map[string]any)["type"] == string(corev1.PodScheduled) {
			t.Error("the patch writes the scheduler's condition")
		}
	}
}

func TestNodeHasNoAddress(t *testing.T) {
	o := Options{Nodes: []string{"h-1"}, Addresses: []netip.Addr{netip.MustParseAddr("198.18.1.2")}, Version: "v1.36.3"}
	for _, a := range o.node("h-1", time.Unix(0, 0)).Status.Addresses {
		if a.Type != corev1.NodeHostName {
			t.Errorf("%s %s: whoever tries a node port there finds nobody", a.Type, a.Address)
		}
	}
}
