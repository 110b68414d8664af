package fleet

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestLargestPatches holds that the largest objects that are legitimate can be made and changed, though
// they cost more than the answer of a call may.
func TestLargestPatches(t *testing.T) {
	s := newStage(t)
	p := s.connect(t)
	spaces, made := map[string]v1alpha1.NamespaceMapping{}, map[string]v1alpha1.MappedNamespace{}
	for i := range 512 {
		made[fmt.Sprint("namespace-", i)] = v1alpha1.MappedNamespace{
			Name: fmt.Sprint("remote-", i), Phase: v1alpha1.MappingRefused, Reason: v1alpha1.ReasonNameTaken, Message: strings.Repeat("x", 200), Onward: true,
		}
		spaces[fmt.Sprint("namespace-", i)] = v1alpha1.NamespaceMapping{
			Strategy: v1alpha1.MappingSelectedName, RemoteName: fmt.Sprint("remote-", i), Onward: v1alpha1.OnwardAllow,
			OriginNamespace: "shop", OriginOwner: "0123456789abcdef", Domain: "cluster.local",
		}
	}
	named := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: p.TenantNamespace(), Name: name}
	}
	for kind, o := range map[string]client.Object{
		"NetworkRules": &v1alpha1.NetworkRules{ObjectMeta: named(v1alpha1.NetworkRulesName("shop", 0)), Spec: largestRules()},
		"NamespaceMap": &v1alpha1.NamespaceMap{ObjectMeta: named(v1alpha1.NamespaceMapName), Spec: v1alpha1.NamespaceMapSpec{Namespaces: spaces}},
	} {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			t.Fatal(err)
		}
		delete(fields, "status")
		u := &unstructured.Unstructured{Object: fields}
		u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
		if kind == "NetworkRules" {
			err = p.Client().Create(t.Context(), o)
		} else if err = p.Client().Create(t.Context(), u); err == nil {
			u.Object["status"] = map[string]any{"namespaces": made}
			err = s.client.Status().Update(t.Context(), u)
		}
		if err != nil {
			t.Errorf("making %s: %v", kind, err)
		}
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`))
		if err := p.Client().Patch(t.Context(), o, patch); err != nil {
			t.Errorf("changing %s: %v", kind, err)
		}
		if err := s.client.Get(t.Context(), client.ObjectKeyFromObject(u), u); err != nil || u.GetLabels()["a"] != "b" {
			t.Errorf("%s is not as it was written: %v", kind, err)
		}
		if text, err := json.Marshal(u); err != nil || cost(text) <= maxCallCost {
			t.Errorf("%s is not large: it costs %d, %v", kind, cost(text), err)
		}
	}
}

// largestRules are as much as may be in one object, and costs most.
func largestRules() v1alpha1.NetworkRulesSpec {
	spec := v1alpha1.NetworkRulesSpec{Namespace: "shop", Shards: 1, Revision: strings.Repeat("0", 16)}
	rule := v1alpha1.NetworkRule{Policy: "allow-web", Direction: v1alpha1.NetworkIngress, Protocol: "TCP", AnyPeer: true}
	for i := range int32(v1alpha1.MaxNetworkPorts) {
		rule.Ports = append(rule.Ports, v1alpha1.NetworkPortRange{First: 8000 + 2*i, Last: 8000 + 2*i})
	}
	pod := v1alpha1.NetworkRulesPod{Addresses: []string{"10.42.0.1"}, Isolated: []v1alpha1.NetworkDirection{v1alpha1.NetworkIngress}}
	for i := range int32(v1alpha1.MaxNetworkRulesSize / rule.Size()) {
		spec.Rules = append(spec.Rules, rule)
		pod.Selected, pod.PeerOf = append(pod.Selected, i), append(pod.PeerOf, i)
	}
	for range v1alpha1.MaxNetworkRulesSize / pod.Size() {
		spec.Pods = append(spec.Pods, pod)
	}
	return spec
}
