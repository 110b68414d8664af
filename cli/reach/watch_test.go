package reach

import (
	"context"
	"encoding/json"
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

// The one connection is told to have broken, once.
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
	heard(t, changes, Connection, true)
	_ = server.Close()
	if c := heard(t, changes, Connection, false); c.Err == "" {
		t.Errorf("it broke: %+v", c)
	}
	var c Change
	if err := changes.Decode(&c); err == nil {
		t.Errorf("it goes on: %+v", c)
	}
}
