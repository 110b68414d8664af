package reflection

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestServiceFamilies: a Service is of the same families at the provider as at home, follows when
// home's changes, and is made anew when its first one is another; the API server takes all of it.
func TestServiceFamilies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.build(v1alpha1.FeatureOfKind(kindService), v1alpha1.FeatureServiceFamilies)
	const four, six = corev1.IPv4Protocol, corev1.IPv6Protocol
	home := service(w.home, "web")
	home.Spec.IPFamilies, home.Spec.IPFamilyPolicy = []corev1.IPFamily{six}, new(corev1.IPFamilyPolicySingleStack)
	w.create(home)
	w.pod("web")
	there := func() *corev1.Service {
		w.as(kindService, "web")
		w.as(kindService, "web") // after it was removed to be made anew, at the latest
		if w.answer("web") != "True/Ready" {
			t.Errorf("%s", w.answer("web"))
		}
		return get(w, w.remote, "web", &corev1.Service{})
	}
	is := func(reason string, s *corev1.Service, policy corev1.IPFamilyPolicy, want ...corev1.IPFamily) {
		t.Helper()
		if s == nil || !slices.Equal(s.Spec.IPFamilies, want) || *s.Spec.IPFamilyPolicy != policy || len(s.Spec.ClusterIPs) != len(want) {
			t.Fatalf("%s: %+v, want %v", reason, s, want)
		}
	}
	become := func(policy corev1.IPFamilyPolicy, families ...corev1.IPFamily) {
		t.Helper()
		s := get(w, w.home, "web", &corev1.Service{})
		s.Spec.IPFamilyPolicy, s.Spec.IPFamilies = &policy, families
		if len(s.Spec.ClusterIPs) > len(families) {
			s.Spec.ClusterIPs = s.Spec.ClusterIPs[:len(families)]
		}
		w.update(s)
	}
	first := there()
	is("IPv6 alone", first, corev1.IPFamilyPolicySingleStack, six)
	become(corev1.IPFamilyPolicyRequireDualStack, six, four)
	is("both", there(), corev1.IPFamilyPolicyRequireDualStack, six, four)
	become(corev1.IPFamilyPolicySingleStack, six)
	now := there()
	is("IPv6 alone again", now, corev1.IPFamilyPolicySingleStack, six)
	if now.UID != first.UID || now.Spec.ClusterIP != first.Spec.ClusterIP {
		t.Error("it was made anew though its first family stays")
	}
	if err := w.raw.Delete(ctx, get(w, w.home, "web", &corev1.Service{})); err != nil {
		t.Fatal(err)
	}
	w.create(service(w.home, "web"))
	now = there()
	is("IPv4 alone", now, corev1.IPFamilyPolicySingleStack, four)
	if now.UID == first.UID {
		t.Error("its first family cannot have changed")
	}
	writes := w.writes
	there()
	if w.writes != writes {
		t.Errorf("%d writes though nothing changes", w.writes-writes)
	}
}

// TestServiceFamiliesUnknown: an older build is not sent what it would refuse.
func TestServiceFamiliesUnknown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.build(v1alpha1.FeatureOfKind(kindService))
	home := service(w.home, "web")
	home.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol}
	w.create(home)
	w.pod("web")
	w.as(kindService, "web")
	if s := get(w, w.remote, "web", &corev1.Service{}); s == nil || s.Spec.IPFamilies[0] != corev1.IPv4Protocol {
		t.Errorf("%+v, want the provider's first family", s)
	}
	w.build(v1alpha1.FeatureOfKind(kindService), v1alpha1.FeatureServiceFamilies)
	w.as(kindService, "web")
	w.as(kindService, "web")
	if s := get(w, w.remote, "web", &corev1.Service{}); s == nil || s.Spec.IPFamilies[0] != corev1.IPv6Protocol {
		t.Errorf("upgraded, and it is %+v", s)
	}
}

// oneFamily is an API server that was started with one range of Services.
type oneFamily struct {
	client.Client
	services string
}

func (o oneFamily) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if c, ok := obj.(*networkingv1.ServiceCIDR); ok {
		c.Spec.CIDRs = []string{o.services}
		return nil
	}
	return o.Client.Get(ctx, key, obj, opts...)
}

// TestServiceFamilyMissing: a provider without the family makes it of another one, and both owners
// are told.
func TestServiceFamilyMissing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.build(v1alpha1.FeatureOfKind(kindService), v1alpha1.FeatureServiceFamilies)
	w.provider.client = oneFamily{w.client, "10.43.0.0/16"}
	home := service(w.home, "web")
	home.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol}
	w.create(home)
	w.pod("web")
	for range 3 {
		w.as(kindService, "web")
	}
	if s := get(w, w.remote, "web", &corev1.Service{}); s == nil || s.Spec.IPFamilies[0] != corev1.IPv4Protocol {
		t.Errorf("it is %+v", s)
	}
	if w.answer("web") != "True/"+v1alpha1.ReasonFamilyMissing || w.told("not carried to "+w.name+" as it is: that cluster has no Services of its IP families") != 1 {
		t.Errorf("%s, told %d times", w.answer("web"), w.told("as it is"))
	}
}

// TestServiceFamiliesAnywhere: a headless Service without a selector is of both families in a cluster of one, too, as
// Kubernetes gives it both there, and stays as it is.
func TestServiceFamiliesAnywhere(t *testing.T) {
	t.Parallel()
	for _, has := range []string{"10.43.0.0/16", "fd43::/112"} {
		t.Run(has, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.build(v1alpha1.FeatureOfKind(kindService), v1alpha1.FeatureServiceFamilies)
			w.provider.client = oneFamily{w.client, has}
			home := service(w.home, "web")
			home.Spec.ClusterIP, home.Spec.Selector = corev1.ClusterIPNone, nil
			w.create(home)
			w.pod("web")
			w.as(kindService, "web")
			first, writes := get(w, w.remote, "web", &corev1.Service{}), w.writes
			if first == nil || w.answer("web") != "True/Ready" {
				t.Fatalf("%s: %v", w.answer("web"), first)
			}
			if got, want := first.Spec, home.Spec; !slices.Equal(got.IPFamilies, want.IPFamilies) || *got.IPFamilyPolicy != *want.IPFamilyPolicy {
				t.Errorf("%v %s, at home %v %s", got.IPFamilies, *got.IPFamilyPolicy, want.IPFamilies, *want.IPFamilyPolicy)
			}
			for range 2 {
				w.as(kindService, "web")
			}
			if now := get(w, w.remote, "web", &corev1.Service{}); now == nil || now.UID != first.UID || w.writes != writes {
				t.Errorf("nothing changes, and %d writes make it anew: %t", w.writes-writes, now == nil || now.UID != first.UID)
			}
		})
	}
}
