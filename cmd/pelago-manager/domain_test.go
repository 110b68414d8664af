package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestClusterDomain: the domain is in what a kubelet tells every pod.
func TestClusterDomain(t *testing.T) {
	for _, c := range []struct{ reason, conf, want string }{
		{"the usual one", "search pelago-system.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.43.0.10\noptions ndots:5\n", "cluster.local"},
		{"another one, with the node's own beside it", "search pelago-system.svc.rome.example svc.rome.example rome.example lan\nnameserver 10.43.0.10\n", "rome.example"},
		{"a developer's machine", "search lan\nnameserver 192.0.2.1\n", ""},
		{"nothing", "", ""},
	} {
		file := filepath.Join(t.TempDir(), "resolv.conf")
		if err := os.WriteFile(file, []byte(c.conf), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := clusterDomain(file); got != c.want {
			t.Errorf("%s: %q, want %q", c.reason, got, c.want)
		}
	}
	if got := clusterDomain(filepath.Join(t.TempDir(), "none")); got != "" {
		t.Errorf("without a file it is %q", got)
	}
}
