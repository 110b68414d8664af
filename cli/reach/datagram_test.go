package reach

import (
	"net"
	"testing"
	"time"
)

// TestEcho has a server of datagrams asked from its own port at another address, as another server would
// answer, and then from any.
func TestEcho(t *testing.T) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, port, err := net.SplitHostPort(conn.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	other, err := net.ListenPacket("udp", net.JoinHostPort("127.0.0.2", port))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	go echo(conn, "milan")
	if _, err := other.WriteTo(make([]byte, datagramSize), conn.LocalAddr()); err != nil {
		t.Fatal(err)
	}
	// It answers in turn.
	if a := datagram(t.Context(), conn.LocalAddr().String()); a.Server != "milan" || a.Err != "" {
		t.Fatalf("who asks from a port of his own hears %+v", a)
	}
	if err := other.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, _, err := other.ReadFrom(make([]byte, datagramSize)); err == nil {
		t.Errorf("another server gets %d bytes: the two would go on for ever", n)
	}
}
