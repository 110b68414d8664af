// Command pelago-sandbox runs complete Kubernetes clusters on one plain Linux
// machine.
package main

import (
	"os"

	"github.com/pelago-dev/pelago/sandbox/cli"
)

// version is set when the program is built from a checkout with a history.
var version = "dev"

func main() {
	os.Exit(cli.Main(version, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
