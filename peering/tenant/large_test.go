package tenant

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// spaces makes so many mapped namespaces, and something in each.
func (b *bench) spaces(count int, fill func(namespace string)) (names []string) {
	b.t.Helper()
	labels := childLabels(b.tenant())
	for i := range count {
		names = append(names, fmt.Sprintf("large-%d-%s", i, b.name))
	}
	some := func(do func(n *corev1.Namespace)) {
		var all sync.WaitGroup
		for first := range 8 {
			all.Go(func() {
				for i := first; i < count; i += 8 {
					do(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: names[i], Labels: labels}})
				}
			})
		}
		all.Wait()
	}
	b.t.Cleanup(func() {
		some(func(n *corev1.Namespace) {
			b.c.Delete(context.Background(), n)
			if b.c.Get(context.Background(), client.ObjectKeyFromObject(n), n) == nil {
				n.Spec.Finalizers = nil
				b.c.SubResource("finalize").Update(context.Background(), n)
			}
		})
	})
	some(func(n *corev1.Namespace) {
		if err := b.c.Create(b.t.Context(), n); err != nil {
			b.t.Error(err)
		}
		fill(n.Name)
	})
	return names
}

// slowLists is a client whose lists of volume claims and Secrets take 20 ms.
func (b *bench) slowLists() client.WithWatch {
	return interceptor.NewClient(b.c, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
			switch list.(type) {
			case *corev1.PersistentVolumeClaimList, *corev1.SecretList:
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(20 * time.Millisecond):
				}
			}
			return c.List(ctx, list, o...)
		},
	})
}

// looks looks until the tenant is gone, so often at most, and returns how often it did.
func (b *bench) looks(most int) int {
	b.t.Helper()
	for look := range most {
		if _, err := b.Reconcile(b.t.Context(), request(b.name)); err != nil {
			b.t.Log(err)
		}
		if b.tenant() == nil {
			if b.said("LeftBehind") {
				b.t.Error("something is said to be left")
			}
			return look + 1
		}
	}
	b.t.Fatal("the tenant does not end")
	return most
}

// well lets time pass and looks, again where the look fails, five times at most: one with a limit may be over before it
// began on a busy machine.
func (b *bench) well(after time.Duration) {
	b.t.Helper()
	b.step(after)
	for range 5 {
		_, err := b.Reconcile(b.t.Context(), request(b.name))
		if err == nil {
			b.checkStatus()
			return
		}
		b.t.Log(err)
	}
	b.t.Fatal("no look goes well")
}

// TestEndLarge: how many namespaces a tenant has holds its end up no longer than they take.
func TestEndLarge(t *testing.T) {
	t.Parallel()
	b := peered(t)
	names := b.spaces(300, func(string) {})
	b.restart(b.slowLists())
	b.limit = 8 * time.Second
	b.empty = func(context.Context, *corev1.Namespace) error { return errors.New("it goes with its namespace") }
	b.identityGoodbye()
	b.looks(10)
	for _, name := range names {
		if n := get(b, "", name, &corev1.Namespace{}); n != nil && n.DeletionTimestamp == nil {
			t.Fatalf("%s is left", name)
		}
	}
}

// TestEndLargeKept: all namespaces that are kept are emptied, though one look is too short for them and the end began
// long ago.
func TestEndLargeKept(t *testing.T) {
	t.Parallel()
	b := peered(t)
	names := b.spaces(60, func(name string) {
		b.claim(name)
		if err := b.c.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "theirs"}}); err != nil {
			t.Error(err)
		}
	})
	b.restart(b.slowLists())
	b.limit = 4 * time.Second
	b.empty = func(ctx context.Context, n *corev1.Namespace) error {
		for range 8 { // as many kinds
			list := &corev1.SecretList{}
			if err := b.live.List(ctx, list, client.InNamespace(n.Name)); err != nil {
				return err
			}
			for i := range list.Items {
				if err := b.client.Delete(ctx, &list.Items[i]); err != nil {
					return err
				}
			}
		}
		return nil
	}
	b.identityGoodbye()
	b.well(0)
	b.step(giveUpSlow)
	if n := b.looks(60); n < 2 { // each takes 4 s at most, and on a busy machine there may be many
		t.Error("one look was enough for all, which shows nothing")
	}
	for _, name := range names {
		if n := get(b, "", name, &corev1.Namespace{}); n == nil || n.DeletionTimestamp != nil || n.Labels[v1alpha1.LabelTenant] != "" {
			t.Errorf("%s is not handed over", name)
		}
		if get(b, name, "theirs", &corev1.Secret{}) != nil {
			t.Errorf("a Secret is left in %s", name)
		}
	}
}

// TestEndNotEmptied: a namespace in which something does not go is handed over when that is given up and not
// before, and holds up no other.
func TestEndNotEmptied(t *testing.T) {
	t.Parallel()
	b := peered(t)
	names := b.spaces(3, func(name string) {
		b.claim(name)
		b.arm(name)
	})
	kept := func(name string) bool {
		return get(b, "", name, &corev1.Namespace{}).Labels[v1alpha1.LabelTenant] != ""
	}
	b.empty = func(ctx context.Context, n *corev1.Namespace) error {
		if n.Name == names[0] {
			return errors.New("not yet")
		}
		return nil
	}
	b.identityGoodbye()
	b.reconcile()
	b.step(giveUpAfter - 10*time.Second)
	for look := range 2 {
		if _, err := b.Reconcile(t.Context(), request(b.name)); err == nil && look > 0 || b.tenant() == nil {
			t.Fatal("the end goes on")
		}
		if !kept(names[0]) || !b.armed(names[0]) || kept(names[1]) || kept(names[2]) {
			t.Fatal("want the first not handed over, and it alone")
		}
	}
	b.step(time.Minute)
	b.reconcile()
	if kept(names[0]) || b.armed(names[0]) || !b.said("LeftBehind could not remove all that was made for the tenant in namespace "+names[0]) {
		t.Error("it is not handed over in the end, or nobody is told")
	}
	b.wantNothingLeft()
}
