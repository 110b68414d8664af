package agent

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// manyTenants are the facts of a cluster where some tenants have as many pods together. Each has NetworkRules, a
// path, and a pod at the provider milan.
func manyTenants(tenants, nodes, pods int) facts {
	f := someFacts()
	f.now = time.Unix(1000, 0)
	f.configs, f.nodes, f.hosted, f.given = f.configs[:2], f.nodes[2:], nil, nil
	for i := range nodes {
		f.nodes = append(f.nodes, nodeAt(fmt.Sprint("node", i), fmt.Sprintf("192.168.%d.%d", i/256, i%256), ""))
	}
	var rules []v1alpha1.NetworkRules
	for i := range tenants {
		name := fmt.Sprint("tenant", i)
		at, space := v1alpha1.TenantNamespacePrefix+name, fmt.Sprint("space", i)
		own, theirs := networkConfig(at, "provider", 3, "10.42.0.0/16"), networkConfig(at, "consumer", 4, fmt.Sprintf("10.%d.0.0/16 10.60.0.0/16", 100+i))
		own.Status.Views = []v1alpha1.NetworkView{{Real: "10.42.0.0/16", View: "10.90.0.0/16"}}
		theirs.Status.Views = []v1alpha1.NetworkView{
			{Real: fmt.Sprintf("10.%d.0.0/16", 100+i), View: fmt.Sprintf("10.%d.0.0/16", 100+i)}, {Real: "10.60.0.0/16", View: fmt.Sprintf("11.%d.0.0/16", i)},
		}
		path := pathAt(onePath, 31, 32, "10.60.0.0/16")
		path.Namespace = at
		f.configs, f.paths = append(f.configs, own, theirs), append(f.paths, path)
		f.keys["tenant-"+name], f.keys["tenant-"+name+"."+onePath] = encoded(secret(3)), encoded(secret(31))
		f.namespaces = append(f.namespaces, corev1.Namespace{ObjectMeta: labelled("", space, v1alpha1.LabelTenant, name, v1alpha1.LabelHomeNamespace, "shop")})
		rules = append(rules, rulesOf(at, "shop", way(ingress), nil))
		f.away["milan"] = append(f.away["milan"], podAt(labelled(space, "away", v1alpha1.LabelTenant, name), "milan", fmt.Sprintf("10.81.9.%d", i)))
	}
	for i := range pods {
		tenant := fmt.Sprint("tenant", i%tenants)
		f.hosted = append(f.hosted, podAt(labelled(fmt.Sprint("space", i%tenants), fmt.Sprint("pod", i), v1alpha1.LabelTenant, tenant),
			fmt.Sprint("node", i%nodes), fmt.Sprintf("10.42.%d.%d", i/256, i%256)))
	}
	var b rulebook
	f.rule(&b, rules)
	return f
}

// TestManyTenants holds that a plan costs as much for the pods of many tenants as for as many pods of one.
func TestManyTenants(t *testing.T) {
	few, many := manyTenants(1, 500, 20000), manyTenants(100, 500, 20000)
	if got := input(many).input.Peerings; len(got) != 101 || len(got[1].Paths) != 1 || len(got[1].Paths[0].Here) != 200 || got[1].Guard == nil || len(got[0].Parties) != 100 {
		t.Fatalf("the plan is of %d peerings, the tenants' as %+v", len(got), got[1])
	}
	// The least of several is what it costs, whatever else the machine does. Who looked at all pods for each tenant
	// would take a hundred times as long.
	least := func(f facts, before time.Duration) time.Duration {
		begin := time.Now()
		input(f)
		return min(before, time.Since(begin))
	}
	one, hundred := time.Hour, time.Hour
	for range 20 {
		one, hundred = least(few, one), least(many, hundred)
		if hundred < 5*one {
			return
		}
	}
	t.Errorf("a plan takes %v with 100 tenants, and %v with one that has as many pods", hundred, one)
}

// BenchmarkInput is what a plan is made of in a cluster of 5,000 nodes with 50,000 pods of tenants.
func BenchmarkInput(b *testing.B) {
	for _, tenants := range []int{1, 100} {
		b.Run(fmt.Sprint(tenants, "tenants"), func(b *testing.B) {
			f := manyTenants(tenants, 5000, 50000)
			for b.Loop() {
				input(f)
			}
		})
	}
}
