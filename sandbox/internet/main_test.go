package internet

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// roleVariable makes the test binary play a part in a network namespace of its
// own instead of running tests.
const roleVariable = "PELAGO_INTERNET_TEST_ROLE"

func TestMain(m *testing.M) {
	roles := map[string]func() error{"hold": hold, "serve": serveOrders, "busy": busy}
	if role := roles[os.Getenv(roleVariable)]; role != nil {
		if err := role(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// hold keeps the namespaces until the parent is done.
func hold() error {
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// busy keeps one core busy until the parent is done.
func busy() error {
	ended := make(chan error, 1)
	go func() { ended <- hold() }()
	for n := 0; ; n++ {
		if n%1_000_000 == 0 {
			select {
			case err := <-ended:
				return err
			default:
			}
		}
	}
}

// order is the line that the parent sends once the ports are there.
type order struct {
	Socket string
	Start  Config
}

// serveOrders is the internet machine.
func serveOrders() error {
	if err := EnableForwarding(); err != nil {
		return err
	}
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return nil // the parent failed before
	}
	var o order
	if err := json.Unmarshal(line, &o); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	return Serve(ctx, o.Socket, o.Start, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
}

// requireRoot skips a test that needs network namespaces, but never where a
// skip would go unseen.
func requireRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("needs root to make network namespaces")
	}
	t.Skip("needs root to make network namespaces; run as root")
}
