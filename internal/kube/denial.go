package kube

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// Denial is what of an API server's admission does not let something in. Rights are not the
// matter: whoever asks has passed them by then.
type Denial struct {
	by denier
	// name of what denies it; of Pod Security the level.
	name string
}

// denier is how one kind of admission speaks, and what to do about it.
type denier struct {
	text           *regexp.Regexp
	called, remedy string
	quota          bool
}

// policies is what admission policies are called.
const policies = "admission policy %s"

// deniers are known by their words: an error has nothing else to tell them by.
var deniers = []denier{
	{regexp.MustCompile(`forbidden: exceeded quota: ([a-z0-9][a-z0-9.-]{0,252}),`), "ResourceQuota %s",
		"that namespace has used up its ResourceQuota %[1]s: remove there what is not needed, or have the cluster's owner raise it; see: kubectl get resourcequotas -A --field-selector metadata.name=%[1]s", true},
	{regexp.MustCompile(`forbidden: failed quota: ([a-z0-9][a-z0-9.-]{0,252}):`), "ResourceQuota %s",
		"the ResourceQuota %[1]s of that namespace wants amounts to be given: give those that the message names, or have the cluster's owner make a LimitRange there that does; see: kubectl get resourcequotas -A --field-selector metadata.name=%[1]s", true},
	{regexp.MustCompile(`forbidden: violates PodSecurity "(privileged|baseline|restricted):`), "Pod Security level %s",
		"that namespace holds pods to the Pod Security level %s: have the cluster's owner give it one that lets this in, by its label pod-security.kubernetes.io/enforce", false},
	{regexp.MustCompile(`(?:Validating|Mutating)AdmissionPolicy '([a-z0-9][a-z0-9.-]{0,252})' with binding '[^']*' denied request`), policies,
		"the admission policy %[1]s of the cluster denies it: do what the message says, or have the cluster's owner except this from it; see: kubectl get validatingadmissionpolicies,mutatingadmissionpolicies", false},
	{regexp.MustCompile(`admission webhook "([A-Za-z0-9][A-Za-z0-9._/-]{0,252})" denied the request`), "admission webhook %s",
		"the admission webhook %s of the cluster denies it: do what the message says, or have who runs that webhook except this from it", false},
}

// DenialOf finds what denied a request, nil if nothing that is known did: then the rights may be
// missing for it.
func DenialOf(err error) *Denial {
	var said apierrors.APIStatus
	if !errors.As(err, &said) {
		return nil
	}
	status := said.Status()
	switch status.Code { // webhooks and policies choose one
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return DenialIn(status.Message)
	}
	return nil
}

// DenialIn finds the same in the words of an API server, as in an event. What is named first
// counts: a webhook may quote others.
func DenialIn(text string) *Denial {
	var found *Denial
	first := len(text)
	for _, by := range deniers {
		if at := by.text.FindStringSubmatchIndex(text); at != nil && at[0] < first {
			first, found = at[0], &Denial{by: by, name: text[at[2]:at[3]]}
		}
	}
	return found
}

// ByQuota says whether a ResourceQuota does not let it in.
func (d *Denial) ByQuota() bool { return d != nil && d.by.quota }

// Reason is that of the condition of what is denied, or for which the rights are missing if nothing
// that is known denies it: the latter alone says that a peer does not want us.
func (d *Denial) Reason() string {
	switch {
	case d == nil:
		return v1alpha1.ReasonForbidden
	case d.by.quota:
		return v1alpha1.ReasonLimitExceeded
	}
	return v1alpha1.ReasonNotAdmitted
}

// By names what denied it.
func (d *Denial) By() string { return fmt.Sprintf(d.by.called, d.name) }

// ByPolicy says whether the admission policy of a name denied it.
func (d *Denial) ByPolicy(name string) bool {
	return d != nil && d.by.called == policies && d.name == name
}

// Remedy says what to do.
func (d *Denial) Remedy() string { return fmt.Sprintf(d.by.remedy, d.name) }
