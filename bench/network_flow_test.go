package bench

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
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
			go take(c)
		}
	}()
	go func() {
		for b := make([]byte, 2*datagramSize); ; {
			n, err := datagrams.Read(b)
			if err != nil {
				return
			}
			s.datagrams.Add(uint64(n))
		}
	}()
	return s
}

// take reads all there is and answers how much that was.
func take(c net.Conn) {
	defer c.Close()
	n, err := io.CopyBuffer(io.Discard, struct{ io.Reader }{c}, make([]byte, 256<<10))
	if err == nil {
		_ = binary.Write(c, binary.BigEndian, n)
	}
}

// stream sends for a while and returns Gbit a second, of what came.
func (l *line) stream(span time.Duration) (float64, error) {
	c, err := l.dial("tcp", streamPort)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	begin := time.Now()
	if err := c.SetDeadline(begin.Add(span + netnstest.Patience)); err != nil {
		return 0, err
	}
	for b := make([]byte, 256<<10); time.Since(begin) < span; {
		if _, err := c.Write(b); err != nil {
			return 0, err
		}
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return 0, err
	}
	var n int64
	if err := binary.Read(c, binary.BigEndian, &n); err != nil {
		return 0, err
	}
	return float64(n) * 8 / time.Since(begin).Seconds() / 1e9, nil
}

// datagrams sends as many as it can for a while and returns Gbit a second, of what came.
func (l *line) datagrams(span time.Duration) (float64, error) {
	c, err := l.dial("udp", datagramPort)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	before, begin := l.server.datagrams.Load(), time.Now()
	for b := make([]byte, datagramSize); time.Since(begin) < span; {
		// A full queue is no error of the way's.
		if _, err := c.Write(b); err != nil && !strings.Contains(err.Error(), "no buffer space") {
			return 0, err
		}
	}
	n := l.server.datagrams.Load() - before
	if n == 0 {
		return 0, errors.New("no datagram came")
	}
	return float64(n) * 8 / time.Since(begin).Seconds() / 1e9, nil
}

// requests makes small requests over one connection, one after the other.
func (l *line) requests(count int) (sample, error) {
	c, err := l.dial("tcp", requestPort)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(netnstest.Patience)); err != nil {
		return nil, err
	}
	in := bufio.NewReader(c)
	var each sample
	for range count {
		begin := time.Now()
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: bench\r\n\r\n"); err != nil {
			return nil, err
		}
		r, err := http.ReadResponse(in, nil)
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
