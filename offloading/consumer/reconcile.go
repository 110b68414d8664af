package consumer

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/internal/fleet"
	"github.com/pelago-dev/pelago/internal/throttle"
	"github.com/pelago-dev/pelago/offloading/admission"
)

// limit bounds one reconcile.
const limit = time.Minute

// reconciler carries home pods to providers. Its requests are home pods.
type reconciler struct {
	client   client.Client // pods that tolerate our taint are whole in its cache
	live     client.Reader
	fleet    Fleet
	views    Views   // nil while there is no network
	tunnels  Tunnels // likewise
	needs    Needs   // nil if pods wait for none
	clock    clock.PassiveClock
	events   events.EventRecorder
	ledger   *ledger
	refusals *refusals
	choices  chooser
	meter    *meter
	budget   *fleet.Budget // of events that providers cause
	waiters  waiters
	turns    *throttle.Turns // at providers, by peering
	// sizeless: the last status with resources of a pod as a whole was kept without them.
	sizeless atomic.Bool

	once  sync.Once
	start time.Time
}

// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups="",resources=pods/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=pods/eviction,verbs=create
// +kubebuilder:rbac:groups="",resources=nodes;namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get
// +kubebuilder:rbac:groups=pelago.dev,resources=peerings;namespaceoffloadings;namespacemaps;resourceoffers,verbs=get;list;watch
// +kubebuilder:rbac:groups=pelago.dev,resources=namespacemaps/status,verbs=patch

// Reconcile looks at one home pod.
func (r *reconciler) Reconcile(ctx context.Context, key ctrl.Request) (ctrl.Result, error) {
	defer r.turns.Pass(key)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	pod := &corev1.Pod{}
	if err := r.client.Get(ctx, key.NamespacedName, pod); apierrors.IsNotFound(err) {
		r.ledger.drop(key.NamespacedName)
		r.waiters.drop(key.NamespacedName)
		return ctrl.Result{}, nil
	} else if err != nil {
		return ctrl.Result{}, err
	}
	if pod.Spec.NodeName == "" {
		return ctrl.Result{}, nil
	}
	if wait := r.ledger.of(key.NamespacedName, pod.UID).outrun(pod, r.clock.Now()); wait > 0 {
		return after(wait), nil
	}
	f, peer, err := r.gather(ctx, pod)
	if err != nil || f == nil {
		return ctrl.Result{}, err
	}
	again, err := r.apply(ctx, f, peer, decide(*f))
	if err != nil {
		return ctrl.Result{}, err
	}
	return after(again), nil
}

// linked begins to count for a provider that there is a connection to, and forgets what is remembered
// of one that there is none to any more.
func (r *reconciler) linked(peering string) {
	if _, ok := r.fleet.Peer(peering); ok {
		r.meter.knows(peering)
		return
	}
	r.budget.Forget(peering)
	r.meter.forget(peering)
}

// chooser says where a pod could go that is made now; see admission.Choices.
type chooser interface {
	Of(ctx context.Context, pod *corev1.Pod) (admission.Choice, error)
}

// began is when this process first looked at a pod: connections are made after that.
func (r *reconciler) began() time.Time {
	r.once.Do(func() { r.start = r.clock.Now() })
	return r.start
}

func objectMeta(key client.ObjectKey) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}
}
