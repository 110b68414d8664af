package cli

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
)

func tree() *cobra.Command {
	var out, err bytes.Buffer
	return New(environment(&out, &err))
}

// visible returns all commands that help shows.
func visible(c *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{c}
	for _, child := range c.Commands() {
		if !child.Hidden && child.Name() != "completion" && child.Name() != "help" {
			all = append(all, visible(child)...)
		}
	}
	return all
}

func TestHelp(t *testing.T) {
	var page strings.Builder
	for _, c := range visible(tree()) {
		got := program(append(strings.Fields(c.CommandPath())[1:], "--help")...)
		if got.code != 0 || got.err != "" {
			t.Errorf("help of %s ends with %d and says %q", c.CommandPath(), got.code, got.err)
		}
		page.WriteString("$ " + c.CommandPath() + " --help\n" + got.out + "\n")
	}
	golden(t, "help.txt", page.String())
	if bare := program(); bare.code != 0 || !strings.Contains(bare.out, "Available Commands") {
		t.Errorf("without arguments the program does not show its help: %+v", bare)
	}
}

func TestEveryCommandIsDescribed(t *testing.T) {
	for _, c := range visible(tree()) {
		path := c.CommandPath()
		if c.Short == "" || strings.HasSuffix(c.Short, ".") || strings.ToUpper(c.Short[:1]) != c.Short[:1] {
			t.Errorf("%s: its short text is %q; want a line that begins with a capital and ends without a full stop", path, c.Short)
		}
		if c.Example == "" {
			t.Errorf("%s has no example", path)
		}
		for line := range strings.SplitSeq(c.Example, "\n") {
			words := strings.Fields(line)
			if !strings.HasPrefix(line, "  pelago ") {
				t.Errorf("%s: the line of its example %q is no command", path, line)
				continue
			}
			command, rest, err := tree().Find(words[1:])
			if err == nil {
				err = command.ParseFlags(rest)
			}
			if err == nil {
				err = command.ValidateArgs(command.Flags().Args())
			}
			if err != nil {
				t.Errorf("%q: %v", line, err)
			}
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s: flag --%s is not described", path, f.Name)
			}
		})
	}
}

const (
	id1  = "8f14e45f-ceea-4e7a-9c1d-0d5f3b6a1c2e"
	id2  = "c9f0f895-fb98-4b91-8f3f-1d2a3b4c5d6e"
	hash = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"
	// marked is a token that is found again wherever it leaks to.
	marked = "MARKED_TOKEN_MARKED_TOKEN_MARKED_TOKEN_MARK"
	// whole is one that is also 32 bytes, as those in band are.
	whole = "MARKED_TOKEN_MARKED_TOKEN_MARKED_TOKEN_MARQ"
	// publicKey is a key of WireGuard.
	publicKey = "QKrQ6rIlxWRnmhIQbXKXiR5oSSsYIyuOZqdKGvVeVBk="
)

