// Package reach finds out which ways between pods of several clusters carry packets: which
// ways there are is pure (Paths), and so is what to say of them (Judge); Serve and Call are
// what the pods at both ends of a way run. A call carries more than any packet can, both
// ways, so that a way that loses large packets is not taken for a good one.
package reach

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Port is where Serve listens in the pods of a test.
const Port = 8080

// Family is that of addresses.
type Family string

// Families, the first one first.
const (
	IPv4 Family = "IPv4"
	IPv6 Family = "IPv6"
)

// FamilyOf is that of an address, "" if it is none.
func FamilyOf(address string) Family {
	switch a, err := netip.ParseAddr(address); {
	case err != nil:
		return ""
	case a.Unmap().Is4():
		return IPv4
	}
	return IPv6
}

// Addresses are one of each family.
type Addresses map[Family]string

// Of are those of a list, the first of each family.
func Of(list ...string) Addresses {
	all := Addresses{}
	for _, a := range list {
		if f := FamilyOf(a); f != "" && all[f] == "" {
			all[f] = a
		}
	}
	return all
}

// API is the name of home's API server at the end of a way.
const API = "kubernetes"

// Pod is one end of ways.
type Pod struct {
	// Name of the pod, and of the Service that selects it alone.
	Name string
	// Cluster is where it runs: the peering, or this cluster's own name, which may be the same.
	Cluster string
	// Home says that it runs in this cluster.
	Home bool
	// Families are those that pods of its cluster have: it has to be reached by each that both ends have.
	Families []Family
	// Addresses are its own, as pods of this cluster see it; none if it has none.
	Addresses Addresses
	// Seen are its addresses by the provider that sees it, none by the one where it runs.
	Seen map[string]Addresses
	// Service are the addresses of its Service at home, Nodes those of a node where it is at NodePort.
	Service, Nodes Addresses
	NodePort       int32
	// Balancers are addresses or names that a load balancer gave a Service of its own; Unbalanced
	// says why there are none.
	Balancers  Addresses
	Unbalanced string
	// Unasked says why it does not call home's API, "" if it does.
	Unasked string
	// Node is where it runs, of a pod of this cluster, and Gateways are the nodes here that have the tunnels, by
	// peering; none of one that is not known.
	Node     string
	Gateways map[string]string
}

// Place is where the pod of this cluster at an end of a way runs.
type Place string

// Places: on the node that is gateway to the peer at the other end, or on another one, from which packets go to it first.
// It is "" where that is not known, and where no pod of this cluster is at an end.
const (
	OnGateway  Place = "on"
	OffGateway Place = "off"
)

// placed is where the pod of this cluster at an end of a way runs. Of those of a peer its own cluster alone knows.
func placed(from, to Pod) Place {
	here, there := from, to
	if to.Home {
		here, there = to, from
	}
	switch gateway := here.Gateways[there.Cluster]; {
	case !here.Home || there.Home || gateway == "" || here.Node == "":
		return ""
	case gateway == here.Node:
		return OnGateway
	}
	return OffGateway
}

// Path is a way from a pod to another one, or to home's API.
type Path struct {
	From string `json:"from"`
	To   string `json:"to"`
	// By is the kind of address: pod address, service address, service name, pod name, node port,
	// load balancer, home's API; or UDP to one of these.
	By string `json:"by"`
	// Family of the address, "" if there is none.
	Family Family `json:"family,omitempty"`
	// Host and Port are called; Host is "" if there is nothing to call.
	Host string `json:"host,omitempty"`
	Port int32  `json:"port,omitempty"`
	// Untried says why nothing is called, which is then neither good nor bad.
	Untried string `json:"untried,omitempty"`

	across  bool
	network string // as in Target
}

// Target is what Call takes.
func (p Path) Target() string {
	target := net.JoinHostPort(p.Host, strconv.Itoa(int(p.Port)))
	if p.network != "" {
		target = p.network + "/" + target
	}
	return target
}

// The kinds of ways.
const (
	byPod, byService, byNode, byBalancer = "pod address", "service address", "node port", "load balancer"
	byName, byFullName, byPodName        = "service name", "full name", "pod name"
	byAPI                                = "home's API"
	overUDP                              = "UDP to "
)

// Paths are all ways that there are between pods at home and elsewhere, of a namespace, a headless
// Service that selects all pods, and what home is called in its own DNS. From one provider to another one they lead through home.
func Paths(namespace, headless, domain string, pods []Pod) []Path {
	var paths []Path
	for _, from := range pods {
		for _, to := range pods {
			if from.Name == to.Name {
				continue
			}
			families := both(from, to)
			for _, family := range families {
				paths = append(paths, between(namespace, headless, domain, from, to, family, len(families) > 1)...)
			}
			if len(families) == 0 {
				paths = append(paths, Path{From: from.Name, To: to.Name, By: byPod, across: true})
			}
			if !from.Home {
				paths = append(paths, Path{From: from.Name, To: to.Name, By: byNode, across: true,
					Untried: "Node ports of a provider are not known to its consumers, and there are none but where the Tenant allows them"})
			}
		}
		if !from.Home {
			paths = append(paths, Path{From: from.Name, To: API, By: byAPI, Host: "kubernetes.default.svc", Port: 443, Untried: from.Unasked, across: true, network: "api"})
		}
	}
	return paths
}

// both are the families that both clusters have.
func both(from, to Pod) (all []Family) {
	for _, f := range from.Families {
		if slices.Contains(to.Families, f) {
			all = append(all, f)
		}
	}
	return all
}

