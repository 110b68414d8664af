package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

const (
	pageSize = 100
	// maxPages bounds a list, whatever is on its pages, and listTimeout how long it takes.
	maxPages    = 2 * maxObjects / pageSize // of a kind without bounds of its own
	listTimeout = 30 * time.Second
	// watchFor is how long one watch lives, from half of it to all of it. A peer ends
	// watches by itself as well.
	watchFor = time.Hour
	// busyFor is how long a peer may answer that it has too much to do, as while it prepares its
	// watches, before it counts as away. Meanwhile it is asked again after busyMin to busyMax,
	// and up to busyMin more at random.
	busyFor = 10 * time.Second
	busyMin = time.Second
	busyMax = 4 * time.Second
)

// follow keeps one mirror true until ctx ends. A watch that ends is taken up again
// where it ended, so that nothing is read twice, unless the peer has been set back.
func (s *session) follow(ctx context.Context, m *mirror) {
	retry := backoff{jitter: s.options.Jitter}
	var busy time.Time // since when it answers that it has too much to do
	for ctx.Err() == nil {
		began := s.options.Clock.Now()
		established, err := s.watch(ctx, m)
		if ctx.Err() != nil {
			return
		}
		if established {
			busy = time.Time{}
		}
		if established && s.options.Clock.Since(began) > retryMax {
			retry.reset()
		}
		wait := retry.next()
		switch {
		case apierrors.IsGone(err), apierrors.IsResourceExpired(err):
			m.forget()
		case errors.Is(err, ErrTooLarge):
			m.forget() // what was passed over is read again
			s.setHealth(m, over, err)
			wait *= slowPace
		case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
			s.setHealth(m, forbidden, err)
			wait *= slowPace
		case apierrors.IsNotFound(err):
			s.setHealth(m, unknown, err)
			wait *= slowPace
		case apierrors.IsTooManyRequests(err): // it answers
			wait = busyWait(err, s.options.Jitter())
			if now := s.options.Clock.Now(); busy.IsZero() {
				busy = now
			} else if now.Sub(busy) > busyFor {
				s.setHealth(m, down, err)
			}
		case established && quietEnd(err):
			if retry.attempts == 1 {
				wait = 0
			}
			if m.leftOut() != nil {
				m.forget()
			}
		default:
			s.setHealth(m, down, err)
		}
		if !s.sleep(ctx, wait) || !s.settle(ctx, m) {
			return
		}
	}
}

// busyWait is how long a peer is left alone that has too much to do: as it says, within bounds.
func busyWait(err error, jitter float64) time.Duration {
	said, _ := apierrors.SuggestsClientDelay(err)
	wait := min(max(time.Duration(said)*time.Second, busyMin), busyMax)
	return wait + time.Duration(jitter*float64(busyMin))
}

// settle waits until what the peer has caused so far is nearly done, and what it has sent
// is no more than it might have caused, or returns false when ctx ends.
func (s *session) settle(ctx context.Context, m *mirror) bool {
	for {
		wait := m.pace.lag(s.options.Clock.Now())
		if s.lag != nil {
			wait = max(wait, s.lag(m))
		}
		if wait == 0 {
			break
		}
		if !s.sleep(ctx, wait) {
			return false
		}
	}
	return ctx.Err() == nil
}

// slowPace is how many times slower a peer is asked for what it refuses or lacks, or
// has too much of.
const slowPace = 4

