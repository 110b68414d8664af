package network

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/network/mapping"
)

// counted counts what is read.
type counted struct {
	client.Reader
	gets int
}

func (c *counted) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	c.gets++
	return c.Reader.Get(ctx, key, o, opts...)
}

// TestMoved holds that a change of the ground has those mappings looked at for which something else follows from it,
// and nothing is asked of the API server for others.
func TestMoved(t *testing.T) {
	b := newBoard(t)
	live := &counted{Reader: b.client}
	b.mapper.live = live
	b.add("db", "192.0.2.50")
	b.add("web", "192.0.2.51")
	b.add("pod", "10.42.0.7")        // which is refused
	own := func() (names []string) { // others use the same server
		for _, r := range b.mapper.moved(ctx) {
			if r.Namespace == b.namespace {
				names = append(names, r.Name)
			}
		}
		slices.Sort(names)
		return names
	}
	before := b.network.look().ground
	with := func(ranges ...string) mapping.Ground {
		g := before
		g.Taken = slices.Clone(before.Taken)
		for _, p := range prefixes(ranges) {
			g.Taken = append(g.Taken, mapping.Part{Prefix: p, What: "in the range of the pods of a node here"})
		}
		return g
	}
	wider, narrow := before, before
	wider.External, narrow.Mappable = ranges("10.255.254.0/24"), ranges("192.0.2.50/32")
	for _, c := range []struct {
		reason string
		g      mapping.Ground
		want   []string
	}{
		{"a node elsewhere", with("10.43.1.0/24"), nil},
		{"it is gone", before, nil},
		{"a node whose range has what is mapped", with("192.0.2.51/32"), []string{"web"}},
		{"it is gone", before, []string{"web"}},
		{"one may not be mapped any more", narrow, []string{"web"}},
		{"another external range", wider, []string{"db", "pod", "web"}},
	} {
		b.learn(c.g)
		live.gets = 0
		names := own()
		for _, name := range names {
			b.look(name)
		}
		if fmt.Sprint(names) != fmt.Sprint(c.want) || len(c.want) == 0 && live.gets > 0 {
			t.Errorf("%s: %v are looked at with %d questions, want %v", c.reason, names, live.gets, c.want)
		}
	}
	b.mapper.verdicts.forget(client.ObjectKey{Namespace: b.namespace, Name: "db"}) // as while it is looked at
	if got := own(); len(got) != 1 || got[0] != "db" {
		t.Errorf("while one is looked at, a change brings back %v", got)
	}
}
