package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// nine kinds are watched by a consumer.
var nine = []client.Object{
	&v1alpha1.Identity{}, &v1alpha1.ResourceOffer{}, &v1alpha1.ResourceRequest{}, &v1alpha1.NamespaceMap{}, &v1alpha1.ShadowPod{},
	&v1alpha1.ShadowObject{}, &v1alpha1.NetworkConfig{}, &v1alpha1.NetworkPath{}, &v1alpha1.NetworkRules{},
}

// flooded is a session that watches nine kinds at a provider that answers as it likes.
func flooded(t testing.TB, serve http.HandlerFunc) *session {
	t.Helper()
	server := httptest.NewUnstartedServer(serve)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	return sessionWith(t, server, nine...)
}

// peak is by how much the heap grows meanwhile, at most. The garbage of a moment counts, as much as Go leaves
// where nobody has told it to leave more.
func peak(during func()) int {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	heap := func() int {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	runtime.GC()
	before, most := heap(), 0
	ended := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for tick := time.Tick(2 * time.Millisecond); ; {
			most = max(most, heap()-before)
			select {
			case <-ended:
				return
			case <-tick:
			}
		}
	})
	during()
	close(ended)
	watching.Wait()
	return most
}

// small is as much text as an answer may be, of things that are many times larger in memory.
func small(most int) string { return strings.Repeat(`{"":0},`, most/7-40) + `{}` }

// flood sends texts but for their ends, and those when all have been sent as far as they are
// read, or no more is read of them.
type flood struct {
	asked     atomic.Int64
	all, over chan struct{}
}

func (f *flood) send(w http.ResponseWriter, text string) {
	if f.asked.Add(1) == int64(len(nine)) {
		close(f.all)
		time.AfterFunc(2*time.Second, func() { close(f.over) })
	}
	<-f.all
	io.WriteString(w, text[:len(text)-1])
	w.(http.Flusher).Flush()
	<-f.over
	io.WriteString(w, text[len(text)-1:])
}

// mostPeak bounds what a peer's answers take all together: two that are decoded, the texts of
// one that is read and of smallText for each kind, and as much again before it is collected.
const mostPeak = 2 * (2*maxCost + 3*maxAnswer)

// TestFlood holds that a provider that answers all lists, or all watches, at once with what
// is many times larger in memory takes little of it, and is said to be too large.
func TestFlood(t *testing.T) {
	page := `{"metadata":{"resourceVersion":"1"},"items":[{"metadata":{},"a":[` + small(maxAnswer) + `]}]}`
	told := `{"type":"ADDED","object":{"metadata":{"namespace":"ns","name":"a","resourceVersion":"2"},"a":[` + small(maxEvent) + `]}}`
	empty := `{"metadata":{"resourceVersion":"1"},"items":[]}`
	for reason, sends := range map[string]struct{ list, watch string }{"pages": {page, ""}, "events": {empty, told}} {
		t.Run(reason, func(t *testing.T) {
			sender := &flood{all: make(chan struct{}), over: make(chan struct{})}
			s := flooded(t, func(w http.ResponseWriter, r *http.Request) {
				text := sends.list
				if r.URL.Query().Get("watch") == "true" {
					text = sends.watch
				}
				if text == empty {
					io.WriteString(w, text)
					return
				}
				sender.send(w, text)
			})
			most := peak(func() {
				ctx, cancel := context.WithCancel(t.Context())
				var running sync.WaitGroup
				s.start(ctx, &running)
				for _, m := range s.reader.mirrors {
					await(t, m.gvk.Kind+" is too large", func() bool { h, _, err := m.getHealth(); return h == over && errors.Is(err, ErrTooLarge) })
				}
				cancel()
				running.Wait()
			})
			if state := s.state(); state.Reachable || state.Reason != v1alpha1.ReasonTooMany || !errors.Is(state.Err, ErrTooLarge) {
				t.Errorf("the state is %+v", state)
			}
			t.Logf("%d MiB at most", most>>20)
			if most > mostPeak {
				t.Errorf("%d MiB were taken, want at most %d", most>>20, mostPeak>>20)
			}
		})
	}
}

