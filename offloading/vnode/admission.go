package vnode

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// maxDaemons and maxDaemonsSize bound how many pods are let through at a time; the oldest
// come first, and make room when they are bound. All annotations together have at most
// 256 KiB: the names of three thousand virtual nodes, each as long as can be, find room.
const (
	maxDaemons     = 512
	maxDaemonsSize = 64 << 10
)

// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=roles,verbs=create,namespace=pelago-system
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=roles,resourceNames=pelago-admission,verbs=get;list;watch;patch,namespace=pelago-system
// +kubebuilder:rbac:groups=apps,resources=daemonsets,verbs=get
// +kubebuilder:rbac:groups="",resources=pods;nodes;namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=pelago.dev,resources=resourcerequests,verbs=get;list;watch

// admission keeps what the admission policies go by.
type admission struct {
	client    client.Client
	live      client.Reader
	home      Home
	namespace string
}

// self maps everything to the only request there is.
func (a *admission) self(context.Context, client.Object) []ctrl.Request {
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: a.namespace, Name: v1alpha1.AdmissionName}}}
}

// Reconcile writes the Role as it should be.
func (a *admission) Reconcile(ctx context.Context, key ctrl.Request) (ctrl.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	nodes, err := a.nodes(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	let, err := a.daemons(ctx, nodes)
	if err != nil {
		return ctrl.Result{}, err
	}
	want := map[string]string{
		v1alpha1.AnnotationAdmissionCluster: a.home.Config().Cluster.Name,
		v1alpha1.AnnotationAdmissionNodes:   strings.Join(nodes, " "),
		v1alpha1.AnnotationAdmissionDaemons: strings.Join(let, " "),
	}
	list := &rbacv1.Role{}
	err = a.client.Get(ctx, key.NamespacedName, list)
	switch {
	case apierrors.IsNotFound(err):
		list = &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: ownLabels(), Annotations: want}}
		if err := a.client.Create(ctx, list); err != nil && !apierrors.IsAlreadyExists(err) {
			return ctrl.Result{}, fmt.Errorf("making the list of nodes for admission: %w", err)
		} else if err != nil {
			return ctrl.Result{RequeueAfter: soon}, nil
		}
		return ctrl.Result{}, nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("reading the list of nodes for admission: %w", err)
	}
	maps.DeleteFunc(want, func(k, v string) bool { has, ok := list.Annotations[k]; return ok && has == v })
	if len(want) == 0 {
		return ctrl.Result{}, nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": want}})
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("writing a patch: %w", err)
	}
	if err := a.client.Patch(ctx, list, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return ctrl.Result{}, fmt.Errorf("changing the list of nodes for admission: %w", err)
	}
	return ctrl.Result{}, nil
}

// nodes are the names of all virtual nodes, and of those about to be made: a request has
// its finalizer before its node is there and until it is gone. The name of a node that is
// not ours is never listed: its pods would be refused.
func (a *admission) nodes(ctx context.Context) ([]string, error) {
	nodes := &corev1.NodeList{}
	if err := a.client.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	requests := &v1alpha1.ResourceRequestList{}
	if err := a.client.List(ctx, requests, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing requests: %w", err)
	}
	return nodeNames(nodes.Items, requests.Items), nil
}

func nodeNames(nodes []corev1.Node, requests []v1alpha1.ResourceRequest) []string {
	virtual := map[string]bool{} // false: somebody else's
	for i := range nodes {
		virtual[nodes[i].Name] = isVirtual(&nodes[i])
	}
	for i := range requests {
		q := &requests[i]
		if !inPeeringNamespace(q) || !held(q) {
			continue
		}
		name := v1alpha1.VirtualNodeName(strings.TrimPrefix(q.Namespace, v1alpha1.PeeringNamespacePrefix), q.Name)
		if _, there := virtual[name]; !there {
			virtual[name] = true
		}
	}
	maps.DeleteFunc(virtual, func(_ string, ours bool) bool { return !ours })
	return slices.Sorted(maps.Keys(virtual))
}

// daemons are the pods of DaemonSets that wait to be bound to a virtual node, as
// NAMESPACE/NAME, sorted. A pod may claim to be a DaemonSet's, so the DaemonSet is asked
// for.
func (a *admission) daemons(ctx context.Context, nodes []string) ([]string, error) {
	pods := &corev1.PodList{}
	if err := a.client.List(ctx, pods, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	waiting := waitingFor(pods.Items, nodes)
	real, let := map[types.UID]bool{}, []string{}
	for _, pod := range waiting[:min(len(waiting), maxDaemons)] {
		owner := daemonSetOf(pod)
		is, known := real[owner.UID]
		if !known {
			var err error
			if is, err = a.exists(ctx, pod.Namespace, owner); err != nil {
				return nil, err
			}
			real[owner.UID] = is
		}
		if is {
			let = append(let, pod.Namespace+"/"+pod.Name)
		}
	}
	let = fitting(let)
	slices.Sort(let)
	return let, nil
}

// fitting is as much of the beginning of a list as there is room for.
func fitting(let []string) []string {
	size := 0
	for i, pod := range let {
		if size += len(pod) + 1; size > maxDaemonsSize {
			return let[:i]
		}
	}
	return let
}

// exists says whether a namespace that is not offloaded has a DaemonSet of that name and
// UID.
func (a *admission) exists(ctx context.Context, namespace string, owner *metav1.OwnerReference) (bool, error) {
	if offloaded, err := isOffloaded(ctx, a.client, namespace); err != nil || offloaded {
		return false, err
	}
	set := &metav1.PartialObjectMetadata{}
	set.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("DaemonSet"))
	err := a.live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: owner.Name}, set)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading a DaemonSet: %w", err)
	}
	return err == nil && set.UID == owner.UID, nil
}

// waitingFor are the pods that are aimed at one of the nodes and not bound, oldest first.
func waitingFor(pods []corev1.Pod, nodes []string) []*corev1.Pod {
	var waiting []*corev1.Pod
	for i := range pods {
		pod := &pods[i]
		if _, ok := slices.BinarySearch(nodes, aimedAt(pod)); ok && pod.Spec.NodeName == "" && pod.DeletionTimestamp.IsZero() {
			waiting = append(waiting, pod)
		}
	}
	slices.SortFunc(waiting, func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Time.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return waiting
}

// aimedAt is the node that the controller of DaemonSets made a pod for, empty for other
// pods.
func aimedAt(pod *corev1.Pod) string {
	a := pod.Spec.Affinity
	if !ofDaemonSet(pod) || a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	node := ""
	for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		if len(term.MatchFields) != 1 {
			return ""
		}
		field := term.MatchFields[0]
		if field.Key != metav1.ObjectNameField || field.Operator != corev1.NodeSelectorOpIn || len(field.Values) != 1 || node != "" && node != field.Values[0] {
			return ""
		}
		node = field.Values[0]
	}
	return node
}
