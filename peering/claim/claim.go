// Package claim judges what another cluster says of itself, before anybody stores it
// or shows it to people. It says what the form must be, not whether it is true.
package claim

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// Bounds of what a cluster may say of itself; the kinds have the same.
const (
	maxVersion  = 64
	maxFeatures = 64
	maxFeature  = 64
)

var (
	uuidForm    = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
	nameForm    = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	versionForm = regexp.MustCompile(`^[0-9A-Za-z.+_-]*$`)
	featureForm = regexp.MustCompile(`^[0-9A-Za-z._/-]+$`)
)

// UUID reports whether a text is a UUID in lower case.
func UUID(text string) bool { return uuidForm.MatchString(text) }

// Cluster checks the form of what a cluster says of itself. The error names the field
// and repeats nothing of what was said.
func Cluster(c *v1alpha1.ClusterInfo) error {
	switch {
	case !UUID(c.ID):
		return errors.New("spec.cluster.id: not a UUID in lower case")
	case len(c.Name) > v1alpha1.MaxClusterName:
		return fmt.Errorf("spec.cluster.name: more than %d characters", v1alpha1.MaxClusterName)
	case !nameForm.MatchString(c.Name):
		return errors.New("spec.cluster.name: not a DNS label of lower-case letters, digits and dashes")
	case len(c.Version) > maxVersion || !versionForm.MatchString(c.Version):
		return fmt.Errorf("spec.cluster.version: more than %d characters, or others than of a version", maxVersion)
	case len(c.KubernetesVersion) > maxVersion || !versionForm.MatchString(c.KubernetesVersion):
		return fmt.Errorf("spec.cluster.kubernetesVersion: more than %d characters, or others than of a version", maxVersion)
	case len(c.Features) > maxFeatures:
		return fmt.Errorf("spec.cluster.features: more than %d", maxFeatures)
	}
	seen := map[string]bool{}
	for i, f := range c.Features {
		if len(f) > maxFeature || !featureForm.MatchString(f) || seen[f] {
			return fmt.Errorf("spec.cluster.features[%d]: twice, more than %d characters, or others than of a feature", i, maxFeature)
		}
		seen[f] = true
	}
	return nil
}
