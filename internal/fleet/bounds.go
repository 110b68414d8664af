package fleet

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// Bounds on what a peer may show of one kind, and how much work it may cause here by
// changing it. What is 0 is as for kinds of which there are few.
type Bounds struct {
	// Optional says that a provider may refuse the kind, as those do that are too old to know
	// it, and still not refuse this cluster.
	Optional bool
	// Beyond says that what there is beyond these bounds is not held against the provider:
	// it is left out of the watch set, and read from the provider each time.
	Beyond bool
	// Objects at most.
	Objects int
	// Bytes of memory they may take, about, after Trim.
	Bytes int
	// Pace of the requests that they cause at one controller.
	Pace Pace
	// Trim, if set, takes out of an object what nobody here reads, before it is kept.
	Trim func(*unstructured.Unstructured)
}

// Pace is how fast one peer may cause requests at one controller.
type Pace struct {
	// Rate in requests a second.
	Rate float64
	// Burst is how many may come at once.
	Burst int
}

// Bounds on what a peer may show of a kind that has none of its own.
const (
	maxObjects = v1alpha1.MaxTenantObjects
	maxKept    = 16 << 20 // bytes in memory, about
)

func (b Bounds) objects() int {
	if b.Objects == 0 {
		return maxObjects
	}
	return b.Objects
}

func (b Bounds) bytes() int {
	if b.Bytes == 0 {
		return maxKept
	}
	return b.Bytes
}

// large says whether honest objects may be larger on their way than they are here.
func (b Bounds) large() bool { return b.Trim != nil }

// pages bounds a list, whatever is on its pages. Large objects come on small pages, and all where the
// link is thin.
func (b Bounds) pages(size int) int {
	if b.large() || size < pageSize {
		return b.objects()
	}
	return 2 * b.objects() / pageSize
}

// listTime bounds how long a list takes: more objects take longer.
func (b Bounds) listTime() time.Duration {
	return max(listTimeout, listTimeout*time.Duration(b.objects())/maxObjects)
}

// fits refuses more than a peer may show.
func (m *mirror) fits(count, kept int) error {
	switch {
	case count > m.bounds.objects():
		return fmt.Errorf("more than %d %s: %w", m.bounds.objects(), m.resource.Resource, ErrTooLarge)
	case kept > m.bounds.bytes():
		return fmt.Errorf("more than %d MiB of %s: %w", m.bounds.bytes()>>20, m.resource.Resource, ErrTooLarge)
	}
	return nil
}

// tidy takes out of an object what is not kept.
func (m *mirror) tidy(u *unstructured.Unstructured) {
	u.SetGroupVersionKind(m.gvk)
	u.SetManagedFields(nil)
	if m.bounds.Trim != nil {
		m.bounds.Trim(u)
	}
}

// WatchWithin is Watch with bounds of the kind's own. They hold whoever else watches
// the kind.
func (f *Fleet) WatchWithin(kind client.Object, b Bounds) error {
	if err := f.Watch(kind); err != nil {
		return err
	}
	gvk, err := apiutil.GVKForObject(kind, f.options.Scheme)
	if err != nil {
		return fmt.Errorf("finding the kind to watch: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ctx != nil {
		return ErrStarted
	}
	for i := range f.kinds {
		if f.kinds[i].gvk == gvk {
			f.kinds[i].bounds = b
		}
	}
	return nil
}

// paceOf is the pace at which a kind may cause requests.
func (f *Fleet) paceOf(gvk schema.GroupVersionKind) Pace {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range f.kinds {
		if k.gvk == gvk {
			return k.bounds.Pace
		}
	}
	return Pace{}
}
