// Package cli holds the commands of pelago-sandbox, a file each. A command
// reads its flags, calls one function of another package and prints; it decides
// nothing itself.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/klog/v2"

	"github.com/pelago-dev/pelago/sandbox/address"
	"github.com/pelago-dev/pelago/sandbox/build"
	"github.com/pelago-dev/pelago/sandbox/cluster"
	"github.com/pelago-dev/pelago/sandbox/machine"
)

// env is what every command works with.
type env struct {
	name     string
	version  string
	in       io.Reader
	out, err io.Writer
}

// exitCode is an error that only carries the exit status of a program that has
// spoken for itself.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// Main runs the program with the given arguments and returns its exit status.
func Main(version string, args []string, in io.Reader, out, stderr io.Writer) int {
	if len(args) > 0 && args[0] == machine.InitCommand {
		if err := machine.Init(args[1:]); err != nil {
			fmt.Fprintln(stderr, err)
			return 1
		}
		return 0
	}
	// The client library reports every broken stream; errors reach the user by
	// their return.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	if err := pastProxies(); err != nil {
		fmt.Fprintln(stderr, "Error:", err)
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), endings()...)
	defer stop()
	root := New(version, in, out, stderr)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var code exitCode
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	}
	fmt.Fprintln(stderr, "Error:", err)
	return 1
}

// pastProxies has this program, and what it starts, reach sandboxes as they are: a proxy for
// the world outside knows no way to them. What is fetched from there goes through it as before.
func pastProxies() error {
	own := cmp.Or(os.Getenv("NO_PROXY"), os.Getenv("no_proxy"))
	if own == "*" {
		return nil
	}
	all := address.Space4.String() + "," + address.Space6.String()
	if own != "" {
		all = own + "," + all
	}
	return errors.Join(os.Setenv("NO_PROXY", all), os.Setenv("no_proxy", all))
}

// endings are the signals after which the program tidies up and ends. The end of a terminal is
// one, unless who started the program, as nohup does, wants it to go on.
func endings() []os.Signal {
	all := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		all = append(all, syscall.SIGHUP)
	}
	return all
}

// New makes the command tree.
func New(version string, in io.Reader, out, stderr io.Writer) *cobra.Command {
	e := &env{version: version, in: in, out: out, err: stderr}
	root := &cobra.Command{
		Use:   "pelago-sandbox",
		Short: "Complete Kubernetes clusters on one plain Linux machine",
		Long: `pelago-sandbox starts several complete Kubernetes clusters on one Linux machine:
real API servers, schedulers, kubelets, containerd and kube-proxy, each node in
namespaces of its own, with an internet between the clusters that can be cut,
slowed and made lossy. It needs root, Debian and Go; no Docker, no registry. With
up --profile control-plane it needs no root: control planes and hollow nodes.`,
		Example: `  pelago-sandbox up --clusters rome,milan
  pelago-sandbox kubectl rome -- get nodes
  pelago-sandbox link cut rome milan
  pelago-sandbox down`,
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(stderr)
	root.PersistentFlags().StringVar(&e.name, "name", "default", "name of the sandbox, for several side by side")
	root.AddCommand(
		newUp(e), newDown(e), newStatus(e), newKubectl(e), newKubeconfig(e), newRun(e),
		newImage(e), newLink(e), newNode(e), newAPI(e), newVerify(e),
		newBuild(e), newAPIServer(e), newInternet(e), newHollow(e), newDocs(root),
	)
	for _, command := range root.Commands() {
		if command.HasSubCommands() {
			refuseUnknown(command)
		}
	}
	return root
}

// refuseUnknown makes an unknown word below a group of commands a mistake;
// cobra alone answers it with help and success.
func refuseUnknown(group *cobra.Command) {
	group.Args = cobra.NoArgs
	group.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	group.DisableFlagsInUseLine = true
}

// errNeedsRoot is why an ordinary user cannot have what he asked for.
var errNeedsRoot = errors.New("this needs root: namespaces, control groups and network devices are made; run it with sudo, or see up --profile control-plane")

// requireRoot refuses to go on as an ordinary user.
func requireRoot() error {
	if os.Geteuid() != 0 {
		return errNeedsRoot
	}
	return nil
}

// open finds the sandbox the command is about. What an ordinary user has needs no
// root; what he does not have may be root's.
func (e *env) open() (*cluster.Sandbox, error) {
	s, err := cluster.Open(e.name)
	if errors.Is(err, cluster.ErrNone) {
		err = cmp.Or(requireRoot(), err)
	}
	if err != nil {
		return nil, err
	}
	s.Cache, err = e.cache()
	return s, err
}

// openMachines opens the sandbox for what only those of machines have.
func (e *env) openMachines(what string) (*cluster.Sandbox, error) {
	s, err := e.open()
	if err == nil {
		err = s.NeedsMachines(what)
	}
	return s, err
}

// find opens the sandbox and one of its clusters.
func (e *env) find(name string) (*cluster.Sandbox, *cluster.Cluster, error) {
	s, err := e.open()
	if err != nil {
		return nil, nil, err
	}
	c, err := s.Cluster(name)
	return s, c, err
}

// findMachines is find for what only sandboxes of machines have.
func (e *env) findMachines(name, what string) (*cluster.Sandbox, *cluster.Cluster, error) {
	s, c, err := e.find(name)
	if err == nil {
		err = s.NeedsMachines(what)
	}
	return s, c, err
}

func (e *env) cache() (build.Cache, error) {
	dir, err := build.DefaultDir()
	return build.Cache{Dir: dir, Progress: func(line string) { fmt.Fprintln(e.err, line) }}, err
}

// colour says whether w is a terminal that may be written on in place.
func terminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd())) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// execute runs a program with the command's streams and hands on its exit
// status.
func (e *env) execute(ctx context.Context, environment []string, args ...string) error {
	command := exec.CommandContext(ctx, args[0], args[1:]...)
	command.Env = append(os.Environ(), environment...)
	command.Stdin, command.Stdout, command.Stderr = e.in, e.out, e.err
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	err := command.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exitCode(max(1, exit.ExitCode()))
	}
	return err
}
