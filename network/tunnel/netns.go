package tunnel

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// in runs f on a thread in a network namespace; sockets and devices that f makes belong
// there. Without a namespace it is that of this process.
func in(namespace *os.File, f func() error) error {
	if namespace == nil {
		return f()
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("entering network namespace %s: %w", namespace.Name(), err)
			return
		}
		done <- f()
	}()
	return <-done
}
