package image

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"path"
	"strings"
)

// Kinds of entries: the only ones an image built here has. A hard link is one
// entry under two paths.
const (
	regular = tar.TypeReg
	folder  = tar.TypeDir
	symlink = tar.TypeSymlink
)

// maxLinks is how many symbolic links a path may lead through, as in Linux.
const maxLinks = 40

// entry is a file, folder or symbolic link of an image.
type entry struct {
	kind     byte
	mode     int64 // permissions with setuid (04000), setgid (02000), sticky (01000)
	uid, gid int
	target   string // of a symbolic link
	size     int64  // of a regular file, in bytes
	open     func() (io.ReadCloser, error)
	implied  bool // a folder nobody described: it is only on the way to others
}

// tree is the root of an image. Keys are clean paths without the leading slash;
// no key leads through a symbolic link, and each key's folders are there.
type tree struct {
	entries map[string]*entry
}

func newTree() *tree { return &tree{entries: map[string]*entry{}} }

// clean makes any path a key. It cannot leave the root: ".." stops there.
func clean(p string) string { return path.Clean("/" + p)[1:] }

// put adds an entry under p; files replace files. Folders on the way are made,
// and symbolic links on the way are followed inside the tree. A folder leaves a
// folder, or a link to one, as it is: the way dpkg has it, which makes merged
// /usr work.
func (t *tree) put(p string, e *entry) error {
	key := clean(p)
	if key == "" {
		return nil
	}
	dir, err := t.reach(path.Dir("/"+key), maxLinks)
	if err != nil {
		return fmt.Errorf("placing /%s: %w", key, err)
	}
	key = clean(path.Join(dir, path.Base(key)))
	old := t.entries[key]
	switch {
	case old == nil, e.kind != folder && old.kind != folder, e.kind == folder && old.implied:
		t.entries[key] = e
	case e.kind == folder && old.kind == folder:
	case e.kind == folder && old.kind == symlink:
		_, err := t.reach(key, maxLinks)
		return err
	default:
		return fmt.Errorf("placing /%s: it would be a folder and a file at once", key)
	}
	return nil
}

// reach returns the key of the folder p, following links and making what is
// missing.
func (t *tree) reach(p string, links int) (string, error) {
	at := ""
	parts := strings.Split(clean(p), "/")
	for i, part := range parts {
		if part == "" {
			continue
		}
		next := clean(path.Join(at, part))
		e := t.entries[next]
		switch {
		case e == nil:
			t.entries[next] = &entry{kind: folder, mode: 0o755, implied: true}
		case e.kind == symlink && links == 0:
			return "", fmt.Errorf("too many symbolic links at /%s", next)
		case e.kind == symlink:
			rest := append([]string{t.destination(next, e)}, parts[i+1:]...)
			return t.reach(path.Join(rest...), links-1)
		case e.kind != folder:
			return "", fmt.Errorf("/%s is a file, not a folder", next)
		}
		at = next
	}
	return at, nil
}

// destination is where the link at key leads, as a path from the root.
func (t *tree) destination(key string, e *entry) string {
	if path.IsAbs(e.target) {
		return e.target
	}
	return path.Join("/", path.Dir(key), e.target)
}

// find returns the entry at p itself, following links on the way to it only.
// It returns nil when there is none, and changes nothing.
func (t *tree) find(p string) *entry { return t.walk(p, false, maxLinks) }

// follow is like find and follows a link at p too.
func (t *tree) follow(p string) *entry { return t.walk(p, true, maxLinks) }

func (t *tree) walk(p string, last bool, links int) *entry {
	at := ""
	parts := strings.Split(clean(p), "/")
	for i, part := range parts {
		at = clean(path.Join(at, part))
		e := t.entries[at]
		final := i == len(parts)-1
		switch {
		case e == nil:
			return nil
		case e.kind == symlink && (!final || last):
			if links == 0 {
				return nil
			}
			rest := append([]string{t.destination(at, e)}, parts[i+1:]...)
			return t.walk(path.Join(rest...), last, links-1)
		case final:
			return e
		}
	}
	return nil
}

// read returns the content of the file at p, at most max bytes.
func (t *tree) read(p string, max int64) ([]byte, error) {
	e := t.follow(p)
	if e == nil || e.kind != regular {
		return nil, fmt.Errorf("reading %s of the image: there is no such file", p)
	}
	if e.size > max {
		return nil, fmt.Errorf("reading %s of the image: %d bytes, at most %d are read", p, e.size, max)
	}
	r, err := e.open()
	if err != nil {
		return nil, fmt.Errorf("reading %s of the image: %w", p, err)
	}
	defer func() { _ = r.Close() }()
	return io.ReadAll(r)
}

// text is a file of root's with the given content.
func text(mode int64, content []byte) *entry {
	return &entry{kind: regular, mode: mode, size: int64(len(content)), open: func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	}}
}
