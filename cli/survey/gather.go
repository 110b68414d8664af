package survey

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// mostNodes bounds how many nodes are looked at: what they tell is alike.
const mostNodes = 100

// Gather reads what a cluster shows. Only nodes, services and groups have to be readable;
// what is missing beside them costs a line of the report.
func Gather(ctx context.Context, c client.Reader, d discovery.DiscoveryInterface, version string) (Facts, error) {
	f := Facts{Version: version}
	groups, err := d.ServerGroups()
	if err != nil {
		return f, fmt.Errorf("reading the groups of the API: %w", err)
	}
	for _, group := range groups.Groups {
		f.Groups = append(f.Groups, group.Name)
	}
	var nodes corev1.NodeList
	if err := c.List(ctx, &nodes, client.Limit(mostNodes)); err != nil {
		return f, fmt.Errorf("listing nodes: %w", err)
	}
	f.Nodes = nodes.Items
	var services corev1.ServiceList
	if err := c.List(ctx, &services); err != nil {
		return f, fmt.Errorf("listing services: %w", err)
	}
	for _, s := range services.Items {
		f.LoadBalancer = f.LoadBalancer || s.Spec.Type == corev1.ServiceTypeLoadBalancer && len(s.Status.LoadBalancer.Ingress) > 0
	}
	f.gatherOptional(ctx, c)
	return f, nil
}

// gatherOptional reads what not every cluster has, or shows.
func (f *Facts) gatherOptional(ctx context.Context, c client.Reader) {
	var kubeadm corev1.ConfigMap
	if c.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: "kubeadm-config"}, &kubeadm) == nil {
		f.KubeadmConfig = kubeadm.Data["ClusterConfiguration"]
	}
	var pods corev1.PodList
	selector := client.MatchingLabels{"component": "kube-controller-manager"}
	if c.List(ctx, &pods, client.InNamespace("kube-system"), selector, client.Limit(1)) == nil && len(pods.Items) > 0 {
		for _, container := range pods.Items[0].Spec.Containers {
			f.ControllerManager = append(f.ControllerManager, append(container.Command, container.Args...)...)
		}
	}
	var ranges networkingv1.ServiceCIDRList
	if c.List(ctx, &ranges) == nil {
		for _, r := range ranges.Items {
			f.ServiceCIDRs = append(f.ServiceCIDRs, r.Spec.CIDRs...)
		}
	}
}
