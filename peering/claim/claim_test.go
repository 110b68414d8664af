package claim

import (
	"strings"
	"testing"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

func TestCluster(t *testing.T) {
	for _, c := range []struct {
		name, field, reason string
		change              func(*v1alpha1.ClusterInfo)
	}{
		{"whole", "", "what consumers say", func(*v1alpha1.ClusterInfo) {}},
		{"no version", "", "it is not required", func(c *v1alpha1.ClusterInfo) { c.Version = "" }},
		{"id", "spec.cluster.id", "not a UUID", func(c *v1alpha1.ClusterInfo) { c.ID = "rome" }},
		{"long name", "spec.cluster.name", "bounded", func(c *v1alpha1.ClusterInfo) { c.Name = strings.Repeat("a", 41) }},
		{"name", "spec.cluster.name", "not a label", func(c *v1alpha1.ClusterInfo) { c.Name = "../x" }},
		{"version", "spec.cluster.version", "people see it in terminals", func(c *v1alpha1.ClusterInfo) { c.Version = "v1\x1b[2J" }},
		{"long version", "spec.cluster.kubernetesVersion", "bounded", func(c *v1alpha1.ClusterInfo) { c.KubernetesVersion = strings.Repeat("1", 65) }},
		{"features", "spec.cluster.features", "bounded", func(c *v1alpha1.ClusterInfo) { c.Features = make([]string, 65) }},
		{"feature", "spec.cluster.features[1]", "not ASCII", func(c *v1alpha1.ClusterInfo) { c.Features = []string{"a", "é"} }},
		{"feature twice", "spec.cluster.features[1]", "a set", func(c *v1alpha1.ClusterInfo) { c.Features = []string{"a", "a"} }},
	} {
		info := v1alpha1.ClusterInfo{ID: "0b8c5c5e-7a2f-4c51-9d3c-2f1c7c1f6a10", Name: "rome", Version: "v0.1.0+x", Features: []string{"peering/v1"}}
		c.change(&info)
		err := Cluster(&info)
		if (err == nil) != (c.field == "") || err != nil && !strings.HasPrefix(err.Error(), c.field+":") {
			t.Errorf("%s: %v, want a complaint of %q: %s", c.name, err, c.field, c.reason)
		}
	}
}
