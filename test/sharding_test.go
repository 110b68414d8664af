package test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

const (
	// shardPeers is how many providers there are; $PELAGO_TEST_PEERS is another number.
	shardPeers   = 20
	envPeers     = "PELAGO_TEST_PEERS"
	shardPods    = 300
	shardReplica = 3
	// What the product promises of so many peers, on 2 cores.
	peersUpMost     = 120 * time.Second
	peersMemoryMost = 8_000_000_000 // bytes of PSS for all their control planes
	// gracefulMost is how long nobody leads after the leader was told to end.
	gracefulMost = 5 * time.Second
	// shardLimit is how long pods may take to run, or to go, on a machine that is also
	// twenty clusters.
	shardLimit = 4 * time.Minute
)

// TestSharding has what one consumer of many providers must do: three replicas of its
// manager share the watch, one of them leads, and whichever way it ends another one goes
// on with all that was under way.
func TestSharding(t *testing.T) {
	file := sandboxFile(t, "")
	s := kubetest.Reserve(t, kubetest.Options{Name: "shard", File: file})
	options := kubetest.RackOptions{Consumer: "rome", Replicas: shardReplica}
	for i := range peers(t) {
		options.Providers = append(options.Providers, fmt.Sprintf("p%02d", i+1))
	}
	manyUp(t, s, file, options.Providers)
	writeControlPlanes(t, file, append([]string{"rome"}, options.Providers...))
	s.Up(t)
	r := kubetest.NewRack(t, s, options)
	r.Peer(t)
	c := &continuum{Continuum: r.Continuum}
	shop := c.offloaded(t, "rome", "--pod-offloading-strategy", "Remote")
	shop.phase(t, v1alpha1.OffloadingPhaseReady)
	h := &shards{Rack: r, shop: shop, twins: map[types.UID]map[types.UID]string{}}
	h.observe(t)
	for _, part := range []struct {
		name string
		run  func(*testing.T, *shards)
	}{
		{"Killed", leaderKilled},
		{"Told", leaderTold},
		{"Deletions", leaderKilledInDeletions},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(t, h) })
	}
}

// peers is how many providers to have.
func peers(t *testing.T) int {
	t.Helper()
	count := shardPeers
	if text := os.Getenv(envPeers); text != "" {
		if _, err := fmt.Sscan(text, &count); err != nil || count < 1 {
			t.Fatalf("%s is %q; write a number", envPeers, text)
		}
	}
	return count
}

// writeControlPlanes writes a sandbox.yaml of control planes whose pods start at once.
func writeControlPlanes(t *testing.T, file string, clusters []string) {
	t.Helper()
	text := "profile: control-plane\nclusters:\n"
	for _, name := range clusters {
		text += fmt.Sprintf("- name: %s\n  hollow: 2\n  hollowStart: 100ms\n", name)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// manyUp measures what so many control planes take of time and memory.
func manyUp(t *testing.T, s *kubetest.SandboxHandle, file string, clusters []string) {
	t.Helper()
	writeControlPlanes(t, file, clusters)
	up := timed(func() { s.Up(t) })
	var memory int64
	for _, c := range statusOf(t, s).Clusters {
		memory += int64(c.MemoryPSS)
	}
	t.Logf("limit: up of %d control planes: %.1f s, at most %.0f s", len(clusters), up.Seconds(), peersUpMost.Seconds())
	t.Logf("limit: memory of %d control planes: %.2f GB PSS, at most %.1f GB", len(clusters), float64(memory)/1e9, peersMemoryMost/1e9)
	if up > peersUpMost {
		t.Errorf("up took %s, at most %s", up, peersUpMost)
	}
	if memory == 0 || memory > peersMemoryMost {
		t.Errorf("they use %d bytes, at most %d", memory, int64(peersMemoryMost))
	}
}

// shards is a rack with one namespace that is offloaded to all providers.
type shards struct {
	*kubetest.Rack
	shop shop

	mu sync.Mutex
	// twins are all pods that were ever seen at providers: where, by their own uid, by
	// that of the pod at home.
	twins map[types.UID]map[types.UID]string
}

// observe notes every pod that appears at a provider until the test ends.
func (h *shards) observe(t *testing.T) {
	t.Helper()
	var watching sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		cancel()
		watching.Wait()
	})
	for _, provider := range h.Providers() {
		changes, err := h.Clients[provider].Watch(ctx, &corev1.PodList{}, client.HasLabels{v1alpha1.LabelHomeUID})
		if err != nil {
			t.Fatal(err)
		}
		watching.Go(func() {
			for e := range changes.ResultChan() {
				if pod, ok := e.Object.(*corev1.Pod); ok {
					h.note(provider, pod)
				}
			}
			if ctx.Err() == nil {
				t.Errorf("the watch of pods at %s has ended", provider)
			}
		})
	}
}

