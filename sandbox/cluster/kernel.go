package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// kernel is what machines need of the host's kernel and it does not load by itself.
type kernel struct {
	settings string // of networks
	modprobe string
}

var hostKernel = kernel{settings: "/proc/sys/net", modprobe: "/sbin/modprobe"}

// prepare loads br_netfilter, by which answers of a pod to another one on its node pass the node's
// firewall, that has sent the question there for a Service. The host's own bridges stay as they are.
func (k kernel) prepare() error {
	if !exists(filepath.Join(k.settings, "ipv6", "conf")) {
		return errors.New("this kernel does IPv4 only, and machines use IPv6 too; start it without ipv6.disable=1, or use --profile control-plane")
	}
	bridge := filepath.Join(k.settings, "bridge")
	if exists(bridge) {
		return nil
	}
	output, err := exec.Command(k.modprobe, "br_netfilter").CombinedOutput()
	if !exists(bridge) {
		if err == nil {
			err = errors.New("nothing came of it")
		}
		return fmt.Errorf("this kernel lacks the module br_netfilter, without which pods do not reach Services of pods on their own node; "+
			"install and load it. modprobe br_netfilter: %w: %s", err, strings.TrimSpace(string(output)))
	}
	calls, err := filepath.Glob(filepath.Join(bridge, "bridge-nf-call-*"))
	for _, call := range calls {
		err = errors.Join(err, os.WriteFile(call, []byte("0"), 0o644))
	}
	if err != nil {
		return fmt.Errorf("keeping the host's firewall from the host's bridges: %w", err)
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
