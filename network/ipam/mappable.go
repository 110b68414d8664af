package ipam

import "net/netip"

// keptBits is how much of an external range is Pelago's own: its first four addresses, of
// which one stands for nodes and one for the API server.
const keptBits = 2

// Mappable are the prefixes that make up what is left of an external range for what owners
// map: all but its first four addresses. There are none in a range of four or fewer.
func Mappable(external netip.Prefix) []netip.Prefix {
	var all []netip.Prefix
	if !external.IsValid() {
		return nil
	}
	whole := external.Addr().BitLen()
	for bits := external.Bits() + 1; bits <= whole-keptBits; bits++ {
		upper := external.Masked().Addr().AsSlice()
		upper[(bits-1)/8] |= 1 << (7 - (bits-1)%8)
		a, _ := netip.AddrFromSlice(upper)
		all = append(all, netip.PrefixFrom(a, bits))
	}
	return all
}
