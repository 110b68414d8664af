// Package netnstest gives tests network namespaces and cables between them, and made of these
// clusters of nodes that have the same addresses as those of any other cluster, with pods
// and a CNI that masquerades. All of it ends with the test.
package netnstest

import (
	"os"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/pelago-dev/pelago/network/netns"
)

// Root skips a test that needs network namespaces, but never where a skip would go unseen.
func Root(t testing.TB) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("needs root to make network namespaces")
	}
	t.Skip("needs root to make network namespaces; run as root")
}

// New makes a namespace that the test lets go of at its end. It needs root.
func New(t testing.TB) *os.File {
	t.Helper()
	Root(t)
	ns, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	return ns
}

// Change runs f with netlink of a namespace.
func Change(t testing.TB, ns *os.File, f func(*netlink.Handle) error) {
	t.Helper()
	kernel, err := netns.Netlink(ns)
	if err == nil {
		defer kernel.Close()
		err = f(kernel)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Up takes a device up, or down.
func Up(t testing.TB, ns *os.File, device string, up bool) {
	t.Helper()
	Change(t, ns, func(k *netlink.Handle) error {
		link, err := k.LinkByName(device)
		switch {
		case err != nil:
			return err
		case up:
			return k.LinkSetUp(link)
		}
		return k.LinkSetDown(link)
	})
}

// Join makes a veth between two namespaces, and takes both ends up.
func Join(t testing.TB, a *os.File, aName string, b *os.File, bName string, mtu int) {
	t.Helper()
	Change(t, a, func(k *netlink.Handle) error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = aName, mtu
		veth := netlink.NewVeth(attrs)
		veth.PeerName, veth.PeerNamespace, veth.PeerMTU = bName, netlink.NsFd(b.Fd()), uint32(mtu)
		return k.LinkAdd(veth)
	})
	Up(t, a, aName, true)
	Up(t, b, bName, true)
}
