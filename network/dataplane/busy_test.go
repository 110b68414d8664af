package dataplane

import (
	"fmt"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/pelago-dev/pelago/network/netns"
	"github.com/pelago-dev/pelago/network/netnstest"
)

// TestBusyNode has pods come and go all the time on a node with many, while it is set.
func TestBusyNode(t *testing.T) {
	t.Parallel()
	kernel, options, c := alone(t)
	c.Gateways = []Gateway{{Peering: "p", Tunnel: tunnelName, MTU: tunnelMTU, Limited: true, Views: []View{{View: viewRange(70, true), Real: podRange(true)}}}}
	c.Routes = []Route{{Prefix: viewRange(70, true), Gateway: "p"}}
	file, err := netns.Copy(options.Host)
	if err != nil {
		t.Fatal(err)
	}
	host := netnstest.OpenPlace(t, "host", file)
	const pods, sets = 100, 50
	pod := func(name string) *netlink.Veth {
		return &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "-pod"}
	}
	for i := range pods {
		host.Must(host.Kernel.LinkAdd(pod(fmt.Sprintf("veth%d", i))))
	}
	done, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		one := pod("one")
		for tick := time.NewTicker(20 * time.Millisecond); ; <-tick.C {
			select {
			case <-done:
				ended <- nil
				return
			default:
			}
			err := host.Kernel.LinkAdd(one)
			if err == nil {
				err = host.Kernel.LinkDel(one)
			}
			if err != nil {
				ended <- err
				return
			}
		}
	}()
	failed := 0
	for range sets {
		kernel.looked = time.Time{} // all is looked at
		if err := kernel.Set(t.Context(), c); err != nil {
			failed++
			t.Log(err)
		}
	}
	close(done)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if failed > 0 {
		t.Errorf("%d of %d times it could not be set", failed, sets)
	}
}
