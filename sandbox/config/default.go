package config

import (
	"net/netip"
	"slices"
)

// Addons returns the names of all add-ons, which is also what a cluster gets if
// it does not say.
func Addons() []string {
	return []string{AddonDNS, AddonMetrics, AddonStorage, AddonLoadBalancer}
}

// Default returns a sandbox of clusters that differ in their names only, each
// with that many nodes. The error is Validate's.
func Default(clusters []string, nodes int) (Sandbox, error) {
	s := Sandbox{Clusters: make([]Cluster, 0, len(clusters))}
	for _, name := range clusters {
		c := Cluster{Name: name, Nodes: nodes}
		c.fill()
		s.Clusters = append(s.Clusters, c)
	}
	if err := s.Validate(); err != nil {
		return Sandbox{}, err
	}
	return s, nil
}

// fill gives every field that was left out its default, except Nodes, whose zero
// may have been meant.
func (c *Cluster) fill() {
	if c.Version == "" {
		c.Version = DefaultVersion
	}
	if c.CNI == "" {
		c.CNI = CNIBridge
	}
	if c.Addons == nil {
		c.Addons = Addons()
	}
	if c.PodRanges == nil {
		c.PodRanges = likeFamilies(c.ServiceRanges, DefaultPodRangeV4, DefaultPodRangeV6)
	}
	if c.ServiceRanges == nil {
		c.ServiceRanges = likeFamilies(c.PodRanges, DefaultServiceRangeV4, DefaultServiceRangeV6)
	}
}

// likeFamilies returns the default range for each family that the other kind of
// range has, in its order; IPv4 alone if that kind was left out as well.
func likeFamilies(other []netip.Prefix, v4, v6 string) []netip.Prefix {
	if len(other) == 0 {
		return []netip.Prefix{netip.MustParsePrefix(v4)}
	}
	var ranges []netip.Prefix
	for _, o := range other {
		p := netip.MustParsePrefix(v6)
		if o.Addr().Is4() {
			p = netip.MustParsePrefix(v4)
		}
		if !slices.Contains(ranges, p) {
			ranges = append(ranges, p)
		}
	}
	return ranges
}
