// Package sandbox carries the sources of everything a sandbox runs, so that the
// pelago-sandbox program alone can build it: Kubernetes in one binary
// (folder kube, module file go.mod) and the add-ons (folder addons, module files
// addons.mod and metallb.mod, whose dependencies are newer).
package sandbox

import "embed"

// Source holds the files as they lie in this folder.
//
//go:embed go.mod go.sum addons.mod addons.sum metallb.mod metallb.sum kube/*.go addons/*/main.go
var Source embed.FS
