package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/screen"
	"github.com/pelago-dev/pelago/cli/setup"
	"github.com/pelago-dev/pelago/cli/survey"
	"github.com/pelago-dev/pelago/internal/home"
)

// reachLimit bounds the first question to a cluster.
const reachLimit = 15 * time.Second

// install is the command's flags.
type install struct {
	clusterName, apiServerURL, image, serviceType string
	labels, set                                   []string
	valuesFile                                    string
	dryRun, downgrade                             bool
	output                                        string
	timeout                                       time.Duration
}

func newInstall(e *Env) *cobra.Command {
	i := &install{}
	c := &cobra.Command{
		Use:   "install",
		Short: "Install Pelago into a cluster, or upgrade it there",
		Long: `Looks at the cluster, applies Pelago to it and waits until it runs. What was set by an
earlier install stays unless it is set again, so running it again upgrades Pelago to this
program's version, or changes nothing. It makes the objects of the Helm chart. A program that
is older than what is there, and does not know all fields of its kinds, changes nothing unless
told --downgrade: what is stored in them would be lost.

The network between clusters needs a privileged pod on each node, in the namespace
pelago-network. Where that is not allowed: --set network.enabled=false, and the rest works.

What others reach this cluster by is taken from the kubeconfig; if that address means this
machine only, give --api-server-url, or the cluster can use others but not be used.`,
		Example: `  pelago install
  pelago install --cluster-name milan --api-server-url https://milan.example:6443
  pelago install --labels topology.kubernetes.io/region=eu-south --set config.offer.reserve=20%
  pelago install --dry-run`,
		Args: exactly(),
		RunE: e.does(i.run),
	}
	f := c.Flags()
	f.StringVar(&i.clusterName, "cluster-name", "", "name by which other clusters know this one; that of the kubeconfig's context if not given")
	f.StringVar(&i.apiServerURL, "api-server-url", "", "address of this cluster's API server for other clusters, https://HOST:PORT")
	f.StringVar(&i.serviceType, "auth-service-type", "", "how others reach the authentication endpoint: LoadBalancer, NodePort or ClusterIP; found out if not given")
	f.StringSliceVar(&i.labels, "labels", nil, "labels of this cluster that travel with its offers, KEY=VALUE")
	f.StringVar(&i.image, "image", "", "image of Pelago's programs; if not given this program's version, from where the installed image came or else pelago.dev/pelago")
	f.StringArrayVar(&i.set, "set", nil, "a value of the chart, PATH=VALUE; repeatable")
	f.StringVar(&i.valuesFile, "values", "", "file with values of the chart, in YAML, 1 MiB at most; - reads standard input")
	f.BoolVar(&i.dryRun, "dry-run", false, "print the objects instead of applying them")
	f.BoolVar(&i.downgrade, "downgrade", false, "go on where the cluster's definitions have kinds or fields that this program does not know")
	durationFlag(f, &i.timeout, "timeout", waitDefault, "how long to wait until Pelago runs")
	outputFlag(c, &i.output)
	f.Lookup("output").Usage = "with --dry-run: json or yaml"
	return c
}

func (i *install) run(ctx context.Context, e *Env, _ []string) error {
	if i.output != "" && !i.dryRun {
		return usage("-o needs --dry-run; add it to print the objects, or leave out -o to apply them")
	}
	given, err := i.given(ctx, e)
	if err != nil {
		return err
	}
	c, err := e.open()
	if err != nil {
		return err
	}
	ctx, cancel := bound(ctx, i.timeout)
	defer cancel()
	plan, err := i.plan(ctx, e, c, given)
	if err != nil {
		return err
	}
	if i.dryRun {
		return screen.Documents(e.Out, orYAML(i.output), append([]*unstructured.Unstructured{setup.Namespace()}, plan.objects...))
	}
	if err := served(c, plan); err != nil {
		return err
	}
	if err := i.newer(ctx, e, c, plan); err != nil {
		return err
	}
	plan.print(e)
	changes, err := i.apply(ctx, e, c, plan)
	if err != nil {
		return err
	}
	plan.done(e, changes)
	return nil
}

// mostLost is how many fields are named that this program does not know.
const mostLost = 5

// newer fails where this program is older than what is installed, unless that is meant.
func (i *install) newer(ctx context.Context, e *Env, c *Cluster, p *plan) error {
	known, err := p.known(e)
	if err != nil {
		return err
	}
	lost, err := setup.Site{Client: c.Client, Clock: e.Clock}.Lost(ctx, known)
	if err != nil {
		return describe(err, c)
	}
	if len(lost) == 0 {
		return nil
	}
	named := strings.Join(lost[:min(len(lost), mostLost)], ", ")
	if more := len(lost) - mostLost; more > 0 {
		named += fmt.Sprintf(" and %d more", more)
	}
	if i.downgrade {
		e.note("This program, %s, does not know what the cluster's definitions have: %s. What is stored there will be lost.", e.Version, screen.Clean(named))
		return nil
	}
	return fmt.Errorf("the Pelago here is newer than this program, %s, which does not know %s; use the program of that version, or go back and lose what is stored there: pelago install --downgrade", e.Version, named)
}

