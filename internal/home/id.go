package home

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// How long to wait before looking for the id again: first, and at most.
const (
	idDelay    = 200 * time.Millisecond
	idDelayMax = 5 * time.Second
)

// errNoID says that nobody has made the id yet.
var errNoID = errors.New("the cluster has no id yet; is pelago-manager running?")

// findID returns the cluster's id once there is one. Of several programs that may make
// it one wins, and the others take what it wrote.
func (h *Home) findID(ctx context.Context) (string, error) {
	end := h.options.Clock.Now().Add(h.options.IDWait)
	for delay := idDelay; ; delay = min(2*delay, idDelayMax) {
		id, err := h.tryID(ctx)
		if err == nil {
			return id, nil
		}
		again := errors.Is(err, errNoID) || apierrors.IsConflict(err)
		if !again || h.options.Clock.Now().Add(delay).After(end) {
			return "", fmt.Errorf("finding the cluster's id: %w", err)
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-h.options.Clock.After(delay):
		}
	}
}

// tryID reads the id, and writes one if there is none and this program may.
func (h *Home) tryID(ctx context.Context) (string, error) {
	held, err := h.read(ctx, v1alpha1.ClusterIDName)
	if apierrors.IsNotFound(err) && !h.options.Leads {
		return "", errNoID
	}
	if err != nil {
		return "", err
	}
	switch id := held.Data[v1alpha1.ClusterIDKey]; {
	case idPattern.MatchString(id):
		return id, nil
	case id != "":
		return "", fmt.Errorf("ConfigMap %s/%s holds %.50q, which is no id; restore the old one, or remove the key %s: peers will then take this for another cluster",
			h.options.Namespace, v1alpha1.ClusterIDName, id, v1alpha1.ClusterIDKey)
	case !h.options.Leads:
		return "", errNoID
	}
	id, err := newID(h.options.Random)
	if err != nil {
		return "", err
	}
	held.Data = map[string]string{v1alpha1.ClusterIDKey: id}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	return id, h.options.Client.Update(ctx, held) // with the version read: one winner
}

// newID makes a random UUID of version 4.
func newID(random io.Reader) (string, error) {
	var b [16]byte
	if _, err := io.ReadFull(random, b[:]); err != nil {
		return "", fmt.Errorf("making an id: %w", err)
	}
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]), nil
}
