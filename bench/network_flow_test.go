package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pelago-dev/pelago/network/netns"
	"github.com/pelago-dev/pelago/network/netnstest"
)

// Ports of a server; datagrams of a size that every way carries whole.
const (
	streamPort   = 5201
	datagramPort = 5202
	requestPort  = 5203
	datagramSize = 1200
)

const (
	// streamPiece is sent and answered in some 20 ms.
	streamPiece = 8 << 20
	// A window of datagrams fits the queues on the way; what is not there by then is lost.
	burstWindow, burstWindows = 64, 8
	burstPatience             = 20 * time.Millisecond
)

// server takes streams, datagrams and requests at a place.
type server struct{ datagrams atomic.Uint64 }

func newServer(t *testing.T, at *netnstest.Place) *server {
	t.Helper()
	s := &server{}
	var streams, requests net.Listener
	var datagrams *net.UDPConn
	at.In(func() (err error) {
		if streams, err = net.ListenTCP("tcp", &net.TCPAddr{Port: streamPort}); err != nil {
			return err
		}
		if requests, err = net.ListenTCP("tcp", &net.TCPAddr{Port: requestPort}); err != nil {
			return err
		}
		datagrams, err = net.ListenUDP("udp", &net.UDPAddr{Port: datagramPort})
		return err
	})
	answer := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "hello\n")
	})}
	t.Cleanup(func() { _, _, _ = streams.Close(), answer.Close(), datagrams.Close() })
	go func() { _ = answer.Serve(requests) }()
	go func() {
		for {
			c, err := streams.Accept()
			if err != nil {
				return
			}
			_ = c.(*net.TCPConn).SetKeepAlive(false) // an attacker's end has no kernel that would answer, and is dead after 150 s
			go take(c)
		}
	}()
	go func() {
		for b := make([]byte, 2*datagramSize); ; {
			if _, err := datagrams.Read(b); err != nil {
				return
			}
			s.datagrams.Add(1)
		}
	}()
	return s
}

// takes is how much a server reads at once.
var takes = 256 << 10

// take reads pieces and answers each.
func take(c net.Conn) {
	defer c.Close()
	for b := make([]byte, takes); ; {
		if _, err := io.CopyBuffer(io.Discard, struct{ io.Reader }{io.LimitReader(c, streamPiece)}, b); err != nil {
			return
		}
		if _, err := c.Write([]byte{1}); err != nil {
			return
		}
	}
}

// clients are a line's connections, kept from round to round: what is compared is to take turns
// too often for the machine to change in between, and not to begin slowly each time.
type clients struct {
	streams, datagrams, requests net.Conn
	answers                      *bufio.Reader
}

// call opens the line's connections.
func (l *line) call() error {
	var err error
	for _, c := range []struct {
		to      *net.Conn
		network string
		port    uint16
	}{{&l.streams, "tcp", streamPort}, {&l.datagrams, "udp", datagramPort}, {&l.requests, "tcp", requestPort}} {
		if *c.to, err = l.dial(c.network, c.port); err != nil {
			l.hang()
			return err
		}
	}
	l.answers = bufio.NewReader(l.requests)
	return nil
}

func (l *line) hang() {
	for _, c := range []net.Conn{l.streams, l.datagrams, l.requests} {
		if c != nil {
			_ = c.Close()
		}
	}
	l.clients = clients{}
}

// piece sends one piece of a stream and returns Gbit a second.
func (l *line) piece(b []byte) (float64, error) {
	begin := time.Now()
	if err := l.streams.SetDeadline(begin.Add(netnstest.Patience)); err != nil {
		return 0, err
	}
	for sent := 0; sent < streamPiece; sent += len(b) {
		if _, err := l.streams.Write(b); err != nil {
			return 0, err
		}
	}
	var answer [1]byte
	if _, err := io.ReadFull(l.streams, answer[:]); err != nil {
		return 0, err
	}
	return streamPiece * 8 / time.Since(begin).Seconds() / 1e9, nil
}

// burst sends datagrams, a windowful on the way at a time, and returns Gbit a second and how
// many were lost: more at once than queues hold would measure queues.
func (l *line) burst(b []byte) (rate float64, lost int, err error) {
	begin := time.Now()
	for range burstWindows {
		before, from := l.server.datagrams.Load(), time.Now()
		for range burstWindow {
			if _, err := l.datagrams.Write(b); err != nil {
				return 0, 0, err
			}
		}
		missing, until := burstWindow, time.Now().Add(burstPatience)
		for missing > 0 && time.Now().Before(until) {
			runtime.Gosched()
			missing = burstWindow - int(l.server.datagrams.Load()-before)
		}
		lost += missing
		if missing == 0 {
			l.windows = append(l.windows, time.Since(from))
		}
	}
	n := burstWindows*burstWindow - lost
	return float64(n*len(b)) * 8 / time.Since(begin).Seconds() / 1e9, lost, nil
}

// ask makes small requests over one connection, one after the other.
func (l *line) ask(count int) (sample, error) {
	if err := l.requests.SetDeadline(time.Now().Add(netnstest.Patience)); err != nil {
		return nil, err
	}
	var each sample
	for range count {
		begin := time.Now()
		if _, err := io.WriteString(l.requests, "GET / HTTP/1.1\r\nHost: bench\r\n\r\n"); err != nil {
			return nil, err
		}
		r, err := http.ReadResponse(l.answers, nil)
		if err != nil {
			return nil, err
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return nil, err
		}
		_ = r.Body.Close()
		each = append(each, time.Since(begin))
	}
	return each, nil
}

func (l *line) dial(network string, port uint16) (c net.Conn, err error) {
	to, err := netip.ParseAddr(l.at)
	if err != nil {
		return nil, err
	}
	err = netns.In(l.from.File, func() (err error) {
		c, err = (&net.Dialer{Timeout: netnstest.Patience}).DialContext(context.Background(), network, netip.AddrPortFrom(to, port).String())
		return err
	})
	return c, err
}

// busy is how long this machine's processors have worked since it began.
func busy(t *testing.T) time.Duration {
	t.Helper()
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	var user, nice, system, idle, wait, irq, soft int64
	if _, err := fmt.Sscanf(line, "cpu %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &wait, &irq, &soft); err != nil {
		t.Fatal(err)
	}
	return time.Duration(user+nice+system+irq+soft) * 10 * time.Millisecond
}
