package cli

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// TestKinds holds that what is known of kinds without asking is what servers say.
func TestKinds(t *testing.T) {
	newStage(t, 0)
	config := servers.server(t, 0)
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	c, err := newCluster(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	for version := range kinds {
		list, err := d.ServerResourcesForGroupVersion(version.String())
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, resource := range list.APIResources {
			if strings.Contains(resource.Name, "/") || !knows(version, resource.Kind) {
				continue
			}
			found++
			mapping, err := c.Client.RESTMapper().RESTMapping(schema.GroupKind{Group: version.Group, Kind: resource.Kind}, version.Version)
			if err != nil || mapping.Resource.Resource != resource.Name || (mapping.Scope.Name() == "namespace") != resource.Namespaced {
				t.Errorf("%s %s: %+v, %v; the server says %s, namespaced %t", version, resource.Kind, mapping, err, resource.Name, resource.Namespaced)
			}
		}
		if want := len(kinds[version].clustered) + len(kinds[version].namespaced); found != want {
			t.Errorf("%s: the server has %d of the %d kinds", version, found, want)
		}
	}
	gk := schema.GroupKind{Group: "storage.k8s.io", Kind: "StorageClass"}
	if _, err := c.Client.RESTMapper().RESTMapping(gk, "v1"); err != nil {
		t.Errorf("a kind that has to be asked for: %v", err)
	}
}

func knows(version schema.GroupVersion, kind string) bool {
	for _, known := range append(append([]string{}, kinds[version].clustered...), kinds[version].namespaced...) {
		if known == kind {
			return true
		}
	}
	return false
}
