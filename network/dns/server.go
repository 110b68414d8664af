package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	wire "github.com/miekg/dns"

	"github.com/pelago-dev/pelago/network/netns"
)

const (
	// port is that of DNS.
	port = 53
	// anew is when listening is tried again, and every how often the address is set.
	anew = 2 * time.Second
)

// Server answers the pods of tenants on its node.
type Server struct {
	options     Options
	upstream    *upstream
	questions   *slots
	connections *slots
	port        uint16
	anew        time.Duration
}

// New makes a Server that Run starts.
func New(o Options) (*Server, error) {
	if !o.Address.IsValid() {
		o.Address = Address()
	}
	if o.Clients == nil {
		return nil, errors.New("nothing says who asks")
	}
	u, err := newUpstream(o.Host, o.Upstream, o.Address)
	if err != nil {
		return nil, err
	}
	return &Server{
		options: o, upstream: u, port: port, anew: anew,
		questions: newSlots(questionsEach, questionsAll), connections: newSlots(connectionsEach, connectionsAll),
	}, nil
}

// Run answers until the context ends, and returns nil then. While it cannot listen, as when
// a predecessor still does, it tries again. Nothing of it runs any more when it returns; the
// address stays until Remove.
func (s *Server) Run(ctx context.Context) error {
	said := ""
	for {
		err := s.serve(ctx, func() {
			said = ""
			s.options.Log.Info("answering for names", "address", s.options.Address.String())
		})
		if ctx.Err() != nil {
			return nil
		}
		if text := err.Error(); text != said {
			said = text
			s.options.Log.Error(err, "cannot answer for names")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(s.anew):
		}
	}
}

// serve answers until something breaks.
func (s *Server) serve(ctx context.Context, listening func()) error {
	if err := set(s.options.Host, s.options.Address); err != nil {
		return err
	}
	udp, tcp, err := s.listen()
	if err != nil {
		return err
	}
	listening()
	s.options.Metrics.listens(1)
	defer s.options.Metrics.listens(0)
	ctx, cancel := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	running.Go(func() { cancel(s.datagrams(ctx, udp, &running)) })
	running.Go(func() { cancel(s.streams(ctx, tcp, &running)) })
	running.Go(func() { cancel(s.hold(ctx)) })
	<-ctx.Done()
	_ = udp.Close()
	_ = tcp.Close()
	running.Wait()
	return context.Cause(ctx)
}

// listen opens both sockets at the address alone.
func (s *Server) listen() (udp *net.UDPConn, tcp *net.TCPListener, err error) {
	at := netip.AddrPortFrom(s.options.Address, s.port)
	err = netns.In(s.options.Host, func() (err error) {
		if udp, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at)); err != nil {
			return err
		}
		if tcp, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at)); err != nil {
			_ = udp.Close()
		}
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("listening at %s: %w", at, err)
	}
	return udp, tcp, nil
}

// hold gives the node the address again if somebody took it.
func (s *Server) hold(ctx context.Context) error {
	tick := time.NewTicker(s.anew)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			if err := set(s.options.Host, s.options.Address); err != nil {
				return err
			}
		}
	}
}

// tenant is whose an address is, "" if nobody's: they have a share of their own.
func (s *Server) tenant(from netip.Addr) string {
	client, _ := s.options.Clients(from)
	return client.Tenant
}

// responder answers one address.
func (s *Server) responder(from netip.Addr) responder {
	return responder{
		provider: s.options.Domain,
		clients:  func() (Client, bool) { return s.options.Clients(from) },
		exchange: func(ctx context.Context, question *wire.Msg) (*wire.Msg, error) {
			begin := time.Now()
			defer func() { s.options.Metrics.took(time.Since(begin)) }()
			return s.upstream.exchange(ctx, question)
		},
	}
}

// datagrams answers what comes by UDP.
func (s *Server) datagrams(ctx context.Context, conn *net.UDPConn, running *sync.WaitGroup) error {
	for buffer := make([]byte, maxQuestion+1); ; {
		n, from, err := conn.ReadFromUDPAddrPort(buffer)
		if err != nil {
			return fmt.Errorf("receiving questions: %w", err)
		}
		if n > maxQuestion {
			s.options.Metrics.count(malformed)
			continue
		}
		who := from.Addr().Unmap()
		tenant := s.tenant(who)
		if !s.questions.take(tenant) {
			s.options.Metrics.count(limited)
			continue // its resolver asks again
		}
		packet := append([]byte(nil), buffer[:n]...)
		running.Go(func() {
			defer s.questions.give(tenant)
			answer, what := s.responder(who).respond(ctx, packet, true)
			s.options.Metrics.count(what)
			if answer != nil {
				_ = conn.SetWriteDeadline(time.Now().Add(slow))
				_, _ = conn.WriteToUDPAddrPort(answer, from)
			}
		})
	}
}

// streams answers what comes by TCP.
func (s *Server) streams(ctx context.Context, listener *net.TCPListener, running *sync.WaitGroup) error {
	for {
		conn, err := listener.AcceptTCP()
		if err != nil {
			return fmt.Errorf("accepting connections: %w", err)
		}
		from, ok := conn.RemoteAddr().(*net.TCPAddr)
		if !ok {
			_ = conn.Close()
			continue
		}
		who := from.AddrPort().Addr().Unmap()
		tenant := s.tenant(who)
		if !s.connections.take(tenant) {
			s.options.Metrics.count(limited)
			_ = conn.Close()
			continue
		}
		running.Go(func() {
			defer s.connections.give(tenant)
			defer func() { _ = conn.Close() }()
			defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
			for s.one(ctx, conn, who, tenant) {
			}
		})
	}
}

// one answers the next question of a connection, and says whether there may be another.
func (s *Server) one(ctx context.Context, conn net.Conn, who netip.Addr, tenant string) bool {
	_ = conn.SetReadDeadline(time.Now().Add(idle))
	packet, err := unframed(conn, maxQuestion)
	if err != nil {
		return false
	}
	if !s.questions.take(tenant) {
		s.options.Metrics.count(limited)
		return false
	}
	defer s.questions.give(tenant)
	answer, what := s.responder(who).respond(ctx, packet, false)
	s.options.Metrics.count(what)
	if answer == nil {
		return false
	}
	_ = conn.SetWriteDeadline(time.Now().Add(slow))
	_, err = conn.Write(framed(answer))
	return err == nil && what != stranger && what != malformed
}
