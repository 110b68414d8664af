// Package conformance checks whether a program keeps the contract of a service in
// api/wire, against the program itself, over a connection that its author makes. It
// asks as pelago-manager does, and as it might on a bad day; it needs no cluster.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/pelago-dev/pelago/api/wire"
)

// checkLimit bounds one check.
const checkLimit = 15 * time.Second

// crowd is how many consumers are asked about at once.
const crowd = 32

// Check is one thing that a program has to do.
type Check struct {
	// Name says what in a sentence.
	Name string
	run  func(ctx context.Context, p program) error
}

// program is the one that is checked.
type program struct{ wire.ResourceReaderClient }

// Checks are all of them for a ResourceReader, in an order that makes sense.
var Checks = []Check{
	{"it answers a question within a second, with resources that can be read", plain},
	{"a consumer that uses nothing where nothing is free is a question like others", nothing},
	{"a consumer that it does not know is no error", stranger},
	{"a question without a consumer is answered or refused, not a crash", nobody},
	{"resources that it does not know, as many as there can be, do not confuse it", many},
	{"many consumers are asked about at once, each answer within a second", several},
	{"a question that is given up leaves it well", givenUp},
	{"a consumer can be removed, again, without ever having been there, and come back", removal},
	{"subscriptions stay open, two at once, or are not implemented", subscriptions},
}

// Run makes one check. What it measures begins when the connection stands: a program
// that has only just been started may not listen yet.
func (c Check) Run(ctx context.Context, conn grpc.ClientConnInterface) error {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	if conn, can := conn.(*grpc.ClientConn); can {
		if err := reach(ctx, conn); err != nil {
			return err
		}
	}
	return c.run(ctx, program{wire.NewResourceReaderClient(conn)})
}

// reach waits until there is a connection.
func reach(ctx context.Context, conn *grpc.ClientConn) error {
	conn.Connect()
	for state := conn.GetState(); state != connectivity.Ready; state = conn.GetState() {
		if !conn.WaitForStateChange(ctx, state) {
			return fmt.Errorf("it cannot be connected to: %s at %s", state, conn.Target())
		}
		conn.Connect()
	}
	return nil
}

// Test makes all checks as subtests. One whose answer is late is made again, twice at most: a machine that
// is busy with other tests may be late now and then, and a program that is too slow is so each time.
func Test(t *testing.T, conn grpc.ClientConnInterface) {
	for _, c := range Checks {
		t.Run(c.Name, func(t *testing.T) {
			err := c.Run(t.Context(), conn)
			for try := 1; try < 3 && status.Code(err) == codes.DeadlineExceeded; try++ {
				err = c.Run(t.Context(), conn)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// id is a cluster id that no cluster has.
func id(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

// question is an ordinary one.
func question(n int) *wire.ReadResourcesRequest {
	return &wire.ReadResourcesRequest{
		Cluster: &wire.Cluster{Id: id(n), Tenant: "conformance-" + strconv.Itoa(n), Labels: map[string]string{"example.com/plan": "small"}},
		Used:    map[string]string{"cpu": "1500m", "memory": "2Gi", "pods": "3"},
		Free:    map[string]string{"cpu": "6", "memory": "24Gi", "pods": "107", "ephemeral-storage": "100Gi"},
	}
}

// ask asks one question and reads the answer.
func (p program) ask(ctx context.Context, q *wire.ReadResourcesRequest) error {
	ctx, cancel := context.WithTimeout(ctx, wire.AnswerLimit)
	defer cancel()
	response, err := p.ReadResources(ctx, q, grpc.MaxCallRecvMsgSize(wire.MaxAnswerBytes))
	if err != nil {
		return fmt.Errorf("ReadResources: %w", err)
	}
	if _, err := wire.Amounts(response.GetResources()); err != nil {
		return fmt.Errorf("ReadResources: %w", err)
	}
	return nil
}

func plain(ctx context.Context, p program) error {
	return errors.Join(p.ask(ctx, question(1)), p.ask(ctx, question(1)))
}

func nothing(ctx context.Context, p program) error {
	q := question(1)
	q.Used, q.Free = nil, map[string]string{"cpu": "0", "memory": "0", "pods": "0"}
	return p.ask(ctx, q)
}

func stranger(ctx context.Context, p program) error {
	q := question(2)
	q.Cluster.Tenant, q.Cluster.Labels = "nobody-knows-this-one", nil
	return p.ask(ctx, q)
}

// nobody never happens; who writes in a language where it ends the program wants to know.
func nobody(ctx context.Context, p program) error {
	bounded, cancel := context.WithTimeout(ctx, wire.AnswerLimit)
	defer cancel()
	_, err := p.ReadResources(bounded, &wire.ReadResourcesRequest{})
	if code := status.Code(err); code == codes.Unavailable || code == codes.DeadlineExceeded {
		return fmt.Errorf("ReadResources: %w", err)
	}
	return p.ask(ctx, question(1))
}

func many(ctx context.Context, p program) error {
	q := question(1)
	for i := range wire.MaxResources - len(q.Free) {
		q.Free[fmt.Sprintf("example.com/thing-%d", i)] = "1152921504606846975"
	}
	return p.ask(ctx, q)
}

func several(ctx context.Context, p program) error {
	var all sync.WaitGroup
	found := make([]error, crowd)
	for i := range crowd {
		all.Go(func() { found[i] = p.ask(ctx, question(100+i)) })
	}
	all.Wait()
	return errors.Join(found...)
}

func givenUp(ctx context.Context, p program) error {
	for range 10 {
		gone, cancel := context.WithTimeout(ctx, time.Millisecond)
		_, _ = p.ReadResources(gone, question(1)) // whatever comes of it
		cancel()
	}
	return p.ask(ctx, question(1))
}

func removal(ctx context.Context, p program) error {
	for _, n := range []int{1, 1, 999} {
		bounded, cancel := context.WithTimeout(ctx, wire.AnswerLimit)
		_, err := p.RemoveCluster(bounded, &wire.RemoveClusterRequest{ClusterId: id(n)})
		cancel()
		if err != nil && status.Code(err) != codes.Unimplemented {
			return fmt.Errorf("RemoveCluster: %w", err)
		}
	}
	return p.ask(ctx, question(1))
}

// listenFor is how long a subscription has to stay open to count.
const listenFor = 1500 * time.Millisecond

func subscriptions(ctx context.Context, p program) error {
	// No deadline: the program would hear of it, and might end a moment before it.
	bounded, cancel := context.WithCancel(ctx)
	defer cancel()
	defer time.AfterFunc(listenFor, cancel).Stop()
	found := make([]error, 2)
	var both sync.WaitGroup
	for i := range found {
		both.Go(func() { found[i] = p.listen(bounded) })
	}
	both.Wait()
	return errors.Join(append(found, p.ask(ctx, question(1)))...)
}

// listen hears one subscription until the time is over.
func (p program) listen(ctx context.Context) error {
	stream, err := p.Subscribe(ctx, &wire.SubscribeRequest{})
	for err == nil {
		_, err = stream.Recv()
	}
	switch {
	case ctx.Err() != nil, status.Code(err) == codes.Unimplemented:
		return nil
	}
	return fmt.Errorf("the subscription ended by itself: %w", err)
}
