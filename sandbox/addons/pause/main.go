//go:build ignore

// Command pause is the first process of every pod: it holds the pod's
// namespaces, reaps what is orphaned into it when it is PID 1, and ends at once
// on SIGTERM or SIGINT. It reads nothing, writes nothing and takes no flags.
// It is built by file name, so that the module's own build does not see it.
package main

import (
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
)

func main() {
	// One of these runs per pod and allocates nothing: no collector is needed.
	debug.SetGCPercent(-1)
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGCHLD, syscall.SIGTERM, syscall.SIGINT)
	for s := range signals {
		if s != syscall.SIGCHLD {
			return
		}
		reap()
	}
}

// reap collects every child that has ended. Several may share one signal.
func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
	}
}
