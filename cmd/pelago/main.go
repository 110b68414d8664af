// Command pelago installs Pelago into Kubernetes clusters, peers them, and shows how
// they are.
package main

import (
	"crypto/rand"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"

	"github.com/pelago-dev/pelago/cli"
	"github.com/pelago-dev/pelago/deploy"
)

// version is set when the program is built from a checkout with a history.
var version = "dev"

func main() {
	os.Exit(cli.Main(&cli.Env{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		Getenv:  os.Getenv,
		Clock:   clock.RealClock{},
		Rand:    rand.Reader,
		Version: version,
		Connect: cli.Connect,
		Render: func(values map[string]any) ([]*unstructured.Unstructured, error) {
			return deploy.Render(values, deploy.Release{})
		},
	}, os.Args[1:]))
}
