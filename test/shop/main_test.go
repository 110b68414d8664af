package main

import (
	"bufio"
	"fmt"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
)

// redis answers every command with the next text.
func redis(t *testing.T, texts ...string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for _, text := range texts {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			in := bufio.NewReader(conn)
			var asked strings.Builder
			for range 5 {
				line, _ := in.ReadString('\n')
				asked.WriteString(line)
			}
			if asked.String() != "*2\r\n$4\r\nINCR\r\n$6\r\nvisits\r\n" {
				text = fmt.Sprintf("-ERR %q", asked.String())
			}
			_, _ = conn.Write([]byte(text))
			_ = conn.Close()
		}
	}()
	return l.Addr().String()
}

func TestShop(t *testing.T) {
	s := shop{name: "api-1", redis: redis(t, ":41\r\n", "-ERR no\r\n", "")}
	for _, c := range []struct {
		status int
		says   string
	}{{200, `"visits":41`}, {502, "redis says"}, {502, "cannot be reached"}} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/", nil))
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("it answers %d %s, want %d %s", w.Code, w.Body, c.status, c.says)
		}
	}
}
