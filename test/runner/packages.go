package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
)

const (
	serverPackage = "github.com/pelago-dev/pelago/internal/kubetest"
	clusterTests  = "github.com/pelago-dev/pelago/test"
	benchmarks    = "github.com/pelago-dev/pelago/bench"
	kubePackage   = "github.com/pelago-dev/pelago/sandbox/kube" // all of Kubernetes; compiled by the step of that name
)

// slowPackages take longest, so they begin first.
var slowPackages = []string{
	"github.com/pelago-dev/pelago/network", "github.com/pelago-dev/pelago/offloading/reflection",
	"github.com/pelago-dev/pelago/offloading/consumer", "github.com/pelago-dev/pelago/cli",
	"github.com/pelago-dev/pelago/network/plan", "github.com/pelago-dev/pelago/network/dataplane", "github.com/pelago-dev/pelago/cmd/pelago-agent",
}

// listed is what go list says of a package.
type listed struct {
	ImportPath                string
	TestImports, XTestImports []string
}

// usesServer reports whether the tests of a package want an API server.
func (p listed) usesServer() bool {
	return p.ImportPath == serverPackage || slices.Contains(p.TestImports, serverPackage) || slices.Contains(p.XTestImports, serverPackage)
}

// usesClusters reports whether the tests of a package want whole clusters.
func (p listed) usesClusters() bool {
	return p.ImportPath == clusterTests || p.ImportPath == benchmarks
}

func withServer(p listed) bool    { return p.usesServer() && !p.usesClusters() }
func withoutServer(p listed) bool { return !p.usesServer() && !p.usesClusters() }

// rootPackages finds the packages of the product that keep accepts.
func rootPackages(keep func(listed) bool) func(context.Context) ([]string, error) {
	return func(ctx context.Context) ([]string, error) { return listPackages(ctx, ".", keep) }
}

// sandboxPackages finds the packages of the sandbox but the one that holds Kubernetes.
func sandboxPackages(ctx context.Context) ([]string, error) {
	return listPackages(ctx, "sandbox", func(p listed) bool { return p.ImportPath != kubePackage })
}

func listPackages(ctx context.Context, dir string, keep func(listed) bool) ([]string, error) {
	list := exec.CommandContext(ctx, "go", "list", "-json=ImportPath,TestImports,XTestImports", "./...")
	list.Dir = dir
	list.WaitDelay = graceTime // for what it has started
	out, err := list.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return nil, fmt.Errorf("listing the packages of %s: %w\n%s", dir, err, exit.Stderr)
		}
		return nil, fmt.Errorf("listing the packages of %s: %w", dir, err)
	}
	return keepPackages(string(out), keep)
}

// keepPackages reads the output of go list -json.
func keepPackages(text string, keep func(listed) bool) ([]string, error) {
	var found []string
	decoder := json.NewDecoder(strings.NewReader(text))
	for {
		var p listed
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("reading the output of go list: %w", err)
		}
		if keep(p) {
			found = append(found, p.ImportPath)
		}
	}
	slow := slices.DeleteFunc(slices.Clone(slowPackages), func(name string) bool { return !slices.Contains(found, name) })
	found = append(slow, slices.DeleteFunc(found, func(name string) bool { return slices.Contains(slow, name) })...)
	if len(found) == 0 {
		return nil, errors.New("no package to run; a step without packages proves nothing")
	}
	return found, nil
}
