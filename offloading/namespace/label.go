package namespace

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=pelago.dev,resources=namespaceoffloadings,verbs=get;list;watch;create;delete

// labelled makes the NamespaceOffloading that the label LabelOffload asks for, and
// removes it with the label. One that people wrote is theirs.
type labelled struct {
	client client.Client
}

// Reconcile looks at one namespace. Reserved ones, and those of too long a name, get their
// NamespaceOffloading too, which policies refuse people: it says why they are not offloaded.
// They may have had the label before there were policies.
func (r *labelled) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, reconcileLimit)
	defer cancel()
	n := &corev1.Namespace{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: req.Name}, n); apierrors.IsNotFound(err) {
		return ctrl.Result{}, nil
	} else if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading the namespace: %w", err)
	}
	if n.DeletionTimestamp != nil {
		return ctrl.Result{}, nil // what is in it goes with it
	}
	key := client.ObjectKey{Namespace: n.Name, Name: v1alpha1.OffloadingName}
	o := &v1alpha1.NamespaceOffloading{}
	err := r.client.Get(ctx, key, o)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return ctrl.Result{}, fmt.Errorf("reading the namespace offloading: %w", err)
	}
	switch wanted := n.Labels[v1alpha1.LabelOffload] == "true"; {
	case wanted && missing:
		o = &v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{v1alpha1.LabelManagedBy: component}}}
		err := r.client.Create(ctx, o)
		if err != nil && !apierrors.IsAlreadyExists(err) && !leaving(err) {
			return ctrl.Result{}, fmt.Errorf("offloading the namespace: %w", err)
		}
	case !wanted && !missing && o.DeletionTimestamp == nil && o.Labels[v1alpha1.LabelManagedBy] == component:
		err := r.client.Delete(ctx, o, client.Preconditions{UID: &o.UID, ResourceVersion: &o.ResourceVersion})
		if apierrors.IsConflict(err) {
			return ctrl.Result{RequeueAfter: soon}, nil
		}
		if client.IgnoreNotFound(err) != nil {
			return ctrl.Result{}, fmt.Errorf("removing the namespace offloading: %w", err)
		}
	}
	return ctrl.Result{}, nil
}

// leaving reports that nothing can be made because the namespace goes or is gone.
func leaving(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}
