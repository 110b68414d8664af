package cli

import (
	"cmp"
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
	with    []string
	image   string
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
	roundLimit  = 30 * time.Second
	removeLimit = 15 * time.Second
)

// What is tried only if it is asked for.
const (
	withBalancer = "load-balancer"
	withAPI      = "api"
)

var extras = []string{withBalancer, withAPI}

func newTest(e *Env) *cobra.Command {
	group := &cobra.Command{Use: "test", Short: "Try whether something works", Example: "  pelago test network"}
	o := &testNetwork{}
	c := &cobra.Command{
		Use:   "network [NAME]",
		Short: "Try every way between pods here and at the providers",
		Long: `Runs a pod here and one at each provider, in a namespace of its own, and has each call the
others in every way that applications do: by the pod's address, by its Service's address, by
names, by a port of a node; over TCP, where each call carries 128 KiB there and back, so that a
way that loses large packets fails, and over UDP; and by each family of addresses that pods of
both clusters have. At a provider the name of a Service leads to the address that it has there.
Shows every way with what came of it, and for those that fail why and what to do; it ends with 1
if one does. Ways that this cluster holds closed by its own choice, with spec.reachability of the
Peering, are not tried and no failure. GATEWAY says whether the pod here runs on the node that has
the tunnel, "on", or on another one, "off", from which packets go to that first: where only one of
both works, the way between this cluster's nodes is to be looked at. Where a provider's pod runs is
not known here; the same test there says it. Not tried either, and said so, are two that take more than
pods, unless --with names them: load-balancer has this cluster give each pod a load balancer, which
may cost something and be called by others meanwhile; api has pods at providers call home's API
server, for which they get a token of an account without rights. All is removed at the end. The pods
have the image that Pelago has here, without its pull secrets, which would go to providers: where
these are needed, --image names a place of that image from which every node may pull. NAME is one
provider's peering.`,
		Example:           "  pelago test network\n  pelago test network milan -o json\n  pelago test network --with load-balancer,api",
		Args:              atMost("NAME"),
		ValidArgsFunction: e.completePeerings,
		RunE:              e.does(o.run),
	}
	f := c.Flags()
	f.BoolVar(&o.keep, "keep", false, "leave the pods running, to look for yourself")
	f.StringSliceVar(&o.with, "with", nil, "ways to try as well: "+strings.Join(extras, ", "))
	completes(c, "with", cobra.FixedCompletions(extras, cobra.ShellCompDirectiveNoFileComp))
	f.StringVar(&o.image, "image", "", "the pods' image, with the program pelago; that of Pelago here if not given")
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
		&cobra.Command{Use: "call [NETWORK/]HOST:PORT...", Short: "Make calls", Example: "  pelago probe call milan:8080 udp6/milan:8080", Args: cobra.MinimumNArgs(1),
			RunE: e.does(func(ctx context.Context, e *Env, args []string) error {
				return reach.Write(e.Out, reach.Call(ctx, args))
			})},
		&cobra.Command{Use: "watch HOST:PORT", Short: "Make calls again and again, and tell when that changes", Example: "  pelago probe watch milan:8080", Args: cobra.ExactArgs(1),
			RunE: e.does(func(ctx context.Context, e *Env, args []string) error {
				return reach.Watch(ctx, args[0], e.Out)
			})})
	return probe
}

func (o *testNetwork) run(ctx context.Context, e *Env, args []string) error {
	results, err := o.results(ctx, e, args)
	if results != nil { // though its namespace may have stayed
		err = errors.Join(o.print(e, results), err)
	}
	return err
}

