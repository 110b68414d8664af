package kubelet

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/internal/lobby"
)

// TestStrangersKeepNobodyOut holds that one address that opens as many connections as it can, and says nothing,
// keeps nobody out, neither at its port nor at others, that all ports together have no more than there may be, and
// that a command that runs is not ended for it.
func TestStrangersKeepNobodyOut(t *testing.T) {
	p := &provider{serve: echo}
	s := newStage(t, p)
	const most, each = 16, 8 // more than this test asks for
	s.kubelets.close(s.node.Name)
	s.kubelets.lobby = lobby.New(most, each)
	var ports []string
	for _, node := range []*corev1.Node{s.node, {ObjectMeta: metav1.ObjectMeta{Name: s.node.Name + "-other"}}} {
		if _, err := s.kubelets.open(node); err != nil {
			t.Fatal(err)
		}
		ports = append(ports, net.JoinHostPort("127.0.0.1", itoa(s.kubelets.Ports(node.Name))))
	}
	res, command, said := s.upgrade(t, "POST", "/exec/shop/web-0/web?command=ls&output=1", "SPDY/3.1", nil)
	if res.StatusCode != 101 {
		t.Fatalf("the command got %d", res.StatusCode)
	}
	for host := byte(1); host <= 3; host++ {
		for i := range 3 * most {
			from := &net.TCPAddr{IP: net.IPv4(127, 0, 2, host)}
			c, err := (&net.Dialer{LocalAddr: from}).Dial("tcp", ports[i%2])
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
		}
		for _, port := range ports {
			if got, text := do(t, s.caller(t, s.may), "GET", "https://"+port+"/healthz", ""); got != 200 {
				t.Errorf("with %d addresses that say nothing: got %d: %s", host, got, text)
			}
		}
	}
	if _, err := io.WriteString(command, "go on"); err != nil {
		t.Fatal(err)
	}
	if err := command.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(said); err != nil || !strings.HasPrefix(string(text), "go on") {
		t.Errorf("the command was ended: %q, %v", text, err)
	}
}

// TestFollowers holds that an API server may follow hundreds of logs from its one address, whoever says nothing beside
// it, there or elsewhere; that one address does not get all connections; and that those it has are not ended for that.
func TestFollowers(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	web := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		if r.URL.Path == "/follow" {
			<-r.Context().Done()
		}
	})}
	door := newKubelets(Options{}, home{}, nil, nil, logr.Discard()).lobby.Receive(web, listener)
	go func() { _ = web.Serve(door) }()
	defer web.Close()
	call := func(host byte) net.Conn {
		t.Helper()
		c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 2, host)}}).Dial("tcp", listener.Addr().String())
		if err == nil {
			err = c.SetDeadline(time.Now().Add(time.Minute))
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	ask := func(host byte, path string) (net.Conn, error) {
		t.Helper()
		c := call(host)
		_, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
		if err == nil {
			_, err = bufio.NewReader(c).ReadString('\n')
		}
		return c, err
	}
	const api, stranger, other = 1, 2, 3
	var followed []net.Conn
	for i := range 800 {
		c, err := ask(api, "/follow")
		if err != nil {
			t.Fatalf("after %d logs another is refused: %v", i, err)
		}
		followed = append(followed, c)
	}
	for range 2 * mostOpen {
		_ = call(stranger)
		_ = call(api) // a pod may have the API server's address
	}
	for _, host := range []byte{api, other} {
		if _, err := ask(host, "/"); err != nil {
			t.Errorf("who says nothing keeps 127.0.2.%d out: %v", host, err)
		}
	}
	for len(followed) <= mostOpen {
		c, err := ask(api, "/follow")
		if err != nil {
			break
		}
		followed = append(followed, c)
	}
	if len(followed) != perAddress {
		t.Errorf("one address follows %d", len(followed))
	}
	if _, err := ask(other, "/"); err != nil {
		t.Errorf("one that follows much keeps others out: %v", err)
	}
	for i, c := range followed { // it is open as long as a read waits
		if err := c.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, c); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("log %d was ended: %v", i, err)
		}
	}
}
