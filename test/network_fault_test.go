package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// EnvNetworkRounds is how often each fault of the network happens, once if it is not set.
const EnvNetworkRounds = "PELAGO_NETWORK_ROUNDS"

// How long there may be no answer after a fault, and how soon one has to show. A change of keys
// loses no request; what it may take is what a busy machine takes for one.
const (
	blinkLimit  = time.Second
	outageLimit = 5 * time.Second
	// healLimit is no promise: it ends a wait for what never comes.
	healLimit = 90 * time.Second
)

// missesOf is how many of the times that a fault happens may have a longer silence than its limit: two
// processors that other work shares hold anything up now and then. All of them are told, and none may be twice as long.
func missesOf(rounds int) int { return 2 + rounds/25 }

// site is a node whose agent has the tunnel between rome and milan.
type site struct{ cluster, node string }

// fault is something that happens to a network.
type fault struct {
	name string
	// strike does it; heal, if any, takes it back when requests have gone wrong, which they
	// then have to.
	strike, heal func(*testing.T)
	// limit of an outage; after heal, until all is well.
	limit time.Duration
	// harmless is one that no request notices.
	harmless bool
	// begun is how long Kubernetes took to begin anew what was struck; nil where that is not waited for.
	begun *time.Duration
}

// beginsIn is how long Kubernetes takes at most to begin a pod anew where it has a machine of two processors for itself.
// What it takes beyond that is no fault of ours, and is told.
const beginsIn = 2 * time.Second

// may is how long a silence may be.
func (f fault) may() time.Duration {
	if f.begun == nil {
		return f.limit
	}
	return f.limit + max(0, *f.begun-beginsIn)
}

// networkFaults has pods of both sides call each other all the time while the network is hurt, at the provider
// and at the consumer in turn: there is no answer for a moment at most, and a connection that speaks survives.
func networkFaults(t *testing.T, c *continuum) {
	x := &crossing{shop: c.offloaded(t, "rome")}
	// No pod is on the gateway's node, which is stopped.
	sites := []site{{"milan", x.gatewayOf(t, "milan")}, {"rome", c.nodes(t, "rome")[0]}}
	x.vacate(t, "milan", sites[0].node)
	probes := []*watched{x.watch(t, "to-data", "rome-1", "data-watched"), x.watch(t, "to-front", "milan", "front-watched")}
	x.create(t, whoService("data-watched", "watched-data", nil))
	x.create(t, whoService("front-watched", "watched-front", nil))
	x.serve(t, "watched-data", "milan")
	x.serve(t, "watched-front", "rome-1")
	for _, w := range probes {
		x.running(t, w.pod)
	}
	allWell(t, probes)
	rounds := 1
	if text := os.Getenv(EnvNetworkRounds); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	faults := x.faults(sites[0], sites[0])
	longest, took, missed := make([][2]time.Duration, len(faults)), make([]time.Duration, len(faults)), make([]int, len(faults))
	for round := range rounds {
		at := sites[round%len(sites)]
		for i, f := range x.faults(at, sites[0]) {
			begin := time.Now()
			t.Run(f.name, func(t *testing.T) {
				t.Logf("round %d, at %s", round, at.cluster)
				x.settled(t, sites[0])
				allWell(t, probes) // nothing is left of the fault before
				silences, over := x.struck(t, f, probes, round)
				for j, silence := range silences {
					longest[i][j] = max(longest[i][j], silence)
				}
				if over == "" {
					return
				}
				if missed[i]++; missed[i] > missesOf(rounds) {
					t.Errorf("%s; that is more than its limit for the %d. time, which %d of %d may be", over, missed[i], missesOf(rounds), rounds)
				}
			})
			took[i] += time.Since(begin)
		}
	}
	for i, f := range faults {
		t.Logf("longest silence in %d rounds: %s: %s %s, %s %s, limit: %s, missed %d times of at most %d; it took %s each time", rounds, f.name, probes[0].pod, longest[i][0].Round(time.Millisecond),
			probes[1].pod, longest[i][1].Round(time.Millisecond), f.limit, missed[i], missesOf(rounds), (took[i] / time.Duration(rounds)).Round(100*time.Millisecond))
	}
}