// TestMistakesInWords holds that what means nothing ends with 2, before any cluster is
// asked, and says what to do.
func TestMistakesInWords(t *testing.T) {
	line := []string{"peer", "milan", "--cluster-id", id1, "--auth-url", "https://milan.example:30443", "--ca-sha256", hash, "--token", marked}
	with := func(args ...string) []string { return append(append([]string{}, line...), args...) }
	tunneled := func(args ...string) []string {
		return append([]string{"peer", "milan", "--cluster-id", id1, "--tunnel-key", publicKey, "--tunnel-endpoint", "milan.example:7100", "--ca-sha256", hash, "--token", whole}, args...)
	}
	cases := []struct {
		reason string
		args   []string
		want   string
	}{
		{"an unknown command with a hint", []string{"peel"}, "did you mean peer"},
		{"a verb without its noun", []string{"cordon"}, "say what to cordon: tenant"},
		{"a noun the verb does not have", []string{"drain", "peering", "x"}, `"peering" is not something to drain`},
		{"a missing name", []string{"unpeer"}, "NAME is missing; say: pelago unpeer NAME"},
		{"too many", []string{"unpeer", "a", "b"}, `"b" is one argument too many`},
		{"an unknown flag", []string{"status", "--colour"}, "unknown flag: --colour; see: pelago status --help"},
		{"an unknown format", []string{"status", "-o", "xml"}, "use json or yaml"},
		{"peer without anything", []string{"peer"}, "run at the provider: pelago generate peer-command"},
		{"half a line", []string{"peer", "milan", "--token", "x"}, "--cluster-id, --auth-url and --ca-sha256 are missing; copy the whole line"},
		{"a line without its end", line[:8:8], "Error: --token is missing; copy the whole line"},
		{"a resource there is not", with("--resource", "foo=1"), `--resource: there is no resource "foo"; use cpu, memory, pods`},
		{"a resource without a name", with("--resource", "a b/c=1"), `--resource: there is no resource "a b/c"`},
		{"half a device", with("--resource", "nvidia.com/gpu=500m"), "is not a whole number, as nvidia.com/gpu have to be"},
		{"half a pod", with("--pods", "0.5"), "--pods \"0.5\" is not a whole number"},
		{"more than there is anywhere", with("--cpu", "10E"), "--cpu \"10E\" is more than any cluster has"},
		{"an amount nobody reads", with("--cpu", "1e"+strings.Repeat("9", 30)), "is not an amount"},
		{"a format for what is not printed", []string{"install", "-o", "yaml"}, "-o needs --dry-run"},
		{"days", []string{"generate", "peer-command", "--ttl", "1d"}, "use h, m or s, like 24h"},
		{"a timeout without a unit", []string{"unpeer", "milan", "--timeout", "5"}, "use h, m or s, like 24h"},
		{"a name that is reserved", append([]string{"peer", "default"}, line[2:]...), "is reserved; choose another"},
		{"an id that was cut", with("--cluster-id", "8f14"), "--cluster-id"},
		{"a token that was cut", with("--token", "MARKED"), "--token is not a whole token"},
		{"a fingerprint that was cut", with("--ca-sha256", "2c26"), "--ca-sha256 has to be 64"},
		{"an address without TLS", with("--auth-url", "http://milan:1"), "--auth-url"},
		{"an address that carries a password", with("--auth-url", "https://a:b@milan:1"), "is not of the form"},
		{"an address with a path", with("--auth-url", "https://milan:1/x"), "is not of the form"},
		{"a port there is not", with("--auth-url", "https://milan:70000"), "1 to 65535"},
		{"a proxy that is none", with("--proxy-url", "socks5://x"), "--proxy-url"},
		{"an amount that is none", with("--cpu", "many"), `--cpu "many" is not an amount`},
		{"less than nothing", with("--memory", "-1Gi"), "is not an amount"},
		{"a resource without amount", with("--resource", "nvidia.com/gpu"), "NAME=AMOUNT"},
		{"the same twice", with("--cpu", "1", "--resource", "cpu=2"), "given twice"},
		{"amounts of a request that is not made", with("--cpu", "1", "--default-request=false"), "leave out --default-request=false"},
		{"in band without the other cluster", with("--in-band"), "--in-band is for --remote-kubeconfig; without that run at the provider: pelago generate peer-command --in-band"},
		{"a tunnel and an address", with("--tunnel-key", publicKey, "--tunnel-endpoint", "milan:7100"), "--tunnel-key and --auth-url exclude each other"},
		{"a tunnel and one to be made", []string{"peer", "--remote-kubeconfig", "x", "--in-band", "--tunnel-key", publicKey}, "leave out --tunnel-key and --tunnel-endpoint"},
		{"a tunnel and an API server", tunneled("--server-url", "https://milan:6443"), "are of no use in band"},
		{"a tunnel and a proxy", tunneled("--proxy-url", "http://proxy:3128"), "are of no use in band"},
		{"half a tunnel", []string{"peer", "milan", "--cluster-id", id1, "--tunnel-key", publicKey, "--ca-sha256", hash, "--token", marked}, "--tunnel-endpoint is missing; copy the whole line"},
		{"the other half", []string{"peer", "milan", "--cluster-id", id1, "--tunnel-endpoint", "milan:7100", "--ca-sha256", hash, "--token", marked}, "--tunnel-key is missing; copy the whole line"},
		{"nothing but a tunnel", []string{"peer", "--tunnel-key", publicKey, "--tunnel-endpoint", "milan:7100"}, "NAME, --cluster-id, --ca-sha256 and --token are missing"},
		{"a token that makes no key", tunneled("--token", marked), "--token is not a whole token"},
		{"a key that was cut", tunneled("--tunnel-key", publicKey[:40]), "--tunnel-key has to be a key of WireGuard"},
		{"an endpoint without a port", tunneled("--tunnel-endpoint", "milan"), `--tunnel-endpoint "milan" is not of the form HOST:PORT`},
		{"an endpoint with a port there is not", tunneled("--tunnel-endpoint", "milan:65536"), "a port of 1 to 65535"},
		{"an endpoint with a name for a port", tunneled("--tunnel-endpoint", "milan:https"), "is not of the form HOST:PORT"},
		{"an endpoint that a shell would act upon", tunneled("--tunnel-endpoint", "$(x):7100"), "is not of the form HOST:PORT"},
		{"more endpoints than a Peering may have", tunneled(strings.Fields(strings.Repeat("--tunnel-endpoint milan:7100 ", 16))...), "--tunnel-endpoint is given 17 times"},
		{"both ways to invite", with("--remote-kubeconfig", "x"), "makes the invitation itself"},
		{"both directions without the other cluster", with("--bidirectional"), "--bidirectional needs --remote-kubeconfig"},
		{"an invitation that lives too long", []string{"generate", "peer-command", "--ttl", "1000h"}, "--ttl 1000h0m0s is not between"},
		{"a name for a consumer that none can have", []string{"generate", "peer-command", "--consumer", "Rome"}, "--consumer: "},
		{"a value without a path", []string{"install", "--set", "x"}, "PATH=VALUE"},
		{"a type of Service there is not", []string{"install", "--auth-service-type", "Ingress"}, "LoadBalancer, NodePort, ClusterIP"},
		{"a label without a value", []string{"install", "--labels", "x"}, "KEY=VALUE"},
		{"an address of the API server without TLS", []string{"install", "--api-server-url", "http://x"}, "--api-server-url"},
		{"a namespace nobody can have", []string{"offload", "namespace", "Shop"}, "is not the name of a namespace"},
		{"the cluster's own namespace", []string{"offload", "namespace", "kube-system"}, "is the cluster's own and cannot be offloaded"},
		{"Pelago's own namespace", []string{"offload", "namespace", "pelago-system"}, "is the cluster's own"},
		{"a strategy there is not", []string{"offload", "namespace", "shop", "--pod-offloading-strategy", "remote"}, "use LocalAndRemote, Remote, Local"},
		{"a mapping there is not", []string{"offload", "namespace", "shop", "--namespace-mapping-strategy", "Same"}, "use DefaultName, EnforceSameName, SelectedName"},
		{"a name for a strategy that has none", []string{"offload", "namespace", "shop", "--remote-name", "x"}, "--remote-name is for --namespace-mapping-strategy SelectedName"},
		{"a strategy without its name", []string{"offload", "namespace", "shop", "--namespace-mapping-strategy", "SelectedName"}, "add --remote-name NAME"},
		{"a name there that none can have", []string{"offload", "namespace", "shop", "--namespace-mapping-strategy", "SelectedName", "--remote-name", "a.b"}, `--remote-name "a.b"`},
		{"a selector nobody reads", []string{"offload", "namespace", "shop", "--cluster-selector", "region in eu"}, "write it like region=eu"},
		{"an empty selector beside another", []string{"offload", "namespace", "shop", "--cluster-selector", "a=b", "--cluster-selector", ""}, "leave out the others or it"},
		{"a number that is none", []string{"offload", "namespace", "shop", "--cluster-selector", "size>big"}, "--cluster-selector"},
		{"an object and rolled workloads", []string{"offload", "namespace", "shop", "-o", "json", "--restart-workloads"}, "-o prints one object"},
		{"a noun unoffload does not have", []string{"unoffload", "pod", "x"}, "say: namespace"},
		{"a name nobody can have", []string{"install", "--cluster-name", "pelago-1"}, "reserved word"},
	}
	for _, c := range cases {
		got := program(append(c.args, "--kubeconfig", "/nonexistent")...)
		if got.code != 2 || got.out != "" || !strings.Contains(got.err, c.want) {
			t.Errorf("%s: %+v, want status 2 and %q", c.reason, got, c.want)
		}
		if strings.Contains(got.err, "MARKED") {
			t.Errorf("%s: the token is shown: %q", c.reason, got.err)
		}
	}
}

