package reader

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/pelago-dev/pelago/api/wire"
)

// uneven is a program that takes its time for some.
type uneven struct {
	wire.UnimplementedResourceReaderServer
	name string // of itself, as an amount

	mu      sync.Mutex
	holds   map[string]chan struct{} // until it is closed, never if nil, by the id of the consumer
	removed []string
	calls   map[string]int
	stopped chan struct{}
}

// ReadResources knows no deadline, as a program that hangs.
func (u *uneven) ReadResources(_ context.Context, r *wire.ReadResourcesRequest) (*wire.ReadResourcesResponse, error) {
	u.mu.Lock()
	held, holds := u.holds[r.GetCluster().GetId()]
	u.calls[r.GetCluster().GetId()]++
	stopped := u.stopped
	u.mu.Unlock()
	if holds {
		select {
		case <-held:
		case <-stopped:
		}
	}
	return &wire.ReadResourcesResponse{Resources: map[string]string{"cpu": u.name}}, nil
}

func (u *uneven) RemoveCluster(_ context.Context, r *wire.RemoveClusterRequest) (*wire.RemoveClusterResponse, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.removed = append(u.removed, r.GetClusterId())
	return &wire.RemoveClusterResponse{}, nil
}

// heard are the removals it was told of, in order of the alphabet.
func (u *uneven) heard() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Sorted(slices.Values(u.removed))
}

// asked waits until it is asked about a consumer for the nth time.
func (u *uneven) asked(t *testing.T, id string, n int) {
	t.Helper()
	eventually(t, "it is asked about "+id, func() bool {
		u.mu.Lock()
		defer u.mu.Unlock()
		return u.calls[id] >= n
	})
}

// start begins the program at a socket; it ends with the test.
func (u *uneven) start(t *testing.T, path string) {
	t.Helper()
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	u.mu.Lock()
	u.calls, u.stopped = map[string]int{}, make(chan struct{})
	u.mu.Unlock()
	g := grpc.NewServer()
	wire.RegisterResourceReaderServer(g, u)
	go func() { _ = g.Serve(listener) }()
	t.Cleanup(func() {
		close(u.stopped)
		g.Stop()
	})
}

// about asks for one consumer, with the deadline that callers have, and says what answers.
func about(c *Client, id string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), wire.AnswerLimit)
	defer cancel()
	return asking(ctx, c, id)
}

func asking(ctx context.Context, c *Client, id string) (string, error) {
	r, err := c.ReadResources(ctx, &wire.ReadResourcesRequest{Cluster: &wire.Cluster{Id: id}})
	return r.GetResources()["cpu"], err
}

// deadline is a context whose time is over when it is closed.
type deadline chan struct{}

func (d deadline) Deadline() (at time.Time, known bool) { return at, false }
func (d deadline) Done() <-chan struct{}                { return d }
func (d deadline) Value(any) any                        { return nil }
func (d deadline) Err() error {
	select {
	case <-d:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// TestSlowForOne holds that a program which does not answer for one consumer loses
// nobody the connection: neither those who are answered beside that one, nor those who
// are not yet when it is given up.
func TestSlowForOne(t *testing.T) {
	u := &uneven{name: "1", holds: map[string]chan struct{}{"slow": nil}}
	path := filepath.Join(t.TempDir(), "s")
	u.start(t, path)
	c := newClient(t, Options{Address: "unix://" + path})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	answered := func(id string) {
		t.Helper()
		if _, err := asking(ctx, c, id); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	asked := 0
	// giveUp asks about slow, then others, then late, and gives slow up; late is answered after that. It
	// returns how long after, and how.
	giveUp := func(others ...string) (after time.Duration, late error) {
		asked++
		answers, over := make(chan struct{}), make(deadline)
		u.mu.Lock()
		u.holds["late"] = answers
		u.mu.Unlock()
		var calls sync.WaitGroup
		calls.Go(func() {
			defer close(answers)
			if _, err := asking(over, c, "slow"); err == nil || err.Error() != "it does not answer in time" {
				t.Errorf("slow: %v", err)
			}
		})
		u.asked(t, "slow", asked)
		for _, id := range others {
			answered(id)
		}
		calls.Go(func() { _, late = asking(ctx, c, "late") })
		u.asked(t, "late", asked)
		began := time.Now()
		close(over)
		calls.Wait()
		return time.Since(began), late
	}
	answered("quick")
	used := c.current()
	if _, late := giveUp("quick"); late != nil {
		t.Errorf("late: %v", late)
	}
	if c.current() != used {
		t.Error("a connection that answers was replaced")
	}
	// Nothing comes while this one waits, so that the connection is replaced; late, which
	// was asked by the old one, is answered nevertheless, if that takes no longer than an answer may.
	for range 5 {
		used = c.current()
		after, late := giveUp()
		if c.current() == used {
			t.Error("a connection by which nothing came is in use still")
		}
		if late == nil {
			return
		}
		if after < wire.AnswerLimit {
			t.Fatalf("late, by a connection that was replaced: %v", late)
		}
	}
	t.Errorf("no answer took less than %s", wire.AnswerLimit)
}

// TestAnotherTookItsPlace holds that a program which hangs and does not go away is asked
// no more once another listens in its place.
func TestAnotherTookItsPlace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	old, next := &uneven{name: "1", holds: map[string]chan struct{}{"rome": nil}}, &uneven{name: "2"}
	old.start(t, path)
	c := newClient(t, Options{Address: "unix://" + path})
	var said string
	if err := patiently(func() (err error) { said, err = about(c, "milan"); return err }); said != "1" {
		t.Fatal(said, err)
	}
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	next.start(t, path)
	eventually(t, "the next one answers", func() bool {
		said, _ := about(c, "rome")
		return said == "2"
	})
}

// TestRemovalIsSaidAgain holds that a program which is away hears of removals when it is
// back, but of none that is out of date.
func TestRemovalIsSaidAgain(t *testing.T) {
	u := &uneven{name: "1"}
	path := filepath.Join(t.TempDir(), "s")
	c := newClient(t, Options{Address: "unix://" + path})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Start(ctx) }()
	for _, id := range []string{"milan", "rome", "turin"} {
		c.Remove(id)
	}
	if _, err := about(c, "rome"); err == nil {
		t.Fatal("nobody is there, and answers")
	}
	u.start(t, path)
	eventually(t, "it has heard", func() bool { return len(u.heard()) >= 2 })
	c.Remove("venice")
	eventually(t, "it has heard the next one", func() bool { return slices.Contains(u.heard(), "venice") })
	if got := u.heard(); !slices.Equal(got, []string{"milan", "turin", "venice"}) {
		t.Errorf("heard %q", got)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
