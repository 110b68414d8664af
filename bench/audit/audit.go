// Package audit counts requests in the log that an API server of the sandbox keeps of
// them: who asked for what, between two moments. It reads files and changes none; what
// the server does not write down (Leases, and events of nodes) it cannot count.
package audit

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Request is one request to an API server.
type Request struct {
	// User is who asked, Verb what for: create, update, patch, delete, get, list, watch, …
	User, Verb string
	// Resource is what it is about, with the subresource: pods, pods/status. It is the
	// path where the request is about no object.
	Resource string
	// Code is how it was answered, as in HTTP.
	Code int
}

// Mark is a place in a log.
type Mark struct {
	path string
	// file is held open, so that no later file is taken for it.
	file *os.File
	info os.FileInfo
}

// Here marks the end of a log. Whoever has the mark closes it.
func Here(path string) (Mark, error) {
	file, err := os.Open(path)
	if err != nil {
		return Mark{}, fmt.Errorf("marking the audit log: %w", err)
	}
	info, err := file.Stat()
	if err != nil {
		file.Close()
		return Mark{}, fmt.Errorf("marking the audit log: %w", err)
	}
	return Mark{path: path, file: file, info: info}, nil
}

// Close forgets the place.
func (m Mark) Close() { m.file.Close() }

// Since reads the requests that were answered after the mark was made. The server
// begins a new file when one is full and keeps few: the error says so if some are lost.
func (m Mark) Since(each func(Request)) error {
	files, err := m.files()
	if err != nil {
		return fmt.Errorf("reading the audit log: %w", err)
	}
	for i, path := range files {
		begin := int64(0)
		if i == 0 {
			begin = m.info.Size()
		}
		if err := readFile(path, begin, each); err != nil {
			return fmt.Errorf("reading the audit log: %w", err)
		}
	}
	return nil
}

// files are those of the log from the marked one on, in order. Full ones are called
// after the time when they were closed, like audit-2026-11-21T10-00-00.000.log.
func (m Mark) files() ([]string, error) {
	ext := filepath.Ext(m.path)
	files, err := filepath.Glob(strings.TrimSuffix(m.path, ext) + "-*" + ext)
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	files = append(files, m.path)
	for i, path := range files {
		if info, err := os.Stat(path); err == nil && os.SameFile(info, m.info) {
			return files[i:], nil
		}
	}
	return nil, errors.New("the file that was marked is gone: more was written than the server keeps; measure less at once")
}

func readFile(path string, begin int64, each func(Request)) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.Seek(begin, io.SeekStart); err != nil {
		return err
	}
	return Read(file, each)
}

// entry is a line of the log.
type entry struct {
	Stage, Verb, RequestURI string
	User                    struct{ Username string }
	ObjectRef               *struct{ Resource, Subresource string }
	ResponseStatus          struct{ Code int }
}

// Read reads the requests of a log. One that takes long, like a watch, is in it twice
// and counts when it ends; a line that is still being written is left out.
func Read(log io.Reader, each func(Request)) error {
	for lines := bufio.NewReader(log); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("%.100q is no line of an audit log: %w", line, err)
		}
		if e.Stage == "ResponseComplete" || e.Stage == "Panic" {
			each(e.request())
		}
	}
}

func (e entry) request() Request {
	r := Request{User: e.User.Username, Verb: e.Verb, Code: e.ResponseStatus.Code}
	if e.ObjectRef == nil {
		r.Resource, _, _ = strings.Cut(e.RequestURI, "?")
		return r
	}
	r.Resource = e.ObjectRef.Resource
	if e.ObjectRef.Subresource != "" {
		r.Resource += "/" + e.ObjectRef.Subresource
	}
	return r
}

// Counts are how many requests there were of each kind, a verb and a resource like
// "patch pods/status".
type Counts map[string]int

// Add counts one.
func (c Counts) Add(r Request) { c[r.Verb+" "+r.Resource]++ }

// Sum is how many there were of the kinds that are wanted.
func (c Counts) Sum(wanted func(verb, resource string) bool) int {
	sum := 0
	for kind, n := range c {
		if verb, resource, _ := strings.Cut(kind, " "); wanted(verb, resource) {
			sum += n
		}
	}
	return sum
}

// String names the kinds, the most frequent first.
func (c Counts) String() string {
	kinds := make([]string, 0, len(c))
	for kind := range c {
		kinds = append(kinds, kind)
	}
	slices.SortFunc(kinds, func(a, b string) int {
		if c[a] != c[b] {
			return c[b] - c[a]
		}
		return strings.Compare(a, b)
	})
	for i, kind := range kinds {
		kinds[i] = fmt.Sprintf("%s %d", kind, c[kind])
	}
	return strings.Join(kinds, ", ")
}
