package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/pelago-dev/pelago/internal/serving"
)

// anewPause is how long the program waits before it begins anew, if the API server did
// not answer.
const anewPause = 2 * time.Second

// socketVariable holds, after the program began anew, the number of the socket that the
// API server calls.
const socketVariable = "PELAGO_API_SOCKET"

// leaseLost is how controller-runtime says that it ends because this replica leads no
// more; it has no value for that.
const leaseLost = "leader election lost"

// interruption is why the program cannot go on though nothing is wrong with it or its
// settings: the API server did not answer, so that there is nothing to begin with, or
// this replica does not lead any more.
type interruption struct{ cause error }

func (i *interruption) Error() string { return i.cause.Error() }

// pause is how long to wait: not at all if only the Lease was lost, as the API server goes
// on to call this replica about pods.
func (i *interruption) pause() time.Duration {
	if strings.Contains(i.Error(), leaseLost) {
		return 0
	}
	return anewPause
}

// Unwrap is the cause.
func (i *interruption) Unwrap() error { return i.cause }

// away marks an error as an interruption if the API server did not answer, or not with
// a word on what was asked, or if the Lease was lost because of that.
func away(err error) error {
	var unreachable *url.Error
	if errors.As(err, &unreachable) || apierrors.IsServiceUnavailable(err) || apierrors.IsTimeout(err) ||
		apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err) ||
		strings.Contains(err.Error(), leaseLost) {
		return &interruption{cause: err}
	}
	return err
}

// anew begins the program anew in its own process, which has then forgotten everything.
// Were it to end instead, the kubelet would wait longer before each restart, up to five
// minutes, and an API server that has been away would be back long before this program.
// Without a pause it keeps the socket, so that calls wait for the beginning. It returns if
// ctx ends, or with an error.
func anew(ctx context.Context, pause time.Duration, socket *serving.Socket) error {
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(pause):
	}
	number := ""
	if pause == 0 {
		socket.Await() // else who is being answered would be cut off
		var err error
		if number, err = socket.Pass(); err != nil {
			return err
		}
	}
	if err := os.Setenv(socketVariable, number); err != nil {
		return fmt.Errorf("noting the socket for the API server: %w", err)
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	if err := syscall.Exec(program, os.Args, os.Environ()); err != nil {
		return fmt.Errorf("beginning anew: %w", err)
	}
	return nil
}
