package main

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/netns"
	"github.com/pelago-dev/pelago/network/netnstest"
)

// TestRead holds that a capture ends when whoever asked for it is gone, and what it does not take.
func TestRead(t *testing.T) {
	for words, says := range map[string]string{
		"--address 10.0.0.1":                          "0 peerings",
		"--peering peering-x":                         "0 addresses",
		"--peering peering-x --address ten":           `invalid value "ten" for flag -address`,
		"--peering peering-x --address 10.0.0.1":      "is it on this node?",
		"--peering peering-x --address 10.0.0.1 rest": `unknown argument "rest"`,
	} {
		if err := read(t.Context(), strings.Fields(words), strings.NewReader(""), io.Discard); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", words, err, says)
		}
	}
	node, pod := netnstest.NewPlace(t, "node"), netnstest.NewPlace(t, "pod")
	node.Join(dataplane.Device("peering-x"), pod, "eth0", 1500)
	in, holds := io.Pipe()
	began, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- netns.In(node.File, func() error {
			return read(t.Context(), []string{"--peering", "peering-x", "--address", "10.0.0.1"}, in, out)
		})
		_ = out.Close()
	}()
	first := make([]byte, 4)
	if _, err := io.ReadFull(began, first); err != nil || !bytes.Equal(first, []byte{0x0a, 0x0d, 0x0d, 0x0a}) {
		t.Fatalf("the file begins with %x, %v", first, err)
	}
	go func() { _, _ = io.Copy(io.Discard, began) }()
	select {
	case err := <-ended:
		t.Fatalf("it ends before its input does: %v", err)
	default:
	}
	_ = holds.Close()
	if err := <-ended; err != nil {
		t.Errorf("when its input ends: %v", err)
	}
}
