package netns_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/pelago-dev/pelago/network/netns"
)

// TestWhole: a list that was interrupted is asked for again, a few times, and one that failed is not.
func TestWhole(t *testing.T) {
	interrupted, other := fmt.Errorf("listing: %w", netlink.ErrDumpInterrupted), errors.New("refused")
	for _, c := range []struct {
		reason      string
		interrupted int
		then        error
		asked       int
		want        error
	}{
		{"at once", 0, nil, 1, nil},
		{"after some changes", 4, nil, 5, nil},
		{"an error", 0, other, 1, other},
		{"an error after a change", 1, other, 2, other},
		{"changes without end", 1000, nil, 20, interrupted},
	} {
		asked := 0
		got, err := netns.Whole(func() (int, error) {
			asked++
			if asked <= c.interrupted {
				return asked, interrupted
			}
			return asked, c.then
		})
		if got != c.asked || asked != c.asked || !errors.Is(err, c.want) {
			t.Errorf("%s: asked %d times, got %d, %v", c.reason, asked, got, err)
		}
	}
}
