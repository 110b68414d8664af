package network

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// TestRulesKind holds what an API server refuses of NetworkRules, whoever writes them.
func TestRulesKind(t *testing.T) {
	server := kubetest.Server(t)
	c, namespace := server.Client(t), server.Namespace(t)
	for reason, spoil := range map[string]func(o *v1alpha1.NetworkRules){
		"":                          func(*v1alpha1.NetworkRules) {},
		"metadata.name: must be":    func(o *v1alpha1.NetworkRules) { o.Name = "shop" },
		"spec.shard: must be less":  func(o *v1alpha1.NetworkRules) { o.Spec.Shard, o.Name = 2, "shop.2" },
		"must be in shard 0":        func(o *v1alpha1.NetworkRules) { o.Spec.Shard, o.Name = 1, "shop.1" },
		"spec.shards":               func(o *v1alpha1.NetworkRules) { o.Spec.Shards = v1alpha1.MaxNetworkShards + 1 },
		"spec.revision":             func(o *v1alpha1.NetworkRules) { o.Spec.Revision = "latest" },
		"exactly one must be given": func(o *v1alpha1.NetworkRules) { o.Spec.Pods[0].Addresses = []string{"10.0.0.1"} },
		"spec.pods: Too many": func(o *v1alpha1.NetworkRules) {
			for i := range v1alpha1.MaxNetworkPods {
				o.Spec.Pods = append(o.Spec.Pods, v1alpha1.NetworkRulesPod{UID: fmt.Sprint(i)})
			}
		},
		"spec.rules: Too many": func(o *v1alpha1.NetworkRules) {
			for range v1alpha1.MaxNetworkRules {
				o.Spec.Rules = append(o.Spec.Rules, o.Spec.Rules[0])
			}
		},
		"spec.rules[0].ports: Too many": func(o *v1alpha1.NetworkRules) {
			for range v1alpha1.MaxNetworkPorts {
				o.Spec.Rules[0].Ports = append(o.Spec.Rules[0].Ports, o.Spec.Rules[0].Ports[0])
			}
		},
		"spec.rules[0].blocks: Too many": func(o *v1alpha1.NetworkRules) {
			o.Spec.Rules[0].Blocks = make([]v1alpha1.NetworkAddressRange, v1alpha1.MaxNetworkBlocks+1)
		},
		"must not be more than last": func(o *v1alpha1.NetworkRules) { o.Spec.Rules[0].Ports[0].Last = 1 },
		"spec.rules[0].protocol":     func(o *v1alpha1.NetworkRules) { o.Spec.Rules[0].Protocol = "SCTP" },
		"spec.rules[0].direction":    func(o *v1alpha1.NetworkRules) { o.Spec.Rules[0].Direction = "Sideways" },
		"spec.pods[0].isolated": func(o *v1alpha1.NetworkRules) {
			o.Spec.Pods[0].Isolated = []v1alpha1.NetworkDirection{"Ingress", "Ingress"}
		},
	} {
		o := &v1alpha1.NetworkRules{ObjectMeta: at(namespace, "shop.0"), Spec: v1alpha1.NetworkRulesSpec{
			Namespace: "shop", Shards: 2, Revision: "0123456789abcdef", Guarded: []v1alpha1.NetworkDirection{v1alpha1.NetworkIngress},
			Rules: []v1alpha1.NetworkRule{{Policy: "p", Direction: v1alpha1.NetworkIngress, Protocol: "TCP", Ports: []v1alpha1.NetworkPortRange{{First: 80, Last: 80}}}},
			Pods:  []v1alpha1.NetworkRulesPod{{UID: "u", Selected: []int32{0}}},
		}}
		spoil(o)
		err := c.Create(ctx, o)
		if reason == "" && err != nil {
			t.Errorf("what is well is refused: %v", err)
		}
		if reason != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), reason)) {
			t.Errorf("%q is not why it is refused: %v", reason, err)
		}
		if err == nil {
			_ = c.Delete(ctx, o)
		}
	}
}
