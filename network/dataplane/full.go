package dataplane

import "strings"

// full lets all pods of this cluster be at this end of connections, without a set of them:
// what is no pod here was dropped before. Other peers, who are reached by way of this cluster,
// are as limited as ever.
func (c *chain) full(g Gateway, s *endSets) {
	if s.transit != nil {
		c.limited(g, s)
		c.add(cameBy(g.Tunnel), destinationIn(s.transit), countedDrop(DropDenied))
		c.add(cameBy(insideName), sourceIn(s.transit), countedDrop(DropDenied))
	}
	if g.FromHere {
		c.add(cameBy(insideName), sourceNotIn(s.pods), countedDrop(DropDenied))
	}
}

// openRules end the policy of a gateway that is not limited.
func openRules(g Gateway) [][]statement {
	return [][]statement{{cameBy(g.Tunnel), accept()}, {cameBy(insideName), accept()}}
}

// width is how much a gateway lets pass by its kind, from least to most.
type width int

const (
	widthNone    width = iota // there is no table, or it is closed
	widthLimited              // what is in sets
	widthFull                 // all pods
)

// widthOf tells the width of a gateway's table by its structure, as it was made or is read.
func widthOf(g Gateway, lines []string) width {
	has := func(parts ...statement) bool {
		var c chain
		c.add(parts...)
		end := " " + c.rules[0].print()
		for _, line := range lines {
			if strings.HasPrefix(line, "rule policy ") && strings.HasSuffix(line, end) {
				return true
			}
		}
		return false
	}
	switch {
	case has(openRules(g)[0]...):
		return widthFull
	case has(connection(established), jump(goesOnChain)), has(connection(established), accept()): // the other one is of older builds
		return widthLimited
	}
	return widthNone
}
