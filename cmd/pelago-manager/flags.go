package main

import (
	"flag"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/serving"
	"github.com/pelago-dev/pelago/peering/reader"
)

// settings are what the command line says, and what the program had before it began anew.
type settings struct {
	rooms     []room
	address   string
	listen    string
	namespace string
	level     string
	reader    reader.Options
	registry  metrics.RegistererGatherer
	socket    *serving.Socket
}

func parse(args []string) (settings, error) {
	s := settings{registry: metrics.Registry}
	var names string
	flags := flag.NewFlagSet("pelago-manager", flag.ContinueOnError)
	flags.StringVar(&names, "rooms", "peering,offloading", "what to run, separated by commas: "+strings.Join(roomNames(), ", "))
	flags.StringVar(&s.address, "metrics-address", ":8443", "address for /healthz, /readyz and /metrics")
	flags.StringVar(&s.listen, "api-address", ":9443", "address for what the API server calls: admission of pods, and what pods use; with --rooms=auth for strangers. The ports of virtual nodes are opened at its host")
	flags.StringVar(&s.namespace, "namespace", v1alpha1.SystemNamespace, "namespace of Pelago")
	flags.StringVar(&s.level, "log-level", "info", "info or debug")
	flags.StringVar(&s.reader.Address, "resource-reader", "", "address of the owner's own resource reader, unix:///path or HOST:PORT; none if empty")
	flags.StringVar(&s.reader.Folder, "resource-reader-files", "", "folder with ca.crt, and tls.crt with tls.key or token, to reach it with")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if flags.NArg() > 0 {
		return s, fmt.Errorf("unknown argument %q; there are only flags, see --help", flags.Arg(0))
	}
	var err error
	s.rooms, err = choose(strings.Split(names, ","))
	return s, err
}
