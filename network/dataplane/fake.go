package dataplane

import (
	"context"
	"slices"
	"sync"
)

// Fake is a Plane for tests of others: it remembers what it was told. The zero value is
// ready to use.
type Fake struct {
	// Fail, if it is set, is asked before each config, and its error returned.
	Fail func(Config) error

	mu  sync.Mutex
	set []Config
}

var _ Plane = (*Fake)(nil)

// Set remembers a config that the kernel would be asked for, and refuses one that is wrong.
func (f *Fake) Set(ctx context.Context, c Config) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := c.Check(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.Fail != nil {
		if err := f.Fail(c); err != nil {
			return err
		}
	}
	f.set = append(f.set, c)
	return nil
}

// Configs returns what it was told, the last one last.
func (f *Fake) Configs() []Config {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.set)
}