// TestDecodeFew holds that few large pages are decoded at a time, and that small ones wait
// for none of them.
func TestDecodeFew(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	large := func() error {
		entered <- struct{}{}
		<-release
		return nil
	}
	const many = 10
	var all sync.WaitGroup
	for range many {
		all.Go(func() {
			if err := decode(t.Context(), smallCost+1, large); err != nil {
				t.Error(err)
			}
		})
	}
	for range cap(decoding) {
		<-entered
	}
	if err := decode(t.Context(), smallCost, func() error { return nil }); err != nil {
		t.Error(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := decode(gone, smallCost+1, func() error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("there is room for another one: %v", err)
	}
	close(release)
	for range many - cap(decoding) {
		<-entered
	}
	all.Wait()
}

// TestCallCost holds that the answer of a call has a bound on what it costs.
func TestCallCost(t *testing.T) {
	answer := ""
	s := flooded(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, answer)
	})
	key := client.ObjectKey{Namespace: "ns", Name: "a"}
	for reason, c := range map[string]struct {
		text string
		err  bool
	}{
		"as large as a ShadowPod may be": {`"pod":"` + strings.Repeat("x", 64<<10+128<<10) + `"`, false},
		"large in memory":                {`"a":[` + small(1<<20) + `]`, true},
	} {
		answer = `{"apiVersion":"pelago.dev/v1alpha1","kind":"ShadowPod","metadata":{"namespace":"ns","name":"a"},"spec":{` + c.text + `}}`
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ShadowPod"))
		if err := s.client.Get(t.Context(), key, u); errors.Is(err, ErrTooLarge) != c.err || !c.err && err != nil {
			t.Errorf("%s: %v", reason, err)
		}
	}
}

// TestTurns holds that of what a peer sends one large answer is read at a time, that small ones
// wait for none, and that a watch lets others in when its large event is over.
func TestTurns(t *testing.T) {
	g := make(gate, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	read := func(size int) (*turn, error) {
		r := &turn{ctx: ctx, r: strings.NewReader(strings.Repeat("x", size)), gate: g}
		_, err := io.ReadAll(r)
		return r, err
	}
	first, err := read(smallText + 1)
	if err != nil || first.limit == nil {
		t.Fatalf("the first large one: %v", err)
	}
	if small, err := read(smallText - 1); err != nil || small.limit != nil {
		t.Errorf("a small one: %v", err)
	}
	time.AfterFunc(20*time.Millisecond, cancel)
	if second, err := read(smallText + 1); !errors.Is(err, context.Canceled) || second.used != smallText {
		t.Errorf("a second large one: %v after %d bytes", err, second.used)
	}
	first.end(0)
	if len(g) != 0 {
		t.Error("the gate is shut for good")
	}

	s, m, _ := standing()
	s.large = g
	wide := strings.Replace(event("ADDED", "ns", "a", "2"), `"metadata":{`, `"spec":"`+strings.Repeat("x", 1<<20)+`","metadata":{`, 1)
	stream := io.MultiReader(strings.NewReader(event("ADDED", "ns", "b", "1")+wide+event("ADDED", "ns", "c", "3")+event("ADDED", "ns", "d", "4")), waiting(func() {
		if len(g) != 0 || len(m.all()) != 4 || m.from() != "4" {
			t.Errorf("the gate has %d inside after %d events to version %s", len(g), len(m.all()), m.from())
		}
	}), strings.NewReader(wide[:smallText*2]))
	if err := s.events(t.Context(), stream, m); !quietEnd(err) || len(g) != 0 {
		t.Errorf("%v, %d are inside", err, len(g))
	}
}

// waiting is called when all before it has been read and worked on.
type waiting func()

func (w waiting) Read([]byte) (int, error) { w(); return 0, io.EOF }

// TestDecoderLetsGo holds that a watch keeps no memory for the largest event it has seen.
func TestDecoderLetsGo(t *testing.T) {
	r := &eventReader{turn: turn{ctx: t.Context()}}
	for _, size := range []int{1, 10, 1 << 20} {
		text := `{"type":"` + strings.Repeat("x", size) + `"}{"type":"A"}{"type":"B"}`
		r.r, r.decoder = strings.NewReader(text), nil
		var got string
		var first *json.Decoder
		for range 3 {
			if r.next(); first == nil {
				first = r.decoder
			}
			var e struct{ Type string }
			if err := r.decoder.Decode(&e); err != nil {
				t.Fatal(err)
			}
			got += e.Type[:1]
		}
		if kept := r.decoder == first; got != "xAB" || kept != (size < smallText) {
			t.Errorf("after %d bytes: read %s, the decoder is kept: %v", size, got, kept)
		}
	}
	if r.used >= smallText || cap(r.rest) >= smallText {
		t.Errorf("%d bytes are held, %d count", cap(r.rest), r.used)
	}
}
