package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/screen"
)

// silenceLimit is how long a provider may say nothing before people are told what to do if nobody
// can call it.
const silenceLimit = 10 * time.Second

// callBack has a provider call this cluster as well, as it may be one that nobody can call: whoever
// has its kubeconfig is told where, and else people are, if nothing is heard of it. It ends with
// ctx, and what goes wrong is no more than said: as a rule this cluster calls.
func (a *attempt) callBack(ctx context.Context, progress *screen.Progress) {
	name := a.invitation.Name
	at, err := a.endpoints(ctx)
	if err != nil || ctx.Err() != nil {
		return
	}
	if a.tell != nil {
		if err := a.tell(ctx, at); err != nil && ctx.Err() == nil {
			progress.Note("%s could not be told where to call this cluster: %v", name, err)
		}
		return
	}
	select {
	case <-ctx.Done():
		return
	case <-a.e.Clock.After(silenceLimit):
	}
	p := &v1alpha1.Peering{}
	if err := a.c.Client.Get(ctx, client.ObjectKey{Name: name}, p); err != nil {
		return
	}
	if way, err := a.c.way(ctx, p, a.e.Clock.Now()); err != nil || way == nil || way.Up {
		return
	}
	patch, err := calling(at)
	if err != nil {
		return
	}
	progress.Note("Nothing is heard of %s at %s yet. If nobody can call it, as behind NAT, its owner can have it call this cluster:\n"+
		"  kubectl patch invitation invitation-%s --type=merge -p '%s'\n"+
		"(CONSUMER-%[3]s, if it was made with --consumer CONSUMER)",
		name, strings.Join(a.invitation.Tunnel.Endpoints, " or "), v1alpha1.TokenHash(a.invitation.Token)[:hashInName], patch)
}

// endpoints waits until it is known where the tunnel of the introduction is called here.
func (a *attempt) endpoints(ctx context.Context) (at []string, err error) {
	key := client.ObjectKey{Namespace: v1alpha1.NetworkNamespace, Name: v1alpha1.IntroductionPrefix + a.invitation.Name}
	err = await(ctx, a.e, a.c.Client, &v1alpha1.NetworkConfigList{}, key, func(n *v1alpha1.NetworkConfig) (bool, error) {
		if n == nil {
			return false, nil
		}
		at = slices.DeleteFunc(slices.Clone(n.Spec.Endpoints), func(text string) bool { return !isEndpoint(text) })
		return len(at) > 0, nil
	})
	return at[:min(len(at), mostEndpoints)], err
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
	if apierrors.IsNotFound(err) { // it was used, and goes
		return nil
	}
	return describe(err, provider)
}
