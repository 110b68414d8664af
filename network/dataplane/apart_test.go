package dataplane

import (
	"errors"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/network/netns"
	"github.com/pelago-dev/pelago/network/netnstest"
)

// locked are namespaces of which one cannot be opened.
type locked struct {
	*netns.Held
	name string
}

func (l locked) Open(name string) (*os.File, error) {
	if name == l.name {
		return nil, unix.EMFILE
	}
	return l.Held.Open(name)
}

func (n *worldNode) set(t *testing.T, c Config) {
	t.Helper()
	if err := n.kernel.Set(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

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
	config.Routes = []Route{{Prefix: viewRange(81, true), Gateway: "first"}, {Prefix: viewRange(82, true), Gateway: "second"}}
	n.set(t, config)
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
	wrong := func(want ...string) {
		t.Helper()
		var some GatewaysError
		if err := n.kernel.Set(t.Context(), config); !errors.As(err, &some) || !slices.Equal(slices.Sorted(maps.Keys(some)), want) {
			t.Errorf("it is said to be wrong: %v, want something of %v", err, want)
		}
	}
	wrong("first")
	if !strings.Contains(listed("second"), "10.42.0.77") {
		t.Error("the second one has not what is wanted, as the first one cannot")
	}
	// One comes that is as any other, and one that cannot be.
	for i, name := range []string{"fourth", "third"} {
		g := config.Gateways[0]
		g.Peering, g.Views = name, []View{{View: viewRange(83+i, true), Real: podRange(true)}}
		config.Gateways, config.Routes = append(config.Gateways, g), append(config.Routes, Route{Prefix: viewRange(83+i, true), Gateway: name})
	}
	n.kernel.namespaces = locked{n.held, "fourth"}
	config.Gateways[0].Views = append(config.Gateways[0].Views, View{View: viewRange(85, true), Real: viewRange(43, true)})
	config.Routes = append(config.Routes, Route{Prefix: viewRange(85, true), Gateway: "first"})
	for range 2 {
		wrong("first", "fourth")
		if !strings.Contains(listed("third"), "10.42.0.77") {
			t.Error("the third one has not what is wanted, as others cannot")
		}
		leads := map[int]string{} // of which view by which device
		list, err := n.Place.Kernel.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: viewTable}, netlink.RT_FILTER_TABLE)
		n.Must(err)
		for _, r := range list {
			for _, name := range []string{"first", "second", "third", "fourth"} {
				if n.Has(Device(name)) && r.LinkIndex == n.Link(Device(name)).Attrs().Index {
					leads[int(r.Dst.IP[1])] = name
				}
			}
		}
		// What led to the first one still does, and nothing new.
		if want := map[int]string{81: "first", 82: "second", 84: "third"}; !maps.Equal(leads, want) {
			t.Errorf("views lead to %v, want %v", leads, want)
		}
		if up := n.Link(Device("third")).Attrs().Flags&net.FlagUp != 0; !up {
			t.Error("the third one's device is down")
		}
	}
	n.kernel.namespaces = n.held
	wrong("first")
	config.Gateways, config.Routes = config.Gateways[1:], slices.DeleteFunc(config.Routes, func(r Route) bool { return r.Gateway == "first" })
	n.set(t, config)
}
