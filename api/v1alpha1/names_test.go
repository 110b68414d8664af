package v1alpha1

import (
	"strings"
	"testing"
)

func TestCheckClusterName(t *testing.T) {
	cases := []struct{ reason, name, want string }{
		{"an ordinary name", "rome", ""},
		{"digits and dashes", "edge-01", ""},
		{"as long as may be", strings.Repeat("a", MaxClusterName), ""},
		{"too long", strings.Repeat("a", MaxClusterName+1), "at most 40"},
		{"empty", "", "is empty"},
		{"capitals", "Rome", "not a DNS label"},
		{"a dash last", "rome-", "not a DNS label"},
		{"dots", "rome.example.org", "not a DNS label"},
		{"a reserved word", "default", "is reserved"},
		{"a reserved beginning", "kube-one", "reserved word"},
		{"ours", "pelago-tenant-rome", "reserved word"},
	}
	for _, c := range cases {
		err := CheckClusterName(c.name)
		if (err == nil) != (c.want == "") || (err != nil && !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %q gives %v, want %q", c.reason, c.name, err, c.want)
		}
	}
}

// TestNamesFit holds what follows from the longest name: namespaces have 63 characters.
func TestNamesFit(t *testing.T) {
	longest := strings.Repeat("a", MaxClusterName)
	for _, name := range []string{TenantNamespace(longest), PeeringNamespace(longest), CredentialSecret(longest)} {
		if len(name) > 63 {
			t.Errorf("%s has %d characters", name, len(name))
		}
	}
}

func TestTokenHash(t *testing.T) {
	// The value of echo -n secret | sha256sum.
	if got, want := TokenHash("secret"), "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"; got != want {
		t.Errorf("hash %s, want %s", got, want)
	}
}
