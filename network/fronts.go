package network

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch;create;patch;delete,namespace=pelago-network
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=get;list;watch;create;patch;delete,namespace=pelago-network

// gatherFronts reads the Services and slices in the namespace of agents.
func (r *decider) gatherFronts(ctx context.Context, f *facts) error {
	services, behind, in := &corev1.ServiceList{}, &discoveryv1.EndpointSliceList{}, client.InNamespace(r.network.options.Namespace)
	if err := r.near.List(ctx, services, in); err != nil {
		return fmt.Errorf("listing the Services in front of tunnels: %w", err)
	}
	if err := r.near.List(ctx, behind, in); err != nil {
		return fmt.Errorf("listing what is behind the Services in front of tunnels: %w", err)
	}
	f.services, f.slices, f.denied = map[string]*corev1.Service{}, map[string]*discoveryv1.EndpointSlice{}, r.denied.all()
	for i := range services.Items {
		f.services[services.Items[i].Name] = &services.Items[i]
	}
	for i := range behind.Items {
		f.slices[behind.Items[i].Name] = &behind.Items[i]
	}
	return nil
}

// applyFronts makes Services and slices what was decided. Slices come first: what peers send
// goes nowhere until they are right.
func (r *decider) applyFronts(ctx context.Context, f *facts, d *decision, note func(error)) {
	for _, x := range d.fronts {
		if x.slice != nil {
			note(r.writeSlice(ctx, f.slices[x.name], x.slice))
		}
	}
	for _, x := range d.fronts {
		err := r.writeService(ctx, f, x)
		text := ""
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) {
			text = oneLine(err.Error(), maxText)
		}
		if r.denied.set(x.name, text) {
			r.agents.wake() // it is said in a condition
		}
		note(err)
	}
}

// removeFronts removes what nobody wants any more, when peers have been told.
func (r *decider) removeFronts(ctx context.Context, f *facts, note func(error)) {
	left := f.leftFronts()
	for name := range f.denied {
		if !f.fronted(name) {
			r.denied.set(name, "")
		}
	}
	for _, o := range left {
		note(r.removeFront(ctx, o))
	}
}

func (r *decider) writeService(ctx context.Context, f *facts, x front) error {
	have := f.services[x.name]
	if have == nil {
		s := &corev1.Service{}
		s.Namespace = r.network.options.Namespace
		x.shape(s, f.settings)
		if err := r.client.Create(ctx, s); err != nil {
			return fmt.Errorf("making Service %s: %w", x.name, err)
		}
		return nil
	}
	after := have.DeepCopy()
	x.shape(after, f.settings)
	if have.DeletionTimestamp != nil || equality.Semantic.DeepEqual(have, after) {
		return nil // one that goes is made anew when it is gone
	}
	if err := r.client.Patch(ctx, after, client.MergeFrom(have)); err != nil {
		return fmt.Errorf("changing Service %s: %w", x.name, err)
	}
	return nil
}

func (r *decider) writeSlice(ctx context.Context, have, want *discoveryv1.EndpointSlice) error {
	switch {
	case have == nil:
		want = want.DeepCopy()
		want.Namespace = r.network.options.Namespace
		if err := r.client.Create(ctx, want); err != nil {
			return fmt.Errorf("making EndpointSlice %s: %w", want.Name, err)
		}
		return nil
	case have.DeletionTimestamp != nil:
		return nil
	case have.AddressType != want.AddressType: // which cannot be changed; its going brings us back
		return r.removeFront(ctx, have)
	}
	after := have.DeepCopy()
	after.Labels, after.Endpoints, after.Ports = merged(after.Labels, want.Labels), want.Endpoints, want.Ports
	if equality.Semantic.DeepEqual(have, after) {
		return nil
	}
	if err := r.client.Patch(ctx, after, client.MergeFrom(have)); err != nil {
		return fmt.Errorf("changing EndpointSlice %s: %w", want.Name, err)
	}
	return nil
}

// removeFront deletes the very object that was seen.
func (r *decider) removeFront(ctx context.Context, o client.Object) error {
	uid := o.GetUID()
	if err := r.client.Delete(ctx, o, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing %T %s: %w", o, o.GetName(), err)
	}
	return nil
}
