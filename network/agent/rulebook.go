package agent

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/plan"
)

// rulebook remembers the last NetworkRules that were good: what cannot be understood, or is not all
// there yet, changes nothing. Of a namespace of which nothing good was ever seen, all pods are
// isolated. Its zero value is empty, and it is safe for concurrent use.
type rulebook struct {
	mu sync.Mutex
	of map[ruleKey]*chapter
}

// ruleKey is a namespace at home, of the peering with a namespace here.
type ruleKey struct{ peering, home string }

// chapter is what is known of one namespace.
type chapter struct {
	// read is what was read last, by names and versions.
	read string
	set  *ruleset
	// good says that the set was written by somebody, and wrong what is wrong with what was read last.
	good  bool
	wrong error
}

// everybody is a set that isolates all pods.
var everybody = &ruleset{guarded: directions{true, true}, guardedThere: directions{true, true}}

// update takes all NetworkRules that there are, of which those of namespaces count that say so, and
// returns the sets that hold.
func (b *rulebook) update(all []v1alpha1.NetworkRules, counts func(ruleKey) bool) (sets map[ruleKey]*ruleset, problems []plan.Problem) {
	shards := map[ruleKey][]*v1alpha1.NetworkRules{}
	for i := range all {
		n := &all[i]
		key := ruleKey{n.Namespace, n.Spec.Namespace}
		if n.DeletionTimestamp == nil && n.Name == v1alpha1.NetworkRulesName(n.Spec.Namespace, n.Spec.Shard) && counts(key) {
			shards[key] = append(shards[key], n)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.of, func(key ruleKey, _ *chapter) bool { return len(shards[key]) == 0 })
	sets = map[ruleKey]*ruleset{}
	for key, list := range shards {
		c := b.of[key]
		if c == nil {
			if b.of == nil {
				b.of = map[ruleKey]*chapter{}
			}
			c = &chapter{set: everybody}
			b.of[key] = c
		}
		c.take(list)
		sets[key] = c.set
		if c.wrong == nil {
			continue
		}
		goes := "what was known of them before goes on"
		if !c.good {
			goes = "until then all pods of this namespace are isolated"
		}
		problems = append(problems, plan.Problem{
			Object: "networkrules of " + key.home + " in " + key.peering, Text: cut(c.wrong.Error(), 150) + "; " + goes,
		})
	}
	slices.SortFunc(problems, func(a, b plan.Problem) int { return cmp.Compare(a.Object, b.Object) })
	return sets, problems
}

// take reads the shards unless they are those that were read last.
func (c *chapter) take(shards []*v1alpha1.NetworkRules) {
	slices.SortFunc(shards, func(a, b *v1alpha1.NetworkRules) int { return cmp.Compare(a.Name, b.Name) })
	var versions strings.Builder
	for _, s := range shards {
		versions.WriteString(s.Name + " " + string(s.UID) + " " + s.ResourceVersion + "\n")
	}
	if c.read == versions.String() {
		return
	}
	c.read = versions.String()
	set, err := readRules(shards)
	if c.wrong = err; err == nil {
		c.set, c.good = set, true
	}
}
