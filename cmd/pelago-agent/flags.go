package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// nodeVariable holds the name of this node.
const nodeVariable = "NODE_NAME"

// settings are what the command line says.
type settings struct {
	node      string
	namespace string
	address   string
	alive     string
	level     string
	userspace bool
	version   bool
}

func parse(args []string) (settings, error) {
	var s settings
	flags := flag.NewFlagSet("pelago-agent", flag.ContinueOnError)
	flags.StringVar(&s.node, "node", os.Getenv(nodeVariable), "name of this node, else what "+nodeVariable+" says")
	flags.StringVar(&s.namespace, "namespace", v1alpha1.NetworkNamespace, "namespace of the agents, with their Leases and the keys of tunnels")
	flags.StringVar(&s.address, "metrics-address", ":7078", "address for /healthz, /readyz and /metrics")
	flags.StringVar(&s.alive, "alive-socket", "", "where pelago-agent alive asks whether the agent lives; nowhere if empty")
	flags.StringVar(&s.level, "log-level", "info", "info or debug")
	flags.BoolVar(&s.userspace, "userspace", false, "do without the kernel's WireGuard")
	flags.BoolVar(&s.version, "version", false, "say the version, and nothing else")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	switch {
	case flags.NArg() > 0:
		return s, fmt.Errorf("unknown argument %q; there are only flags, see --help", flags.Arg(0))
	case s.node == "" && !s.version:
		return s, fmt.Errorf("--node: it is empty, and so is %s", nodeVariable)
	}
	return s, nil
}
