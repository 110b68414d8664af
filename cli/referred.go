package cli

import (
	"context"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/chain"
)

// mostReferred bounds how many objects are read for one pod.
const mostReferred = 32

// referred reads what a pod refers to that is at another cluster and not well. Content is
// looked at for its keys only.
func (c *Cluster) referred(ctx context.Context, f *chain.PodFacts) {
	i := slices.IndexFunc(f.Nodes, func(n chain.NodeFacts) bool { return n.Node.Name == f.Pod.Spec.NodeName })
	if i < 0 {
		return
	}
	if state, _ := chain.StateOf(f.Pod); state != chain.PodPending && state != chain.PodNotReady {
		return
	}
	references := chain.References(f.Pod)
	if len(references) == 0 {
		return
	}
	stays := c.notReflected(ctx, f.Pod.Namespace, f.Nodes[i].Node.Labels[v1alpha1.LabelPeering])
	for _, r := range references[:min(len(references), mostReferred)] {
		one := chain.Referred{Reference: r}
		if e, has := stays[r.Kind+" "+r.Name]; has {
			one.Stays, one.Said = e.Message, metav1.NewTime(said(e))
		}
		c.readReferred(ctx, &one, f.Pod.Namespace)
		f.Referred = append(f.Referred, one)
	}
}

func (c *Cluster) readReferred(ctx context.Context, r *chain.Referred, namespace string) {
	key := client.ObjectKey{Namespace: namespace, Name: r.Name}
	var err error
	if r.Kind == "Secret" {
		var s corev1.Secret
		err = c.Client.Get(ctx, key, &s)
		r.Labels, r.Annotations, r.Has = s.Labels, s.Annotations, slices.Collect(maps.Keys(s.Data))
	} else {
		var m corev1.ConfigMap
		err = c.Client.Get(ctx, key, &m)
		r.Labels, r.Annotations, r.Has = m.Labels, m.Annotations, slices.AppendSeq(slices.Collect(maps.Keys(m.Data)), maps.Keys(m.BinaryData))
	}
	switch {
	case apierrors.IsNotFound(err):
		r.Absent = true
	case err != nil:
		r.Unread = describe(err, c).Error()
	}
}

// notReflected are the events that say why objects of a namespace do not travel to a provider, the latest
// by kind and name, with that as their message. One that there was not then is no news.
func (c *Cluster) notReflected(ctx context.Context, namespace, peering string) map[string]corev1.Event {
	var events corev1.EventList
	if err := c.Client.List(ctx, &events, client.InNamespace(namespace), client.MatchingFields{"reason": "NotReflected"}); err != nil {
		return nil
	}
	slices.SortStableFunc(events.Items, func(a, b corev1.Event) int { return said(a).Compare(said(b)) })
	stays := map[string]corev1.Event{}
	for _, e := range events.Items {
		what, why, found := strings.Cut(e.Message, " is not carried to "+peering+": ")
		if found && strings.HasPrefix(e.ReportingController, "pelago") && !strings.HasPrefix(why, "there is no such ") {
			e.Message = chain.Plain(e.Reason, why)
			stays[what] = e
		}
	}
	return stays
}
