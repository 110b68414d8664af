package fleet

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
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

// TestLookBackIsSmall holds that no object has to come through before a watch is taken up
// again: a link that is slow is not one that is cut.
func TestLookBackIsSmall(t *testing.T) {
	var mu sync.Mutex
	watches := 0
	again := make(chan struct{})
	s, m := hostile(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		first := watches == 0
		mu.Unlock()
		name, err := fields.ParseSelector(r.URL.Query().Get("fieldSelector"))
		label, err2 := labels.Parse(r.URL.Query().Get("labelSelector"))
		if err != nil || err2 != nil {
			http.Error(w, fmt.Sprint(err, err2), http.StatusBadRequest)
			return
		}
		switch {
		case r.URL.Query().Has("watch") && first:
			mu.Lock()
			watches++
			mu.Unlock() // it is cut
		case r.URL.Query().Has("watch"):
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			close(again)
			<-r.Context().Done()
		case !name.Matches(fields.Set{"metadata.name": "a"}) || !label.Matches(labels.Set{}):
			fmt.Fprint(w, `{"metadata":{"resourceVersion":"100"},"items":[]}`)
		default:
			fmt.Fprint(w, `{"metadata":{"resourceVersion":"100"},"items":[{"metadata":{"namespace":"ns","name":"a","resourceVersion":"7","annotations":{"a":"`)
			if fmt.Fprint(w, strings.Repeat("x", smallText)); !first { // and the rest takes longer than anybody waits
				w.(http.Flusher).Flush()
				<-r.Context().Done()
				return
			}
			fmt.Fprint(w, `"}}}]}`)
		}
	})
	down := make(chan error, 100)
	s.changed = func(*session, *unstructured.Unstructured) {
		if h, _, err := m.getHealth(); h != up && h != connecting {
			down <- err
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); s.follow(ctx, m) }()
	t.Cleanup(func() { cancel(); <-ended })
	select {
	case <-again:
	case err := <-down:
		t.Errorf("the peer counts as away: %v", err)
	}
}

// TestLookBackTells holds that an API server tells the version there is now with no object,
// be it of a kind of which this cluster sees all, or one.
func TestLookBackTells(t *testing.T) {
	s := newStage(t)
	session, err := newSession(s.conn, s.fleet.kinds, &s.fleet.options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(session.close)
	for i := range 3 {
		o := offer(s.namespace, fmt.Sprint("a-", i))
		if err := s.client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		for _, m := range session.reader.mirrors {
			l := &listing{mirror: m}
			if err := session.part(t.Context(), l, noObject()); err != nil {
				t.Fatal(err)
			}
			if len(l.items) > 0 || l.next != "" || l.whose == "" || before(l.whose, o.ResourceVersion) {
				t.Errorf("%s: %d objects, %q follows, version %q after %s", m.gvk.Kind, len(l.items), l.next, l.whose, o.ResourceVersion)
			}
		}
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
