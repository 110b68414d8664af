package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/pelago-dev/pelago/sandbox/address"
)

// Limits of a sandbox.
const (
	maxName  = 20 // a machine name is a host name and part of file names
	maxNodes = 50

	maxHollow      = 1000
	maxDomain      = 63
	maxHollowStart = 10 * time.Minute
)

// Validate checks a sandbox that has every field set. The error joins all that
// is wrong, each a *Mistake without file and line.
func (s Sandbox) Validate() error { return join(s.mistakes()) }

func (s Sandbox) mistakes() []*Mistake {
	c := checker{profile: s.Profile}
	if s.Profile != "" && s.Profile != ProfileControlPlane {
		c.wrong("profile", quote(s.Profile)+" is not a profile of the sandbox", "write "+ProfileControlPlane+" or remove the line")
	}
	switch n := len(s.Clusters); {
	case n == 0:
		c.wrong("clusters", "has no cluster", "list at least one")
	case n > address.Clusters:
		c.wrong("clusters", fmt.Sprintf("lists %d clusters, a sandbox has addresses for %d", n, address.Clusters),
			"remove some or use a second sandbox (--name)")
	}
	first := map[string]int{}
	for i, cluster := range s.Clusters {
		at := item("clusters", i)
		if j, taken := first[cluster.Name]; taken && cluster.Name != "" {
			c.wrong(at+".name", quote(cluster.Name)+" is also the name of "+item("clusters", j), "choose another name")
		} else {
			first[cluster.Name] = i
		}
		c.cluster(at, cluster)
	}
	return c.mistakes
}

// checker collects what is wrong.
type checker struct {
	profile  string
	mistakes []*Mistake
}

func (c *checker) wrong(field, problem, remedy string) {
	c.mistakes = append(c.mistakes, &Mistake{Field: field, Problem: problem, Remedy: remedy})
}

// clash reports a contradiction between two fields at the first.
func (c *checker) clash(field, with, problem, remedy string) {
	c.mistakes = append(c.mistakes, &Mistake{Field: field, with: with, Problem: problem, Remedy: remedy})
}

func (c *checker) cluster(at string, k Cluster) {
	c.name(at+".name", k.Name)
	c.version(at+".version", k.Version)
	c.labels(at+".labels", k.Labels)
	c.ranges(at, k)
	c.hollow(at, k)
	if c.profile == ProfileControlPlane {
		c.noMachines(at, k)
	} else {
		c.machines(at, k)
	}
}

// hollow checks what a cluster says of hollow nodes.
func (c *checker) hollow(at string, k Cluster) {
	if k.Hollow < 0 || k.Hollow > maxHollow {
		c.wrong(at+".hollow", fmt.Sprintf("is %d", k.Hollow), fmt.Sprintf("choose 0 to %d", maxHollow))
	}
	switch field := at + ".hollowStart"; {
	case k.HollowStart < 0 || k.HollowStart > maxHollowStart:
		c.wrong(field, fmt.Sprintf("is %s", k.HollowStart), fmt.Sprintf("choose at most %s", maxHollowStart))
	case k.HollowStart != 0 && k.Hollow == 0:
		c.clash(field, at+".hollow", "is of no use without hollow nodes", "give hollow as well or remove the line")
	}
}

// noMachines refuses what only clusters of machines have.
func (c *checker) noMachines(at string, k Cluster) {
	refuse := func(field string, given bool) {
		if given {
			c.clash(at+"."+field, "profile", "is for clusters of machines, and the profile "+ProfileControlPlane+" has none", "remove the line, or the profile")
		}
	}
	refuse("nodes", k.Nodes != 0)
	refuse("behindNAT", k.BehindNAT)
	refuse("cni", k.CNI != "")
	refuse("domain", k.Domain != "")
	refuse("addons", len(k.Addons) > 0)
}

