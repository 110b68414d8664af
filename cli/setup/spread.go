package setup

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kube"
)

// withoutAgents is what to do where pods cannot be privileged.
const withoutAgents = "allow it to namespace " + v1alpha1.NetworkNamespace + ", or do without the network: --set network.enabled=false"

// spread looks at one DaemonSet, as started does at a Deployment.
func (s Site) spread(ctx context.Context, key client.ObjectKey) (bool, string, error) {
	var d appsv1.DaemonSet
	if err := s.Client.Get(ctx, key, &d); err != nil {
		return false, unread(err), nil
	}
	if Spread(&d, nil, nil) {
		return true, "", nil
	}
	var pods corev1.PodList
	var nodes corev1.NodeList
	var events corev1.EventList
	if s.Client.List(ctx, &pods, client.InNamespace(key.Namespace), client.MatchingLabels(d.Spec.Selector.MatchLabels)) != nil ||
		s.Client.List(ctx, &nodes) != nil || s.Client.List(ctx, &events, client.InNamespace(key.Namespace)) != nil {
		return false, "", nil
	}
	if Spread(&d, pods.Items, nodes.Items) {
		return true, "", nil
	}
	return false, DiagnoseSpread(&d, pods.Items, events.Items), nil
}

// Spread reports whether a DaemonSet runs as it was asked to, on all nodes that work:
// nobody waits for the pods of those that do not.
func Spread(d *appsv1.DaemonSet, pods []corev1.Pod, nodes []corev1.Node) bool {
	if d.Status.ObservedGeneration < d.Generation {
		return false
	}
	missing := max(d.Status.DesiredNumberScheduled-d.Status.NumberAvailable, d.Status.DesiredNumberScheduled-d.Status.UpdatedNumberScheduled)
	broken := map[string]bool{}
	for _, n := range nodes {
		broken[n.Name] = !slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
	}
	for i := range pods {
		if broken[pods[i].Spec.NodeName] && metav1.IsControlledBy(&pods[i], d) {
			missing--
			delete(broken, pods[i].Spec.NodeName)
		}
	}
	return missing <= 0
}

// DiagnoseSpread says why a DaemonSet is not ready, and what to do about it.
func DiagnoseSpread(d *appsv1.DaemonSet, pods []corev1.Pod, events []corev1.Event) string {
	ready := fmt.Sprintf("%d of %d nodes have it", d.Status.NumberAvailable, d.Status.DesiredNumberScheduled)
	if int(d.Status.DesiredNumberScheduled) > len(pods) {
		var refused *corev1.Event
		for i, e := range events {
			if e.Reason == "FailedCreate" && e.InvolvedObject.Kind == daemonSetKind.Kind && e.InvolvedObject.UID == d.UID &&
				(refused == nil || refused.LastTimestamp.Before(&e.LastTimestamp)) {
				refused = &events[i]
			}
		}
		if refused != nil {
			remedy := "they have to be privileged: " + withoutAgents
			if d := kube.DenialIn(refused.Message); d.ByQuota() {
				remedy = d.Remedy()
			}
			return fmt.Sprintf("its pods are refused: %s; %s", oneLine(refused.Message), remedy)
		}
	}
	if len(pods) == 0 {
		return "it has no pod yet; if that stays, see whether the cluster's controller-manager runs"
	}
	return cmp.Or(firstTrouble(pods, events), ready)
}
