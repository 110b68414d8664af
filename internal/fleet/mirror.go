package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrNotSynced says that a kind has not been read from the peer yet.
var ErrNotSynced = errors.New("not read from the peer yet")

// health is how the watch of one kind is.
type health int

const (
	connecting health = iota // not established yet
	up
	unknown   // the peer does not have this kind
	forbidden // the peer answers, and refuses
	over      // the peer shows more than is taken
	down
)

// mirror is this cluster's copy of one kind in a tenant namespace.
type mirror struct {
	watched
	namespace string
	pace      *pacer // of the events of its watch, which alone uses it

	mu       sync.RWMutex
	objects  map[string]*unstructured.Unstructured
	kept     int    // what they weigh
	share    *share // where they count
	before   *mirror
	released bool   // they count no more
	version  string // to watch from; "" to list first
	synced   bool
	beyond   error     // what was left out, nil if all is kept
	silent   time.Time // until when the peer is not asked for what may have been left out
	health   health
	err      error
}

// replace takes what a list said and what its share keeps, and returns what has changed.
func (m *mirror) replace(items []*unstructured.Unstructured, version string) []*unstructured.Unstructured {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.released {
		m.share.drop(items...)
		return nil
	}
	var changed []*unstructured.Unstructured
	fresh := make(map[string]*unstructured.Unstructured, len(items))
	for _, u := range items {
		if u.GetNamespace() != m.namespace || u.GetName() == "" {
			m.share.drop(u)
			continue
		}
		m.share.drop(fresh[u.GetName()]) // it is there twice
		fresh[u.GetName()] = u
		if old := m.objects[u.GetName()]; old == nil || old.GetResourceVersion() != u.GetResourceVersion() {
			changed = append(changed, u)
		}
	}
	for name, old := range m.objects {
		if fresh[name] == nil {
			changed = append(changed, old)
		}
		m.share.drop(old)
	}
	m.objects, m.version, m.synced = fresh, version, true
	m.kept = 0
	for _, u := range fresh {
		m.kept += weigh(u.Object)
	}
	return changed
}

// apply takes one event of a watch, and says whether it concerns anybody.
func (m *mirror) apply(kind string, u *unstructured.Unstructured) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if v := u.GetResourceVersion(); v != "" {
		m.version = v
	}
	if kind == "BOOKMARK" || u.GetNamespace() != m.namespace || u.GetName() == "" {
		return false, nil
	}
	if m.released {
		return false, context.Canceled
	}
	old := m.objects[u.GetName()]
	if kind == "DELETED" {
		m.remove(old)
		return true, nil
	}
	count := len(m.objects)
	if old == nil {
		count++
	}
	weight := weigh(u.Object)
	kept := m.kept - weightOf(old) + weight
	err := m.fits(count, kept)
	if err == nil {
		err = m.share.swap(old, u, weight, 0, !m.bounds.Beyond)
	}
	switch {
	case err != nil && !m.bounds.Beyond:
		return false, err
	case err != nil:
		m.remove(old)
		m.beyond = err
		return true, nil
	}
	m.objects[u.GetName()], m.kept = u, kept
	return true, nil
}

// remove keeps an object no more, if there is one. The caller holds the lock.
func (m *mirror) remove(u *unstructured.Unstructured) {
	if u == nil {
		return
	}
	m.kept -= weightOf(u)
	delete(m.objects, u.GetName())
	m.share.drop(u)
}

// weightOf is what an object weighs; 0 if there is none.
func weightOf(u *unstructured.Unstructured) int {
	if u == nil {
		return 0
	}
	return weigh(u.Object)
}

// adopt takes over the copy of the connection before, until the first list.
func (m *mirror) adopt(old *mirror) {
	old.mu.RLock()
	objects, kept, synced, beyond := maps.Clone(old.objects), old.kept, old.synced, old.beyond
	old.mu.RUnlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.before = nil
	if !m.synced && !m.released {
		m.objects, m.kept, m.synced, m.beyond = objects, kept, synced, beyond
		for _, u := range objects {
			m.share.keep(u, weigh(u.Object), !m.bounds.Beyond)
		}
	}
}

