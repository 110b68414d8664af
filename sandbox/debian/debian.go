// Package debian installs the Debian packages a sandbox needs and nothing else.
// It asks for a package only if a file it brings is missing, starts none of the
// services packages contain, and never upgrades what is there.
package debian

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// needs maps a file to the package that brings it.
var needs = []struct{ file, pkg string }{
	{"/usr/bin/containerd", "containerd"},
	{"/usr/bin/ctr", "containerd"},
	{"/usr/sbin/runc", "runc"},
	{"/usr/lib/cni/bridge", "containernetworking-plugins"},
	{"/usr/sbin/iptables", "iptables"},
	{"/usr/sbin/nft", "nftables"},
	{"/usr/sbin/conntrack", "conntrack"},
	{"/usr/bin/nsenter", "util-linux"},
}

// policyFile, while it exists and exits with 101, keeps packages from starting
// their services (Debian Policy 9.3.3.1).
const policyFile = "/usr/sbin/policy-rc.d"

const policy = "#!/bin/sh\n# Made while packages for a sandbox are installed.\nexit 101\n"

// Missing lists the packages the host lacks.
func Missing() []string {
	var missing []string
	for _, need := range needs {
		if _, err := os.Stat(need.file); err != nil && !slices.Contains(missing, need.pkg) {
			missing = append(missing, need.pkg)
		}
	}
	return missing
}

// Install installs packages with apt-get, after refreshing the lists.
func Install(ctx context.Context, packages []string) error {
	if len(packages) == 0 {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("this host lacks what the packages %s of Debian contain, and has no apt-get; install the same by its own means", strings.Join(packages, ", "))
	}
	// One of ours that a crash left is ours still.
	if text, err := os.ReadFile(policyFile); errors.Is(err, os.ErrNotExist) || string(text) == policy {
		if err := os.WriteFile(policyFile, []byte(policy), 0o755); err != nil {
			return fmt.Errorf("keeping services from starting: %w", err)
		}
		defer os.Remove(policyFile)
	}
	if err := apt(ctx, "update", "-qq"); err != nil {
		return err
	}
	return apt(ctx, append([]string{"install", "-y", "-qq", "--no-install-recommends", "--no-upgrade"}, packages...)...)
}

func apt(ctx context.Context, args ...string) error {
	command := exec.CommandContext(ctx, "apt-get", args...)
	command.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if output, err := command.CombinedOutput(); err != nil {
		text := strings.TrimSpace(string(output))
		return fmt.Errorf("running apt-get %s: %w\n%s", strings.Join(args, " "), err, text[max(0, len(text)-2000):])
	}
	return nil
}
