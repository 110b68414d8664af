package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/chain"
)

// goodbyeFor is how long a provider waits for the goodbye of its consumer.
const (
	goodbyeFor   = 10 * time.Second
	goodbyeWords = "10 s"
)

// unpeer is the command's flags.
type unpeer struct {
	force, forget bool
	dry           bool
	timeout       time.Duration
}

func newUnpeer(e *Env) *cobra.Command {
	u := &unpeer{}
	c := &cobra.Command{
		Use:   "unpeer NAME",
		Short: "End a peering, at both sides",
		Long: `Ends what this cluster uses of NAME and what it gives to NAME, and waits until both
sides are as before. Pods of this cluster that run there are evicted first: disruption
budgets hold them for a minute, then they are deleted. Controllers make theirs again
elsewhere; pods without a controller are lost. Pods of NAME that run here end. It says before
how many there are, and whether the nodes of this cluster have room for those that come home;
with --dry-run it says no more than that. NAME is the peering, the remote cluster's own name, or its id.

If the remote cluster does not answer, --force cleans up this side at once and leaves a
small Secret, a tombstone, by which Pelago goes on telling the other side until it has heard;
--forget deletes the tombstone. A provider that is reached in band is told once, and there is no
tombstone: the tunnel ends with the peering.`,
		Example: `  pelago unpeer milan
  pelago unpeer milan --dry-run
  pelago unpeer milan --force
  pelago unpeer milan --forget`,
		Args:              exactly("NAME"),
		ValidArgsFunction: e.completePeerings,
		RunE:              e.does(u.run),
	}
	c.Flags().BoolVar(&u.force, "force", false, "do not wait for the remote cluster; tell it later")
	c.Flags().BoolVar(&u.forget, "forget", false, "give up telling a remote cluster that was left with --force")
	c.Flags().BoolVar(&u.dry, "dry-run", false, "say which pods would move, end or be lost, and change nothing")
	durationFlag(c.Flags(), &u.timeout, "timeout", waitDefault, "how long to wait until the peering is gone; it goes on after that")
	return c
}

func (u *unpeer) run(ctx context.Context, e *Env, args []string) error {
	c, err := e.open()
	if err != nil {
		return err
	}
	ctx, cancel := bound(ctx, u.timeout)
	defer cancel()
	name := args[0]
	p, err := c.peering(ctx, name)
	switch {
	case errors.Is(err, errUnknown):
		return u.leftover(ctx, e, c, name, err)
	case err != nil:
		return err
	case u.forget && !u.force:
		return usage("%s is still peered; --forget is for what was left with --force. To leave and forget it at once, give both", p.Name)
	}
	name = p.Name
	n, err := u.notePods(ctx, e, c, p)
	if u.dry {
		if err != nil {
			return describe(fmt.Errorf("looking at the pods: %w", err), c)
		}
		if n == 0 {
			e.note("No pod of this cluster is at %s, and none of it here.", name)
		}
		fmt.Fprintf(e.Out, "Peering %s would be removed; nothing was changed.\n", name)
		return nil
	}
	if u.force {
		if err := markForce(ctx, c, p); err != nil {
			return describe(err, c)
		}
	}
	if err := u.wait(ctx, e, c, name); err != nil {
		return err
	}
	left, err := u.tombstones(ctx, c, name)
	if err != nil {
		return err
	}
	fmt.Fprintf(e.Out, "Peering %s is gone.\n", name)
	if len(left) > 0 && u.forget {
		noteTenant(ctx, e, c, name)
	} else if len(left) > 0 {
		e.note("%s has not been told yet; Pelago goes on trying. If that cluster is gone for good: pelago unpeer %[1]s --forget", name)
	}
	if p.Spec.Consume != nil && p.Spec.Consume.InBand != nil && u.force {
		e.note("%s was told once, through the tunnel, and cannot be any more. If the tunnel was dead:", name)
		noteTenant(ctx, e, c, name)
	}
	return nil
}

