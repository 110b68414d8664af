package chain

import (
	"strings"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// Plain is a condition's message in one line, without what is beside the point here:
// annotations, which the command line sets itself, and the apology of a provider that is
// asked again anyway.
func Plain(reason, message string) string {
	message = strings.Join(strings.Fields(message), " ")
	if reason == v1alpha1.ReasonWaiting && strings.HasPrefix(message, "the provider says: ") && strings.HasSuffix(message, "; try again") {
		return "waiting for the provider"
	}
	if before, after, found := strings.Cut(message, " (annotation "); found {
		_, rest, _ := strings.Cut(after, ")")
		message = before + rest
	}
	return message
}
