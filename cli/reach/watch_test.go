package reach

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// heard reads changes until one is as wanted.
func heard(t *testing.T, from *json.Decoder, what string, ok bool) Change {
	t.Helper()
	for {
		var c Change
		if err := from.Decode(&c); err != nil {
			t.Fatalf("waiting until %s are %t: %v", what, ok, err)
		}
		if c.What == what && c.OK == ok {
			return c
		}
	}
}

// A server is watched that comes, goes with all its connections, and comes again.
func TestWatch(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	server := &http.Server{Handler: handler("milan"), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	read, write := io.Pipe()
	defer read.Close()
	ended := make(chan error, 1)
	go func() { ended <- Watch(ctx, at, write); _ = write.Close() }()
	changes := json.NewDecoder(read)
	if c := heard(t, changes, Requests, true); c.Count == 0 || c.At.IsZero() {
		t.Errorf("the first request is %+v", c)
	}
	go func() { _ = server.Close() }()
	if c := heard(t, changes, Requests, false); c.Err == "" {
		t.Errorf("a failure is %+v", c)
	}
	if l, err = net.Listen("tcp", at); err != nil {
		t.Fatal(err)
	}
	again := &http.Server{Handler: handler("milan"), ReadHeaderTimeout: time.Minute}
	defer again.Close()
	go func() { _ = again.Serve(l) }()
	heard(t, changes, Requests, true)
	cancel()
	go func() { _, _ = io.Copy(io.Discard, read) }()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// The one connection is told to speak, and to have broken, once.
func TestWatchConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler("milan"), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	read, write := io.Pipe()
	w := &watcher{out: write}
	go func() { w.connection(ctx, l.Addr().String()); _ = write.Close() }()
	changes := json.NewDecoder(read)
	first := heard(t, changes, Connection, true)
	if again := heard(t, changes, Connection, true); first.Count != 1 || again.Count < 2 {
		t.Errorf("it speaks: %+v, %+v", first, again)
	}
	_ = server.Close()
	if c := heard(t, changes, Connection, false); c.Err == "" {
		t.Errorf("it broke: %+v", c)
	}
	var c Change
	if err := changes.Decode(&c); err == nil {
		t.Errorf("it goes on: %+v", c)
	}
}

// Requests overlap: a late failure of an early one does not say that things are bad.
func TestCourse(t *testing.T) {
	var told []Change
	c := &course{tell: func(c Change) { told = append(told, c) }}
	at := func(ms int) time.Time { return time.Unix(100, 0).Add(time.Duration(ms) * time.Millisecond) }
	bad := net.ErrClosed
	for _, e := range []struct {
		began, now int
		err        error
	}{{0, 10, nil}, {50, 60, nil}, {200, 700, nil}, {100, 1100, bad}, {1150, 1200, nil}, {1200, 2200, bad}, {2300, 2310, nil}} {
		c.ended(at(e.began), at(e.now), e.err)
	}
	want := []Change{
		{What: Requests, OK: true, Count: 1},
		{What: Requests, OK: true, Count: 3, Lost: 1, Gap: 640, Err: plain(bad)},
		{What: Requests, OK: false, Count: 4, Lost: 2, Gap: 500, Err: plain(bad)},
		{What: Requests, OK: true, Count: 5, Lost: 2, Gap: 1110},
	}
	if len(told) != len(want) {
		t.Fatalf("told %+v", told)
	}
	for i := range want {
		if told[i] != want[i] {
			t.Errorf("told %+v, want %+v", told[i], want[i])
		}
	}
}

// TestWatchUnread holds that it ends when nobody reads any more.
func TestWatchUnread(t *testing.T) {
	read, write := io.Pipe()
	_ = read.Close()
	ended := make(chan error, 1)
	go func() { ended <- Watch(t.Context(), "127.0.0.1:1", write) }()
	select {
	case err := <-ended:
		if !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("it ends with %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("it goes on")
	}
}