// chosenBy are the values that ask for kinds which Kubernetes does not have by itself.
var chosenBy = map[schema.GroupKind]string{
	{Group: "monitoring.coreos.com", Kind: "ServiceMonitor"}: "metrics.serviceMonitor",
	{Group: "monitoring.coreos.com", Kind: "PrometheusRule"}: "metrics.rules",
}

// served fails where the cluster does not have a kind that is to be applied, before anything is.
func served(c *Cluster, p *plan) error {
	unserved, err := setup.Site{Client: c.Client}.Unserved(p.objects)
	if err != nil {
		return describe(err, c)
	}
	var kinds, without []string
	for _, kind := range unserved {
		named := kind.Kind + " of " + kind.GroupVersion().String()
		if value := chosenBy[kind.GroupKind()]; value != "" {
			named += ", which " + value + " asks for"
			without = append(without, "--set "+value+"=false")
		}
		kinds = append(kinds, named)
	}
	switch {
	case len(kinds) == 0:
		return nil
	case len(without) < len(kinds):
		return fmt.Errorf("the cluster at %s does not serve kinds that Pelago needs: %s; have its owner turn them on in the API server", c.Server, strings.Join(kinds, "; "))
	}
	return fmt.Errorf("the cluster at %s does not serve %s; install the Prometheus operator first, or do without: pelago install %s",
		c.Server, strings.Join(kinds, ", nor "), strings.Join(without, " "))
}

// plan is what an installation will be.
type plan struct {
	distribution   survey.Distribution
	facts          survey.Facts
	values         map[string]any
	settings       home.Config
	objects        []*unstructured.Unstructured
	serviceType    string
	warning        string
	serverProblem  string
	fresh          bool
	image, version string
}

// plan looks at the cluster, lays what was given over what was installed over what was
// found, and renders.
func (i *install) plan(ctx context.Context, e *Env, c *Cluster, given map[string]any) (*plan, error) {
	version, err := c.kubernetes(ctx)
	if err != nil {
		return nil, err
	}
	p := &plan{version: version.GitVersion}
	if p.warning, err = survey.Supported(p.version); err != nil {
		return nil, err
	}
	if p.facts, err = survey.Gather(ctx, c.Client, c.Discovery, p.version); err != nil {
		return nil, describe(fmt.Errorf("looking at the cluster: %w", err), c)
	}
	p.distribution = survey.Detect(p.facts)
	installed, err := c.installed(ctx, e, i.anew(given))
	if err != nil {
		return nil, err
	}
	p.fresh = installed == nil
	if p.values, err = p.found(c, installed, given); err != nil {
		return nil, err
	}
	overlay(p.values, installed)
	before, _ := lookup(p.values, "image", "ref").(string)
	put(p.values, imageOf(before, e.Version), "image", "ref")
	overlay(p.values, given)
	if p.image, _ = lookup(p.values, "image", "ref").(string); p.image == "" {
		p.image = imageOf("", e.Version)
		put(p.values, p.image, "image", "ref")
	}
	p.serviceType, _ = lookup(p.values, "auth", "service", "type").(string)
	if p.objects, err = e.Render(p.values); err != nil {
		return nil, fmt.Errorf("the values do not fit the chart: %w", err)
	}
	stored, err := storedValues(p.values)
	if err != nil {
		return nil, err
	}
	config, err := settingsAmong(p.objects)
	if err != nil {
		return nil, err
	}
	// First, so that what was given is not forgotten by who ends before all is applied. The settings are next: the
	// following install takes what differs in those that are there for an edit, which wins.
	p.objects = slices.DeleteFunc(p.objects, func(o *unstructured.Unstructured) bool { return o == config })
	p.objects = append([]*unstructured.Unstructured{stored, config}, p.objects...)
	p.settings, err = checkSettings(config)
	return p, err
}

// known are the objects with all definitions that this program knows, also where the values leave these to others: what
// older programs write loses what they do not know, whoever applied the definitions.
func (p *plan) known(e *Env) ([]*unstructured.Unstructured, error) {
	if install, is := lookup(p.values, "crds", "install").(bool); !is || install {
		return p.objects, nil
	}
	values := map[string]any{}
	overlay(values, p.values)
	put(values, true, "crds", "install")
	objects, err := e.Render(values)
	if err != nil {
		return nil, fmt.Errorf("rendering the definitions to compare with: %w", err)
	}
	return objects, nil
}

