package reflection

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// Pods that run here for a tenant go onward, to a provider of this cluster's, if that tenant lets
// them. What they need was made here by the provider's side of this room, and goes with them by
// the consumer's. It goes on once: where it arrives, the namespace says that it has come from
// afar, and of such a namespace nothing leaves.

// onward says whether a namespace is here for a tenant that lets its pods go onward, and was
// made by that tenant itself.
func onward(n client.Object) bool {
	l := n.GetLabels()
	return mappedFor(n) != "" && l[v1alpha1.LabelOnward] == "true" && l[v1alpha1.LabelOriginNamespace] == "" && l[v1alpha1.LabelOriginOwner] == ""
}

// leaves says whether objects of a namespace may go to providers: it is offloaded, and this
// cluster's own or onward.
func leaves(n client.Object) bool {
	l := n.GetLabels()
	if l[v1alpha1.LabelOffloaded] != "true" {
		return false
	}
	for _, key := range []string{v1alpha1.LabelTenant, v1alpha1.LabelHomeNamespace, v1alpha1.LabelOriginNamespace, v1alpha1.LabelOriginOwner} {
		if l[key] != "" {
			return onward(n)
		}
	}
	return true
}

// goesBy says whether a slice of a namespace may travel, by who made it: never one that Pelago
// has made, but for what a tenant has sent to where its pods go onward from.
func goesBy(slice, n client.Object) bool {
	switch {
	case !onward(n), slice.GetAnnotations()[v1alpha1.AnnotationExternal] != "":
		return !madeByUs(slice)
	case slice.GetLabels()[discoveryv1.LabelManagedBy] == v1alpha1.GroupVersion.Group:
		return owned(slice, mappedFor(n), n.GetLabels()[v1alpha1.LabelHomeNamespace])
	}
	return copied(slice) || !madeByUs(slice)
}

// copied says whether an object has the labels of another one, so that what Pelago's among
// them say is not so of it: of the Service that it was made of, by this cluster's own
// controllers, or of what is in another place, by somebody who wanted one more like that.
func copied(o client.Object) bool {
	if place, told := o.GetAnnotations()[v1alpha1.AnnotationPlace]; told && place != client.ObjectKeyFromObject(o).String() {
		return true
	}
	return strings.HasSuffix(o.GetLabels()[discoveryv1.LabelManagedBy], "-controller.k8s.io")
}

// maxOnward is how many objects of one tenant go onward to one provider: half of what that lets
// this cluster have, unless its owner says otherwise. The rest is for its own, and for others.
const maxOnward = 500

// crowded says whether a tenant has more objects at a provider than may go onward there if one is in so many
// pieces, and in a namespace from where they do.
func (r *consumer) crowded(ctx context.Context, peer Peer, home v1alpha1.HomeObject, pieces int) (bool, error) {
	n := &corev1.Namespace{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: home.Namespace}, n); err != nil || !onward(n) {
		return false, client.IgnoreNotFound(err)
	}
	list, theirs := &corev1.NamespaceList{}, map[string]bool{}
	if err := r.client.List(ctx, list, client.MatchingLabels{v1alpha1.LabelTenant: mappedFor(n)}, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("listing the tenant's namespaces: %w", err)
	}
	for i := range list.Items {
		theirs[list.Items[i].Name] = true
	}
	all, count := &v1alpha1.ShadowObjectList{}, 0
	if err := peer.Reader().List(ctx, all); err != nil {
		return false, fmt.Errorf("listing shadow objects: %w", err)
	}
	for i := range all.Items {
		if of := all.Items[i].Spec.Home; theirs[of.Namespace] && of != home {
			count++
		}
	}
	return count+pieces > r.share, nil
}
