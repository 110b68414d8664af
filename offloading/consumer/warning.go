package consumer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

const (
	// maxWarnings are the warnings that are heard at once of one pod, maxReasons those of
	// its life: a provider that finds ever new reasons is not heard any more.
	maxWarnings, maxReasons = 5, 16
	// warnEvery is how often an event says one reason again at most.
	warnEvery = time.Minute
	// warnWithin is how long a warning is news: as long as events are kept.
	warnWithin = time.Hour
)

// warning is what a provider warns of, fit to be shown.
type warning struct {
	reason, message string
	count           int32
	last            time.Time
}

// warned is a warning that an event says.
type warned struct {
	warning
	at time.Time
}

// warnings are what a provider warns of about a pod, one per reason. It is not believed
// about the time: what is to come is now.
func warnings(s *v1alpha1.ShadowPod, now time.Time) []warning {
	var all []warning
	for _, w := range s.Status.Warnings[:min(len(s.Status.Warnings), maxWarnings)] {
		next := warning{reason: clean(w.Reason, 64), message: clean(w.Message, 512), count: max(w.Count, 1), last: w.LastTime.Truncate(time.Second)}
		if next.last.After(now) {
			next.last = now.Truncate(time.Second)
		}
		known := slices.ContainsFunc(all, func(o warning) bool { return o.reason == next.reason })
		if next.reason != "" && !known && now.Sub(next.last) <= warnWithin {
			all = append(all, next)
		}
	}
	return all
}

// due is what events are to say now, of what they say and what a provider warns of; and
// when there is more to say, 0 if there is not.
func due(said map[string]warned, all []warning, now time.Time) (news []warning, again time.Duration) {
	reasons := len(said)
	for _, w := range all {
		old, is := said[w.reason]
		switch wait := old.at.Add(warnEvery).Sub(now); {
		case !is && reasons >= maxReasons, is && old.count == w.count && old.message == w.message:
		case is && wait > 0:
			if again == 0 || wait < again {
				again = min(wait, warnEvery)
			}
		default:
			if !is {
				reasons++
			}
			news = append(news, w)
		}
	}
	return news, again
}

// isReady says whether a status is that of a pod that is ready.
func isReady(s *corev1.PodStatus) bool {
	return slices.ContainsFunc(s.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// warn writes events of what a provider warns of. It returns when to look again.
func (r *reconciler) warn(ctx context.Context, f *facts, p plan) (time.Duration, error) {
	for _, w := range p.warnings {
		if !r.budget.Take(f.peering, f.now) {
			return soonest(p.again, spread(warnEvery)), nil
		}
		if err := r.writeEvent(ctx, warningEvent(f.pod, f.peering, w)); err != nil {
			return 0, fmt.Errorf("telling what %s warns of: %w", f.peering, err)
		}
		r.ledger.warns(client.ObjectKeyFromObject(f.pod), f.pod.UID, w, f.now)
	}
	return p.again, nil
}

// soonest is the sooner of two, of which 0 is never.
func soonest(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// warningEvent is the event of a warning. There is one per pod and reason, whichever
// process writes it, and it says the same as long as the provider does.
func warningEvent(pod *corev1.Pod, peering string, w warning) *corev1.Event {
	sum := sha256.Sum256([]byte(string(pod.UID) + "/" + peering + "/" + w.reason))
	name := strings.TrimRight(pod.Name[:min(len(pod.Name), 200)], ".-") + "." + hex.EncodeToString(sum[:8])
	at := metav1.NewTime(w.last)
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: pod.Namespace, Name: name},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Type:           corev1.EventTypeWarning, Reason: v1alpha1.ReasonProviderWarning, Action: "Run",
		Message: strings.TrimSuffix(peering+": "+w.reason+": "+w.message, ": "),
		Source:  corev1.EventSource{Component: component}, ReportingController: component, ReportingInstance: component,
		FirstTimestamp: at, LastTimestamp: at, Count: w.count,
	}
}

// writeEvent makes an event, or brings the one there is up to date, which is nothing if
// it says the same. One that the API server does not take is left: the pod's status says
// what is known all the same.
func (r *reconciler) writeEvent(ctx context.Context, e *corev1.Event) error {
	err := r.client.Create(ctx, e.DeepCopy())
	if apierrors.IsAlreadyExists(err) {
		var data []byte
		data, err = json.Marshal(map[string]any{"message": e.Message, "count": e.Count, "lastTimestamp": e.LastTimestamp})
		if err != nil {
			return fmt.Errorf("encoding the event: %w", err)
		}
		err = r.client.Patch(ctx, e, client.RawPatch(types.MergePatchType, data))
	}
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
