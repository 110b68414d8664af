package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// usage is how the metrics API tells the use of a node, or of the containers of
// a pod.
type usage struct {
	Metadata   metav1.ObjectMeta   `json:"metadata"`
	Usage      corev1.ResourceList `json:"usage"`
	Containers []struct {
		Usage corev1.ResourceList `json:"usage"`
	} `json:"containers"`
}

// metrics wants the use of processor and memory of every node and of the shared
// pods: what kubectl top shows.
func metrics(ctx context.Context, e *env) error {
	err := until(ctx, "the metrics of nodes", func(ctx context.Context) error {
		items, err := e.usages(ctx, "nodes")
		if err != nil {
			return err
		}
		for _, node := range e.Nodes {
			if u, there := items[node]; !there || u.Usage.Cpu().IsZero() || u.Usage.Memory().IsZero() {
				return fmt.Errorf("none for %s", node)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return until(ctx, "the metrics of pods", func(ctx context.Context) error {
		items, err := e.usages(ctx, "namespaces/"+e.namespace+"/pods")
		if err != nil {
			return err
		}
		for _, pod := range e.webNames() {
			if u, there := items[pod]; !there || len(u.Containers) != 1 || u.Containers[0].Usage.Memory().IsZero() {
				return fmt.Errorf("none for %s", pod)
			}
		}
		return nil
	})
}

// usages reads a list of the metrics API, by name.
func (e *env) usages(ctx context.Context, path string) (map[string]usage, error) {
	text, err := e.client.CoreV1().RESTClient().Get().AbsPath("/apis/metrics.k8s.io/v1beta1/" + path).DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	var list struct {
		Items []usage `json:"items"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("reading metrics: %w", err)
	}
	items := map[string]usage{}
	for _, u := range list.Items {
		items[u.Metadata.Name] = u
	}
	return items, nil
}

// autoscaler puts load on a Deployment of one and wants a second pod, because of
// what was measured.
func autoscaler(ctx context.Context, e *env) error {
	const target = 50 // percent of the request
	// It rests between its loops, for there are few cores.
	t := e.template("while :; do i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; usleep 50000; done")
	t.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("10m")
	deployments := e.client.AppsV1().Deployments(e.namespace)
	_, err := deployments.Create(ctx, &appsv1.Deployment{ObjectMeta: e.meta(e.slug), Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: e.labels()}, Template: t,
	}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("creating a deployment: %w", err)
	}
	scalers := e.client.AutoscalingV2().HorizontalPodAutoscalers(e.namespace)
	_, err = scalers.Create(ctx, &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: e.meta(e.slug), Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: e.slug},
		MinReplicas:    new(int32(1)), MaxReplicas: 2,
		Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
			Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: new(int32(target))},
		}}},
	}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("creating an autoscaler: %w", err)
	}
	err = until(ctx, "a second pod under load", func(ctx context.Context) error {
		h, err := scalers.Get(ctx, e.slug, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if err := unscaled(h, target); err != nil {
			return err
		}
		pods, err := e.own(ctx)
		if err == nil && len(pods) < 2 {
			err = errors.New("the deployment has one pod")
		}
		return err
	})
	if err != nil {
		return err
	}
	// The load would slow the other checks.
	if err := deployments.Delete(ctx, e.slug, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}); err != nil {
		return fmt.Errorf("deleting the deployment: %w", err)
	}
	return nil
}

// unscaled says why an autoscaler has not asked for a second pod because of a
// use over its target.
func unscaled(h *autoscalingv2.HorizontalPodAutoscaler, target int32) error {
	use := "unknown"
	over := false
	for _, m := range h.Status.CurrentMetrics {
		if m.Resource != nil && m.Resource.Current.AverageUtilization != nil {
			use = fmt.Sprintf("%d%%", *m.Resource.Current.AverageUtilization)
			over = *m.Resource.Current.AverageUtilization > target
		}
	}
	if over && h.Status.DesiredReplicas >= 2 {
		return nil
	}
	said := ""
	for _, c := range h.Status.Conditions {
		if c.Status == corev1.ConditionFalse {
			said += "; " + c.Message
		}
	}
	return fmt.Errorf("it sees a use of %s and wants %d pods%s", use, h.Status.DesiredReplicas, said)
}
