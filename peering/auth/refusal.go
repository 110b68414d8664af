package auth

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// reasonTooManyFailures is the answer to attempts beyond the rate of failures.
const reasonTooManyFailures = "TooManyFailures"

// refusal is an answer that is not the one hoped for, as the consumer gets it.
type refusal struct {
	status     int
	reason     string
	message    string
	retryAfter time.Duration // sent if not zero
}

// Error is the refusal as the consumer reads it.
func (r *refusal) Error() string { return r.message }

// refused is the one answer to wrong, used and expired tokens.
func refused() *refusal {
	return &refusal{status: http.StatusForbidden, reason: v1alpha1.ReasonInvitationRefused,
		message: "the invitation is wrong, used or expired; ask the provider for a new one"}
}

// tooManyPause is how long to wait after too many attempts.
const tooManyPause = 2 * time.Second

func tooMany() *refusal {
	return &refusal{status: http.StatusTooManyRequests, reason: reasonTooManyFailures, retryAfter: tooManyPause,
		message: "too many refused attempts at the moment; try again later"}
}

func invalid(format string, args ...any) *refusal {
	return &refusal{status: http.StatusBadRequest, reason: v1alpha1.ReasonInvalid, message: fmt.Sprintf(format, args...)}
}

func duplicate(format string, args ...any) *refusal {
	return &refusal{status: http.StatusConflict, reason: v1alpha1.ReasonDuplicate, message: fmt.Sprintf(format, args...)}
}

func nameRefused(format string, args ...any) *refusal {
	return &refusal{status: http.StatusConflict, reason: v1alpha1.ReasonNameRefused, message: fmt.Sprintf(format, args...)}
}

func unsupported(format string, args ...any) *refusal {
	return &refusal{status: http.StatusUnprocessableEntity, reason: v1alpha1.ReasonUnsupported, message: fmt.Sprintf(format, args...)}
}

func waiting(format string, args ...any) *refusal {
	return &refusal{status: http.StatusServiceUnavailable, reason: v1alpha1.ReasonWaiting, retryAfter: time.Second,
		message: fmt.Sprintf(format, args...)}
}

// later is a wait of which is known how long it is.
func later(wait time.Duration, message string) *refusal {
	return &refusal{status: http.StatusServiceUnavailable, reason: v1alpha1.ReasonWaiting, retryAfter: wait, message: message}
}

// plain is an error without what was in the objects it is about: the API server
// repeats values it finds invalid, and those may be requests or tokens.
func plain(err error) error {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsInvalid(err) {
		return err
	}
	s := status.Status()
	var fields []string
	if s.Details != nil {
		for _, cause := range s.Details.Causes {
			fields = append(fields, cause.Field)
		}
	}
	slices.Sort(fields)
	return fmt.Errorf("the API server finds it invalid: %s", strings.Join(slices.Compact(fields), ", "))
}
