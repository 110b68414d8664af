package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestInterruptible holds that a command gets to remove what it has made when its terminal goes, and
// goes on below nohup.
func TestInterruptible(t *testing.T) {
	defer signal.Reset(syscall.SIGHUP)
	for _, one := range []struct {
		reason string
		nohup  bool
	}{{"the terminal goes", false}, {"below nohup", true}} {
		hangups := make(chan os.Signal, 1) // as nobody else may take it, which ends this process
		if one.nohup {
			signal.Ignore(syscall.SIGHUP)
		} else {
			signal.Notify(hangups, syscall.SIGHUP)
		}
		ctx, stop := interruptible()
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		if one.nohup {
			if !signal.Ignored(syscall.SIGHUP) || ctx.Err() != nil {
				t.Errorf("%s: it ends", one.reason)
			}
			stop()
			continue
		}
		<-hangups
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Second):
			t.Errorf("%s: it does not end", one.reason)
		}
		stop()
	}
}

// later is a clock that is ahead.
type later struct{ clock.RealClock }

func (later) Now() time.Time { return time.Now().Add(2 * leftAfter) }

// TestLeftBehind holds that a test tells of namespaces that earlier ones have left, and of no others.
func TestLeftBehind(t *testing.T) {
	s := newStage(t, 0)
	s.install("rome", id1)
	s.withProvider()
	ours := map[string]string{v1alpha1.LabelManagedBy: managedBy}
	s.space(testPrefix+"old", ours)
	s.space(testPrefix+"by-somebody", nil)
	s.space("of-another-command", ours)
	run := func(clock clock.WithTickerAndDelayedExecution) string {
		t.Helper()
		return programWith(t.Context(), func(e *Env) {
			e.Clock = clock
			e.Connect = func(Access) (*Cluster, error) {
				c, err := Connect(s.access)
				if err == nil { // it is told before one more is made
					c.Client = interceptor.NewClient(c.Client, interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
						return errors.New("nothing is to be made")
					}})
				}
				return c, err
			}
		}, "test", "network").err
	}
	if said := run(clock.RealClock{}); !strings.Contains(said, "nothing is to be made") || strings.Contains(said, "Earlier tests") {
		t.Errorf("of a test that may run: %s", said)
	}
	if said := run(later{}); !strings.Contains(said, "; to remove them: kubectl delete namespace network-test-old\n") {
		t.Errorf("of one that was left: %s", said)
	}
}
