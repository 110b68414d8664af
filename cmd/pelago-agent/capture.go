package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/netip"

	"github.com/pelago-dev/pelago/network/capture"
)

// read is what pelago capture runs: it writes what passes gateways of this node until its input
// ends, which it does when whoever asked is gone.
func read(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	o := capture.Options{Out: out}
	flags := flag.NewFlagSet("pelago-agent "+reads, flag.ContinueOnError)
	flags.Func("peering", "one whose gateway on this node to read, as peering-milan; once for each", func(word string) error {
		o.Peerings = append(o.Peerings, word)
		return nil
	})
	flags.Func("address", "one that a packet has to have, once for each of a pod's", func(word string) error {
		a, err := netip.ParseAddr(word)
		o.Addresses = append(o.Addresses, a)
		return err
	})
	flags.BoolVar(&o.Whole, "whole", false, "write what packets carry, not their headers alone")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unknown argument %q; there are only flags, see --help", flags.Arg(0))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	return capture.Run(ctx, o)
}
