package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// thin is a link on which so many bytes come through in a second. It answers lists of objects of 32 KiB.
type thin struct {
	objects, rate int
	late          time.Duration // until an answer begins
	asked         []int
}

func (l *thin) RoundTrip(r *http.Request) (*http.Response, error) {
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
	l.asked = append(l.asked, limit)
	select {
	case <-time.After(l.late):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	var items []string
	for i := from; i < min(from+limit, l.objects); i++ {
		items = append(items, fmt.Sprintf(`{"metadata":{"namespace":"ns","name":"a%d"},"spec":"%s"}`, i, strings.Repeat("x", 32<<10)))
	}
	next := ""
	if from+limit < l.objects {
		next = strconv.Itoa(from + limit)
	}
	text := fmt.Sprintf(`{"metadata":{"resourceVersion":"1","continue":%q},"items":[%s]}`, next, strings.Join(items, ","))
	return &http.Response{StatusCode: http.StatusOK, Body: &thinBody{
		Reader: strings.NewReader(text), rate: l.rate, ctx: r.Context(), closed: make(chan struct{}),
	}}, nil
}

type thinBody struct {
	*strings.Reader
	rate   int
	ctx    context.Context
	closed chan struct{}
}

func (b *thinBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p[:min(len(p), 8<<10)])
	select {
	case <-time.After(time.Duration(n) * time.Second / time.Duration(b.rate)):
		return n, err
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	case <-b.closed:
		return 0, io.ErrClosedPipe
	}
}

func (b *thinBody) Close() error {
	select {
	case <-b.closed:
	default:
		close(b.closed)
	}
	return nil
}

// TestThinLink holds that what does not come through in time is asked for in smaller parts, and that the
// wait for a turn is not held against a page.
func TestThinLink(t *testing.T) {
	for reason, c := range map[string]struct {
		link  thin
		inUse time.Duration // of the turn, by another kind
		pages []int
		err   error
		most  time.Duration
	}{
		"wide enough":            {link: thin{objects: 60, rate: 1 << 20}, pages: []int{100}, most: 5 * time.Second},
		"too thin for one page":  {link: thin{objects: 60, rate: 128 << 10}, pages: []int{100, 13, 13, 13, 13, 13}, most: listTimeout},
		"before its turn comes":  {link: thin{objects: 60, rate: 4 << 10}, pages: []int{100, 13, 2}, err: context.DeadlineExceeded, most: listTimeout},
		"it waits for its turn":  {link: thin{objects: 60, rate: 512 << 10}, inUse: 9 * time.Second, pages: []int{100}, most: 15 * time.Second},
		"its turn does not come": {link: thin{objects: 60, rate: 512 << 10}, inUse: time.Hour, pages: []int{100}, err: context.DeadlineExceeded, most: listTimeout},
		"nothing comes":          {link: thin{objects: 60, rate: 1 << 20, late: time.Hour}, pages: []int{100}, err: context.DeadlineExceeded, most: callTimeout},
	} {
		t.Run(reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, m, _ := standing()
				s.base, s.stream, s.large = &url.URL{Scheme: "https", Host: "milan.example"}, &http.Client{Transport: &c.link}, make(gate, 1)
				m.version = ""
				if c.inUse > 0 {
					s.large <- struct{}{}
					time.AfterFunc(c.inUse, s.large.leave)
				}
				began := time.Now()
				err := s.list(t.Context(), m)
				if !errors.Is(err, c.err) || c.err == nil && (err != nil || len(m.all()) != c.link.objects) {
					t.Errorf("%d objects, %v, want %d or %v", len(m.all()), err, c.link.objects, c.err)
				}
				asked := c.link.asked
				if c.err != nil && len(asked) == len(c.pages)+1 {
					asked = asked[:len(c.pages)] // the last page and the whole run out in the same moment
				}
				if !slices.Equal(asked, c.pages) || time.Since(began) > c.most {
					t.Errorf("asked for %v within %s, want %v within %s", c.link.asked, time.Since(began), c.pages, c.most)
				}
			})
		})
	}
}
