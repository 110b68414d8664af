package fleet

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
)

// TestRestored holds that a peer whose versions are lower than before is read anew: its
// watches from a version to come tell of nothing. One that goes on is not.
func TestRestored(t *testing.T) {
	for reason, c := range map[string]struct {
		version int // of the peer when the watch is taken up again
		want    string
	}{
		"set back":  {50, "b"},
		"as it was": {100, "a"},
		"further":   {101, "a"},
	} {
		t.Run(reason, func(t *testing.T) {
			var mu sync.Mutex
			version, watches := 100, 0
			watched := make(chan string, 10)
			s, m := hostile(t, func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				if !r.URL.Query().Has("watch") {
					name := "a"
					if version != 100 {
						name = "b"
					}
					fmt.Fprintf(w, `{"metadata":{"resourceVersion":"%d"},"items":[{"metadata":{"namespace":"ns","name":%q,"resourceVersion":"7"}}]}`, version, name)
					return
				}
				if watches++; watches == 1 {
					version = c.version
					return // it is cut
				}
				watched <- r.URL.Query().Get("resourceVersion")
				w.WriteHeader(http.StatusOK)
				w.(http.Flusher).Flush()
				mu.Unlock()
				<-r.Context().Done()
				mu.Lock()
			})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { defer close(ended); s.follow(ctx, m) }()
			t.Cleanup(func() { cancel(); <-ended })
			from := <-watched
			if want := fmt.Sprint(min(c.version, 100)); from != want {
				t.Errorf("it watches from %s, want %s", from, want)
			}
			if m.get(c.want) == nil || len(m.all()) != 1 {
				t.Errorf("it has %v, want %s", m.all(), c.want)
			}
		})
	}
}

func TestBefore(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{{"50", "100", true}, {"100", "50", false}, {"100", "100", false}, {"9", "10", true}, {"", "10", false}, {"x", "10", false}, {"1", "y", false}, {"-1", "10", false}} {
		if got := before(c.a, c.b); got != c.want {
			t.Errorf("%q before %q: %v", c.a, c.b, got)
		}
	}
}
