package reflection

import (
	"context"
	"fmt"

	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// bereft notes in the facts the Service of a slice that has endpoints in this cluster by whose
// addresses nothing at a provider reaches them, so that events are about it. While no tunnel to
// the provider is known, that means nothing; of slices that Pelago has made others tell.
func (r *consumer) bereft(ctx context.Context, s *discoveryv1.EndpointSlice, peering string, on []string, f *facts) error {
	if r.tunnels == nil || madeByUs(s) || s.Annotations[v1alpha1.AnnotationExternal] != "" || s.AddressType == discoveryv1.AddressTypeFQDN {
		return nil
	}
	if _, known := r.tunnels.Alive(peering); !known || !leftOut(s, peering, on, r.addresses) {
		return nil
	}
	kind, _ := kindOf(kindService)
	m, err := r.metadata(kind)
	if err != nil {
		return err
	}
	name := s.Labels[discoveryv1.LabelServiceName]
	if err := r.client.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: name}, m); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading the metadata of the Service of a slice: %w", err)
	} else if err == nil {
		f.bereft, f.home = name, m
	}
	return nil
}

// leftOut says whether a slice has endpoints in this cluster that have no address at a provider,
// though others of their family have.
func leftOut(s *discoveryv1.EndpointSlice, peering string, on []string, of Addresses) bool {
	if !of.Carries(peering, s.AddressType == discoveryv1.AddressTypeIPv4) {
		return false
	}
	for i, e := range s.Endpoints {
		if on[i] != "" || len(e.Addresses) == 0 {
			continue
		}
		if _, ok := translated(peering, s.AddressType, e.Addresses[0], of); !ok {
			return true
		}
	}
	return false
}
