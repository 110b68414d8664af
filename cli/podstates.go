package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/cli/chain"
)

// PodsReport counts pods at other clusters by how they are, without those that have ended.
type PodsReport struct {
	// Running and ready.
	Running int `json:"running"`
	// NotReady ones run and are not ready.
	NotReady int `json:"notReady"`
	// Pending ones have not begun to run.
	Pending int `json:"pending"`
	// Refused ones are not run by the provider.
	Refused int `json:"refused"`
	// Ending ones are being deleted.
	Ending int `json:"ending"`
}

func (r *PodsReport) count(state chain.PodState) {
	switch state {
	case chain.PodRunning:
		r.Running++
	case chain.PodNotReady:
		r.NotReady++
	case chain.PodPending:
		r.Pending++
	case chain.PodRefused:
		r.Refused++
	case chain.PodEnding:
		r.Ending++
	}
}

// mostExcluded is how many nodes a selector leaves out at most: it is part of an address.
const mostExcluded = 30

// readPods reads the pods on virtual nodes, then the other ones of offloaded namespaces, so
// that none is read twice.
func (c *Cluster) readPods(ctx context.Context, s *snapshot) error {
	seen := map[types.UID]bool{}
	see := func(p *corev1.Pod) {
		if !seen[p.UID] {
			seen[p.UID] = true
			s.pods = append(s.pods, *p)
		}
	}
	var others []fields.Selector
	for _, n := range s.nodes {
		if err := c.eachPod(ctx, see, client.MatchingFields{"spec.nodeName": n.Name}); err != nil {
			return err
		}
		others = append(others, fields.OneTermNotEqualSelector("spec.nodeName", n.Name))
	}
	if len(others) > mostExcluded {
		others = nil
	}
	for _, o := range s.offloadings {
		if err := c.eachPod(ctx, see, client.InNamespace(o.Namespace), client.MatchingFieldsSelector{Selector: fields.AndSelectors(others...)}); err != nil {
			return err
		}
	}
	return nil
}

// trouble is the pods of one namespace that are alike: of one state and at one node.
type trouble struct {
	state       chain.PodState
	at, reason  string
	first       string // the name of one
	many        int
	lasting     bool
	unscheduled bool
}

// words says what is wrong, like "2 pods at milan are not ready".
func (t trouble) words() string {
	switch {
	case t.unscheduled:
		return fmt.Sprintf("%s %s for a node", pods(t.many), choose(t.many, "waits", "wait"))
	case t.state == chain.PodRefused:
		return fmt.Sprintf("%s at %s %s refused (%s)", pods(t.many), t.at, choose(t.many, "is", "are"), t.reason)
	case t.state == chain.PodNotReady:
		return fmt.Sprintf("%s at %s %s not ready", pods(t.many), t.at, choose(t.many, "is", "are"))
	}
	return fmt.Sprintf("%s at %s %s pending", pods(t.many), t.at, choose(t.many, "is", "are"))
}

// judgePods says which namespaces have pods at other clusters that are not well, or offloaded
// ones that wait for a node. On a node that is not ready itself only refusals are told: of
// the rest nothing is known.
func (s *snapshot) judgePods(r *Report, now time.Time) {
	peering, ready := map[string]string{}, map[string]bool{}
	for _, n := range r.VirtualNodes {
		peering[n.Name], ready[n.Name] = n.Peering, n.Ready
	}
	offloaded := map[string]bool{}
	for _, o := range s.offloadings {
		offloaded[o.Namespace] = o.DeletionTimestamp.IsZero()
	}
	found := map[string][]trouble{}
	for i := range s.pods {
		p := &s.pods[i]
		t := trouble{first: p.Name, many: 1, lasting: chain.Lasting(p, now)}
		if p.Spec.NodeName == "" {
			if !offloaded[p.Namespace] || !chain.Waits(p) {
				continue
			}
			t.unscheduled = true
		} else {
			t.at = peering[p.Spec.NodeName]
			t.state, t.reason = chain.StateOf(p)
			if t.at == "" || t.state != chain.PodRefused && (!ready[p.Spec.NodeName] || t.state != chain.PodNotReady && t.state != chain.PodPending) {
				continue
			}
		}
		found[p.Namespace] = merge(found[p.Namespace], t)
	}
	for _, namespace := range slices.Sorted(maps.Keys(found)) {
		lasting := keep(found[namespace], func(t trouble) bool { return t.lasting })
		passing := keep(found[namespace], func(t trouble) bool { return !t.lasting })
		r.Problems = append(r.Problems, troubled(namespace, lasting)...)
		r.Pending = append(r.Pending, troubled(namespace, passing)...)
	}
}

// merge counts one pod among those like it.
func merge(all []trouble, one trouble) []trouble {
	for i := range all {
		t := &all[i]
		if t.state == one.state && t.at == one.at && t.reason == one.reason && t.lasting == one.lasting && t.unscheduled == one.unscheduled {
			t.many += one.many
			t.first = min(t.first, one.first)
			return all
		}
	}
	return append(all, one)
}

// troubled is one line for a namespace, none if it has no trouble: what is worst comes first,
// and a pod of it is what to look at.
func troubled(namespace string, all []trouble) []Problem {
	if len(all) == 0 {
		return nil
	}
	worst := []chain.PodState{chain.PodRefused, chain.PodNotReady, chain.PodPending, ""}
	slices.SortFunc(all, func(a, b trouble) int {
		return cmp.Or(cmp.Compare(slices.Index(worst, a.state), slices.Index(worst, b.state)), cmp.Compare(a.at, b.at), cmp.Compare(a.reason, b.reason))
	})
	words := make([]string, len(all))
	for i, t := range all {
		words[i] = t.words()
	}
	return []Problem{{Object: "namespace " + namespace, Message: strings.Join(words, ", "),
		Remedy: fmt.Sprintf("see why: pelago explain pod %s -n %s", all[0].first, namespace)}}
}

// podsBy puts pods together that have one key.
func podsBy(all []corev1.Pod, key func(*corev1.Pod) string) map[string][]corev1.Pod {
	by := map[string][]corev1.Pod{}
	for i := range all {
		k := key(&all[i])
		by[k] = append(by[k], all[i])
	}
	return by
}