func (h *shards) note(provider string, pod *corev1.Pod) {
	h.mu.Lock()
	defer h.mu.Unlock()
	home := types.UID(pod.Labels[v1alpha1.LabelHomeUID])
	if h.twins[home] == nil {
		h.twins[home] = map[types.UID]string{}
	}
	h.twins[home][pod.UID] = provider
}

// leading is the Lease, and the replica that holds it.
func (h *shards) leading(t *testing.T) (*coordinationv1.Lease, *kubetest.Replica) {
	t.Helper()
	lease, err := get[coordinationv1.Lease](h.shop.continuum, "rome", v1alpha1.SystemNamespace, "pelago-manager")
	if err != nil {
		t.Fatal(err)
	}
	holder := ""
	if lease.Spec.HolderIdentity != nil {
		holder, _, _ = strings.Cut(*lease.Spec.HolderIdentity, "_")
	}
	for _, each := range h.Replicas("rome") {
		if each.Name == holder {
			return lease, each
		}
	}
	return lease, nil
}

// follow ends the leader, and waits until another replica holds the Lease. The virtual
// nodes stay Ready meanwhile, and the replica is replaced in the end.
func (h *shards) follow(t *testing.T, limit time.Duration, end func(*kubetest.Replica)) {
	t.Helper()
	var leader *kubetest.Replica
	eventually(t, limit, "somebody leads", func() error {
		if _, leader = h.leading(t); leader == nil {
			return errors.New("nobody does")
		}
		return nil
	})
	begin := time.Now()
	end(leader)
	told := map[string]bool{}
	// Time for a machine that is busy: what counts is what the Lease says.
	eventually(t, 3*limit, "another replica leads", func() error {
		for _, problem := range h.NotReady(t) {
			if !told[problem.Error()] {
				t.Errorf("while nobody leads, since %s: %v", begin.UTC().Format(time.TimeOnly), problem)
			}
			told[problem.Error()] = true
		}
		lease, now := h.leading(t)
		if now == nil || now == leader {
			return fmt.Errorf("nobody does")
		}
		took := lease.Spec.AcquireTime.Sub(begin)
		t.Logf("limit: takeover by one of %d replicas with %d peers: %.1f s, at most %.0f s", shardReplica, len(h.Providers()), took.Seconds(), limit.Seconds())
		if took > limit {
			t.Errorf("another replica leads after %s, at most %s", took, limit)
		}
		return nil
	})
	h.Start(t, "rome")
}

// deployment makes pods for the hollow nodes of all providers, which answer.
func (h *shards) deployment(t *testing.T, name string, replicas int32) {
	t.Helper()
	h.calm(t)
	h.shop.create(t, h.shop.deployment(name, replicas))
}

// calm waits until all virtual nodes are Ready, as they stay from then on.
func (h *shards) calm(t *testing.T) {
	t.Helper()
	eventually(t, shardLimit, "all virtual nodes are Ready", func() error { return errors.Join(h.NotReady(t)...) })
}

// some waits until some of the pods have come to providers, but not all.
func (h *shards) some(t *testing.T, count, all int) {
	t.Helper()
	known := 0
	eventually(t, shardLimit, fmt.Sprintf("%d more pods are at providers", count), func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if known = len(h.twins); known < count {
			return fmt.Errorf("there are %d", known)
		}
		return nil
	})
	t.Logf("%d of %d pods were at providers when the leader ended", known, all)
	if known >= all {
		t.Errorf("all %d pods were at providers before the leader ended, which proves nothing", known)
	}
}

