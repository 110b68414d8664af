package netns

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// wholeTries is how often a list is asked for before it is given up. On a busy node devices come and go
// with each pod, and one such change spoils at most the list that is being read.
const wholeTries = 20

// Whole asks the kernel for a list, and asks again if something changed while it was read: such a list
// may lack things that are there.
func Whole[T any](list func() (T, error)) (T, error) {
	for try := 1; ; try++ {
		all, err := list()
		if try == wholeTries || !errors.Is(err, netlink.ErrDumpInterrupted) {
			return all, err
		}
	}
}
