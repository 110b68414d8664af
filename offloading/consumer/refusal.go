package consumer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/offloading/admission"
)

const (
	maxRefusals = 256
	// maxOfTenant is how many of them are of one tenant, each pod of which is an owner.
	maxOfTenant = 32
	// remembered is how long a refusal counts after it has ended.
	remembered = 2 * time.Hour
	// budgetRetry is when an eviction is tried again that a PodDisruptionBudget held up.
	budgetRetry = 10 * time.Second
	// mapRetry is when the NamespaceMap is looked for again.
	mapRetry = 10 * time.Second
)

// refusals keeps in the NamespaceMap of each peering whose pods were sent home.
type refusals struct {
	client client.Client
	live   client.Reader
	mu     sync.Mutex // one writer at a time here: many pods of one owner are refused at once
}

func mapKey(peering string) client.ObjectKey {
	return client.ObjectKey{Namespace: v1alpha1.PeeringNamespace(peering), Name: v1alpha1.NamespaceMapName}
}

// remember writes that a pod was refused. It says whether that is written: without a
// NamespaceMap the pod's successor would come back at once.
func (r *refusals) remember(ctx context.Context, f *facts, reason string) (bool, error) {
	one := v1alpha1.Refusal{Owner: admission.Owner(f.pod, f.tenant), Node: f.at.Node, Reason: reason}
	return r.write(ctx, f, func(list []v1alpha1.Refusal) ([]v1alpha1.Refusal, bool) {
		return note(since(list, one, f.made), one, f.pod.CreationTimestamp.Time, f.now)
	})
}

// since is a list without what was refused like this before the node was made, which counts no more.
func since(list []v1alpha1.Refusal, like v1alpha1.Refusal, made metav1.Time) []v1alpha1.Refusal {
	return slices.DeleteFunc(slices.Clone(list), func(o v1alpha1.Refusal) bool {
		return o.Owner == like.Owner && o.Node == like.Node && o.Before(made)
	})
}

// known says whether there is something to forget of a pod's owner, as far as the cache says.
func (r *refusals) known(ctx context.Context, f *facts) (bool, error) {
	owner, m := admission.Owner(f.pod, f.tenant), &v1alpha1.NamespaceMap{}
	if owner == "" {
		return false, nil
	}
	if err := r.client.Get(ctx, mapKey(f.peering), m); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return slices.ContainsFunc(m.Status.Refusals, func(o v1alpha1.Refusal) bool { return o.Owner == owner && o.Node == f.at.Node }), nil
}

// forget removes what was written of a pod's owner, whose pods the node takes again.
func (r *refusals) forget(ctx context.Context, f *facts) error {
	owner := admission.Owner(f.pod, f.tenant)
	if owner == "" {
		return nil
	}
	_, err := r.write(ctx, f, func(list []v1alpha1.Refusal) ([]v1alpha1.Refusal, bool) {
		left := slices.DeleteFunc(slices.Clone(list), func(o v1alpha1.Refusal) bool {
			return o.Owner == owner && o.Node == f.at.Node
		})
		return left, len(left) != len(list)
	})
	return err
}

// write changes the list if that is needed by what the cache says, and then by what
// the API says.
func (r *refusals) write(ctx context.Context, f *facts, edit func([]v1alpha1.Refusal) ([]v1alpha1.Refusal, bool)) (bool, error) {
	m := &v1alpha1.NamespaceMap{}
	if err := r.client.Get(ctx, mapKey(f.peering), m); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	if _, needed := edit(m.Status.Refusals); !needed {
		return true, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.live.Get(ctx, mapKey(f.peering), m); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	list, needed := edit(m.Status.Refusals)
	if !needed {
		return true, nil
	}
	before := m.DeepCopy()
	m.Status.Refusals = list
	if err := r.client.Status().Patch(ctx, m, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return false, fmt.Errorf("remembering a refusal: %w", err)
	}
	return true, nil
}

// note adds a refusal of a pod made at a time, the latest first, and says whether that
// changes anything. Pods that were made before their owner's last refusal are of the
// same round: ten replicas that are refused together count once, and so does a pod that
// is looked at twice.
func note(list []v1alpha1.Refusal, one v1alpha1.Refusal, made, now time.Time) ([]v1alpha1.Refusal, bool) {
	if made.After(now) {
		now = made // the API server's clock is ahead of ours
	}
	kept := make([]v1alpha1.Refusal, 1, len(list)+1)
	one.Count = 1
	tenant, _, ofTenant := strings.Cut(one.Owner, "/")
	like := 1
	for _, old := range list {
		switch {
		case old.Owner == one.Owner && old.Node == one.Node:
			same := !made.After(old.Until.Add(-v1alpha1.AvoidFor(old.Count)))
			switch {
			case same && now.Before(old.Until.Time):
				return list, false
			case same: // it was held back until now, and its successor is not to come back at once
				one.Count = max(old.Count, 1)
			case now.Sub(old.Until.Time) < remembered:
				one.Count = max(old.Count, 0) + 1
			}
		case now.Sub(old.Until.Time) >= remembered:
		case ofTenant && strings.HasPrefix(old.Owner, tenant+"/"):
			if like++; like <= maxOfTenant {
				kept = append(kept, old)
			}
		default:
			kept = append(kept, old)
		}
	}
	one.Until = metav1.NewTime(now.Add(v1alpha1.AvoidFor(one.Count)))
	kept[0] = one
	return kept[:min(len(kept), maxRefusals)], true
}

// send remembers why a pod was sent home, and evicts it. Pods of Jobs are evicted only
// if that does not count as a failure.
func (r *reconciler) send(ctx context.Context, f *facts, why *sending) (time.Duration, error) {
	if ofJob(f.pod) {
		if job, err := jobOf(ctx, r.live, f.pod); err != nil || job == nil || !forgives(job, f.pod) {
			return 0, err
		}
	}
	if why.remember {
		written, err := r.refusals.remember(ctx, f, why.reason)
		if apierrors.IsConflict(err) {
			return time.Second, nil
		}
		if err != nil || !written {
			return mapRetry, err
		}
	}
	eviction := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: f.pod.Namespace, Name: f.pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &f.pod.UID}},
	}
	err := r.client.SubResource("eviction").Create(ctx, f.pod.DeepCopy(), eviction)
	switch {
	case err == nil:
		r.meter.sentHome(f.peering, why.reason)
		return 0, nil
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return 0, nil
	case apierrors.IsTooManyRequests(err), apierrors.IsForbidden(err): // its namespace is not offloaded, or goes
		return spread(budgetRetry), nil
	}
	return 0, fmt.Errorf("evicting the pod: %w", err)
}
