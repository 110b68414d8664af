package fleet

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/workqueue"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// hostile is a fleet's session with a provider that answers as it likes, and its mirror of offers.
func hostile(t *testing.T, serve http.HandlerFunc) (*session, *mirror) {
	t.Helper()
	server := httptest.NewTLSServer(serve)
	t.Cleanup(server.Close)
	s := sessionWith(t, server, &v1alpha1.ResourceOffer{})
	for _, m := range s.reader.mirrors {
		return s, m
	}
	return s, nil
}

// sessionWith watches kinds at a server.
func sessionWith(t testing.TB, server *httptest.Server, kinds ...client.Object) *session {
	t.Helper()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	f := New(Options{Scheme: scheme(), Jitter: func() float64 { return 0.9 }})
	for _, kind := range kinds {
		if err := f.Watch(kind); err != nil {
			t.Fatal(err)
		}
	}
	s, err := newSession(Connection{ServerURL: server.URL, CA: ca, Token: "x", TenantNamespace: "ns"}, f.kinds, &f.options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	s.changed = func(*session, *unstructured.Unstructured) {}
	return s
}

// TestListBounds holds that no list is without an end or too large for the memory.
func TestListBounds(t *testing.T) {
	item := func(name string, size int) string {
		return `{"metadata":{"namespace":"ns","name":"` + name + `","annotations":{"a":"` + strings.Repeat("x", size) + `"}}}`
	}
	cases := []struct {
		reason string
		page   func(call int64) string // the items, and whether more follow
		more   bool
		calls  int64
		err    bool
	}{
		{"a good list", func(int64) string { return item("a", 10) }, false, 1, false},
		{"empty pages for ever", func(int64) string { return "" }, true, maxPages, true},
		{"too large a page", func(int64) string { return item("a", maxAnswer) }, true, 1, true},
		{"too much in all", func(n int64) string { return item(fmt.Sprint("a", n), 3<<20) }, true, 6, true},
		{"small things that grow in memory", func(int64) string { return `{"metadata":{},"a":[` + strings.Repeat("{},", 300_000) + `{}]}` }, true, 1, true},
		{"too many", func(int64) string { return strings.Repeat(`{"metadata":{}},`, maxObjects) + item("a", 1) }, true, 1, true},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			var calls atomic.Int64
			s, m := hostile(t, func(w http.ResponseWriter, _ *http.Request) {
				next := ""
				if c.more {
					next = `,"continue":"x"`
				}
				fmt.Fprintf(w, `{"metadata":{"resourceVersion":"1"%s},"items":[%s]}`, next, c.page(calls.Add(1)))
			})
			err := s.list(t.Context(), m)
			for try := 0; try < 5 && (errors.Is(err, context.DeadlineExceeded) || calls.Load() > c.calls); try++ { // a machine that is busy with other tests
				calls.Store(0)
				err = s.list(t.Context(), m)
			}
			if errors.Is(err, ErrTooLarge) != c.err || !c.err && err != nil || calls.Load() != c.calls {
				t.Errorf("after %d pages: %v", calls.Load(), err)
			}
		})
	}
}

// TestKept holds that a mirror's weight follows what is in it, and has a limit.
func TestKept(t *testing.T) {
	s, m, _ := standing()
	big := func(name string, size int) string {
		return strings.Replace(event("ADDED", "ns", name, "2"), `"metadata":{`, `"spec":"`+strings.Repeat("x", size)+`","metadata":{`, 1)
	}
	for i := range 20 { // one object that changes is kept once
		if err := s.events(t.Context(), strings.NewReader(big("a", 1<<20+i)), m); !quietEnd(err) {
			t.Fatal(err)
		}
	}
	if err := s.events(t.Context(), strings.NewReader(event("DELETED", "ns", "a", "3")), m); !quietEnd(err) || m.kept != 0 {
		t.Fatalf("%v, %d bytes left", err, m.kept)
	}
	var err error
	for i := 0; i < 40 && quietEnd(err); i++ {
		err = s.events(t.Context(), strings.NewReader(big(fmt.Sprint("b", i), 1<<20)), m)
	}
	if !errors.Is(err, ErrTooLarge) || m.kept > maxKept || len(m.all()) != 15 {
		t.Errorf("%v with %d objects, %d bytes", err, len(m.all()), m.kept)
	}
}

