package network

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kube"
)

// make makes the Service and the slice of a mapping what they should be. It says why not, if that
// is for people to change.
func (m *mapper) make(ctx context.Context, o *v1alpha1.IPMapping, to netip.Addr) (reason, text string, err error) {
	service, slice := children(o, to)
	haveService, haveSlice := &corev1.Service{}, &discoveryv1.EndpointSlice{}
	for _, have := range []client.Object{haveService, haveSlice} {
		err := m.live.Get(ctx, client.ObjectKeyFromObject(o), have)
		if client.IgnoreNotFound(err) != nil {
			return "", "", fmt.Errorf("reading what a mapping has: %w", err)
		}
		if err == nil && !metav1.IsControlledBy(have, o) {
			return v1alpha1.ReasonNameTaken, fmt.Sprintf("there is a %s %s in this namespace that is not of this mapping: rename or remove one of both", nameOf(have), o.Name), nil
		}
		if have.GetDeletionTimestamp() != nil {
			return v1alpha1.ReasonWaiting, fmt.Sprintf("%s %s is being removed", nameOf(have), o.Name), nil
		}
	}
	if err := m.makeService(ctx, haveService, service); err != nil {
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) && !kube.Uncounted(err) {
			return v1alpha1.ReasonInvalid, "this cluster refuses its Service: " + err.Error(), nil
		}
		return "", "", err
	}
	if err := m.makeSlice(ctx, haveSlice, slice); err != nil {
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) && !kube.Uncounted(err) {
			return v1alpha1.ReasonInvalid, "this cluster refuses its EndpointSlice: " + err.Error(), nil
		}
		return "", "", err
	}
	return "", "", nil
}

func (m *mapper) makeService(ctx context.Context, have, want *corev1.Service) error {
	if have.UID == "" {
		if err := m.client.Create(ctx, want); err != nil {
			return fmt.Errorf("making the Service of a mapping: %w", err)
		}
		return nil
	}
	if len(have.Spec.IPFamilies) > 0 && have.Spec.IPFamilies[0] != want.Spec.IPFamilies[0] {
		return m.remove(ctx, have) // which cannot be changed; its going brings us back
	}
	after := have.DeepCopy()
	after.Labels = merged(after.Labels, want.Labels)
	after.Spec.Selector, after.Spec.Ports = nil, want.Spec.Ports
	for i := range after.Spec.Ports {
		p := &after.Spec.Ports[i]
		p.TargetPort.IntVal = p.Port // as the API server has it
		for _, was := range have.Spec.Ports {
			if was.Name == p.Name && was.Protocol == p.Protocol {
				p.NodePort = was.NodePort
			}
		}
	}
	if equality.Semantic.DeepEqual(have, after) {
		return nil
	}
	if err := m.client.Patch(ctx, after, client.MergeFrom(have)); err != nil {
		return fmt.Errorf("changing the Service of a mapping: %w", err)
	}
	return nil
}

func (m *mapper) makeSlice(ctx context.Context, have, want *discoveryv1.EndpointSlice) error {
	if have.UID == "" {
		if err := m.client.Create(ctx, want); err != nil {
			return fmt.Errorf("making the EndpointSlice of a mapping: %w", err)
		}
		return nil
	}
	if have.AddressType != want.AddressType {
		return m.remove(ctx, have) // its going brings us back
	}
	after := have.DeepCopy()
	after.Labels, after.Annotations = merged(after.Labels, want.Labels), merged(after.Annotations, want.Annotations)
	after.Endpoints, after.Ports = want.Endpoints, want.Ports
	if equality.Semantic.DeepEqual(have, after) {
		return nil
	}
	if err := m.client.Patch(ctx, after, client.MergeFrom(have)); err != nil {
		return fmt.Errorf("changing the EndpointSlice of a mapping: %w", err)
	}
	return nil
}

// unmake removes what a mapping has, so that nothing leads to what it may not give away.
func (m *mapper) unmake(ctx context.Context, o *v1alpha1.IPMapping) error {
	for _, have := range []client.Object{&discoveryv1.EndpointSlice{}, &corev1.Service{}} {
		err := m.live.Get(ctx, client.ObjectKeyFromObject(o), have)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading what a mapping has: %w", err)
		}
		if err != nil || !metav1.IsControlledBy(have, o) || have.GetDeletionTimestamp() != nil {
			continue
		}
		if err := m.remove(ctx, have); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes the very object that was seen.
func (m *mapper) remove(ctx context.Context, o client.Object) error {
	uid := o.GetUID()
	if err := m.client.Delete(ctx, o, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing the %s of a mapping: %w", nameOf(o), err)
	}
	return nil
}

func nameOf(o client.Object) string {
	if _, is := o.(*corev1.Service); is {
		return "Service"
	}
	return "EndpointSlice"
}

// crowded says of a mapping that gateways of some peering have as many older ones to let pods through to
// as they take. At home it stays as it is.
func (m *mapper) crowded(ctx context.Context, o *v1alpha1.IPMapping) (reason, text string, err error) {
	maps, mappings := &v1alpha1.NamespaceMapList{}, &v1alpha1.IPMappingList{}
	for _, list := range []client.ObjectList{maps, mappings} {
		if err := m.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return "", "", fmt.Errorf("listing what is mapped where: %w", err)
		}
	}
	for i := range maps.Items {
		peering, consumes := strings.CutPrefix(maps.Items[i].Namespace, v1alpha1.PeeringNamespacePrefix)
		offloaded := maps.Items[i].Spec.Namespaces
		if _, is := offloaded[o.Namespace]; !is || !consumes {
			continue
		}
		older := 0
		for j := range mappings.Items {
			other := &mappings.Items[j]
			_, is := offloaded[other.Namespace]
			if _, ready := mappedTo(other); is && ready && v1alpha1.CompareIPMappings(other, o) < 0 {
				older++
			}
		}
		if older >= v1alpha1.MaxIPMappings {
			return v1alpha1.ReasonTooMany, fmt.Sprintf("the namespaces that are offloaded to %s have %d older mappings, and no more are taken: remove some, or offload fewer namespaces to it; pods here reach it", peering, older), nil
		}
	}
	return "", "", nil
}

// waiting are the mappings that are too many for gateways of some peering.
func (m *mapper) waiting(ctx context.Context) (all []reconcile.Request) {
	list := &v1alpha1.IPMappingList{}
	if err := m.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil // it is looked at again after a while
	}
	for i := range list.Items {
		if c := meta.FindStatusCondition(list.Items[i].Status.Conditions, v1alpha1.ConditionReady); c != nil && c.Reason == v1alpha1.ReasonTooMany {
			all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return all
}

// mappedTo is what a mapping leads to, if it was found to be right as it is now.
func mappedTo(m *v1alpha1.IPMapping) (netip.Addr, bool) {
	a, err := netip.ParseAddr(m.Spec.Address)
	return a.Unmap(), err == nil && m.Right()
}
