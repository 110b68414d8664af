package addon

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Limits of a subnet file. Real ones have about 200 bytes.
const (
	maxSubnetFile = 4096
	minMTU        = 576
	maxMTU        = 65535
)

// conflist is a CNI configuration of several plugins.
type conflist struct {
	Version string   `json:"cniVersion"`
	Name    string   `json:"name"`
	Plugins []plugin `json:"plugins"`
}

// plugin is the configuration of bridge or portmap.
type plugin struct {
	Type         string          `json:"type"`
	Bridge       string          `json:"bridge,omitempty"`
	Gateway      bool            `json:"isDefaultGateway,omitempty"`
	Hairpin      bool            `json:"hairpinMode,omitempty"`
	Masquerade   bool            `json:"ipMasq,omitempty"`
	MTU          int             `json:"mtu,omitempty"`
	IPAM         *ipam           `json:"ipam,omitempty"`
	Capabilities map[string]bool `json:"capabilities,omitempty"`
}

// ipam is the configuration of host-local: one set of ranges per family, and
// routes to the whole pod network beside the default route.
type ipam struct {
	Type   string     `json:"type"`
	Ranges [][]subnet `json:"ranges"`
	Routes []route    `json:"routes"`
}

type subnet struct {
	Subnet netip.Prefix `json:"subnet"`
}

type route struct {
	Destination netip.Prefix `json:"dst"`
}

// FlannelConflist turns the subnet file that flannel writes on a node
// (/run/flannel/subnet.env) into CNI configuration for that node: what
// flannel's own CNI plugin would ask of the bridge plugin, then portmap. Pods
// are masqueraded by the bridge plugin only where flannel does not do it. A
// file that is incomplete or larger than 4096 bytes is refused.
func FlannelConflist(subnetEnv []byte) ([]byte, error) {
	lease, err := parseSubnetFile(subnetEnv)
	if err != nil {
		return nil, fmt.Errorf("reading flannel's subnet file: %w", err)
	}
	bridge := plugin{
		Type: "bridge", Bridge: "cni0", Gateway: true, Hairpin: true, Masquerade: !lease.masquerades, MTU: lease.mtu,
		IPAM: &ipam{Type: "host-local"},
	}
	for i, s := range lease.subnets {
		bridge.IPAM.Ranges = append(bridge.IPAM.Ranges, []subnet{{s}})
		bridge.IPAM.Routes = append(bridge.IPAM.Routes, route{lease.networks[i]})
	}
	text, err := json.MarshalIndent(conflist{
		Version: "0.4.0", Name: "cbr0",
		Plugins: []plugin{bridge, {Type: "portmap", Capabilities: map[string]bool{"portMappings": true}}},
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("writing CNI configuration: %w", err)
	}
	return append(text, '\n'), nil
}

// lease is a subnet file: per family the whole network and this node's part.
type lease struct {
	networks, subnets []netip.Prefix
	mtu               int
	masquerades       bool
}

func parseSubnetFile(text []byte) (lease, error) {
	if len(text) > maxSubnetFile {
		return lease{}, fmt.Errorf("%d bytes are more than %d", len(text), maxSubnetFile)
	}
	vars := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			vars[name] = value
		}
	}
	var l lease
	for _, infix := range []string{"", "IPV6_"} {
		if err := l.addFamily(vars, "FLANNEL_"+infix, infix == ""); err != nil {
			return lease{}, err
		}
	}
	if len(l.subnets) == 0 {
		return lease{}, errors.New("it has neither FLANNEL_SUBNET nor FLANNEL_IPV6_SUBNET")
	}
	var err error
	if l.mtu, err = strconv.Atoi(vars["FLANNEL_MTU"]); err != nil || l.mtu < minMTU || l.mtu > maxMTU {
		return lease{}, fmt.Errorf("FLANNEL_MTU %q is not between %d and %d", vars["FLANNEL_MTU"], minMTU, maxMTU)
	}
	if l.masquerades, err = strconv.ParseBool(vars["FLANNEL_IPMASQ"]); err != nil {
		return lease{}, fmt.Errorf("FLANNEL_IPMASQ %q is neither true nor false", vars["FLANNEL_IPMASQ"])
	}
	return l, nil
}

// addFamily takes NETWORK and SUBNET of one family, if the file has them.
// SUBNET names the bridge's own address, so it is cut down to the subnet.
func (l *lease) addFamily(vars map[string]string, prefix string, four bool) error {
	if vars[prefix+"SUBNET"] == "" {
		return nil
	}
	for _, part := range []struct {
		name string
		into *[]netip.Prefix
	}{{prefix + "NETWORK", &l.networks}, {prefix + "SUBNET", &l.subnets}} {
		p, err := netip.ParsePrefix(vars[part.name])
		if err != nil || p.Addr().Is4() != four {
			return fmt.Errorf("%s %q is not a network of its family", part.name, vars[part.name])
		}
		*part.into = append(*part.into, p.Masked())
	}
	return nil
}
