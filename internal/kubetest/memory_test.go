package kubetest

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ledger is a server that counts what it is asked. Its Secrets have the number of writes for a name.
type ledger struct {
	client.WithWatch
	asked, writes int
	err           error
	meanwhile     func()
}

func (l *ledger) Scheme() *runtime.Scheme { return Scheme() }

func (l *ledger) version() string { return string(rune('a' + l.writes)) }

func (l *ledger) Get(_ context.Context, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	l.asked++
	obj.SetResourceVersion(l.version())
	obj.SetLabels(map[string]string{"a": "b"})
	if l.meanwhile != nil {
		l.meanwhile()
	}
	return l.err
}

func (l *ledger) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	l.asked++
	list.SetResourceVersion(l.version())
	return l.err
}

func (l *ledger) wrote() error {
	l.writes++
	return l.err
}

func (l *ledger) Create(context.Context, client.Object, ...client.CreateOption) error {
	return l.wrote()
}
func (l *ledger) Update(context.Context, client.Object, ...client.UpdateOption) error {
	return l.wrote()
}
func (l *ledger) Delete(context.Context, client.Object, ...client.DeleteOption) error {
	return l.wrote()
}
func (l *ledger) DeleteAllOf(context.Context, client.Object, ...client.DeleteAllOfOption) error {
	return l.wrote()
}
func (l *ledger) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	return l.wrote()
}
func (l *ledger) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	return l.wrote()
}
func (l *ledger) SubResource(string) client.SubResourceClient { return &subLedger{of: l} }
func (l *ledger) Status() client.SubResourceWriter            { return l.SubResource("status") }

// subLedger is a subresource of it.
type subLedger struct {
	client.SubResourceClient
	of *ledger
}

func (l *subLedger) Create(context.Context, client.Object, client.Object, ...client.SubResourceCreateOption) error {
	return l.of.wrote()
}
func (l *subLedger) Update(context.Context, client.Object, ...client.SubResourceUpdateOption) error {
	return l.of.wrote()
}
func (l *subLedger) Patch(context.Context, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
	return l.of.wrote()
}
func (l *subLedger) Apply(context.Context, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
	return l.of.wrote()
}

// TestMemory asks once for what nobody has written since, and anew after every kind of write.
func TestMemory(t *testing.T) {
	l := &ledger{}
	m := Remember(l)
	ctx := t.Context()
	asks := func(reason string, want int, look func() (version string)) {
		t.Helper()
		before := l.asked
		version := look()
		if got := l.asked - before; got != want || version != l.version() {
			t.Errorf("%s: it asks %d times and says %q, want %d and %q", reason, got, version, want, l.version())
		}
	}
	secret := func(name string) func() string {
		return func() string {
			s := &corev1.Secret{}
			if err := m.Get(ctx, client.ObjectKey{Namespace: "a", Name: name}, s); err != nil {
				t.Fatal(err)
			}
			s.Labels["a"] = "changed by who reads it"
			if s = (&corev1.Secret{}); m.Get(ctx, client.ObjectKey{Namespace: "a", Name: name}, s) != nil || s.Labels["a"] != "b" {
				t.Error("who reads it again sees what another one did to it")
			}
			return s.ResourceVersion
		}
	}
	pods := func(opts ...client.ListOption) func() string {
		return func() string {
			list := &corev1.PodList{}
			if err := m.List(ctx, list, opts...); err != nil {
				t.Fatal(err)
			}
			return list.ResourceVersion
		}
	}
	asks("the first time", 1, secret("x"))
	asks("another one", 1, secret("y"))
	asks("again", 0, secret("x"))
	asks("a list", 1, pods())
	asks("again", 0, pods())
	asks("of a namespace", 1, pods(client.InNamespace("a")))
	asks("of labels", 1, pods(client.MatchingLabels{"a": "b"}))
	asks("of others", 1, pods(client.MatchingLabels{"a": "c"}))
	asks("of fields", 1, pods(client.MatchingFields{"a": "c"}))
	asks("some of them", 1, pods(client.Limit(1)))
	asks("as they were", 1, pods(&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "7"}}))
	of := &corev1.Pod{}
	for reason, write := range map[string]func() error{
		"created": func() error { return m.Create(ctx, of) }, "updated": func() error { return m.Update(ctx, of) },
		"deleted": func() error { return m.Delete(ctx, of) }, "all deleted": func() error { return m.DeleteAllOf(ctx, of) },
		"patched": func() error { return m.Patch(ctx, of, client.MergeFrom(of)) }, "applied": func() error { return m.Apply(ctx, nil) },
		"its status updated": func() error { return m.Status().Update(ctx, of) }, "its status patched": func() error { return m.Status().Patch(ctx, of, client.MergeFrom(of)) },
		"bound": func() error { return m.SubResource("binding").Create(ctx, of, of) }, "its status applied": func() error { return m.Status().Apply(ctx, nil) },
		"its namespace deleted": func() error { return m.Delete(ctx, &corev1.Namespace{}) },
		"by somebody else":      func() error { l.writes++; m.Forget(); return nil },
	} {
		for _, l.err = range []error{nil, errors.New("of which nobody knows what it did")} {
			_ = write()
			l.err = nil
			asks(reason, 1, pods())
		}
	}
	_ = secret("x")()
	was := l.writes
	_ = m.Update(ctx, of)
	l.writes = was // of Secrets
	asks("another kind was written", 0, secret("x"))
	thing := &metav1.PartialObjectMetadata{}
	for _, kind := range []string{"Secret", "Service"} {
		thing.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: kind})
		asks("only what is said of it, of a "+kind, 1, func() string { _ = m.Get(ctx, client.ObjectKey{Name: "x"}, thing); return thing.ResourceVersion })
	}

	l.err = apierrors.NewNotFound(schema.GroupResource{}, "z")
	gone := func() string {
		if err := m.Get(ctx, client.ObjectKey{Name: "z"}, &corev1.Secret{}); !apierrors.IsNotFound(err) {
			t.Errorf("of what is not there: %v", err)
		}
		return l.version()
	}
	asks("what is not there", 1, gone)
	asks("what is not there, again", 0, gone)
	l.err = errors.New("the server is away")
	for range 2 {
		asks("the server is away", 1, func() string { _ = m.Get(ctx, client.ObjectKey{Name: "w"}, &corev1.Secret{}); return l.version() })
	}
	l.err = nil

	l.meanwhile = func() { l.meanwhile = nil; _ = m.Update(ctx, &corev1.Secret{}) }
	_ = m.Get(ctx, client.ObjectKey{Namespace: "a", Name: "v"}, &corev1.Secret{}) // of before or after it
	asks("it was written while it was read", 1, secret("v"))
	m.Off()
	asks("without a memory", 2, secret("x"))
}
