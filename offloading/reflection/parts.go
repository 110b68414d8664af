package reflection

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/status"
	"github.com/pelago-dev/pelago/offloading/content"
)

// A ShadowObject is short, so that a number of them bounds what a tenant stores at a provider. The text of a large
// Secret or ConfigMap is on several: the one with the object's name, which is the first part, says how
// many there are and what hash the whole has, and is written last. So who reads it finds the others, and if they
// are of an earlier or a later text by then, the hash says so, and what was made before stays.

// tooLong keeps home what a provider's build does not take that knows no parts. While nothing is known of that, what
// is there stays.
func (f *facts) tooLong(there v1alpha1.ClusterInfo, sent client.Object) {
	const most = 64 << 10 // bytes of data, of these builds
	bytes := content.Bytes(sent)
	switch {
	case slices.Contains(there.Features, v1alpha1.FeatureParts), len(f.text) <= content.MaxText && bytes <= most:
	case there.Version == "":
		f.text, f.found = "", unread
	default:
		f.text, f.reason = "", v1alpha1.ReasonUnsupported
		f.wrong = fmt.Sprintf("its data has %d bytes, and the provider runs Pelago %.64s, which takes at most %d; ask its owner to upgrade, or split it", bytes, there.Version, most)
	}
}

// countOf is on how many ShadowObjects a text is that begins on one.
func countOf(s *v1alpha1.ShadowObject) int {
	return min(max(int(s.Spec.Parts), 1), v1alpha1.MaxShadowObjectParts)
}

// partsLimit bounds how long a provider may take to show the parts of one object.
const partsLimit = 5 * time.Second

// partsOf are the parts that a provider shows beyond the first, nil for each that is not there; known is false while
// it cannot be said of one.
func partsOf(ctx context.Context, peer Peer, first *v1alpha1.ShadowObject) (all []*v1alpha1.ShadowObject, known bool) {
	ctx, cancel := context.WithTimeout(ctx, partsLimit)
	defer cancel()
	for i := 1; i < countOf(first); i++ {
		s := &v1alpha1.ShadowObject{}
		switch err := peer.Reader().Get(ctx, client.ObjectKey{Namespace: first.Namespace, Name: v1alpha1.ShadowObjectPart(first.Name, i)}, s); {
		case apierrors.IsNotFound(err):
			s = nil
		case err != nil:
			return nil, false
		}
		all = append(all, s)
	}
	return all, true
}

// shown is what is there of a text in parts, as far as it is shown: the hash of the whole, and of each piece beyond the
// first; empty if there are none.
func (f facts) shown() string {
	if f.there.Spec.Parts < 2 {
		return ""
	}
	all := []string{strconv.Itoa(int(f.there.Spec.Parts)), f.there.Spec.Hash}
	for _, s := range f.parts {
		if s == nil || s.DeletionTimestamp != nil {
			return "none" // of no text
		}
		all = append(all, s.Annotations[v1alpha1.AnnotationApplied])
	}
	return hash(strings.Join(all, "/"))
}

// shownBy is what is shown of a text.
func shownBy(text string, pieces []string) string {
	if len(pieces) < 2 {
		return ""
	}
	all := []string{strconv.Itoa(len(pieces)), hash(text)}
	for _, piece := range pieces[1:] {
		all = append(all, hash(piece))
	}
	return hash(strings.Join(all, "/"))
}

