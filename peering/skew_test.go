package peering

import (
	"context"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// upgrade makes the provider another build, as its pelago-auth would say.
func (s *stage) upgrade(version string, features ...string) {
	s.t.Helper()
	identity := s.identity()
	if err := s.client.Get(context.Background(), client.ObjectKeyFromObject(identity), identity); err != nil {
		s.t.Fatal(err)
	}
	before := identity.DeepCopy()
	identity.Status.Cluster.Version, identity.Status.Cluster.Features = version, features
	if err := s.client.Status().Patch(context.Background(), identity, client.MergeFrom(before)); err != nil {
		s.t.Fatal(err)
	}
}

// compares is what the Peering says of what both know.
func compares(p *v1alpha1.Peering) (reason, message string) {
	c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionCompatible)
	if c == nil {
		return "", ""
	}
	return c.Reason, c.Message
}

// TestOlderProvider: a provider that lacks what can be done without is peered with, and
// the Peering says what is not used until it is upgraded.
func TestOlderProvider(t *testing.T) {
	s := newStage(t)
	s.home.info.Features = append(s.home.info.Features, v1alpha1.FeatureOfKind("EndpointSlice"), v1alpha1.FeatureOfKind("Service"))
	p := s.peer()
	if _, message := compares(p); !strings.Contains(message, "v0.4.0, which does not know reflection.endpointslice/v1:") {
		t.Errorf("said: %q", message)
	}
	s.upgrade("v0.5.0", s.home.info.Features...)
	p = s.until("what was missing is there", func(p *v1alpha1.Peering) bool { return slices.Equal(p.Status.Remote.Features, s.home.info.Features) })
	if reason, message := compares(p); reason != v1alpha1.ReasonReady || message != "" {
		t.Errorf("upgraded, and it says %s %q", reason, message)
	}
}

// TestNewerProvider: a provider that has left this build behind is not used any more, and
// the Peering says which versions they are; what was agreed stays for the day of the upgrade.
func TestNewerProvider(t *testing.T) {
	s := newStage(t)
	s.peer()
	s.upgrade("v9.0.0", "offers/v1", "peering/v2")
	p := s.until("it is refused", has(v1alpha1.ConditionReady, v1alpha1.ReasonUnsupported))
	if _, message := compares(p); !strings.Contains(message, "v0.3.0") || !strings.Contains(message, "v9.0.0") || !strings.Contains(message, "peering/v1") {
		t.Errorf("said: %q", message)
	}
	s.credential() // it is there
	s.upgrade("v9.0.1", "offers/v1", "peering/v1", "peering/v2")
	s.until("and used again", ready)
}

// TestLaterFields: what a later build has written stays when this one changes the objects.
func TestLaterFields(t *testing.T) {
	s := newStage(t)
	p := s.peer()
	kept := []func(){kubetest.Later(t, s.client, p), kubetest.Later(t, s.client, s.identity())}
	s.home.info.Version = "v0.3.1"
	s.upgrade("v0.5.0", "peering/v1")
	s.until("both have heard of the other", func(p *v1alpha1.Peering) bool {
		identity := s.identity()
		err := s.client.Get(context.Background(), client.ObjectKeyFromObject(identity), identity)
		return err == nil && identity.Spec.Cluster.Version == "v0.3.1" && p.Status.Remote.Version == "v0.5.0"
	})
	for _, check := range kept {
		check()
	}
}
