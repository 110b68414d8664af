package v1alpha1

import (
	"strings"
	"testing"
)

func TestDomains(t *testing.T) {
	long := strings.Repeat("a", 60)
	for _, c := range []struct{ domain, unusual, of string }{
		{"", "", "cluster.local"},
		{"cluster.local", "", "cluster.local"},
		{"Cluster.Local.", "", "cluster.local"},
		{"rome.example", "rome.example", "rome.example"},
		{"rome", "rome", "rome"},
		{"Rome.Example.", "rome.example", "cluster.local"}, // as a resolver says it, and no label of ours
		{long + ".ab", long + ".ab", long + ".ab"},
		{long + ".abc", "", "cluster.local"},
		{"rome..example", "", "cluster.local"},
		{".", "", "cluster.local"},
		{"rome_example", "", "cluster.local"},
		{"-rome", "", "cluster.local"},
		{"rome example", "", "cluster.local"},
	} {
		if got := Unusual(c.domain); got != c.unusual {
			t.Errorf("%q is exchanged as %q, want %q", c.domain, got, c.unusual)
		}
		if got := DomainOf(c.domain); got != c.of {
			t.Errorf("%q says %q, want %q", c.domain, got, c.of)
		}
	}
}
