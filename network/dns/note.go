package dns

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// note is what an Index knows, for one that begins while nobody can tell it anything.
type note struct {
	Pods       []notedPod       `json:",omitempty"`
	Namespaces []notedNamespace `json:",omitempty"`
}

type notedPod struct {
	Namespace, Name string
	Addresses       []netip.Addr
	Created         time.Time
	Domain          string `json:",omitempty"`
}

type notedNamespace struct {
	Name, Tenant, Home string
	Owner, Origin      string `json:",omitempty"`
	Created            time.Time
	Ending             bool `json:",omitempty"`
}

// Note is what has to be known to answer the pods on this node, the same as long as that is.
func (x *Index) Note() ([]byte, error) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var n note
	spaces := map[string]bool{}
	for key, p := range x.pods {
		n.Pods = append(n.Pods, notedPod{Namespace: key.namespace, Name: key.name, Addresses: p.addresses, Created: p.created, Domain: p.domain})
		if of, is := x.namespaces[key.namespace]; is {
			maps.Copy(spaces, x.tenants[of.tenant])
		}
	}
	slices.SortFunc(n.Pods, func(a, b notedPod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for _, name := range slices.Sorted(maps.Keys(spaces)) {
		s := x.namespaces[name]
		n.Namespaces = append(n.Namespaces, notedNamespace{
			Name: name, Tenant: s.tenant, Home: s.home, Owner: s.owner, Origin: s.origin, Created: s.created, Ending: s.ending,
		})
	}
	return json.Marshal(n)
}

// ReadIndex makes an Index that knows what was noted. What is nobody's note is not quoted.
func ReadIndex(node string, b []byte) (*Index, error) {
	var n note
	if err := json.Unmarshal(b, &n); err != nil {
		return nil, errors.New("what was noted of pods and namespaces is not understood")
	}
	x := NewIndex(node)
	for _, p := range n.Pods {
		x.put(podKey{p.Namespace, p.Name}, pod{addresses: p.Addresses, created: p.Created, domain: p.Domain})
	}
	for _, s := range n.Namespaces {
		x.space(s.Name, namespace{whose: whose{s.Tenant, s.Owner}, home: s.Home, origin: s.Origin, created: s.Created, ending: s.Ending})
	}
	return x, nil
}

// News has something in it when what the Index knows may be something else.
func (x *Index) News() <-chan struct{} { return x.news }

// stirred tells of that.
func (x *Index) stirred() {
	select {
	case x.news <- struct{}{}:
	default: // it will be seen anyway
	}
}
