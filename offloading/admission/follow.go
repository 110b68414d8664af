package admission

import (
	"context"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// follow has the cache hold what answers are made from in every replica, and no replica
// ready without it: other rooms ask for it where they lead only, and the first answers
// would wait for it longer than the API server does.
func follow(mgr ctrl.Manager) error {
	informers := map[string]cache.Informer{}
	for kind, obj := range map[string]client.Object{
		"namespaces": &corev1.Namespace{}, "nodes": &corev1.Node{}, "namespace offloadings": &v1alpha1.NamespaceOffloading{},
		"namespace maps": &v1alpha1.NamespaceMap{}, "resource offers": &v1alpha1.ResourceOffer{},
	} {
		informer, err := mgr.GetCache().GetInformer(context.Background(), obj, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("following %s: %w", kind, err)
		}
		informers[kind] = informer
	}
	err := mgr.AddReadyzCheck("admission", func(*http.Request) error {
		for kind, informer := range informers {
			if !informer.HasSynced() {
				return fmt.Errorf("the %s that admission goes by have not been read yet", kind)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("adding the check of what admission goes by: %w", err)
	}
	return nil
}
