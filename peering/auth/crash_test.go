package auth

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

var errKilled = errors.New("killed")

// killer fails one of the writes of a handshake and everything after it, as if the
// program had died there: before the write or after it, when nobody hears the answer.
type killer struct {
	at    int // which write, from 1; 0 lets all pass
	after bool
	seen  []string
	dead  bool
}

func (k *killer) write(what string, do func() error) error {
	if k.dead {
		return errKilled
	}
	k.seen = append(k.seen, what)
	if len(k.seen) != k.at {
		return do()
	}
	k.dead = true
	if k.after {
		if err := do(); err != nil {
			return err
		}
	}
	return errKilled
}

func (k *killer) client(inner client.WithWatch) client.WithWatch {
	return interceptor.NewClient(inner, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return k.write(fmt.Sprintf("create %T", obj), func() error { return c.Create(ctx, obj, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return k.write(fmt.Sprintf("delete %T", obj), func() error { return c.Delete(ctx, obj, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, opts ...client.PatchOption) error {
			return k.write(fmt.Sprintf("patch %T", obj), func() error { return c.Patch(ctx, obj, p, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return k.write(fmt.Sprintf("patch %s of %T", sub, obj), func() error { return c.SubResource(sub).Patch(ctx, obj, p, opts...) })
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, obj client.Object, opts ...client.SubResourceUpdateOption) error {
			return k.write(fmt.Sprintf("update %s of %T", sub, obj), func() error { return c.SubResource(sub).Update(ctx, obj, opts...) })
		},
		SubResourceCreate: func(ctx context.Context, c client.Client, sub string, obj, body client.Object, opts ...client.SubResourceCreateOption) error {
			return k.write(fmt.Sprintf("create %s of %T", sub, obj), func() error { return c.SubResource(sub).Create(ctx, obj, body, opts...) })
		},
	})
}

// rebuilt is the handshake of a program that has just started.
func (w *world) rebuilt(direct client.WithWatch) *handshake {
	o := Options{Home: w.home, Direct: direct, Clock: w.shake.clock}
	return newHandshake(o, w.shake.invitations, w.events, w.shake.metrics)
}

// TestKilled dies at every write of a handshake, before it and after it. The consumer
// repeats its request until it is answered, and nothing is there twice.
func TestKilled(t *testing.T) {
	t.Parallel()
	for _, kind := range []v1alpha1.CredentialType{v1alpha1.CredentialCertificate, v1alpha1.CredentialToken} {
		w := newWorld(t)
		w.home.config.Identity.Type = kind
		counter := &killer{}
		token, _ := w.invite()
		if _, err := w.rebuilt(counter.client(w.client)).run(w.ctx, newConsumer(t, w.name("counted")).applicant(t, token)); err != nil {
			t.Fatal(err)
		}
		for n, step := range counter.seen {
			for _, after := range []bool{false, true} {
				name := fmt.Sprintf("%s/%d %s, after %t", kind, n+1, step, after)
				t.Run(name, func(t *testing.T) { w.kill(t, kind, n, after) })
			}
		}
	}
}

func (w *world) kill(t *testing.T, kind v1alpha1.CredentialType, n int, after bool) {
	token, i := w.invite()
	rome := newConsumer(t, w.name(fmt.Sprintf("k%d%t", n, after)))
	k := &killer{at: n + 1, after: after}
	if got, err := w.rebuilt(k.client(w.client)).run(w.ctx, rome.applicant(t, token)); !errors.Is(err, errKilled) {
		t.Fatalf("was not killed: %v, %v", got, err)
	}
	got, err := w.rebuilt(w.client).run(w.ctx, rome.applicant(t, token))
	if err != nil {
		t.Fatalf("the repeated request: %v", err)
	}
	if kind == v1alpha1.CredentialCertificate && got.Status.Certificate == "" || kind == v1alpha1.CredentialToken && got.Token == "" {
		t.Error("no credential")
	}
	if tenants, ids, csrs := w.leftovers(rome); tenants != 1 || ids != 1 || csrs != 0 {
		t.Errorf("%d tenants, %d identities, %d signing requests; want 1, 1, 0", tenants, ids, csrs)
	}
	if err := w.client.Get(w.ctx, client.ObjectKeyFromObject(i), i); err != nil || i.Status.Tenant == "" || i.Status.BoundTo.ClusterID != rome.spec.Cluster.ID {
		t.Errorf("the invitation says %+v, %v", i.Status, err)
	}
}
