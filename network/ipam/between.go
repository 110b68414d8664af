package ipam

import "net/netip"

// Between are the prefixes from an address to another one of its family, both included.
func Between(first, last netip.Addr) (prefixes []netip.Prefix) {
	for {
		// The widest prefix that begins here and ends not after the last one.
		p := netip.PrefixFrom(first, first.BitLen())
		for bits := first.BitLen() - 1; bits >= 0; bits-- {
			wider := netip.PrefixFrom(first, bits)
			if wider.Masked() != wider || last.Less(lastIn(wider)) {
				break
			}
			p = wider
		}
		prefixes = append(prefixes, p)
		if first = lastIn(p).Next(); !first.IsValid() || last.Less(first) {
			return prefixes
		}
	}
}

// lastIn is the last address of a prefix.
func lastIn(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < 8*len(b); i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}
