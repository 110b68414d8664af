package dataplane

import (
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/pelago-dev/pelago/network/netns"
	"github.com/pelago-dev/pelago/network/netnstest"
)

// TestGatewaysApart holds that what is wrong with one peering's gateway keeps no other from what is
// wanted of it.
func TestGatewaysApart(t *testing.T) {
	t.Parallel()
	n := newNode(t, netnstest.NewCluster(t, "rome").Nodes[0])
	config := Config{
		Node: Node{Name: n.Name, Underlay: netnstest.NodeAddr(0, true), Addresses: addrs("192.168.0.1"), MTU: 1430},
		Pods: prefixes("10.42.0.0/16"),
	}
	for _, name := range []string{"first", "second"} {
		config.Gateways = append(config.Gateways, Gateway{Peering: name, Tunnel: tunnelName, MTU: tunnelMTU, Limited: true,
			Views: []View{{View: viewRange(81, true), Real: podRange(true)}}})
	}
	config.Gateways[1].Views[0].View = viewRange(82, true)
	if err := n.kernel.Set(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	inside := func(name string, args ...string) *exec.Cmd {
		file, err := n.held.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = file.Close() }()
		cmd := exec.Command("nft", args...)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out := &strings.Builder{}
		cmd.Stdout, cmd.Stderr = out, out
		n.Must(netns.In(file, cmd.Start))
		t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
		if len(args) == 1 { // it goes on as long as the test
			if _, err := io.WriteString(in, "delete table inet pelago; add table inet pelago { flags owner; }\n"); err != nil {
				t.Fatal(err)
			}
			return cmd
		}
		if err := cmd.Wait(); err != nil {
			t.Fatalf("nft %v: %v\n%s", args, err, out)
		}
		return cmd
	}
	listed := func(name string) string {
		return inside(name, "list", "table", "inet", "pelago").Stdout.(*strings.Builder).String()
	}
	inside("first", "-i") // whose table is somebody else's now
	netnstest.Await(t, "the first one's table is another", netnstest.Patience, func() bool {
		return !strings.Contains(listed("first"), "chain policy")
	})
	for i := range config.Gateways {
		config.Gateways[i].Here = addrs("10.42.0.77")
	}
	if err := n.kernel.Set(t.Context(), config); err == nil {
		t.Error("the first one's table is somebody else's, and nothing is said")
	}
	if !strings.Contains(listed("second"), "10.42.0.77") {
		t.Error("the second one has not what is wanted, as the first one cannot")
	}
}
