// Command pelago-sandbox runs complete Kubernetes clusters on one plain Linux
// machine.
package main

import (
	"os"
	"syscall"

	"github.com/pelago-dev/pelago/sandbox/cli"
)

// version is set when the program is built from a checkout with a history.
var version = "dev"

func main() {
	// Containers of other users must get into the file systems that are made below,
	// whatever the shell of this command thinks of new files. What is secret says so.
	syscall.Umask(0o022)
	os.Exit(cli.Main(version, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
