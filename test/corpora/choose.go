package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"strings"
)

const (
	// mostInputs and mostBytes bound what the repository keeps for a fuzz test.
	mostInputs = 16
	mostBytes  = 4 << 10
	// mostTried bounds how many inputs are tried for what they cover: each is a process.
	mostTried = 24
	// fewInputs are kept also where none covers more than the seeds: the fuzzer took them
	// for how often they run through a place, which a profile does not say.
	fewInputs = 4
)

// input is one that the fuzzer found, or that is kept.
type input struct {
	// name is that of its file, the beginning of a hash.
	name string
	data []byte
	// covers are the places of the code that it runs through, if it was tried.
	covers places
}

// places are blocks of statements of the code, each as a profile names it.
type places map[string]bool

// candidates are the inputs to try: none that is too large, and of every size some, the
// smallest first. Sizes are the same if they have as many bits.
func candidates(found []input) []input {
	found = slices.Clone(found)
	found = slices.DeleteFunc(found, func(i input) bool { return len(i.data) > mostBytes })
	slices.SortFunc(found, smaller)
	place := map[int]int{}
	turn := make(map[string]int, len(found))
	for _, i := range found {
		class := bits.Len(uint(len(i.data)))
		turn[i.name] = place[class]
		place[class]++
	}
	slices.SortStableFunc(found, func(a, b input) int { return cmp.Compare(turn[a.name], turn[b.name]) })
	return found[:min(len(found), mostTried)]
}

func smaller(a, b input) int {
	return cmp.Or(cmp.Compare(len(a.data), len(b.data)), strings.Compare(a.name, b.name))
}

// choose says which of the inputs that were tried to keep beside those that are kept
// already, so many at most: each time the one that covers most of what nothing else
// does, the smallest of several. What covers no more fills them up to a few, in order,
// so that every test has some of each size.
func choose(known places, tried []input, room int) []input {
	covered := places{}
	for place := range known {
		covered[place] = true
	}
	var chosen []input
	left := slices.Clone(tried)
	for len(chosen) < room && len(left) > 0 {
		best, most := -1, 0
		for i, each := range left {
			if n := each.covers.beyond(covered); n > most || n == most && n > 0 && smaller(each, left[best]) < 0 {
				best, most = i, n
			}
		}
		if best < 0 {
			break
		}
		for place := range left[best].covers {
			covered[place] = true
		}
		chosen, left = append(chosen, left[best]), slices.Delete(left, best, best+1)
	}
	for len(chosen) < min(room, fewInputs) && len(left) > 0 {
		chosen, left = append(chosen, left[0]), left[1:]
	}
	return chosen
}

// beyond is how many places there are that others do not have.
func (p places) beyond(others places) int {
	n := 0
	for place := range p {
		if !others[place] {
			n++
		}
	}
	return n
}

// readProfile reads what go test -coverprofile writes: a line for each block of
// statements, FILE:FROM,TO STATEMENTS COUNT.
func readProfile(profile io.Reader) (places, error) {
	covered := places{}
	lines := bufio.NewScanner(profile)
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "mode: ") {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) != 3 {
			return nil, fmt.Errorf("%.100q is no line of a profile", line)
		}
		if fields[2] != "0" {
			covered[fields[0]] = true
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading a profile: %w", err)
	}
	return covered, nil
}