// machines checks what only clusters of machines have.
func (c *checker) machines(at string, k Cluster) {
	if k.Nodes < 1 || k.Nodes > maxNodes {
		c.wrong(at+".nodes", fmt.Sprintf("is %d", k.Nodes), fmt.Sprintf("choose 1 to %d", maxNodes))
	}
	if plugins := []string{CNIBridge, CNIFlannel}; !slices.Contains(plugins, k.CNI) {
		c.wrong(at+".cni", quote(k.CNI)+" is not a network plugin of the sandbox", oneOf(k.CNI, plugins))
	}
	if k.Domain != "" && (len(k.Domain) > maxDomain || !domainForm.MatchString(k.Domain)) {
		c.wrong(at+".domain", quote(k.Domain)+" is not a domain of the DNS", fmt.Sprintf("choose labels of small letters, digits and -, with dots between, at most %d characters, such as rome.example", maxDomain))
	}
	first := map[string]bool{}
	for i, a := range k.Addons {
		switch field := item(at+".addons", i); {
		case !slices.Contains(Addons(), a):
			c.wrong(field, quote(a)+" is not an add-on of the sandbox", oneOf(a, Addons()))
		case first[a]:
			c.wrong(field, a+" is listed twice", "remove one")
		}
		first[a] = true
	}
}

var (
	nameForm     = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)
	domainForm   = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	reservedForm = regexp.MustCompile(`-(control|nat|[0-9]+)$`)
	versionForm  = regexp.MustCompile(`^v1\.(34|35|36)\.(0|[1-9][0-9]{0,2})$`)
	looseVersion = regexp.MustCompile(`^v?(\d+\.\d+\.\d+)$`)
)

func (c *checker) name(field, name string) {
	switch end := reservedForm.FindString(name); {
	case name == "":
		c.wrong(field, "is missing", "name the cluster, for instance rome")
	case len(name) > maxName:
		c.wrong(field, fmt.Sprintf("%s has %d characters", quote(name), len(name)), fmt.Sprintf("use at most %d", maxName))
	case !nameForm.MatchString(name):
		c.wrong(field, quote(name)+" cannot be part of a host name", "use a-z, 0-9 and -, with a letter or digit at both ends")
	case name == "internet":
		c.wrong(field, quote(name)+" is the machine between the clusters, and machines are named after clusters", "choose another name")
	case end != "":
		c.wrong(field, quote(name)+" ends in "+end+": machines are named after clusters, and a cluster "+strings.TrimSuffix(name, end)+
			" could have a machine of that name", "choose another name")
	}
}

func (c *checker) version(field, version string) {
	if versionForm.MatchString(version) {
		return
	}
	remedy := "choose v1.34.x, v1.35.x or v1.36.x, for instance " + DefaultVersion
	if m := looseVersion.FindStringSubmatch(version); m != nil && versionForm.MatchString("v"+m[1]) {
		remedy = "write v" + m[1]
	}
	c.wrong(field, quote(version)+" is not a Kubernetes release that the sandbox can build", remedy)
}

// ownPrefixes are prefixes of label keys that a kubelet may not put on its node,
// except for those in kubeletKeys (k8s.io/kubelet/pkg/apis, well_known_labels.go).
var (
	ownPrefixes = []string{"kubernetes.io", "k8s.io"}
	kubeletKeys = []string{"topology.kubernetes.io/region", "topology.kubernetes.io/zone"}
)

func (c *checker) labels(at string, labels map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		field, value := labelAt(at, key), labels[key]
		if msgs := validation.IsQualifiedName(key); len(msgs) > 0 {
			c.wrong(field, "is not a Kubernetes label key", "use at most 63 letters, digits, -, _ and . with a letter or digit at both ends")
		} else if prefix, _, slash := strings.Cut(key, "/"); slash && kubernetesOwns(prefix) && !slices.Contains(kubeletKeys, key) {
			c.wrong(field, "has a prefix that Kubernetes keeps for itself", "remove the prefix, keys without one are put on the nodes as they are")
		}
		if msgs := validation.IsValidLabelValue(value); len(msgs) > 0 {
			c.wrong(field, quote(value)+" is not a Kubernetes label value", "use at most 63 letters, digits, -, _ and . with a letter or digit at both ends")
		}
	}
}

// kubernetesOwns reports whether a prefix is one of ownPrefixes or below one,
// other than node.kubernetes.io, which anyone may use.
func kubernetesOwns(prefix string) bool {
	if prefix == "node.kubernetes.io" || strings.HasSuffix(prefix, ".node.kubernetes.io") {
		return false
	}
	return slices.ContainsFunc(ownPrefixes, func(own string) bool {
		return prefix == own || strings.HasSuffix(prefix, "."+own)
	})
}
