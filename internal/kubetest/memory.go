package kubetest

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// Memory is a client that asks the server once what it has asked before, as the cache of
// a manager does: of a kind it forgets all with every write to that kind. It is for tests
// that step through many looks at objects which nobody else writes; what others write it
// may never see.
type Memory struct {
	client.WithWatch
	server client.WithWatch

	mu     sync.Mutex
	off    bool
	writes map[string]int // by kind
	all    int            // writes of which it is not known what they change
	kept   map[string]answer
}

// answer is what the server said, and after how many writes.
type answer struct {
	said       runtime.Object // nil with an error
	err        error
	writes, of int
}

// Remember makes a client that remembers what c reads. Every write has to go through it.
func Remember(c client.WithWatch) *Memory {
	m := &Memory{server: c, writes: map[string]int{}, kept: map[string]answer{}}
	m.WithWatch = interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if len(opts) > 0 {
				return c.Get(ctx, key, obj, opts...)
			}
			return m.read(obj, key.String(), func() error { return c.Get(ctx, key, obj) })
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			o := (&client.ListOptions{}).ApplyOptions(opts)
			if o.Continue != "" || o.Raw != nil || o.UnsafeDisableDeepCopy != nil {
				return c.List(ctx, list, opts...)
			}
			what := fmt.Sprintf("%q %v %v %d", o.Namespace, o.LabelSelector, o.FieldSelector, o.Limit)
			return m.read(list, what, func() error { return c.List(ctx, list, opts...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			defer m.wrote(obj)
			return c.Create(ctx, obj, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			defer m.wrote(obj)
			return c.Update(ctx, obj, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			defer m.wrote(obj)
			return c.Patch(ctx, obj, patch, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			defer m.wrote(obj)
			return c.Delete(ctx, obj, opts...)
		},
		DeleteAllOf: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteAllOfOption) error {
			defer m.wrote(obj)
			return c.DeleteAllOf(ctx, obj, opts...)
		},
		Apply: func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			defer m.Forget()
			return c.Apply(ctx, obj, opts...)
		},
		SubResourceCreate: func(ctx context.Context, c client.Client, sub string, obj, body client.Object, opts ...client.SubResourceCreateOption) error {
			defer m.wrote(obj)
			return c.SubResource(sub).Create(ctx, obj, body, opts...)
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, obj client.Object, opts ...client.SubResourceUpdateOption) error {
			defer m.wrote(obj)
			return c.SubResource(sub).Update(ctx, obj, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			defer m.wrote(obj)
			return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
		},
		SubResourceApply: func(ctx context.Context, c client.Client, sub string, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
			defer m.Forget()
			return c.SubResource(sub).Apply(ctx, obj, opts...)
		},
	})
	return m
}

// Forget makes it ask for everything anew, once somebody else has written.
func (m *Memory) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all++
}

// Off makes it ask the server each time from now on, as others write what it reads.
func (m *Memory) Off() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.off = true
}

// kind of an object or of a list of such, empty if the scheme has none.
func (m *Memory) kind(obj runtime.Object) string {
	kind, err := apiutil.GVKForObject(obj, m.server.Scheme())
	if err != nil {
		return ""
	}
	return kind.Group + "/" + strings.TrimSuffix(kind.Kind, "List")
}

// wrote forgets the kind of an object. Of a write that failed it is not known what it did.
func (m *Memory) wrote(obj runtime.Object) {
	kind := m.kind(obj)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes[kind]++
	if kind == "" || kind == "/Namespace" { // what is in it may go as well
		m.all++
	}
}

// read fills into with what was read before, or reads it.
func (m *Memory) read(into runtime.Object, what string, ask func() error) error {
	kind := m.kind(into)
	what = fmt.Sprintf("%T %s %s", into, kind, what)
	m.mu.Lock()
	off, had, writes, of := m.off || kind == "", m.kept[what], m.writes[kind], m.all
	m.mu.Unlock()
	if off {
		return ask()
	}
	if (had.said != nil || had.err != nil) && had.writes == writes && had.of == of {
		if had.said != nil { // fields of it are nobody else's
			reflect.ValueOf(into).Elem().Set(reflect.ValueOf(had.said.DeepCopyObject()).Elem())
		}
		return had.err
	}
	err := ask()
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	now := answer{err: err, writes: writes, of: of}
	if err == nil {
		now.said = into.DeepCopyObject()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept[what] = now // of a write meanwhile it is too old, and not used
	return err
}
