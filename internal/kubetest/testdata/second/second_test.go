// Package second is the other of two that must share one API server.
package second

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/pelago-dev/pelago/internal/kubetest"
)

func TestServer(t *testing.T) {
	server := kubetest.Server(t)
	out := filepath.Join(os.Getenv("KUBETEST_OUT"), "second")
	if err := os.WriteFile(out, []byte(server.Kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
}
