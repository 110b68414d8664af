package dataplane

import (
	"fmt"
	"strings"
)

// String is the wanted state as an engineer would type it, the node's own namespace
// first: commands of iproute2 and bridge, sysctls, and tables of nftables. It is the same
// for configs that differ in the order of their lists only. Gateways are printed with
// their tunnels.
func (c Config) String() string {
	var b strings.Builder
	if c.Node.Name != "" {
		fmt.Fprintf(&b, "# node %s\n", c.Node.Name)
		hostState(c).write(&b)
	}
	for _, g := range sortedBy(c.Gateways, func(g Gateway) string { return g.Peering }) {
		fmt.Fprintf(&b, "\n# gateway %s\n", g.Peering)
		gatewayState(c, g, true).write(&b)
	}
	return b.String()
}

func (s state) write(b *strings.Builder) {
	for _, l := range s.links {
		fmt.Fprintln(b, l)
	}
	for _, k := range s.settings {
		fmt.Fprintln(b, k)
	}
	for _, a := range s.addresses {
		fmt.Fprintln(b, a)
	}
	for _, n := range s.neighbours {
		fmt.Fprintln(b, n)
	}
	for _, f := range s.forwards {
		fmt.Fprintln(b, f)
	}
	for _, r := range s.routes {
		fmt.Fprintln(b, r)
	}
	for _, r := range s.rules {
		fmt.Fprintln(b, r)
	}
	if s.table != nil {
		s.table.write(b)
	}
}

func (l link) String() string {
	text := fmt.Sprintf("ip link add %s address %s mtu %d", l.name, l.hardware, l.mtu)
	if l.peering != "" {
		return fmt.Sprintf("%s type veth peer name %s netns %s address %s mtu %d", text, insideName, l.peering, l.peerHardware, l.mtu)
	}
	return fmt.Sprintf("%s type vxlan id %d dstport %d local %s nolearning", text, l.vni, l.port, l.local)
}

func (a address) String() string { return fmt.Sprintf("ip addr add %s dev %s", a.prefix, a.device) }

func (n neighbour) String() string {
	return fmt.Sprintf("ip neigh add %s lladdr %s dev %s nud permanent", n.addr, n.hardware, n.device)
}

func (f forward) String() string {
	return fmt.Sprintf("bridge fdb add %s dev %s dst %s self permanent", f.hardware, f.device, f.to)
}

func (r route) String() string {
	if r.device == "" {
		return fmt.Sprintf("ip route add unreachable %s table %d metric %d proto %d", r.prefix, r.table, r.metric, protocol)
	}
	text := "ip route add " + r.prefix.String()
	if r.via.IsValid() {
		text += " via " + r.via.String()
	}
	text += " dev " + r.device
	if r.via.IsValid() {
		text += " onlink"
	}
	text += fmt.Sprintf(" table %d", r.table)
	if r.source.IsValid() {
		text += " src " + r.source.String()
	}
	if r.mtu != 0 {
		text += fmt.Sprintf(" mtu %d", r.mtu)
	}
	return fmt.Sprintf("%s proto %d", text, protocol)
}

func (r rule) String() string {
	family := "-6"
	if r.v4 {
		family = "-4"
	}
	text := fmt.Sprintf("ip %s rule add pref %d", family, r.priority)
	switch r.does {
	case leap:
		return fmt.Sprintf("%s not fwmark %#x/%#x goto %d proto %d", text, markBits, markMask, landPriority, protocol)
	case land:
		return fmt.Sprintf("%s nop proto %d", text, protocol)
	}
	if r.mark != 0 {
		text += fmt.Sprintf(" fwmark %#x", r.mark)
	}
	if r.device != "" {
		text += " iif " + r.device
	}
	return fmt.Sprintf("%s lookup %d proto %d", text, r.table, protocol)
}

func (s setting) String() string {
	return fmt.Sprintf("sysctl -w net/%s=%s", s.key, s.value)
}

func (t *table) write(b *strings.Builder) {
	fmt.Fprintf(b, "table inet %s {\n", t.name)
	for _, name := range t.counters {
		fmt.Fprintf(b, "\tcounter %s { }\n", name)
	}
	for _, s := range sortedBy(t.sets, func(s *set) string { return s.name }) {
		text := strings.TrimSuffix(s.text(), " }")
		var elements []string
		for _, e := range s.sorted() {
			elements = append(elements, e.text(s))
		}
		if len(elements) > 0 {
			text += " elements = { " + strings.Join(elements, ", ") + " }"
		}
		fmt.Fprintf(b, "\t%s }\n", text)
	}
	for _, c := range t.chains {
		fmt.Fprintf(b, "\tchain %s {\n", c.name)
		if c.hook != "" {
			fmt.Fprintf(b, "\t\t%s\n", c.text())
		}
		for _, r := range c.rules {
			fmt.Fprintf(b, "\t\t%s\n", r.text)
		}
		b.WriteString("\t}\n")
	}
	b.WriteString("}\n")
}

func (e element) text(s *set) string {
	if s.of == portKey {
		if e.port == e.last {
			return portText(e.port)
		}
		return portText(e.port) + "-" + portText(e.last)
	}
	text := e.key.String()
	if e.key.IsSingleIP() {
		text = e.key.Addr().String()
	}
	if s.of == pairKey {
		text += " . " + portText(e.port)
	}
	if s.data == markData {
		text += fmt.Sprintf(" : %#x", e.mark)
	}
	return text
}