// results tries all ways. What it makes for that is removed when it returns, before anything is shown: nobody may read that.
func (o *testNetwork) results(ctx context.Context, e *Env, args []string) (results []reach.Result, err error) {
	for _, word := range o.with {
		if !slices.Contains(extras, word) {
			return nil, usage("--with %q is unknown; use %s", word, strings.Join(extras, ", "))
		}
	}
	c, err := e.open()
	if err != nil {
		return nil, err
	}
	limit := o.timeout
	if limit > 0 { // else there is none
		limit += 2*o.settle + roundLimit
	}
	ctx, cancel := bound(ctx, limit)
	defer cancel()
	progress := e.progress()
	defer progress.Stop()
	w, err := c.newTestbed(ctx, args)
	if err != nil {
		return nil, err
	}
	if o.image != "" {
		w.image.Image = o.image
	}
	w.balance, w.api = slices.Contains(o.with, withBalancer), slices.Contains(o.with, withAPI)
	behind, err := c.leftBehind(ctx, e.Clock.Now())
	if err != nil {
		return nil, err
	}
	if len(behind) > 0 {
		progress.Note("Earlier tests have left pods, and perhaps load balancers, behind; to remove them: kubectl delete namespace %s", strings.Join(behind, " "))
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
		return nil, describe(err, c)
	}
	if err := w.wait(ctx, e, progress, o.timeout); err != nil {
		return nil, err
	}
	w.balanced(ctx, e, progress, o.settle)
	pods, err := w.ends(ctx, w.gateways(ctx, e.Clock.Now()))
	if err != nil {
		return nil, describe(err, c)
	}
	domain, err := w.domain(ctx)
	if err != nil {
		return nil, describe(err, c)
	}
	return w.try(ctx, e, progress, o.settle, reach.Paths(w.namespace, headless, domain, pods), pods)
}

// try calls every way until it is good or the time to settle is over.
func (w *testbed) try(ctx context.Context, e *Env, progress *screen.Progress, settle time.Duration, paths []reach.Path, pods []reach.Pod) ([]reach.Result, error) {
	until := e.Clock.Now().Add(settle)
	results := make([]reach.Result, len(paths))
	for i, p := range paths {
		results[i] = reach.Judge(p, reach.Answer{Err: "not called yet", At: reach.AtConnect}, pods)
	}
	w.choices(ctx, results)
	for {
		good := 0
		for _, r := range results {
			if !r.Bad() {
				good++
			}
		}
		progress.Step("Calling: %d of %d ways are as they should be", good, len(results))
		err := w.round(ctx, results, pods)
		done := !slices.ContainsFunc(results, reach.Result.Bad)
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
			command = append(command, results[i].Target())
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
		if r.Bad() && r.Host != "" {
			all[r.From] = append(all[r.From], i)
		}
	}
	return all
}

