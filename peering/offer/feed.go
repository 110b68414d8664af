package offer

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// +kubebuilder:rbac:groups="",resources=nodes;pods;services;namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=storage.k8s.io,resources=storageclasses,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.k8s.io,resources=ingressclasses,verbs=get;list;watch

// feed is the runnable that passes what the manager's cache sees on to a monitor.
type feed struct {
	cache   cache.Informers
	monitor *monitor
}

// NeedLeaderElection lets figures be ready before this program leads.
func (f *feed) NeedLeaderElection() bool { return false }

// Start adds the handlers and says when the monitor has seen everything.
func (f *feed) Start(ctx context.Context) error {
	handlers := map[client.Object]toolscache.ResourceEventHandler{
		&corev1.Node{}: follow(f.monitor.setNode, func(n *corev1.Node) { f.monitor.dropNode(n.Name) }),
		&corev1.Pod{}:  follow(f.monitor.setPod, func(p *corev1.Pod) { f.monitor.dropPod(p.UID) }),
		&corev1.Namespace{}: follow(
			func(n *corev1.Namespace) { f.monitor.setNamespace(n.Name, n.Labels[v1alpha1.LabelTenant]) },
			func(n *corev1.Namespace) { f.monitor.setNamespace(n.Name, "") }),
		&corev1.Service{}: follow(
			func(s *corev1.Service) { f.monitor.alter(func() bool { return f.monitor.classes.setService(s) }) },
			func(s *corev1.Service) { f.monitor.alter(func() bool { return f.monitor.classes.dropService(s.UID) }) }),
		&storagev1.StorageClass{}: follow(
			func(s *storagev1.StorageClass) {
				f.monitor.alter(func() bool { return f.monitor.classes.setStorage(s) })
			},
			func(s *storagev1.StorageClass) {
				f.monitor.alter(func() bool { return f.monitor.classes.storage.drop(s.Name) })
			}),
		&networkingv1.IngressClass{}: follow(
			func(i *networkingv1.IngressClass) {
				f.monitor.alter(func() bool { return f.monitor.classes.setIngress(i) })
			},
			func(i *networkingv1.IngressClass) {
				f.monitor.alter(func() bool { return f.monitor.classes.ingress.drop(i.Name) })
			}),
	}
	var synced []toolscache.InformerSynced
	for kind, h := range handlers {
		informer, err := f.cache.GetInformer(ctx, kind)
		if err != nil {
			return fmt.Errorf("watching %T: %w", kind, err)
		}
		registration, err := informer.AddEventHandler(h)
		if err != nil {
			return fmt.Errorf("watching %T: %w", kind, err)
		}
		synced = append(synced, registration.HasSynced)
	}
	if toolscache.WaitForCacheSync(ctx.Done(), synced...) {
		f.monitor.start()
	}
	<-ctx.Done()
	return nil
}

// follow calls set for what is there and drop for what is gone.
func follow[T client.Object](set, drop func(T)) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if o, ok := obj.(T); ok {
				set(o)
			}
		},
		UpdateFunc: func(_, obj any) {
			if o, ok := obj.(T); ok {
				set(o)
			}
		},
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			if o, ok := obj.(T); ok {
				drop(o)
			}
		},
	}
}
