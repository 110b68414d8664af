package fleet

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"
)

// DialFunc opens a connection.
type DialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// dialNext is how long one address is waited for before the next one is tried as well (RFC 8305).
const dialNext = 250 * time.Millisecond

// DialAny opens a connection to one of several addresses of the same server: each is tried once
// the one before has failed or a moment has passed, and the first that answers is it. With none that
// does it fails as all of them have.
func DialAny(ctx context.Context, dial DialFunc, network string, at []netip.AddrPort) (net.Conn, error) {
	if len(at) == 1 {
		return dial(ctx, network, at[0].String())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		conn net.Conn
		err  error
	}
	results := make(chan result)
	begin := func(to netip.AddrPort) {
		conn, err := dial(ctx, network, to.String())
		select {
		case results <- result{conn, err}:
		case <-ctx.Done(): // another one was first
			if err == nil {
				_ = conn.Close()
			}
		}
	}
	var failed []error
	next := time.NewTimer(0)
	defer next.Stop()
	for begun := 0; ; {
		select {
		case r := <-results:
			if r.err == nil {
				return r.conn, nil
			}
			if failed = append(failed, r.err); len(failed) == len(at) {
				return nil, errors.Join(failed...)
			}
			next.Reset(0)
		case <-next.C:
			if begun < len(at) {
				go begin(at[begun])
				begun++
				next.Reset(dialNext)
			}
		case <-ctx.Done():
			return nil, errors.Join(append(failed, ctx.Err())...)
		}
	}
}
