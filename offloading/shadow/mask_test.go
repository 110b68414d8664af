package shadow

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestTelling: what the provider's own programs say of a pod stays useful, and says nothing of
// its nodes and addresses.
func TestTelling(t *testing.T) {
	isNode := func(name string) bool {
		return name == "worker-1" || name == "ip-10-0-1-5.eu-west-1.compute.internal" || name == "10.0.0.9"
	}
	for _, c := range []struct{ reason, text, want string }{
		{"FailedScheduling", `0/3 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, 1 node(s) had untolerated taint {team: blue}. preemption: 0/3 nodes are available: 3 No preemption victims found.`,
			noRoom + "; there is not enough cpu, memory"},
		{"FailedScheduling", `0/9 nodes are available: 9 Insufficient example.com/gpu.`, noRoom + "; there is not enough example.com/gpu"},
		{"FailedScheduling", `0/9 nodes are available: 9 Too many pods.`, noRoom + "; there is not enough pods"},
		{"FailedScheduling", `0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.`, noRoom + "; a volume claim of it is missing or not bound"},
		{"FailedScheduling", `0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.`, noRoom},
		{"OutOfcpu", `Node didn't have enough resource: cpu, requested: 100, used: 950, capacity: 1000`, noRoom},
		{"Unhealthy", `Readiness probe failed: Get "http://10.244.1.5:8080/healthz": dial tcp 10.244.1.5:8080: connect: connection refused`,
			`Readiness probe failed: Get "http://[address]:8080/healthz": dial tcp [address]:8080: connect: connection refused`},
		{"Unhealthy", `Liveness probe failed: dial tcp [fd00:10:244::5]:8080: i/o timeout`, `Liveness probe failed: dial tcp [[address]]:8080: i/o timeout`},
		{"FailedCreatePodSandBox", `plugin type="calico" failed (add): Get "https://10.96.0.1:443/apis": from 10.244.0.0/16 via fe80::1%eth0, fd00::7: no route`,
			`plugin type="calico" failed (add): Get "https://[address]:443/apis": from [address]/16 via [address]%eth0, [address]: no route`},
		{"Failed", `Failed to pull image "ghcr.io/acme/web:1.2.3": lookup ghcr.io on 10.0.0.2:53: no such host`, `Failed to pull image "ghcr.io/acme/web:1.2.3": lookup ghcr.io on [address]:53: no such host`},
		{"Failed", `Failed to pull image "web@sha256:0badc0de": manifest unknown`, `Failed to pull image "web@sha256:0badc0de": manifest unknown`},
		{"FailedMount", `MountVolume.SetUp failed for volume "settings" : configmap "absent" not found`, `MountVolume.SetUp failed for volume "settings" : configmap "absent" not found`},
		{"FailedMount", `mount.nfs: access denied by server while mounting server:10.0.0.7:/export at 12:30:45`, `mount.nfs: access denied by server while mounting server:[address]:/export at 12:30:45`},
		{"FailedAttachVolume", `volume pvc-1 is attached to worker-1, not to ip-10-0-1-5.eu-west-1.compute.internal.`, `volume pvc-1 is attached to [node], not to [node].`},
		{"FailedAttachVolume", `worker-1.example.com and 10.0.0.9 have it, worker-10 has not`, `[node] and [node] have it, worker-10 has not`},
		{"Evicted", `The node was low on resource: memory.`, `The node was low on resource: memory.`},
		{"BackOff", `Back-off restarting failed container web in pod web-0_shop(4f6f2a0c-8a55-4d0c-9a35-3d1a54a5c0de)`, `Back-off restarting failed container web in pod web-0_shop(4f6f2a0c-8a55-4d0c-9a35-3d1a54a5c0de)`},
		{"Failed", "", ""},
	} {
		if got := Telling(c.reason, c.text, isNode); got != c.want {
			t.Errorf("%s: %s\nbecomes %s\nwant    %s", c.reason, c.text, got, c.want)
		}
	}
}

// TestReportMasks: a status tells as little, but for what a container says at its end.
func TestReportMasks(t *testing.T) {
	const text = "worker-1 cannot reach 10.0.0.2"
	status := running()
	status.Reason, status.Message = "Evicted", text
	status.Conditions = append(status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Message: text})
	status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: text}}
	status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Message: "I cannot reach 10.1.1.1"}
	report, err := Report(&status, 0, "worker-1")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(report, "worker-1") || strings.Contains(report, "10.0.0.2") || strings.Count(report, "[node] cannot reach [address]") != 3 || !strings.Contains(report, "I cannot reach 10.1.1.1") {
		t.Error(report)
	}
	if status.Message != text {
		t.Error("what is reported was changed")
	}
	status.Reason, status.Message = "OutOfcpu", "Node didn't have enough resource: cpu, requested: 100, used: 950, capacity: 1000"
	report, err = Report(&status, 0, "worker-1")
	var got corev1.PodStatus
	if err != nil || json.Unmarshal([]byte(report), &got) != nil || got.Message != noRoom {
		t.Errorf("%q, %v", got.Message, err)
	}
}