// print shows the ways, and fails if one is not good.
func (o *testNetwork) print(e *Env, results []reach.Result) error {
	var bad []reach.Result
	for _, r := range results {
		if r.Bad() {
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
	several := slices.ContainsFunc(results, func(r reach.Result) bool { return r.Family == reach.IPv6 }) &&
		slices.ContainsFunc(results, func(r reach.Result) bool { return r.Family == reach.IPv4 })
	by := func(r reach.Result) string {
		if several && r.Family != "" {
			return r.By + ", " + string(r.Family)
		}
		return r.By
	}
	var rows [][]screen.Cell
	for _, r := range results {
		row := screen.Row(r.From, r.To, by(r), "ok", (time.Duration(r.Micros) * time.Microsecond).Round(10*time.Microsecond).String(), r.Client, cmp.Or(string(r.Gateway), "-"))
		row[3].Colour = screen.Green
		if !r.OK {
			row[3] = screen.Cell{Text: "fails", Colour: screen.Red}
			row[4].Text = "-"
		}
		switch {
		case r.Untried != "":
			row[3] = screen.Cell{Text: "not tried", Colour: screen.Faint}
		case r.Closed != "":
			row[3] = screen.Cell{Text: "closed", Colour: screen.Yellow}
		}
		rows = append(rows, row)
	}
	if err := screen.Table(w, paint, width, []string{"FROM", "TO", "BY", "RESULT", "CONNECT", "SEEN AS", "GATEWAY"}, rows); err != nil {
		return err
	}
	told := map[string]bool{}
	once := func(about, text string) {
		if !told[about] {
			fmt.Fprint(w, "\n", screen.Wrap(text, "  ", screen.Width))
		}
		told[about] = true
	}
	for _, r := range results {
		switch {
		case r.Untried != "":
			once(r.Untried, fmt.Sprintf("Not tried by %s: %s.", r.By, r.Untried))
		case r.Closed != "":
			once(r.Closed, r.Closed+". "+r.Remedy)
		case !r.OK:
			fmt.Fprint(w, "\n", screen.Wrap(fmt.Sprintf("%s to %s by %s: %s. %s", r.From, r.To, by(r), r.Why, r.Remedy), "  ", screen.Width))
		}
	}
	return nil
}

// ends are the pods as reach knows them.
func (w *testbed) ends(ctx context.Context, gateways map[string]string) ([]reach.Pod, error) {
	var pods corev1.PodList
	var services corev1.ServiceList
	if err := errors.Join(w.cluster.Client.List(ctx, &pods, client.InNamespace(w.namespace)), w.cluster.Client.List(ctx, &services, client.InNamespace(w.namespace))); err != nil {
		return nil, fmt.Errorf("reading the test's pods: %w", err)
	}
	peers := map[string]peerRanges{}
	for _, peering := range w.providers() {
		peers[peering] = w.ranges(ctx, peering)
	}
	var ends []reach.Pod
	for i := range pods.Items {
		p := &pods.Items[i]
		end := reach.Pod{Name: p.Name, Cluster: w.own, Home: w.at[p.Name] == "", Addresses: reach.Of(podIPs(p)...), Nodes: reach.Of(w.nodeAddresses...), Seen: map[string]reach.Addresses{},
			Unbalanced: "It takes a load balancer of this cluster: --with " + withBalancer, Unasked: "It takes a token of this cluster at the provider: --with " + withAPI}
		if end.Home {
			end.Node, end.Gateways = p.Spec.NodeName, gateways
		} else {
			end.Cluster = w.at[p.Name]
		}
		if w.balance {
			end.Unbalanced = "There is no load balancer here that gives Services of this type an address"
		}
		if w.api {
			end.Unasked = ""
		}
		for _, peer := range peers {
			end.Families = append(end.Families, peer.home...)
		}
		if !end.Home {
			end.Families = peers[end.Cluster].there
		}
		for family := range end.Addresses {
			end.Families = append(end.Families, family)
		}
		slices.Sort(end.Families)
		end.Families = slices.Compact(end.Families)
		for j := range services.Items {
			switch s := &services.Items[j]; {
			case s.Name == p.Name && len(s.Spec.Ports) > 0:
				end.Service, end.NodePort = reach.Of(append([]string{s.Spec.ClusterIP}, s.Spec.ClusterIPs...)...), s.Spec.Ports[0].NodePort
			case s.Name == p.Name+balancedSuffix:
				end.Balancers = balancers(s)
			}
		}
		for _, peering := range w.providers() {
			if peering != end.Cluster || end.Home {
				end.Seen[peering] = reach.Of(peers[peering].seen(podIPs(p))...)
			}
		}
		ends = append(ends, end)
	}
	slices.SortFunc(ends, func(a, b reach.Pod) int { return strings.Compare(a.Name, b.Name) })
	return ends, nil
}

func podIPs(p *corev1.Pod) []string {
	all := []string{p.Status.PodIP}
	for _, ip := range p.Status.PodIPs {
		all = append(all, ip.IP)
	}
	return all
}

// balancers are what a load balancer gave a Service; a name stands for all of its families.
func balancers(s *corev1.Service) reach.Addresses {
	all := reach.Addresses{}
	for _, given := range s.Status.LoadBalancer.Ingress {
		if family := reach.FamilyOf(given.IP); family != "" {
			all[family] = given.IP
			continue
		}
		for _, family := range s.Spec.IPFamilies {
			if given.Hostname != "" && all[reach.Family(family)] == "" {
				all[reach.Family(family)] = given.Hostname
			}
		}
	}
	return all
}

// peerRanges are the families of pods here and at a provider, and how that sees those here.
type peerRanges struct {
	home, there []reach.Family
	views       []v1alpha1.NetworkView
}

// seen are addresses as pods at the provider see them.
func (r peerRanges) seen(addresses []string) (all []string) {
	for _, text := range addresses {
		if real, err := netip.ParseAddr(text); err == nil {
			if a, ok := v1alpha1.ViewOf(r.views, real.Unmap()); ok {
				all = append(all, a.String())
			}
		}
	}
	return all
}

// ranges reads what both clusters have said of their pods.
func (w *testbed) ranges(ctx context.Context, peering string) (r peerRanges) {
	for name, families := range map[string]*[]reach.Family{v1alpha1.NetworkConsumer: &r.home, v1alpha1.NetworkProvider: &r.there} {
		var n v1alpha1.NetworkConfig
		if w.cluster.Client.Get(ctx, client.ObjectKey{Namespace: v1alpha1.PeeringNamespace(peering), Name: name}, &n) != nil {
			continue // then the ways of this peering have no address
		}
		if name == v1alpha1.NetworkConsumer {
			r.views = n.Status.Views
		}
		for _, text := range n.Spec.Pods {
			if p, err := netip.ParsePrefix(text); err == nil && !slices.Contains(n.Spec.Transit, text) {
				*families = append(*families, reach.FamilyOf(p.Addr().String()))
			}
		}
	}
	return r
}
