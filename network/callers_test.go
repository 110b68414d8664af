package network

import (
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestCallers has the provider's owner name callers, and nobody again: its own agents are told, and home is not.
func TestCallers(t *testing.T) {
	w := newWorld(t)
	w.settle()
	for _, said := range []*metav1.LabelSelector{nil, {MatchLabels: map[string]string{"uses": "rome"}}, nil} {
		tenant := &v1alpha1.Tenant{}
		if err := w.raw.Get(ctx, client.ObjectKey{Name: w.milan.peer}, tenant); err != nil {
			t.Fatal(err)
		}
		before := tenant.DeepCopy()
		tenant.Spec.Callers = said
		if err := w.raw.Update(ctx, tenant); err != nil {
			t.Fatal(err)
		}
		if changed := !reflect.DeepEqual(before.Spec.Callers, said); tenantChanged().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: tenant}) != changed {
			t.Errorf("the provider says %v: seen is not %t", said, changed)
		}
		w.settle()
		if got := w.milan.pair(v1alpha1.NetworkProvider).Spec.Callers; !reflect.DeepEqual(got, said) {
			t.Errorf("the provider says %v, and its agents are told %v", said, got)
		}
		for where, n := range map[string]*v1alpha1.NetworkConfig{
			"home's own": w.rome.pair(v1alpha1.NetworkConsumer), "home's at the provider": w.milan.pair(v1alpha1.NetworkConsumer), "the provider's at home": w.rome.pair(v1alpha1.NetworkProvider),
		} {
			if n.Spec.Callers != nil {
				t.Errorf("the provider says %v, and %s has %v", said, where, n.Spec.Callers)
			}
		}
	}
	if got := public(v1alpha1.NetworkConfigSpec{Callers: &metav1.LabelSelector{}}); got.Callers != nil {
		t.Errorf("a peer is told %v", got.Callers)
	}
}

// TestCallersRefused asks the API server for words that mean nothing, and for callers that nobody has named.
func TestCallersRefused(t *testing.T) {
	w := newWorld(t)
	tenant, offloading := &v1alpha1.Tenant{}, &v1alpha1.NamespaceOffloading{}
	if err := w.raw.Get(ctx, client.ObjectKey{Name: w.milan.peer}, tenant); err != nil {
		t.Fatal(err)
	}
	for _, said := range []metav1.LabelSelector{{}, {MatchLabels: map[string]string{}}, {MatchExpressions: []metav1.LabelSelectorRequirement{}}} {
		next := tenant.DeepCopy()
		next.Spec.Callers = &said
		if err := w.raw.Update(ctx, next); err == nil || !strings.Contains(err.Error(), "callers: name at least one label") {
			t.Errorf("%+v: %v", said, err)
		}
	}
	offloading.Namespace, offloading.Name = w.rome.namespace, v1alpha1.OffloadingName
	for said, want := range map[v1alpha1.CallersPolicy]string{"Everybody": "spec.callers", v1alpha1.CallersOwn: "", v1alpha1.CallersProvider: "", "": ""} {
		next := offloading.DeepCopy()
		next.Spec.Callers = said
		err := w.raw.Create(ctx, next)
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", said, err)
		}
		if err == nil {
			if err := w.raw.Delete(ctx, next); err != nil {
				t.Fatal(err)
			}
		}
	}
}
