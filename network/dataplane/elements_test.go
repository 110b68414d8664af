package dataplane

import (
	"fmt"
	"maps"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/network/netns"
	"github.com/pelago-dev/pelago/network/netnstest"
)

// TestManyElements holds that one more element costs one, however many there are.
func TestManyElements(t *testing.T) {
	const many = 30_000
	kernel, options, c := alone(t)
	c.Others = c.Others[:1]
	c.Gateways = []Gateway{{Peering: "p", Tunnel: tunnelName, MTU: 1420, Limited: true}}
	for a := podRange(true).Addr(); len(c.Gateways[0].Here) < many; a = a.Next() {
		c.Gateways[0].Here = append(c.Gateways[0].Here, a)
		c.Others[0].Owns = append(c.Others[0].Owns, single(a))
	}
	took := func(what string) time.Duration {
		start := time.Now()
		if err := kernel.Set(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %s", what, time.Since(start).Round(100*time.Microsecond))
		return time.Since(start)
	}
	took(fmt.Sprintf("%d elements in two sets", many))
	took("the same again")
	file, err := options.Namespaces.Open("p")
	if err != nil {
		t.Fatal(err)
	}
	gateway := netnstest.OpenPlace(t, "gateway", file)
	file, err = netns.Copy(options.Host)
	if err != nil {
		t.Fatal(err)
	}
	host := netnstest.OpenPlace(t, "host", file)
	inHost, inGateway := countElements(t, host), countElements(t, gateway)
	next := netip.MustParseAddr("10.42.200.200")
	c.Gateways[0].Here = append(c.Gateways[0].Here, next)
	c.Others[0].Owns = append(c.Others[0].Owns, single(next))
	took("one more in each")
	c.Gateways[0].Here = c.Gateways[0].Here[1:]
	c.Others[0].Owns = c.Others[0].Owns[1:]
	took("one less in each")
	netnstest.Await(t, "the elements are told of", patience, func() bool { return inHost.Load() >= 2 && inGateway.Load() >= 2 })
	if inHost.Load() != 2 || inGateway.Load() != 2 {
		t.Errorf("%d elements written in the host and %d in the gateway, want 2 and 2", inHost.Load(), inGateway.Load())
	}
	if _, err := kernel.Watch(t.Context()); err != nil {
		t.Fatal(err)
	}
	took("after a beginning watch")
	for i := range 2 {
		host.Must(host.Nftables(func(c *nftables.Conn) {
			c.AddTable(&nftables.Table{Name: fmt.Sprintf("somebody%d", i), Family: nftables.TableFamilyINet})
		}))
		took("after somebody else has changed nftables, watched")
	}
	again, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	start := time.Now()
	if err := again.Set(t.Context(), c); err != nil || again.writes.Load() != 0 {
		t.Errorf("a new process: %v, %d writes", err, again.writes.Load())
	}
	t.Logf("a new process: %s", time.Since(start).Round(100*time.Microsecond))
}

// countElements counts the elements that anybody writes or removes.
func countElements(t *testing.T, p *place) *atomic.Int64 {
	t.Helper()
	var socket *nl.NetlinkSocket
	p.Must(netns.In(p.File, func() (err error) {
		socket, err = nl.Subscribe(unix.NETLINK_NETFILTER, unix.NFNLGRP_NFTABLES)
		return err
	}))
	t.Cleanup(socket.Close)
	var count atomic.Int64
	go func() {
		for {
			messages, _, err := socket.Receive()
			if err != nil {
				return
			}
			for _, m := range messages {
				switch m.Header.Type & 0xff {
				case unix.NFT_MSG_NEWSETELEM, unix.NFT_MSG_DELSETELEM:
					elements := parse(m.Data[nl.SizeofNfgenmsg:]).by[unix.NFTA_SET_ELEM_LIST_ELEMENTS]
					count.Add(int64(len(parse(elements).list)))
				}
			}
		}
	}()
	return &count
}

// TestRanges holds that ranges are read as they were written, also those that touch, and
// that what nobody here can have written is known for that.
func TestRanges(t *testing.T) {
	ranges := (&table{}).markMap("r", true, true, 0)
	for i, p := range prefixes("0.0.0.0/8", "10.42.2.0/24", "10.42.3.0/24", "10.42.4.0/32", "255.255.255.0/24") {
		ranges.addMark(p, uint32(i+1))
	}
	var written []kernelElement
	for _, e := range encode(ranges, ranges.sorted()) {
		written = append(written, kernelElement{key: e.Key, value: e.Val, end: e.IntervalEnd})
	}
	got := decode(setRead{name: "r4", interval: true}, written)
	if !maps.Equal(got, ranges.elements) {
		t.Errorf("got %v, want %v", got, ranges.elements)
	}
	for _, c := range []struct {
		reason string
		list   []kernelElement
	}{
		{"no prefix", []kernelElement{{key: []byte{10, 0, 0, 1}}, {key: []byte{10, 0, 0, 9}, end: true}}},
		{"no end", []kernelElement{{key: []byte{10, 0, 0, 0}}, {key: []byte{10, 0, 1, 0}}}},
		{"an end alone", []kernelElement{{key: []byte{10, 0, 0, 0}, end: true}}},
		{"no address", []kernelElement{{key: []byte{10}}}},
	} {
		if _, strange := decode(setRead{name: "r4", interval: true}, c.list)[strangeElement]; !strange {
			t.Errorf("%s passes for one of ours", c.reason)
		}
	}
}
