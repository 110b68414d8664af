package reflection

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/pelago-dev/pelago/internal/kube"
)

// errUnread says that an answer could not be read; why may repeat what was in it.
var errUnread = errors.New("there was no answer that could be read")

// errAnswered says that an API server has refused.
var errAnswered = errors.New("the API server answered")

// plain is an error of an API server without its words: they may repeat what was sent to
// it, and a peer's may be anything.
func plain(doing string, err error) error {
	var status apierrors.APIStatus
	var call *url.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &status):
		return fmt.Errorf("%s: %w %s", doing, errAnswered, code(err))
	case errors.Is(err, errAnswered), errors.Is(err, errUnread), errors.As(err, &call),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fmt.Errorf("%s: %w", doing, err)
	}
	return fmt.Errorf("%s: %w", doing, errUnread)
}

// code is the number of an API server's answer, with the words that belong to it.
func code(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return "nothing"
	}
	n := int(status.Status().Code)
	return fmt.Sprintf("%d %s", n, http.StatusText(n))
}

// denier is what an API server's refusal comes from, by its name alone, as far as that is known.
func denier(err error) string {
	if denial := kube.DenialOf(err); denial != nil {
		return denial.By()
	}
	return code(err)
}
