package reflection

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// sink counts what is written of events.
type sink struct {
	events.EventSink
	writes *atomic.Int32
}

func (s sink) Create(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	s.writes.Add(1)
	return s.EventSink.Create(ctx, e)
}

func (s sink) Patch(ctx context.Context, e *eventsv1.Event, data []byte) (*eventsv1.Event, error) {
	s.writes.Add(1)
	return s.EventSink.Patch(ctx, e, data)
}

// teller counts what is handed to those who write events.
type teller struct {
	events.EventRecorder
	told *int
}

func (c teller) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	*c.told++
	c.EventRecorder.Eventf(regarding, related, kind, reason, action, note, args...)
}

// recording has a world's events written as the program does, and counts the writes.
func (w *world) recording() *atomic.Int32 {
	w.t.Helper()
	clients, err := kubernetes.NewForConfig(kubetest.Server(w.t).Config)
	if err != nil {
		w.t.Fatal(err)
	}
	writes := &atomic.Int32{}
	all := events.NewBroadcaster(sink{&events.EventSinkImpl{Interface: clients.EventsV1()}, writes})
	if err := all.StartRecordingToSinkWithContext(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(all.Shutdown)
	w.consumer.events = all.NewRecorder(kubetest.Scheme(), component)
	return writes
}

// TestEventsOfEach: different things that are said of one pod, or one after the other, are different events.
func TestEventsOfEach(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.recording()
	pod := w.podWith("web", func(spec *corev1.PodSpec) {
		spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "none"}}
		spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: named("none")}}}
	})
	said := func(words ...string) {
		t.Helper()
		w.await("the pod is told "+strings.Join(words, ", "), func() bool {
			all := &corev1.EventList{}
			if err := w.raw.List(ctx, all, client.InNamespace(w.home), client.MatchingFields{"involvedObject.uid": string(pod.UID), "reason": "NotReflected"}); err != nil {
				t.Fatal(err)
			}
			return !slices.ContainsFunc(words, func(word string) bool {
				return !slices.ContainsFunc(all.Items, func(e corev1.Event) bool { return strings.Contains(e.Message, word) })
			})
		})
	}
	w.as(kindSecret, "none")
	w.as(kindConfigMap, "none")
	said("Secret none", "ConfigMap none")
	n := &note{}
	f := &facts{now: w.clock.Now()}
	for _, told := range []string{"taken", "refused"} {
		w.consumer.tell(w.name, w.of("web"), f, verdict{told: told}, []*corev1.Pod{pod}, n, soon)
	}
	said("taken", "refused")
}

// TestEventsBounded: a provider that changes its mind causes so many events at home and no more, and what was not
// told by then is told later.
func TestEventsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	writes := w.recording()
	var pods []*corev1.Pod
	for i := range 60 {
		pods = append(pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.home, Name: fmt.Sprint("web-", i), UID: uuid.NewUUID()}})
	}
	n, now, told := &note{}, w.clock.Now(), 0
	w.consumer.events = teller{w.consumer.events, &told}
	f := &facts{now: now}
	again := time.Duration(0)
	for i := range 1000 {
		again = w.consumer.tell(w.name, w.of("web"), f, verdict{told: fmt.Sprint("no ", i%2)}, pods, n, time.Hour)
	}
	if again != tellLater {
		t.Errorf("looks again after %s", again)
	}
	if told != fleet.EventBurst {
		t.Errorf("%d events for 1000 changes of mind, want %d", told, fleet.EventBurst)
	}
	w.await("that is told", func() bool { return writes.Load() >= fleet.EventBurst })
	f.now = now.Add(tellLater)
	if again = w.consumer.tell(w.name, w.of("web"), f, verdict{told: "no 1"}, pods, n, time.Hour); again != time.Hour || len(n.tellings) != len(pods) {
		t.Errorf("a minute later %d of %d pods are told, and it looks again after %s", len(n.tellings), len(pods), again)
	}
	before := n.located
	n.shown = v1alpha1.ReflectedObject{Addresses: []string{"a.example"}}
	f.home = &metav1.PartialObjectMetadata{}
	for w.consumer.budget.Take(w.name, f.now) {
	}
	if again = w.consumer.tellAddresses(w.name, w.of("web"), f, n, time.Hour); again != locateEvery || !slices.Equal(before, n.located) {
		t.Errorf("without a budget addresses count as told, or it looks again after %s", again)
	}
}
