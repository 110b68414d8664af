package offer

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// Consumer is whom an offer is for.
type Consumer struct {
	// ClusterID of the consumer.
	ClusterID string
	// Tenant is its name here.
	Tenant string
	// Labels of its Tenant.
	Labels map[string]string
}

// Resources is what a provider has for one consumer now.
type Resources struct {
	// Capacity is all there is of each resource, free or not.
	Capacity v1alpha1.ResourceList
	// Free is what may be offered.
	Free v1alpha1.ResourceList
	// Used is what pods of the consumer request, on whichever node, by the name of the
	// ResourceRequest they run for, counted at the same moment as Free.
	Used map[string]v1alpha1.ResourceList
	// Shapes are the kinds of nodes behind it, with the largest pods that fit.
	Shapes []v1alpha1.NodeShape
	// StorageClasses, IngressClasses and LoadBalancerClasses the consumer may name.
	StorageClasses, IngressClasses, LoadBalancerClasses []v1alpha1.ClassOffer
	// Withheld is the reason why Free lacks something that is free, empty if it does not.
	Withheld string
	// Problem says in words a consumer may see that the figures are not of now, and why.
	Problem string
	// Again is when to read again though nothing has changed; when told to, if 0.
	Again time.Duration
	// External is the condition ReaderAnswering of the Tenant, nil if the owner has no
	// reader of his own.
	External *metav1.Condition
}

// usedByAll is what the pods of all requests of the consumer request. Tenant.status.used
// covers more, and is a few seconds late.
func (r Resources) usedByAll() amounts {
	sum := amounts{}
	for _, list := range r.Used {
		sum = sum.plus(amountsOf(list))
	}
	return sum
}

// ResourceReader knows what this cluster can offer to a consumer. Several readers in
// a row form a chain: each asks the one before it and changes the answer.
//
// All methods may be called from any goroutine, at any time, and must not block
// longer than a memory access takes, but for Read, which has to honour the deadline
// of its context. A reader that fails, is late, panics or answers nonsense does no
// harm: its last good answer holds.
type ResourceReader interface {
	// Read returns what may be offered to a consumer now. Neither side changes the
	// answer afterwards. The error says that nothing is known now; it is shown to the
	// provider only.
	Read(ctx context.Context, c Consumer) (Resources, error)
	// Notify has changed called whenever the answer for a consumer may have changed: with
	// its cluster id, or with an empty string for everyone. It may be called from any
	// goroutine, and returns at once. Every function given is called.
	Notify(changed func(clusterID string))
	// Remove forgets a consumer. It is idempotent; a later Read begins anew.
	Remove(clusterID string)
}

// errUnknown says that nothing is known of what is free.
var errUnknown = errors.New("nothing is known yet of what is free")
