package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/pelago-dev/pelago/network/holder"
)

// A second process that dies is started anew at once, and when it keeps dying young, later
// each time.
const (
	adult      = 10 * time.Second
	pauseFirst = 100 * time.Millisecond
	pauseMost  = 5 * time.Second
	// endLimit is how long the second process may take to end when it is told to.
	endLimit = 25 * time.Second
)

// exit is the code that the second process has ended with, when it was told to.
type exit int

func (e exit) Error() string { return fmt.Sprintf("the second process has ended with %d", int(e)) }

// pauseAfter is how long to wait before the next process, when so many have died young in
// a row.
func pauseAfter(young int) time.Duration {
	if young < 2 {
		return 0
	}
	return min(pauseFirst<<min(young-2, 10), pauseMost)
}

// hold is the first process: it holds what the second one wants held, and keeps that running
// until ctx ends.
func hold(ctx context.Context, args []string) error {
	h := &holder.Holder{}
	defer h.Close()
	debug.SetGCPercent(20)
	words := []string{second}
	for young := 0; ; {
		began := time.Now()
		err := child(ctx, h, append(words, args...))
		if ctx.Err() != nil {
			return err
		}
		if young++; time.Since(began) >= adult {
			young = 0
		}
		pause := pauseAfter(young)
		if words = []string{second}; pause == 0 {
			words = append(words, atOnce)
		}
		fmt.Fprintf(os.Stderr, "pelago-agent: %v after %s; starting anew after %s\n", err, time.Since(began).Round(time.Millisecond), pause)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// child runs a second process to its end.
func child(ctx context.Context, h *holder.Holder, args []string) error {
	own, other, err := holder.Pair()
	if err != nil {
		return err
	}
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = os.Stdout, os.Stderr, []*os.File{other}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // signals come to it by us
	err = cmd.Start()
	_ = other.Close()
	if err != nil {
		_ = own.Close()
		return fmt.Errorf("starting the second process: %w", err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		complain := func(err error) { fmt.Fprintln(os.Stderr, "pelago-agent:", err) }
		if err := h.Serve(own, complain); err != nil {
			complain(err)
			_ = cmd.Process.Kill() // without us it would lose what it makes
		}
	})
	debug.FreeOSMemory()
	ended := make(chan struct{})
	told := context.AfterFunc(ctx, func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(endLimit):
			_ = cmd.Process.Kill()
		}
	})
	err = cmd.Wait()
	close(ended)
	told()
	serving.Wait() // what it has said to the end counts
	var status *exec.ExitError
	if ctx.Err() != nil && errors.As(err, &status) {
		return exit(max(status.ExitCode(), 1))
	}
	if err == nil && ctx.Err() == nil {
		err = errors.New("the second process has ended by itself")
	}
	return err
}