// notePods says whose pods will move, and whether there is room for them at home, and returns how many there
// are. What cannot be read is not said.
func (u *unpeer) notePods(ctx context.Context, e *Env, c *Cluster, p *v1alpha1.Peering) (int, error) {
	nodes, err := c.virtual(ctx, p.Name)
	if err != nil {
		return 0, err
	}
	var m movers
	for _, n := range nodes {
		if err := c.eachPod(ctx, m.add, client.MatchingFields{"spec.nodeName": n.Name}); err != nil {
			return 0, err
		}
	}
	if moving := len(m.moving); moving > 0 {
		e.note("%s of this cluster %s bound to %s and will move.", pods(moving), choose(moving, "is", "are"), p.Name)
		c.noteRoom(ctx, e, m.moving, true)
	}
	if lost := m.lost; lost > 0 {
		e.note("%s of this cluster %s bound to %s and will be lost: no controller makes %s again.", pods(lost), choose(lost, "is", "are"), p.Name, choose(lost, "it", "them"))
	}
	all := len(m.moving) + m.lost
	if p.Spec.Provide == nil {
		return all, nil
	}
	var t v1alpha1.Tenant
	if err := c.Client.Get(ctx, client.ObjectKey{Name: p.Spec.Provide.Tenant}, &t); err != nil {
		return all, client.IgnoreNotFound(err)
	}
	return all + noteEnding(e, &t), nil
}

// noteEnding says how many pods of a tenant will end, and returns that.
func noteEnding(e *Env, t *v1alpha1.Tenant) int {
	running := t.Status.Used["pods"]
	n := int(running.Value())
	if n > 0 {
		e.note("%s of %s %s here and will end.", pods(n), t.Name, choose(n, "runs", "run"))
	}
	return n
}

// wait deletes the Peering and follows its end.
func (u *unpeer) wait(ctx context.Context, e *Env, c *Cluster, name string) error {
	progress := e.progress()
	defer progress.Stop()
	progress.Step("Removing peering %s", name)
	state := ""
	err := remove(ctx, e, c, name, func(p *v1alpha1.Peering) {
		if doing := leaving(p, e.Clock.Now(), u.force); doing != "" {
			state = doing
			progress.Step("%s: %s", name, state)
		}
	})
	remedy := fmt.Sprintf("it goes on by itself (pelago explain peering %s); if that cluster is gone for good: pelago unpeer %[1]s --force", name)
	if u.force {
		remedy = "see whether pelago-manager runs: pelago status"
	}
	return ended(describe(err, c), "removing peering "+name, u.timeout, state, remedy)
}

// leaving says what the end of a Peering waits for, without remedies: the command has its own.
func leaving(p *v1alpha1.Peering, now time.Time, forced bool) string {
	ready := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil {
		return ""
	}
	message := without(chain.Plain(ready.Reason, ready.Message), "pelago unpeer")
	if p.Spec.Provide != nil && !forced && strings.HasPrefix(message, "waiting until Tenant ") && now.Sub(p.DeletionTimestamp.Time) < goodbyeFor {
		return "waiting up to " + goodbyeWords + " for " + p.Name + " to say goodbye"
	}
	return message
}

// remove deletes a Peering and waits until it is gone.
func remove(ctx context.Context, e *Env, c *Cluster, name string, seen func(*v1alpha1.Peering)) error {
	p := &v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := c.Client.Delete(ctx, p); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting Peering %s: %w", name, err)
	}
	return await(ctx, e, c.Client, &v1alpha1.PeeringList{}, client.ObjectKey{Name: name}, func(p *v1alpha1.Peering) (bool, error) {
		if p == nil || p.DeletionTimestamp.IsZero() {
			return true, nil // gone, or already made again by somebody
		}
		if seen != nil {
			seen(p)
		}
		return false, nil
	})
}

