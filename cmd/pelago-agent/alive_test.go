package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"

	"github.com/pelago-dev/pelago/network/netnstest"
)

// TestAlive holds that whether a second process lives can be asked while another program has the port of metrics, also
// where an earlier process has left its socket; that one that has ended, or says nothing, does not live; and that a
// socket that cannot be made is tried again.
func TestAlive(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "alive")
	asks := func() error { return run(t.Context(), []string{lives, "--socket", socket}) }
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	_ = left.Close()
	if err := asks(); err == nil {
		t.Error("one that was killed lives")
	}
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); answer(ctx, socket, logr.Discard()) }()
		until(t, "it lives", netnstest.Patience, func() bool { return asks() == nil })
		cancel()
		<-ended
		if err := asks(); err == nil {
			t.Error("one that has ended lives")
		}
	}
	silent, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := asks(); err == nil {
		t.Error("one that says nothing lives")
	}
	t.Logf("of one that says nothing it is known after %s", time.Since(began).Round(time.Millisecond))
	_ = silent.Close()
	answer(t.Context(), "", logr.Discard()) // which ends
	ctx, cancel := context.WithCancel(t.Context())
	ended, late := make(chan struct{}), filepath.Join(dir, "late", "alive")
	tried := make(chan struct{}, 1)
	go func() {
		defer close(ended)
		answer(ctx, late, funcr.New(func(string, string) {
			select {
			case tried <- struct{}{}:
			default:
			}
		}, funcr.Options{}))
	}()
	<-tried
	if err := os.Mkdir(filepath.Dir(late), 0o700); err != nil {
		t.Fatal(err)
	}
	until(t, "it lives once its socket can be made", netnstest.Patience, func() bool { return run(ctx, []string{lives, "--socket", late}) == nil })
	cancel()
	<-ended
	if err := run(t.Context(), []string{lives, "x"}); err == nil {
		t.Error("an argument is taken")
	}
}
