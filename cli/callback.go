package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/chain"
	"github.com/pelago-dev/pelago/cli/screen"
)

// silenceLimit is how long a provider may say nothing before people are told what to do if nobody
// can call it.
const silenceLimit = 10 * time.Second

// lookAgain is how often is looked whether there is anything to hear of it.
const lookAgain = time.Second

// callBack has a provider call this cluster as well, as it may be one that nobody can call: whoever
// has its kubeconfig is told where, and again when that changes, and else people are, if nothing is
// heard of it. It ends with ctx, and what goes wrong is no more than said: as a rule this cluster
// calls.
func (a *attempt) callBack(ctx context.Context, progress *screen.Progress) {
	silence := make(chan struct{})
	limit := a.e.Clock.After(silenceLimit)
	var aside sync.WaitGroup
	defer aside.Wait()
	aside.Go(func() {
		select {
		case <-limit:
			close(silence)
		case <-ctx.Done():
		}
	})
	aside.Go(func() {
		if a.silent(ctx, silence) {
			a.addressed(ctx, progress)
		}
	})
	var told []string
	for ctx.Err() == nil {
		if a.tell == nil && !a.silent(ctx, silence) {
			return
		}
		at, err := a.endpoints(ctx, told)
		if err != nil {
			return
		}
		if told = at; a.tell == nil {
			a.advise(progress, at)
			continue
		}
		if err := a.tell(ctx, at); err != nil {
			if a.silent(ctx, silence) {
				progress.Note("%s could not be told where to call this cluster: %v", a.invitation.Name, err)
			}
			return
		}
	}
}

// addressed says why nobody could tell the provider where to call this cluster, if that is so.
func (a *attempt) addressed(ctx context.Context, progress *screen.Progress) {
	name := v1alpha1.IntroductionPrefix + a.invitation.Name
	n := &v1alpha1.NetworkConfig{}
	err := a.c.Client.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NetworkNamespace, Name: name}, n)
	switch {
	case ctx.Err() != nil, err == nil && len(n.Spec.Endpoints) > 0:
		return
	case apierrors.IsForbidden(err):
		progress.Note("Nothing is heard of %s yet. If nobody can call it, as behind NAT, it has to call this cluster, and you may not see where: have somebody run this who may get, list and watch networkconfigs in the namespace %s.",
			a.invitation.Name, v1alpha1.NetworkNamespace)
		return
	case client.IgnoreNotFound(err) != nil:
		return
	}
	settings, err := a.c.settings(ctx)
	if err != nil {
		return
	}
	if n.Name == "" {
		n = nil
	}
	state, remedy := a.c.uncalled(ctx, name, n, settings.Network)
	if ctx.Err() != nil { // it was heard of
		return
	}
	progress.Note("Nothing is heard of %s yet. If nobody can call it, as behind NAT, it has to call this cluster, which nobody can yet: %s; %s", a.invitation.Name, state, remedy)
}

// silent says whether nothing has been heard of the provider for a while, as soon as it is known whether there is
// anything to hear: a gateway may have to begin first.
func (a *attempt) silent(ctx context.Context, silence <-chan struct{}) bool {
	select {
	case <-ctx.Done():
		return false
	case <-silence:
	}
	for {
		if silent, known := a.heard(ctx); known {
			return silent
		}
		select {
		case <-ctx.Done():
			return false
		case <-a.e.Clock.After(lookAgain):
		}
	}
}

// heard says whether nothing has been heard of the provider so far, and whether that is known.
func (a *attempt) heard(ctx context.Context) (silent, known bool) {
	p := &v1alpha1.Peering{}
	if err := a.c.Client.Get(ctx, client.ObjectKey{Name: a.invitation.Name}, p); err != nil {
		return false, permanent(err)
	}
	down := slices.ContainsFunc(p.Status.Conditions, func(c metav1.Condition) bool {
		return c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonTunnelDown
	})
	way, err := a.c.way(ctx, p, a.e.Clock.Now())
	switch {
	case err != nil:
		return false, permanent(err)
	case way == nil || way.Up:
		return false, true
	}
	silent = down || *way != (chain.Way{})
	return silent, silent
}

// advise says what the provider's owner has to do.
func (a *attempt) advise(progress *screen.Progress, at []string) {
	patch, err := calling(at)
	if err != nil {
		return
	}
	progress.Note("Nothing is heard of %s at %s yet. If nobody can call it, as behind NAT, its owner can have it call this cluster:\n"+
		"  kubectl patch invitation invitation-%s --type=merge -p '%s'\n"+
		"(CONSUMER-%[3]s, if it was made with --consumer CONSUMER)",
		a.invitation.Name, strings.Join(a.invitation.Tunnel.Endpoints, " or "), v1alpha1.TokenHash(a.invitation.Token)[:hashInName], patch)
}

// endpoints waits until the tunnel of the introduction is called here at others than these.
func (a *attempt) endpoints(ctx context.Context, told []string) (at []string, err error) {
	key := client.ObjectKey{Namespace: v1alpha1.NetworkNamespace, Name: v1alpha1.IntroductionPrefix + a.invitation.Name}
	err = await(ctx, a.e, a.c.Client, &v1alpha1.NetworkConfigList{}, key, func(n *v1alpha1.NetworkConfig) (bool, error) {
		if n == nil {
			return false, nil
		}
		at = slices.DeleteFunc(slices.Clone(n.Spec.Endpoints), func(text string) bool { return !isEndpoint(text) })
		at = at[:min(len(at), mostEndpoints)]
		return len(at) > 0 && !slices.Equal(at, told), nil
	})
	return at, err
}

// calling is the patch of an Invitation by which its provider calls the consumer.
func calling(at []string) ([]byte, error) {
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"inBand": map[string]any{"endpoints": at}}})
	if err != nil {
		return nil, fmt.Errorf("writing a patch of an invitation: %w", err)
	}
	return patch, nil
}

// callTo has the provider of an invitation call the consumer at these endpoints.
func (i invitation) callTo(ctx context.Context, provider *Cluster, endpoints []string) error {
	patch, err := calling(endpoints)
	if err != nil {
		return err
	}
	object := &v1alpha1.Invitation{ObjectMeta: metav1.ObjectMeta{Name: i.object}}
	err = provider.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch), fieldOwner)
	switch {
	case apierrors.IsNotFound(err): // it was used, and goes
		return nil
	case err == nil && (object.Spec.InBand == nil || len(object.Spec.InBand.Endpoints) == 0):
		return fmt.Errorf("the Pelago in the cluster at %s calls no consumers; upgrade it: pelago install", provider.Server)
	}
	return describe(err, provider)
}