// holds waits until exactly so many pods run, and holds that each runs once, that none
// was replaced, and that nothing else runs at any provider.
func (h *shards) holds(t *testing.T, count int, seen map[types.UID]bool) {
	t.Helper()
	begin := time.Now()
	home := map[types.UID]*corev1.Pod{}
	eventually(t, shardLimit, fmt.Sprintf("%d pods run", count), func() error {
		pods, err := h.shop.pods("")
		if err != nil {
			return err
		}
		clear(home)
		for i := range pods {
			if err := isReady(&pods[i]); err != nil {
				return fmt.Errorf("of %d pods: %w", len(pods), err)
			}
			home[pods[i].UID] = &pods[i]
		}
		if len(home) != count {
			return fmt.Errorf("there are %d", len(home))
		}
		return nil
	})
	t.Logf("%d pods run %s later", count, time.Since(begin).Round(100*time.Millisecond))
	there := h.atProviders(t)
	for uid, pod := range home {
		if got := there[uid]; len(got) != 1 || got[0] != pod.Spec.NodeName {
			t.Errorf("%s is bound to %s and runs at %v", pod.Name, pod.Spec.NodeName, got)
		}
		seen[uid] = true
	}
	if len(there) != len(home) {
		t.Errorf("providers run pods for %d pods at home, want %d", len(there), len(home))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for uid, twins := range h.twins {
		if !seen[uid] {
			t.Errorf("pod %s was at %v and is none of those that run", uid, twins)
		}
		if len(twins) != 1 {
			t.Errorf("pod %s was made %d times: %v", uid, len(twins), twins)
		}
	}
}

// atProviders is where pods of home run, by uid at home.
func (h *shards) atProviders(t *testing.T) map[types.UID][]string {
	t.Helper()
	there := map[types.UID][]string{}
	for _, provider := range h.Providers() {
		pods := &corev1.PodList{}
		if err := h.Clients[provider].List(t.Context(), pods, client.HasLabels{v1alpha1.LabelHomeUID}); err != nil {
			t.Fatal(err)
		}
		for i := range pods.Items {
			uid := types.UID(pods.Items[i].Labels[v1alpha1.LabelHomeUID])
			there[uid] = append(there[uid], provider)
		}
	}
	return there
}

// leaderKilled holds that a leader killed while pods are made loses and doubles none.
func leaderKilled(t *testing.T, h *shards) {
	h.deployment(t, "web", shardPods)
	h.some(t, shardPods/4, shardPods)
	h.follow(t, takeoverLimit, func(leader *kubetest.Replica) { leader.Kill(t) })
	h.holds(t, shardPods, map[types.UID]bool{})
	h.calm(t)
}

// leaderTold holds that a leader which ends in peace is followed sooner.
func leaderTold(t *testing.T, h *shards) {
	before := map[types.UID]bool{}
	pods, err := h.shop.pods("web")
	if err != nil {
		t.Fatal(err)
	}
	for i := range pods {
		before[pods[i].UID] = true
	}
	h.deployment(t, "more", shardPods/2)
	h.some(t, shardPods+shardPods/8, shardPods+shardPods/2)
	h.follow(t, gracefulMost, func(leader *kubetest.Replica) { leader.Stop(t) })
	h.holds(t, shardPods+shardPods/2, before)
	after, err := h.shop.pods("web")
	if err != nil {
		t.Fatal(err)
	}
	for i := range after {
		if !before[after[i].UID] {
			t.Errorf("%s was replaced", after[i].Name)
		}
	}
}

// leaderKilledInDeletions holds that what is deleted while nobody leads is deleted.
func leaderKilledInDeletions(t *testing.T, h *shards) {
	h.calm(t)
	for _, name := range []string{"web", "more"} {
		d, err := get[appsv1.Deployment](h.shop.continuum, "rome", h.shop.name, name)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Clients["rome"].Delete(t.Context(), d, client.PropagationPolicy("Foreground")); err != nil {
			t.Fatal(err)
		}
	}
	all := shardPods + shardPods/2
	eventually(t, shardLimit, "some pods are gone from providers", func() error {
		if left := len(h.atProviders(t)); left > all*3/4 {
			return fmt.Errorf("%d of %d are left", left, all)
		}
		return nil
	})
	h.follow(t, takeoverLimit, func(leader *kubetest.Replica) { leader.Kill(t) })
	begin := time.Now()
	eventually(t, shardLimit, "all pods are gone, here and there", func() error {
		pods, err := h.shop.pods("")
		if err != nil {
			return err
		}
		if there := h.atProviders(t); len(pods) > 0 || len(there) > 0 {
			return fmt.Errorf("%d are left at home and %d at providers", len(pods), len(there))
		}
		return nil
	})
	t.Logf("all %d pods are gone %s later", all, time.Since(begin).Round(100*time.Millisecond))
}
