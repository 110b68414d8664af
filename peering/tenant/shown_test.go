package tenant

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// madeUp are a hundred resources that there are nowhere.
func madeUp() (names []string) {
	for i := range 100 {
		names = append(names, fmt.Sprintf("a%02d.example.com/none", i))
	}
	return names
}

// A tenant chooses neither what is told of it nor how much.
func TestShown(t *testing.T) {
	names := madeUp()
	used := amounts("cpu", "2", "memory", "1Gi", "pods", "3", "ephemeral-storage", "1Gi", "z.example.com/gpu", "1", "z.example.com/limited", "4")
	for _, name := range names {
		used[name] = resource.MustParse("1")
	}
	limits := func(names ...string) *v1alpha1.TenantLimits {
		l := &v1alpha1.TenantLimits{Resources: v1alpha1.ResourceList{}}
		for _, name := range names {
			l.Resources[name] = resource.MustParse("9")
		}
		return l
	}
	for _, c := range []struct {
		reason string
		limits *v1alpha1.TenantLimits
		nodes  []string
		want   []string
		count  int
	}{
		{"what every cluster has", nil, nil, []string{"cpu", "memory", "pods", "ephemeral-storage"}, 4},
		{"what nodes have", nil, []string{"cpu", "not.example.com/used", "z.example.com/gpu"}, []string{"cpu", "z.example.com/gpu"}, 5},
		{"what has a limit", limits("z.example.com/limited", names[7]), nil, []string{"pods", "z.example.com/limited", names[7]}, 6},
		{"no more than a list may hold, limits first", limits(append(names[:63:63], "z.example.com/limited")...), names, []string{"z.example.com/limited"}, 64},
		{"no more of nodes either", nil, names, []string{"cpu"}, 64},
	} {
		got := shown(used, c.limits, func() []string { return c.nodes })
		if len(got) != c.count {
			t.Errorf("%s: %d are told, want %d", c.reason, len(got), c.count)
		}
		for _, name := range c.want {
			if amount, there := got[name]; !there || amount.Cmp(used[name]) != 0 {
				t.Errorf("%s: %s is %v, want %v", c.reason, name, got[name], used[name])
			}
		}
	}
}

// Whatever pods ask for, the status of their tenant is written, with what this cluster's nodes have.
func TestMadeUpResources(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.settle()
	gpu := corev1.ResourceName(b.name + ".example.com/gpu")
	for name, virtual := range map[string]bool{b.name: false, b.name + "-virtual": true} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		has := gpu
		if virtual {
			node.Labels = map[string]string{v1alpha1.LabelType: v1alpha1.TypeVirtualNode}
			has = corev1.ResourceName(madeUp()[0])
		}
		if err := b.c.Create(t.Context(), node); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.c.Delete(context.Background(), node) })
		node.Status.Capacity = corev1.ResourceList{has: resource.MustParse("8")}
		if err := b.c.Status().Update(t.Context(), node); err != nil {
			t.Fatal(err)
		}
	}
	p := running("x", "a", "1", "1500m")
	for _, name := range append(madeUp(), string(gpu)) {
		p.Spec.Containers[0].Resources.Requests[corev1.ResourceName(name)] = resource.MustParse("1")
	}
	b.usage.SetNamespace("x", b.name)
	b.usage.SetPod(p)
	b.reconcile()
	if got, want := b.tenant().Status.Used, amounts("cpu", "1500m", "pods", "1", string(gpu), "1"); !sameList(got, want) {
		t.Errorf("used %v, want %v", got, want)
	}
	if sum, _ := b.usage.Used(b.name); len(sum) != 103 {
		t.Errorf("limits go by %d sums, want all", len(sum))
	}
	b.gauges.mu.Lock()
	defer b.gauges.mu.Unlock()
	for name := range b.gauges.tenants[b.name].used {
		if slices.Contains(madeUp(), name) {
			t.Errorf("there is a series of %s", name)
		}
	}
}
