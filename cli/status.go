package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/screen"
	"github.com/pelago-dev/pelago/cli/setup"
	"github.com/pelago-dev/pelago/internal/home"
)

func newStatus(e *Env) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "status [NAME]",
		Short: "Show what is wrong, then what there is: peerings, virtual nodes, tenants",
		Long: `Shows problems first, then what waits for somebody, each with what to do about it; then
this cluster, its peerings, virtual nodes and offloaded namespaces, which of their objects
other clusters refuse or have otherwise, the tenants that use it, the tunnels between its
network and theirs, and its invitations. With NAME, which is the peering, the remote
cluster's own name, or its id, it shows what concerns that cluster, each request, and by which
addresses the two see each other.`,
		Example:           "  pelago status\n  pelago status milan\n  pelago status -o json",
		Args:              atMost("NAME"),
		ValidArgsFunction: e.completePeerings,
		RunE: e.does(func(ctx context.Context, e *Env, args []string) error {
			return runStatus(ctx, e, args, output)
		}),
	}
	outputFlag(c, &output)
	return c
}

func runStatus(ctx context.Context, e *Env, args []string, output string) error {
	c, err := e.open()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	s, err := c.gather(ctx)
	if err != nil {
		return err
	}
	if len(args) > 0 {
		if err := s.narrow(args[0]); err != nil {
			return err
		}
	}
	report := s.report(e.Clock.Now())
	if output != "" {
		return screen.Document(e.Out, output, report)
	}
	v := view{out: e.Out, paint: e.paint(), now: e.Clock.Now(), width: e.width(), detailed: len(args) > 0}
	return v.report(report)
}

// snapshot is all that status looks at.
type snapshot struct {
	settings    home.Config
	id          string
	kubernetes  string
	deployments []appsv1.Deployment
	trouble     map[string]string // by Deployment
	peerings    []v1alpha1.Peering
	tenants     []v1alpha1.Tenant
	invitations []v1alpha1.Invitation
	requests    []v1alpha1.ResourceRequest
	offers      []v1alpha1.ResourceOffer
	heard       map[string]time.Time // by tenant, if Leases can be read
	tombstones  []string
	// stonesUnread says that tombstones, which are Secrets, may not be read.
	stonesUnread bool
	nodes        []corev1.Node // virtual ones
	offloadings  []v1alpha1.NamespaceOffloading
	sent         map[string][]string // Services that need no pod elsewhere, by namespace
	mapped       []v1alpha1.IPMapping
	maps         []v1alpha1.NamespaceMap // with providers
	pods         []corev1.Pod            // on virtual nodes, and of offloaded namespaces
	fabric       fabric
}

// gather reads a snapshot.
func (c *Cluster) gather(ctx context.Context) (*snapshot, error) {
	version, err := c.kubernetes(ctx)
	if err != nil {
		return nil, err
	}
	s := &snapshot{kubernetes: version.GitVersion, trouble: map[string]string{}}
	if s.settings, err = c.settings(ctx); err != nil {
		return nil, err
	}
	if s.id, err = c.id(ctx); err != nil {
		return nil, describe(fmt.Errorf("reading the cluster's id: %w", err), c)
	}
	var (
		peerings    v1alpha1.PeeringList
		tenants     v1alpha1.TenantList
		invitations v1alpha1.InvitationList
		requests    v1alpha1.ResourceRequestList
		offers      v1alpha1.ResourceOfferList
		deployments appsv1.DeploymentList
	)
	home := client.InNamespace(v1alpha1.SystemNamespace)
	for _, read := range []struct {
		what string
		list client.ObjectList
		opts []client.ListOption
	}{
		{"peerings", &peerings, nil},
		{"tenants", &tenants, nil},
		{"invitations", &invitations, nil},
		{"requests", &requests, nil},
		{"offers", &offers, nil},
		{"deployments", &deployments, []client.ListOption{home, client.MatchingLabels{v1alpha1.LabelManagedBy: setup.Installed}}},
	} {
		if err := c.Client.List(ctx, read.list, read.opts...); err != nil {
			return nil, describe(fmt.Errorf("listing %s: %w", read.what, err), c)
		}
	}
	s.peerings, s.tenants, s.invitations, s.offers = peerings.Items, tenants.Items, invitations.Items, offers.Items
	s.requests = requests.Items
	s.deployments = deployments.Items
	if s.tombstones, err = tombstones(ctx, c); apierrors.IsForbidden(err) {
		s.stonesUnread = true // what is known beside them is shown
	} else if err != nil {
		return nil, err
	}
	c.heartbeats(ctx, s)
	if err := c.network(ctx, s); err != nil {
		return nil, err
	}
	if err := c.offloadings(ctx, s); err != nil {
		return nil, err
	}
	return s, c.diagnose(ctx, s)
}

