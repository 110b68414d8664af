package namespace

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kube"
)

const (
	// lostAfter is how long there is no map here until that means something: whoever puts a cluster together again
	// from a backup may bring peerings before what is offloaded to them.
	lostAfter = 5 * time.Minute
	// lostEvery is how often is looked then whether what is offloaded still is.
	lostEvery = time.Minute
)

// lost is about a provider's copy of a map that is not here. While anything is to be offloaded there the map is made
// again soon, and this does nothing. But what the copy wants for nobody would stay for good, if map and offloading
// went while nobody looked: who leaves a cluster of which there is no map finds nothing to leave. Of a peering that
// ends, its tenant takes all away.
func (c *carrier) lost(ctx context.Context, namespace, peering string) (ctrl.Result, error) {
	peer, ok := c.fleet.Peer(peering)
	if !ok {
		c.sent.forget(namespace)
		c.missing.forget(namespace)
		return ctrl.Result{}, nil // the connection brings us back
	}
	if reachable, _, _ := peer.Reachable(); !reachable {
		return ctrl.Result{}, nil
	}
	there := remoteMap(peer.TenantNamespace())
	if err := peer.Reader().Get(ctx, client.ObjectKeyFromObject(there), there); err != nil {
		return ctrl.Result{}, nil // there is none, or being read brings us back
	}
	if len(field(field(there.Object, "spec"), "namespaces")) == 0 {
		return ctrl.Result{}, nil
	}
	p, err := read(ctx, c.client, "", peering, &v1alpha1.Peering{})
	if err != nil || p == nil || p.DeletionTimestamp != nil || p.Spec.Consume == nil {
		return ctrl.Result{}, err
	}
	now := c.clock.Now()
	if wait := lostAfter - now.Sub(c.missing.first(namespace, now)); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	want, found, err := c.stillWanted(ctx, namespace, there)
	if err != nil {
		return ctrl.Result{}, err
	}
	if found {
		return ctrl.Result{RequeueAfter: lostEvery}, nil // its event comes before that
	}
	_, res, err := c.send(ctx, homeMap(peering), peer, there, false, want)
	switch {
	case apierrors.IsForbidden(err) && !kube.Uncounted(err), apierrors.IsUnauthorized(err), apierrors.IsInvalid(err):
		return ctrl.Result{RequeueAfter: retryRefused}, nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("sending what is left of a namespace map: %w", err)
	}
	if res.RequeueAfter == 0 && len(want) > 0 {
		res.RequeueAfter = lostEvery
	}
	return res, nil
}

// stillWanted are the entries of a provider's copy of namespaces that have an offloading here, whatever that says: its
// status may be lost as well, and one that ends brings its pods home first. What follows ends pods, so all of it is read past the cache, and by lists: those are empty only where there is nothing,
// and not while an API server that begins does not know the kinds. It also says whether there is a map after all.
func (c *carrier) stillWanted(ctx context.Context, namespace string, there *unstructured.Unstructured) (map[string]v1alpha1.NamespaceMapping, bool, error) {
	list := &v1alpha1.NamespaceMapList{}
	if err := c.live.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, false, fmt.Errorf("looking for the namespace map: %w", err)
	}
	for i := range list.Items {
		if list.Items[i].Name == v1alpha1.NamespaceMapName {
			return nil, true, nil
		}
	}
	all := &v1alpha1.NamespaceOffloadingList{}
	if err := c.live.List(ctx, all); err != nil {
		return nil, false, fmt.Errorf("listing namespace offloadings: %w", err)
	}
	want, entries := map[string]v1alpha1.NamespaceMapping{}, remoteEntries(there)
	for i := range all.Items {
		o := &all.Items[i]
		if entry, is := entries[o.Namespace]; is && o.Name == v1alpha1.OffloadingName {
			want[o.Namespace] = entry
		}
	}
	return want, false, nil
}
