package netns

import (
	"os"
	"slices"
	"sync"
)

// Held are namespaces of a name each, held by open files of this process. The zero value
// holds none and is ready to use.
type Held struct {
	mu    sync.Mutex
	files map[string]*os.File
}

// Adopt holds a namespace that somebody else has made, instead of one of that name from
// before. The file is Held's from now on.
func (h *Held) Adopt(name string, file *os.File) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if before := h.files[name]; before != nil {
		_ = before.Close()
	}
	if h.files == nil {
		h.files = map[string]*os.File{}
	}
	h.files[name] = file
}

// Open returns a namespace, made if need be.
func (h *Held) Open(name string) (*os.File, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.files[name] == nil {
		file, err := New()
		if err != nil {
			return nil, err
		}
		if h.files == nil {
			h.files = map[string]*os.File{}
		}
		h.files[name] = file
	}
	return Copy(h.files[name])
}

// List returns the names of the namespaces held.
func (h *Held) List() ([]string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	names := make([]string, 0, len(h.files))
	for name := range h.files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

// Remove lets go of a namespace.
func (h *Held) Remove(name string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	file := h.files[name]
	if file == nil {
		return nil
	}
	delete(h.files, name)
	return file.Close()
}
