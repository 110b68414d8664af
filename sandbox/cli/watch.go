package cli

import (
	"context"
	"time"

	"github.com/pelago-dev/pelago/sandbox/cluster"
)

// whileAlive returns a context that ends when a process does.
func whileAlive(ctx context.Context, pid int) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for cluster.Alive(pid) {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
		cancel()
	}()
	return ctx, cancel
}