// TestTooLargeStaysDown holds that what was passed over is not forgotten: the kind is
// read again from the beginning, and the peer is not said to be well.
func TestTooLargeStaysDown(t *testing.T) {
	var lists atomic.Int64
	s, m := hostile(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "true" {
			fmt.Fprint(w, `{"type":"ADDED","object":{"metadata":{"namespace":"ns","name":"a","resourceVersion":"7","x":"`+strings.Repeat("x", maxEvent)+`"}}}`)
			return
		}
		lists.Add(1)
		fmt.Fprint(w, `{"metadata":{"resourceVersion":"1"},"items":[]}`)
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); s.follow(ctx, m) }()
	await(t, "it is down", func() bool { h, _, err := m.getHealth(); return h == over && errors.Is(err, ErrTooLarge) })
	await(t, "it is listed again", func() bool { return lists.Load() > 1 })
	cancel()
	<-ended
}

func TestPacer(t *testing.T) {
	p, now := newPacer(), time.Now()
	if p.lag(now) != 0 {
		t.Fatal("nothing is behind and the peer is slowed down")
	}
	for i := range paceBurst {
		if wait := p.delay(request("ns", fmt.Sprint(i)), now); wait != 0 {
			t.Fatalf("request %d of a burst waits %s", i, wait)
		}
	}
	a, b := request("ns", "a"), request("ns", "b")
	const each = time.Second / paceRate
	for range 1000 { // the same again costs nothing
		if wait := p.delay(a, now); wait != each {
			t.Fatalf("the one after the burst waits %s", wait)
		}
	}
	if wait := p.delay(b, now); wait != 2*each {
		t.Errorf("the next one waits %s", wait)
	}
	if wait := p.delay(a, now.Add(each)); wait != 2*each {
		t.Errorf("news after a request was due waits %s, want behind the others", wait)
	}
	if p.lag(now) != 0 {
		t.Error("a short queue slows the peer down")
	}
	for i := range int(100 * paceRate) {
		p.delay(request("ns", fmt.Sprint("c", i)), now.Add(time.Second))
	}
	if got := p.lag(now.Add(time.Second)); got < 30*time.Second || got > time.Minute {
		t.Errorf("requests for 100 s are %s too far behind", got)
	}
	p.delay(a, now.Add(time.Hour))
	if len(p.waiting) != 0 {
		t.Errorf("%d requests are remembered that are over", len(p.waiting))
	}
}

// TestPace holds that a peer whose object changes all the time causes a bounded number
// of requests, and that the last change is among them.
func TestPace(t *testing.T) {
	now := testingclock.NewFakeClock(time.Now())
	f := New(Options{Scheme: scheme(), Clock: now})
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request](),
		workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{Clock: now})
	t.Cleanup(queue.ShutDown)
	src := f.Source(&v1alpha1.ResourceOffer{}, func(name string, obj client.Object) []reconcile.Request {
		return []reconcile.Request{request(name, obj.GetName())}
	})
	if err := src.Start(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ResourceOffer"))
	u.SetName("a")
	handled := 0
	take := func() {
		for queue.Len() > 0 {
			r, _ := queue.Get()
			queue.Done(r)
			handled++
		}
	}
	for range 1000 {
		f.publish(peering, u)
		take()
	}
	if handled != paceBurst {
		t.Errorf("1000 changes at once made %d requests, want %d", handled, paceBurst)
	}
	f.publish("athens", u)
	if queue.Len() != 1 {
		t.Error("one peer slows another down")
	}
	take()
	before := handled
	await(t, "the last change is told", func() bool { now.Step(time.Second / paceRate); take(); return handled > before })
}

// TestSettle holds that a watch waits for a lag, and ends with its context.
func TestSettle(t *testing.T) {
	s, m, _ := standing()
	s.options = &Options{Clock: New(Options{}).options.Clock}
	asked := 0
	s.lag = func(*mirror) time.Duration {
		if asked++; asked > 2 {
			return 0
		}
		return time.Millisecond
	}
	if !s.settle(t.Context(), m) || asked != 3 {
		t.Errorf("asked %d times", asked)
	}
	s.lag = func(*mirror) time.Duration { return time.Hour }
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if s.settle(ctx, m) {
		t.Error("it goes on after its end")
	}
}