// writeParts writes the pieces of a text beyond the first, but for those that are there: first those that are missing, for
// which there may be no room. It returns what it has made.
func (r *consumer) writeParts(ctx context.Context, peer Peer, home v1alpha1.HomeObject, f *facts) (made []*v1alpha1.ShadowObject, err error) {
	var changed []*v1alpha1.ShadowObject
	for i := 1; i < len(f.pieces); i++ {
		s := &v1alpha1.ShadowObject{ObjectMeta: objectMeta(peer.TenantNamespace(), v1alpha1.ShadowObjectPart(v1alpha1.ShadowObjectName(home), i))}
		s.Labels, s.Annotations = map[string]string{v1alpha1.LabelManagedBy: manager}, map[string]string{v1alpha1.AnnotationApplied: hash(f.pieces[i])}
		s.Spec = v1alpha1.ShadowObjectSpec{Home: home, Object: f.pieces[i]}
		if i <= len(f.parts) && f.parts[i-1] != nil {
			if f.parts[i-1].Annotations[v1alpha1.AnnotationApplied] != s.Annotations[v1alpha1.AnnotationApplied] {
				changed = append(changed, s)
			}
			continue
		}
		r.meter.calls.WithLabelValues("create").Inc()
		switch err := peer.Client().Create(ctx, s); {
		case err == nil:
			made = append(made, s)
		case apierrors.IsAlreadyExists(err): // the mirror is behind, or it was left
			changed = append(changed, s)
		default:
			return made, err
		}
	}
	for _, s := range changed {
		r.meter.calls.WithLabelValues("patch").Inc()
		err := peer.Client().Patch(ctx, s, patchOf(s.Annotations, map[string]any{"object": s.Spec.Object}))
		if apierrors.IsNotFound(err) { // the mirror is behind
			err = apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("shadowobjects").GroupResource(), s.Name, nil)
		}
		if err != nil {
			return made, err
		}
	}
	return made, nil
}

// takeBack deletes the parts of a text that was refused: those that were made for it, all if there is nothing
// that counts them. What is there is as it was then, and what cannot be deleted is litter.
func (r *consumer) takeBack(ctx context.Context, peer Peer, home v1alpha1.HomeObject, f *facts, made []*v1alpha1.ShadowObject) {
	if f.there == nil {
		made = nil
		for i := 1; i < len(f.pieces); i++ {
			made = append(made, &v1alpha1.ShadowObject{ObjectMeta: objectMeta(peer.TenantNamespace(), v1alpha1.ShadowObjectPart(v1alpha1.ShadowObjectName(home), i))})
		}
	}
	for _, s := range made {
		r.meter.calls.WithLabelValues("delete").Inc()
		_ = peer.Client().Delete(ctx, s)
	}
}

// dropParts deletes the parts that are of no use after the first one has fewer, or is gone.
func (r *consumer) dropParts(ctx context.Context, peer Peer, f *facts, all bool) error {
	left := 1
	if !all {
		left = max(left, len(f.pieces))
	}
	for i := left; i < countOf(f.there); i++ {
		r.meter.calls.WithLabelValues("delete").Inc()
		s := &v1alpha1.ShadowObject{ObjectMeta: objectMeta(f.there.Namespace, v1alpha1.ShadowObjectPart(f.there.Name, i))}
		if err := client.IgnoreNotFound(peer.Client().Delete(ctx, s)); err != nil {
			return err
		}
	}
	return nil
}

// turn is how long a ShadowObject waits to be looked at that is in parts: until no other one is, as a whole one takes much
// memory, and until they are paid for, as each costs as much as a change of its tenant. Without a wait it has its turn until done.
func (r *provider) turn(tenant string, s *v1alpha1.ShadowObject, n *made) (done func(), wait time.Duration) {
	if s.Spec.Parts < 2 {
		return func() {}, 0
	}
	if !r.heavy.TryLock() {
		return nil, readEvery
	}
	now := r.clock.Now()
	if n.paid.IsZero() {
		// One that was taken as it is has not changed: this cluster looks at it again.
		again := s.Status.ObservedGeneration == s.Generation && status.IsTrue(s.Status.Conditions, v1alpha1.ConditionAccepted)
		n.paid = now.Add(r.pace.delay(paceOf(tenant, again), countOf(s)-1))
	}
	if wait := n.paid.Sub(now); wait > 0 && wait <= tenantLag {
		r.heavy.Unlock()
		return nil, wait
	}
	n.paid = time.Time{}
	return sync.OnceFunc(r.heavy.Unlock), 0
}

// join puts the other parts into the text of a ShadowObject that has some. It says whether they are all there, and
// give what their consumer wrote.
func (r *provider) join(ctx context.Context, s *v1alpha1.ShadowObject) (whole bool, err error) {
	if s.Spec.Parts < 2 {
		return true, nil
	}
	var text strings.Builder
	text.WriteString(s.Spec.Object)
	for i := 1; i < countOf(s) && text.Len() <= content.MaxWhole; i++ {
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