// markForce sets the annotation on a Peering and on its Tenant.
func markForce(ctx context.Context, c *Cluster, p *v1alpha1.Peering) error {
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"true"}}}`, v1alpha1.AnnotationForce))
	marked := []client.Object{p}
	if p.Spec.Provide != nil {
		marked = append(marked, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: p.Spec.Provide.Tenant}})
	}
	for _, object := range marked {
		if err := c.Client.Patch(ctx, object, patch, fieldOwner); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("forcing the end of %s: %w", object.GetName(), err)
		}
	}
	return nil
}

// leftover treats a name without a Peering: a Tenant that has lost its Peering, or a
// tombstone. Otherwise it returns unknown.
func (u *unpeer) leftover(ctx context.Context, e *Env, c *Cluster, name string, unknown error) error {
	if u.dry {
		t, err := c.tenant(ctx, name)
		if errors.Is(err, errUnknown) {
			return unknown
		}
		if err != nil {
			return err
		}
		noteEnding(e, t)
		fmt.Fprintf(e.Out, "Tenant %s would be removed; nothing was changed.\n", t.Name)
		return nil
	}
	left, err := u.tombstones(ctx, c, name)
	if err != nil {
		return err
	}
	if u.forget {
		if len(left) == 0 {
			return fmt.Errorf("there is no tombstone of %s; nothing is left to forget", name)
		}
		fmt.Fprintf(e.Out, "Forgot %s.\n", name)
		noteTenant(ctx, e, c, name)
		return nil
	}
	t, err := c.tenant(ctx, name)
	switch {
	case errors.Is(err, errUnknown) && len(left) > 0:
		return fmt.Errorf("peering %s is gone already, but that cluster has not been told yet; Pelago goes on trying, or: pelago unpeer %[1]s --forget", name)
	case errors.Is(err, errUnknown):
		return unknown
	case err != nil:
		return err
	}
	if err := c.Client.Delete(ctx, t); client.IgnoreNotFound(err) != nil {
		return describe(fmt.Errorf("deleting Tenant %s: %w", t.Name, err), c)
	}
	err = await(ctx, e, c.Client, &v1alpha1.TenantList{}, client.ObjectKey{Name: t.Name}, func(t *v1alpha1.Tenant) (bool, error) {
		return t == nil || t.DeletionTimestamp.IsZero(), nil
	})
	if err != nil {
		return ended(describe(err, c), "removing tenant "+t.Name, u.timeout, "", "see whether pelago-manager runs: pelago status")
	}
	fmt.Fprintf(e.Out, "Tenant %s is gone.\n", t.Name)
	return nil
}

// noteTenant says what forgetting may leave at a provider.
func noteTenant(ctx context.Context, e *Env, c *Cluster, name string) {
	own := "THIS-CLUSTER"
	if settings, err := c.settings(ctx); err == nil && settings.Cluster.Name != "" {
		own = settings.Cluster.Name
	}
	e.note("%s may still hold a tenant of this cluster; its owner removes that with: pelago unpeer %s", name, own)
}

// tombstones returns the tombstones of a peering, after deleting them if they are to be
// forgotten.
func (u *unpeer) tombstones(ctx context.Context, c *Cluster, name string) ([]corev1.Secret, error) {
	var list corev1.SecretList
	err := c.Client.List(ctx, &list, client.InNamespace(v1alpha1.SystemNamespace), client.MatchingLabels{v1alpha1.LabelTombstone: name})
	if err != nil {
		return nil, describe(fmt.Errorf("listing tombstones: %w", err), c)
	}
	if !u.forget {
		return list.Items, nil
	}
	for i := range list.Items {
		if err := c.Client.Delete(ctx, &list.Items[i]); client.IgnoreNotFound(err) != nil {
			return nil, describe(fmt.Errorf("deleting the tombstone: %w", err), c)
		}
	}
	return list.Items, nil
}
