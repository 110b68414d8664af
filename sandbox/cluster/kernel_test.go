package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestKernel: the kernel here has all that is needed or cannot load it, so folders stand in for
// its settings, and a script for modprobe.
func TestKernel(t *testing.T) {
	const (
		v6    = "ipv6/conf/"
		calls = "bridge/bridge-nf-call-iptables"
	)
	for _, c := range []struct {
		reason   string
		before   map[string]string
		modprobe string
		after    map[string]string
		wrong    string
	}{
		{"all is there, and as the host's owner wants it", map[string]string{v6 + "x": "", calls: "1"}, "echo loaded >&2; exit 1", map[string]string{v6 + "x": "", calls: "1"}, ""},
		{
			"a stock Debian: the module is loaded, and the host's own bridges pass on what they did",
			map[string]string{v6 + "x": ""},
			`[ "$*" = br_netfilter ] && mkdir bridge && echo 1 >bridge/bridge-nf-call-iptables && echo 1 >bridge/bridge-nf-call-arptables && echo 0 >bridge/bridge-nf-filter-vlan-tagged`,
			map[string]string{v6 + "x": "", calls: "0", "bridge/bridge-nf-call-arptables": "0", "bridge/bridge-nf-filter-vlan-tagged": "0\n"}, "",
		},
		{"there is no module", map[string]string{v6 + "x": ""}, "echo FATAL: not found in /lib/modules >&2; exit 1", map[string]string{v6 + "x": ""}, "br_netfilter: exit status 1: FATAL: not found in /lib/modules"},
		{"the module is no help", map[string]string{v6 + "x": ""}, "exit 0", map[string]string{v6 + "x": ""}, "br_netfilter: nothing came of it"},
		{"no IPv6", map[string]string{calls: "1"}, "exit 1", map[string]string{calls: "1"}, "ipv6.disable"},
	} {
		k := kernel{settings: t.TempDir(), modprobe: filepath.Join(t.TempDir(), "modprobe")}
		script := "#!/bin/sh\ncd " + k.settings + "\n" + c.modprobe + "\n"
		if err := os.WriteFile(k.modprobe, []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
		for name, text := range c.before {
			path := filepath.Join(k.settings, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		err := k.prepare()
		if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: %v, want %q", c.reason, err, c.wrong)
		}
		after := map[string]string{}
		files, _ := filepath.Glob(k.settings + "/*/*")
		more, _ := filepath.Glob(k.settings + "/*/*/*")
		for _, file := range append(files, more...) {
			if text, err := os.ReadFile(file); err == nil {
				name, _ := filepath.Rel(k.settings, file)
				after[name] = string(text)
			}
		}
		if d := cmp.Diff(c.after, after); d != "" {
			t.Errorf("%s: settings (-want +got):\n%s", c.reason, d)
		}
	}
}
