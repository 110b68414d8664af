package cluster

import (
	"os/exec"
	"strings"
	"testing"
)

// TestMasqueradeIsTakenByTheKernel has nft check the ruleset without setting
// it.
func TestMasqueradeIsTakenByTheKernel(t *testing.T) {
	requireRoot(t)
	if _, err := exec.LookPath("nft"); err != nil {
		t.Fatal("nft is missing; install the package nftables")
	}
	for _, c := range plan().Clusters {
		command := exec.Command("nft", "--check", "--file", "-")
		command.Stdin = strings.NewReader(c.masquerade())
		if out, err := command.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", c.Name, err, out)
		}
	}
}
