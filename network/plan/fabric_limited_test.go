package plan

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pelago-dev/pelago/network/netnstest"
)

// testLimited lets rome reach one pod of milan, which runs there for it, and that one a pod
// of rome; milan's other pods reach none.
func testLimited(t *testing.T, w *world) {
	var allowed []netip.Addr
	for _, v4 := range netnstest.Families {
		allowed = append(allowed, netnstest.PodAddr(42, 1, 5, v4))
	}
	rome, milan := &w.rome.in.Peerings[0], &w.milan.in.Peerings[0]
	var called []netip.Addr
	for _, v4 := range netnstest.Families {
		called = append(called, netnstest.PodAddr(42, 0, 5, v4))
	}
	rome.Limited, milan.Limited, rome.There, milan.Here = true, true, allowed, allowed
	rome.Here, milan.There = called, called
	w.rome.apply(t)
	w.milan.apply(t)
	for i, n := range w.rome.Nodes {
		for _, v4 := range netnstest.Families {
			w.seen(t, n.Pod, w.rome.seen(t, netnstest.PodAddr(42, 1, 5, v4)), w.milan.seen(t, netnstest.PodAddr(42, i, 5, v4)))
			w.denied(t, n.Pod, w.rome.seen(t, netnstest.PodAddr(42, 1, 6, v4)))
			w.denied(t, n.Pod, w.rome.seen(t, netnstest.PodAddr(42, 0, 5, v4)))
			w.denied(t, w.milan.Nodes[i].Pod, w.milan.seen(t, netnstest.PodAddr(42, 1, 5, v4)))
		}
	}
	// Each gateway by itself keeps those from beginning that do not run for rome.
	for _, open := range []*side{nil, w.rome, w.milan} {
		if open != nil {
			open.in.Peerings[0].Limited = false
			open.apply(t)
		}
		for _, v4 := range netnstest.Families {
			to := w.milan.seen(t, netnstest.PodAddr(42, 0, 5, v4))
			w.seen(t, w.milan.Nodes[1].Pod, to, w.rome.seen(t, netnstest.PodAddr(42, 1, 5, v4)))
			w.denied(t, w.milan.Nodes[0].Pod, to)
		}
		if open != nil {
			open.in.Peerings[0].Limited = true
			open.apply(t)
		}
	}
	testLeaves(t, w)
	rome.Limited, milan.Limited = false, false
	rome.Here, rome.There, milan.Here, milan.There = nil, nil, nil, nil
	w.rome.apply(t)
	w.milan.apply(t)
	testPods(t, w)
}

// testLeaves holds that datagrams which a peer has begun to send to a pod, and which it answers, do not arrive any more when the
// pod may not be called: another one may have its address by then.
func testLeaves(t *testing.T, w *world) {
	t.Helper()
	milan, at := &w.milan.in.Peerings[0], netnstest.PodAddr(42, 1, 5, true)
	var server net.PacketConn
	pod := w.milan.Nodes[1].Pod
	pod.In(func() (err error) {
		server, err = net.ListenPacket("udp", netip.AddrPortFrom(at, 7000).String())
		return err
	})
	defer server.Close()
	var heard atomic.Int64 // the highest number among the datagrams that arrived
	go func() {
		for b := make([]byte, 100); ; {
			n, from, err := server.ReadFrom(b)
			if err != nil {
				return
			}
			number, _ := strconv.ParseInt(string(b[:n]), 10, 64)
			heard.Store(max(heard.Load(), number))
			_, _ = server.WriteTo(b[:n], from)
		}
	}()
	var client net.Conn
	w.rome.Nodes[1].Pod.In(func() (err error) {
		client, err = net.Dial("udp", netip.AddrPortFrom(w.rome.seen(t, at), 7000).String())
		return err
	})
	defer client.Close()
	sent := int64(0)
	answered := func() bool { // which what comes late of those before does not say
		sent++
		number := strconv.FormatInt(sent, 10)
		_, _ = client.Write([]byte(number))
		_ = client.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		for b := make([]byte, 100); ; {
			n, err := client.Read(b)
			if err != nil || string(b[:n]) == number {
				return err == nil
			}
		}
	}
	netnstest.Await(t, "an answer", netnstest.Patience, answered)
	here := milan.Here
	milan.Here = slices.DeleteFunc(slices.Clone(here), func(a netip.Addr) bool { return a == at })
	w.milan.apply(t)
	before := sent
	for range 5 {
		if answered() {
			t.Error("what may not be called any more answers what was begun before")
		}
	}
	if n := heard.Load(); n > before {
		t.Errorf("datagram %d arrives at who may not be called any more since number %d", n, before)
	}
	milan.Here = here
	w.milan.apply(t)
	netnstest.Await(t, "an answer again", netnstest.Patience, answered)
}
