// Package cli holds the commands of pelago, a file each. A command reads and writes
// API objects of the clusters its kubeconfig names, waits until what was asked for is
// so, and says why when it is not. It decides nothing that a controller decides, keeps
// no state of its own, and prints a token only where an invitation is what was asked for.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/pelago-dev/pelago/cli/screen"
)

// Env is all that commands have of the world.
type Env struct {
	// In, Out and Err are the streams. Results go to Out, all else to Err.
	In       io.Reader
	Out, Err io.Writer
	// Getenv reads the environment.
	Getenv func(string) string
	// Clock tells the time.
	Clock clock.WithTickerAndDelayedExecution
	// Rand is where tokens come from.
	Rand io.Reader
	// Version of this program.
	Version string
	// Connect opens the cluster that a kubeconfig names.
	Connect func(Access) (*Cluster, error)
	// Render makes the objects of an installation from chart values.
	Render func(values map[string]any) ([]*unstructured.Unstructured, error)

	// access is what --kubeconfig and --context say.
	access Access
}

// usageError is a mistake in the words of a command, not in the world.
type usageError struct{ error }

// Unwrap returns what is wrong.
func (e usageError) Unwrap() error { return e.error }

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// Main runs the program and returns its exit status: 0 done, 1 failed, 2 asked for
// in words that mean nothing.
func Main(e *Env, args []string) int {
	// Libraries log what reaches the user as an error anyway.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	klog.SetLogger(logr.Discard())
	log.SetLogger(logr.Discard())
	// Who reads no further, as head does, keeps no command from removing what it has made: it is told by an error.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := interruptible()
	defer stop()
	return Run(ctx, e, args)
}

// againAllowed is when the next signal ends the program at once: one wish to end it may come as several, as timeout(1)
// tells a program and then its whole group.
const againAllowed = time.Second

// interruptible is over when somebody wants the program to end, or its terminal goes: what a command
// has made for itself is removed then, unless somebody interrupts it again. Below nohup it goes on.
func interruptible() (context.Context, context.CancelFunc) {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	quiet := context.AfterFunc(ctx, func() {
		time.AfterFunc(againAllowed, func() { signal.Reset(os.Interrupt, syscall.SIGTERM) })
	})
	return ctx, func() { quiet(); stop() }
}

// Run is Main without the process around it.
func Run(ctx context.Context, e *Env, args []string) int {
	root := New(e)
	root.SetArgs(append([]string{}, args...)) // nil would mean those of the process
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = errors.New("interrupted; run the command again to go on")
	}
	if unread(err) {
		return 1
	}
	fmt.Fprintln(e.Err, e.paintErr().Text(screen.Red, "Error:"), screen.Clean(err.Error()))
	var mistake usageError
	if errors.As(err, &mistake) {
		return 2
	}
	return 1
}

// unread says that nobody reads what a command writes any more, and nothing else is wrong: who stopped reading knows.
func unread(err error) bool {
	var failed *fs.PathError
	return errors.As(err, &failed) && failed.Op == "write" && errors.Is(failed.Err, syscall.EPIPE) && fmt.Sprint(err) == failed.Error()
}

// New makes the command tree.
func New(e *Env) *cobra.Command {
	root := &cobra.Command{
		Use:   "pelago",
		Short: "Kubernetes clusters that use each other's resources",
		Long: `pelago installs Pelago into a Kubernetes cluster, peers it with others, offloads namespaces
to them and shows how it is. It works on the cluster that kubectl would: --kubeconfig,
KUBECONFIG, --context.

In each cluster: install. At the provider: generate peer-command, then cordon, drain and
uncordon. At the consumer: peer, offload, unoffload, unpeer. When something is wrong: status,
explain, test, capture.`,
		Example: `  pelago install
  pelago generate peer-command
  pelago offload namespace shop
  pelago status
  pelago explain pod web-0 -n shop
  pelago unoffload namespace shop
  pelago unpeer milan`,
		Version:               e.Version,
		SilenceUsage:          true,
		SilenceErrors:         true,
		DisableFlagsInUseLine: true,
	}
	root.SetIn(e.In)
	root.SetOut(e.Out)
	root.SetErr(e.Err)
	root.PersistentFlags().StringVar(&e.access.Kubeconfig, "kubeconfig", "", "kubeconfig of the cluster; KUBECONFIG or ~/.kube/config if not given")
	root.PersistentFlags().StringVar(&e.access.Context, "context", "", "context of the kubeconfig; its current one if not given")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usage("%w; see: %s --help", err, c.CommandPath())
	})
	root.AddCommand(
		newInstall(e), newUninstall(e), newGenerate(e), newPeer(e), newUnpeer(e),
		newOffload(e), newUnoffload(e), newCordon(e), newUncordon(e), newDrain(e), newStatus(e), newExplain(e), newTest(e), newCapture(e), newProbe(e), newVersion(e), newDocs(root),
	)
	for _, command := range root.Commands() {
		if command.HasSubCommands() {
			expectNoun(command)
		}
	}
	root.SuggestionsMinimumDistance = 2
	root.Args = unknownCommand
	root.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	return root
}

// command is what a verb does.
type command func(ctx context.Context, e *Env, args []string) error

// does plugs a verb into cobra.
func (e *Env) does(run command) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error { return run(c.Context(), e, args) }
}

func (e *Env) paint() screen.Paint    { return e.paintOn(e.Out) }
func (e *Env) paintErr() screen.Paint { return e.paintOn(e.Err) }

func (e *Env) paintOn(w io.Writer) screen.Paint {
	return screen.Paint(e.Getenv("NO_COLOR") == "" && screen.Terminal(w, e.Getenv))
}

// width is how many columns a table may take: no bound where a program reads it.
func (e *Env) width() int {
	if screen.Terminal(e.Out, e.Getenv) {
		return screen.Width
	}
	return 0
}

// progress begins to tell on standard error what is going on.
func (e *Env) progress() *screen.Progress {
	return screen.Start(e.Err, screen.Terminal(e.Err, e.Getenv), e.Clock)
}

// note writes a line beside the result.
func (e *Env) note(format string, args ...any) { fmt.Fprintf(e.Err, format+"\n", args...) }
