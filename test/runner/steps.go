package main

import (
	"context"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Kinds of steps, by what they need.
const (
	kindPrepare = "prepare" // makes what later steps use
	kindUnit    = "unit"    // nothing but Go
	kindAPI     = "api"     // a real API server
	kindCluster = "cluster" // real clusters, so root
	kindCheck   = "check"   // reads the code
)

// Lists a step can be on.
const (
	listTest    = "test"     // what CI runs
	listTestAll = "test-all" // everything there is
	listCheck   = "check"    // form, not behaviour
	listBench   = "bench"    // limits with their numbers
	listTorture = "torture"  // one storm, as $SEED, $TIME or $HISTORY say
)

// step is one command with a name and a limit.
type step struct {
	name   string
	proves string
	kind   string
	lists  []string
	// command runs in dir (from the root of the repository) with env added; packages,
	// if set, finds the packages to add to it.
	command  []string
	dir      string
	env      []string
	packages func(ctx context.Context) ([]string, error)
	// show: lines of output that hold this text are shown at the end.
	show string
	// goTest: the output is that of go test -json, and each test counts.
	goTest bool
	// limit bounds the step; grace (graceTime if 0) the time it has to end after that.
	limit, grace time.Duration
	// needs names steps that must have passed for this one to make sense.
	needs []string
}

var (
	everywhere = []string{listTest, listTestAll}
	cluster    = append([]string{"PELAGO_CLUSTER_TESTS=1"}, plain...)
	race       = []string{"CGO_ENABLED=1"}
	plain      = []string{"CGO_ENABLED=0"} // as the programs are compiled
	asBuilt    = append([]string{"GOFLAGS=-trimpath"}, plain...)
	unsampled  = []string{"PELAGO_TEST_ALL=1"} // instead of samples
	roomy      = []string{"GOGC=400"}          // for compilers and API servers that end soon: memory for time
)

// checkGenerated makes every generated file again elsewhere and compares.
const checkGenerated = `trap 'rm -rf out/gen' EXIT && rm -rf out/gen && make gen GEN=out/gen && diff -ru docs/cli out/gen/docs/cli &&
	diff -ru deploy/generated out/gen/deploy/generated && diff -ru deploy/chart/templates/crds out/gen/deploy/chart/templates/crds &&
	diff -u deploy/chart/templates/rbac.yaml out/gen/deploy/chart/templates/rbac.yaml &&
	diff -u api/v1alpha1/zz_generated.deepcopy.go out/gen/api/v1alpha1/zz_generated.deepcopy.go &&
	for file in api/wire/*.pb.go; do diff -u "$file" "out/gen/$file" || exit 1; done`

// checkFormat lists the Go files that gofmt would change, of those that are there. What gofmt cannot
// read, and a gofmt that cannot be run, fail it, too.
const checkFormat = `set -o pipefail
	there() { while IFS= read -r -d '' file; do if [ -e "$file" ]; then printf '%s\0' "$file"; fi; done; }
	unformatted=$(git ls-files -z --cached --others --exclude-standard '*.go' | there | xargs -0 -r gofmt -l) || exit 1
	[ -z "$unformatted" ] || { echo "run gofmt -w on:"; echo "$unformatted"; exit 1; }`

// Tools that only tests run, and the versions they are: Helm, with which the chart is compared, and a
// network plugin that enforces NetworkPolicies.
const (
	helm       = "helm.sh/helm/v3/cmd/helm@v3.22.0"
	kubeRouter = "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router@v2.1.0"
)

// toolDir is where a tool is put, which no other version of it is.
func toolDir(module string) string { return "out/tools/" + path.Base(module) }

// toolProgram is the tool's program there.
func toolProgram(module string) string {
	name, _, _ := strings.Cut(path.Base(module), "@")
	return toolDir(module) + "/" + name
}

// makeTool is the shell that makes a tool, if it is not there.
func makeTool(module string) string {
	return `[ -x ` + toolProgram(module) + ` ] || CGO_ENABLED=0 GOBIN="$PWD/` + toolDir(module) + `" go install ` + module
}

// ownSteps matches the cluster tests with steps of their own.
const ownSteps = "^(TestVersions|TestLimits|TestPeering|TestPeeringAll|TestOffloading|TestOffloadingAll|TestNetworkMatrix|TestNetworkIPv6|TestNetworkFamilies|TestNetworkPlugin|TestMixedClusters|TestSkew|TestSharding|TestHollowMany|TestTransit|TestDirect|TestOnward|TestInBand|TestInBandFar|TestTorture)$"

// silence begins what tests of the network's faults have measured.
const silence = "longest silence "

// steps is the whole list, in the order of running.
var steps = []step{
	{
		name: "tools", kind: kindPrepare, lists: []string{listTest, listTestAll, listCheck},
		proves:  "the machine has what Go needs beside itself: git, and a C compiler for -race",
		command: []string{"bash", "test/tools.sh"}, limit: 5 * time.Minute,
	}, {
		name: "build", kind: kindPrepare, lists: []string{listTest, listTestAll, listCheck, listBench, listTorture},
		proves:  "the programs compile",
		command: []string{"make", "build"}, env: roomy, limit: 15 * time.Minute,
	}, {
		name: "image", kind: kindPrepare, lists: []string{listTest, listTestAll, listBench, listTorture}, needs: []string{"build"},
		proves:  "the image is built from scratch, for this machine's architecture",
		command: []string{"bash", "-c", `exec make image ARCHES="$(go env GOARCH)"`}, limit: 10 * time.Minute,
	}, {
		name: "image-all", kind: kindPrepare, lists: []string{listTestAll}, needs: []string{"image"},
		proves:  "the image is built for all architectures",
		command: []string{"make", "image"}, limit: 10 * time.Minute,
	}, {
		name: "unit", kind: kindUnit, lists: everywhere, needs: []string{"tools"},
		proves:  "the product's logic, and the laws of the repository",
		command: goTest("-race", "-p", "3", "-parallel", "6", "-timeout", "34m"), packages: rootPackages(withoutServer), env: race, goTest: true, limit: 35 * time.Minute,
	}, {
		name: "promtool", kind: kindUnit, lists: everywhere, needs: []string{"tools"},
		proves:  "alerts fire when they should and only then, and Prometheus understands the dashboard",
		command: []string{"bash", "-c", `PELAGO_PROMTOOL="$PWD/out/tools/promtool" exec go test -json -count=1 -trimpath -tags promtool -run '^TestPromtool$' ./deploy`}, env: plain, goTest: true, limit: 5 * time.Minute,
	}, {
		name: "unit-sandbox", kind: kindUnit, lists: everywhere, needs: []string{"tools"},
		proves:  "the sandbox's logic, and its network, machines and images with real parts",
		command: goTest("-race", "-p", "3", "-timeout", "24m"), packages: sandboxPackages, dir: "sandbox", env: race, goTest: true, limit: 25 * time.Minute,
	}, {
		name: "kubernetes", kind: kindPrepare, lists: []string{listTest, listTestAll, listBench, listTorture}, needs: []string{"build"},
		proves:  "Kubernetes compiles from its Go modules into the cache",
		command: []string{"bin/pelago-sandbox", "build"}, env: roomy, limit: 45 * time.Minute,
	}, {
		name: "api", kind: kindAPI, lists: []string{listTest}, needs: []string{"tools", "kubernetes"},
		proves:  "what speaks to an API server works with a real one",
		command: goTest("-p", "4", "-timeout", "39m"), packages: rootPackages(withServer), env: append(roomy, plain...), goTest: true, limit: 40 * time.Minute,
	}, {
		name: "api-all", kind: kindAPI, lists: []string{listTestAll}, needs: []string{"tools", "kubernetes"},
		proves:  "the same under the race detector, with a crash at every write",
		command: goTest("-race", "-p", "4", "-timeout", "30m"), packages: rootPackages(withServer), env: append(unsampled, race...), goTest: true, limit: 40 * time.Minute,
	}, {
		name: "cluster", kind: kindCluster, lists: everywhere, needs: []string{"kubernetes"},
		proves:  "whole clusters behave as users expect",
		command: goTest("-v", "-timeout", "30m", "-skip", ownSteps, "./test"), env: cluster, goTest: true, limit: 31 * time.Minute,
	}, {
		name: "peering", kind: kindCluster, lists: everywhere, needs: []string{"kubernetes", "image"},
		proves:  "clusters peer, negotiate and part, whatever breaks meanwhile",
		command: goTest("-v", "-timeout", "20m", "-run", "^TestPeering$", "./test"), env: cluster, goTest: true, limit: 21 * time.Minute,
	}, {
		name: "peering-all", kind: kindCluster, lists: []string{listTestAll}, needs: []string{"kubernetes", "image"},
		proves:  "a credential is renewed for real, the oldest Kubernetes peers and runs pods in both roles, twenty peer at once",
		command: goTest("-v", "-timeout", "40m", "-run", "^TestPeeringAll$", "./test"), env: cluster, goTest: true, limit: 41 * time.Minute,
	}, {
		name: "offloading", kind: kindCluster, lists: everywhere, needs: []string{"kubernetes", "image"},
		proves:  "pods created in one cluster run in the other as if they were at home, whatever breaks meanwhile",
		command: goTest("-v", "-timeout", "39m", "-parallel", "3", "-run", "^TestOffloading$", "./test"), env: append([]string{"PELAGO_NETWORK_ROUNDS=5"}, cluster...), goTest: true, show: silence, limit: 40 * time.Minute,
	}, {
		name: "network-faults", kind: kindCluster, lists: []string{listTestAll}, needs: []string{"kubernetes", "image"},
		proves:  "calls between clusters go on through fifty rounds of faults of the network",
		command: goTest("-v", "-timeout", "40m", "-run", "^TestOffloading$/^NetworkFaults$", "./test"), env: append([]string{"PELAGO_NETWORK_ROUNDS=50"}, cluster...), goTest: true, show: silence, limit: 41 * time.Minute,
	}, {
		name: "network", kind: kindCluster, lists: []string{listTest}, needs: []string{"kubernetes", "image"},
		proves:  "pods of clusters with other plugins, families and ranges reach each other in every way, also slowly, from behind NAT, in band alone, and by a direct path",
		command: goTest("-v", "-timeout", "20m", "-parallel", "4", "-run", "^TestNetworkMatrix$", "./test"), env: cluster, goTest: true, limit: 21 * time.Minute,
	}, {
		name: "network-all-1", kind: kindCluster, lists: []string{listTestAll}, needs: []string{"kubernetes", "image"},
		proves:  "the same in the first quarter of their combinations",
		command: goTest("-v", "-timeout", "29m", "-parallel", "4", "-run", "^TestNetworkMatrix$", "./test"), env: slices.Concat(unsampled, cluster, []string{"PELAGO_TEST_PART=1/4"}), goTest: true, limit: 30 * time.Minute,
	}, {
		name: "network-all-2", kind: kindCluster, lists: []string{listTestAll}, needs: []string{"kubernetes", "image"},
		proves:  "in the second",
		command: goTest("-v", "-timeout", "29m", "-parallel", "4", "-run", "^TestNetworkMatrix$", "./test"), env: slices.Concat(unsampled, cluster, []string{"PELAGO_TEST_PART=2/4"}), goTest: true, limit: 30 * time.Minute,
	}, {
		name: "network-all-3", kind: kindCluster, lists: []string{listTestAll}, needs: []string{"kubernetes", "image"},
		proves:  "in the third",
		command: goTest("-v", "-timeout", "29m", "-parallel", "4", "-run", "^TestNetworkMatrix$", "./test"), env: slices.Concat(unsampled, cluster, []string{"PELAGO_TEST_PART=3/4"}), goTest: true, limit: 30 * time.Minute,
	}, {
		name: "network-all-4", kind: kindCluster, lists: []string{listTestAll}, needs: []string{"kubernetes", "image"},
		proves:  "and in the last",
		command: goTest("-v", "-timeout", "29m", "-parallel", "4", "-run", "^TestNetworkMatrix$", "./test"), env: slices.Concat(unsampled, cluster, []string{"PELAGO_TEST_PART=4/4"}), goTest: true, limit: 30 * time.Minute,
	}, {
		name: "network-ipv6", kind: kindCluster, lists: []string{listTestAll}, needs: []string{"kubernetes", "image"},
		proves:  "clusters of IPv6 alone with the same unique local addresses: names, home's API, Services, faults, policies, reachability, a mapping, and peering in band",
		command: goTest("-v", "-timeout", "25m", "-run", "^TestNetworkIPv6$", "./test"), env: append([]string{"PELAGO_NETWORK_ROUNDS=5"}, cluster...), goTest: true, show: silence, limit: 26 * time.Minute,
	}, {
		name: "network-families", kind: kindCluster, lists: []string{listTestAll}, needs: []string{"kubernetes", "image"},
		proves:  "pelago test network tries both families of clusters that have both, and finds one of them broken",
		command: goTest("-v", "-timeout", "15m", "-run", "^TestNetworkFamilies$", "./test"), env: cluster, goTest: true, limit: 16 * time.Minute,
	}, {
		name: "offloading-all", kind: kindCluster, lists: []string{listTestAll}, needs: []string{"kubernetes", "image"},
		proves:  "several providers, a database outside of the pod network, a long partition, 500 deletions while the provider is away, a node of the provider that dies, who is reached by reachability and NetworkPolicies",
		command: goTest("-v", "-timeout", "80m", "-run", "^TestOffloadingAll$", "./test"), env: cluster, goTest: true, limit: 81 * time.Minute,
	}, {
		name: "sharding", kind: kindCluster, lists: []string{listTestAll}, needs: []string{"kubernetes"},
		proves:  "one consumer and twenty providers: whichever way the leading manager ends, another goes on and nothing is lost",
		command: goTest("-v", "-timeout", "30m", "-run", "^TestSharding$", "./test"), env: cluster, goTest: true, show: "limit: ", limit: 31 * time.Minute,
	}, {
		name: "hollow-many", kind: kindCluster, lists: []string{listTestAll}, needs: []string{"kubernetes"},
		proves:  "a sandbox has five hundred nodes and ten thousand pods, whose starts and Leases are in time",
		command: goTest("-v", "-timeout", "25m", "-run", "^TestHollowMany$", "./test"), env: cluster, goTest: true, show: "hollow: ", limit: 26 * time.Minute,
	}, {
		name: "transit", kind: kindCluster, lists: []string{listTestAll}, needs: []string{"kubernetes", "image"},
		proves:  "pods at two providers of the same addresses reach each other through home, by IPv4 and by IPv6",
		command: goTest("-v", "-timeout", "20m", "-run", "^TestTransit$", "./test"), env: cluster, goTest: true, limit: 21 * time.Minute,
	}, {
		name: "direct", kind: kindCluster, lists: []string{listTestAll}, needs: []string{"kubernetes", "image"},
		proves:  "pods at two providers that talk much get a tunnel between the two, without a break, and lose it when one of the owners does not allow it any more; by IPv4 and by IPv6",
		command: goTest("-v", "-timeout", "20m", "-run", "^TestDirect$", "./test"), env: cluster, goTest: true, show: "direct: ", limit: 21 * time.Minute,
	}, {
		name: "onward", kind: kindCluster, lists: []string{listTestAll}, needs: []string{"kubernetes", "image"},
		proves:  "pods of a consumer run at a provider of its provider's as at home, if it lets them, and it learns nothing of where that is, also by IPv6 and where nobody else has the far provider's addresses; with a tunnel between the two if all three let it",
		command: goTest("-v", "-timeout", "20m", "-run", "^TestOnward$", "./test"), env: cluster, goTest: true, show: "onward: ", limit: 21 * time.Minute,
	}, {
		name: "in-band", kind: kindCluster, lists: []string{listTestAll}, needs: []string{"kubernetes", "image"},
		proves:  "a consumer behind NAT that reaches nothing of its provider but UDP ports peers with it, also by YAML, uses it, with the rights that all have, whatever breaks meanwhile, and parts",
		command: goTest("-v", "-timeout", "40m", "-run", "^TestInBand$", "./test"), env: cluster, goTest: true, show: "in-band: ", limit: 41 * time.Minute,
	}, {
		name: "in-band-far", kind: kindCluster, lists: []string{listTest}, needs: []string{"kubernetes", "image"},
		proves:  "a provider that nobody can call calls its consumer, and all goes through that tunnel",
		command: goTest("-v", "-timeout", "15m", "-run", "^TestInBandFar$/^(Line|Both|Unpeer)$", "./test"), env: cluster, goTest: true, limit: 16 * time.Minute,
	}, {
		name: "in-band-far-all", kind: kindCluster, lists: []string{listTestAll}, needs: []string{"kubernetes", "image"},
		proves:  "the same, and it calls again after the link was cut",
		command: goTest("-v", "-timeout", "15m", "-run", "^TestInBandFar$", "./test"), env: cluster, goTest: true, limit: 16 * time.Minute,
	}, {
		name: "skew", kind: kindCluster, lists: []string{listTestAll}, needs: []string{"kubernetes"},
		proves:  "older builds and the current one work with each other in both roles, and upgrades disturb nothing",
		command: goTest("-v", "-timeout", "40m", "-run", "^TestSkew$", "./test"), env: cluster, goTest: true, limit: 41 * time.Minute,
	}, {
		name: "torture", kind: kindCluster, lists: []string{listTorture}, needs: []string{"kubernetes", "image"},
		proves:  "whatever users do while whatever breaks, what must never be true never is, and in the end all is as they want it",
		command: goTest("-v", "-timeout", "4h", "-run", "^TestTorture$", "./test"), env: cluster, goTest: true, limit: 4*time.Hour + time.Minute,
	}, {
		name: "storm", kind: kindCluster, lists: []string{listTest}, needs: []string{"kubernetes", "image"},
		proves:  "three minutes of one storm: users do this and that while this and that breaks, and in the end all is as they want it",
		command: goTest("-v", "-timeout", "29m", "-run", "^TestTorture$", "./test"), env: append([]string{"SEED=7", "TIME=3m"}, cluster...), goTest: true, limit: 30 * time.Minute,
	}, {
		name: "storm-all", kind: kindCluster, lists: []string{listTestAll}, needs: []string{"kubernetes", "image"},
		proves:  "the same storm for an hour",
		command: goTest("-v", "-timeout", "95m", "-run", "^TestTorture$", "./test"), env: append([]string{"SEED=7", "TIME=60m"}, cluster...), goTest: true, limit: 96 * time.Minute,
	}, {
		name: "demo", kind: kindCluster, lists: []string{listTestAll}, needs: []string{"kubernetes", "image"},
		proves:  "make demo shows all that it says, from nothing, and its sandbox is gone afterwards",
		command: []string{"bash", "test/demo/whole.sh"}, limit: 20 * time.Minute, grace: 2 * time.Minute,
	}, {
		name: "cluster-mixed", kind: kindCluster, lists: []string{listTestAll}, needs: []string{"kubernetes"},
		proves:  "clusters of other networks and of different kinds stand side by side",
		command: goTest("-v", "-timeout", "20m", "-run", "^TestMixedClusters$", "./test"), env: cluster, goTest: true, limit: 21 * time.Minute,
	}, {
		name: "campaign-all", kind: kindUnit, lists: []string{listTestAll}, needs: []string{"tools"},
		proves:  "who tries every address of the other cluster, whoever it is, has answers of those that may be reached and of no other",
		command: goTest("-v", "-timeout", "9m", "-run", "^TestCampaignWalk$", "./network/plan"), env: append(unsampled, plain...), goTest: true, limit: 10 * time.Minute,
	}, {
		name: "fuzz", kind: kindUnit, lists: []string{listTestAll},
		proves:  "what a peer sends breaks no reader of it, for a while of trying",
		command: []string{"bash", "test/fuzz.sh", "10s"}, limit: 30 * time.Minute,
	}, {
		name: "bench-peering", kind: kindCluster, lists: []string{listTestAll, listBench}, needs: []string{"kubernetes", "image"},
		proves:  "peering, unpeering and idling stay within their limits",
		command: goTest("-v", "-timeout", "30m", "-run", "^TestPeering$", "./bench"), env: cluster, goTest: true, show: "limit: ", limit: 31 * time.Minute,
	}, {
		name: "bench-start", kind: kindCluster, lists: []string{listTestAll, listBench}, needs: []string{"kubernetes", "image"},
		proves:  "an offloaded pod starts nearly as fast as a plain one, twenty at once too, and home soon knows",
		command: goTest("-v", "-timeout", "15m", "-run", "^TestStart$", "./bench"), env: cluster, goTest: true, show: "limit: ", limit: 16 * time.Minute,
	}, {
		name: "bench-network", kind: kindCluster, lists: []string{listTestAll, listBench},
		proves:  "paths between pods of two clusters carry as much as paths made by hand, translated or not, what a tunnel keeps is small, several would carry no more, and plans of large clusters are made and applied at once",
		command: goTest("-v", "-timeout", "15m", "-run", "^Test(Network(Memory|Traffic|Plan)?|Tunnels)$", "./bench"), env: cluster, goTest: true, show: "limit: ", limit: 16 * time.Minute,
	}, {
		name: "bench-isolation", kind: kindCluster, lists: []string{listTestAll, listBench},
		proves:  "a tenant whose gateway floods costs another one no more than a fifth of its latency",
		command: goTest("-v", "-timeout", "5m", "-run", "^TestIsolation$", "./bench"), env: cluster, goTest: true, show: "limit: ", limit: 6 * time.Minute,
	}, {
		name: "bench-namespaces", kind: kindCluster, lists: []string{listTestAll, listBench}, needs: []string{"kubernetes", "image"},
		proves:  "namespaces, their peers and virtual nodes do not take longer each when they are many",
		command: goTest("-v", "-timeout", "30m", "-run", "^TestNamespaces$", "./bench"), env: cluster, goTest: true, show: "limit: ", limit: 31 * time.Minute,
	}, {
		name: "bench-offload", kind: kindCluster, lists: []string{listBench}, needs: []string{"kubernetes", "image"},
		proves:  "a thousand pods at once are offloaded half as fast as plain ones start, or faster, and cost what is stated",
		command: goTest("-v", "-timeout", "30m", "-run", "^TestOffload(Plan|Charts)?$", "./bench"), env: cluster, goTest: true, show: "limit: ", limit: 31 * time.Minute,
	}, {
		name: "bench-offload-all", kind: kindCluster, lists: []string{listTestAll}, needs: []string{"kubernetes", "image"},
		proves:  "the same of five thousand, and at 50 ms",
		command: goTest("-v", "-timeout", "80m", "-run", "^TestOffload(Plan|Charts)?$", "./bench"), env: append(unsampled, cluster...), goTest: true, show: "limit: ", limit: 81 * time.Minute,
	}, {
		name: "bench-churn", kind: kindCluster, lists: []string{listTestAll}, needs: []string{"kubernetes", "image"},
		proves:  "an hour of pods and namespaces that come and go leaves nothing in the managers' memory",
		command: goTest("-v", "-timeout", "80m", "-run", "^TestChurn$", "./bench"), env: cluster, goTest: true, show: "limit: ", limit: 81 * time.Minute,
	}, {
		name: "helm-build", kind: kindPrepare, lists: []string{listTestAll},
		proves:  "Helm compiles, to compare with",
		command: []string{"bash", "-c", makeTool(helm)}, limit: 15 * time.Minute,
	}, {
		name: "helm", kind: kindUnit, lists: []string{listTestAll}, needs: []string{"helm-build"},
		proves:  "helm template and pelago install make the same objects",
		command: []string{"bash", "-c", `PELAGO_HELM="$PWD/` + toolProgram(helm) + `" exec go test -json -count=1 -tags helm -run '^TestHelm$' ./deploy`}, goTest: true, limit: 5 * time.Minute,
	}, {
		name: "kube-router-build", kind: kindPrepare, lists: []string{listTestAll},
		proves:  "a network plugin that enforces NetworkPolicies compiles, and has the programs that it needs",
		command: []string{"bash", "-c", `command -v ipset >/dev/null || [ -x /usr/sbin/ipset ] || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends ipset; } && { ` + makeTool(kubeRouter) + `; }`}, limit: 20 * time.Minute,
	}, {
		name: "network-plugin", kind: kindCluster, lists: []string{listTestAll}, needs: []string{"kubernetes", "image", "kube-router-build"},
		proves:  "NetworkPolicies mean the same between two clusters whose network plugins enforce them, and what a provider's is given of home's holds among home's pods there",
		command: goTest("-v", "-timeout", "15m", "-run", "^TestNetworkPlugin$", "./test"), env: append([]string{"PELAGO_KUBE_ROUTER=../" + toolProgram(kubeRouter)}, cluster...), goTest: true, limit: 16 * time.Minute,
	}, {
		name: "stock", kind: kindPrepare, lists: []string{listTestAll}, // which compiles by itself what runs in the machine
		proves:  "on Debian as it is installed, in a virtual machine, tunnels of the kernel's WireGuard and machines of the sandbox work",
		command: []string{"bash", "test/stock/stock.sh"}, goTest: true, limit: 20 * time.Minute,
	}, {
		name: "cluster-versions", kind: kindCluster, lists: []string{listTestAll}, needs: []string{"kubernetes"},
		proves:  "the sandbox runs the older Kubernetes versions it claims",
		command: goTest("-v", "-timeout", "60m", "-run", "^TestVersions$", "./test"), env: cluster, goTest: true, limit: 61 * time.Minute,
	}, {
		name: "limits", kind: kindCluster, lists: []string{listTestAll, listBench}, needs: []string{"kubernetes"},
		proves:  "the stated limits on time and memory hold on this machine",
		command: goTest("-v", "-timeout", "20m", "-run", "^TestLimits$", "./test"), env: cluster, goTest: true, show: "limit: ", limit: 21 * time.Minute,
	}, {
		name: "format", kind: kindCheck, lists: []string{listCheck},
		proves:  "every Go file is formatted by gofmt",
		command: []string{"bash", "-c", checkFormat},
		limit:   time.Minute,
	}, {
		name: "vet", kind: kindCheck, lists: []string{listCheck},
		proves:  "go vet finds nothing in the product",
		command: []string{"go", "vet", "-trimpath", "./..."}, env: plain, limit: 10 * time.Minute,
	}, {
		name: "vet-sandbox", kind: kindCheck, lists: []string{listCheck},
		proves:  "go vet finds nothing in the sandbox",
		command: []string{"go", "vet", "-trimpath"}, env: plain, packages: sandboxPackages, dir: "sandbox", limit: 10 * time.Minute,
	}, {
		name: "lint", kind: kindCheck, lists: []string{listCheck},
		proves:  "staticcheck finds nothing in the product",
		command: []string{"go", "tool", "-modfile=tools.mod", "staticcheck", "./..."}, env: asBuilt, limit: 10 * time.Minute,
	}, {
		name: "lint-sandbox", kind: kindCheck, lists: []string{listCheck},
		proves:  "staticcheck finds nothing in the sandbox",
		command: []string{"go", "tool", "-modfile=../tools.mod", "staticcheck"}, env: asBuilt, packages: sandboxPackages, dir: "sandbox", limit: 10 * time.Minute,
	}, {
		name: "tidy", kind: kindCheck, lists: []string{listCheck},
		proves:  "go.mod and go.sum say what the code uses",
		command: []string{"go", "mod", "tidy", "-diff"}, limit: 5 * time.Minute,
	}, {
		name: "tidy-sandbox", kind: kindCheck, lists: []string{listCheck},
		proves:  "the same of the sandbox",
		command: []string{"go", "mod", "tidy", "-diff"}, dir: "sandbox", limit: 5 * time.Minute,
	}, {
		name: "generated", kind: kindCheck, lists: []string{listCheck}, needs: []string{"build"},
		proves:  "generated files are what make gen makes",
		command: []string{"bash", "-c", checkGenerated}, limit: 15 * time.Minute,
	}, {
		name: "laws", kind: kindCheck, lists: []string{listCheck},
		proves:  "imports, names, documentation and module files keep the laws of the repository",
		command: goTest("./test/law"), env: plain, goTest: true, limit: 5 * time.Minute,
	},
}

// promised is how long a list may take on two cores with cold caches.
var promised = map[string]time.Duration{listTest: 45 * time.Minute}

// goTest is go test with the output this program reads; nothing comes from a cache. What is
// compiled without -race, with the environment plain, is compiled as the step build does, and so
// not twice. Linking takes a third of the time without what debuggers read, and traces need none of that.
func goTest(args ...string) []string {
	command := []string{"go", "test", "-json", "-count=1", "-ldflags=-w"}
	if !slices.Contains(args, "-race") {
		command = append(command, "-trimpath")
	}
	return append(command, args...)
}

// choose returns the steps of a list whose names match.
func choose(all []step, list string, only *regexp.Regexp) []step {
	var chosen []step
	for _, s := range all {
		if slices.Contains(s.lists, list) && (only == nil || only.MatchString(s.name)) {
			chosen = append(chosen, s)
		}
	}
	return chosen
}

func lists() []string { return []string{listTest, listTestAll, listCheck, listBench, listTorture} }

func isList(name string) bool { return slices.Contains(lists(), name) }
