package plan

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/network/netnstest"
)

func testTransfer(t *testing.T, w *world) {
	w.transfer(t)
	for i, n := range w.rome.Nodes {
		for _, v4 := range netnstest.Families {
			if err := n.Pod.Ping(netnstest.PodAddr(42, i, 5, v4), w.rome.seen(t, netnstest.PodAddr(42, 1, 5, v4)), 9000, netnstest.Patience); err != nil {
				t.Errorf("a packet larger than any MTU: %v", err)
			}
		}
	}
}

// testBlackhole has pods hear nothing of packets that are too large for the tunnel, as behind many
// firewalls: segments have to fit from the first on. Before it nobody may have been told either: hosts
// remember it.
func testBlackhole(t *testing.T, w *world) {
	deaf := &nftables.Table{Name: "deaf", Family: nftables.TableFamilyINet}
	for _, s := range []*side{w.rome, w.milan} {
		for _, n := range s.Nodes {
			n.Must(n.Pod.Nftables(func(c *nftables.Conn) {
				c.AddTable(deaf)
				hears := c.AddChain(&nftables.Chain{Name: "hears", Table: deaf, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookInput, Priority: nftables.ChainPriorityFilter})
				for protocol, kind := range map[byte]byte{unix.IPPROTO_ICMP: 3, unix.IPPROTO_ICMPV6: 2} { // unreachable, too big
					c.AddRule(&nftables.Rule{Table: deaf, Chain: hears, Exprs: []expr.Any{
						&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
						&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{protocol}},
						&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Len: 1},
						&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{kind}},
						&expr.Verdict{Kind: expr.VerdictDrop},
					}})
				}
			}))
			defer func() { n.Must(n.Pod.Nftables(func(c *nftables.Conn) { c.DelTable(deaf) })) }()
		}
	}
	w.transfer(t)
}

// transfer sends much from each of rome's nodes and back.
func (w *world) transfer(t *testing.T) {
	t.Helper()
	const size = 2 << 20
	sent := bytes.Repeat([]byte("0123456789abcdef"), size/16)
	for i, n := range w.rome.Nodes {
		for _, v4 := range netnstest.Families {
			c, _, err := n.Pod.Dial(w.rome.seen(t, netnstest.PodAddr(42, 1, 5, v4)), netnstest.Patience)
			if err != nil {
				t.Fatal(err)
			}
			_ = c.SetDeadline(time.Now().Add(time.Minute))
			start := time.Now()
			go func() { _, _ = c.Write(sent) }()
			got := make([]byte, size)
			if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, sent) {
				t.Errorf("%d bytes did not come back as they were sent: %v", size, err)
			}
			took := time.Since(start)
			_ = c.Close()
			t.Logf("from %s (gateway %t) there and back: %.0f Mbit/s each way", n.Name, i == w.rome.gateway(t), size*8/took.Seconds()/1e6)
		}
	}
}
