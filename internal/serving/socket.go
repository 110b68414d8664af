package serving

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Socket is a listening socket that outlives its server, and the program if that begins
// anew in its own process: who calls meanwhile waits, and is not refused. It is safe for
// concurrent use.
type Socket struct {
	// servers are those that answer on it.
	servers sync.WaitGroup

	mu   sync.Mutex
	file *os.File // nil until somebody listens
}

// Await waits until the servers on the socket, which were told to end, have answered what they were
// asked, and no longer than they may take for that.
func (s *Socket) Await() {
	done := make(chan struct{})
	go func() { s.servers.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(drainFor + answerFor):
	}
}

// Inherit returns the socket that Pass has handed on as number, or one that is not open
// yet if that is empty.
func Inherit(number string) (*Socket, error) {
	if number == "" {
		return &Socket{}, nil
	}
	n, err := strconv.Atoi(number)
	if err != nil {
		return nil, fmt.Errorf("reading the number of the socket for the API server: %w", err)
	}
	syscall.CloseOnExec(n)
	return &Socket{file: os.NewFile(uintptr(n), "socket")}, nil
}

// Listen listens at an address, or at the one that the socket has already. To close the
// listener does not close the socket.
func (s *Socket) Listen(ctx context.Context, address string) (net.Listener, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		first, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		defer first.Close()
		if s.file, err = first.(*net.TCPListener).File(); err != nil {
			return nil, err
		}
	}
	return net.FileListener(s.file)
}

// Close closes the socket once no listener has it.
func (s *Socket) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != nil {
		_ = s.file.Close()
		s.file = nil
	}
}

// Pass returns the number by which the program that this process executes next finds the
// socket, empty if it is not open.
func (s *Socket) Pass() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return "", nil
	}
	n, err := syscall.Dup(int(s.file.Fd())) // unlike the one it is made of, it stays open
	if err != nil {
		return "", fmt.Errorf("handing on the socket for the API server: %w", err)
	}
	return strconv.Itoa(n), nil
}
