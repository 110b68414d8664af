// Package kube reads, writes and follows objects of one API server, of the kinds of one scheme. It is
// for programs that have to be small: with controller-runtime come clients and types of each of
// Kubernetes' 50 groups, 20 MB of program and a share of the heap, of which an agent needs seven.
//
// It speaks as controller-runtime does: protobuf for Kubernetes' own kinds and JSON for ours, watches that
// list where the server can, and caches of client-go's informers. It has no queues and no defaults
// of its own.
package kube

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// Object is one that an API server keeps, as controller-runtime has it too.
type Object interface {
	metav1.Object
	runtime.Object
}

// List is a list of such objects.
type List interface {
	metav1.ListInterface
	runtime.Object
}

// Client asks the API server itself. It is safe for concurrent use.
type Client struct {
	config *rest.Config
	web    *http.Client
	scheme *runtime.Scheme
	mapper apimeta.RESTMapper
	codecs serializer.CodecFactory
	params runtime.ParameterCodec

	mu        sync.Mutex
	resources map[schema.GroupVersionKind]*resource
}

// resource is where the objects of a kind are.
type resource struct {
	rest.Interface
	name       string
	namespaced bool
}

// New makes a client of the kinds of a scheme, which mapper knows without asking. All it asks goes
// by the same connections.
func New(config *rest.Config, scheme *runtime.Scheme, mapper apimeta.RESTMapper) (*Client, error) {
	config = rest.CopyConfig(config)
	if config.UserAgent == "" {
		config.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	web, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making a client of the API server: %w", err)
	}
	return &Client{
		config: config, web: web, scheme: scheme, mapper: mapper, codecs: serializer.NewCodecFactory(scheme),
		params: runtime.NewParameterCodec(scheme), resources: map[schema.GroupVersionKind]*resource{},
	}, nil
}

// Get reads one object into o, whatever that was.
func (c *Client) Get(ctx context.Context, key types.NamespacedName, o Object) error {
	r, err := c.of(o)
	if err != nil {
		return err
	}
	return r.Get().NamespaceIfScoped(key.Namespace, r.namespaced).Resource(r.name).Name(key.Name).Do(ctx).Into(o)
}

// Create makes an object, and o what has become of it.
func (c *Client) Create(ctx context.Context, o Object) error {
	r, err := c.of(o)
	if err != nil {
		return err
	}
	return r.Post().NamespaceIfScoped(o.GetNamespace(), r.namespaced).Resource(r.name).
		VersionedParams(&metav1.CreateOptions{}, c.params).Body(o).Do(ctx).Into(o)
}

// Patch changes the object that has the name of o, and makes o what has become of it.
func (c *Client) Patch(ctx context.Context, o Object, kind types.PatchType, patch []byte) error {
	r, err := c.of(o)
	if err != nil {
		return err
	}
	return r.Patch(kind).NamespaceIfScoped(o.GetNamespace(), r.namespaced).Resource(r.name).Name(o.GetName()).
		VersionedParams(&metav1.PatchOptions{}, c.params).Body(patch).Do(ctx).Into(o)
}

// kindOf is the one kind that a type has.
func (c *Client) kindOf(o runtime.Object) (schema.GroupVersionKind, error) {
	kinds, _, err := c.scheme.ObjectKinds(o)
	if err != nil {
		return schema.GroupVersionKind{}, fmt.Errorf("finding the kind of %T: %w; add its group to the scheme", o, err)
	}
	if len(kinds) != 1 {
		return schema.GroupVersionKind{}, fmt.Errorf("%T has %d kinds in the scheme; it needs one", o, len(kinds))
	}
	return kinds[0], nil
}

// of is where the objects of o's kind are.
func (c *Client) of(o runtime.Object) (*resource, error) {
	kind, err := c.kindOf(o)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.resources[kind]; r != nil {
		return r, nil
	}
	at, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, fmt.Errorf("finding where %s are: %w; add it to the mapper", kind, err)
	}
	config := rest.CopyConfig(c.config)
	group := kind.GroupVersion()
	config.GroupVersion, config.APIPath = &group, "/apis"
	if kind.Group == "" {
		config.APIPath = "/api"
	}
	if _, is := o.(runtime.ProtobufMarshaller); is && config.ContentType == "" {
		config.ContentType = runtime.ContentTypeProtobuf
	}
	config.NegotiatedSerializer = fresh{serializer.WithoutConversionCodecFactory{CodecFactory: c.codecs}}
	asks, err := rest.RESTClientForConfigAndClient(config, c.web)
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", kind, err)
	}
	r := &resource{asks, at.Resource.Resource, at.Scope.Name() == apimeta.RESTScopeNameNamespace}
	c.resources[kind] = r
	return r, nil
}
