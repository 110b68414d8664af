package config

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// reader turns YAML into a Sandbox. It reports what has the wrong shape; what a
// value means is Validate's business.
type reader struct {
	mistakes []*Mistake
	// lines says where each field stands.
	lines map[string]int
	// broken holds the fields whose values could not be read.
	broken map[string]bool
}

var clusterFields = []string{"name", "version", "labels", "nodes", "podRanges", "serviceRanges", "behindNAT", "cni", "domain", "addons", "hollow", "hollowStart"}

func (r *reader) sandbox(n *yaml.Node) Sandbox {
	var s Sandbox
	var clusters *yaml.Node // to be read when the profile is known, which may come later
	r.mapping("", n, []string{"clusters", "profile"}, func(key, path string, v *yaml.Node) {
		if key == "clusters" {
			clusters = v
			return
		}
		s.Profile = r.text(path, v)
		r.notEmpty(path, s.Profile)
	})
	if clusters != nil {
		r.list("clusters", clusters, func(path string, item *yaml.Node) {
			s.Clusters = append(s.Clusters, r.cluster(path, item, s.Profile))
		})
	}
	return s
}

func (r *reader) cluster(path string, n *yaml.Node, profile string) Cluster {
	var c Cluster
	c.Nodes, c.Hollow = Counts(profile)
	r.mapping(path, n, clusterFields, func(key, path string, v *yaml.Node) {
		switch key {
		case "name":
			c.Name = r.text(path, v)
		case "version":
			c.Version = r.text(path, v)
			r.notEmpty(path, c.Version)
		case "labels":
			c.Labels = map[string]string{}
			r.mapping(path, v, nil, func(key, path string, v *yaml.Node) { c.Labels[key] = r.text(path, v) })
		case "nodes":
			c.Nodes = r.number(path, v)
		case "podRanges":
			c.PodRanges = r.ranges(path, v)
		case "serviceRanges":
			c.ServiceRanges = r.ranges(path, v)
		case "behindNAT":
			c.BehindNAT = r.truth(path, v)
		case "cni":
			c.CNI = r.text(path, v)
			r.notEmpty(path, c.CNI)
		case "domain":
			c.Domain = r.text(path, v)
			r.notEmpty(path, c.Domain)
		case "hollow":
			c.Hollow = r.number(path, v)
		case "hollowStart":
			c.HollowStart = r.duration(path, v)
		case "addons":
			c.Addons = []string{}
			r.list(path, v, func(path string, item *yaml.Node) { c.Addons = append(c.Addons, r.text(path, item)) })
		}
	})
	c.fill(profile)
	return c
}

// ranges reads a list of prefixes. One that cannot be read breaks the list, for
// nothing can be said about its families and overlaps.
func (r *reader) ranges(path string, n *yaml.Node) []netip.Prefix {
	ps := []netip.Prefix{}
	r.list(path, n, func(item string, n *yaml.Node) {
		text := r.text(item, n)
		if !r.broken[item] {
			p, err := netip.ParsePrefix(text)
			if err != nil {
				r.wrong(item, n.Line, quote(text)+" is not an address range", "write it like "+DefaultPodRangeV4+" or "+DefaultPodRangeV6)
			}
			ps = append(ps, p)
		}
		if r.broken[item] {
			r.broken[path] = true
		}
	})
	return ps
}

// wrong reports a value that cannot be read.
func (r *reader) wrong(path string, line int, problem, remedy string) {
	r.broken[path] = true
	r.mistakes = append(r.mistakes, &Mistake{Line: line, Field: path, Problem: problem, Remedy: remedy})
}

// notEmpty reports an empty text, which would otherwise read as left out.
func (r *reader) notEmpty(path, text string) {
	if text == "" && !r.broken[path] {
		r.wrong(path, r.line(path), "is empty", "give a value or remove the line")
	}
}

// line returns where a field stands, or where the nearest thing around it does.
func (r *reader) line(path string) int {
	for ; path != ""; path = parent(path) {
		if l, ok := r.lines[path]; ok {
			return l
		}
	}
	return 1
}

// isBroken reports whether a field, or anything around it, could not be read.
func (r *reader) isBroken(path string) bool {
	for ; path != ""; path = parent(path) {
		if r.broken[path] {
			return true
		}
	}
	return r.broken[""] // the file as a whole
}

// parent returns the path of what holds a field: a.b[1] is in a.b, that in a.
// A key in brackets, as labels have them, may hold any character.
func parent(path string) string {
	if strings.HasSuffix(path, "]") {
		if i := strings.Index(path, `["`); i >= 0 {
			return path[:i]
		}
		return path[:max(strings.LastIndexByte(path, '['), 0)]
	}
	return path[:max(strings.LastIndexByte(path, '.'), 0)]
}

// item and labelAt spell the paths of list items and of labels.
func item(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

func labelAt(path, key string) string { return fmt.Sprintf("%s[%s]", path, quote(key)) }
