package reflection

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/offloading/content"
)

// A ShadowObject is short, so that a number of them bounds what a tenant stores at a provider. The text of a large
// Secret or ConfigMap is on several: the one with the object's name, which is the first part, says how
// many there are and what hash the whole has, and is written last. So who reads it finds the others, and if they
// are of an earlier or a later text by then, the hash says so, and what was made before stays.

// tooLong says why a text does not travel to a build that knows no parts; "" if it does.
func tooLong(there v1alpha1.ClusterInfo, text string) string {
	if len(text) <= content.MaxText || slices.Contains(there.Features, v1alpha1.FeatureParts) {
		return ""
	}
	return fmt.Sprintf("it takes %d bytes as JSON, and the provider runs Pelago %.64s, which knows none of more than %d; ask its owner to upgrade, or split it", len(text), there.Version, content.MaxText)
}

// partsOf are the parts at a provider beyond the first, up to one that is missing.
func partsOf(ctx context.Context, peer Peer, name string) (all []*v1alpha1.ShadowObject) {
	for i := 1; i < v1alpha1.MaxShadowObjectParts; i++ {
		s := &v1alpha1.ShadowObject{}
		if peer.Reader().Get(ctx, client.ObjectKey{Namespace: peer.TenantNamespace(), Name: v1alpha1.ShadowObjectPart(name, i)}, s) != nil || s.DeletionTimestamp != nil {
			break
		}
		all = append(all, s)
	}
	return all
}

// writeParts writes the pieces of a text beyond the first, but for those that are there.
func (r *consumer) writeParts(ctx context.Context, peer Peer, home v1alpha1.HomeObject, there []*v1alpha1.ShadowObject, pieces []string) error {
	for i, piece := range pieces[1:] {
		applied := map[string]string{v1alpha1.AnnotationApplied: hash(piece)}
		if i < len(there) && there[i].Annotations[v1alpha1.AnnotationApplied] == applied[v1alpha1.AnnotationApplied] {
			continue
		}
		s := &v1alpha1.ShadowObject{ObjectMeta: objectMeta(peer.TenantNamespace(), v1alpha1.ShadowObjectPart(v1alpha1.ShadowObjectName(home), i+1))}
		s.Labels, s.Annotations = map[string]string{v1alpha1.LabelManagedBy: manager}, applied
		s.Spec = v1alpha1.ShadowObjectSpec{Home: home, Object: piece}
		if i >= len(there) {
			r.meter.calls.WithLabelValues("create").Inc()
			err := peer.Client().Create(ctx, s)
			if err == nil {
				continue
			}
			if !apierrors.IsAlreadyExists(err) {
				return err
			}
		}
		r.meter.calls.WithLabelValues("patch").Inc()
		if err := peer.Client().Patch(ctx, s, patchOf(applied, map[string]any{"object": piece})); err != nil {
			return err
		}
	}
	return nil
}

// dropParts deletes parts.
func (r *consumer) dropParts(ctx context.Context, peer Peer, parts []*v1alpha1.ShadowObject) error {
	for _, s := range parts {
		r.meter.calls.WithLabelValues("delete").Inc()
		err := peer.Client().Delete(ctx, s, client.Preconditions{UID: &s.UID})
		if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			return err
		}
	}
	return nil
}

// pay is how long the parts of a ShadowObject wait to be read: each costs its tenant as much as a change.
func (r *provider) pay(tenant string, s *v1alpha1.ShadowObject, n *made) time.Duration {
	if s.Spec.Parts < 2 {
		return 0
	}
	now := r.clock.Now()
	if n.paid.IsZero() {
		n.paid = now.Add(r.pace.delay(tenant, min(int(s.Spec.Parts), v1alpha1.MaxShadowObjectParts)-1))
	}
	if wait := n.paid.Sub(now); wait > 0 && wait <= tenantLag {
		return wait
	}
	n.paid = time.Time{}
	return 0
}

// join puts the other parts into the text of a ShadowObject that has some. It says whether they are all there, and
// give what their consumer wrote.
func (r *provider) join(ctx context.Context, s *v1alpha1.ShadowObject) (whole bool, err error) {
	if s.Spec.Parts < 2 {
		return true, nil
	}
	var text strings.Builder
	text.WriteString(s.Spec.Object)
	for i := 1; i < min(int(s.Spec.Parts), v1alpha1.MaxShadowObjectParts) && text.Len() <= content.MaxWhole; i++ {
		part := &v1alpha1.ShadowObject{}
		err := r.live.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: v1alpha1.ShadowObjectPart(s.Name, i)}, part)
		if apierrors.IsNotFound(err) {
			return false, nil
		} else if err != nil {
			return false, plain("reading a part of the shadow object", err)
		}
		text.WriteString(part.Spec.Object)
	}
	if hash(text.String()) != s.Spec.Hash {
		return false, nil
	}
	s.Spec.Object = text.String()
	return true, nil
}
