package network

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/policy"
)

// scene is what the rules of all namespaces follow from alike. Nobody changes it.
type scene struct {
	// namespaces are the labels of each.
	namespaces map[string]map[string]string
	// pods are all that have a network of their own and have not ended, by the peering whose
	// provider they run at, "" here.
	pods map[string][]policy.Pod
}

// scenes gives one scene to all who ask while nothing changes: there may be many pods, and many namespaces with
// policies are looked at in a row. The zero value reads one for each who asks.
type scenes struct {
	// shared says that all is told of that changes.
	shared bool

	reading sync.Mutex // held by who reads; others wait for what is read

	mu      sync.Mutex
	changes uint64 // how many were told of
	last    *scene
	at      uint64 // as many changes are in last, or more
}

// change is told of whatever changes a scene, once caches have it.
func (s *scenes) change() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes++
}

// drop lets go of what is kept.
func (s *scenes) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = nil
}

// now is a scene with all that was told of before the call.
func (s *scenes) now(ctx context.Context, reader client.Reader) (*scene, error) {
	if !s.shared {
		return sceneOf(ctx, reader)
	}
	s.mu.Lock()
	least := s.changes
	s.mu.Unlock()
	s.reading.Lock()
	defer s.reading.Unlock()
	s.mu.Lock()
	last, at, changes := s.last, s.at, s.changes
	s.mu.Unlock()
	if last != nil && at >= least {
		return last, nil
	}
	anew, err := sceneOf(ctx, reader)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.at = anew, changes
	return anew, nil
}

// sceneOf reads what there is.
func sceneOf(ctx context.Context, reader client.Reader) (*scene, error) {
	s := &scene{namespaces: map[string]map[string]string{}, pods: map[string][]policy.Pod{}}
	namespaces := &corev1.NamespaceList{}
	if err := reader.List(ctx, namespaces, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing namespaces: %w", err)
	}
	for i := range namespaces.Items {
		s.namespaces[namespaces.Items[i].Name] = namespaces.Items[i].Labels
	}
	nodes := &corev1.NodeList{}
	if err := reader.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	behind := map[string]string{}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		if behind[n.Name] = ""; n.Labels[v1alpha1.LabelType] == v1alpha1.TypeVirtualNode {
			behind[n.Name] = n.Labels[v1alpha1.LabelPeering]
		}
	}
	pods := &corev1.PodList{}
	if err := reader.List(ctx, pods, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		if at, known := behind[p.Spec.NodeName]; known && networked(p) {
			s.pods[at] = append(s.pods[at], seen(p))
		}
	}
	return s, nil
}