// between are the ways of one family. If there are several, names are asked for addresses of this one.
func between(namespace, headless, domain string, from, to Pod, family Family, several bool) (paths []Path) {
	version := "4"
	if family == IPv6 {
		version = "6"
	}
	add := func(by, host string, port int32, network string) {
		paths = append(paths, Path{From: from.Name, To: to.Name, By: by, Family: family, Host: host, Port: port, across: !together(from, to), network: network})
	}
	named := ""
	if several {
		named = "tcp" + version
	}
	add(byPod, address(from, to)[family], Port, "")
	add(overUDP+byPod, address(from, to)[family], Port, "udp"+version)
	if from.Home && to.Service[family] != "" {
		add(byService, to.Service[family], Port, "")
		add(overUDP+byService, to.Service[family], Port, "udp"+version)
	}
	if from.Home && to.Nodes[family] != "" && to.Service[family] != "" {
		add(byNode, to.Nodes[family], to.NodePort, "")
	}
	if from.Home && (to.Service[family] != "" || len(to.Service) == 0) {
		add(byBalancer, to.Balancers[family], Port, "")
		if last := &paths[len(paths)-1]; FamilyOf(last.Host) == "" {
			last.network = "tcp" + version
			if last.Host == "" {
				last.Untried = to.Unbalanced
			}
		}
	}
	if to.Service[family] != "" || len(to.Service) == 0 {
		add(byName, to.Name, Port, named)
		add(byFullName, fmt.Sprintf("%s.%s.svc.%s", to.Name, namespace, domain), Port, named)
		if !from.Home {
			add(overUDP+byName, to.Name, Port, "udp"+version)
		}
	}
	add(byPodName, fmt.Sprintf("%s.%s", to.Name, headless), Port, named)
	return paths
}

// together says that two pods are in one cluster. Nothing keeps a peering from having the name that this cluster gives
// itself, and clusters that kubeadm made are called alike, so the name alone does not tell.
func together(from, to Pod) bool { return from.Home == to.Home && from.Cluster == to.Cluster }

// address is that of a pod as another one sees it.
func address(from, to Pod) Addresses {
	if from.Home || together(from, to) {
		return to.Addresses
	}
	return to.Seen[from.Cluster]
}

// Answer is what a call came to.
type Answer struct {
	// Server is the name of the pod that answered, and Client whom it saw.
	Server string `json:"server,omitempty"`
	Client string `json:"client,omitempty"`
	// Micros is how long it took to connect, in millionths of a second.
	Micros int64 `json:"micros,omitempty"`
	// Err is what went wrong, and At where: name, connect, transfer.
	Err string `json:"error,omitempty"`
	At  string `json:"at,omitempty"`
}

// Where a call ends that goes wrong.
const (
	AtName     = "name"
	AtConnect  = "connect"
	AtTransfer = "transfer"
)

// Result is a way and whether it is good.
type Result struct {
	Path
	OK     bool   `json:"ok"`
	Client string `json:"client,omitempty"`
	Micros int64  `json:"micros,omitempty"`
	// Gateway says whether the pod here runs on the node of this cluster's gateway to the other end.
	Gateway Place `json:"gateway,omitempty"`
	// Closed says whose choice holds the way closed, which is then not tried.
	Closed string `json:"closed,omitempty"`
	// Why it is not, and what to do.
	Why    string `json:"why,omitempty"`
	Remedy string `json:"remedy,omitempty"`
}

// Bad says that a way was tried, and is not as it should be.
func (r Result) Bad() bool { return !r.OK && r.Closed == "" && r.Untried == "" }

// Judge says what an answer means for a way; pods are those of Paths.
func Judge(p Path, a Answer, pods []Pod) Result {
	r := Result{Path: p, Client: a.Client, Micros: a.Micros}
	from, to := find(pods, p.From), find(pods, p.To)
	peer := cmp.Or(elsewhere(to), elsewhere(from))
	if r.Gateway = placed(from, to); p.To == API {
		r.Gateway = ""
	}
	switch {
	case p.Untried != "":
	case p.Host == "":
		r.Why = fmt.Sprintf("%s has no such address as pods in %s see it", p.To, from.Cluster)
		r.Remedy = "pelago explain peering " + peer
	case a.Err != "" && p.By == byAPI:
		r.Why = a.Err
		r.Remedy = "see docs/network.md, Home's API"
	case a.Err != "" && a.At == AtName:
		r.Why = fmt.Sprintf("the name %s does not resolve in %s: %s", p.Host, from.Cluster, a.Err)
		r.Remedy = "see the cluster's DNS there, and pelago status " + peer
		if strings.HasPrefix(p.network, "tcp") {
			r.Remedy += fmt.Sprintf("; where Services have no %s it is no failure", p.Family)
		}
	case a.Err != "" && a.At == AtTransfer:
		r.Why = "it connects, and loses what is large: " + a.Err
		r.Remedy = "see that nodes pass packets as large as their devices say (MTU), and ICMP"
	case a.Err != "":
		r.Why = a.Err
		r.Remedy = "pelago status " + peer
		if !p.across {
			r.Remedy = "both are in " + from.Cluster + ": see that cluster's own network"
		}
	case a.Server != p.To:
		r.Why = fmt.Sprintf("%s answered", a.Server)
		r.Remedy = fmt.Sprintf("%s means something else in %s: pelago status %s", p.Host, from.Cluster, peer)
	default:
		r.OK = true
	}
	return r
}

func find(pods []Pod, name string) Pod {
	i := slices.IndexFunc(pods, func(p Pod) bool { return p.Name == name })
	if i < 0 {
		return Pod{}
	}
	return pods[i]
}

func elsewhere(p Pod) string {
	if p.Home {
		return ""
	}
	return p.Cluster
}
