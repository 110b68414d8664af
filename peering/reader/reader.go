// Package reader is the connection to the resource reader of a cluster's owner: the
// program that decides within what is free, api/wire/resource_reader.proto. It connects,
// asks, listens for changes and says what is wrong in words; what follows from an
// answer, or from none, is for peering/offer.
package reader

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/pelago-dev/pelago/api/wire"
)

const (
	// maxRemovals bounds how many removals wait to be said.
	maxRemovals = 256
	// maxID bounds the cluster id in a notice; longer ones mean everyone.
	maxID = 64
	// noticeRate is how many notices a second are listened to; the program waits beyond.
	noticeRate = 100
)

// errTrust is an error of TLS, of either side.
var errTrust = fmt.Errorf("%w: one side does not trust the other: see ca.crt, tls.crt and tls.key of its Secret", wire.ErrUnreached)

// pause is how long to wait before subscribing again, or saying removals; half of it is by chance.
var pause = backoff.Config{BaseDelay: time.Second, Multiplier: 2, Jitter: 0.5, MaxDelay: 30 * time.Second}

// Options say where the program is.
type Options struct {
	// Address is unix:///path or HOST:PORT.
	Address string
	// Folder holds ca.crt, and tls.crt with tls.key or token if the program wants to know
	// who asks. It may be empty for a Unix socket and for loopback.
	Folder string
}

// Client asks one program. Its methods may be called from any goroutine.
type Client struct {
	options Options
	said    chan struct{} // there are removals

	mu       sync.Mutex
	way      *way
	notified []func(string)
	// removed are those whose removal is not heard yet, at most maxRemovals.
	removed map[string]bool
}

// way is a connection of which it is known how much came by it.
type way struct {
	*grpc.ClientConn
	came counter
}

// counter counts what a program says, be it good or not.
type counter struct{ atomic.Int64 }

func (*counter) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (*counter) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (*counter) HandleConn(context.Context, stats.ConnStats)                       {}

func (c *counter) HandleRPC(_ context.Context, s stats.RPCStats) {
	switch s.(type) {
	case *stats.InHeader, *stats.InPayload, *stats.InTrailer:
		c.Add(1)
	}
}

// New makes a client, and says what is wrong with the options; it connects when it is
// used first. Whoever makes it runs Start, or calls Close.
func New(o Options) (*Client, error) {
	w, err := newWay(o)
	if err != nil {
		return nil, err
	}
	return &Client{options: o, way: w, said: make(chan struct{}, 1), removed: map[string]bool{}}, nil
}

func newWay(o Options) (*way, error) {
	w := &way{}
	var err error
	w.ClientConn, err = Dial(o, grpc.WithStatsHandler(&w.came))
	return w, err
}

// Dial makes a connection that is not tried yet. What is wrong with the files shows when
// it is used: they may be put right meanwhile.
func Dial(o Options, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	at, err := parse(o.Address)
	if err != nil {
		return nil, fmt.Errorf("address of the resource reader: %w", err)
	}
	var transport credentials.TransportCredentials
	switch {
	case at.local && !folder(o.Folder).trusts():
		transport = insecure.NewCredentials()
	case o.Folder == "":
		return nil, fmt.Errorf("address of the resource reader: %.100q: %w", o.Address, errPlain)
	default:
		transport = fresh{credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13}), folder(o.Folder)}
	}
	conn, err := grpc.NewClient(at.target, append(more,
		grpc.WithTransportCredentials(transport), grpc.WithPerRPCCredentials(bearer{folder(o.Folder)}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(wire.MaxAnswerBytes)), grpc.WithMaxHeaderListSize(wire.MaxAnswerBytes),
		grpc.WithDisableServiceConfig(), grpc.WithNoProxy(), grpc.WithDisableRetry(),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: 2 * time.Second,
			Backoff: backoff.Config{BaseDelay: 200 * time.Millisecond, Multiplier: 2, Jitter: 0.2, MaxDelay: 3 * time.Second}}))...)
	if err != nil {
		return nil, fmt.Errorf("address of the resource reader: %w", err)
	}
	return conn, nil
}

// current returns the connection to use.
func (c *Client) current() *way {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.way
}

// renew replaces a connection by which nothing comes: it may lead nowhere, and TCP finds
// that out after a quarter of an hour only, or to a program whose place another has
// taken. What was asked by it may still be answered.
func (c *Client) renew(silent *way) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.way != silent {
		return
	}
	if w, err := newWay(c.options); err == nil {
		c.way = w
		time.AfterFunc(wire.AnswerLimit, func() { _ = silent.Close() }) // says only that it was closed before
	}
}

// ReadResources asks what a consumer may have. The error is in words that stay the same
// while the cause does, and holds none of the program's. It wraps wire.ErrUnreached or
// wire.ErrLate if the program has said nothing.
func (c *Client) ReadResources(ctx context.Context, request *wire.ReadResourcesRequest) (*wire.ReadResourcesResponse, error) {
	c.mu.Lock()
	delete(c.removed, request.GetCluster().GetId()) // it has come back
	c.mu.Unlock()
	w := c.current()
	before := w.came.Load()
	response, err := wire.NewResourceReaderClient(w).ReadResources(ctx, request)
	err = Plain(err)
	if errors.Is(err, wire.ErrLate) && w.came.Load() == before {
		c.renew(w)
	}
	return response, err
}

