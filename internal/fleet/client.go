package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// newClient returns a client that reads from the peer and not from a cache, waits
// for no rate limit of its own and ends every call after callTimeout. What it writes is
// refused if it has a field that the peer's definitions lack: a peer that is older must
// not drop one silently.
func newClient(url string, hc *http.Client, scheme *runtime.Scheme) (client.Client, error) {
	config := &rest.Config{Host: url, QPS: -1, WarningHandler: rest.NoWarnings{}}
	c, err := client.New(config, client.Options{HTTPClient: hc, Scheme: scheme, Mapper: mapper(scheme)})
	if err != nil {
		return nil, err
	}
	b, err := newBrief(config, hc, scheme)
	if err != nil {
		return nil, err
	}
	return bounded{client.WithFieldValidation(c, metav1.FieldValidationStrict), b}, nil
}

// mapper knows all kinds of the scheme without asking the peer. A consumer sees
// nothing at a provider but its tenant namespace, so every kind is in a namespace.
func mapper(scheme *runtime.Scheme) meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(scheme.PreferredVersionAllGroups())
	for gvk := range scheme.AllKnownTypes() {
		v1alpha1.AddKind(m, gvk, meta.RESTScopeNamespace)
	}
	return m
}

// bounded is a client whose calls end, retries included.
type bounded struct {
	client.Client
	brief *brief
}

func within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, callTimeout)
}

// Get reads an object.
func (b bounded) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	ctx, cancel := within(ctx)
	defer cancel()
	return b.Client.Get(ctx, key, obj, opts...)
}

// List reads objects.
func (b bounded) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	ctx, cancel := within(ctx)
	defer cancel()
	return b.Client.List(ctx, list, opts...)
}

// Apply applies an object.
func (b bounded) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	ctx, cancel := within(ctx)
	defer cancel()
	return b.Client.Apply(ctx, obj, opts...)
}

// Create makes an object. Of one of Pelago's own kinds only the metadata becomes what the
// peer has.
func (b bounded) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	ctx, cancel := within(ctx)
	defer cancel()
	_, untyped := obj.(runtime.Unstructured) // may hold more than its type knows
	if resource := b.brief.resource(b.Client, obj); resource != "" && !untyped {
		return older(b.brief.create(ctx, resource, obj, opts))
	}
	return older(b.Client.Create(ctx, obj, opts...))
}

// Delete removes an object.
func (b bounded) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	ctx, cancel := within(ctx)
	defer cancel()
	if resource := b.brief.resource(b.Client, obj); resource != "" {
		return b.brief.delete(ctx, resource, obj, opts)
	}
	return b.Client.Delete(ctx, obj, opts...)
}

// Update replaces an object.
func (b bounded) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	ctx, cancel := within(ctx)
	defer cancel()
	return b.Client.Update(ctx, obj, opts...)
}

// Patch changes an object. One of Pelago's own kinds stays here as it was given: the watch
// tells what became of it.
func (b bounded) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	ctx, cancel := within(ctx)
	defer cancel()
	if resource := b.brief.resource(b.Client, obj); resource != "" {
		return older(b.brief.patch(ctx, resource, obj, patch, opts))
	}
	return older(b.Client.Patch(ctx, obj, patch, opts...))
}

// ErrOlder says that a peer's definitions lack a field that was written.
var ErrOlder = errors.New("the peer runs an older build, whose definitions lack a field that this one writes: ask its owner to upgrade")

// older puts a refusal for a field that is not known into few words: an API server's own
// ones repeat the whole object.
func older(err error) error {
	if err == nil || !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
		return err
	}
	_, field, found := strings.Cut(err.Error(), "strict decoding error: ")
	if !found {
		return err
	}
	return fmt.Errorf("%w: %.200q: %w", ErrOlder, field, apierrors.NewBadRequest("field not known"))
}

// DeleteAllOf removes objects.
func (b bounded) DeleteAllOf(ctx context.Context, obj client.Object, opts ...client.DeleteAllOfOption) error {
	ctx, cancel := within(ctx)
	defer cancel()
	return b.Client.DeleteAllOf(ctx, obj, opts...)
}

// Status writes the status of objects.
func (b bounded) Status() client.SubResourceWriter { return b.SubResource("status") }

// SubResource reads and writes a part of objects.
func (b bounded) SubResource(name string) client.SubResourceClient {
	return boundedPart{b.Client.SubResource(name)}
}

// boundedPart is bounded for a part of objects.
type boundedPart struct{ client.SubResourceClient }

// Get reads the part.
func (b boundedPart) Get(ctx context.Context, obj, part client.Object, opts ...client.SubResourceGetOption) error {
	ctx, cancel := within(ctx)
	defer cancel()
	return b.SubResourceClient.Get(ctx, obj, part, opts...)
}

// Create makes the part.
func (b boundedPart) Create(ctx context.Context, obj, part client.Object, opts ...client.SubResourceCreateOption) error {
	ctx, cancel := within(ctx)
	defer cancel()
	return b.SubResourceClient.Create(ctx, obj, part, opts...)
}

// Update replaces the part.
func (b boundedPart) Update(ctx context.Context, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	ctx, cancel := within(ctx)
	defer cancel()
	return b.SubResourceClient.Update(ctx, obj, opts...)
}

// Patch changes the part.
func (b boundedPart) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	ctx, cancel := within(ctx)
	defer cancel()
	return b.SubResourceClient.Patch(ctx, obj, patch, opts...)
}

// Apply applies the part.
func (b boundedPart) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
	ctx, cancel := within(ctx)
	defer cancel()
	return b.SubResourceClient.Apply(ctx, obj, opts...)
}
