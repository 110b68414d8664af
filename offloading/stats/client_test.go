package stats

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// carrier carries requests.
type carrier func(*http.Request) (*http.Response, error)

func (c carrier) RoundTrip(r *http.Request) (*http.Response, error) { return c(r) }

// A provider that is late or fails costs nobody the figures that it gave within the last
// half minute.
func TestLateProvider(t *testing.T) {
	const s = time.Second
	synctest.Test(t, func(t *testing.T) {
		var now step
		var asked int64
		p := &fakePeer{base: &url.URL{}, rt: carrier(func(r *http.Request) (*http.Response, error) {
			asked++
			number, code := asked, now.code
			select {
			case <-time.After(now.takes):
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
			text := fmt.Sprintf(`{"items":[{"metadata":{"name":"p","uid":"%d"},"containers":[{"name":"c"}]}]}`, number)
			return &http.Response{StatusCode: code, Body: io.NopCloser(strings.NewReader(text))}, nil
		})}
		c := NewClient(func(string) (Peer, bool) { return p, true }, nil)
		start := time.Now()
		for _, now = range []step{
			{"well", 0, s, 200, "1", s, 1},
			{"late: the old one in time", 15 * s, 12 * s, 200, "1", waitLimit, 2},
			{"its answer came", 28 * s, 0, 200, "2", 0, 2},
			{"silent: the old one", 40 * s, never, 200, "2", waitLimit, 3},
			{"the ask has ended", 56 * s, never, 200, "2", 0, 3},
			{"half a minute after its last answer", 57 * s, never, 200, "", 0, 3},
			{"well again", 70 * s, 0, 200, "4", 0, 4},
			{"503", 85 * s, 0, 503, "4", 0, 5},
			{"half a minute after its last answer", 100 * s, 0, 503, "", 0, 6},
		} {
			<-time.After(now.at - time.Since(start))
			began, got := time.Now(), ""
			pods, err := c.Pods(t.Context(), "milan")
			for _, p := range pods {
				got = p.Metadata.UID
			}
			took := time.Since(began)
			synctest.Wait()
			if got != now.want || took != now.took || asked != now.asked || (err == nil) != (got != "") {
				t.Errorf("at %v, %s: got %q, %v after %v, asked %d times", now.at, now.reason, got, err, took, asked)
			}
		}
		<-time.After(usableFor)
		if _, _ = c.Pods(t.Context(), "paris"); len(c.kept) != 1 {
			t.Errorf("%d answers are kept", len(c.kept))
		}
	})
}
