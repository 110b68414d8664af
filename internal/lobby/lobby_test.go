package lobby

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestLobby(t *testing.T) {
	t.Parallel()
	l := New(4, 2)
	guests := map[string]*guest{}
	for _, step := range []struct {
		name, address string
		delivers      bool
		rests         string // who has its answer before
		out           string
		in            bool
		reason        string
	}{
		{"a1", "a", false, "", "", true, "there is room"},
		{"a2", "a", false, "", "", true, "there is room"},
		{"a3", "a", true, "", "a1", true, "the oldest of the address makes room"},
		{"b1", "b", false, "", "", true, "there is room"},
		{"c1", "c", true, "", "", true, "there is room"},
		{"d1", "d", true, "", "a2", true, "the oldest silent one makes room"},
		{"b2", "b", true, "", "b1", true, "one of its own makes room, as nobody else is silent"},
		{"e1", "e", false, "", "", false, "nobody is silent"},
		{"e2", "e", true, "c1", "c1", true, "one that has its answer makes room"},
		{"f1", "f", true, "", "", false, "nobody is silent"},
	} {
		if step.rests != "" {
			guests[step.rests].rests()
		}
		g := &guest{lobby: l, address: step.address, delivered: step.delivers}
		out, in := l.admit(g)
		if in != step.in || out != guests[step.out] {
			t.Errorf("%s: %v, %+v went: %s", step.name, in, out, step.reason)
		}
		guests[step.name] = g
	}
	guests["d1"].rests()
	guests["a3"].rests()
	if last := l.guests[len(l.guests)-1]; last != guests["a3"] {
		t.Errorf("the last to go is %s, not the one that rests for the shortest", last.address)
	}
}

// TestLobbyCountsWaiting holds that an address from which much is being answered is not the first to lose who has
// just come.
func TestLobbyCountsWaiting(t *testing.T) {
	t.Parallel()
	l := New(7, 4)
	for _, g := range []struct {
		address   string
		delivered bool
	}{{"busy", true}, {"busy", true}, {"busy", true}, {"busy", false}, {"silent", false}, {"silent", false}, {"silent", false}} {
		l.admit(&guest{lobby: l, address: g.address, delivered: g.delivered})
	}
	for _, address := range []string{"other", "silent", "another"} {
		if out, in := l.admit(&guest{lobby: l, address: address}); !in || out.address != "silent" {
			t.Errorf("for %s went %+v", address, out)
		}
	}
}

// TestReceive: one address that keeps as many connections as it can keeps nobody else out,
// and whose request is being answered is not sent out.
func TestReceive(t *testing.T) {
	t.Parallel()
	const most, perAddress = 8, 4
	const idleTimeout = 2 * time.Minute
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	answering, goOn := make(chan struct{}), make(chan struct{})
	web := &http.Server{IdleTimeout: idleTimeout, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/long" {
			close(answering)
			<-goOn
		}
	})}
	rested := make(chan struct{}, 4*most)
	web.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateIdle {
			rested <- struct{}{}
		}
	}
	door := New(most, perAddress).Receive(web, listener)
	go func() { _ = web.Serve(door) }()
	t.Cleanup(func() { _ = web.Close() })
	call := func(host byte) net.Conn {
		t.Helper()
		from := &net.TCPAddr{IP: net.IPv4(127, 0, 2, host)}
		c, err := (&net.Dialer{LocalAddr: from}).Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatalf("calling from %s: %v", from, err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if err := c.SetDeadline(time.Now().Add(idleTimeout / 2)); err != nil {
			t.Fatal(err)
		}
		return c
	}
	ask := func(c net.Conn, path string) {
		t.Helper()
		if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path); err != nil {
			t.Fatal(err)
		}
	}
	answered := func(c net.Conn) error {
		line, err := bufio.NewReader(c).ReadString('\n')
		if err == nil && !strings.HasPrefix(line, "HTTP/1.1 200 ") {
			err = fmt.Errorf("the answer is %q", line)
		}
		return err
	}
	long := call(1)
	ask(long, "/long")
	<-answering
	for host := byte(1); host <= 3; host++ {
		for range most {
			c := call(host)
			ask(c, "/")
			if err := answered(c); err != nil {
				t.Fatalf("the address 127.0.2.%d has no answer: %v", host, err)
			}
			<-rested // who has read the answer is ahead of the server
		}
	}
	other := call(9)
	ask(other, "/")
	if err := answered(other); err != nil {
		t.Errorf("those who only stay keep another address out: %v", err)
	}
	close(goOn)
	if err := answered(long); err != nil {
		t.Errorf("who was being answered was sent out: %v", err)
	}
}

// TestTakenOver holds that a connection that has become another protocol is sent out for nobody, also if its
// request announced a body.
func TestTakenOver(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	taken := make(chan net.Conn, 1)
	web := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/take" {
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
			}
			taken <- c
		}
	})}
	go func() { _ = web.Serve(New(2, 2).Receive(web, listener)) }()
	defer web.Close()
	ask := func(text string) net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
		return c
	}
	held := ask("POST /take HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n")
	there := <-taken
	defer there.Close()
	for range 4 {
		ask("")
	}
	if text, err := bufio.NewReader(ask("GET / HTTP/1.1\r\nHost: x\r\n\r\n")).ReadString('\n'); err != nil {
		t.Fatalf("answered %q: %v", text, err)
	}
	if _, err := io.WriteString(there, "more\n"); err != nil {
		t.Fatalf("it was sent out: %v", err)
	}
	if text, err := bufio.NewReader(held).ReadString('\n'); err != nil || text != "more\n" {
		t.Errorf("it was sent out: %q, %v", text, err)
	}
}

// flaky is a listener that fails once, in a way that passes.
type flaky struct {
	net.Listener
	failed bool
}

func (f *flaky) Accept() (net.Conn, error) {
	if !f.failed {
		f.failed = true
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: syscall.EMFILE}
	}
	return f.Listener.Accept()
}

// TestPassingErrors holds that a server goes on where it could not accept a connection for the moment.
func TestPassingErrors(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	web := &http.Server{Handler: http.NotFoundHandler(), ErrorLog: log.New(io.Discard, "", 0)}
	ended := make(chan error, 1)
	go func() { ended <- web.Serve(New(4, 4).Receive(web, &flaky{Listener: listener})) }()
	defer web.Close()
	answered := make(chan error, 1)
	go func() {
		response, err := http.Get("http://" + listener.Addr().String())
		if err == nil {
			err = response.Body.Close()
		}
		answered <- err
	}()
	select {
	case err := <-ended:
		t.Fatalf("it has ended: %v", err)
	case err := <-answered:
		if err != nil {
			t.Error(err)
		}
	}
}
