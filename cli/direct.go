package cli

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/screen"
)

// choice is what this cluster's owner lets pods do at a provider; nothing is left as it is.
type choice struct {
	reach  v1alpha1.Reachability // which pods take part, empty if not said
	direct *bool                 // whether direct paths may be, nil if not said
}

// none says that nothing was chosen.
func (o choice) none() bool { return o.reach == "" && o.direct == nil }

// patch is the choice as a change of a spec.
func (o choice) patch() client.Patch {
	var fields []string
	if o.reach != "" {
		fields = append(fields, fmt.Sprintf(`"reachability":%q`, o.reach))
	}
	if o.direct != nil {
		fields = append(fields, fmt.Sprintf(`"directPaths":%t`, *o.direct))
	}
	return client.RawPatch(types.MergePatchType, []byte(`{"spec":{`+strings.Join(fields, ",")+`}}`))
}

// into writes the choice into a spec.
func (o choice) into(spec *v1alpha1.PeeringSpec) {
	if o.reach != "" {
		spec.Reachability = o.reach
	}
	if o.direct != nil {
		spec.DirectPaths = *o.direct
	}
}

// change changes what is chosen for a peering that is there.
func (p *peer) change(ctx context.Context, e *Env) error {
	name, to := p.invitation.Name, p.invitation.choice
	if p.dryRun {
		return usage("--dry-run shows what an invitation makes; to see what a peering has: kubectl get peering %s -o yaml", name)
	}
	c, err := e.open()
	if err != nil {
		return err
	}
	peering, err := c.peering(ctx, name)
	if err != nil {
		return err
	}
	if peering.Spec.Consume == nil {
		return notOfConsumer(peering, to)
	}
	if peering, err = c.choose(ctx, peering.Name, to); err != nil {
		return err
	}
	if p.output != "" {
		peering.ManagedFields = nil
		peering.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Peering"))
		return screen.Document(e.Out, p.output, peering)
	}
	if to.reach != "" {
		sayReach(e, peering.Name, to.reach)
	}
	if to.direct != nil {
		sayDirect(e, peering.Name, *to.direct)
	}
	return nil
}

// notOfConsumer says where the choice is made for a cluster that only uses this one.
func notOfConsumer(p *v1alpha1.Peering, to choice) error {
	text, err := to.patch().Data(nil)
	if err != nil {
		return err
	}
	what := "what it may reach here"
	if to.reach == "" {
		what = "whether its pods here may have direct paths"
	}
	return fmt.Errorf("%s is a consumer, and %s is said by its Tenant: kubectl patch tenant %s --type merge -p '%s'", p.Name, what, tenantOf(p), text)
}

// choose changes a Peering, and returns it as it is then.
func (c *Cluster) choose(ctx context.Context, name string, to choice) (*v1alpha1.Peering, error) {
	p := &v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := c.Client.Patch(ctx, p, to.patch(), fieldOwner); err != nil {
		return nil, describe(fmt.Errorf("changing Peering %s: %w", name, err), c)
	}
	return p, to.stored(c, p.Spec.DirectPaths)
}

// stored fails if a cluster has not kept the choice: a build that does not know a field drops it.
func (o choice) stored(c *Cluster, direct bool) error {
	if o.direct != nil && *o.direct && !direct {
		return fmt.Errorf("the Pelago in the cluster at %s knows nothing of direct paths; upgrade it: pelago install", c.Server)
	}
	return nil
}

// chooseBoth says of both sides of a peering whether direct paths may be: in the Peering here, and in
// the Tenant there.
func (p *peer) chooseBoth(ctx context.Context, e *Env, here, there *Cluster, name string) error {
	to := choice{direct: p.invitation.direct}
	if to.none() {
		return nil
	}
	if _, err := here.choose(ctx, name, to); err != nil {
		return err
	}
	id, err := here.id(ctx)
	if err != nil {
		return describe(err, here)
	}
	found, err := there.tenant(ctx, id)
	if err != nil {
		return fmt.Errorf("finding the Tenant of this cluster at %s: %w", name, err)
	}
	t := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: found.Name}}
	if err := there.Client.Patch(ctx, t, to.patch(), fieldOwner); err != nil {
		return describe(fmt.Errorf("changing Tenant %s at %s: %w", t.Name, name, err), there)
	}
	return to.stored(there, t.Spec.DirectPaths)
}

// sayDirect says what a change of direct paths means.
func sayDirect(e *Env, peering string, allowed bool) {
	if !allowed {
		fmt.Fprintf(e.Out, "Pods at %s reach those at other providers through this cluster alone.\n", peering)
		e.note("Direct paths that there are end in a few seconds.")
		return
	}
	fmt.Fprintf(e.Out, "Pods at %s may have direct paths to those at other providers.\n", peering)
	e.note("It takes the same of another Peering, and of the Tenants at both providers, whose owners say so: kubectl patch tenant NAME --type merge -p '{\"spec\":{\"directPaths\":true}}'")
}