// found makes values of what the cluster shows, for what was neither installed nor given.
func (p *plan) found(c *Cluster, installed, given map[string]any) (map[string]any, error) {
	known := func(path ...string) bool { return lookup(given, path...) != nil || lookup(installed, path...) != nil }
	values := map[string]any{}
	if !known("config", "cluster", "name") {
		name, err := survey.ClusterName(c.Names)
		if err != nil {
			return nil, err
		}
		put(values, name, "config", "cluster", "name")
	}
	if !known("config", "apiServer", "url") {
		address, problem := survey.PublicServer(c.Server)
		if p.serverProblem = problem; problem == "" {
			put(values, address, "config", "apiServer", "url")
		}
	}
	if kind := survey.CredentialType(p.distribution); kind != v1alpha1.CredentialCertificate && !known("config", "identity", "type") {
		put(values, string(kind), "config", "identity", "type")
	}
	if !known("auth", "service", "type") {
		put(values, string(survey.ServiceType(p.facts)), "auth", "service", "type")
	}
	return values, nil
}

// apply puts the plan into the cluster.
func (i *install) apply(ctx context.Context, e *Env, c *Cluster, p *plan) (setup.Changes, error) {
	progress := e.progress()
	defer progress.Stop()
	site := setup.Site{Client: c.Client, Clock: e.Clock, Say: progress.Step}
	objects := append([]*unstructured.Unstructured{setup.Namespace()}, p.objects...)
	changes, err := site.Apply(ctx, objects)
	if err == nil {
		changes.Removed, err = site.Prune(ctx, objects)
	}
	if err == nil {
		err = site.Ready(ctx, objects, managerDeployment)
	}
	state := ""
	if why := (*setup.NotReadyError)(nil); errors.As(err, &why) {
		state = why.Error()
	}
	if runs := (*setup.StillRunsError)(nil); errors.As(err, &runs) {
		state = runs.Error() + "; " + runs.Remedy
	}
	return changes, ended(describe(err, c), "installing Pelago", i.timeout, state, "run pelago install again to go on; pelago uninstall removes what is there")
}

// print says what was found.
func (p *plan) print(e *Env) {
	if p.warning != "" {
		e.note("%s", e.paintErr().Text(screen.Yellow, p.warning))
	}
	server := p.settings.APIServer.URL
	if server == "" {
		server = "none: " + p.serverProblem
	}
	e.note("%-13s %s (%s %s)", "Cluster:", p.settings.Cluster.Name, p.distribution, p.version)
	e.note("%-13s %s", "API server:", server)
	e.note("%-13s %s", "Pods:", orUnknown(survey.Pods(p.facts)))
	e.note("%-13s %s", "Services:", orUnknown(survey.Services(p.facts)))
	e.note("%-13s %s", "Endpoint:", endpointWords(p))
	e.note("%-13s %s", "Image:", p.image)
}

func endpointWords(p *plan) string {
	if p.settings.Auth.URL != "" {
		return p.settings.Auth.URL
	}
	return "Service of type " + p.serviceType
}

func orUnknown(ranges []string) string {
	if len(ranges) == 0 {
		return "not known"
	}
	return strings.Join(ranges, ", ")
}

// done says what was done and what to try next.
func (p *plan) done(e *Env, changes setup.Changes) {
	switch {
	case p.fresh:
		fmt.Fprintf(e.Out, "Pelago runs in %s.\n", p.settings.Cluster.Name)
	case changes.None():
		fmt.Fprintf(e.Out, "Pelago runs in %s; nothing had to be changed.\n", p.settings.Cluster.Name)
	default:
		fmt.Fprintf(e.Out, "Pelago runs in %s: %d objects made, %d changed, %d removed.\n",
			p.settings.Cluster.Name, changes.Created, changes.Changed, changes.Removed)
	}
	if p.settings.APIServer.URL == "" {
		e.note("This cluster can use others but cannot be used, since %s. To change that: pelago install --api-server-url https://HOST:PORT", p.serverProblem)
		return
	}
	e.note("To let another cluster use this one: pelago generate peer-command")
}

// settingsAmong finds the settings among rendered objects.
func settingsAmong(objects []*unstructured.Unstructured) (*unstructured.Unstructured, error) {
	for _, object := range objects {
		if object.GetKind() == "ConfigMap" && object.GetName() == v1alpha1.ConfigName {
			return object, nil
		}
	}
	return nil, fmt.Errorf("the chart has no ConfigMap %s; this program was built wrongly", v1alpha1.ConfigName)
}

// checkSettings reads the settings as the programs will.
func checkSettings(config *unstructured.Unstructured) (home.Config, error) {
	text, _, _ := unstructured.NestedString(config.Object, "data", home.ConfigKey)
	settings, err := home.Parse(text)
	if err != nil {
		return settings, fmt.Errorf("the settings below \"config\" have mistakes: %w", err)
	}
	return settings, nil
}

// serviceTypes are the choices of --auth-service-type.
var serviceTypes = []string{string(corev1.ServiceTypeLoadBalancer), string(corev1.ServiceTypeNodePort), string(corev1.ServiceTypeClusterIP)}
