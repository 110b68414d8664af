package image

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// alternative is a name that several packages may offer, such as awk or
// libblas.so.3: the link to it is made by a maintainer script. The scripts are
// not run, but what they plainly say about alternatives is read.
type alternative struct {
	priority int               // the highest wins
	links    map[string]string // link to the file it leads to: the name and what goes with it
	name     string            // the link that decides
}

// readAlternatives finds the alternatives that a package's script would offer.
func readAlternatives(ctx context.Context, file string) ([]alternative, error) {
	ctx, cancel := context.WithTimeout(ctx, unpackTime)
	defer cancel()
	control, err := output(command(ctx, "dpkg-deb", "--ctrl-tarfile", file))
	if err != nil {
		return nil, fmt.Errorf("reading what %s sets up: %w", filepath.Base(file), err)
	}
	for r := tar.NewReader(strings.NewReader(control)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading what %s sets up: %w", filepath.Base(file), err)
		}
		if clean(h.Name) != "postinst" {
			continue
		}
		if h.Size > maxText {
			return nil, fmt.Errorf("reading what %s sets up: its postinst has %d bytes, at most %d are read; leave that package out", filepath.Base(file), h.Size, maxText)
		}
		script, err := io.ReadAll(r)
		if err != nil {
			return nil, fmt.Errorf("reading what %s sets up: %w", filepath.Base(file), err)
		}
		return parseAlternatives(script), nil
	}
}

// parseAlternatives reads the calls of update-alternatives in a script whose
// words are plain. Calls with variables are left out: only a shell knows them.
func parseAlternatives(script []byte) []alternative {
	var found []alternative
	script = bytes.ReplaceAll(script, []byte("\\\n"), []byte(" "))
	for line := range strings.Lines(string(script)) {
		words := strings.Fields(line)
		at := slices.Index(words, "update-alternatives")
		if at < 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if a, ok := parseCall(words[at+1:]); ok {
			found = append(found, a)
		}
	}
	return found
}

// parseCall reads the words after update-alternatives:
// … --install LINK NAME PATH PRIORITY [--slave LINK NAME PATH]…
func parseCall(words []string) (alternative, bool) {
	end := slices.IndexFunc(words, func(w string) bool { return strings.ContainsAny(w, ";&|<>") })
	if end >= 0 {
		words = append(slices.Clone(words[:end]), strings.TrimRight(words[end], ";"))
	}
	for i, w := range words {
		words[i] = strings.Trim(w, `"'`)
	}
	at := slices.Index(words, "--install")
	if at < 0 || len(words) < at+5 || strings.ContainsAny(strings.Join(words, " "), "$`*?(){}") {
		return alternative{}, false
	}
	link, target := words[at+1], words[at+3]
	priority, err := strconv.Atoi(words[at+4])
	if err != nil || !path.IsAbs(link) || !path.IsAbs(target) {
		return alternative{}, false
	}
	a := alternative{name: link, priority: priority, links: map[string]string{link: target}}
	for rest := words[at+5:]; len(rest) >= 4; rest = rest[1:] {
		if rest[0] == "--slave" && path.IsAbs(rest[1]) && path.IsAbs(rest[3]) {
			a.links[rest[1]] = rest[3]
		}
	}
	return a, true
}

// linkAlternatives makes the links of the best alternative of each name whose
// file is there. A file that a package brings is never replaced.
func linkAlternatives(t *tree, offers []alternative) error {
	slices.SortStableFunc(offers, func(a, b alternative) int { return cmp.Compare(b.priority, a.priority) })
	done := map[string]bool{}
	for _, a := range offers {
		if done[a.name] || t.follow(a.links[a.name]) == nil {
			continue
		}
		done[a.name] = true
		for _, link := range slices.Sorted(maps.Keys(a.links)) {
			if t.find(link) != nil || t.follow(a.links[link]) == nil {
				continue
			}
			if err := t.put(link, &entry{kind: symlink, mode: 0o777, target: a.links[link]}); err != nil {
				return fmt.Errorf("linking alternatives: %w", err)
			}
		}
	}
	return nil
}
