// Command shop is the middle of the demo's shop: it counts visits in redis and tells how
// many there were, which pod says so, and who asked.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// counter is where redis is; its name is a Service of the shop.
const counter = "redis:6379"

func main() {
	name, err := os.Hostname()
	if err == nil {
		server := &http.Server{Addr: ":8080", Handler: shop{name: name, redis: counter}, ReadHeaderTimeout: 5 * time.Second}
		err = server.ListenAndServe()
	}
	fmt.Fprintln(os.Stderr, "Error:", err)
	os.Exit(1)
}

// shop answers every request with a visit.
type shop struct{ name, redis string }

// ServeHTTP counts the visit.
func (s shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n, at, err := increment(r.Context(), s.redis, "visits")
	if err != nil {
		http.Error(w, "the counter cannot be reached: "+err.Error(), http.StatusBadGateway)
		return
	}
	client, _, _ := net.SplitHostPort(r.RemoteAddr)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"visits": n, "api": s.name, "asked by": client, "redis": at})
}

// increment adds one to a number in redis and returns it, and the address of redis.
func increment(ctx context.Context, redis, key string) (n int, at string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", redis)
	if err != nil {
		return 0, "", err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	if _, err := fmt.Fprintf(conn, "*2\r\n$4\r\nINCR\r\n$%d\r\n%s\r\n", len(key), key); err != nil {
		return 0, "", err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return 0, "", err
	}
	number, ok := strings.CutPrefix(strings.TrimSpace(line), ":")
	if !ok {
		return 0, "", fmt.Errorf("redis says %.80q", line)
	}
	n, err = strconv.Atoi(number)
	return n, conn.RemoteAddr().String(), err
}
