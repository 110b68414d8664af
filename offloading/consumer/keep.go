package consumer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/throttle"
)

const (
	// usualTolerance is how long Kubernetes has every pod tolerate a node that is not ready
	// or unreachable, in seconds.
	usualTolerance = 300
	// keepers is how many pods are kept at once. Nothing waits for a provider here.
	keepers = 8
	// keepRetry is when a pod is looked at again that somebody else has written meanwhile.
	keepRetry = 50 * time.Millisecond
)

// usualTaints are those of nodes that are lost, which every pod tolerates for a while.
var usualTaints = []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable}

// keeper has pods on virtual nodes stay there while the provider cannot be reached, where
// their namespace is offloaded with WhenUnreachable: Keep: what they tolerate for five
// minutes they tolerate without end. Where it is Replace that is taken back. It reads no
// more than the cache, and writes nothing else. Its requests are home pods.
type keeper struct {
	client client.Client
}

// registerKeeper adds the controller that keeps pods.
func registerKeeper(mgr ctrl.Manager, w wakers) error {
	return ctrl.NewControllerManagedBy(mgr).Named("kept-pods").
		Watches(&corev1.Pod{}, w.pods(), builder.WithPredicates(mayChange())).
		Watches(&corev1.Node{}, w.nodes(changesSides)).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(w.ofNamespace), builder.WithPredicates(offloadedOrEnding())).
		Watches(&v1alpha1.NamespaceOffloading{}, handler.EnqueueRequestsFromMapFunc(w.ofNamespace), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: keepers, RateLimiter: throttle.NewLimiter()}).
		Complete(&keeper{client: mgr.GetClient()})
}

// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=nodes;namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=pelago.dev,resources=namespaceoffloadings,verbs=get;list;watch

// Reconcile looks at one home pod.
func (k *keeper) Reconcile(ctx context.Context, key ctrl.Request) (ctrl.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	pod := &corev1.Pod{}
	if err := k.client.Get(ctx, key.NamespacedName, pod); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	f, err := k.gather(ctx, pod)
	if err != nil {
		return ctrl.Result{}, err
	}
	next := tolerations(f)
	if next == nil {
		return ctrl.Result{}, nil
	}
	// Tolerations are replaced as a whole, and others may add some.
	err = k.client.Patch(ctx, next, client.MergeFromWithOptions(pod, client.MergeFromWithOptimisticLock{}))
	switch {
	case apierrors.IsNotFound(err):
		return ctrl.Result{}, nil
	case apierrors.IsConflict(err):
		return after(keepRetry), nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("changing what the pod tolerates: %w", err)
	}
	ctrl.LoggerFrom(ctx).V(1).Info("tolerations changed", "node", pod.Spec.NodeName, "endless", next.Annotations[v1alpha1.AnnotationKeep])
	return ctrl.Result{}, nil
}

// keepFacts are what the tolerations of a home pod depend on.
type keepFacts struct {
	pod *corev1.Pod
	// virtual and lost say what the pod's node is.
	virtual, lost bool
	// policy of the pod's namespace; empty if it is not offloaded, or is being brought home.
	policy v1alpha1.UnreachablePolicy
}

func (k *keeper) gather(ctx context.Context, pod *corev1.Pod) (keepFacts, error) {
	f := keepFacts{pod: pod}
	node := &corev1.Node{}
	if err := k.client.Get(ctx, client.ObjectKey{Name: pod.Spec.NodeName}, node); apierrors.IsNotFound(err) {
		return f, nil
	} else if err != nil {
		return f, fmt.Errorf("reading the node: %w", err)
	}
	f.virtual, f.lost = node.Labels[v1alpha1.LabelType] == v1alpha1.TypeVirtualNode, lost(node)
	namespace := &corev1.Namespace{}
	if err := k.client.Get(ctx, client.ObjectKey{Name: pod.Namespace}, namespace); apierrors.IsNotFound(err) {
		return f, nil
	} else if err != nil {
		return f, fmt.Errorf("reading the namespace: %w", err)
	}
	o := &v1alpha1.NamespaceOffloading{}
	if err := k.client.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: v1alpha1.OffloadingName}, o); apierrors.IsNotFound(err) {
		return f, nil
	} else if err != nil {
		return f, fmt.Errorf("reading the namespace offloading: %w", err)
	}
	if namespace.Labels[v1alpha1.LabelOffloaded] == "true" && o.DeletionTimestamp.IsZero() {
		f.policy = o.Spec.WhenUnreachable.OrDefault()
	}
	return f, nil
}

