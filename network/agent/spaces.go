package agent

import (
	"os"
	"sync"

	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/holder"
	"github.com/pelago-dev/pelago/network/netns"
)

// spaces are the namespaces of gateways, held here and by whoever outlives this process.
type spaces struct {
	netns.Held
	keeper Keeper

	mu   sync.Mutex
	kept map[string]bool
}

var _ dataplane.Namespaces = (*spaces)(nil)

// adopt takes what an earlier process has left.
func (s *spaces) adopt(left map[string]*os.File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = map[string]bool{}
	for name, file := range left {
		s.Adopt(name, file)
		s.kept[name] = true
	}
}

// Open returns a namespace, made if need be, that is kept.
func (s *spaces) Open(name string) (*os.File, error) {
	file, err := s.Held.Open(name)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.kept[name] {
		if err := s.keeper.Hold(holder.Namespace, name, file); err != nil {
			_ = file.Close()
			return nil, err
		}
		s.kept[name] = true
	}
	return file, nil
}

// Remove lets go of a namespace, everywhere.
func (s *spaces) Remove(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept[name] {
		if err := s.keeper.Drop(holder.Namespace, name); err != nil {
			return err
		}
		delete(s.kept, name)
	}
	return s.Held.Remove(name)
}
