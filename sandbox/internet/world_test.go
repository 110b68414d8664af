package internet

import (
	"context"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// world is three clusters of one node, oslo behind NAT, a host, and the
// internet between them.
type world struct {
	t                             *testing.T
	internet                      *namespace
	host, rome, milan, oslo, wall *namespace
	config                        Config
	client                        Client
}

// Addresses of the world, IPv4 and IPv6 of each.
var (
	romeAt   = addrs("198.18.0.11", "fd5a:70e1:a90:0::11")
	milanAt  = addrs("198.18.1.11", "fd5a:70e1:a90:1::11")
	osloAt   = addrs("198.18.2.11", "fd5a:70e1:a90:2::11")
	publicAt = addrs("198.18.31.102", "fd5a:70e1:a90:1f::102")
	hostAt   = addrs("198.18.31.254", "fd5a:70e1:a90:1f::254")
	podAt    = addrs("10.42.0.5", "fd42::5")
)

func addrs(texts ...string) (out []netip.Addr) {
	for _, t := range texts {
		out = append(out, netip.MustParseAddr(t))
	}
	return out
}

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, t := range texts {
		out = append(out, netip.MustParsePrefix(t))
	}
	return out
}

func worldConfig() Config {
	return Config{
		Host: Host{Interface: "host0", Prefixes: prefixes("198.18.31.254/32", "fd5a:70e1:a90:1f::254/128")},
		Ports: []Port{
			{Cluster: "rome", Interface: "rome0", Prefixes: prefixes("198.18.0.0/24", "fd5a:70e1:a90::/64")},
			{Cluster: "milan", Interface: "milan0", Prefixes: prefixes("198.18.1.0/24", "fd5a:70e1:a90:1::/64")},
			{
				Cluster: "oslo", Interface: "oslo0", Prefixes: prefixes("198.18.31.102/32", "fd5a:70e1:a90:1f::102/128"),
				Private: prefixes("198.18.2.0/24", "fd5a:70e1:a90:2::/64"), Gateway: publicAt,
			},
		},
	}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	requireRoot(t)
	w := &world{t: t, config: worldConfig()}
	for _, n := range []struct {
		name, role string
		at         **namespace
	}{
		{"internet", "serve", &w.internet},
		{"host", "hold", &w.host},
		{"rome", "hold", &w.rome},
		{"milan", "hold", &w.milan},
		{"oslo", "hold", &w.oslo},
		{"oslo-nat", "hold", &w.wall},
	} {
		*n.at = newNamespace(t, n.name, n.role)
	}
	w.cable(w.rome, "rome0", 1500, "198.18.0", "fd5a:70e1:a90:0:", "11")
	w.cable(w.milan, "milan0", 1400, "198.18.1", "fd5a:70e1:a90:1:", "11")
	w.cable(w.host, "host0", 1500, "198.18.31", "fd5a:70e1:a90:1f:", "254")
	w.cableNAT()
	// The clusters' own ranges overlap; a route tempts their packets across.
	for _, n := range []*namespace{w.rome, w.milan} {
		n.address("lo", "10.42.0.5/32", "fd42::5/128")
	}
	w.internet.route("10.42.0.0/16", "198.18.1.11", "milan0")
	w.internet.route("fd42::/16", "fd5a:70e1:a90:1::11", "milan0")
	w.serve()
	return w
}

// cable joins a machine to the router of its network.
func (w *world) cable(n *namespace, port string, mtu int, v4, v6, last string) {
	join(w.internet, port, n, "eth0", mtu)
	w.internet.address(port, v4+".1/24", v6+":1/64")
	n.address("eth0", v4+"."+last+"/24", v6+":"+last+"/64")
	n.route("0.0.0.0/0", v4+".1", "eth0")
	n.route("::/0", v6+":1", "eth0")
}

// cableNAT puts oslo behind its NAT box.
func (w *world) cableNAT() {
	join(w.internet, "oslo0", w.wall, "outside", 1500)
	w.internet.address("oslo0", "198.18.31.1/32", "fd5a:70e1:a90:1f::1/128")
	w.wall.address("outside", "198.18.31.102/24", "fd5a:70e1:a90:1f::102/64")
	w.wall.route("0.0.0.0/0", "198.18.31.1", "outside")
	w.wall.route("::/0", "fd5a:70e1:a90:1f::1", "outside")
	// What is next door on paper is beyond the router.
	w.wall.route("198.18.31.254/32", "198.18.31.1", "outside")
	w.wall.route("fd5a:70e1:a90:1f::254/128", "fd5a:70e1:a90:1f::1", "outside")
	join(w.wall, "inside", w.oslo, "eth0", 1500)
	w.wall.address("inside", "198.18.2.1/24", "fd5a:70e1:a90:2::1/64")
	w.oslo.address("eth0", "198.18.2.11/24", "fd5a:70e1:a90:2::11/64")
	w.oslo.route("0.0.0.0/0", "198.18.2.1", "eth0")
	w.oslo.route("::/0", "fd5a:70e1:a90:2::1", "eth0")
	w.wall.must(w.wall.in(EnableForwarding))
	w.wall.run(NATRuleset("inside", "outside", w.config.Host.Prefixes), "nft", "-f", "-")
	// The same for the host, whose network holds the public addresses.
	for _, public := range []string{"198.18.31.102/32", "fd5a:70e1:a90:1f::102/128"} {
		via := "198.18.31.1"
		if netip.MustParsePrefix(public).Addr().Is6() {
			via = "fd5a:70e1:a90:1f::1"
		}
		w.host.route(public, via, "eth0")
	}
}

// serve starts the internet and waits until it answers.
func (w *world) serve() {
	w.t.Helper()
	dir, err := os.MkdirTemp("", "internet")
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	w.client = Client{Socket: filepath.Join(dir, "s")}
	line, err := json.Marshal(order{Socket: w.client.Socket, Start: w.config})
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.internet.orders.Write(append(line, '\n')); err != nil {
		w.t.Fatal(err)
	}
	w.await("the internet answers", func() bool {
		_, err := w.client.Get(w.t.Context())
		return err == nil
	})
}

// set puts the links into force.
func (w *world) set(links ...Link) {
	w.t.Helper()
	w.config.Links = links
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	if err := w.client.Set(ctx, w.config); err != nil {
		w.t.Fatal(err)
	}
}

// await polls until a condition holds.
func (w *world) await(what string, holds func() bool) {
	w.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	end := time.After(patience)
	for !holds() {
		select {
		case <-end:
			w.t.Fatalf("not within %s: %s", patience, what)
		case <-tick.C:
		}
	}
}
