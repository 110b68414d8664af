package law

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

const (
	// maxDepth is how deep a package may lie below the root of its module.
	maxDepth = 2
	// maxLines is how long a Go file written by hand may be.
	maxLines = 700
)

// banned holds package names that say nothing about what is inside.
var banned = []string{"util", "utils", "common", "helper", "helpers", "misc", "const", "consts", "constants",
	"forge", "getters", "manager", "types", "models", "shared", "base"}

var packageName = regexp.MustCompile(`^[a-z][a-z0-9]*$`)

// Names finds packages that are named badly: not after their directory, with a name
// that means nothing, twice in one module, or too deep. A main may have any name.
func Names(tree Tree) []string {
	var found []string
	seen := map[string]string{}
	for _, p := range tree.Packages {
		for _, file := range p.Files {
			clause := file.Syntax.Name.Name
			if clause != p.Name && !(file.Test && clause == p.Name+"_test") {
				found = append(found, fmt.Sprintf("%s: package %s in a directory of package %s", file.Path, clause, p.Name))
			}
		}
		if depth := strings.Count(p.Inner, "/") + 1; p.Inner != "." && depth > maxDepth {
			found = append(found, fmt.Sprintf("%s: %d directories deep, at most %d; move it up", p.Dir, depth, maxDepth))
		}
		if p.Name == "main" {
			continue
		}
		key := p.Module + " " + p.Name
		if first, twice := seen[key]; twice {
			found = append(found, fmt.Sprintf("%s: package name %s is taken by %s; one name, one package", p.Dir, p.Name, first))
		}
		seen[key] = p.Dir
		switch {
		case slices.Contains(banned, p.Name):
			found = append(found, fmt.Sprintf("%s: package name %s says nothing; name the thing it holds", p.Dir, p.Name))
		case !packageName.MatchString(p.Name):
			found = append(found, fmt.Sprintf("%s: package name %s is not one lower-case word", p.Dir, p.Name))
		case p.Inner != "." && path.Base(p.Dir) != p.Name:
			found = append(found, fmt.Sprintf("%s: holds package %s; directory and package have one name", p.Dir, p.Name))
		}
	}
	slices.Sort(found)
	return found
}

// Lengths finds Go files written by hand that are too long to be one thing.
func Lengths(tree Tree) []string {
	var found []string
	for _, p := range tree.Packages {
		for _, file := range p.Files {
			if !file.Generated && file.Lines > maxLines {
				found = append(found, fmt.Sprintf("%s: %d lines, at most %d; split it by thing", file.Path, file.Lines, maxLines))
			}
		}
	}
	slices.Sort(found)
	return found
}

// forbidden matches what must not be in any file. The names are put together here
// so that this file obeys its own law.
var forbidden = []struct {
	pattern *regexp.Regexp
	why     string
}{
	{regexp.MustCompile(`(^|[^\w/.\-])/wor` + `k/(main|shared|\.library)\b`), "path of one machine"},
	{regexp.MustCompile(`\b(pro` + `xy|su` + `m)\.golang\.org\b`), "host of a package registry; the user's own settings choose it"},
	{regexp.MustCompile(`\b(de` + `b|securit` + `y)\.debian\.org\b`), "host of a package registry; the user's own settings choose it"},
	{regexp.MustCompile(`\bregistr` + `y\.npmjs\.org\b`), "host of a package registry; the user's own settings choose it"},
}

// Words finds forbidden words in all text files.
func Words(tree Tree) []string {
	var found []string
	for _, name := range sortedKeys(tree.Texts) {
		text := tree.Texts[name]
		if strings.ContainsRune(text, 0) {
			continue // not text
		}
		number := 0
		for line := range strings.Lines(text) {
			number++
			for _, f := range forbidden {
				if hit := f.pattern.FindString(line); hit != "" {
					found = append(found, fmt.Sprintf("%s:%d: %q: %s", name, number, strings.TrimSpace(hit), f.why))
				}
			}
		}
	}
	return found
}
