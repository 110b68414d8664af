package namespace

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestDomain: a provider that knows of domains is told what home is called in its own DNS, and passes that
// on with what goes onward, whatever it is called itself; one that does not is told nothing.
func TestDomain(t *testing.T) {
	t.Parallel()
	c := newChain(t, v1alpha1.OnwardAllow)
	c.offloader.domain = "milan.example"
	hold := func(reason, atRome, atOslo string) {
		t.Helper()
		c.settle()
		for _, at := range []struct{ peering, namespace, name, want string }{
			{c.rome, c.home, c.middle, atRome}, {c.oslo, c.middle, c.last, atOslo},
		} {
			here, there := c.entry(at.peering, at.namespace)
			if here == nil || there == nil || here.Domain != at.want || there.Domain != at.want {
				t.Errorf("%s: %s is told %+v and has %+v, want %q", reason, at.peering, here, there, at.want)
			}
			if got := c.labels(at.name)["home-domain"]; got != at.want {
				t.Errorf("%s: the namespace at %s says %q, want %q", reason, at.peering, got, at.want)
			}
		}
	}
	hold("none knows of domains", "", "")
	c.knows(c.rome, v1alpha1.FeatureOnward, v1alpha1.FeatureDomains)
	hold("the first one does", "milan.example", "")
	c.knows(c.oslo, v1alpha1.FeatureOnward, v1alpha1.FeatureDomains)
	hold("both do", "milan.example", "milan.example")
	c.offloader.domain = ""
	hold("home is called as most are", "", "")
}

// TestDomainRefused: what cannot be a domain is refused by name, whatever the API server let pass.
func TestDomainRefused(t *testing.T) {
	for domain, want := range map[string]string{
		"rome.example": "", "": "", "Rome.Example": v1alpha1.ReasonInvalid, "a b": v1alpha1.ReasonInvalid, "..": v1alpha1.ReasonInvalid,
		"a.aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa": v1alpha1.ReasonInvalid,
	} {
		m := v1alpha1.NamespaceMapping{Strategy: v1alpha1.MappingDefaultName, Domain: domain}
		_, v := remoteName("shop", m, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "milan"}}, v1alpha1.SystemNamespace)
		if v.reason != want {
			t.Errorf("%q: %+v, want %q", domain, v, want)
		}
		if got := entryOf(entryJSON(m)); !cmp.Equal(got, m) {
			t.Errorf("%q comes back as %+v", domain, got)
		}
	}
}
