package reach

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// The pace of Watch, and how long a request of it may take.
const (
	watchPace  = 50 * time.Millisecond
	watchLimit = time.Second
)

// Change is what Watch tells: how it is from now on.
type Change struct {
	At time.Time `json:"at"`
	// What is the kind: requests, each over a connection of its own, or the one connection
	// that is kept.
	What string `json:"what"`
	OK   bool   `json:"ok"`
	Err  string `json:"error,omitempty"`
	// Count is how many requests have been answered since the beginning, Lost how many were not.
	Count int `json:"count"`
	Lost  int `json:"lost"`
	// Gap is the longest time between two answers since what was told before, in milliseconds.
	Gap int64 `json:"gap"`
}

// Kinds of changes.
const (
	// Requests are small and each over a connection of its own.
	Requests = "requests"
	// Connection is one that is kept and speaks all the time; it is not made again.
	Connection = "connection"
)

// Watch calls HOST:PORT again and again until the context ends, or nobody reads any more, whatever became of the calls
// before, and writes a Change, a line of JSON, whenever one goes wrong, or well after one that did
// not, and every second. It also keeps one connection, on which silence is no failure: every second
// in which it speaks it says so.
func Watch(ctx context.Context, target string, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := &watcher{out: out, unread: cancel}
	var both sync.WaitGroup
	both.Go(func() { w.requests(ctx, target) })
	both.Go(func() { w.connection(ctx, target) })
	both.Wait()
	return w.err
}

type watcher struct {
	mu  sync.Mutex
	out io.Writer
	err error
	// unread ends the calls.
	unread func()
}

func (w *watcher) tell(c Change) {
	c.At = time.Now().UTC()
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := json.NewEncoder(w.out).Encode(c); err != nil && w.err == nil {
		w.err = fmt.Errorf("telling what changed: %w", err)
		w.unread()
	}
}

func (w *watcher) requests(ctx context.Context, target string) {
	tick := time.NewTicker(watchPace)
	defer tick.Stop()
	var running sync.WaitGroup
	defer running.Wait()
	course := &course{tell: w.tell}
	for ctx.Err() == nil {
		running.Go(func() {
			began := time.Now()
			limited, cancel := context.WithTimeout(ctx, watchLimit)
			defer cancel()
			err := small(limited, target)
			if ctx.Err() == nil {
				course.ended(began, time.Now(), err)
			}
		})
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// course is how requests went that overlap.
type course struct {
	tell func(Change)

	mu             sync.Mutex
	well           bool
	told, answered time.Time
	gap            time.Duration
	count, lost    int
}

// ended takes the end of a request. One that failed says how things are only if none that
// began with it or later was answered.
func (c *course) ended(began, now time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ok := c.well
	if err == nil {
		if c.count > 0 {
			c.gap = max(c.gap, now.Sub(c.answered))
		}
		c.count, c.answered, ok = c.count+1, now, true
	} else {
		c.lost++
		ok = ok && c.answered.After(began)
	}
	if ok == c.well && err == nil && now.Sub(c.told) < time.Second {
		return
	}
	change := Change{What: Requests, OK: ok, Count: c.count, Lost: c.lost, Gap: c.gap.Milliseconds()}
	if err != nil {
		change.Err = plain(err)
	}
	c.well, c.told, c.gap = ok, now, 0
	c.tell(change)
}

// small makes a request over a connection of its own.
func small(ctx context.Context, target string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", target)
	if err != nil {
		return err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	return exchange(conn, bufio.NewReader(conn), target)
}

func exchange(conn io.Writer, in *bufio.Reader, target string) error {
	if _, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", target); err != nil {
		return err
	}
	r, err := http.ReadResponse(in, nil)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	_, err = io.Copy(io.Discard, r.Body)
	return err
}

// connection speaks on one connection until it breaks.
func (w *watcher) connection(ctx context.Context, target string) {
	var conn net.Conn
	for conn == nil {
		var err error
		if conn, err = (&net.Dialer{Timeout: watchLimit}).DialContext(ctx, "tcp", target); err != nil && !pause(ctx, watchPace) {
			return
		}
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	in := bufio.NewReader(conn)
	var told time.Time
	for count := 1; ; count++ {
		if err := exchange(conn, in, target); err != nil {
			if ctx.Err() == nil {
				w.tell(Change{What: Connection, Err: plain(err), Count: count})
			}
			return
		}
		if now := time.Now(); now.Sub(told) >= time.Second {
			w.tell(Change{What: Connection, OK: true, Count: count})
			told = now
		}
		if !pause(ctx, 4*watchPace) {
			return
		}
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
