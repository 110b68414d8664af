package law

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestLight holds that the agent, of which each node has one, is made of what it needs.
func TestLight(t *testing.T) {
	const program = "cmd/pelago-agent"
	found := Light(program, []string{"fmt", "sigs.k8s.io/controller-runtime/pkg/client", "sigs.k8s.io/controller-runtime-like", "k8s.io/client-go/rest", "github.com/gopacket/gopacket"})
	if len(found) != 2 || !strings.Contains(found[0], "gopacket in it: its layers") || !strings.Contains(found[1], "controller-runtime/pkg/client in it: it brings") {
		t.Fatalf("of two that are heavy it finds %q", found)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	list := exec.Command("go", "list", "-deps", "./"+program)
	list.Dir, list.Stderr = root, os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatalf("listing what %s is made of: %v", program, err)
	}
	for _, finding := range Light(program, strings.Fields(string(out))) {
		t.Error(finding)
	}
}