// settled waits until the gateway of a cluster is on a node, to which it returns after some faults: on the
// other node of milan are the pods that call and are called.
func (x *crossing) settled(t *testing.T, at site) {
	t.Helper()
	x.eventually(t, patience, "the gateway is on "+at.node, func() error {
		key := v1alpha1.NetworkKey(v1alpha1.TenantNamespace("rome"))
		if at.cluster == "rome" {
			key = v1alpha1.NetworkKey(v1alpha1.PeeringNamespace("milan"))
		}
		now, err := x.gateway(at.cluster, key)
		if err == nil && now != at.node {
			err = fmt.Errorf("it is on %s", now)
		}
		return err
	})
}

// struck has a fault happen while requests go well, and holds what it may do to them. It returns for
// how long there was no answer, and what was longer than it may be: no request that has to be answered
// may be lost, and no connection break.
func (x *crossing) struck(t *testing.T, f fault, probes []*watched, round int) (silences []time.Duration, over string) {
	if f.heal != nil {
		t.Cleanup(func() { f.heal(t) }) // also where a wait fails; healing twice is healing once
	}
	begin := time.Now()
	f.strike(t)
	if f.heal != nil {
		x.eventually(t, healLimit, "requests go wrong", func() error { return probes[0].wrong(t, begin) })
		f.heal(t)
		begin = time.Now()
	}
	allWell(t, probes)
	if f.begun != nil {
		t.Logf("round %d: %s: Kubernetes began it anew after %s", round, f.name, f.begun.Round(100*time.Millisecond))
	}
	defer x.tellAgents(t, begin)
	for _, w := range probes {
		outage, broken := w.outage(t, begin, f.heal != nil)
		silences = append(silences, outage)
		t.Logf("round %d: %s: requests %s without an answer for %s", round, f.name, w.pod, outage.Round(time.Millisecond))
		if may := f.may(); outage > f.limit+may {
			t.Errorf("requests %s without an answer for %s, twice as long as they may be", w.pod, outage)
		} else if outage > may {
			over = fmt.Sprintf("requests %s without an answer for %s, at most %s", w.pod, outage, may)
		}
		if failed := w.failed(t, begin); f.harmless && failed != "" {
			t.Errorf("a request %s was lost: %s", w.pod, failed)
		}
		if broken != "" {
			t.Errorf("the connection of %s broke: %s", w.pod, broken)
		}
	}
	return silences, over
}

// tellAgents logs what the agents of both clusters have said since a time, where the test has failed.
func (x *crossing) tellAgents(t *testing.T, since time.Time) {
	t.Helper()
	if !t.Failed() {
		return
	}
	for _, cluster := range []string{"rome", "milan"} {
		for _, of := range []string{"agent", "manager"} {
			namespace := map[string]string{"agent": v1alpha1.NetworkNamespace, "manager": v1alpha1.SystemNamespace}[of]
			said := x.Run(t, "kubectl", cluster, "--", "logs", "-n", namespace, "-l", "app.kubernetes.io/name=pelago-"+of, "--prefix", "--tail=200", "--since-time="+since.Add(-5*time.Second).UTC().Format(time.RFC3339))
			t.Logf("what %ss of %s say:\n%s", of, cluster, said)
		}
	}
}

// allWell waits until the requests of all go well from now on, and the connections that are left
// speak, which each tells every second.
func allWell(t *testing.T, probes []*watched) {
	t.Helper()
	now := time.Now()
	for _, w := range probes {
		w.well(t, now, healLimit)
	}
}

