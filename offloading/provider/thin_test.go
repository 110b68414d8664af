package provider

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

func TestTrim(t *testing.T) {
	much := map[string]string{"a": strings.Repeat("x", keptWhole)}
	for reason, c := range map[string]struct {
		change  func(*v1alpha1.ShadowPod)
		trimmed bool
	}{
		"an ordinary one":      {change: func(*v1alpha1.ShadowPod) {}},
		"a large pod":          {change: func(s *v1alpha1.ShadowPod) { s.Spec.Pod = much["a"] }, trimmed: true},
		"large annotations":    {change: func(s *v1alpha1.ShadowPod) { s.Spec.Annotations = much }, trimmed: true},
		"large labels":         {change: func(s *v1alpha1.ShadowPod) { s.Spec.Labels = much }, trimmed: true},
		"a large status":       {change: func(s *v1alpha1.ShadowPod) { s.Status.Pod = much["a"] }, trimmed: true},
		"as large as is kept":  {change: func(s *v1alpha1.ShadowPod) { s.Spec.Pod = strings.Repeat("x", keptWhole-9) }},
		"and one byte more":    {change: func(s *v1alpha1.ShadowPod) { s.Spec.Pod = strings.Repeat("x", keptWhole-8) }, trimmed: true},
		"what has nothing yet": {change: func(s *v1alpha1.ShadowPod) { s.Status = v1alpha1.ShadowPodStatus{} }},
	} {
		s := &v1alpha1.ShadowPod{
			Spec:   v1alpha1.ShadowPodSpec{Request: "default", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}, Pod: "{}"},
			Status: v1alpha1.ShadowPodStatus{Phase: "Running", Pod: "{}xxx"},
		}
		c.change(s)
		Trim(s)
		left := len(s.Spec.Pod) + len(s.Spec.Labels) + len(s.Spec.Annotations) + len(s.Status.Pod)
		if trimmed(s) != c.trimmed || (left == 0) != c.trimmed || s.Spec.Request != "default" {
			t.Errorf("%s: %d bytes are left", reason, left)
		}
	}
}

// thinCache reads ShadowPods as the program's cache has them.
type thinCache struct{ client.WithWatch }

func (c thinCache) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	err := c.WithWatch.Get(ctx, key, obj, opts...)
	if s, ok := obj.(*v1alpha1.ShadowPod); ok {
		Trim(s)
	}
	return err
}

// counted counts what is read of ShadowPods past the cache.
type counted struct {
	client.Reader
	reads *int
}

func (c counted) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if _, ok := obj.(*v1alpha1.ShadowPod); ok {
		*c.reads++
	}
	return c.Reader.Get(ctx, key, obj, opts...)
}

// A large ShadowPod is run as any other, though the cache has not got all of it; ordinary
// ones cost no request more.
func TestLargeShadowPod(t *testing.T) {
	b := newBench(t)
	reads := 0
	b.reconciler = newReconciler(thinCache{b.c}, counted{b.c, &reads}, Options{Clock: b.clock})
	b.events = b.heard
	b.clockBack()
	live := func() string {
		b.settle()
		b.status(running)
		b.settle()
		b.want("reason", b.reason(), "True Running")
		s := b.get(b.uid)
		if !strings.Contains(s.Status.Pod, "busybox:1") || s.Status.Phase != "Running" {
			t.Errorf("it tells %s", b.show())
		}
		note := b.pod().Annotations["note"]
		b.must(b.c.Delete(t.Context(), s))
		b.settle()
		b.want("the end", b.show(), "gone")
		return note
	}
	b.shadowPod(corev1.RestartPolicyAlways)
	if live(); reads > 0 {
		t.Errorf("an ordinary one is read %d times past the cache", reads)
	}
	note := strings.Repeat("x", 16000)
	b.shadowPod(corev1.RestartPolicyAlways, func(s *v1alpha1.ShadowPod) { s.Spec.Annotations = map[string]string{"note": note, "more": "x" + note} })
	if got := live(); got != note || reads == 0 {
		t.Errorf("a large one has %d bytes of its annotation, and is read %d times", len(got), reads)
	}
}

// TestWarmUp: in its first minute this program reads past its cache what a predecessor may have seen, before
// it makes a pod of it, and no ShadowPod that is newer than that.
func TestWarmUp(t *testing.T) {
	for _, c := range []struct {
		reason string
		policy corev1.RestartPolicy
		began  time.Duration // before the ShadowPod is made
		reads  bool
	}{
		{"it began a moment ago", corev1.RestartPolicyAlways, time.Second, true},
		{"it began before any predecessor could see it", corev1.RestartPolicyAlways, clockDoubt + 2*time.Second, false},
		{"what may have ended is read at any time", corev1.RestartPolicyNever, clockDoubt + 2*time.Second, true},
	} {
		b := newBench(t)
		reads := 0
		b.reconciler = newReconciler(b.c, counted{b.c, &reads}, Options{Clock: b.clock})
		b.events = b.heard
		b.first.Do(func() { b.began = b.clock.Now().Add(-c.began) })
		b.shadowPod(c.policy)
		b.settle()
		if got := reads > 0; got != c.reads || b.pod() == nil {
			t.Errorf("%s: it is read %d times past the cache", c.reason, reads)
		}
	}
}

// How large a ShadowPod is has bounds in its schema, in bytes where characters have more
// than one.
func TestSchemaBounds(t *testing.T) {
	b := newBench(t)
	pod := func(text string, n int) string {
		const head, tail = `{"containers":[{"name":"main","args":["`, `"]}]}`
		return head + strings.Repeat(text, (n-len(head)-len(tail))/len(text)) + tail
	}
	some := strings.Repeat("x", 16382)
	for _, c := range []struct {
		reason, want string
		change       func(*v1alpha1.ShadowPodSpec)
	}{
		{"as much as there may be", "", func(s *v1alpha1.ShadowPodSpec) {
			s.Pod, s.Annotations = pod("x", 65536), map[string]string{"ab": some, "cd": some}
		}},
		{"a pod that is too long", "spec.pod: Too long: may not be more than 65536", func(s *v1alpha1.ShadowPodSpec) { s.Pod = pod("x", 65537) }},
		{"a pod that has too many bytes", "spec.pod: at most 65536 bytes", func(s *v1alpha1.ShadowPodSpec) { s.Pod = pod("é", 65540) }},
		{"too much in annotations", "spec.annotations: at most 32768 characters of keys and values together", func(s *v1alpha1.ShadowPodSpec) {
			s.Annotations = map[string]string{"ab": some, "cde": some}
		}},
	} {
		s := &v1alpha1.ShadowPod{ObjectMeta: metaOf(b.tenantSpace(), string(uuid.NewUUID())),
			Spec: v1alpha1.ShadowPodSpec{Home: v1alpha1.HomePod{Namespace: b.home, Name: "web"}, Request: "default", Pod: "{}"}}
		c.change(&s.Spec)
		err := b.c.Create(t.Context(), s, client.DryRunAll)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %.300v, want %q", c.reason, err, c.want)
		}
	}
}
