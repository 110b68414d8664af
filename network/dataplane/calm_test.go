package dataplane

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/network/netns"
	"github.com/pelago-dev/pelago/network/netnstest"
)

// TestCalm holds that pods that come and go make nobody look for devices and routes, and that
// whatever else changes, wanted or not, does at once.
func TestCalm(t *testing.T) {
	kernel, options, c := alone(t)
	c.Gateways = []Gateway{{Peering: "p", Tunnel: tunnelName, MTU: 1420, Limited: true, Views: []View{{View: viewRange(70, true), Real: podRange(true)}}}}
	c.Routes = []Route{{Prefix: viewRange(70, true), Gateway: "p"}, {Prefix: viewRange(71, true), Node: "b"}}
	c.Others[0].Owns = prefixes("10.42.3.0/24") // the first one makes more than an element
	set := func() (looks int) {
		t.Helper()
		before := kernel.looks
		if err := kernel.Set(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		return kernel.looks - before
	}
	if set(); set() != 1 {
		t.Error("nobody looks although nobody is told of changes")
	}
	again, err := kernel.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	calm := func() {
		t.Helper()
		var since time.Time // what was written here is told of too, a moment later
		netnstest.Await(t, "nothing is told of any more", patience, func() bool {
			if len(again) > 0 || since.IsZero() {
				for len(again) > 0 {
					<-again
				}
				since = time.Now()
			}
			return set() == 0 && time.Since(since) > 200*time.Millisecond
		})
	}
	whole := func(what string) {
		t.Helper()
		other, err := New(options)
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		if err := other.Set(t.Context(), c); err != nil || other.writes.Load() != 0 {
			t.Errorf("%s: %v, %d things were not as wanted", what, err, other.writes.Load())
		}
	}
	calm()

	begin, looks, pods := time.Now(), 0, 50
	for i := range pods {
		c.Gateways[0].Here = append(c.Gateways[0].Here, netip.AddrFrom4([4]byte{10, 42, 1, byte(i)}))
		c.Others = slices.Clone(c.Others)
		c.Others[0].Owns = append(slices.Clone(c.Others[0].Owns), single(netip.AddrFrom4([4]byte{10, 42, 2, byte(i)})))
		looks += set()
	}
	if most := int(time.Since(begin)/calmFor) + 1; looks > most {
		t.Errorf("%d pods: looked %d times in %s, at most %d", pods, looks, time.Since(begin), most)
	}
	whole("pods")

	file, err := netns.Copy(options.Host)
	if err != nil {
		t.Fatal(err)
	}
	host := netnstest.OpenPlace(t, "host", file)
	if file, err = options.Namespaces.Open("p"); err != nil {
		t.Fatal(err)
	}
	gateway := netnstest.OpenPlace(t, "gateway", file)
	for _, hurt := range []struct {
		what string
		do   func() error
	}{
		{"a route here", func() error { return dropRoute(host, viewTable, true) }},
		{"a rule of the gateway", func() error { return dropRules(gateway) }},
		{"its neighbour", func() error { return dropNeighbours(gateway, insideName, unix.AF_INET) }},
	} {
		calm()
		host.Must(hurt.do())
		<-again
		if set() != 1 {
			t.Errorf("%s is gone, which the kernel has told of, and nobody looks", hurt.what)
		}
		whole(hurt.what)
	}

	calm()
	gateway.Must(gateway.Kernel.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: tunnelName}, PeerName: "end"}))
	gateway.Must(gateway.Kernel.LinkSetUp(gateway.Link(tunnelName)))
	<-again
	pause := time.Now() // until all of it is told, and then as if nothing were
	netnstest.Await(t, "the tunnel is told of", patience, func() bool { return time.Since(pause) > 100*time.Millisecond })
	kernel.gateways["p"].watch.stirred.Store(false)
	if set() != 1 {
		t.Error("nobody looks although there is a tunnel now")
	}
	whole("a tunnel")
	for i, change := range []func(){
		func() { c.Gateways[0].MTU = 1380 },
		func() { c.Routes = c.Routes[:1] },
		func() { c.Gateways = nil; c.Routes = nil },
	} {
		calm()
		change()
		if set() != 1 {
			t.Errorf("nobody looks although change %d is wanted", i)
		}
		whole(fmt.Sprintf("change %d", i))
	}
}
