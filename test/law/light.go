package law

import (
	"fmt"
	"slices"
	"strings"
)

// heavy is what programs that run on every node do without, and why.
var heavy = map[string]string{
	"sigs.k8s.io/controller-runtime": "it brings clients and types of all groups of Kubernetes, 14 MB; internal/kube reads and writes objects",
	"k8s.io/client-go/kubernetes":    "it brings clients and types of all groups of Kubernetes, 14 MB; internal/kube reads and writes objects",
	"k8s.io/client-go/informers":     "it brings clients and types of all groups of Kubernetes, 14 MB; internal/kube follows objects",
	"github.com/gopacket/gopacket":   "its layers fill 5.5 MB when a process begins; network/capture reads the headers that it needs",
}

// Light finds among all packages that a program is made of those that make it heavy.
func Light(program string, packages []string) []string {
	var found []string
	for _, p := range packages {
		for path, why := range heavy {
			if p == path || strings.HasPrefix(p, path+"/") {
				found = append(found, fmt.Sprintf("%s: has %s in it: %s", program, p, why))
			}
		}
	}
	slices.Sort(found)
	return found
}
