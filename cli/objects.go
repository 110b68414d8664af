package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/chain"
	"github.com/pelago-dev/pelago/cli/screen"
)

const (
	// mostObjectProblems are the objects that are told among the problems, mostObjects those in the table; the
	// document has all.
	mostObjectProblems = 5
	mostObjects        = 20
)

// ObjectReport is an object of an offloaded namespace of which there is something to say at a
// cluster.
type ObjectReport struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Cluster is the peering.
	Cluster string `json:"cluster"`
	// Refused says that it is not there; else it is, though perhaps otherwise than here.
	Refused bool   `json:"refused"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Remedy says what to do.
	Remedy string `json:"remedy,omitempty"`
	// Addresses are those by which others reach it there, as that cluster says.
	Addresses []string `json:"addresses,omitempty"`
}

// objects reads what is known of objects at other clusters into a snapshot. An installation
// that has no such kind yet has none.
func (c *Cluster) objects(ctx context.Context, s *snapshot) error {
	maps, err := c.namespaceMaps(ctx)
	s.maps = keep(maps, func(m v1alpha1.NamespaceMap) bool {
		return strings.HasPrefix(m.Namespace, v1alpha1.PeeringNamespacePrefix)
	})
	return err
}

func (c *Cluster) namespaceMaps(ctx context.Context) ([]v1alpha1.NamespaceMap, error) {
	var maps v1alpha1.NamespaceMapList
	if err := c.Client.List(ctx, &maps); err != nil && !notServed(err) {
		return nil, describe(fmt.Errorf("listing namespace maps: %w", err), c)
	}
	return maps.Items, nil
}

// judgeObjects reports objects at other clusters. Those that are refused are problems, as far as
// these can be read.
func (s *snapshot) judgeObjects(r *Report) {
	for _, m := range s.maps {
		r.MoreObjects += int(m.Status.MoreObjects)
		for _, o := range m.Status.Objects {
			one := ObjectReport{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, Cluster: strings.TrimPrefix(m.Namespace, v1alpha1.PeeringNamespacePrefix),
				Refused: o.Refused, Reason: o.Reason, Addresses: o.Addresses}
			one.Message, one.Remedy = chain.ObjectWords(o)
			r.Objects = append(r.Objects, one)
		}
	}
	slices.SortStableFunc(r.Objects, func(a, b ObjectReport) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Cluster, b.Cluster))
	})
	refused := keep(r.Objects, func(o ObjectReport) bool { return o.Refused })
	for _, o := range refused[:min(len(refused), mostObjectProblems)] {
		r.Problems = append(r.Problems, Problem{Object: fmt.Sprintf("%s %s/%s at %s", o.Kind, o.Namespace, o.Name, o.Cluster), Reason: o.Reason, Message: o.Message, Remedy: o.Remedy})
	}
	if more := len(refused) - mostObjectProblems; more > 0 {
		r.Problems = append(r.Problems, Problem{Object: "objects", Message: fmt.Sprintf("and %d more that %s refused", more, choose(more, "is", "are")), Remedy: "to see each: pelago status -o json"})
	}
}

// objects shows those that other clusters refuse, have otherwise, or give addresses.
func (v view) objects(r Report) error {
	if len(r.Objects) == 0 {
		return nil
	}
	fmt.Fprintln(v.out)
	var rows [][]screen.Cell
	for _, o := range r.Objects[:min(len(r.Objects), mostObjects)] {
		there := screen.Cell{Text: "as here", Colour: screen.Green}
		switch {
		case o.Refused:
			there = screen.Cell{Text: "refused", Colour: screen.Red}
		case o.Reason != "":
			there = screen.Cell{Text: "otherwise", Colour: screen.Yellow}
		}
		at := "-"
		if len(o.Addresses) > 0 {
			at = o.Addresses[0]
		}
		if more := len(o.Addresses) - 1; more > 0 {
			at += fmt.Sprintf(" and %d more", more)
		}
		rows = append(rows, []screen.Cell{{Text: o.Namespace + "/" + o.Name}, {Text: o.Kind}, {Text: o.Cluster}, there, {Text: cmp.Or(o.Reason, "-")}, {Text: at}})
	}
	if err := screen.Table(v.out, v.paint, v.width, []string{"OBJECT", "KIND", "AT", "THERE", "REASON", "ADDRESS"}, rows); err != nil {
		return err
	}
	if more := len(r.Objects) - len(rows); more > 0 {
		fmt.Fprintf(v.out, "and %d more: pelago status -o json\n", more+r.MoreObjects)
	} else if r.MoreObjects > 0 {
		fmt.Fprintf(v.out, "and %d more\n", r.MoreObjects)
	}
	return nil
}
