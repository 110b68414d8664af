package dataplane

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables/expr"
)

// table is a table of nftables. Its chains, rules and sets are its structure; elements
// come and go without it.
type table struct {
	name     string
	chains   []chain
	sets     []*set
	counters []string
}

type chainKind string

const (
	natChain    chainKind = "nat"
	filterChain chainKind = "filter"
)

type hook string

const (
	prerouting  hook = "prerouting"
	input       hook = "input"
	forwarding  hook = "forward"
	output      hook = "output"
	postrouting hook = "postrouting"
)

// chain without a hook is one that others go to.
type chain struct {
	name     string
	kind     chainKind
	hook     hook
	priority int32
	drop     bool
	rules    []filterRule
}

// filterRule is a rule of nftables, as text and as the kernel's expressions.
type filterRule struct {
	text  string
	exprs []expr.Any
}

// set is a set or a map, of prefixes or single addresses of one family, of addresses with ports,
// or of ranges of ports. A set of single addresses is a hash in the kernel, and its elements cost
// the same however many they are.
type set struct {
	name     string
	of       setKey
	v4       bool
	interval bool
	data     setData
	// most, if not 0, makes it one that packets fill, with so many elements at most: what is in it
	// is nobody's to write.
	most     uint32
	elements map[element]struct{}
}

type setData string

const (
	noData   setData = ""
	markData setData = "mark"
)

// setKey is what the elements of a set are; the zero value is addresses, or prefixes.
type setKey int

const (
	// pairKey is an address and a port, and portKey a range of ports, of no family.
	pairKey setKey = iota + 1
	portKey
)

// element has a port if it is a pair, and of a range of ports the first and the last.
type element struct {
	key        netip.Prefix
	mark       uint32
	port, last uint16
}

func (e element) compare(o element) int {
	return cmp.Or(comparePrefixes(e.key, o.key), cmp.Compare(e.port, o.port))
}

// newSet has room for so many elements.
func (t *table) newSet(name string, v4, interval bool, data setData, room int) *set {
	family := "6"
	if v4 {
		family = "4"
	}
	s := &set{name: name + family, v4: v4, interval: interval, data: data, elements: make(map[element]struct{}, room)}
	t.sets = append(t.sets, s)
	return s
}

func (t *table) prefixSet(name string, v4 bool) *set {
	return t.newSet(name, v4, true, noData, 0)
}

func (t *table) addressSet(name string, v4 bool, addrs []netip.Addr) *set {
	s := t.newSet(name, v4, false, noData, len(addrs))
	for _, a := range addrs {
		s.addPrefix(single(a))
	}
	return s
}

func (t *table) pairSet(name string, v4 bool, pairs []netip.AddrPort) *set {
	s := t.newSet(name, v4, false, noData, len(pairs))
	s.of = pairKey
	for _, p := range pairs {
		s.put(element{key: single(p.Addr()), port: p.Port()})
	}
	return s
}

func (t *table) portSet(name string, ports []Ports) *set {
	s := &set{name: name, of: portKey, interval: true, elements: make(map[element]struct{}, len(ports))}
	for _, p := range ports {
		s.elements[element{port: p.First, last: p.Last}] = struct{}{}
	}
	t.sets = append(t.sets, s)
	return s
}

func (t *table) markMap(name string, v4, interval bool, room int) *set {
	return t.newSet(name, v4, interval, markData, room)
}

// put adds an element if it is of the set's family.
func (s *set) put(e element) {
	if e.key.Addr().Is4() == s.v4 {
		s.elements[e] = struct{}{}
	}
}

func (s *set) addPrefix(p netip.Prefix)            { s.put(element{key: p}) }
func (s *set) addMark(p netip.Prefix, mark uint32) { s.put(element{key: p, mark: mark}) }

// sorted returns the elements in the order of their addresses.
func (s *set) sorted() []element {
	list := make([]element, 0, len(s.elements))
	for e := range s.elements {
		list = append(list, e)
	}
	slices.SortFunc(list, element.compare)
	return list
}

func (c *chain) add(parts ...statement) {
	var r filterRule
	for _, p := range parts {
		if p.v4 != nil {
			r.exprs = append(r.exprs, isFamily(*p.v4)...)
			break
		}
	}
	var words []string
	for _, p := range parts {
		words = append(words, p.text)
		r.exprs = append(r.exprs, p.exprs...)
	}
	r.text = strings.Join(words, " ")
	c.rules = append(c.rules, r)
}

// print stands for a rule in the kernel, as a comment.
func (r filterRule) print() string {
	sum := sha256.Sum256([]byte(r.text))
	return "pelago " + hex.EncodeToString(sum[:8])
}

// prints stand for the rules of a chain.
func (c chain) prints() (all []string) {
	for _, r := range c.rules {
		all = append(all, r.print())
	}
	return all
}

// limit makes a chain with a limit alone, which keeps what it has counted when other rules become others,
// and returns what leads there.
func (t *table) limit(name string, beyond statement, reason Reason) statement {
	c := chain{name: name}
	c.add(beyond, countedDrop(reason))
	t.chains = append(t.chains, c)
	return jump(name)
}

// count has a counter for a reason.
func (t *table) count(reasons ...Reason) {
	for _, r := range reasons {
		if !slices.Contains(t.counters, string(r)) {
			t.counters = append(t.counters, string(r))
		}
	}
}

func (c chain) text() string {
	if c.hook == "" {
		return ""
	}
	policy := "accept"
	if c.drop {
		policy = "drop"
	}
	return fmt.Sprintf("type %s hook %s priority %d; policy %s;", c.kind, c.hook, c.priority, policy)
}

func (s *set) text() string {
	key := "ipv6_addr"
	if s.v4 {
		key = "ipv4_addr"
	}
	switch s.of {
	case pairKey:
		key += " . inet_service"
	case portKey:
		key = "inet_service"
	}
	text := "set " + s.name + " { type " + key
	if s.data == markData {
		text = "map " + s.name + " { type " + key + " : mark"
	}
	if s.interval {
		text += "; flags interval"
	}
	if s.most > 0 {
		text += fmt.Sprintf("; size %d; flags dynamic,timeout", s.most)
	}
	return text + "; }"
}

// structure is what the table is but for its elements, a line for each thing, in the
// order in which the kernel's is read.
func (t *table) structure() []string {
	lines := []string{"flags 0"}
	for _, c := range t.chains {
		lines = append(lines, "chain "+c.name+" "+c.text())
		for i, r := range c.rules {
			lines = append(lines, fmt.Sprintf("rule %s %d %s", c.name, i, r.print()))
		}
	}
	for _, s := range t.sets {
		lines = append(lines, s.text())
	}
	for _, c := range t.counters {
		lines = append(lines, "counter "+c)
	}
	slices.Sort(lines)
	return lines
}
