package agent

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// groups are pods and slices of tenants by their tenant, and the names of virtual nodes. They are made once
// in a plan: who looks for a tenant's among all of them does so for each tenant.
type groups struct {
	hosted  map[string][]*corev1.Pod
	given   map[string][]*discoveryv1.EndpointSlice
	virtual map[string]bool
}

// group makes the groups of what is known.
func (f facts) group() *groups {
	g := &groups{hosted: map[string][]*corev1.Pod{}, given: map[string][]*discoveryv1.EndpointSlice{}, virtual: map[string]bool{}}
	for i := range f.hosted {
		tenant := f.hosted[i].Labels[v1alpha1.LabelTenant]
		g.hosted[tenant] = append(g.hosted[tenant], &f.hosted[i])
	}
	for i := range f.given {
		tenant := f.given[i].Labels[v1alpha1.LabelTenant]
		g.given[tenant] = append(g.given[tenant], &f.given[i])
	}
	for i := range f.nodes {
		if _, is := virtual(&f.nodes[i]); is {
			g.virtual[f.nodes[i].Name] = true
		}
	}
	return g
}

// grouped are the groups, made if nobody has made them.
func (f facts) grouped() *groups {
	if f.groups == nil {
		return f.group()
	}
	return f.groups
}

// hostedOf are the pods of a tenant here.
func (f facts) hostedOf(tenant string) []*corev1.Pod { return f.grouped().hosted[tenant] }
