package reflection

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kube"
	"github.com/pelago-dev/pelago/offloading/content"
)

// apply does what was decided at the provider, and returns the plan as it turned out.
func (r *consumer) apply(ctx context.Context, peer Peer, home v1alpha1.HomeObject, f *facts, p plan) (plan, error) {
	ctx, cancel := context.WithTimeout(ctx, remoteLimit)
	defer cancel()
	s := &v1alpha1.ShadowObject{ObjectMeta: objectMeta(peer.TenantNamespace(), v1alpha1.ShadowObjectName(home))}
	var err error
	var made []*v1alpha1.ShadowObject
	if p.create || p.change {
		made, err = r.writeParts(ctx, peer, home, f)
	}
	switch {
	case err != nil:
	case p.create:
		r.meter.calls.WithLabelValues("create").Inc()
		s.Labels = map[string]string{v1alpha1.LabelManagedBy: manager}
		s.Annotations = f.annotations()
		s.Spec = f.spec(home)
		err = peer.Client().Create(ctx, s)
	case p.change:
		r.meter.calls.WithLabelValues("patch").Inc()
		err = peer.Client().Patch(ctx, s, change(f))
	case p.remove:
		r.meter.calls.WithLabelValues("delete").Inc()
		err = client.IgnoreNotFound(peer.Client().Delete(ctx, s, client.Preconditions{UID: &f.there.UID}))
	}
	if err == nil && (p.change || p.remove) {
		err = r.dropParts(ctx, peer, f, p.remove)
	}
	switch {
	case err == nil:
		return p, nil
	case apierrors.IsAlreadyExists(err), apierrors.IsConflict(err), apierrors.IsNotFound(err) && p.change:
		p.create, p.change, p.remove, p.behind = false, false, false, true // the mirror is behind
		return p, nil
	case kube.Uncounted(err): // its quota is new there; parts that are made already are found by the next try
		p.create, p.change, p.remove, p.behind = false, false, false, true
		return p, nil
	case takesNot(err):
		r.takeBack(ctx, peer, home, f, made)
	}
	switch {
	case outgrown(err):
		p.reason, p.refused = v1alpha1.ReasonUnsupported, true
		p.told, p.again = "the provider's build does not know all that this one sends of it; ask its owner to upgrade: pelago install", rereadEvery
		return p, nil
	case takesNot(err):
		p.reason, p.refused = v1alpha1.ReasonForbidden, true
		p.told, p.again, p.remove = fmt.Sprintf("the provider's API server does not take the ShadowObject (%s); ask the provider's owner", denier(err)), rereadEvery, false
		return p, nil
	}
	return p, plain("writing the shadow object", err)
}

// takesNot says that an API server does not take a write, whenever it is tried.
func takesNot(err error) bool {
	return outgrown(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) ||
		apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)
}

// change is the patch that gives a ShadowObject another text.
func change(f *facts) client.Patch {
	spec := map[string]any{"object": f.text}
	switch {
	case len(f.pieces) > 1:
		spec["object"], spec["parts"], spec["hash"] = f.pieces[0], len(f.pieces), hash(f.text)
	case content.Kinds[f.kind].Long: // the mirror may not show yet that it has some
		spec["parts"], spec["hash"] = nil, nil
	}
	return patchOf(f.annotations(), spec)
}

// patchOf is the patch that sets annotations and fields of the spec.
func patchOf(annotations map[string]string, spec map[string]any) client.Patch {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}, "spec": spec})
	if err != nil {
		panic(err) // maps of strings and numbers
	}
	return client.RawPatch(types.MergePatchType, body)
}

// spec is that of a new ShadowObject.
func (f facts) spec(home v1alpha1.HomeObject) v1alpha1.ShadowObjectSpec {
	if len(f.pieces) > 1 {
		return v1alpha1.ShadowObjectSpec{Home: home, Object: f.pieces[0], Parts: int32(len(f.pieces)), Hash: hash(f.text)}
	}
	return v1alpha1.ShadowObjectSpec{Home: home, Object: f.text}
}