// lost says whether Kubernetes evicts pods from a node, or is about to: it is not ready, as
// its provider cannot be reached, or nobody has kept it up for a while.
func lost(node *corev1.Node) bool {
	ready := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	return !ready || slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectNoExecute && slices.Contains(usualTaints, t.Key)
	})
}

// tolerations returns the pod with other tolerations, and the mark that says which; nil if
// they stay. What a pod has been given once stays when the provider is back: it never goes to
// another node, and would only be given it again.
func tolerations(f keepFacts) *corev1.Pod {
	if !f.virtual || !f.pod.DeletionTimestamp.IsZero() {
		return nil
	}
	var endless []string
	next := f.pod.DeepCopy()
	switch {
	case f.policy == v1alpha1.UnreachableKeep && f.lost:
		endless = endlessOf(f.pod)
		for i := range next.Spec.Tolerations {
			if t := &next.Spec.Tolerations[i]; usual(t) && t.TolerationSeconds != nil && *t.TolerationSeconds == usualTolerance {
				t.TolerationSeconds = nil
				endless = append(endless, t.Key)
			}
		}
		if len(endless) == len(endlessOf(f.pod)) {
			return nil
		}
	case f.policy == v1alpha1.UnreachableReplace && f.pod.Annotations[v1alpha1.AnnotationKeep] != "":
		for i := range next.Spec.Tolerations {
			if t := &next.Spec.Tolerations[i]; usual(t) && t.TolerationSeconds == nil && slices.Contains(endlessOf(f.pod), t.Key) {
				t.TolerationSeconds = new(int64(usualTolerance))
			}
		}
	default:
		return nil
	}
	setEndless(next, endless)
	return next
}

// usual says whether a toleration is one that Kubernetes gives every pod, but for its time.
func usual(t *corev1.Toleration) bool {
	return slices.Contains(usualTaints, t.Key) && t.Operator == corev1.TolerationOpExists && t.Effect == corev1.TaintEffectNoExecute
}

// endlessOf are the taints that a pod tolerates without end because of us.
func endlessOf(pod *corev1.Pod) []string {
	if text := pod.Annotations[v1alpha1.AnnotationKeep]; text != "" {
		return strings.Split(text, ",")
	}
	return nil
}

func setEndless(pod *corev1.Pod, taints []string) {
	if len(taints) == 0 {
		delete(pod.Annotations, v1alpha1.AnnotationKeep)
		return
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	slices.Sort(taints)
	pod.Annotations[v1alpha1.AnnotationKeep] = strings.Join(slices.Compact(taints), ",")
}

// changesSides says whether a node is lost that was not, or the other way about.
func changesSides(old, node *corev1.Node) bool {
	return lost(old) != lost(node) || old.Labels[v1alpha1.LabelType] != node.Labels[v1alpha1.LabelType]
}

// mayChange passes pods that come to a node, and those whose tolerations or mark change.
func mayChange() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			old, ok := e.ObjectOld.(*corev1.Pod)
			pod, ok2 := e.ObjectNew.(*corev1.Pod)
			return ok && ok2 && (old.Spec.NodeName != pod.Spec.NodeName || !equality.Semantic.DeepEqual(old.Spec.Tolerations, pod.Spec.Tolerations) ||
				old.Annotations[v1alpha1.AnnotationKeep] != pod.Annotations[v1alpha1.AnnotationKeep])
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}
