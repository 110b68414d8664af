package dataplane

import (
	"os"

	"github.com/pelago-dev/pelago/network/netns"
)

// Namespaces holds the network namespaces of gateways, by their peerings. A namespace
// lives as long as something holds it, so whoever shall outlive this process implements
// it: a parent process, or mounts.
type Namespaces interface {
	// Open returns the namespace of that name, made if there is none. The caller closes
	// the file.
	Open(name string) (*os.File, error)
	// List returns the names of all.
	List() ([]string, error)
	// Remove lets go of a namespace, which ends when nobody else holds it. One that is
	// not there is no error.
	Remove(name string) error
}

var _ Namespaces = (*netns.Held)(nil)