// vacate keeps pods of tests off a node that is to be stopped, and the cluster's DNS, which would be
// gone with it.
func (x *crossing) vacate(t *testing.T, cluster, node string) {
	t.Helper()
	x.Run(t, "kubectl", cluster, "--", "cordon", node)
	t.Cleanup(func() { x.Run(t, "kubectl", cluster, "--", "uncordon", node) })
	x.Run(t, "kubectl", cluster, "--", "delete", "pods", "-n", "kube-system", "-l", "k8s-app=kube-dns", "--field-selector", "spec.nodeName="+node)
	x.Run(t, "kubectl", cluster, "--", "rollout", "status", "-n", "kube-system", "deployment/coredns", "--timeout=3m")
}

// gatewayOf waits for a provider's gateway to rome.
func (x *crossing) gatewayOf(t *testing.T, cluster string) (node string) {
	t.Helper()
	x.eventually(t, healLimit, cluster+" has a gateway", func() (err error) {
		node, err = x.gateway(cluster, v1alpha1.NetworkKey(v1alpha1.TenantNamespace("rome")))
		return err
	})
	return node
}

// stop pulls the plug of the gateway's node, and starts it again when the test is over.
func (x *crossing) stop(t *testing.T, cluster, node string) {
	t.Helper()
	x.Run(t, "node", "stop", cluster, node)
	t.Cleanup(func() {
		x.Run(t, "node", "start", cluster, node)
		x.nodeReady(t, cluster, node)
	})
}

// faults are those of one round at a site; only milan has another node for its gateway.
func (x *crossing) faults(at, milan site) []fault {
	on := func(args ...string) func(*testing.T) {
		return func(t *testing.T) {
			x.Run(t, append([]string{"run", at.cluster, "--node", at.node, "--"}, args...)...)
		}
	}
	link := func(verb string) func(*testing.T) {
		return func(t *testing.T) { x.Run(t, "link", verb, "rome", "milan") }
	}
	var begun time.Duration
	return []fault{
		{name: "data plane killed", limit: blinkLimit, strike: func(t *testing.T) { x.killWork(t, at.cluster, at.node) }},
		{name: "table deleted", limit: blinkLimit, strike: on("nft", "delete", "table", "inet", "pelago")},
		{name: "interfaces deleted", limit: outageLimit, strike: on("sh", "-c", "ip -o link | grep -o 'pelago-[^:@]*' | xargs -n1 ip link delete")},
		{name: "hardware addresses changed", limit: outageLimit, strike: on("sh", "-c", "ip -o link | grep -o 'pelago-[^:@]*' | xargs -I{} ip link set {} address 02:00:00:00:00:09")},
		{name: "agent deleted", limit: outageLimit, begun: &begun, strike: func(t *testing.T) { begun = x.deleteAgent(t, at.cluster, at.node); x.settled(t, at) }},
		{name: "key changed", limit: blinkLimit, harmless: true, strike: func(t *testing.T) { x.rotate(t, at.cluster) }},
		{name: "gateway node stopped", limit: outageLimit, strike: func(t *testing.T) { x.stop(t, milan.cluster, milan.node) }},
		{name: "link cut", limit: outageLimit, strike: link("cut"), heal: link("heal")},
		{name: "link cut for longer", limit: outageLimit, heal: link("heal"), strike: func(t *testing.T) {
			link("cut")(t) // how soon they know is what tunnelCut holds
			x.eventually(t, healLimit, "both say that the tunnel is dead", func() error {
				for cluster, namespace := range map[string]string{"rome": v1alpha1.PeeringNamespace("milan"), "milan": v1alpha1.TenantNamespace("rome")} {
					if node, err := x.gateway(cluster, v1alpha1.NetworkKey(namespace)); err == nil {
						return fmt.Errorf("%s of %s says that it is alive", node, cluster)
					}
				}
				return nil
			})
		}},
	}
}

