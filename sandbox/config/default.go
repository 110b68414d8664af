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
	return Alike(clusters, "", Cluster{Nodes: nodes})
}

// Alike returns a sandbox of clusters that differ in their names only and are
// otherwise like the given one, which may leave out all but Nodes and Hollow.
// The error is Validate's.
func Alike(clusters []string, profile string, like Cluster) (Sandbox, error) {
	s := Sandbox{Profile: profile, Clusters: make([]Cluster, 0, len(clusters))}
	for _, name := range clusters {
		c := like
		c.Name = name
		c.fill(profile)
		s.Clusters = append(s.Clusters, c)
	}
	if err := s.Validate(); err != nil {
		return Sandbox{}, err
	}
	return s, nil
}

// Counts returns how many nodes and hollow nodes a cluster has that does not say.
func Counts(profile string) (nodes, hollow int) {
	if profile == ProfileControlPlane {
		return 0, DefaultHollow
	}
	return DefaultNodes, 0
}

// fill gives every field that was left out its default, except Nodes and Hollow,
// whose zero may have been meant.
func (c *Cluster) fill(profile string) {
	if c.Hollow > 0 && c.HollowStart == 0 {
		c.HollowStart = DefaultHollowStart
	}
	if c.Version == "" {
		c.Version = DefaultVersion
	}
	if profile != ProfileControlPlane {
		c.fillMachines()
	}
	if c.PodRanges == nil {
		c.PodRanges = likeFamilies(c.ServiceRanges, DefaultPodRangeV4, DefaultPodRangeV6)
	}
	if c.ServiceRanges == nil {
		c.ServiceRanges = likeFamilies(c.PodRanges, DefaultServiceRangeV4, DefaultServiceRangeV6)
	}
}

// fillMachines gives defaults to what only clusters of machines have.
func (c *Cluster) fillMachines() {
	if c.CNI == "" {
		c.CNI = CNIBridge
	}
	if c.Addons == nil {
		c.Addons = Addons()
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