// Plain is an error of a call in words of ours: what a program says goes no further. It
// wraps wire.ErrUnreached or wire.ErrLate if that was nothing.
func Plain(err error) error {
	switch code := status.Code(err); code {
	case codes.OK:
		return nil
	case codes.Unavailable:
		if text := status.Convert(err).Message(); strings.Contains(text, "handshake failed") || strings.Contains(text, "tls: ") {
			return errTrust
		}
		return wire.ErrUnreached
	case codes.Canceled:
		return wire.ErrUnreached
	case codes.DeadlineExceeded:
		return wire.ErrLate
	case codes.Unauthenticated, codes.PermissionDenied:
		return fmt.Errorf("it refuses this cluster (%s)", code)
	case codes.Unimplemented:
		return fmt.Errorf("what listens there is no ResourceReader")
	case codes.ResourceExhausted:
		return fmt.Errorf("its answer is too large, or it has too much to do")
	default:
		return fmt.Errorf("it says %s", code)
	}
}

// Notify adds a listener for changes of answers.
func (c *Client) Notify(changed func(clusterID string)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notified = append(c.notified, changed)
}

// Remove tells the program that a consumer has gone, later, and again until it has heard
// that or ReadResources asks for that consumer. If too many wait, it is not told.
func (c *Client) Remove(clusterID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.removed) < maxRemovals {
		c.removed[clusterID] = true
	}
	select {
	case c.said <- struct{}{}:
	default:
	}
}

// Start listens for changes and says removals, until ctx ends; then it closes the
// connection.
func (c *Client) Start(ctx context.Context) error {
	var group errgroup.Group
	group.Go(func() error { c.follow(ctx); return nil })
	group.Go(func() error { c.sayRemovals(ctx); return nil })
	err := group.Wait()
	_ = c.Close()
	return err
}

// Close ends the connection.
func (c *Client) Close() error { return c.current().Close() }

// sayRemovals says each until it is heard, all of them again after a growing while.
func (c *Client) sayRemovals(ctx context.Context) {
	for wait := pause.BaseDelay; ; wait = min(2*wait, pause.MaxDelay) {
		var again <-chan time.Time
		if c.sayAll(ctx) {
			wait = pause.BaseDelay
		} else {
			again = time.After(wait/2 + rand.N(wait/2))
		}
		select {
		case <-ctx.Done():
			return
		case <-c.said:
		case <-again:
		}
	}
}

// sayAll says the removals, and reports whether all were heard. It ends with the first
// that is not.
func (c *Client) sayAll(ctx context.Context) bool {
	c.mu.Lock()
	ids := slices.Collect(maps.Keys(c.removed))
	c.mu.Unlock()
	for _, id := range ids {
		bounded, cancel := context.WithTimeout(ctx, wire.AnswerLimit)
		_, err := wire.NewResourceReaderClient(c.current()).RemoveCluster(bounded, &wire.RemoveClusterRequest{ClusterId: id})
		cancel()
		if err = Plain(err); errors.Is(err, wire.ErrLate) || errors.Is(err, wire.ErrUnreached) {
			return false
		}
		c.mu.Lock()
		delete(c.removed, id)
		c.mu.Unlock()
	}
	return true
}

// follow keeps a subscription. A program without one, or that is away, is tried again
// after a growing while.
func (c *Client) follow(ctx context.Context) {
	lost := false
	for wait := pause.BaseDelay; ; wait = min(2*wait, pause.MaxDelay) {
		heard, err := c.listen(ctx, lost)
		if heard {
			wait = pause.BaseDelay
		}
		lost = status.Code(err) != codes.Unimplemented
		timer := time.NewTimer(wait/2 + rand.N(wait/2))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// listen passes on what one subscription says, and reports whether it said anything and
// why it ended. If another was lost before it, anything may have changed since.
func (c *Client) listen(ctx context.Context, lost bool) (heard bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := wire.NewResourceReaderClient(c.current()).Subscribe(ctx, &wire.SubscribeRequest{})
	if err == nil && lost {
		c.tell("")
	}
	limit := rate.NewLimiter(noticeRate, noticeRate)
	for err == nil {
		var notice *wire.SubscribeResponse
		if notice, err = stream.Recv(); err != nil {
			break
		}
		heard = true
		c.tell(notice.GetClusterId())
		err = limit.Wait(ctx)
	}
	return heard, err
}

func (c *Client) tell(clusterID string) {
	if len(clusterID) > maxID {
		clusterID = ""
	}
	c.mu.Lock()
	notified := c.notified
	c.mu.Unlock()
	for _, changed := range notified {
		changed(clusterID)
	}
}
