package vitals

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/pelago-dev/pelago/internal/kube"
)

// TestConnectionsAreBounded holds that one address that opens connections and says nothing has few of them, and
// keeps out neither others nor who shares it.
func TestConnectionsAreBounded(t *testing.T) {
	s, get := serve(t, nil)
	for _, host := range []byte{1, 2} { // those of 127.0.0.1 are the address of who asks, too
		var silent []net.Conn
		from := &net.TCPAddr{IP: net.IPv4(127, 0, 0, host)}
		for range mostOpen + 8 {
			c, err := (&net.Dialer{LocalAddr: from}).Dial("tcp", s.Address().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			silent = append(silent, c)
		}
		if status, text := get("/healthz", ""); status != http.StatusOK {
			t.Fatalf("who asks meanwhile got %d: %s", status, text)
		}
		silentFor := func(c net.Conn, d time.Duration) bool {
			_ = c.SetReadDeadline(time.Now().Add(d))
			_, err := c.Read(make([]byte, 1))
			return errors.Is(err, os.ErrDeadlineExceeded)
		}
		held := 0
		for _, c := range silent {
			// A deadline that is over before the read begins, on a busy machine, hides an end that is there.
			if silentFor(c, 10*time.Millisecond) && silentFor(c, 100*time.Millisecond) {
				held++
			}
		}
		if held > perAddress {
			t.Errorf("one address holds %d connections, more than %d", held, perAddress)
		}
	}
}

// TestStrangersKeepNoConnection holds that only who may read metrics keeps a connection after an answer.
func TestStrangersKeepNoConnection(t *testing.T) {
	s, _ := serve(t, func(_ context.Context, o kube.Object) error {
		switch review := o.(type) {
		case *authenticationv1.TokenReview:
			review.Status.Authenticated = review.Spec.Token == "good"
		case *authorizationv1.SubjectAccessReview:
			review.Status.Allowed = true
		}
		return nil
	})
	for _, c := range []struct {
		path, token string
		status      int
		kept        bool
	}{
		{"/metrics", "good", http.StatusOK, true},
		{"/metrics", "bad", http.StatusUnauthorized, false},
		{"/metrics", "", http.StatusUnauthorized, false},
		{"/healthz", "", http.StatusOK, false},
		{"/readyz", "good", http.StatusOK, false},
		{"/else", "good", http.StatusNotFound, false},
	} {
		conn, err := tls.Dial("tcp", s.Address().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}}) // it proves nothing, as the package says
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if p := conn.ConnectionState().NegotiatedProtocol; p != "http/1.1" {
			t.Fatalf("it speaks %s", p)
		}
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", c.path, c.token)
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != c.status || response.Close == c.kept {
			t.Errorf("%s with the token %q: got %d, the last answer: %t", c.path, c.token, response.StatusCode, response.Close)
		}
	}
}
