package namespace

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

const (
	// tellEvery is how often an event tells of one offloading at most, but for the first after it was changed.
	tellEvery = time.Minute
	// tellBurst is how many events one provider may cause at once, of all offloadings, and tellRate how many a second.
	tellBurst, tellRate = 100, 1
	// changeEvery bounds in the long run how often the status of one offloading follows one provider, when changeBurst
	// changes have followed each other.
	changeEvery = 30 * time.Second
	changeBurst = 16
)

// known is what is remembered of one offloading, by its one worker.
type known struct {
	uid        types.UID
	generation int64
	// reason of Ready, and those of the clusters, that were told last, and when.
	reason   string
	clusters map[string]string
	at       time.Time
	// kept are the clusters of which it was told that they keep a namespace, and keptAt when.
	kept   map[string]bool
	keptAt map[string]time.Time
	// changes spaces out what the status says of each cluster.
	changes pace
}

// tells says whether it may be told again that a cluster keeps a namespace.
func (k *known) tells(peering string, now time.Time) bool {
	past := now.Sub(k.keptAt[peering])
	return past < 0 || past >= tellEvery
}

// memory is what is remembered of all offloadings, and of what providers have caused. The zero value remembers nothing.
type memory struct {
	mu sync.Mutex
	of map[string]*known
	// budgets bound the events that each provider causes.
	budgets map[string]*rate.Limiter
}

// get returns what is remembered of an offloading; of one that is new, what its status says was told.
func (m *memory) get(o *v1alpha1.NamespaceOffloading) *known {
	m.mu.Lock()
	defer m.mu.Unlock()
	if k := m.of[o.Namespace]; k != nil && k.uid == o.UID {
		return k
	}
	k := &known{uid: o.UID, generation: o.Generation, clusters: readyOf(o), kept: map[string]bool{}, keptAt: map[string]time.Time{},
		changes: pace{every: changeEvery, burst: changeBurst}}
	if was := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionReady); was != nil {
		k.reason = was.Reason
	}
	for i := range o.Status.Clusters {
		if c := &o.Status.Clusters[i]; kept(c) != nil {
			k.kept[c.Name] = true
		}
	}
	if m.of == nil {
		m.of = map[string]*known{}
	}
	m.of[o.Namespace] = k
	return k
}

// forget forgets an offloading.
func (m *memory) forget(namespace string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.of, namespace)
}

// take says whether a provider may cause an event now.
func (m *memory) take(peering string, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.budgets[peering] == nil {
		if m.budgets == nil {
			m.budgets = map[string]*rate.Limiter{}
		}
		m.budgets[peering] = rate.NewLimiter(tellRate, tellBurst)
	}
	return m.budgets[peering].AllowN(now, 1)
}

// left forgets a peering that is gone.
func (m *memory) left(peering string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.budgets, peering)
}
