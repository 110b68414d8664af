// Command pelago-agent makes the network of a node what the cluster's peerings need. Its first
// process holds what must not end with a mistake, network namespaces and TUN devices, and
// starts the second one, which does everything else, anew whenever that dies.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
)

// version is set when the program is built from a checkout with a history.
var version = "dev"

func main() {
	code, err := run(os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
	os.Exit(code)
}

func run(args []string) (code int, err error) {
	s, err := parse(args)
	if err != nil {
		return 0, err
	}
	if s.version {
		fmt.Println(version)
	}
	return 0, nil
}