func TestNoCluster(t *testing.T) {
	got := program("status", "--kubeconfig", filepath.Join(t.TempDir(), "none"))
	if got.code != 1 || !strings.Contains(got.err, "--kubeconfig") {
		t.Errorf("a kubeconfig that is not there: %+v", got)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	dead := func(e *Env) {
		e.Connect = func(Access) (*Cluster, error) {
			return newCluster(&rest.Config{Host: "https://" + listener.Addr().String()}, nil)
		}
	}
	for _, args := range [][]string{{"status"}, {"install"}, {"uninstall"}, {"generate", "peer-command"}, {"unpeer", "milan"}, {"cordon", "tenant", "x"}, {"explain", "peering", "x"}, {"version"},
		{"offload", "namespace", "x"}, {"unoffload", "namespace", "x"}, {"explain", "pod", "x"}, {"explain", "namespace", "x"}} {
		if got := programWith(t.Context(), dead, args...); got.code != 1 || !strings.Contains(got.err, "does not answer") || !strings.Contains(got.err, "see that it runs") {
			t.Errorf("%s without an API server: %+v", args, got)
		}
	}
	if got := program("version", "--client", "-o", "json"); got.code != 0 || got.out != "{\n  \"client\": \"v1.2.3\"\n}\n" {
		t.Errorf("the version of the program alone: %+v", got)
	}
}

func TestPeerDryRun(t *testing.T) {
	args := []string{"peer", "milan", "--cluster-id", id1, "--auth-url", "https://milan.example:30443", "--ca-sha256", hash,
		"--token", "-", "--cpu", "4", "--resource", "nvidia.com/gpu=1", "--proxy-url", "http://proxy:3128", "--dry-run"}
	input := func(e *Env) { e.In = strings.NewReader(marked + "\n") }
	for _, format := range []string{"yaml", "json"} {
		got := programWith(t.Context(), input, append(args, "-o", format)...)
		if got.code != 0 || got.err != "" {
			t.Errorf("as %s: %+v", format, got)
		}
		golden(t, "peer."+format, got.out)
	}
}

func TestDocs(t *testing.T) {
	dir := t.TempDir()
	if got := program("docs", dir); got != (result{}) {
		t.Fatalf("writing the reference: %+v", got)
	}
	text, err := os.ReadFile(filepath.Join(dir, "pelago.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<!-- Made by: make gen -->", "## pelago generate peer-command", "--bidirectional", "Also: activate."} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the reference lacks %q", want)
		}
	}
	if strings.Contains(string(text), "pelago docs") {
		t.Error("the reference shows a hidden command")
	}
}

