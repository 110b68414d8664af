package torture

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// toApp begins the name of a Service; the app that it selects follows.
const toApp = "to-"

// IsService says whether a name is that of a Service, and AppOf which app it selects.
func IsService(name string) bool { return strings.HasPrefix(name, toApp) }

// AppOf is the app that a Service selects.
func AppOf(service string) string { return strings.TrimPrefix(service, toApp) }

// Service is what the rules look at. Place is where it was made at home, by its label.
type Service struct {
	Namespace, Name, App, Place string
	Port                        int
}

// Slice is what an EndpointSlice of a Service says of where connections go. Its Place is by the
// label that it has of its Service; one that came from a peer has none, and is where it says.
type Slice struct {
	Namespace, Service, Place string
	Port                      int
	// Sent says that it came from a peer.
	Sent bool
	// Ready are addresses that are.
	Ready []string
}

func serviceOf(o *corev1.Service) Service {
	s := Service{Namespace: o.Namespace, Name: o.Name, App: o.Spec.Selector[LabelApp], Place: o.Labels[LabelPlace]}
	if len(o.Spec.Ports) > 0 {
		s.Port = int(o.Spec.Ports[0].Port)
	}
	return s
}

func sliceOf(o *discoveryv1.EndpointSlice) Slice {
	s := Slice{Namespace: o.Namespace, Service: o.Labels[discoveryv1.LabelServiceName], Place: cmp.Or(o.Labels[LabelPlace], o.Labels[v1alpha1.LabelHomeNamespace]),
		Sent: o.Labels[discoveryv1.LabelManagedBy] == v1alpha1.GroupVersion.Group}
	if len(o.Ports) > 0 {
		s.Port = int(ptr.Deref(o.Ports[0].Port, 0))
	}
	for _, e := range o.Endpoints {
		if ptr.Deref(e.Conditions.Ready, true) {
			s.Ready = append(s.Ready, e.Addresses...)
		}
	}
	return s
}

// bound says whether pods of a place that have not ended are on the virtual node, and
// whether none at all is. Where only some are that have ended, what they needed may be
// there or not.
func (w *World) bound(place string) (needed, unneeded bool) {
	unneeded = true
	for _, pod := range w.Home.Pods {
		if pod.Namespace == place && pod.Node == Provider {
			needed, unneeded = needed || !pod.Counted, false
		}
	}
	return needed, unneeded
}

// unsettledReflected holds that what goes with pods is where they are, as it is at home,
// and nowhere else.
func (m *Model) unsettledReflected(w *World, name string, add func(string, ...any)) {
	place := m.Places[name]
	needed, unneeded := w.bound(name)
	value := func(kind, object string, held map[string]Held, want int) {
		version, wanted := "", ""
		for _, h := range held {
			if h.Namespace == Mapped(name) && h.Name == object {
				version = h.Canaries[0].Version
			}
		}
		if want >= 0 {
			wanted = strconv.Itoa(want)
		}
		if (needed || version != "" && wanted == "") && version != wanted {
			add("%s %s/%s at the provider has version %q, want %q", kind, Mapped(name), object, version, wanted)
		}
		if unneeded && version != "" {
			add("%s %s/%s is at the provider, and no pod that refers to it", kind, Mapped(name), object)
		}
	}
	value("Secret", Login, w.Remote.Secrets, place.Login)
	settings := place.Settings
	if settings == 0 {
		settings = -1 // there is none
	}
	value("ConfigMap", Settings, w.Remote.Configs, settings)
	for service, port := range place.Services {
		if needed && !slices.Contains(values(w.Remote.Services), Service{Mapped(name), service, AppOf(service), name, port}) {
			add("Service %s/%s is not at the provider with port %d", Mapped(name), service, port)
		}
		m.unsettledSlices(w, name, service, needed, add)
	}
	for _, s := range w.Remote.Services {
		if _, there := place.Services[s.Name]; s.Namespace == Mapped(name) && (!there || unneeded) {
			add("Service %s/%s is at the provider, wanted at home: %t, without pods there: %t", s.Namespace, s.Name, there, unneeded)
		}
	}
}

