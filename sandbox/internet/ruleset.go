package internet

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

const table = "pelago"

// Ruleset returns the whole nftables table of a valid Config as a script that
// replaces the one in force in one step. It is pure.
//
// Every ordered pair of interfaces that may exchange packets has a chain; a
// packet between any other two is dropped, and so is one whose addresses do not
// belong to the two sides.
func Ruleset(c Config) string {
	var chains, verdicts []string
	var counters strings.Builder
	for _, p := range c.pairs() {
		from, to := c.Ports[p.from], c.Ports[p.to]
		link := c.link(from.Cluster, to.Cluster)
		passed, dropped := counterNames(from.Cluster, to.Cluster)
		fmt.Fprintf(&counters, "\tcounter %s { }\n\tcounter %s { }\n", passed, dropped)

		name := fmt.Sprintf("from_%s_to_%s", from.Cluster, to.Cluster)
		chains = append(chains, pairChain(name, from, to, link.Cut, "counter name "+passed+" ", dropped))
		verdicts = append(verdicts, verdict(from.Interface, to.Interface, name))
		if link.relayed() {
			device := deviceName(p.from, p.to)
			chains = append(chains, pairChain("wan_"+name, from, to, link.Cut, "", dropped))
			verdicts = append(verdicts, verdict(from.Interface, device, "wan_"+name), verdict(device, to.Interface, name))
		}
	}
	hostChains, hostVerdicts := c.hostRules()
	chains, verdicts = append(chains, hostChains...), append(verdicts, hostVerdicts...)
	return fmt.Sprintf("table inet %[1]s { }\ndelete table inet %[1]s\ntable inet %[1]s {\n", table) +
		counters.String() + forwardChain(verdicts) + strings.Join(chains, "") + "}\n"
}

func forwardChain(verdicts []string) string {
	dispatch := ""
	if len(verdicts) > 0 { // nft refuses an empty map
		dispatch = "\t\tiifname . oifname vmap {\n\t\t\t" + strings.Join(verdicts, ",\n\t\t\t") + "\n\t\t}\n"
	}
	return "\tchain forward {\n\t\ttype filter hook forward priority filter; policy drop;\n" + dispatch + "\t}\n"
}

func verdict(in, out, chain string) string {
	return fmt.Sprintf("%q . %q : goto %s", in, out, chain)
}

// counterNames names what counts the packets of one direction. Cluster names
// hold no underscore, so no two pairs share a name.
func counterNames(from, to string) (passed, dropped string) {
	return fmt.Sprintf("passed_%s_to_%s", from, to), fmt.Sprintf("dropped_%s_to_%s", from, to)
}

// pairChain lets through what the one cluster may send to the other.
func pairChain(name string, from, to Port, cut bool, count, dropped string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\tchain %s {\n", name)
	if !cut {
		b.WriteString(accept(from.Prefixes, to.Prefixes, count))
	}
	fmt.Fprintf(&b, "\t\tcounter name %s drop\n\t}\n", dropped)
	return b.String()
}

// hostRules lets the host reach everything, and the answers back. A new TCP
// connection towards the host is no answer; of the other protocols a packet
// does not say whether it is one.
func (c Config) hostRules() (chains, verdicts []string) {
	if c.Host.Interface == "" {
		return nil, nil
	}
	ports := slices.Clone(c.Ports)
	slices.SortFunc(ports, func(a, b Port) int { return strings.Compare(a.Cluster, b.Cluster) })
	for _, p := range ports {
		all := slices.Concat(p.Prefixes, p.Private)
		into, back := "into_"+p.Cluster, "back_from_"+p.Cluster
		chains = append(chains,
			fmt.Sprintf("\tchain %s {\n%s\t}\n", into, accept(c.Host.Prefixes, all, "")),
			fmt.Sprintf("\tchain %s {\n\t\ttcp flags & (fin | syn | rst | ack) == syn drop\n%s\t}\n", back,
				accept(all, c.Host.Prefixes, "")))
		verdicts = append(verdicts, verdict(c.Host.Interface, p.Interface, into), verdict(p.Interface, c.Host.Interface, back))
	}
	return chains, verdicts
}

// accept returns a rule per family that both sides have.
func accept(from, to []netip.Prefix, count string) string {
	var b strings.Builder
	for _, family := range []struct {
		word string
		is4  bool
	}{{"ip", true}, {"ip6", false}} {
		source, destination := ofFamily(from, family.is4), ofFamily(to, family.is4)
		if len(source) > 0 && len(destination) > 0 {
			fmt.Fprintf(&b, "\t\t%s saddr %s %s daddr %s %saccept\n", family.word, set(source), family.word, set(destination), count)
		}
	}
	return b.String()
}

func ofFamily(prefixes []netip.Prefix, is4 bool) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range prefixes {
		if p.Addr().Is4() == is4 {
			out = append(out, p)
		}
	}
	return out
}

func set(prefixes []netip.Prefix) string {
	texts := make([]string, len(prefixes))
	for i, p := range prefixes {
		texts[i] = p.String()
	}
	slices.Sort(texts)
	return "{ " + strings.Join(texts, ", ") + " }"
}
