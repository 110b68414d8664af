package reach

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"strings"
	"time"
)

// What is sent in one datagram, which fits into a packet of any way, and how long an answer to one
// may take: datagrams get lost, so some are sent.
const (
	datagramSize = 900
	datagramWait = callLimit / 8
)

// echo answers datagrams until the connection is closed: with the server's name and the client that it
// saw, each with a newline, and what was sent, as far as there is room. An answer is not larger than
// what it answers, so that nobody is drowned in them who did not ask; and what comes from the server's own
// port is not answered, so that no two servers answer each other for ever.
func echo(conn net.PacketConn, name string) {
	_, own, _ := net.SplitHostPort(conn.LocalAddr().String())
	buffer := make([]byte, datagramSize+1)
	for {
		n, from, err := conn.ReadFrom(buffer)
		if err != nil {
			return
		}
		client, port, _ := net.SplitHostPort(from.String())
		answer := append([]byte(name+"\n"+client+"\n"), buffer[:n]...)
		if n == datagramSize && port != own {
			_, _ = conn.WriteTo(answer[:n], from)
		}
	}
}

// datagram sends some until one of them is answered.
func datagram(ctx context.Context, at string) Answer {
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", at)
	if err != nil {
		return Answer{Err: plain(err), At: AtConnect}
	}
	defer conn.Close()
	sent, buffer := make([]byte, datagramSize), make([]byte, datagramSize+1)
	_, _ = rand.Read(sent) // never fails
	for ctx.Err() == nil {
		begin := time.Now()
		if _, err = conn.Write(sent); err != nil {
			return Answer{Err: plain(err), At: AtConnect}
		}
		_ = conn.SetReadDeadline(begin.Add(datagramWait))
		n, failed := conn.Read(buffer)
		if err = failed; err != nil {
			if timeout, is := err.(net.Error); is && timeout.Timeout() {
				continue
			}
			return Answer{Err: plain(err), At: AtConnect}
		}
		lines := strings.SplitN(string(buffer[:n]), "\n", 3)
		if len(lines) < 3 || n != datagramSize || !bytes.HasPrefix(sent, []byte(lines[2])) {
			return Answer{Err: fmt.Sprintf("something else came back, of %d bytes", n), At: AtTransfer}
		}
		return Answer{Server: lines[0], Client: lines[1], Micros: time.Since(begin).Microseconds()}
	}
	return Answer{Err: fmt.Sprintf("no answer in %s", callLimit), At: AtConnect}
}