// gatherNetwork reads of a snapshot what says which tunnels there are and how they are: no pod, no Secret, and
// nothing of namespaces.
func (c *Cluster) gatherNetwork(ctx context.Context) (*snapshot, error) {
	s := &snapshot{}
	var peerings v1alpha1.PeeringList
	if err := c.Client.List(ctx, &peerings); err != nil {
		return nil, describe(fmt.Errorf("listing peerings: %w", err), c)
	}
	var tenants v1alpha1.TenantList
	if err := c.Client.List(ctx, &tenants); err != nil {
		return nil, describe(fmt.Errorf("listing tenants: %w", err), c)
	}
	s.peerings, s.tenants = peerings.Items, tenants.Items
	var err error
	if s.nodes, err = c.virtual(ctx, ""); err != nil {
		return nil, describe(fmt.Errorf("listing virtual nodes: %w", err), c)
	}
	return s, c.network(ctx, s)
}

// diagnose finds out why Deployments are not ready.
func (c *Cluster) diagnose(ctx context.Context, s *snapshot) error {
	var pods corev1.PodList
	var events corev1.EventList
	for i := range s.deployments {
		d := &s.deployments[i]
		if setup.RolledOut(d) {
			continue
		}
		namespace := client.InNamespace(d.Namespace)
		if err := c.Client.List(ctx, &pods, namespace, client.MatchingLabels(d.Spec.Selector.MatchLabels)); err != nil {
			return describe(fmt.Errorf("listing pods: %w", err), c)
		}
		if err := c.Client.List(ctx, &events, namespace); err != nil {
			return describe(fmt.Errorf("listing events: %w", err), c)
		}
		s.trouble[d.Name] = setup.Diagnose(d, pods.Items, events.Items)
	}
	return nil
}

// narrow keeps what concerns one remote cluster.
func (s *snapshot) narrow(word string) error {
	known := peeringWords(s.peerings)
	for _, t := range tenantWords(s.tenants) {
		if slices.ContainsFunc(known, func(p called) bool { return p.id == t.id && p.display == t.display }) {
			t.display = "" // a Peering and its Tenant are one cluster, which is said once
		}
		known = append(known, t)
	}
	for _, name := range s.tombstones {
		known = append(known, called{name: name})
	}
	i, err := pick("peering", word, known)
	if err != nil {
		return err
	}
	name, id := known[i].name, known[i].id
	s.peerings = keep(s.peerings, func(p v1alpha1.Peering) bool { return p.Spec.ClusterID == id || p.Name == name })
	s.tenants = keep(s.tenants, func(t v1alpha1.Tenant) bool { return t.Spec.ClusterID == id || t.Name == name })
	s.requests = keep(s.requests, func(r v1alpha1.ResourceRequest) bool {
		return slices.ContainsFunc(s.peerings, func(p v1alpha1.Peering) bool { return r.Namespace == v1alpha1.PeeringNamespace(p.Name) }) ||
			slices.ContainsFunc(s.tenants, func(t v1alpha1.Tenant) bool { return r.Namespace == v1alpha1.TenantNamespace(t.Name) })
	})
	s.nodes = keep(s.nodes, func(n corev1.Node) bool { return n.Labels[v1alpha1.LabelPeering] == name })
	s.maps = keep(s.maps, func(m v1alpha1.NamespaceMap) bool { return m.Namespace == v1alpha1.PeeringNamespace(name) })
	s.offloadings = keep(s.offloadings, func(o v1alpha1.NamespaceOffloading) bool {
		return slices.ContainsFunc(o.Status.Clusters, func(at v1alpha1.ClusterOffloading) bool {
			return at.Name == name && meta.IsStatusConditionTrue(at.Conditions, v1alpha1.ConditionOffloadingRequired)
		})
	})
	s.invitations = keep(s.invitations, func(i v1alpha1.Invitation) bool { return i.Spec.Consumer == name })
	s.tombstones = keep(s.tombstones, func(t string) bool { return t == name })
	return nil
}

func keep[T any](list []T, wanted func(T) bool) []T {
	var kept []T
	for _, one := range list {
		if wanted(one) {
			kept = append(kept, one)
		}
	}
	return kept
}
