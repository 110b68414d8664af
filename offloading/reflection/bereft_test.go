package reflection

import (
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestEndpointsLeftOut: a Service is told to lack endpoints at a provider that have no address
// there, once a tunnel to it is known, and not those that are there or that Pelago has made.
func TestEndpointsLeftOut(t *testing.T) {
	t.Parallel()
	w := newSlices(t)
	w.showing()
	const words = "Service web is not carried to "
	s := sliceOf(w.home, "web-1", "web", endpoint("10.1.0.7", "node1"), endpoint("192.0.2.7", "node1"))
	w.create(s)
	ours := sliceOf(w.home, "web-2", "web", endpoint("192.0.2.8", "node1"))
	ours.Labels[v1alpha1.LabelManagedBy] = "pelago"
	w.create(ours)
	both := func() {
		t.Helper()
		w.both("web-1")
		w.both("web-2")
	}
	both()
	if n := w.told(words); n != 0 {
		t.Errorf("told %d times while no tunnel is known", n)
	}
	w.tunnels.become(w.name, true)
	both()
	both()
	if w.answer("web-1") != "True/Ready" || w.told(words+w.name+" as it is: endpoints of it are left out") != 1 {
		t.Errorf("%s, and not told once", w.answer("web-1"))
	}
	if got := w.shown(); len(got) != 1 || got[0].Kind != kindService || got[0].Name != "web" || got[0].Refused || got[0].Reason != v1alpha1.ReasonEndpointsMissing {
		t.Errorf("shown: %+v", got)
	}
	s = get(w, w.home, "web-1", s)
	s.Endpoints[1] = endpoint("192.0.2.7", w.name) // there already
	w.update(s)
	both()
	if got := w.shown(); len(got) != 0 || w.told(words) != 0 {
		t.Errorf("nothing is left out, and %+v", got)
	}
}

// TestFamilyLeftOut: of a Service of both families nothing is missing where the network to the provider
// has one of them, and what has no address in that one is.
func TestFamilyLeftOut(t *testing.T) {
	of := func(kind discoveryv1.AddressType, address string) *discoveryv1.EndpointSlice {
		s := sliceOf("shop", "web-1", "web", endpoint(address, "node1"))
		s.AddressType = kind
		return s
	}
	for _, c := range []struct {
		name  string
		slice *discoveryv1.EndpointSlice
		only4 bool
		want  bool
	}{
		{"IPv4 with an address", of(discoveryv1.AddressTypeIPv4, "10.1.0.7"), true, false},
		{"IPv4 without one", of(discoveryv1.AddressTypeIPv4, "192.0.2.7"), true, true},
		{"a family that the network has not", of(discoveryv1.AddressTypeIPv6, "fd00:1::7"), true, false},
		{"IPv6 where there is some", of(discoveryv1.AddressTypeIPv6, "fd00:9::7"), false, true},
	} {
		if got := leftOut(c.slice, "milan", []string{""}, network{only4: c.only4}); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
