// Package reader is the connection to the resource reader of a cluster's owner: the
// program that decides within what is free, api/wire/resource_reader.proto. It connects,
// asks, listens for changes and says what is wrong in words; what follows from an
// answer, or from none, is for peering/offer.
package reader

import (
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
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

// pause is how long to wait before subscribing again; half of it is by chance.
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
	removed chan string

	mu       sync.Mutex
	conn     *grpc.ClientConn
	notified []func(string)
}

// New makes a client, and says what is wrong with the options; it connects when it is
// used first. Whoever makes it runs Start, or calls Close.
func New(o Options) (*Client, error) {
	conn, err := Dial(o)
	if err != nil {
		return nil, err
	}
	return &Client{options: o, conn: conn, removed: make(chan string, maxRemovals)}, nil
}

// Dial makes a connection that is not tried yet. What is wrong with the files shows when
// it is used: they may be put right meanwhile.
func Dial(o Options) (*grpc.ClientConn, error) {
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
	conn, err := grpc.NewClient(at.target,
		grpc.WithTransportCredentials(transport), grpc.WithPerRPCCredentials(bearer{folder(o.Folder)}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(wire.MaxAnswerBytes)), grpc.WithMaxHeaderListSize(wire.MaxAnswerBytes),
		grpc.WithDisableServiceConfig(), grpc.WithNoProxy(), grpc.WithDisableRetry(),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: 2 * time.Second,
			Backoff: backoff.Config{BaseDelay: 200 * time.Millisecond, Multiplier: 2, Jitter: 0.2, MaxDelay: 3 * time.Second}}))
	if err != nil {
		return nil, fmt.Errorf("address of the resource reader: %w", err)
	}
	return conn, nil
}

// current returns the connection to use.
func (c *Client) current() *grpc.ClientConn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conn
}

// renew replaces a connection that does not answer: it may lead nowhere, and TCP finds
// that out after a quarter of an hour only.
func (c *Client) renew(silent *grpc.ClientConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != silent {
		return
	}
	if conn, err := Dial(c.options); err == nil {
		c.conn = conn
		_ = silent.Close() // says only that it was closed before
	}
}

// ReadResources asks what a consumer may have. The error is in words that stay the same
// while the cause does, and holds none of the program's.
func (c *Client) ReadResources(ctx context.Context, request *wire.ReadResourcesRequest) (*wire.ReadResourcesResponse, error) {
	conn := c.current()
	response, err := wire.NewResourceReaderClient(conn).ReadResources(ctx, request)
	if err != nil && ctx.Err() == context.DeadlineExceeded {
		c.renew(conn)
	}
	return response, Plain(err)
}

// Plain is an error of a call in words of ours. It wraps nothing: what a program says
// goes no further.
func Plain(err error) error {
	switch code := status.Code(err); code {
	case codes.OK:
		return nil
	case codes.Unavailable:
		if text := status.Convert(err).Message(); strings.Contains(text, "handshake failed") || strings.Contains(text, "tls: ") {
			return fmt.Errorf("one side does not trust the other: see ca.crt, tls.crt and tls.key of its Secret")
		}
		return fmt.Errorf("it cannot be reached")
	case codes.Canceled:
		return fmt.Errorf("it cannot be reached")
	case codes.DeadlineExceeded:
		return fmt.Errorf("it does not answer in time")
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

// Remove tells the program that a consumer has gone, once and later; if it cannot be
// told, or too many wait, it is not.
func (c *Client) Remove(clusterID string) {
	select {
	case c.removed <- clusterID:
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

func (c *Client) sayRemovals(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case id := <-c.removed:
			bounded, cancel := context.WithTimeout(ctx, wire.AnswerLimit)
			_, _ = wire.NewResourceReaderClient(c.current()).RemoveCluster(bounded, &wire.RemoveClusterRequest{ClusterId: id})
			cancel()
		}
	}
}

// follow keeps a subscription. A program without one, or that is away, is tried again
// after a growing while.
func (c *Client) follow(ctx context.Context) {
	for wait := pause.BaseDelay; ; wait = min(2*wait, pause.MaxDelay) {
		if c.listen(ctx) {
			wait = pause.BaseDelay
		}
		timer := time.NewTimer(wait/2 + rand.N(wait/2))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// listen passes on what one subscription says, and reports whether it said anything.
func (c *Client) listen(ctx context.Context) (heard bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := wire.NewResourceReaderClient(c.current()).Subscribe(ctx, &wire.SubscribeRequest{})
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
	return heard
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
