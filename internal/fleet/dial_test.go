package fleet

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"
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
		after     time.Duration
	}{
		{"the first, and the other one is not asked", answers, answers, four.String(), 1, 0},
		{"the second, at once, if the first refuses", refuses, answers, six.String(), 2, 0},
		{"the second if the first says nothing", hangs, answers, six.String(), 2, dialNext},
		{"neither, while one says nothing", hangs, refuses, "", 2, dialNext},
		{"neither", refuses, refuses, "", 2, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			tried := make(chan string, 2)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			dial := func(ctx context.Context, _, address string) (net.Conn, error) {
				tried <- address
				does := c.four
				if address == six.String() {
					does = c.six
				}
				if err := does(ctx); err != nil {
					if c.want == "" && address == six.String() {
						cancel() // or who hangs would do so for ever
					}
					return nil, err
				}
				return &dialed{address: address, closed: make(chan struct{})}, nil
			}
			conn, err := DialAny(ctx, dial, "tcp", []netip.AddrPort{four, six})
			switch {
			case c.want == "" && err == nil:
				t.Errorf("%s: a connection comes of nothing", c.reason)
			case c.want != "" && (err != nil || conn.(*dialed).address != c.want):
				t.Errorf("%s: connected to %v, %v; want %s", c.reason, conn, err, c.want)
			case c.want != "":
				select {
				case <-conn.(*dialed).closed:
					t.Errorf("%s: what is returned is closed", c.reason)
				default:
				}
			}
			if took := time.Since(begin); len(tried) != c.tried || took != c.after {
				t.Errorf("%s: %d addresses were tried after %s, want %d after %s", c.reason, len(tried), took, c.tried, c.after)
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
	synctest.Test(t, func(t *testing.T) {
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
		synctest.Wait()
		select {
		case <-late.closed:
		default:
			t.Error("who answers late stays open")
		}
	})
}
