package network

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// end is what one provider says of its end of a path, as far as it makes sense.
type end struct {
	// leaving says that the object is being removed.
	leaving bool
	// publicKey and endpoints are for the other end, and problem says why they are not taken.
	publicKey string
	endpoints []string
	problem   string
	// ready says that its tunnel is alive, reason why not, in text with its words.
	ready        bool
	reason, text string
	// used is as it is written there: only whether it changes counts.
	used string
}

// refusals are the reasons of a provider that wants no path.
var refusals = []string{v1alpha1.ReasonNotAllowed, v1alpha1.ReasonLimitExceeded}

// maxTime bounds a time as it is written.
const maxTime = 64

// receivedPath reads what a provider shows of a path.
func receivedPath(obj map[string]any) end {
	fields, meta := field(obj, "status"), field(obj, "metadata")
	e := end{leaving: meta["deletionTimestamp"] != nil}
	var err error
	if e.publicKey, err = receivedKey(fields, "status.publicKey"); err == nil {
		e.endpoints, err = receivedEndpoints(fields)
	}
	if err != nil {
		e.publicKey, e.endpoints, e.problem = "", nil, oneLine(err.Error(), maxSaid)
	}
	if text, ok := fields["used"].(string); ok && len(text) <= maxTime {
		if _, err := time.Parse(time.RFC3339, text); err == nil {
			e.used = text
		}
	}
	conditions, _ := fields["conditions"].([]any)
	for _, item := range conditions[:min(len(conditions), maxViews)] {
		c, _ := item.(map[string]any)
		if c["type"] != v1alpha1.ConditionReady {
			continue
		}
		e.ready = c["status"] == string(metav1.ConditionTrue)
		if text, ok := c["reason"].(string); ok && reasonWord.MatchString(text) && !e.ready {
			e.reason = text
		}
		if text, ok := c["message"].(string); ok {
			e.text = oneLine(text, maxSaid)
		}
		break
	}
	return e
}

// receivedEndpoints are those of an end, in order and each once.
func receivedEndpoints(fields map[string]any) ([]string, error) {
	all, err := receivedList(fields, "status.endpoints", maxTheirs, maxHost)
	if err != nil {
		return nil, err
	}
	var once []string
	for _, e := range all {
		if !endpoint(e) {
			return nil, fmt.Errorf("status.endpoints: %.80q is not HOST:PORT", e)
		}
		if !slices.Contains(once, e) {
			once = append(once, e)
		}
	}
	return once, nil
}

// refuses says whether a provider wants no path.
func (e end) refuses() bool { return slices.Contains(refusals, e.reason) }
