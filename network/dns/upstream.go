package dns

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	wire "github.com/miekg/dns"

	"github.com/pelago-dev/pelago/network/netns"
)

// maxResolver bounds a resolv.conf, in bytes.
const maxResolver = 65536

// errNobody is the error of a cluster's DNS of no servers.
var errNobody = errors.New("no server to ask")

// ReadResolver finds in a resolv.conf of a pod the addresses of the cluster's DNS, and the
// cluster's domain: what follows svc. in a search domain, "" if there is none.
func ReadResolver(conf io.Reader) (servers []string, domain string, err error) {
	text, err := io.ReadAll(io.LimitReader(conf, maxResolver+1))
	if err == nil && len(text) > maxResolver { // a part of it could name another server
		err = fmt.Errorf("it is too long, at most %d bytes; leave out what is no setting", maxResolver)
	}
	if err != nil {
		return nil, "", fmt.Errorf("reading what says where the cluster's DNS is: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		switch {
		case len(words) < 2:
		case words[0] == "nameserver":
			servers = append(servers, words[1])
		case words[0] == "search":
			domain = "" // the last line counts
			for _, d := range words[1:] {
				if rest, ok := strings.CutPrefix(d, "svc."); ok && domain == "" {
					domain = strings.TrimSuffix(rest, ".")
				}
			}
		}
	}
	return servers, domain, nil
}

// upstream is the cluster's DNS.
type upstream struct {
	host    *os.File
	servers []netip.AddrPort
}

// serverAddress reads the address of a server, with or without a port.
func serverAddress(text string) (netip.AddrPort, error) {
	if a, err := netip.ParseAddrPort(text); err == nil {
		return a, nil
	}
	plain, err := netip.ParseAddr(text)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("reading where the cluster's DNS is: %w", err)
	}
	return netip.AddrPortFrom(plain, port), nil
}

// newUpstream reads addresses, and leaves out those of ourselves.
func newUpstream(host *os.File, texts []string, self ...netip.Addr) (*upstream, error) {
	u := &upstream{host: host}
	for _, text := range texts {
		a, err := serverAddress(text)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(self, a.Addr()) && len(u.servers) < maxServers && !slices.Contains(u.servers, a) {
			u.servers = append(u.servers, a)
		}
	}
	if len(u.servers) == 0 {
		return nil, errNobody
	}
	return u, nil
}

// exchange asks one server after the other; a single one twice, as datagrams get lost.
func (u *upstream) exchange(ctx context.Context, question *wire.Msg) (*wire.Msg, error) {
	servers := u.servers
	if len(servers) == 1 {
		servers = slices.Concat(servers, servers)
	}
	err := errNobody
	var last *wire.Msg
	for _, server := range servers {
		answer, one := u.ask(ctx, server, question)
		switch {
		case one != nil:
			err = one
		case answer.Rcode == wire.RcodeServerFailure || answer.Rcode == wire.RcodeRefused || answer.Rcode == wire.RcodeNotImplemented:
			last = answer
		default:
			return answer, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	if last != nil {
		return last, nil
	}
	return nil, err
}

// ask asks one server: by a datagram, and if the answer is too long for that, by TCP.
func (u *upstream) ask(ctx context.Context, server netip.AddrPort, question *wire.Msg) (*wire.Msg, error) {
	packet, err := question.Pack()
	if err != nil {
		return nil, fmt.Errorf("packing a question: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answer, err := u.over(ctx, "udp", server, question, packet)
	if err == nil && answer.Truncated {
		answer, err = u.over(ctx, "tcp", server, question, packet)
	}
	if err != nil {
		return nil, fmt.Errorf("asking %s: %w", server, err)
	}
	return answer, nil
}

// over sends a question and waits for what is its answer.
func (u *upstream) over(ctx context.Context, network string, server netip.AddrPort, question *wire.Msg, packet []byte) (*wire.Msg, error) {
	var conn net.Conn
	if err := netns.In(u.host, func() (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, server.String())
		return err
	}); err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	stream := network == "tcp"
	if stream {
		packet = framed(packet)
	}
	if _, err := conn.Write(packet); err != nil {
		return nil, err
	}
	for buffer := make([]byte, maxQuestion); ; {
		n, err := 0, error(nil)
		if stream {
			buffer, err = unframed(conn, wire.MaxMsgSize)
			n = len(buffer)
		} else {
			n, err = conn.Read(buffer)
		}
		if err != nil {
			return nil, err
		}
		if answer := answerTo(question, buffer[:n]); answer != nil {
			return answer, nil
		}
	}
}

// answerTo reads a packet if it is the answer to a question.
func answerTo(question *wire.Msg, packet []byte) *wire.Msg {
	answer := &wire.Msg{}
	if answer.Unpack(packet) != nil || answer.Id != question.Id || !answer.Response || len(answer.Question) != 1 {
		return nil
	}
	q, a := question.Question[0], answer.Question[0]
	if !strings.EqualFold(q.Name, a.Name) || q.Qtype != a.Qtype || q.Qclass != a.Qclass {
		return nil
	}
	return answer
}

// framed is a message as it goes over TCP.
func framed(packet []byte) []byte {
	return append(binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(packet)), uint16(len(packet))), packet...)
}

// unframed reads a message from TCP.
func unframed(from io.Reader, most int) ([]byte, error) {
	var length [2]byte
	if _, err := io.ReadFull(from, length[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint16(length[:]))
	if n < headerSize || n > most {
		return nil, fmt.Errorf("a message of %d bytes", n)
	}
	packet := make([]byte, n)
	_, err := io.ReadFull(from, packet)
	return packet, err
}
