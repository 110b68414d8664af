package tunnel

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
)

// movedHost refuses to send from an address that the host has no more.
type movedHost struct {
	conn.Bind
	sent int
}

func (m *movedHost) Send(_ [][]byte, to conn.Endpoint) error {
	if to.SrcIP().IsValid() {
		return unix.EINVAL
	}
	m.sent++
	return nil
}

func (m *movedHost) ParseEndpoint(text string) (conn.Endpoint, error) {
	return conn.NewStdNetBind().ParseEndpoint(text)
}

// fromOld is an endpoint that was spoken to from an address that has gone.
type fromOld struct{ conn.Endpoint }

func (fromOld) SrcIP() netip.Addr { return netip.MustParseAddr("198.18.0.1") }

// TestSocketLeavesAnAddressThatHasGone stands in for kernels that give the library the
// address: those with generic receive offload do not.
func TestSocketLeavesAnAddressThatHasGone(t *testing.T) {
	host := &movedHost{}
	to, err := host.ParseEndpoint("198.18.0.2:51820")
	if err != nil {
		t.Fatal(err)
	}
	if err := (&socket{Bind: host, out: newWindow(stallOut)}).Send([][]byte{{4}}, fromOld{to}); err != nil || host.sent != 1 {
		t.Errorf("sent %d, %v", host.sent, err)
	}
}
