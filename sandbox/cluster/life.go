package cluster

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// After a power cut an API server goes on with what it knew before. Until a node is heard
// again, and for most of a minute if it is not, the node and its pods are what they were in
// its last life. So what is said of them counts if it is newer than their machine.

// since is when each machine of the cluster was started, by name; all of them must run.
func (c *Cluster) since() (map[string]time.Time, error) {
	out := map[string]time.Time{}
	for _, name := range append(c.NodeNames(), c.ControlName()) {
		m, err := c.Machine(name)
		if err != nil {
			return nil, err
		}
		if out[name], err = m.Started(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// heard is when each node that is ready has last said so.
func heard(nodes []corev1.Node) map[string]time.Time {
	out := map[string]time.Time{}
	for _, node := range nodes {
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
				out[node.Name] = condition.LastHeartbeatTime.Time
			}
		}
	}
	return out
}

// ofThisLife tells whether something was said, and since the machine was started that is to
// have said it. The API has times in whole seconds.
func ofThisLife(said, since time.Time) bool {
	return !said.IsZero() && !said.Before(since.Truncate(time.Second))
}

// ofLastLife tells whether a pod is called ready whose containers ended with its node's last life.
func ofLastLife(pods []corev1.Pod, since map[string]time.Time) bool {
	for _, pod := range pods {
		if !podReady(&pod) {
			continue
		}
		for _, container := range pod.Status.ContainerStatuses {
			running := container.State.Running
			if running != nil && !ofThisLife(running.StartedAt.Time, since[pod.Spec.NodeName]) {
				return true
			}
		}
	}
	return false
}

func podReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}
