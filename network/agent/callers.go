package agent

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kube"
	"github.com/pelago-dev/pelago/network/plan"
)

// Callers are pods of a provider's own that may call a tenant's Services, as its Tenant names them; open is what
// home lets be called by them, as its NamespaceOffloadings say. Each side follows what its own owner says.

// maxCallers is how many pods of a tenant's callers count.
const maxCallers = 1000

// callers selects the callers of a tenant, and says whether there are any: its owner names some by at least
// one label, and no pods of tenants are among them.
func (p *pair) callers() (selector string, is bool, err error) {
	if p.role != plan.Provider || p.own.Spec.Callers == nil || p.own.Spec.Reachability.OrDefault() != v1alpha1.ReachOffloadedOnly {
		return "", false, nil
	}
	said, err := metav1.LabelSelectorAsSelector(p.own.Spec.Callers)
	if err != nil || said.Empty() {
		return "", false, err
	}
	return said.Add(requirement(v1alpha1.LabelTenant, selection.DoesNotExist)).String(), true, nil
}

// callerQuery asks for the pods of a selector.
func callerQuery(selector string) (kube.Query, error) {
	of, err := labels.Parse(selector)
	return kube.Query{Of: &corev1.Pod{}, Labels: of}, err
}

// calling are the pods that are a tenant's callers, the oldest ones first: not those in namespaces that are here
// for tenants, whatever their labels are.
func (f facts) calling(selector string) (pods []*corev1.Pod) {
	tenants := f.foreign()
	for i := range f.labelled[selector] {
		pod := &f.labelled[selector][i]
		if !tenants[pod.Namespace] && pod.Labels[v1alpha1.LabelTenant] == "" && len(podAddresses(pod)) > 0 {
			pods = append(pods, pod)
		}
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return pods
}

// foreign are the namespaces here that are tenants'.
func (f facts) foreign() map[string]bool {
	all := map[string]bool{}
	for i := range f.namespaces {
		all[f.namespaces[i].Name] = true
	}
	return all
}

// callers are the addresses of a tenant's callers, as many as count.
func (k *known) callers(f facts, object string, p *pair) []netip.Addr {
	selector, is, err := p.callers()
	if err != nil {
		k.wrong(object, "callers of its Tenant cannot be read, and are nobody: %v", err)
	}
	if !is {
		return nil
	}
	pods := f.calling(selector)
	if len(pods) > maxCallers {
		k.wrong(object, "%d pods are callers by its Tenant, and only the %d oldest ones of them count", len(pods), maxCallers)
		pods = pods[:maxCallers]
	}
	k.calling = append(k.calling, pods...)
	var texts []string
	for _, pod := range pods {
		texts = append(texts, podAddresses(pod)...)
	}
	return meant(texts, k.ownPod)
}

// ownPod is an address that is of a pod here.
func (k *known) ownPod(a netip.Addr) (netip.Addr, bool) { return a, prefixIn(k.input.Pods, a) }

// opening are the namespaces that let a provider's own pods call, with what they say: none that is here for a
// tenant, whose pods are not this owner's to open.
func (f facts) opening() map[string]*v1alpha1.NamespaceOffloadingSpec {
	all, tenants, spaces := map[string]*v1alpha1.NamespaceOffloadingSpec{}, f.foreign(), f.spaces()
	for i := range f.offloaded {
		o := &f.offloaded[i]
		if o.Name == v1alpha1.OffloadingName && o.Spec.Callers == v1alpha1.CallersProvider && !tenants[o.Namespace] && spaces[o.Namespace] != v1alpha1.ReachNone {
			all[o.Namespace] = &o.Spec
		}
	}
	return all
}

// openTo are the addresses that a provider's own pods may call: of pods of a namespace that runs here, behind
// those of its Services that travel there without a pod. Slices can be written by users, so only pods of the
// namespace itself count.
func openTo(f facts, p *pair, pods []netip.Prefix) (addrs []string) {
	opening := f.opening()
	for i := range f.maps {
		if f.maps[i].Namespace != p.namespace {
			continue
		}
		for namespace := range f.maps[i].Spec.Namespaces {
			says := opening[namespace]
			if says == nil {
				continue
			}
			open, own := map[string]bool{}, map[string]bool{}
			for j := range f.services[namespace] {
				if s := &f.services[namespace][j]; s.DeletionTimestamp == nil && says.Opens(s) {
					open[s.Name] = true
				}
			}
			for _, a := range inside(f, namespace) {
				own[a] = true
			}
			untold := f.untold(p, namespace, pods)
			for j := range f.home[namespace] {
				if s := &f.home[namespace][j]; open[s.Labels[discoveryv1.LabelServiceName]] {
					addrs = append(addrs, slices.DeleteFunc(sliceAddresses(s), func(a string) bool { return !own[a] || untold(a) })...)
				}
			}
		}
	}
	return addrs
}

// trimOpening leaves of a NamespaceOffloading what says which Services are open.
func trimOpening(o *v1alpha1.NamespaceOffloadingSpec) (s v1alpha1.NamespaceOffloadingSpec) {
	if o.Callers == v1alpha1.CallersProvider {
		s.Callers, s.Reflection = o.Callers, slices.DeleteFunc(slices.Clone(o.Reflection), func(r v1alpha1.ReflectionRule) bool { return r.Kind != "Service" })
	}
	return s
}

// trimService leaves of a Service what rules go by.
func trimService(o *corev1.Service, meta metav1.ObjectMeta) *corev1.Service {
	meta.Labels = o.Labels
	if word, is := o.Annotations[v1alpha1.AnnotationReflect]; is {
		meta.Annotations = map[string]string{v1alpha1.AnnotationReflect: word}
	}
	return &corev1.Service{ObjectMeta: meta}
}
