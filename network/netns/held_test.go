package netns_test

import (
	"os"
	"slices"
	"testing"

	"github.com/pelago-dev/pelago/network/netns"
	"github.com/pelago-dev/pelago/network/netnstest"
)

func TestHeld(t *testing.T) {
	netnstest.Root(t)
	var h netns.Held
	a, err := h.Open("a")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Close() }()
	again, err := h.Open("a")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = again.Close() }()
	if !sameFile(t, a, again) {
		t.Error("it is another one the second time")
	}
	made, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	h.Adopt("b", made)
	b, err := h.Open("b")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	if !sameFile(t, made, b) || sameFile(t, a, b) {
		t.Error("what was adopted is not what is held")
	}
	if names, err := h.List(); err != nil || !slices.Equal(names, []string{"a", "b"}) {
		t.Error(names, err)
	}
	for range 2 { // the second time it is not there
		if err := h.Remove("b"); err != nil {
			t.Error(err)
		}
	}
	if names, _ := h.List(); !slices.Equal(names, []string{"a"}) {
		t.Error(names)
	}
	if err := h.Remove("a"); err != nil {
		t.Error(err)
	}
}

func sameFile(t *testing.T, a, b *os.File) bool {
	t.Helper()
	x, err := a.Stat()
	if err != nil {
		t.Fatal(err)
	}
	y, err := b.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return os.SameFile(x, y)
}
