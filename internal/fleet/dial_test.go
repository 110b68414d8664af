package fleet

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
)

// dialed is a connection of a test that knows whether it was closed.
type dialed struct {
	net.Conn
	address string
	closed  chan struct{}
}

func (d *dialed) Close() error { close(d.closed); return nil }

// TestDialAny holds that of several addresses the first that answers is taken, whatever the others do,
// that what answers later is closed, and that where none does each is told of.
func TestDialAny(t *testing.T) {
	four, six := netip.MustParseAddrPort("10.255.255.254:443"), netip.MustParseAddrPort("[fd43::ff]:443")
	answers := func(context.Context) error { return nil }
	refuses := func(context.Context) error { return errors.New("refused") }
	hangs := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for _, c := range []struct {
		reason    string
		four, six func(context.Context) error
		want      string
		tried     int
	}{
		{"the first, and the other one is not asked", answers, answers, four.String(), 1},
		{"the second, at once, if the first refuses", refuses, answers, six.String(), 2},
		{"the second if the first says nothing", hangs, answers, six.String(), 2},
		{"neither, while one says nothing", hangs, refuses, "", 2},
		{"neither", refuses, refuses, "", 2},
	} {
		t.Run(c.reason, func(t *testing.T) {
			tried := make(chan string, 2)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			dial := func(ctx context.Context, _, address string) (net.Conn, error) {
				tried <- address
				does := c.four
				if address == six.String() {
					does = c.six
				}
				if err := does(ctx); err != nil {
					if c.want == "" {
						cancel() // or who hangs would do so for ever
					}
					return nil, err
				}
				return &dialed{address: address, closed: make(chan struct{})}, nil
			}
			conn, err := DialAny(ctx, dial, "tcp", []netip.AddrPort{four, six})
			switch {
			case c.want == "" && err == nil:
				t.Error("a connection comes of nothing")
			case c.want != "" && (err != nil || conn.(*dialed).address != c.want):
				t.Errorf("connected to %v, %v; want %s", conn, err, c.want)
			case c.want != "":
				select {
				case <-conn.(*dialed).closed:
					t.Error("what is returned is closed")
				default:
				}
			}
			if c.want != "" && len(tried) != c.tried {
				t.Errorf("%d addresses were tried, want %d", len(tried), c.tried)
			}
		})
	}
	// Both are told of.
	_, err := DialAny(t.Context(), func(_ context.Context, _, address string) (net.Conn, error) {
		return nil, errors.New("refused by " + address)
	}, "tcp", []netip.AddrPort{four, six})
	if err == nil || !strings.Contains(err.Error(), four.String()) || !strings.Contains(err.Error(), six.String()) {
		t.Errorf("of two that fail is said %v", err)
	}
	// Who answers when another one has been taken is closed.
	late := &dialed{closed: make(chan struct{})}
	if _, err := DialAny(t.Context(), func(ctx context.Context, _, address string) (net.Conn, error) {
		if address == four.String() {
			<-ctx.Done() // the other one has been taken
			return late, nil
		}
		return &dialed{closed: make(chan struct{})}, nil
	}, "tcp", []netip.AddrPort{four, six}); err != nil {
		t.Fatal(err)
	}
	<-late.closed
}
