package auth

import (
	"encoding/json"
	"regexp"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// Bounds of what a cluster may say of itself; the kinds have the same.
const (
	maxBody     = 64 << 10
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

// application is the body of a request to the endpoint.
type application struct {
	Token string                `json:"token"`
	Spec  v1alpha1.IdentitySpec `json:"spec"`
}

// applicant is a cluster that asks to be let in: what it says, checked for form. None
// of it is known to be true but that it has the key of its request.
type applicant struct {
	tokenHash string
	spec      v1alpha1.IdentitySpec
	request   *request
}

// user is the name the applicant's credential will have.
func (a *applicant) user() string { return v1alpha1.UserPrefix + a.spec.PeeringUID }

// parse reads an application. Unknown fields are left out, for they come from newer
// versions. The token is not judged here: every string is as wrong as another.
func parse(body []byte) (*applicant, error) {
	var got application
	if err := json.Unmarshal(body, &got); err != nil {
		return nil, invalid("body: not the JSON of an application, {\"token\": …, \"spec\": …}")
	}
	if err := checkSpec(&got.Spec); err != nil {
		return nil, err
	}
	a := &applicant{tokenHash: v1alpha1.TokenHash(got.Token), spec: got.Spec}
	asked, err := parseRequest(a.spec.Request, a.user())
	if err != nil {
		return nil, invalid("spec.request: %v", err)
	}
	a.request = asked
	return a, nil
}

// checkSpec checks the form of what a cluster says of itself. Nothing it says is
// repeated in the error.
func checkSpec(s *v1alpha1.IdentitySpec) error {
	c := &s.Cluster
	switch {
	case !uuidForm.MatchString(c.ID):
		return invalid("spec.cluster.id: not a UUID in lower case")
	case len(c.Name) > v1alpha1.MaxClusterName:
		return invalid("spec.cluster.name: more than %d characters", v1alpha1.MaxClusterName)
	case !nameForm.MatchString(c.Name):
		return invalid("spec.cluster.name: not a DNS label of lower-case letters, digits and dashes")
	case len(c.Version) > maxVersion || !versionForm.MatchString(c.Version):
		return invalid("spec.cluster.version: more than %d characters, or others than of a version", maxVersion)
	case len(c.KubernetesVersion) > maxVersion || !versionForm.MatchString(c.KubernetesVersion):
		return invalid("spec.cluster.kubernetesVersion: more than %d characters, or others than of a version", maxVersion)
	case len(c.Features) > maxFeatures:
		return invalid("spec.cluster.features: more than %d", maxFeatures)
	case !uuidForm.MatchString(s.PeeringUID):
		return invalid("spec.peeringUID: not a UUID in lower case")
	}
	seen := map[string]bool{}
	for i, f := range c.Features {
		if len(f) > maxFeature || !featureForm.MatchString(f) || seen[f] {
			return invalid("spec.cluster.features[%d]: twice, more than %d characters, or others than of a feature", i, maxFeature)
		}
		seen[f] = true
	}
	return nil
}
