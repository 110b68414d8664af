package dataplane

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/google/nftables"
)

// elementsPerMessage keeps a message below the 64 kB that its attribute can say: an
// element of IPv6 with a mark takes about 70 bytes, and there are two for a range.
const elementsPerMessage = 400

// set is a set as the kernel is told of it.
func (b *batch) set(s *set) *nftables.Set {
	k := &nftables.Set{Table: b.table, Name: s.name, KeyType: addressType(s.v4), Interval: s.interval, IsMap: s.data != noData}
	switch s.of {
	case pairKey:
		k.KeyType, k.Concatenation = nftables.MustConcatSetType(k.KeyType, nftables.TypeInetService), true
	case portKey:
		k.KeyType = nftables.TypeInetService
	}
	if s.data == markData {
		k.DataType = nftables.TypeMark
	}
	if s.most > 0 {
		k.Dynamic, k.HasTimeout, k.Size = true, true, s.most
	}
	return k
}

func addressType(v4 bool) nftables.SetDatatype {
	if v4 {
		return nftables.TypeIPAddr
	}
	return nftables.TypeIP6Addr
}

// elements writes the difference in elements, those that go first, so that one may come
// back with another value.
func (b *batch) elements(have *knownTable, wanted *table) error {
	for _, s := range wanted.sets {
		if s.most > 0 {
			continue
		}
		present := have.elements[s.name]
		var add, remove []element
		if _, strange := present[strangeElement]; strange {
			b.conn.FlushSet(b.set(s))
			b.changes++
			present = nil
		}
		for e := range s.elements {
			if _, ok := present[e]; !ok {
				add = append(add, e)
			}
		}
		if len(present)+len(add) > len(s.elements) {
			for e := range present {
				if _, ok := s.elements[e]; !ok {
					remove = append(remove, e)
				}
			}
		}
		if err := b.write(s, remove, b.conn.SetDeleteElements); err != nil {
			return err
		}
		if err := b.write(s, add, b.conn.SetAddElements); err != nil {
			return err
		}
	}
	return nil
}

func (b *batch) write(s *set, list []element, write func(*nftables.Set, []nftables.SetElement) error) error {
	slices.SortFunc(list, element.compare)
	for chunk := range slices.Chunk(list, elementsPerMessage) {
		b.changes += len(chunk)
		if err := write(b.set(s), encode(s, chunk)); err != nil {
			return err
		}
	}
	return nil
}

// encode makes elements of the kernel: a range is its first address, and as the end of an
// interval the one after its last.
func encode(s *set, list []element) []nftables.SetElement {
	out := make([]nftables.SetElement, 0, 2*len(list))
	for _, e := range list {
		first, end := e.bytes(s.of)
		k := nftables.SetElement{Key: first}
		if s.data == markData {
			k.Val = native(e.mark)
		}
		out = append(out, k)
		if s.interval && end != nil {
			out = append(out, nftables.SetElement{Key: end, IntervalEnd: true})
		}
	}
	return out
}

// portBytes is how long a port in a pair is: the kernel's keys are of whole words.
const portBytes = 4

// bytes are an element's key, and what comes after its last one; nothing comes after the last of all.
func (e element) bytes(of setKey) (first, end []byte) {
	switch of {
	case portKey:
		if e.last < 1<<16-1 {
			end = binary.BigEndian.AppendUint16(nil, e.last+1)
		}
		return binary.BigEndian.AppendUint16(nil, e.port), end
	case pairKey:
		return append(binary.BigEndian.AppendUint16(e.key.Addr().AsSlice(), e.port), 0, 0), nil
	}
	if next := last(e.key).Next(); next.IsValid() {
		end = next.AsSlice()
	}
	return e.key.Addr().AsSlice(), end
}

// read makes an element of its key and of what comes after its last one, nil if nothing does.
func (s setRead) read(first, end []byte) (e element, ok bool) {
	switch s.of {
	case portKey:
		if len(first) != 2 || end != nil && len(end) != 2 {
			return e, false
		}
		e.port, e.last = binary.BigEndian.Uint16(first), 1<<16-1
		if end != nil {
			e.last = binary.BigEndian.Uint16(end) - 1
		}
		return e, e.last >= e.port
	case pairKey:
		if len(first) < portBytes {
			return e, false
		}
		e.port = binary.BigEndian.Uint16(first[len(first)-portBytes:])
		first = first[:len(first)-portBytes]
	}
	a, ok := netip.AddrFromSlice(first)
	if !ok || !s.interval {
		return element{key: single(a), port: e.port}, ok
	}
	after, _ := netip.AddrFromSlice(end)
	e.key, ok = between(a, after)
	return e, ok
}

// last is the last address of a prefix.
func last(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// strangeElement stands for elements in the kernel that none of ours could be.
var strangeElement = element{mark: 1}

// kernelElement is an element as it was read.
type kernelElement struct {
	key, value []byte
	end        bool
}

// decode makes elements of what was read of a set.
func decode(s setRead, list []kernelElement) map[element]struct{} {
	out := make(map[element]struct{}, len(list))
	strange := func() map[element]struct{} { return map[element]struct{}{strangeElement: {}} }
	if s.interval {
		slices.SortFunc(list, func(a, b kernelElement) int {
			return cmp.Or(slices.Compare(a.key, b.key), compareBool(b.end, a.end))
		})
	}
	for i := 0; i < len(list); i++ {
		var end []byte // nothing comes after the last one there is
		switch {
		case list[i].end:
			return strange()
		case s.interval && i+1 < len(list) && list[i+1].end:
			end = list[i+1].key
		case s.interval && i+1 < len(list):
			return strange()
		}
		e, ok := s.read(list[i].key, end)
		if !ok {
			return strange()
		}
		if value := list[i].value; len(value) == 4 {
			e.mark = binary.NativeEndian.Uint32(value)
		}
		out[e] = struct{}{}
		if s.interval {
			i++
		}
	}
	return out
}

// between returns the prefix from an address to the one before end.
func between(first, end netip.Addr) (netip.Prefix, bool) {
	for bits := 0; bits <= first.BitLen(); bits++ {
		p := netip.PrefixFrom(first, bits)
		if p.Masked() == p && last(p).Next() == end {
			return p, true
		}
	}
	return netip.Prefix{}, false
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