// since returns what differs between an older mirror and this one.
func (m *mirror) since(old *mirror) []*unstructured.Unstructured {
	before, now := old.all(), m.all()
	var changed []*unstructured.Unstructured
	for name, u := range now {
		if o := before[name]; o == nil || o.GetResourceVersion() != u.GetResourceVersion() {
			changed = append(changed, u)
		}
	}
	for name, u := range before {
		if now[name] == nil {
			changed = append(changed, u)
		}
	}
	return changed
}

// get returns the object of a name, nil if there is none. It must not be changed.
func (m *mirror) get(name string) *unstructured.Unstructured {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.objects[name]
}

// all returns the objects by name. They must not be changed.
func (m *mirror) all() map[string]*unstructured.Unstructured {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return maps.Clone(m.objects)
}

func (m *mirror) setHealth(h health, err error) (changed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	changed = m.health != h
	m.health, m.err = h, err
	return changed
}

func (m *mirror) getHealth() (health, bool, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.health, m.synced, m.err
}

func (m *mirror) from() string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.version
}

func (m *mirror) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.version = ""
}

// reader reads from a session's mirrors.
type reader struct {
	mirrors map[schema.GroupVersionKind]*mirror
	scheme  *runtime.Scheme
	live    client.Reader // the peer itself
	clock   clock.PassiveClock
}

// Get reads an object from the watch set, or from the peer if that shows more than is kept.
func (r reader) Get(ctx context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	m, err := r.mirror(obj, false)
	ours := m != nil && (key.Namespace == "" || key.Namespace == m.namespace)
	if ours && m.lacks(key.Name) && ctx.Value(keptKey{}) == nil {
		return r.ask(ctx, m, key.Name, obj)
	}
	if err != nil {
		return err
	}
	if u := m.get(key.Name); ours && u != nil {
		return into(u, obj)
	}
	return apierrors.NewNotFound(m.resource.GroupResource(), key.Name)
}

// List reads objects from the watch set, in order of their names. It knows label
// selectors, and no field selectors.
func (r reader) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	m, err := r.mirror(list, true)
	if err != nil {
		return err
	}
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	if o.FieldSelector != nil && !o.FieldSelector.Empty() {
		return errors.New("listing from the watch set: field selectors are not supported")
	}
	objects := m.all()
	items := []runtime.Object{}
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		u := objects[name]
		if o.Namespace != "" && o.Namespace != m.namespace || o.LabelSelector != nil && !o.LabelSelector.Matches(labelSet(u)) {
			continue
		}
		obj, err := r.fresh(list, m.gvk)
		if err != nil {
			return err
		}
		if err := into(u, obj); err != nil {
			return err
		}
		items = append(items, obj)
	}
	return meta.SetList(list, items)
}

// mirror finds the copy that obj, or the list obj, is read from. There may be one that cannot be read from.
func (r reader) mirror(obj runtime.Object, list bool) (*mirror, error) {
	gvk, err := gvkOf(obj, r.scheme, list)
	if err != nil {
		return nil, err
	}
	m := r.mirrors[gvk]
	if m == nil {
		return nil, fmt.Errorf("reading %s: not in the watch set", gvk.Kind)
	}
	if _, synced, err := m.getHealth(); !synced && err != nil {
		return m, fmt.Errorf("reading %s: %w: %w", gvk.Kind, ErrNotSynced, err)
	} else if !synced {
		return m, fmt.Errorf("reading %s: %w", gvk.Kind, ErrNotSynced)
	}
	return m, nil
}

// fresh returns an empty item for a list.
func (r reader) fresh(list client.ObjectList, gvk schema.GroupVersionKind) (client.Object, error) {
	if _, ok := list.(*unstructured.UnstructuredList); ok {
		return &unstructured.Unstructured{}, nil
	}
	obj, err := r.scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	return obj.(client.Object), nil
}