// unsettledSlices holds that slices name the pods that are ready: at home all of them, at
// the provider its own by themselves and those at home by what the network makes of their
// addresses, which keeps the last byte.
func (m *Model) unsettledSlices(w *World, name, service string, needed bool, add func(string, ...any)) {
	app, port := AppOf(service), m.Places[name].Services[service]
	same := func(what, namespace string, all map[string]Slice, sent bool, want []string, read func(string) string) {
		have := []string{}
		for _, s := range all {
			if s.Namespace != namespace || s.Service != service || s.Sent != sent {
				continue
			}
			for _, address := range s.Ready {
				have = append(have, read(address))
				if s.Port != port {
					add("a slice of %s/%s %s has port %d, want %d", namespace, service, what, s.Port, port)
				}
			}
		}
		slices.Sort(have)
		slices.Sort(want)
		if !slices.Equal(have, want) {
			add("slices of %s/%s %s have %s, want %s", namespace, service, what, have, want)
		}
	}
	var all, here, there []string
	for _, pod := range w.Home.Pods {
		if pod.Namespace == name && pod.App == app && pod.Ready && !pod.Deleting {
			all = append(all, pod.IP)
			if pod.Node != Provider {
				here = append(here, lastByte(pod.IP))
			}
		}
	}
	for _, pod := range w.Remote.Pods {
		if pod.Namespace == Mapped(name) && pod.App == app && pod.Ready && !pod.Deleting {
			there = append(there, pod.IP)
		}
	}
	itself := func(address string) string { return address }
	same("at home", name, w.Home.Slices, false, all, itself)
	if needed {
		same("at the provider, of its own pods,", Mapped(name), w.Remote.Slices, false, there, itself)
		same("at the provider, of pods at home,", Mapped(name), w.Remote.Slices, true, here, lastByte)
	}
}

func lastByte(address string) string {
	parsed, err := netip.ParseAddr(address)
	if err != nil {
		return address
	}
	bytes := parsed.AsSlice()
	return fmt.Sprintf("…%d", bytes[len(bytes)-1])
}

// strayed: a value, a Service or its slice is in another namespace than its own, or on its
// way and is one that stays home.
func strayed(w *World, _ *Memory) (found []Violation) {
	stray := func(kind, name string, held map[string]Held) {
		for _, h := range held {
			for _, c := range h.Canaries {
				if c.Object != name || h.Namespace != Mapped(c.Place) || h.Name != c.Object || !slices.Contains(offloadable, c.Place) {
					found = append(found, Violation{Place: c.Place, App: c.Object, Text: fmt.Sprintf("its value is in %s %s/%s of the provider", kind, h.Namespace, h.Name)})
				}
			}
		}
	}
	stray("Secret", Login, w.Remote.Secrets)
	stray("ConfigMap", Settings, w.Remote.Configs)
	outside := func(kind, namespace, place, service string) {
		if namespace != Mapped(place) || !slices.Contains(offloadable, place) {
			found = append(found, Violation{Place: place, App: service, Text: fmt.Sprintf("a %s of it is in %s of the provider", kind, namespace)})
		}
	}
	for _, s := range w.Remote.Services {
		outside("Service", s.Namespace, s.Place, s.Name)
	}
	for _, s := range w.Remote.Slices {
		outside("slice", s.Namespace, s.Place, s.Service)
	}
	for _, s := range w.Remote.Shadows {
		if s.Kind == "Secret" && s.HomeName != Login || s.Kind == "ConfigMap" && s.HomeName != Settings || s.Kind == "Service" && !IsService(s.HomeName) {
			found = append(found, Violation{Place: s.HomePlace, App: s.HomeName, Text: fmt.Sprintf("there is a ShadowObject of a %s that stays home", s.Kind)})
		}
	}
	return found
}
