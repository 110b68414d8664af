package test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// nodeReady waits for a node, as a rule a virtual one.
func (c *continuum) nodeReady(t *testing.T, cluster, node string) *corev1.Node {
	t.Helper()
	var n *corev1.Node
	eventually(t, patience, "node "+node+" is Ready in "+cluster, func() (err error) {
		if n, err = get[corev1.Node](c, cluster, "", node); err != nil {
			return err
		}
		if ready := nodeReadiness(n); !strings.HasPrefix(ready, "True") {
			return fmt.Errorf("Ready is %s", ready)
		}
		return nil
	})
	return n
}

func nodeReadiness(n *corev1.Node) string {
	for _, each := range n.Status.Conditions {
		if each.Type == corev1.NodeReady {
			return string(each.Status) + " " + each.Reason
		}
	}
	return "absent"
}

// virtualNode holds what a virtual node looks like, and that it comes back.
func virtualNode(t *testing.T, c *continuum) {
	node := c.nodeReady(t, "rome", "milan")
	tenant, err := get[v1alpha1.Peering](c, "rome", "", "milan")
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		v1alpha1.LabelType: v1alpha1.TypeVirtualNode, v1alpha1.LabelRemoteClusterID: tenant.Spec.ClusterID, "type": "virtual-kubelet",
		"hardware": "fast", "topology.kubernetes.io/region": "eu-north", corev1.LabelOSStable: "linux",
		"node.kubernetes.io/exclude-from-external-load-balancers": "true", corev1.LabelHostname: "milan",
	} {
		if node.Labels[key] != want {
			t.Errorf("label %s is %q, want %q", key, node.Labels[key], want)
		}
	}
	real, err := get[corev1.Node](c, "milan", "", "milan-1")
	if err != nil {
		t.Fatal(err)
	}
	if node.Status.NodeInfo.Architecture != real.Status.NodeInfo.Architecture || node.Labels[corev1.LabelArchStable] != real.Status.NodeInfo.Architecture {
		t.Errorf("architecture %s, want that of the provider's nodes, %s", node.Status.NodeInfo.Architecture, real.Status.NodeInfo.Architecture)
	}
	if !slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool {
		return taint.Key == v1alpha1.TaintVirtualNode && taint.Effect == corev1.TaintEffectNoExecute
	}) {
		t.Errorf("taints %v", node.Spec.Taints)
	}
	if err := c.Clients["rome"].Delete(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, "a deleted virtual node comes back", func() error {
		now, err := get[corev1.Node](c, "rome", "", "milan")
		if err != nil {
			return err
		}
		if now.UID == node.UID || !strings.HasPrefix(nodeReadiness(now), "True") {
			return fmt.Errorf("it has UID %s, Ready %s", now.UID, nodeReadiness(now))
		}
		return nil
	})
}

// allocatable holds that pods running there do not count twice: what the scheduler has
// left changes by exactly their requests.
func allocatable(t *testing.T, c *continuum) {
	s := c.offloaded(t, "rome", "--pod-offloading-strategy", "Remote")
	left := func() (int64, error) {
		node, err := get[corev1.Node](c, "rome", "", "milan")
		if err != nil {
			return 0, err
		}
		var pods corev1.PodList
		if err := c.Clients["rome"].List(context.Background(), &pods, client.MatchingFields{"spec.nodeName": "milan"}); err != nil {
			return 0, err
		}
		sum := node.Status.Allocatable.Cpu().MilliValue()
		for _, pod := range pods.Items {
			if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
				sum -= pod.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()
			}
		}
		return sum, nil
	}
	before, err := left()
	if err != nil || before <= 0 {
		t.Fatalf("left before: %dm, %v", before, err)
	}
	const count, each = 4, 50
	for i := range count {
		pod := s.sleeper(fmt.Sprintf("load-%d", i))
		pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = *resource.NewMilliQuantity(each, resource.DecimalSI)
		s.create(t, pod)
	}
	for i := range count {
		s.running(t, fmt.Sprintf("load-%d", i))
	}
	s.eventually(t, patience, "what is left has gone down by what the pods request", func() error {
		now, err := left()
		if err == nil && before-now != count*each {
			err = fmt.Errorf("from %dm to %dm", before, now)
		}
		return err
	})
}

// strangersStayAway holds that no pod of another namespace is bound to a virtual node,
// and that DaemonSets which tolerate everything still roll out.
func strangersStayAway(t *testing.T, c *continuum) {
	s := c.shop(t, "rome")
	everything := []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	pod := onto(s.sleeper("stranger"), "milan")
	pod.Spec.Tolerations = everything
	s.create(t, pod)
	set := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "agent", Namespace: s.name},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "agent"}}, Spec: s.sleeper("agent").Spec},
		},
	}
	set.Spec.Template.Spec.Tolerations = everything
	s.create(t, set)
	if out, err := s.kubectl(t, "rollout", "status", "daemonset/agent", "--timeout=3m"); err != nil {
		t.Errorf("rollout of a DaemonSet that tolerates everything: %s %v", out, err)
		s.dump(t)
	}
	never(t, 10*time.Second, "a pod of another namespace is bound to a virtual node", func() (bool, error) {
		now, err := get[corev1.Pod](c, "rome", s.name, "stranger")
		return err == nil && now.Spec.NodeName != "", err
	})
	direct := s.sleeper("direct")
	direct.Spec.NodeName, direct.Spec.Tolerations = "milan", everything
	if err := c.Clients["rome"].Create(t.Context(), direct); err == nil || !strings.Contains(err.Error(), "offload") {
		t.Errorf("a pod that names the virtual node itself: %v, want a refusal that says what to do", err)
	}
	mine, err := s.pods("")
	if err != nil || len(mine) < 2 {
		t.Fatalf("there are %d pods, %v", len(mine), err)
	}
	for _, each := range mine {
		var list corev1.PodList
		if err := c.Clients["milan"].List(t.Context(), &list, client.MatchingLabels{v1alpha1.LabelHomeUID: string(each.UID)}); err != nil || len(list.Items) > 0 {
			t.Errorf("milan runs %d pods of %s, %v; want none of a namespace that is not offloaded", len(list.Items), each.Name, err)
		}
	}
	namespace, err := get[corev1.Namespace](c, "rome", "", s.name)
	if err != nil {
		t.Fatal(err)
	}
	before := namespace.DeepCopy()
	namespace.Labels[v1alpha1.LabelOffloaded] = "true"
	if err := c.Clients["rome"].Patch(t.Context(), namespace, client.MergeFrom(before)); err == nil {
		t.Errorf("somebody writes the label that admission goes by")
	}
}
