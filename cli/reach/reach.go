// Package reach finds out which ways between pods of several clusters carry packets: which
// ways there are is pure (Paths), and so is what to say of them (Judge); Serve and Call are
// what the pods at both ends of a way run. A call carries more than any packet can, both
// ways, so that a way that loses large packets is not taken for a good one.
package reach

import (
	"cmp"
	"fmt"
	"slices"
)

// Port is where Serve listens in the pods of a test.
const Port = 8080

// Domain is what cluster names of services end with.
const Domain = "svc.cluster.local"

// Pod is one end of ways.
type Pod struct {
	// Name of the pod, and of the Service that selects it alone.
	Name string
	// Cluster is where it runs: the peering, or this cluster's own name.
	Cluster string
	// Home says that it runs in this cluster.
	Home bool
	// Address is its own, as pods of this cluster see it; "" if it has none.
	Address string
	// Seen is its address by the provider that sees it, none by the one where it runs.
	Seen map[string]string
	// ServiceAddress is that of its Service at home, and NodePort where it is on NodeAddress.
	ServiceAddress, NodeAddress string
	NodePort                    int32
}

// Path is a way from a pod to another one.
type Path struct {
	From string `json:"from"`
	To   string `json:"to"`
	// By is the kind of address: pod address, service address, service name, pod name, node port.
	By string `json:"by"`
	// Host and Port are called; Host is "" if there is nothing to call.
	Host string `json:"host,omitempty"`
	Port int32  `json:"port,omitempty"`

	across bool
}

// Paths are all ways that there are between pods at home and elsewhere, of a namespace and a
// headless Service that selects all pods. From one provider to another one they lead through home.
func Paths(namespace, headless string, pods []Pod) []Path {
	var paths []Path
	for _, from := range pods {
		for _, to := range pods {
			if from.Name == to.Name {
				continue
			}
			add := func(by, host string, port int32) {
				paths = append(paths, Path{From: from.Name, To: to.Name, By: by, Host: host, Port: port, across: from.Cluster != to.Cluster})
			}
			add("pod address", address(from, to), Port)
			if from.Home {
				add("service address", to.ServiceAddress, Port)
				add("node port", to.NodeAddress, to.NodePort)
			}
			add("service name", to.Name, Port)
			add("full name", fmt.Sprintf("%s.%s.%s", to.Name, namespace, Domain), Port)
			add("pod name", fmt.Sprintf("%s.%s", to.Name, headless), Port)
		}
	}
	return paths
}

// address is that of a pod as another one sees it.
func address(from, to Pod) string {
	if from.Home || from.Cluster == to.Cluster {
		return to.Address
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
	// Closed says whose choice holds the way closed, which is then not tried.
	Closed string `json:"closed,omitempty"`
	// Why it is not, and what to do.
	Why    string `json:"why,omitempty"`
	Remedy string `json:"remedy,omitempty"`
}

// Judge says what an answer means for a way; pods are those of Paths.
func Judge(p Path, a Answer, pods []Pod) Result {
	r := Result{Path: p, Client: a.Client, Micros: a.Micros}
	from, to := find(pods, p.From), find(pods, p.To)
	peer := cmp.Or(elsewhere(to), elsewhere(from))
	switch {
	case p.Host == "":
		r.Why = fmt.Sprintf("%s has no such address as pods in %s see it", p.To, from.Cluster)
		r.Remedy = "pelago explain peering " + peer
	case a.Err != "" && a.At == AtName:
		r.Why = fmt.Sprintf("the name %s does not resolve in %s: %s", p.Host, from.Cluster, a.Err)
		r.Remedy = "see the cluster's DNS there, and pelago status " + peer
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
