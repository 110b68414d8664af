package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// listing is what has been taken of a list so far.
type listing struct {
	mirror *mirror
	items  []*unstructured.Unstructured
	kept   int
	same   int    // of that, what the mirror has already
	next   string // where the next page begins, empty after the last
	whose  string // the version of the list
	beyond error  // why no more of it is kept
}

// errSlow says that an answer has begun, and does not come through in time.
var errSlow = fmt.Errorf("the peer's answer comes too slowly: %w", context.DeadlineExceeded)

// list reads all objects of a kind in pages.
func (s *session) list(ctx context.Context, m *mirror) error {
	ctx, cancel := context.WithTimeout(ctx, m.bounds.listTime())
	defer cancel()
	l, size := &listing{mirror: m}, pageSize
	defer l.drop()
	for n := 0; n < m.bounds.pages(size); n++ {
		err := s.page(ctx, l, size)
		// Honest objects of a large kind may be too much for one page, and any for a thin link.
		if size > 1 && (errors.Is(err, ErrTooLarge) && m.bounds.large() || errors.Is(err, errSlow) && ctx.Err() == nil) {
			size = 1 + size/8
			continue
		}
		if err == nil && l.beyond != nil && !m.bounds.Beyond {
			err = l.beyond
		}
		if err != nil {
			return err
		}
		if l.next != "" && l.beyond == nil {
			continue
		}
		if l.whose == "" {
			return errors.New("the peer's list has no version")
		}
		m.leaveOut(l.beyond)
		items := l.items
		l.items = nil
		for _, u := range m.replace(items, l.whose) {
			s.changed(s, u)
		}
		return nil
	}
	return fmt.Errorf("more than %d pages of %s: %w", m.bounds.pages(size), m.resource.Resource, ErrTooLarge)
}

// page reads the next part of a list.
func (s *session) page(ctx context.Context, l *listing, size int) error {
	query := url.Values{"limit": {strconv.Itoa(size)}}
	if l.next != "" {
		query.Set("continue", l.next)
	}
	return s.part(ctx, l, query)
}

// part reads what a query asks for. It may take callTimeout to begin, and as long again from its turn on.
func (s *session) part(ctx context.Context, l *listing, query url.Values) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	deadline := time.AfterFunc(callTimeout, func() { cancel(errSlow) })
	defer deadline.Stop()
	answer, err := s.get(ctx, l.mirror, query)
	if err != nil && errors.Is(context.Cause(ctx), errSlow) {
		return context.DeadlineExceeded // nothing has come
	}
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	t := &turn{ctx: ctx, r: answer.Body, gate: s.large, early: deadline}
	defer t.end(0)
	text, err := io.ReadAll(t)
	switch cause := context.Cause(ctx); {
	case err != nil && cause != nil:
		return fmt.Errorf("reading a list: %w", cause)
	case errors.Is(err, errNoAnswer):
		return fmt.Errorf("reading a list: %w", errSlow)
	case err != nil:
		return fmt.Errorf("reading a list: %w", err)
	}
	needs := cost(text)
	if needs > maxCost {
		return fmt.Errorf("reading a list: %w", ErrTooLarge)
	}
	return decode(ctx, needs, func() error { return l.take(text) })
}

// lookBack forgets where a watch ended if the peer is not there yet, as when its etcd was
// restored from a snapshot: a watch from a version to come tells of nothing until then. It
// asks for no object, as one may take longer to come than an answer may.
func (s *session) lookBack(ctx context.Context, m *mirror) error {
	ctx, cancel := context.WithTimeoutCause(ctx, m.patience(), errNoAnswer)
	defer cancel()
	l := &listing{mirror: m}
	defer l.drop()
	err := s.part(ctx, l, noObject())
	switch {
	case errors.Is(err, ErrTooLarge): // it answers, and the watch tells the rest
		return nil
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	}
	if before(l.whose, m.from()) {
		m.forget()
	}
	return nil
}

// noObject asks for an empty list, which has the version there is now: a label that is there
// and is not, at one name, so that nothing has to be gone through.
func noObject() url.Values {
	return url.Values{"fieldSelector": {"metadata.name=none"}, "labelSelector": {"pelago.dev/none,!pelago.dev/none"}}
}

// before says whether one version of a peer is older than another, where both are the
// numbers that they are in Kubernetes.
func before(a, b string) bool {
	x, err := strconv.ParseUint(a, 10, 64)
	y, err2 := strconv.ParseUint(b, 10, 64)
	return err == nil && err2 == nil && x < y
}

// take decodes a page, and keeps of it what fits.
func (l *listing) take(text []byte) error {
	var raw struct {
		Metadata metav1.ListMeta  `json:"metadata"`
		Items    []map[string]any `json:"items"`
	}
	if err := utiljson.Unmarshal(text, &raw); err != nil {
		return fmt.Errorf("reading a list: %w", err)
	}
	l.next, l.whose = raw.Metadata.Continue, raw.Metadata.ResourceVersion
	for _, item := range raw.Items {
		u := &unstructured.Unstructured{Object: item}
		l.mirror.tidy(u)
		u = l.mirror.known(u)
		more := weigh(u.Object)
		if l.beyond = l.mirror.fits(len(l.items)+1, l.kept+more); l.beyond != nil {
			break
		}
		had, same := l.mirror.has(u)
		if same {
			l.same += more
		}
		if l.beyond = l.mirror.share.swap(nil, u, more, l.spare(had, more), !l.mirror.bounds.Beyond); l.beyond != nil {
			break
		}
		l.items = append(l.items, u)
		l.kept += more
	}
	return nil
}

// spare is how much is dropped when the list replaces what the mirror has. As much as that
// has may be kept again, whatever others keep meanwhile.
func (l *listing) spare(had, more int) int {
	if l.kept+more <= had {
		return math.MaxInt
	}
	return had - l.same
}

// drop keeps nothing of a list that came to nothing.
func (l *listing) drop() { l.mirror.share.drop(l.items...) }
