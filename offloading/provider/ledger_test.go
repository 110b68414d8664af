package provider

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// places are limits by number: so many pods, of which some are counted.
type places struct {
	mu      sync.Mutex
	most    int
	counted map[types.UID]bool
	early   bool
}

func (p *places) Check(_ *v1alpha1.Tenant, pending []*corev1.Pod, old, _ *corev1.Pod) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.early:
		return ErrNotCounted
	case old != nil:
		return nil
	case len(p.counted)+len(pending) >= p.most:
		return fmt.Errorf("at most %d pods", p.most)
	}
	return nil
}

func (p *places) Counts(pod *corev1.Pod) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counted[pod.UID]
}

func (p *places) count(uids ...types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, uid := range uids {
		p.counted[uid] = true
	}
}

func limited(name string) *v1alpha1.Tenant {
	return &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.TenantSpec{TenantTerms: v1alpha1.TenantTerms{Limits: &v1alpha1.TenantLimits{}}}}
}

func TestLedger(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(noon)
	limits := &places{most: 2, counted: map[types.UID]bool{}}
	l := newLedger(limits, clock)
	tenant := limited("rome")
	key := func(n string) types.NamespacedName { return types.NamespacedName{Name: n} }
	pod := func(uid string) *corev1.Pod { return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}} }
	want := func(what string, got, want error) {
		t.Helper()
		if !errors.Is(got, want) {
			t.Fatalf("%s: got %v, want %v", what, got, want)
		}
	}
	limits.early = true
	want("too early", l.reserve(tenant, key("a"), nil, pod("")), ErrNotCounted)
	limits.early = false
	want("first", l.reserve(tenant, key("a"), nil, pod("")), nil)
	want("first again", l.reserve(tenant, key("a"), nil, pod("")), nil)
	want("second", l.reserve(tenant, key("b"), nil, pod("")), nil)
	want("third", l.reserve(tenant, key("c"), nil, pod("")), errBusy)
	want("another tenant", l.reserve(limited("milan"), key("c"), nil, pod("")), nil)
	want("no limits", l.reserve(&v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "rome"}}, key("d"), nil, pod("")), nil)
	l.cancel("rome", key("b"))
	want("given back", l.reserve(tenant, key("c"), nil, pod("")), nil)
	want("created", l.confirm(tenant, key("a"), pod(""), pod("1")), nil)
	want("created", l.confirm(tenant, key("c"), pod(""), pod("3")), nil)
	want("not counted yet", l.reserve(tenant, key("d"), nil, pod("")), errBusy)
	limits.count("1", "3")
	if err := l.reserve(tenant, key("d"), nil, pod("")); err == nil || errors.Is(err, errBusy) {
		t.Fatalf("all is counted and there is no room, but the answer is %v", err)
	}
	if len(l.held["rome"]) != 0 {
		t.Errorf("%d places are still held", len(l.held["rome"]))
	}
	limits.most = 3
	want("one more", l.reserve(tenant, key("d"), nil, pod("")), nil)
	want("in its way", l.reserve(tenant, key("e"), nil, pod("")), errBusy)
	clock.SetTime(noon.Add(heldFor))
	want("never came", l.reserve(tenant, key("e"), nil, pod("")), nil)
}

// What the API server's defaults add counts.
func TestLedgerConfirmsWhatWasStored(t *testing.T) {
	limits := &places{most: 1, counted: map[types.UID]bool{}}
	l := newLedger(limits, clocktesting.NewFakePassiveClock(noon))
	tenant, key := limited("rome"), types.NamespacedName{Name: "a"}
	made := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{}}}}
	stored := made.DeepCopy()
	stored.UID = "1"
	if err := l.reserve(tenant, key, nil, made); err != nil {
		t.Fatal(err)
	}
	limits.most = 0 // stands for: what was stored is too much
	if err := l.confirm(tenant, key, made, stored); err != nil {
		t.Errorf("a pod that is stored as it was made is refused: %v", err)
	}
	stored.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	if err := l.confirm(tenant, key, made, stored); err == nil {
		t.Error("a pod that has become too large is accepted")
	}
	made.Spec.Containers[0].Resources.Limits = stored.Spec.Containers[0].Resources.Requests
	if err := l.confirm(tenant, key, made, stored); err != nil {
		t.Errorf("requests that follow from limits are no surprise: %v", err)
	}
}

// Many pods at once and few places: exactly so many are made.
func TestLastPlace(t *testing.T) {
	b := newBench(t)
	limits := &places{most: 3, counted: map[types.UID]bool{}}
	b.limits = limits
	b.restart(b.c)
	tenant := &v1alpha1.Tenant{}
	b.must(b.c.Get(t.Context(), client.ObjectKey{Name: b.tenant}, tenant))
	tenant.Spec.Limits = &v1alpha1.TenantLimits{Enforcement: v1alpha1.EnforcementNone}
	b.must(b.c.Update(t.Context(), tenant))
	var uids []string
	for i := range 8 {
		uids = append(uids, b.shadowPod(corev1.RestartPolicyAlways, func(s *v1alpha1.ShadowPod) { s.Spec.Home.Name = fmt.Sprintf("web-%d", i) }).Name)
	}
	r := b.reconciler
	var group sync.WaitGroup
	for _, uid := range uids {
		group.Add(1)
		go func() {
			defer group.Done()
			if _, err := r.Reconcile(t.Context(), b.key(uid)); err != nil {
				t.Errorf("Reconcile: %v", err)
			}
		}()
	}
	group.Wait()
	made := 0
	for _, uid := range uids {
		for _, pod := range b.podsOf(uid) {
			made++
			limits.count(pod.UID)
		}
	}
	if made != 3 {
		t.Fatalf("%d pods were made, want 3", made)
	}
	refused, one := 0, ""
	for _, uid := range uids {
		b.clock.SetTime(b.clock.Now().Add(heldFor))
		b.settle(uid)
		b.uid = uid
		if b.reason() == "False LimitExceeded" {
			refused++
			one = uid
		}
	}
	if refused != 5 {
		t.Fatalf("%d were refused, want 5", refused)
	}
	// As long as there is none, nobody is asked.
	b.uid = one
	asked := 0
	b.live = interceptor.NewClient(b.c, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		asked++
		return c.Get(ctx, key, o, opts...)
	}})
	b.clock.SetTime(b.clock.Now().Add(refusedAgain + time.Second))
	b.settle()
	b.want("without room", b.reason(), "False LimitExceeded")
	if asked > 0 {
		t.Errorf("the API server was asked %d times about a pod for which there is no room", asked)
	}
	// Room appears.
	limits.mu.Lock()
	limits.most = 4
	limits.mu.Unlock()
	b.clock.SetTime(b.clock.Now().Add(refusedAgain + time.Second))
	b.settle()
	b.want("with more room", b.reason(), "True Running")
}
