package kube

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

// resyncEvery is about how often handlers are told of all that there is.
const resyncEvery = 10 * time.Hour

// Query is what a cache follows.
type Query struct {
	// Of is any object of the kind.
	Of Object
	// Namespace is the one that is followed; all of them if empty.
	Namespace string
	// Labels and Fields select objects; all of them if nil.
	Labels labels.Selector
	Fields fields.Selector
}

// apply asks for what the query selects.
func (q Query) apply(o *metav1.ListOptions) {
	if q.Labels != nil {
		o.LabelSelector = q.Labels.String()
	}
	if q.Fields != nil {
		o.FieldSelector = q.Fields.String()
	}
}

// Cache follows objects of some kinds while it runs. What it gives is what it holds itself: nobody may change it.
type Cache struct {
	client    *Client
	informers map[schema.GroupVersionKind]toolscache.SharedIndexInformer
	ended     context.Context
	end       context.CancelFunc

	mu   sync.Mutex
	told []toolscache.InformerSynced // whether a handler was told of all that was read first
}

// Cache makes one of a query per kind, which begins to follow when it is run. Trim leaves of each object what is to be
// held.
func (c *Client) Cache(trim toolscache.TransformFunc, of ...Query) (*Cache, error) {
	made := &Cache{client: c, informers: map[schema.GroupVersionKind]toolscache.SharedIndexInformer{}}
	made.ended, made.end = context.WithCancel(context.Background())
	for _, q := range of {
		kind, err := c.kindOf(q.Of)
		if err != nil {
			return nil, err
		}
		source, err := c.source(kind, q)
		if err != nil {
			return nil, err
		}
		// Not all agents of a cluster at once.
		resync := time.Duration(float64(resyncEvery) * (0.9 + 0.2*rand.Float64()))
		informer := toolscache.NewSharedIndexInformerWithOptions(source, q.Of, toolscache.SharedIndexInformerOptions{ResyncPeriod: resync})
		if err := informer.SetTransform(trim); err != nil {
			return nil, fmt.Errorf("following %s: %w", kind, err)
		}
		if made.informers[kind] != nil {
			return nil, fmt.Errorf("following %s: it is followed already; a cache has a query per kind", kind)
		}
		made.informers[kind] = informer
	}
	return made, nil
}

// source lists and watches what a query asks for.
func (c *Client) source(kind schema.GroupVersionKind, q Query) (*toolscache.ListWatch, error) {
	r, err := c.of(q.Of)
	if err != nil {
		return nil, err
	}
	empty, err := c.scheme.New(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err != nil {
		return nil, fmt.Errorf("following %s: %w; add its list to the scheme", kind, err)
	}
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			q.apply(&o)
			list := empty.DeepCopyObject()
			if err := r.Get().NamespaceIfScoped(q.Namespace, q.Namespace != "").Resource(r.name).VersionedParams(&o, c.params).Do(ctx).Into(list); err != nil {
				return nil, err
			}
			return list, nil
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			q.apply(&o)
			o.Watch, o.AllowWatchBookmarks = true, true
			return r.Get().NamespaceIfScoped(q.Namespace, q.Namespace != "").Resource(r.name).VersionedParams(&o, c.params).Watch(ctx)
		},
	}, nil
}

// errNotFollowed is that a cache has no query of a kind.
var errNotFollowed = errors.New("its kind is not followed here")

// informer is that of the kind of o, an object or a list.
func (c *Cache) informer(o runtime.Object) (toolscache.SharedIndexInformer, error) {
	kind, err := c.client.kindOf(o)
	if err != nil {
		return nil, err
	}
	if _, is := o.(List); is {
		kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	}
	if informer := c.informers[kind]; informer != nil {
		return informer, nil
	}
	return nil, errNotFollowed
}

// Listen has a handler told of all objects of the kind of o.
func (c *Cache) Listen(o Object, handler toolscache.ResourceEventHandler) error {
	informer, err := c.informer(o)
	if err != nil {
		return fmt.Errorf("listening to %T: %w", o, err)
	}
	registration, err := informer.AddEventHandler(handler)
	if err != nil {
		return fmt.Errorf("listening to %T: %w", o, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = append(c.told, registration.HasSynced)
	return nil
}

// Run follows until ctx ends, once.
func (c *Cache) Run(ctx context.Context) {
	defer c.end()
	var running sync.WaitGroup
	for _, informer := range c.informers {
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	running.Wait()
}

// Synced says whether all that there is is held.
func (c *Cache) Synced() bool {
	for _, informer := range c.informers {
		if !informer.HasSynced() {
			return false
		}
	}
	return true
}

// Wait waits until all that there is is held, and handlers were told of it, and reports whether that is so: not
// if ctx ended first, or the cache did.
func (c *Cache) Wait(ctx context.Context) bool {
	c.mu.Lock()
	all := slices.Clone(c.told)
	c.mu.Unlock()
	for _, informer := range c.informers {
		all = append(all, informer.HasSynced)
	}
	return c.wait(ctx, all...)
}

func (c *Cache) wait(ctx context.Context, all ...toolscache.InformerSynced) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.ended, cancel)()
	return toolscache.WaitForCacheSync(ctx.Done(), all...)
}

// List fills a list with all that is held of its kind, in no order. It waits until that is all that there is.
func (c *Cache) List(ctx context.Context, list List) error {
	informer, err := c.informer(list)
	if err != nil {
		return fmt.Errorf("listing %T: %w", list, err)
	}
	if !informer.HasSynced() && !c.wait(ctx, informer.HasSynced) {
		return fmt.Errorf("listing %T: not all of it was read before the end", list)
	}
	held := informer.GetStore().List()
	objects := make([]runtime.Object, 0, len(held))
	for _, o := range held {
		if o, ok := o.(runtime.Object); ok {
			objects = append(objects, o)
		}
	}
	if err := apimeta.SetList(list, objects); err != nil {
		return fmt.Errorf("listing %T: %w", list, err)
	}
	return nil
}
