package offer

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// maxClasses bounds each list of classes in an offer.
const maxClasses = 64

// defaultBalancer stands for the class of Services that name none.
const defaultBalancer = "default"

// named is classes by name, and whether each is a default.
type named map[string]bool

// list returns them by name, the defaults first so that a bound never cuts them.
func (n named) list() []v1alpha1.ClassOffer {
	var out []v1alpha1.ClassOffer
	for _, wanted := range []bool{true, false} {
		for _, name := range slices.Sorted(maps.Keys(n)) {
			if n[name] == wanted && len(out) < maxClasses {
				out = append(out, v1alpha1.ClassOffer{Name: name, Default: wanted})
			}
		}
	}
	return out
}

// classes are what pods' surroundings may name. There are no objects for classes of
// load balancers, so those count that have given an address to a Service here.
type classes struct {
	storage, ingress, balancers named
	services                    map[types.UID]string // class by Service
	used                        map[string]int       // Services by class
}

func newClasses() classes {
	return classes{
		storage: named{}, ingress: named{}, balancers: named{},
		services: map[types.UID]string{}, used: map[string]int{},
	}
}

// set and drop report whether anything changed.
func (n named) set(name string, isDefault bool) bool {
	was, known := n[name]
	n[name] = isDefault
	return !known || was != isDefault
}

func (n named) drop(name string) bool {
	_, known := n[name]
	delete(n, name)
	return known
}

// setService takes a Service as it is now.
func (c *classes) setService(s *corev1.Service) bool {
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer || len(s.Status.LoadBalancer.Ingress) == 0 {
		return c.dropService(s.UID)
	}
	class := defaultBalancer
	if s.Spec.LoadBalancerClass != nil {
		class = *s.Spec.LoadBalancerClass
	}
	if old, known := c.services[s.UID]; known && old == class {
		return false
	}
	c.dropService(s.UID)
	c.services[s.UID] = class
	c.used[class]++
	return c.balancers.set(class, class == defaultBalancer)
}

// dropService takes a Service away.
func (c *classes) dropService(uid types.UID) bool {
	class, known := c.services[uid]
	if !known {
		return false
	}
	delete(c.services, uid)
	if c.used[class]--; c.used[class] > 0 {
		return false
	}
	delete(c.used, class)
	return c.balancers.drop(class)
}

// setStorage takes a StorageClass as it is now.
func (c *classes) setStorage(s *storagev1.StorageClass) bool {
	return c.storage.set(s.Name, s.Annotations["storageclass.kubernetes.io/is-default-class"] == "true")
}

// setIngress takes an IngressClass as it is now.
func (c *classes) setIngress(i *networkingv1.IngressClass) bool {
	return c.ingress.set(i.Name, i.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true")
}
