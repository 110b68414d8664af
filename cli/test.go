package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/reach"
	"github.com/pelago-dev/pelago/cli/screen"
)

// testNetwork is the command's flags.
type testNetwork struct {
	keep    bool
	output  string
	timeout time.Duration
	settle  time.Duration
}

// How long a way may usually take until it is good, since names and services take a moment to
// get about; how long it is left alone then; and how long the removal of the test's namespace
// may take.
const (
	settleUsual = 25 * time.Second
	settlePause = 2 * time.Second
	roundLimit  = 15 * time.Second
	removeLimit = 15 * time.Second
)

func newTest(e *Env) *cobra.Command {
	group := &cobra.Command{Use: "test", Short: "Try whether something works", Example: "  pelago test network"}
	o := &testNetwork{}
	c := &cobra.Command{
		Use:   "network [NAME]",
		Short: "Try every way between pods here and at the providers",
		Long: `Runs a pod here and one at each provider, in a namespace of its own, and has each call the
others in every way that applications do: by the pod's address, by its Service's address, by
names, by a port of a node. Each call carries 128 KiB there and back, so that a way that loses
large packets fails. Shows every way with what came of it, and for those that fail why and what
to do; it ends with 1 if one does. Ways that this cluster holds closed by its own choice, with
spec.reachability of the Peering, are not tried and no failure. All is removed at the end. NAME is one provider's peering.`,
		Example:           "  pelago test network\n  pelago test network milan -o json",
		Args:              atMost("NAME"),
		ValidArgsFunction: e.completePeerings,
		RunE:              e.does(o.run),
	}
	f := c.Flags()
	f.BoolVar(&o.keep, "keep", false, "leave the pods running, to look for yourself")
	durationFlag(f, &o.timeout, "timeout", waitDefault, "how long the pods may take to run")
	durationFlag(f, &o.settle, "settle", settleUsual, "how long a way may take until it is good")
	outputFlag(c, &o.output)
	group.AddCommand(c)
	return group
}

// newProbe is what the pods of the test run.
func newProbe(e *Env) *cobra.Command {
	probe := &cobra.Command{Use: "probe", Short: "Answer and make the calls of pelago test network", Example: "  pelago probe serve", Hidden: true}
	probe.AddCommand(
		&cobra.Command{Use: "serve", Short: "Answer calls", Example: "  pelago probe serve", Args: cobra.NoArgs,
			RunE: e.does(func(ctx context.Context, _ *Env, _ []string) error {
				return reach.Serve(ctx, net.JoinHostPort("", strconv.Itoa(reach.Port)))
			})},
		&cobra.Command{Use: "call HOST:PORT...", Short: "Make calls", Example: "  pelago probe call milan:8080", Args: cobra.MinimumNArgs(1),
			RunE: e.does(func(ctx context.Context, e *Env, args []string) error {
				return reach.Write(e.Out, reach.Call(ctx, args))
			})},
		&cobra.Command{Use: "watch HOST:PORT", Short: "Make calls again and again, and tell when that changes", Example: "  pelago probe watch milan:8080", Args: cobra.ExactArgs(1),
			RunE: e.does(func(ctx context.Context, e *Env, args []string) error {
				return reach.Watch(ctx, args[0], e.Out)
			})})
	return probe
}

func (o *testNetwork) run(ctx context.Context, e *Env, args []string) (err error) {
	c, err := e.open()
	if err != nil {
		return err
	}
	limit := o.timeout
	if limit > 0 { // else there is none
		limit += o.settle + roundLimit
	}
	ctx, cancel := bound(ctx, limit)
	defer cancel()
	progress := e.progress()
	defer progress.Stop()
	w, err := c.newTestbed(ctx, args)
	if err != nil {
		return err
	}
	progress.Step("Making a namespace with a pod here and one at %s", strings.Join(w.providers(), ", "))
	if o.keep {
		defer func() {
			e.note("The pods are in namespace %s; remove it with: kubectl delete namespace %[1]s", w.namespace)
		}()
	} else {
		defer func() { err = errors.Join(err, w.remove()) }()
	}
	if err := w.build(ctx); err != nil {
		return describe(err, c)
	}
	pods, err := w.wait(ctx, e, progress, o.timeout)
	if err != nil {
		return err
	}
	results, err := w.try(ctx, e, progress, o.settle, reach.Paths(w.namespace, headless, pods), pods)
	if err != nil {
		return err
	}
	progress.Stop()
	return o.print(e, results)
}

// try calls every way until it is good or the time to settle is over.
func (w *testbed) try(ctx context.Context, e *Env, progress *screen.Progress, settle time.Duration, paths []reach.Path, pods []reach.Pod) ([]reach.Result, error) {
	until := e.Clock.Now().Add(settle)
	bad := func(r reach.Result) bool { return !r.OK && r.Closed == "" }
	results := make([]reach.Result, len(paths))
	for i, p := range paths {
		results[i] = reach.Judge(p, reach.Answer{Err: "not called yet", At: reach.AtConnect}, pods)
	}
	w.choices(ctx, results)
	for {
		good := 0
		for _, r := range results {
			if !bad(r) {
				good++
			}
		}
		progress.Step("Calling: %d of %d ways are as they should be", good, len(results))
		err := w.round(ctx, results, pods)
		done := !slices.ContainsFunc(results, bad)
		switch {
		case done || ctx.Err() == nil && e.Clock.Now().After(until):
			w.doubts(results)
			return results, nil
		case ctx.Err() != nil:
			return nil, ended(context.Cause(ctx), "trying the ways", settle, "", "run it again")
		case err != nil && permanent(err):
			return nil, describe(err, w.cluster)
		}
		select {
		case <-ctx.Done():
		case <-e.Clock.After(settlePause):
		}
	}
}

