package admission

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/serving"
)

// statsService is the name of the APIService whose server is the manager too.
const statsService = "v1alpha1.stats.pelago.dev"

var apiService = schema.GroupVersionKind{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"}

// bundler keeps an object that points the API server at the manager's server knowing
// the authority of that server.
type bundler struct {
	client    client.Client
	authority *serving.Authority
	// name of the only object it looks at, and its kind.
	name  string
	empty func() client.Object
	// set writes the authority into the object.
	set func(obj client.Object, bundle []byte)
	// base is what a patch is made against.
	base func(obj client.Object) client.Patch
}

// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations,resourceNames=pelago-manager,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=apiregistration.k8s.io,resources=apiservices,resourceNames=v1alpha1.stats.pelago.dev,verbs=get;list;watch;patch

// registerBundle adds both bundlers, with a cache of no more than their two objects.
func registerBundle(mgr ctrl.Manager, authority *serving.Authority) error {
	named := func(name string) cache.ByObject {
		return cache.ByObject{Field: fields.OneTermEqualSelector("metadata.name", name)}
	}
	two, err := cache.New(mgr.GetConfig(), cache.Options{
		Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient(),
		ByObject: map[client.Object]cache.ByObject{
			newWebhookConfiguration(): named(v1alpha1.ManagerService), newAPIService(): named(statsService),
		},
	})
	if err != nil {
		return fmt.Errorf("making a cache for the authority: %w", err)
	}
	if err := mgr.Add(two); err != nil {
		return fmt.Errorf("adding the cache for the authority: %w", err)
	}
	direct, err := client.New(mgr.GetConfig(), client.Options{
		Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient(),
		Cache: &client.CacheOptions{Reader: two, Unstructured: true},
	})
	if err != nil {
		return fmt.Errorf("making a client for the authority: %w", err)
	}
	for name, b := range map[string]*bundler{"admission-authority": forWebhooks(direct, authority), "stats-authority": forStats(direct, authority)} {
		c, err := controller.New(name, mgr, controller.Options{Reconciler: b})
		if err != nil {
			return fmt.Errorf("making controller %s: %w", name, err)
		}
		if err := c.Watch(source.Kind(two, b.empty(), &handler.TypedEnqueueRequestForObject[client.Object]{})); err != nil {
			return fmt.Errorf("watching for controller %s: %w", name, err)
		}
	}
	return nil
}

func newWebhookConfiguration() client.Object {
	return &admissionregistrationv1.MutatingWebhookConfiguration{}
}

func newAPIService() client.Object {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(apiService)
	return u
}

func forWebhooks(c client.Client, authority *serving.Authority) *bundler {
	return &bundler{
		client: c, authority: authority, name: v1alpha1.ManagerService, empty: newWebhookConfiguration,
		set: func(obj client.Object, bundle []byte) {
			hooks := obj.(*admissionregistrationv1.MutatingWebhookConfiguration).Webhooks
			for i := range hooks {
				if service := hooks[i].ClientConfig.Service; service != nil && service.Name == v1alpha1.ManagerService {
					hooks[i].ClientConfig.CABundle = bundle
				}
			}
		},
		// Strategic: webhooks are told apart by name, and fields that we do not know stay.
		base: func(obj client.Object) client.Patch {
			return client.StrategicMergeFrom(obj, client.MergeFromWithOptimisticLock{})
		},
	}
}

func forStats(c client.Client, authority *serving.Authority) *bundler {
	return &bundler{
		client: c, authority: authority, name: statsService, empty: newAPIService,
		set: func(obj client.Object, bundle []byte) {
			// There is a spec: the API server demands it.
			_ = unstructured.SetNestedField(obj.(*unstructured.Unstructured).Object, base64.StdEncoding.EncodeToString(bundle), "spec", "caBundle")
		},
		base: func(obj client.Object) client.Patch {
			return client.MergeFromWithOptions(obj, client.MergeFromWithOptimisticLock{})
		},
	}
}

// Reconcile writes the authority into the object if it is not there.
func (b *bundler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if req.Name != b.name {
		return reconcile.Result{}, nil
	}
	obj := b.empty()
	if err := b.client.Get(ctx, req.NamespacedName, obj); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	bundle := b.authority.Bundle()
	if bundle == nil { // the server is about to load it
		return reconcile.Result{RequeueAfter: time.Second}, nil
	}
	before := obj.DeepCopyObject().(client.Object)
	b.set(obj, bundle)
	patch := b.base(before)
	data, err := patch.Data(obj)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("comparing %s: %w", b.name, err)
	}
	unchanged, err := b.base(before).Data(before)
	if err != nil || bytes.Equal(data, unchanged) {
		return reconcile.Result{}, err
	}
	if err := b.client.Patch(ctx, obj, patch); err != nil {
		return reconcile.Result{}, fmt.Errorf("writing the authority into %s: %w", b.name, err)
	}
	ctrl.LoggerFrom(ctx).Info("authority made known to the API server", "name", b.name)
	return reconcile.Result{}, nil
}
