package auth

import (
	"encoding/json"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/peering/claim"
)

// maxBody bounds a request.
const maxBody = 64 << 10

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
	if err := claim.Cluster(&s.Cluster); err != nil {
		return invalid("%v", err)
	}
	if !claim.UUID(s.PeeringUID) {
		return invalid("spec.peeringUID: not a UUID in lower case")
	}
	return nil
}
