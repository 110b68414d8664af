package content

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestFamilies: what becomes of home's families in clusters of one and of both.
func TestFamilies(t *testing.T) {
	const four, six = corev1.IPv4Protocol, corev1.IPv6Protocol
	const single, prefer, require = corev1.IPFamilyPolicySingleStack, corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack
	type all = []corev1.IPFamily
	for _, c := range []struct {
		reason     string
		want       all
		policy     corev1.IPFamilyPolicy
		has        all
		families   all
		becomes    corev1.IPFamilyPolicy
		otherThere bool
	}{
		{"the provider's first one", all{four}, single, all{four, six}, all{four}, single, false},
		{"the provider's second one", all{six}, single, all{four, six}, all{six}, single, false},
		{"one that it has not", all{six}, single, all{four}, all{four}, single, true},
		{"both, home's first one first", all{six, four}, require, all{four, six}, all{six, four}, require, false},
		{"both, of which it has one", all{six, four}, require, all{four}, all{four}, prefer, false},
		{"both if they are there", all{four, six}, prefer, all{six}, all{six}, prefer, false},
		{"home has one only, and would take both", all{six}, prefer, all{four, six}, all{six, four}, prefer, false},
		{"would take both, and there is the other one only", all{six}, prefer, all{four}, all{four}, prefer, true},
		{"a provider that does not say what it has", all{six}, single, nil, nil, single, false},
		{"home says nothing", nil, single, all{four, six}, nil, single, false},
	} {
		t.Run(c.reason, func(t *testing.T) {
			got, policy := families(c.want, &c.policy, c.has)
			if !slices.Equal(got, c.families) || *policy != c.becomes {
				t.Errorf("%v %s, want %v %s", got, *policy, c.families, c.becomes)
			}
			again, still := families(got, policy, c.has)
			if !slices.Equal(got, again) || *still != *policy {
				t.Errorf("asked for again they become %v %s", again, *still)
			}
			if lacks := lacksFamilies(&serviceContent{IPFamilies: c.want}, Rules{Families: c.has}); (lacks != "") != c.otherThere || c.otherThere && !strings.Contains(lacks, string(c.want[0])) {
				t.Errorf("it says %q", lacks)
			}
		})
	}
	if got, policy := families(all{six}, nil, all{four, six}); !slices.Equal(got, all{six}) || policy != nil {
		t.Errorf("without a policy: %v", got)
	}
}

// TestPutFamilies: which changes of families an object takes as it is.
func TestPutFamilies(t *testing.T) {
	const four, six = corev1.IPv4Protocol, corev1.IPv6Protocol
	type all = []corev1.IPFamily
	of := func(families all, policy corev1.IPFamilyPolicy) *corev1.Service {
		return &corev1.Service{Spec: corev1.ServiceSpec{IPFamilies: families, IPFamilyPolicy: &policy, ClusterIPs: []string{"10.0.0.1", "fd00::1"}[:max(1, len(families))]}}
	}
	const single, prefer = corev1.IPFamilyPolicySingleStack, corev1.IPFamilyPolicyPreferDualStack
	for _, c := range []struct {
		reason     string
		have, want *corev1.Service
		families   all
		addresses  int
		anew       bool
	}{
		{"the same", of(all{four}, single), of(all{four}, single), all{four}, 1, false},
		{"another one", of(all{four}, single), of(all{six}, single), all{four}, 1, true},
		{"one more", of(all{four}, single), of(all{four, six}, prefer), all{four, six}, 1, false},
		{"in another order", of(all{four, six}, prefer), of(all{six, four}, prefer), all{four, six}, 2, false},
		{"the second one goes", of(all{four, six}, prefer), of(all{four}, single), all{four}, 1, false},
		{"the first one goes", of(all{four, six}, prefer), of(all{six}, single), all{four, six}, 2, true},
		{"a family of the cluster goes", of(all{four, six}, prefer), of(all{four}, prefer), all{four}, 1, true},
		{"nothing is said", of(all{six}, single), of(nil, single), all{six}, 1, false},
	} {
		t.Run(c.reason, func(t *testing.T) {
			next := c.have.DeepCopy()
			anew := putFamilies(next, c.want)
			if anew != c.anew || !slices.Equal(next.Spec.IPFamilies, c.families) || len(next.Spec.ClusterIPs) != c.addresses {
				t.Errorf("anew %t, %v with %v", anew, next.Spec.IPFamilies, next.Spec.ClusterIPs)
			}
		})
	}
}

// TestFamiliesAnywhere: a headless Service without a selector asks for what the API server of any cluster makes of it.
func TestFamiliesAnywhere(t *testing.T) {
	const four, six = corev1.IPv4Protocol, corev1.IPv6Protocol
	const single, prefer, require = corev1.IPFamilyPolicySingleStack, corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack
	type all = []corev1.IPFamily
	for _, c := range []struct {
		reason   string
		content  serviceContent
		has      all
		families all
		becomes  corev1.IPFamilyPolicy
		lacks    bool
	}{
		{"both, of which it has one", serviceContent{Headless: true, IPFamilies: all{four, six}, IPFamilyPolicy: new(require)}, all{six}, all{four, six}, require, false},
		{"one that had a selector at home", serviceContent{Headless: true, IPFamilies: all{four}, IPFamilyPolicy: new(prefer)}, all{six}, all{four, six}, prefer, false},
		{"a single one that it has not", serviceContent{Headless: true, IPFamilies: all{four}, IPFamilyPolicy: new(single)}, all{six}, all{six}, single, true},
		{"with a selector", serviceContent{Headless: true, Selector: map[string]string{"app": "web"}, IPFamilies: all{four, six}, IPFamilyPolicy: new(require)}, all{six}, all{six}, prefer, false},
		{"with an address", serviceContent{IPFamilies: all{four, six}, IPFamilyPolicy: new(require)}, all{six}, all{six}, prefer, false},
		{"a provider that does not say what it has", serviceContent{Headless: true, IPFamilies: all{four, six}, IPFamilyPolicy: new(require)}, nil, nil, require, false},
	} {
		t.Run(c.reason, func(t *testing.T) {
			s, rules := &corev1.Service{}, Rules{Families: c.has}
			if wrong := unpackService(&c.content, rules, s); wrong != "" || !slices.Equal(s.Spec.IPFamilies, c.families) || *s.Spec.IPFamilyPolicy != c.becomes {
				t.Errorf("%s %v %s, want %v %s", wrong, s.Spec.IPFamilies, *s.Spec.IPFamilyPolicy, c.families, c.becomes)
			}
			if lacks := lacksFamilies(&c.content, rules); (lacks != "") != c.lacks {
				t.Errorf("it says %q", lacks)
			}
		})
	}
}
