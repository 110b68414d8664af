package provider

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

var errCrash = errors.New("crashed")

// crashing fails the n-th write and all after it. If late, the n-th is done all the same:
// the answer was lost.
type crashing struct {
	left int
	late bool
}

func (c *crashing) write(do func() error) error {
	c.left--
	if c.left > 0 {
		return do()
	}
	if c.left == 0 && c.late {
		_ = do()
	}
	return errCrash
}

func (c *crashing) client(to client.WithWatch) client.WithWatch {
	return interceptor.NewClient(to, interceptor.Funcs{
		Create: func(ctx context.Context, w client.WithWatch, obj client.Object, o ...client.CreateOption) error {
			return c.write(func() error { return w.Create(ctx, obj, o...) })
		},
		Delete: func(ctx context.Context, w client.WithWatch, obj client.Object, o ...client.DeleteOption) error {
			return c.write(func() error { return w.Delete(ctx, obj, o...) })
		},
		Patch: func(ctx context.Context, w client.WithWatch, obj client.Object, p client.Patch, o ...client.PatchOption) error {
			return c.write(func() error { return w.Patch(ctx, obj, p, o...) })
		},
		SubResourcePatch: func(ctx context.Context, w client.Client, sub string, obj client.Object, p client.Patch, o ...client.SubResourcePatchOption) error {
			return c.write(func() error { return w.SubResource(sub).Patch(ctx, obj, p, o...) })
		},
	})
}

// crash settles with a program that crashes at every write in turn, done or not, and is
// started anew each time.
func (b *bench) crash() {
	b.t.Helper()
	for n := 1; n <= 4; n++ {
		for _, late := range []bool{false, true} {
			c := &crashing{left: n, late: late}
			b.restart(c.client(b.c))
			for range 8 {
				again, err := b.once(b.uid)
				if c.left <= 0 {
					break
				}
				b.must(err)
				if again > 0 && again <= writeStarting {
					b.clock.SetTime(b.clock.Now().Add(again))
				}
			}
			if pods := b.podsOf(b.uid); len(pods) > 1 {
				b.t.Fatalf("there are %d pods", len(pods))
			}
		}
	}
	b.restart(b.c)
	b.settle()
}

// A restart at any line loses nothing: no pod twice, no end forgotten.
func TestCrashes(t *testing.T) {
	for _, policy := range []corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyNever} {
		t.Run(string(policy), func(t *testing.T) {
			b := newBench(t)
			b.shadowPod(policy, func(s *v1alpha1.ShadowPod) { s.Finalizers = nil })
			b.crash()
			first := b.pod().UID
			b.want("reason", b.reason(), "True Running")
			b.bind(b.node(corev1.ConditionTrue).Name)
			b.status(running)
			b.crash()
			b.want("phase", b.get(b.uid).Status.Phase, "Running")
			b.want("pod", string(b.pod().UID), string(first))

			// Lost.
			b.must(b.c.Delete(t.Context(), b.pod()))
			b.crash()
			b.kubeletDone()
			b.crash()
			if policy == corev1.RestartPolicyNever {
				b.noPod()
				b.want("phase", b.get(b.uid).Status.Phase, "Failed")
			} else {
				if b.pod().UID == first {
					t.Fatal("it was not made again")
				}
				if s := b.get(b.uid); s.Status.Replaced != 1 {
					t.Errorf("replaced is %d, want 1", s.Status.Replaced)
				}
			}
			b.must(b.c.Delete(t.Context(), b.get(b.uid)))
			b.crash()
			b.want("the shadow pod", b.show(), "gone")
			b.noPod()
		})
	}
}

// The end of a pod is written before anything else, whatever fails.
func TestCrashesAtTheEnd(t *testing.T) {
	for n := 1; n <= 3; n++ {
		for _, late := range []bool{false, true} {
			b := newBench(t)
			b.shadowPod(corev1.RestartPolicyNever)
			b.settle()
			b.bind(b.node(corev1.ConditionTrue).Name)
			b.status(endedAs(corev1.PodSucceeded, 0, time.Now().Add(-time.Minute)))
			c := &crashing{left: n, late: late}
			b.restart(c.client(b.c))
			for range 4 {
				_, _ = b.once(b.uid)
				if s, pods := b.get(b.uid), b.podsOf(b.uid); !final(s) && (len(pods) == 0 || !pinnedByUs(&pods[0])) {
					t.Fatalf("crash %d: the pod was let go before its end was told", n)
				}
			}
			for _, pod := range b.podsOf(b.uid) { // cleaned up while nobody looks
				b.must(b.c.Delete(t.Context(), &pod))
			}
			b.restart(b.c)
			b.settle()
			b.want("phase", b.get(b.uid).Status.Phase, "Succeeded")
			b.noPod()
		}
	}
}

// Somebody who writes at the same time is not overwritten, and is no error.
func TestConflict(t *testing.T) {
	b := newBench(t)
	b.shadowPod(corev1.RestartPolicyNever)
	b.settle()
	b.bind(b.node(corev1.ConditionTrue).Name)
	b.status(endedAs(corev1.PodSucceeded, 0, time.Now()))
	meddle := true
	b.restart(interceptor.NewClient(b.c, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, w client.Client, sub string, obj client.Object, p client.Patch, o ...client.SubResourcePatchOption) error {
			if meddle {
				meddle = false
				change := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"x":"y"}}}`))
				b.must(b.c.Patch(ctx, b.get(b.uid), change))
			}
			return w.SubResource(sub).Patch(ctx, obj, p, o...)
		},
	}))
	again, err := b.once(b.uid)
	b.must(err)
	if again != turnAgain || !pinnedByUs(b.pod()) {
		t.Fatalf("looks again in %s; the pod was let go: %t", again, !pinnedByUs(b.pod()))
	}
	b.settle()
	b.want("phase", b.get(b.uid).Status.Phase, "Succeeded")
}

// TestReleasedOnce holds that a ShadowPod that the cache shows after it was let go is not let go again at
// once, but is after a while.
func TestReleasedOnce(t *testing.T) {
	b := newBench(t)
	b.shadowPod(corev1.RestartPolicyAlways)
	b.settle()
	patches := 0
	var shown *v1alpha1.ShadowPod // by the cache; what there is if nil
	b.restart(interceptor.NewClient(b.c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if s, ok := obj.(*v1alpha1.ShadowPod); ok && shown != nil {
				shown.DeepCopyInto(s)
				return nil
			}
			return c.Get(ctx, key, obj, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, opts ...client.PatchOption) error {
			if _, ok := obj.(*v1alpha1.ShadowPod); ok {
				if patches++; shown == nil {
					shown = b.get(b.uid)
				}
			}
			return c.Patch(ctx, obj, p, opts...)
		},
	}))
	b.must(b.c.Delete(context.Background(), b.get(b.uid)))
	for range 20 {
		if shown != nil {
			break
		}
		_, err := b.once(b.uid)
		b.must(err)
		b.clock.SetTime(b.clock.Now().Add(time.Second))
	}
	b.noPod()
	b.clock.SetTime(b.clock.Now().Add(-time.Second))
	if again, err := b.once(b.uid); err != nil || again != releaseAgain || patches != 1 {
		t.Errorf("let go %d times, again after %s, %v", patches, again, err)
	}
	b.clock.SetTime(b.clock.Now().Add(releaseAgain))
	if _, err := b.once(b.uid); err != nil || patches != 2 {
		t.Errorf("later let go %d times, %v", patches, err)
	}
}