func TestPick(t *testing.T) {
	things := []called{
		{name: "milan", id: id1, display: "mailand"},
		{name: "rome", id: id2, display: "capital"},
		{name: "paris", id: "3", display: "capital"},
	}
	cases := []struct {
		reason, word string
		things       []called
		want         int
		err          string
	}{
		{"by its name here", "rome", things, 1, ""},
		{"by its id", id1, things, 0, ""},
		{"by its own name", "mailand", things, 0, ""},
		{"a name here wins over another's own name", "milan", append(things, called{name: "x", display: "milan"}), 0, ""},
		{"a name that two have says how to choose", "capital", things, 0, "several clusters call themselves capital: rome (cluster " + id2 + "), paris (cluster 3); use one of these names"},
		{"a name nobody has says which there are", "turin", things, 0, `there is no peering "turin" here; there is milan, paris, rome`},
		{"nobody at all", "turin", nil, 0, `there is no peering "turin" here, and no other; to begin, run the line that a provider gives you (pelago peer), or invite a cluster: pelago generate peer-command`},
	}
	for _, c := range cases {
		got, err := pick("peering", c.word, c.things)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if got != c.want || text != c.err {
			t.Errorf("%s: %d, %q; want %d, %q", c.reason, got, text, c.want, c.err)
		}
	}
}

func TestValues(t *testing.T) {
	base := map[string]any{"a": map[string]any{"b": 1, "c": 2}, "d": "x"}
	overlay(base, map[string]any{"a": map[string]any{"c": 3}, "e": map[string]any{"f": true}, "d": nil})
	put(base, "dotted", splitPath(`config.cluster.labels.topology\.kubernetes\.io/region`)...)
	want := map[string]any{
		"a": map[string]any{"b": 1, "c": 3}, "d": nil, "e": map[string]any{"f": true},
		"config": map[string]any{"cluster": map[string]any{"labels": map[string]any{"topology.kubernetes.io/region": "dotted"}}},
	}
	if d := cmp.Diff(want, base); d != "" {
		t.Errorf("values laid over each other (-want +got):\n%s", d)
	}
	for text, want := range map[string]any{"20%": "20%", "true": true, "4": float64(4), "": "", "[a]": []any{"a"}} {
		if d := cmp.Diff(want, scalar(text)); d != "" {
			t.Errorf("the value %q (-want +got):\n%s", text, d)
		}
	}
}
