package cli

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/chain"
)

// roomLimit bounds how long it is found out whether there is room: a large cluster has many pods.
const roomLimit = 10 * time.Second

// movers are pods at other clusters that are about to leave.
type movers struct {
	moving []corev1.Pod // made again by controllers
	lost   int          // made again by nobody
}

// add counts a pod. Those of DaemonSets are of the node.
func (m *movers) add(p *corev1.Pod) {
	switch owner := metav1.GetControllerOf(p); {
	case p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed:
	case owner == nil:
		m.lost++
	case owner.Kind != "DaemonSet":
		m.moving = append(m.moving, *p)
	}
}

// noteRoom says whether this cluster has room for pods that come home. Terms says that they
// are made with the terms they have.
func (c *Cluster) noteRoom(ctx context.Context, e *Env, moving []corev1.Pod, terms bool) {
	if len(moving) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, roomLimit)
	defer cancel()
	room, err := c.room(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		e.note("Whether this cluster has room for them could not be found out in %s, so they may stay Pending.", roomLimit)
		return
	case err != nil:
		e.note("Whether this cluster has room for them is not known, so they may stay Pending: %v.", err)
		return
	}
	e.note("%s", room.Fit(moving, terms).Words())
}

// room is what this cluster's own nodes have free.
func (c *Cluster) room(ctx context.Context) (*chain.Room, error) {
	var nodes []corev1.Node
	var list corev1.NodeList
	err := eachPage(ctx, c.Client, &list, func() { nodes = append(nodes, list.Items...); list.Items = nil })
	if err != nil {
		return nil, describe(err, c)
	}
	room := chain.NewRoom(nodes)
	counts := fields.AndSelectors(fields.OneTermNotEqualSelector("spec.nodeName", ""),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)), fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)))
	if err := c.eachPod(ctx, room.Take, client.MatchingFieldsSelector{Selector: counts}); err != nil {
		return nil, err
	}
	return room, nil
}

// virtual are the virtual nodes, or those of one peering.
func (c *Cluster) virtual(ctx context.Context, peering string) ([]corev1.Node, error) {
	labels := client.MatchingLabels{v1alpha1.LabelType: v1alpha1.TypeVirtualNode}
	if peering != "" {
		labels[v1alpha1.LabelPeering] = peering
	}
	var nodes corev1.NodeList
	err := c.Client.List(ctx, &nodes, labels)
	return nodes.Items, err
}
