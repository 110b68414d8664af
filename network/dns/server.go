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
	// anew is when listening is tried again, and every how often the addresses are set.
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
	newcomer    time.Duration
}

// New makes a Server that Run starts.
func New(o Options) (*Server, error) {
	if len(o.Addresses) == 0 {
		o.Addresses = Addresses(o.Upstream)
	}
	if o.Clients == nil {
		return nil, errors.New("nothing says who asks")
	}
	u, err := newUpstream(o.Host, o.Upstream, o.Addresses...)
	if err != nil {
		return nil, err
	}
	return &Server{
		options: o, upstream: u, port: port, anew: anew, newcomer: newcomerMost,
		questions: newSlots(questionsEach, strangerMost, questionsAll), connections: newSlots(connectionsEach, strangerMost, connectionsAll),
	}, nil
}

// Run answers until the context ends, and returns nil then. While it cannot listen, as when
// a predecessor still does, it tries again. Nothing of it runs any more when it returns; the
// addresses stay until Remove.
func (s *Server) Run(ctx context.Context) error {
	said := ""
	for {
		err := s.serve(ctx, func() {
			said = ""
			s.options.Log.Info("answering for names", "addresses", fmt.Sprint(s.options.Addresses))
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
	if err := s.set(); err != nil {
		return err
	}
	open, err := s.listenAll()
	if err != nil {
		return err
	}
	listening()
	s.options.Metrics.listens(1)
	defer s.options.Metrics.listens(0)
	ctx, cancel := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	for _, o := range open {
		running.Go(func() { cancel(s.datagrams(ctx, o.udp, &running)) })
		running.Go(func() { cancel(s.streams(ctx, o.tcp, &running)) })
	}
	running.Go(func() { cancel(s.hold(ctx)) })
	<-ctx.Done()
	for _, o := range open {
		o.close()
	}
	running.Wait()
	return context.Cause(ctx)
}

// sockets are those at one address.
type sockets struct {
	udp *net.UDPConn
	tcp *net.TCPListener
}

func (o sockets) close() {
	_ = o.udp.Close()
	_ = o.tcp.Close()
}

// set gives the node the addresses, whether it has them or not.
func (s *Server) set() error {
	for _, a := range s.options.Addresses {
		if err := set(s.options.Host, a); err != nil {
			return err
		}
	}
	return nil
}

// listenAll opens the sockets at all addresses, or none.
func (s *Server) listenAll() (open []sockets, err error) {
	for _, a := range s.options.Addresses {
		o, err := s.listen(netip.AddrPortFrom(a, s.port))
		if err != nil {
			for _, o := range open {
				o.close()
			}
			return nil, err
		}
		open = append(open, o)
	}
	return open, nil
}

// listen opens both sockets at an address alone.
func (s *Server) listen(at netip.AddrPort) (o sockets, err error) {
	err = netns.In(s.options.Host, func() (err error) {
		if o.udp, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at)); err != nil {
			return err
		}
		if o.tcp, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at)); err != nil {
			_ = o.udp.Close()
		}
		return err
	})
	if err != nil {
		return sockets{}, fmt.Errorf("listening at %s: %w", at, err)
	}
	return o, nil
}

// hold gives the node the addresses again if somebody took them.
func (s *Server) hold(ctx context.Context) error {
	tick := time.NewTicker(s.anew)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			if err := s.set(); err != nil {
				return err
			}
		}
	}
}

// asker is who asks from an address.
func (s *Server) asker(from netip.Addr) asker {
	client, _ := s.options.Clients(from)
	return asker{tenant: client.Tenant, at: from}
}

// responder answers one address.
func (s *Server) responder(from netip.Addr) responder {
	return responder{
		provider: s.options.Domain,
		newcomer: s.newcomer,
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
		asks := s.asker(who)
		if !s.questions.take(asks) {
			s.options.Metrics.count(limited)
			continue // its resolver asks again
		}
		packet := append([]byte(nil), buffer[:n]...)
		running.Go(func() {
			defer s.questions.give(asks)
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
		asks := s.asker(who)
		if !s.connections.take(asks) {
			s.options.Metrics.count(limited)
			_ = conn.Close()
			continue
		}
		running.Go(func() {
			defer s.connections.give(asks)
			defer func() { _ = conn.Close() }()
			defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
			for s.one(ctx, conn, asks) {
			}
		})
	}
}

// one answers the next question of a connection, and says whether there may be another.
func (s *Server) one(ctx context.Context, conn net.Conn, asks asker) bool {
	_ = conn.SetReadDeadline(time.Now().Add(idle))
	packet, err := unframed(conn, maxQuestion)
	if err != nil {
		return false
	}
	if !s.questions.take(asks) {
		s.options.Metrics.count(limited)
		return false
	}
	defer s.questions.give(asks)
	answer, what := s.responder(asks.at).respond(ctx, packet, false)
	s.options.Metrics.count(what)
	if answer == nil {
		return false
	}
	_ = conn.SetWriteDeadline(time.Now().Add(slow))
	_, err = conn.Write(framed(answer))
	return err == nil && what != stranger && what != malformed
}
