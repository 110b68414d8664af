// Command pelago-reader-check tells the author of a resource reader whether it keeps
// the contract of api/wire/resource_reader.proto. It asks the program as pelago-manager
// does, prints what holds and what does not, and ends with 1 if something does not.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/pelago-dev/pelago/api/conformance"
	"github.com/pelago-dev/pelago/peering/reader"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, args []string) error {
	var o reader.Options
	flags := flag.NewFlagSet("pelago-reader-check", flag.ContinueOnError)
	flags.StringVar(&o.Address, "address", "", "where the resource reader listens: unix:///path or HOST:PORT")
	flags.StringVar(&o.Folder, "files", "", "folder with ca.crt, and tls.crt with tls.key, or token, if it wants them")
	if err := flags.Parse(args); err != nil {
		return err
	}
	conn, err := reader.Dial(o)
	if err != nil {
		return fmt.Errorf("--address, --files: %w", err)
	}
	defer conn.Close()
	wrong := 0
	for _, check := range conformance.Checks {
		if err := check.Run(ctx, conn); err != nil {
			wrong++
			fmt.Fprintf(out, "no   %s\n     %v\n", check.Name, err)
		} else {
			fmt.Fprintf(out, "yes  %s\n", check.Name)
		}
	}
	if wrong > 0 {
		return fmt.Errorf("%d of %d checks failed; see api/wire/resource_reader.proto for the contract", wrong, len(conformance.Checks))
	}
	return nil
}
