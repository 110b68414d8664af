package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/chain"
	"github.com/pelago-dev/pelago/cli/screen"
)

// quietFor is how long nothing is said of what goes wrong in band: a tunnel takes a moment, and until then
// nobody answers.
const quietFor = 5 * time.Second

// undoLimit bounds the removal of what a refused attempt has made.
const undoLimit = 30 * time.Second

// attempt is one use of an invitation at the consumer.
type attempt struct {
	e          *Env
	c          *Cluster
	invitation invitation
	consume    v1alpha1.Consume
	timeout    time.Duration
	// tell tells the provider where its tunnel may call this cluster's; nil where nobody here can.
	tell func(ctx context.Context, endpoints []string) error

	secret  string // the token's Secret, while it is ours
	created bool   // the Peering is new
	added   bool   // consume is new in a Peering that was there
	goesOn  bool   // nobody waits any more, and Pelago goes on with it
	both    bool   // it is the second of two directions: who has begun it undoes it when it is not done
}

// refusal is a handshake that ended without hope.
type refusal struct{ reason, message, remedy string }

// Error is one sentence with what to do: what the condition says to do, if it does.
func (r refusal) Error() string {
	if strings.Contains(r.message, "; ") {
		return fmt.Sprintf("the peering was refused (%s): %s", r.reason, r.message)
	}
	return fmt.Sprintf("the peering was refused (%s): %s; %s", r.reason, r.message, r.remedy)
}

// run stores what the invitation says and waits until the peering is ready. What was
// refused for good is removed again.
func (a *attempt) run(ctx context.Context) error {
	progress := a.e.progress()
	defer progress.Stop()
	already, err := a.store(ctx, progress)
	if err != nil {
		return describe(err, a.c)
	}
	if already {
		progress.Note("This cluster uses %s already; the invitation was not needed.", a.invitation.Name)
	}
	var calling sync.WaitGroup
	until, cancel := context.WithCancel(ctx)
	heard := func() { cancel(); calling.Wait() }
	defer heard()
	if a.invitation.inBand() && !already {
		calling.Go(func() { a.callBack(until, progress) })
	}
	said := &teller{tell: func(step string) { progress.Step("%s: %s", a.invitation.Name, step) }}
	if a.invitation.inBand() {
		said.quiet = true
		early := a.e.Clock.After(quietFor)
		calling.Go(func() {
			select {
			case <-early:
				said.loud()
			case <-until.Done():
			}
		})
	}
	state := ""
	err = await(ctx, a.e, a.c.Client, &v1alpha1.PeeringList{}, client.ObjectKey{Name: a.invitation.Name}, func(p *v1alpha1.Peering) (bool, error) {
		if p == nil || !p.DeletionTimestamp.IsZero() {
			return true, fmt.Errorf("somebody has removed Peering %s meanwhile; run the line again, or with a new one of the provider (pelago generate peer-command) if it is used up", a.invitation.Name)
		}
		if r := refused(p); r != nil && !already {
			return true, *r
		}
		if err := a.invalid(ctx, p); err != nil {
			return true, err
		}
		ready, step := milestone(p, a.asks())
		if state = step; ready {
			return true, nil
		}
		said.say(step)
		return false, nil
	})
	var r refusal
	if errors.As(err, &r) {
		heard()
		if a.both {
			return err
		}
		progress.Step("Removing what was made")
		if undone := a.undo(ctx); undone != nil {
			return fmt.Errorf("%w; removing what was made failed too: %w; %s", err, undone, a.byHand())
		}
		return err
	}
	a.goesOn = err != nil && ctx.Err() != nil && !already && !a.both
	remedy := fmt.Sprintf("Pelago goes on trying; see: pelago explain peering %s; to give up: pelago unpeer %[1]s", a.invitation.Name)
	if a.both && !already {
		remedy = "with --bidirectional there are both directions or none; to try again, run the command again"
	}
	return ended(describe(err, a.c), "peering with "+a.invitation.Name, a.timeout, state, remedy)
}

// teller says what an attempt waits for: while it is quiet without what goes wrong.
type teller struct {
	tell  func(step string)
	mu    sync.Mutex
	quiet bool
	last  string
}

func (t *teller) say(step string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last = step; t.quiet {
		step, _, _ = strings.Cut(step, " (")
	}
	t.tell(step)
}

// loud ends the quiet, and says all of the last step.
func (t *teller) loud() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.quiet = false; t.last != "" {
		t.tell(t.last)
	}
}