// gateway is the node that has a tunnel now.
func (c *continuum) gateway(cluster, key string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var leases coordinationv1.LeaseList
	if err := c.Clients[cluster].List(ctx, &leases, client.InNamespace(v1alpha1.NetworkNamespace)); err != nil {
		return "", err
	}
	for _, l := range leases.Items {
		said := map[string]v1alpha1.TunnelReport{}
		if text := l.Annotations[v1alpha1.AnnotationTunnels]; text != "" {
			if err := json.Unmarshal([]byte(text), &said); err != nil {
				return "", fmt.Errorf("what %s says of tunnels: %w", l.Name, err)
			}
		}
		if said[key].Alive {
			return l.Name, nil
		}
	}
	return "", fmt.Errorf("no node of %s says that its tunnel of %s is alive", cluster, key)
}

// killWork kills the second process of the agent of a node.
func (x *crossing) killWork(t *testing.T, cluster, node string) {
	t.Helper()
	space := strings.TrimSpace(x.Run(t, "run", cluster, "--node", node, "--", "readlink", "/proc/self/ns/net"))
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		words := strings.Split(string(text), "\x00")
		if err != nil || len(words) < 2 || !strings.HasSuffix(words[0], "pelago-agent") && !strings.HasSuffix(words[0], "exe") || !slices.Contains(words, "work") {
			continue
		}
		at, err := os.Readlink(filepath.Join(filepath.Dir(file), "ns", "net"))
		if err != nil || at != space {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err == nil {
			err = syscall.Kill(pid, syscall.SIGKILL)
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("node %s has no second process of an agent", node)
}

// deleteAgent deletes the agent of a node, waits for the next one, and returns when Kubernetes had begun that.
func (x *crossing) deleteAgent(t *testing.T, cluster, node string) (begun time.Duration) {
	t.Helper()
	agent := func() (*corev1.Pod, error) {
		var pods corev1.PodList
		err := x.Clients[cluster].List(t.Context(), &pods, client.InNamespace(v1alpha1.NetworkNamespace), client.MatchingFields{"spec.nodeName": node})
		if err == nil && len(pods.Items) != 1 {
			err = fmt.Errorf("node %s has %d agents", node, len(pods.Items))
		}
		if err != nil {
			return nil, err
		}
		return &pods.Items[0], nil
	}
	before, err := agent()
	begin := time.Now()
	if err == nil {
		err = x.Clients[cluster].Delete(t.Context(), before)
	}
	if err != nil {
		t.Fatal(err)
	}
	x.eventually(t, patience, "the node has another agent", func() error {
		now, err := agent()
		if err == nil && now.UID == before.UID {
			err = errors.New("it is the same")
		}
		if err == nil {
			err = isReady(now)
		}
		if err == nil { // which is told in whole seconds, so this is never too long
			begun = now.Status.ContainerStatuses[0].State.Running.StartedAt.Sub(begin)
		}
		return err
	})
	return begun
}

// rotate has a cluster change its key of the tunnel between rome and milan, and waits until it has.
func (x *crossing) rotate(t *testing.T, cluster string) {
	t.Helper()
	peering, namespace, name := "milan", v1alpha1.PeeringNamespace("milan"), v1alpha1.NetworkConsumer
	if cluster == "milan" {
		peering, namespace, name = "rome", v1alpha1.TenantNamespace("rome"), v1alpha1.NetworkProvider
	}
	key := func() (string, error) {
		n, err := get[v1alpha1.NetworkConfig](x.continuum, cluster, namespace, name)
		return n.Spec.PublicKey, err
	}
	before, err := key()
	if err != nil {
		t.Fatal(err)
	}
	x.Run(t, "kubectl", cluster, "--", "annotate", "--overwrite", "peering", peering, v1alpha1.AnnotationRotate+"="+strconv.FormatInt(time.Now().UnixNano(), 36))
	x.eventually(t, patience, "the key has changed", func() error {
		now, err := key()
		if err == nil && now == before {
			err = errors.New("it is as it was")
		}
		return err
	})
}
