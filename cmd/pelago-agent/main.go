// Command pelago-agent makes the network of a node what the cluster's peerings need. Its first
// process holds what must not end with a mistake, network namespaces and TUN devices, and
// starts the second one, which does everything else, anew whenever that dies.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// version is set when the program is built from a checkout with a history.
var version = "dev"

// second is the first argument of the second process, and atOnce the next one of such that begins the
// moment another one has ended.
const (
	second = "work"
	atOnce = "at-once"
)

// reads is the first argument of a process that pelago capture runs beside these.
const reads = "capture"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	var ended exit
	switch {
	case errors.Is(err, flag.ErrHelp):
	case errors.As(err, &ended):
		os.Exit(int(ended))
	case err != nil:
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == reads {
		return read(ctx, args[1:], os.Stdin, os.Stdout)
	}
	if len(args) > 0 && args[0] == lives {
		return ask(args[1:])
	}
	works := len(args) > 0 && args[0] == second
	var follows bool
	if works {
		args = args[1:]
		if follows = len(args) > 0 && args[0] == atOnce; follows {
			args = args[1:]
		}
	}
	s, err := parse(args)
	switch {
	case err != nil:
		return err
	case s.version:
		fmt.Println(version)
		return nil
	case works:
		return work(ctx, s, follows)
	}
	return hold(ctx, args)
}