// invalid says that the provider does not take the default request as it is, which no
// waiting changes. The peering itself stays.
func (a *attempt) invalid(ctx context.Context, p *v1alpha1.Peering) error {
	unmet := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionResourcesAccepted)
	if !a.asks() || unmet == nil || unmet.Status == metav1.ConditionTrue || unmet.Reason != v1alpha1.ReasonInvalid ||
		unmet.ObservedGeneration < p.Generation {
		return nil
	}
	var r v1alpha1.ResourceRequest
	key := client.ObjectKey{Namespace: v1alpha1.PeeringNamespace(p.Name), Name: v1alpha1.DefaultRequestName}
	if a.c.Client.Get(ctx, key, &r) != nil {
		return nil
	}
	why := hindrance(r)
	if why == nil || why.Reason != v1alpha1.ReasonInvalid || why.ObservedGeneration < r.Generation {
		return nil
	}
	return fmt.Errorf("%s is peered, but nothing is offered, for the request is invalid: %s; %s; or end it: pelago unpeer %[1]s",
		p.Name, chain.Plain(why.Reason, why.Message), chain.Change(p.Name, r.Name))
}

// asks reports whether resources are asked for.
func (a *attempt) asks() bool { return a.consume.DefaultRequest == nil || *a.consume.DefaultRequest }

// store writes the token and the Peering. Already says that this cluster holds a
// credential of that provider, so that nothing was written.
func (a *attempt) store(ctx context.Context, progress *screen.Progress) (already bool, err error) {
	own, err := a.c.id(ctx)
	if err != nil {
		return false, fmt.Errorf("reading this cluster's id: %w", err)
	}
	if own == a.invitation.ClusterID {
		return false, errors.New("this invitation is of this cluster itself; run the line in another cluster (--context)")
	}
	existing, already, err := a.existing(ctx)
	if already || err != nil {
		return already, err
	}
	objects := a.invitation.manifests(a.consume)
	secret, peering := objects[0].(*corev1.Secret), objects[1].(*v1alpha1.Peering)
	if existing != nil {
		if err := unchanged(existing, peering.Spec.Consume); err != nil {
			return false, err
		}
	}
	if a.invitation.inBand() {
		if err := a.c.hasNetwork(ctx, "this cluster"); err != nil {
			return false, err
		}
	}
	progress.Step("Storing the invitation")
	switch err := a.c.Client.Create(ctx, secret, fieldOwner); {
	case err == nil:
		a.secret = secret.Name
	case apierrors.IsNotFound(err): // the namespace
		return false, fmt.Errorf("there is no Pelago in the cluster at %s; run: pelago install", a.c.Server)
	case !apierrors.IsAlreadyExists(err): // it is of another run of the same line, which needs it
		return false, fmt.Errorf("storing the token: %w", err)
	}
	already, err = a.write(ctx, existing, peering)
	if err == nil && !already {
		return false, nil
	}
	switch undone := a.undo(ctx); {
	case undone != nil && err != nil:
		err = fmt.Errorf("%w; removing the token failed too: %w; %s", err, undone, a.byHand())
	case undone != nil:
		err = fmt.Errorf("removing the token, which is not needed: %w; %s", undone, a.byHand())
	}
	return already, err
}

// existing reads the Peering that the invitation belongs to, nil if there is none, and says whether this cluster holds
// a credential of that provider already.
func (a *attempt) existing(ctx context.Context) (*v1alpha1.Peering, bool, error) {
	var list v1alpha1.PeeringList
	if err := a.c.Client.List(ctx, &list); err != nil {
		return nil, false, fmt.Errorf("listing peerings: %w", err)
	}
	p, err := a.place(list.Items)
	return p, p != nil && p.Spec.Consume != nil && meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionIdentityReady), err
}

// write makes the Peering, or puts into the one that is there what the invitation says. One that somebody has made
// meanwhile, as by the same line, is taken as it is there.
func (a *attempt) write(ctx context.Context, existing, peering *v1alpha1.Peering) (already bool, err error) {
	failed := func(err error) error { return fmt.Errorf("storing Peering %s: %w", a.invitation.Name, err) }
	if existing == nil {
		if err = a.c.Client.Create(ctx, peering, fieldOwner); err == nil {
			a.created = true
			return false, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return false, failed(err)
		}
		taken := err
		existing, already, err = a.existing(ctx)
		switch {
		case already || err != nil:
			return already, err
		case existing == nil: // it is gone again
			return false, failed(taken)
		}
		if err := unchanged(existing, peering.Spec.Consume); err != nil {
			return false, err
		}
	}
	before := existing.DeepCopy()
	existing.Spec.Consume = peering.Spec.Consume
	a.invitation.into(&existing.Spec)
	if err := a.c.Client.Patch(ctx, existing, client.MergeFrom(before), fieldOwner); err != nil {
		return false, failed(err)
	}
	a.added = before.Spec.Consume == nil
	return false, nil
}

