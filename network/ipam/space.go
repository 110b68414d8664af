package ipam

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// space knows which addresses are taken, and by whom.
type space struct{ four, six *node }

func (s *space) of(p netip.Prefix) **node {
	if p.Addr().Is4() {
		return &s.four
	}
	return &s.six
}

// take makes a prefix the holder's. What is inside it and was taken before is the
// holder's from now on; inside of what was taken before nothing changes.
func (s *space) take(p netip.Prefix, by holder) {
	root := s.of(p)
	*root = (*root).add(blockOf(p), by)
}

// holder returns one of those that hold addresses of a prefix.
func (s *space) holder(p netip.Prefix) (by holder, taken bool) {
	n := (*s.of(p)).meets(blockOf(p))
	if n == nil {
		return holder{}, false
	}
	return n.by, true
}

// free returns the highest prefix of a length that lies in the pool and is free.
func (s *space) free(pool netip.Prefix, length int) (netip.Prefix, bool) {
	b, ok := (*s.of(pool)).highest(blockOf(pool), length)
	if !ok {
		return netip.Prefix{}, false
	}
	return b.prefix(pool.Addr().Is4()), true
}

// clone is a space with the same taken, that changes by itself.
func (s *space) clone() *space { return &space{s.four.clone(), s.six.clone()} }

func (n *node) clone() *node {
	if n == nil {
		return nil
	}
	same := *n
	same.side = [2]*node{n.side[0].clone(), n.side[1].clone()}
	return &same
}

// full is the room of a prefix that is taken: longer than any prefix.
const full = 129

// node is a prefix that is taken, without sides, or else the longest prefix around all
// that is taken below it, of which there is some on both sides. So there are fewer than
// two nodes for each prefix taken, and a way down has at most 128.
type node struct {
	at   block
	side [2]*node
	// room is the length of the largest prefix that is free inside.
	room int
	by   holder
}

func (n *node) taken() bool { return n.side[0] == nil }

// add returns the tree with a block taken.
func (n *node) add(b block, by holder) *node {
	if n == nil {
		return &node{at: b, room: full, by: by}
	}
	common := n.at.common(b)
	switch {
	case n.taken() && common == n.at.length:
		return n
	case common == b.length:
		return &node{at: b, room: full, by: by}
	case common == n.at.length:
		side := &n.side[b.bit(common)]
		*side = (*side).add(b, by)
	default:
		fork := &node{at: b.first(common)}
		fork.side[b.bit(common)] = &node{at: b, room: full, by: by}
		fork.side[n.at.bit(common)] = n
		n = fork
	}
	n.room = full
	for _, s := range n.side {
		if s.at.length > n.at.length+1 { // beside the way there a half of a half is free
			n.room = min(n.room, n.at.length+2)
		}
		n.room = min(n.room, s.room)
	}
	return n
}

// meets returns a prefix that is taken and overlaps a block, nil if none does.
func (n *node) meets(b block) *node {
	for n != nil {
		common := n.at.common(b)
		switch {
		case common == b.length:
			for !n.taken() {
				n = n.side[0]
			}
			return n
		case common < n.at.length:
			return nil
		case n.taken():
			return n
		}
		n = n.side[b.bit(common)]
	}
	return nil
}

// highest finds the highest free block of a length in a pool.
func (n *node) highest(pool block, length int) (block, bool) {
	if length < pool.length {
		return block{}, false
	}
	for n != nil {
		common := n.at.common(pool)
		switch {
		case common == pool.length:
			return n.highestIn(pool, length)
		case common < n.at.length:
			return pool.last(length), true
		case n.taken():
			return block{}, false
		}
		n = n.side[pool.bit(common)]
	}
	return pool.last(length), true
}

// highestIn does so in a region around n in which nothing but n has been taken from. Beside the
// way from the region down to n, one block of each length is free: above n or below it.
func (n *node) highestIn(region block, length int) (block, bool) {
	way := min(n.at.length, length)
	for i := region.length; i < way; i++ {
		if n.at.bit(i) == 0 {
			return n.at.beside(i).last(length), true
		}
	}
	if n.room <= length {
		for _, bit := range []int{1, 0} {
			half := n.side[bit].at.first(n.at.length + 1)
			if found, ok := n.side[bit].highestIn(half, length); ok {
				return found, true
			}
		}
	}
	for i := way - 1; i >= region.length; i-- {
		if n.at.bit(i) == 1 {
			return n.at.beside(i).last(length), true
		}
	}
	return block{}, false
}

// block is a prefix as bits, the first one highest in hi; those after its length are 0.
type block struct {
	hi, lo uint64
	length int
}

func blockOf(p netip.Prefix) block {
	hi, lo := words(p.Addr())
	return block{hi, lo, p.Bits()}
}

// words are the bits of an address, the first one highest in hi.
func words(a netip.Addr) (hi, lo uint64) {
	if a.Is4() {
		b := a.As4()
		return uint64(binary.BigEndian.Uint32(b[:])) << 32, 0
	}
	b := a.As16()
	return binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
}

// address is the inverse of words.
func address(hi, lo uint64, is4 bool) netip.Addr {
	if is4 {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], uint32(hi>>32))
		return netip.AddrFrom4(b)
	}
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], hi)
	binary.BigEndian.PutUint64(b[8:], lo)
	return netip.AddrFrom16(b)
}

// mask has the first length bits set.
func mask(length int) (hi, lo uint64) {
	return ^(^uint64(0) >> length), ^(^uint64(0) >> max(length-64, 0))
}

func (b block) prefix(is4 bool) netip.Prefix {
	return netip.PrefixFrom(address(b.hi, b.lo, is4), b.length)
}

// bit is that after the first i.
func (b block) bit(i int) int {
	if i < 64 {
		return int(b.hi >> (63 - i) & 1)
	}
	return int(b.lo >> (127 - i) & 1)
}

// common is how many bits two blocks begin with alike.
func (b block) common(o block) int {
	n := bits.LeadingZeros64(b.hi ^ o.hi)
	if n == 64 {
		n += bits.LeadingZeros64(b.lo ^ o.lo)
	}
	return min(n, b.length, o.length)
}

// first is the block of a shorter length around b.
func (b block) first(length int) block {
	hi, lo := mask(length)
	return block{b.hi & hi, b.lo & lo, length}
}

// last is the highest block of a longer length inside b.
func (b block) last(length int) block {
	oldHi, oldLo := mask(b.length)
	hi, lo := mask(length)
	return block{b.hi | hi&^oldHi, b.lo | lo&^oldLo, length}
}

// beside is the block that begins with i bits of b and goes on with the other one.
func (b block) beside(i int) block {
	b = b.first(i + 1)
	if i < 64 {
		b.hi ^= 1 << (63 - i)
	} else {
		b.lo ^= 1 << (127 - i)
	}
	return b
}
