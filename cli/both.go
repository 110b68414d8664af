package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// ttlOfBoth is how long an invitation lives that this command uses itself.
const ttlOfBoth = waitDefault * 5

// both peers two clusters that this program reaches.
func (p *peer) both(ctx context.Context, e *Env, consume v1alpha1.Consume) error {
	here, err := e.open()
	if err != nil {
		return err
	}
	access := p.remote
	access.remote = true
	access.Kubeconfig = cmp.Or(access.Kubeconfig, e.access.Kubeconfig)
	there, err := e.Connect(access)
	if err != nil {
		return fmt.Errorf("opening the remote cluster: %w", err)
	}
	waiting, cancel := bound(ctx, p.timeout)
	defer cancel()
	if same, err := sameCluster(waiting, here, there); err != nil || same {
		return cmp.Or(err, errors.New("--remote-kubeconfig leads to this cluster itself; give that of another one, or choose with --remote-context"))
	}
	first := &attempt{e: e, c: here, consume: consume, timeout: p.timeout}
	if err := p.direction(waiting, first, there, p.invitation.Name, p.invitation.choice); err != nil {
		return first.open(err)
	}
	if err := p.chooseBoth(waiting, e, here, there, first.invitation.Name); err != nil {
		return err
	}
	if !p.bidirectional {
		return first.report(waiting, p.output)
	}
	second := &attempt{e: e, c: there, consume: v1alpha1.Consume{DefaultRequest: consume.DefaultRequest}, timeout: p.timeout, both: true}
	if err := p.direction(waiting, second, here, "", choice{}); err != nil {
		return rollBack(ctx, e, err, second, first)
	}
	if err := first.report(waiting, p.output); err != nil {
		return err
	}
	if p.output == "" {
		fmt.Fprintf(e.Out, "%s uses this cluster as %s.\n", first.invitation.Name, second.invitation.Name)
	}
	return nil
}

// rollBack removes what two directions have made of which the second failed. What cannot be removed in one cluster keeps
// nothing from being removed in the other.
func rollBack(ctx context.Context, e *Env, why error, attempts ...*attempt) error {
	for _, a := range attempts {
		if !a.made() {
			continue
		}
		if failed := a.undo(ctx); failed != nil {
			why = fmt.Errorf("%w; rolling back in the cluster at %s failed too: %w; %s", why, a.c.Server, failed, a.byHand())
			continue
		}
		e.note("The second direction failed; what was made in the cluster at %s is rolled back.", a.c.Server)
	}
	return why
}

// open says of an attempt that Pelago goes on with how long its invitation can be used.
func (a *attempt) open(err error) error {
	if !a.goesOn {
		return err
	}
	return fmt.Errorf("%w; the invitation is good until %s", err, a.invitation.until.UTC().Format("2006-01-02 15:04 MST"))
}

// sameCluster says whether two ways lead to the same cluster.
func sameCluster(ctx context.Context, a, b *Cluster) (bool, error) {
	one, err := a.id(ctx)
	if err != nil {
		return false, describe(err, a)
	}
	other, err := b.id(ctx)
	return one != "" && one == other, describe(err, b)
}

// direction lets the cluster of an attempt use another: the invitation is made at the provider, used
// at the consumer, and withdrawn if nothing came of it, nor can any more.
func (p *peer) direction(ctx context.Context, a *attempt, provider *Cluster, name string, chosen choice) error {
	if using, err := consuming(ctx, a.c, provider); err != nil {
		return err
	} else if using != nil {
		a.invitation = invitation{Name: using.Name, ClusterID: using.Spec.ClusterID}
		return a.run(ctx)
	}
	known, err := knownAs(ctx, provider, a.c)
	if err != nil {
		return err
	}
	i, err := a.e.invite(ctx, provider, terms{consumer: known, ttl: ttlOfBoth, inBand: p.inBand})
	if err != nil {
		return err
	}
	if name != "" {
		i.Name = name
	}
	i.choice = chosen
	a.invitation = i
	a.tell = func(ctx context.Context, endpoints []string) error { return i.callTo(ctx, provider, endpoints) }
	err = i.check()
	if err == nil {
		err = a.run(ctx)
	}
	if err != nil && !a.goesOn {
		err = i.takeBack(ctx, provider, err)
	}
	return err
}

// knownAs is the name of the Peering that provider has with consumer already, empty if
// it has none: the invitation has to name it, as anybody could claim to be that cluster.
func knownAs(ctx context.Context, provider, consumer *Cluster) (string, error) {
	id, err := consumer.id(ctx)
	if err != nil || id == "" {
		return "", describe(err, consumer)
	}
	var list v1alpha1.PeeringList
	if err := provider.Client.List(ctx, &list); err != nil {
		return "", describe(fmt.Errorf("listing peerings: %w", err), provider)
	}
	for _, p := range list.Items {
		if p.Spec.ClusterID == id {
			return p.Name, nil
		}
	}
	return "", nil
}

// consuming finds the Peering by which consumer holds a credential of provider.
func consuming(ctx context.Context, consumer, provider *Cluster) (*v1alpha1.Peering, error) {
	id, err := provider.id(ctx)
	if err != nil || id == "" {
		return nil, describe(err, provider)
	}
	var list v1alpha1.PeeringList
	if err := consumer.Client.List(ctx, &list); err != nil {
		return nil, describe(fmt.Errorf("listing peerings: %w", err), consumer)
	}
	for i, p := range list.Items {
		if p.Spec.ClusterID == id && p.Spec.Consume != nil && meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionIdentityReady) {
			return &list.Items[i], nil
		}
	}
	return nil, nil
}