// round calls all ways that are not good yet, from each pod at once.
func (w *testbed) round(ctx context.Context, results []reach.Result, pods []reach.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, roundLimit)
	defer cancel()
	var group errgroup.Group // what one pod cannot do keeps no other from calling
	for from, places := range left(results) {
		command := []string{"/pelago", "probe", "call"}
		for _, i := range places {
			command = append(command, net.JoinHostPort(results[i].Host, strconv.Itoa(int(results[i].Port))))
		}
		group.Go(func() error {
			out, err := w.cluster.Exec(ctx, w.namespace, from, command)
			var answers []reach.Answer
			if err == nil {
				answers, err = reach.Read(out, len(places))
			}
			for n, i := range places {
				a := reach.Answer{Err: fmt.Sprintf("%v", err), At: reach.AtConnect}
				if err == nil {
					a = answers[n]
				}
				results[i] = reach.Judge(results[i].Path, a, pods)
			}
			return err
		})
	}
	return group.Wait()
}

// left are the places of the ways that are not good yet and can be called, by the pod that calls.
func left(results []reach.Result) map[string][]int {
	all := map[string][]int{}
	for i, r := range results {
		if !r.OK && r.Closed == "" && r.Host != "" {
			all[r.From] = append(all[r.From], i)
		}
	}
	return all
}

// print shows the ways, and fails if one is not good.
func (o *testNetwork) print(e *Env, results []reach.Result) error {
	var bad []reach.Result
	for _, r := range results {
		if !r.OK && r.Closed == "" {
			bad = append(bad, r)
		}
	}
	if o.output != "" {
		if err := screen.Document(e.Out, o.output, map[string]any{"paths": results}); err != nil {
			return err
		}
	} else if err := printPaths(e.Out, e.paint(), e.width(), results); err != nil {
		return err
	}
	if len(bad) == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d ways fail; %s", len(bad), len(results), bad[0].Remedy)
}

func printPaths(w io.Writer, paint screen.Paint, width int, results []reach.Result) error {
	var rows [][]screen.Cell
	for _, r := range results {
		row := screen.Row(r.From, r.To, r.By, "ok", (time.Duration(r.Micros) * time.Microsecond).Round(10*time.Microsecond).String(), r.Client)
		row[3].Colour = screen.Green
		if !r.OK {
			row[3] = screen.Cell{Text: "fails", Colour: screen.Red}
			row[4].Text = "-"
		}
		if r.Closed != "" {
			row[3] = screen.Cell{Text: "closed", Colour: screen.Yellow}
		}
		rows = append(rows, row)
	}
	if err := screen.Table(w, paint, width, []string{"FROM", "TO", "BY", "RESULT", "CONNECT", "SEEN AS"}, rows); err != nil {
		return err
	}
	told := map[string]bool{}
	for _, r := range results {
		if r.Closed != "" {
			if !told[r.Closed] {
				fmt.Fprint(w, "\n", screen.Wrap(r.Closed+". "+r.Remedy, "  ", screen.Width))
			}
			told[r.Closed] = true
		} else if !r.OK {
			fmt.Fprint(w, "\n", screen.Wrap(fmt.Sprintf("%s to %s by %s: %s. %s", r.From, r.To, r.By, r.Why, r.Remedy), "  ", screen.Width))
		}
	}
	return nil
}

// ends are the pods as reach knows them.
func (w *testbed) ends(ctx context.Context) ([]reach.Pod, error) {
	var pods corev1.PodList
	var services corev1.ServiceList
	if err := errors.Join(w.cluster.Client.List(ctx, &pods, client.InNamespace(w.namespace)), w.cluster.Client.List(ctx, &services, client.InNamespace(w.namespace))); err != nil {
		return nil, fmt.Errorf("reading the test's pods: %w", err)
	}
	var ends []reach.Pod
	for i := range pods.Items {
		p := &pods.Items[i]
		end := reach.Pod{Name: p.Name, Cluster: w.own, Home: w.at[p.Name] == "", Address: p.Status.PodIP, NodeAddress: w.nodeAddress, Seen: map[string]string{}}
		if !end.Home {
			end.Cluster = w.at[p.Name]
		}
		for _, s := range services.Items {
			if s.Name == p.Name && len(s.Spec.Ports) > 0 {
				end.ServiceAddress, end.NodePort = s.Spec.ClusterIP, s.Spec.Ports[0].NodePort
			}
		}
		for _, peering := range w.providers() {
			if peering != end.Cluster || end.Home {
				end.Seen[peering] = w.seenBy(ctx, peering, p.Status.PodIP)
			}
		}
		ends = append(ends, end)
	}
	slices.SortFunc(ends, func(a, b reach.Pod) int { return strings.Compare(a.Name, b.Name) })
	return ends, nil
}

// seenBy is the address by which pods at a provider see one that has an address here, "" if it
// has none.
func (w *testbed) seenBy(ctx context.Context, peering, address string) string {
	real, err := netip.ParseAddr(address)
	if err != nil {
		return ""
	}
	var n v1alpha1.NetworkConfig
	if err := w.cluster.Client.Get(ctx, client.ObjectKey{Namespace: v1alpha1.PeeringNamespace(peering), Name: v1alpha1.NetworkConsumer}, &n); err != nil {
		return ""
	}
	if a, ok := v1alpha1.ViewOf(n.Status.Views, real); ok {
		return a.String()
	}
	return ""
}