// quietEnd says whether a watch ended as watches do: at its time, or because its
// server restarts. The next attempt tells whether the peer still answers.
func quietEnd(err error) bool {
	return err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// sleep waits, or returns false when ctx ends.
func (s *session) sleep(ctx context.Context, d time.Duration) bool {
	if d == 0 {
		return ctx.Err() == nil
	}
	timer := s.options.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}

// watch lists if need be, and watches until the watch ends. It says whether the
// watch was established.
func (s *session) watch(ctx context.Context, m *mirror) (bool, error) {
	if m.from() != "" {
		if err := s.lookBack(ctx, m); err != nil {
			return false, err
		}
	}
	if m.from() == "" {
		if err := s.list(ctx, m); err != nil {
			return false, err
		}
	}
	life := watchFor/2 + time.Duration(s.options.Jitter()*float64(watchFor/2))
	if m.leftOut() != nil {
		life = beyondFor
	}
	query := url.Values{
		"watch":               {"true"},
		"allowWatchBookmarks": {"true"},
		"resourceVersion":     {m.from()},
		"timeoutSeconds":      {strconv.Itoa(int(life.Seconds()))},
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	deadline := time.AfterFunc(m.patience(), func() { cancel(errNoAnswer) })
	answer, err := s.get(ctx, m, query)
	if !deadline.Stop() && err == nil {
		answer.Body.Close()
		return false, errNoAnswer
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return false, err
	}
	defer answer.Body.Close()
	s.setHealth(m, up, nil)
	return true, s.events(ctx, answer.Body, m)
}

var errNoAnswer = errors.New("the peer does not answer in time")

// patience is how long an answer may take: a peer that was there a moment ago answers
// soon, or is not there.
func (m *mirror) patience() time.Duration {
	if h, _, _ := m.getHealth(); h == up {
		return graceToReset
	}
	return callTimeout
}

// events takes the events of a watch until it ends.
func (s *session) events(ctx context.Context, r io.Reader, m *mirror) error {
	reader := &eventReader{turn: turn{ctx: ctx, r: r, gate: s.large}}
	defer reader.end(0)
	reader.next()
	var beyond time.Time // since when something is left out
	for s.settle(ctx, m) {
		switch now := s.options.Clock.Now(); {
		case m.leftOut() == nil:
			beyond = time.Time{}
		case beyond.IsZero():
			beyond = now
		case now.Sub(beyond) >= beyondFor: // bookmarks come by at least
			return nil
		}
		if err := s.event(ctx, reader, m); err != nil {
			return err
		}
		reader.next()
	}
	return ctx.Err()
}

// event takes one event of a watch.
func (s *session) event(ctx context.Context, r *eventReader, m *mirror) error {
	var event struct {
		Type   string          `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	if err := r.decoder.Decode(&event); err != nil {
		return err
	}
	m.pace.take(s.options.Clock.Now()) // whomever it concerns: it has to be read
	needs := cost(event.Object)
	switch {
	case event.Type == "ERROR" && len(event.Object) > maxHeader:
		return statusError(nil, http.StatusInternalServerError)
	case event.Type == "ERROR":
		return statusError(event.Object, http.StatusInternalServerError)
	case needs > maxCost:
		return fmt.Errorf("reading an event: %w", ErrTooLarge)
	}
	u, concerns := &unstructured.Unstructured{}, false
	err := decode(ctx, needs, func() (err error) {
		if err := utiljson.Unmarshal(event.Object, &u.Object); err != nil {
			return fmt.Errorf("reading an event: %w", err)
		}
		m.tidy(u)
		concerns, err = m.apply(event.Type, u)
		return err
	})
	if err == nil && concerns {
		s.changed(s, u)
	}
	return err
}

// eventReader ends when one event is too large.
type eventReader struct {
	turn
	decoder *json.Decoder
	rest    []byte // read before, and not by the decoder
}

// Read reads what is within the bound.
func (e *eventReader) Read(p []byte) (int, error) {
	if len(e.rest) > 0 {
		n := copy(p, e.rest)
		e.rest = e.rest[n:]
		return n, nil
	}
	if e.used >= maxEvent {
		return 0, ErrTooLarge
	}
	return e.turn.Read(p[:min(len(p), maxEvent-e.used)])
}

// next prepares for one more event. What has been read of it counts; and what held a large
// event is let go of, as a decoder would not.
func (e *eventReader) next() {
	if e.decoder == nil || e.used >= smallText {
		if e.decoder != nil {
			read, _ := io.ReadAll(e.decoder.Buffered()) // from memory
			e.rest = append(read, e.rest...)
		}
		e.decoder = json.NewDecoder(e)
		e.end(len(e.rest))
		return
	}
	held, _ := e.decoder.Buffered().(interface{ Len() int })
	e.end(held.Len() + len(e.rest))
}

// get sends a request for a kind in the tenant namespace. An answer that is not 200
// is an error.
func (s *session) get(ctx context.Context, m *mirror, query url.Values) (*http.Response, error) {
	path := s.base.JoinPath("apis", m.gvk.Group, m.gvk.Version, "namespaces", m.namespace, m.resource.Resource)
	if m.gvk.Group == "" {
		path = s.base.JoinPath("api", m.gvk.Version, "namespaces", m.namespace, m.resource.Resource)
	}
	if m.name != "" {
		query.Set("fieldSelector", "metadata.name="+m.name)
	}
	path.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(context.WithValue(ctx, counted{}, true), http.MethodGet, path.String(), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	answer, err := s.stream.Do(request)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode == http.StatusOK {
		return answer, nil
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, maxHeader))
	return nil, statusError(text, answer.StatusCode)
}

// statusError turns a peer's refusal into an error.
func statusError(text []byte, code int) error {
	var said metav1.Status
	if json.Unmarshal(text, &said) != nil || said.Kind != "Status" || said.Code == 0 {
		said = metav1.Status{Status: metav1.StatusFailure, Code: int32(code), Message: http.StatusText(code)}
	}
	if said.Reason == "" {
		said.Reason = reasonOf(int(said.Code))
	}
	if len(said.Message) > 300 {
		said.Message = strings.ToValidUTF8(said.Message[:300], "") // not half a letter
	}
	return &apierrors.StatusError{ErrStatus: said}
}

// reasonOf names the codes that this package tells apart.
func reasonOf(code int) metav1.StatusReason {
	switch code {
	case http.StatusUnauthorized:
		return metav1.StatusReasonUnauthorized
	case http.StatusForbidden:
		return metav1.StatusReasonForbidden
	case http.StatusNotFound:
		return metav1.StatusReasonNotFound
	case http.StatusGone:
		return metav1.StatusReasonGone
	case http.StatusTooManyRequests:
		return metav1.StatusReasonTooManyRequests
	}
	return metav1.StatusReasonUnknown
}

// backoff doubles from retryMin to retryMax, minus up to a third at random.
type backoff struct {
	jitter   func() float64
	attempts int
}

func (b *backoff) reset() { b.attempts = 0 }

func (b *backoff) next() time.Duration {
	d := min(retryMin<<min(b.attempts, 10), retryMax)
	b.attempts++
	return d - time.Duration(b.jitter()*float64(d)/3)
}