// place finds the Peering that the invitation belongs to, nil if it is to be made. The
// name of a Peering with this cluster, however it came to be, wins over the one given.
func (a *attempt) place(list []v1alpha1.Peering) (*v1alpha1.Peering, error) {
	for i, p := range list {
		if p.Spec.ClusterID != a.invitation.ClusterID {
			continue
		}
		if !p.DeletionTimestamp.IsZero() {
			return nil, fmt.Errorf("the peering %s with this cluster is being removed; wait until it is gone, or run: pelago unpeer %[1]s --force", p.Name)
		}
		if p.Name != a.invitation.Name {
			a.e.note("This cluster knows the provider as %s already, and keeps that name.", p.Name)
			a.invitation.Name = p.Name
		}
		return &list[i], nil
	}
	for _, p := range list {
		if p.Name == a.invitation.Name {
			return nil, fmt.Errorf("there is a peering %s with another cluster (%s); give this one another name: pelago peer OTHER …", p.Name, p.Spec.ClusterID)
		}
	}
	return nil, nil
}

// undo removes what this attempt has made. It outlives the context it was called with.
func (a *attempt) undo(ctx context.Context) error {
	ctx, cancel := bound(context.WithoutCancel(ctx), undoLimit)
	defer cancel()
	if a.secret != "" {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: a.secret}}
		if err := a.c.Client.Delete(ctx, secret); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting Secret %s: %w", a.secret, err)
		}
	}
	peering := &v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: a.invitation.Name}}
	switch {
	case a.created:
		return remove(ctx, a.e, a.c, peering.Name, nil)
	case a.added:
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"consume":null}}`))
		if err := a.c.Client.Patch(ctx, peering, patch, fieldOwner); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("taking consume out of Peering %s: %w", peering.Name, err)
		}
	}
	return nil
}

// made says that there is something to undo.
func (a *attempt) made() bool { return a.secret != "" || a.created || a.added }

// byHand says how to remove what undo could not.
func (a *attempt) byHand() string {
	var commands []string
	if a.secret != "" {
		commands = append(commands, fmt.Sprintf("kubectl -n %s delete secret %s --ignore-not-found", v1alpha1.SystemNamespace, a.secret))
	}
	switch {
	case a.created:
		commands = append(commands, "pelago unpeer "+a.invitation.Name)
	case a.added:
		commands = append(commands, fmt.Sprintf(`kubectl patch peering %s --type merge -p '{"spec":{"consume":null}}'`, a.invitation.Name))
	}
	return "to remove it by hand: " + strings.Join(commands, ", then ")
}

// hopeless are the reasons that no waiting changes. InvitationMissing is not among them: the
// token is there, and pelago-manager may be about to see it.
var hopeless = []string{
	v1alpha1.ReasonInvitationRefused, v1alpha1.ReasonNameRefused, v1alpha1.ReasonUntrusted,
	v1alpha1.ReasonUnsupported, v1alpha1.ReasonDuplicate, v1alpha1.ReasonInvalid, v1alpha1.ReasonRequestRefused,
}

// refused returns why a handshake ended for good, nil if it has not.
func refused(p *v1alpha1.Peering) *refusal {
	for _, kind := range []string{v1alpha1.ConditionStalled, v1alpha1.ConditionIdentityReady, v1alpha1.ConditionCompatible} {
		c := meta.FindStatusCondition(p.Status.Conditions, kind)
		if c == nil || c.ObservedGeneration < p.Generation || !slices.Contains(hopeless, c.Reason) {
			continue
		}
		if (c.Status == metav1.ConditionTrue) == (kind == v1alpha1.ConditionStalled) {
			return &refusal{reason: c.Reason, message: c.Message, remedy: chain.Remedy(c.Reason, p.Name)}
		}
	}
	return nil
}

// milestone says how far a peering has come, and whether it is what was asked for.
func milestone(p *v1alpha1.Peering, asks bool) (ready bool, step string) {
	if p.Status.ObservedGeneration == 0 && len(p.Status.Conditions) == 0 {
		return false, "waiting for pelago-manager to see it"
	}
	for _, one := range []struct{ kind, doing string }{
		{v1alpha1.ConditionIdentityReady, "proving the invitation"},
		{v1alpha1.ConditionReachable, "reaching the provider's API server"},
		{v1alpha1.ConditionCompatible, "comparing versions"},
		{v1alpha1.ConditionResourcesAccepted, "negotiating resources"},
		{v1alpha1.ConditionReady, "finishing"},
	} {
		if one.kind == v1alpha1.ConditionResourcesAccepted && !asks {
			continue
		}
		c := meta.FindStatusCondition(p.Status.Conditions, one.kind)
		if c == nil || c.ObservedGeneration < p.Generation {
			return false, one.doing
		}
		if c.Status != metav1.ConditionTrue {
			return false, one.doing + detail(c)
		}
	}
	return true, "ready"
}

// detail is a condition's reason and message in brackets.
func detail(c *metav1.Condition) string {
	switch {
	case c.Message == "":
		return " (" + c.Reason + ")"
	default:
		return " (" + c.Reason + ": " + chain.Plain(c.Reason, c.Message) + ")"
	}
}
