package main

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/netnstest"
	"github.com/pelago-dev/pelago/network/tunnel"
)

// An agent has at most as many MB in memory, and for each peer whose gateway it is as many more. What counts
// is all that its two processes have (Pss), added: also the program, which both share and Linux maps
// whole as soon as a little of it is used.
const memoryAlone, memoryPeer = 40, 2

// memoryPatience is how long it may take until there are ten tunnels, and until what making them took is given
// back: a busy machine does neither soon, and only what is there at rest counts.
const memoryPatience = 6 * netnstest.Patience

// TestMemory is about the program as it is built, since neither the race detector nor what is
// here for tests is in it. Each agent has a file of its own, so that it shares the program with
// nobody, as if it were alone on its node.
func TestMemory(t *testing.T) {
	netnstest.Root(t)
	w := newWorld(t)
	text, err := os.ReadFile(filepath.Join("..", "..", "bin", "pelago-agent"))
	if err != nil {
		t.Fatalf("run make build: %v", err)
	}
	for _, s := range []*side{w.rome, w.milan} {
		s.program = filepath.Join(t.TempDir(), s.Name)
		if err := os.WriteFile(s.program, text, 0o755); err != nil {
			t.Fatal(err)
		}
		s.found()
		s.create(&corev1.Secret{ObjectMeta: meta(v1alpha1.NetworkNamespace, v1alpha1.NetworkKeysName)})
		s.start(0) // who is alone is gateway of all
	}
	had := 0
	for _, peers := range []int{1, 10} {
		for ; had < peers; had++ {
			w.another(had)
		}
		for _, s := range []*side{w.rome, w.milan} {
			until(t, fmt.Sprintf("%s has %d tunnels", s.Name, peers), memoryPatience, func() bool {
				_, reports := s.lease(0)
				alive := 0
				for _, r := range reports {
					if r.Alive {
						alive++
					}
				}
				return alive == peers
			})
			var all, own float64
			until(t, fmt.Sprintf("%s has at most %d MB", s.Name, memoryAlone+memoryPeer*peers), memoryPatience, func() bool {
				all, own = s.agents[0].memory()
				return all <= float64(memoryAlone+memoryPeer*peers)
			})
			t.Logf("limit: %s: with %d peers %.1f MB in memory, at most %d; %.1f MB of that are no file's", s.Name, peers, all, memoryAlone+memoryPeer*peers, own)
		}
	}
}

// another makes rome once more a consumer of milan's, with a tunnel of its own.
func (w *world) another(i int) {
	w.t.Helper()
	secrets := map[*side]tunnel.Secret{}
	for _, s := range []*side{w.rome, w.milan} {
		secret, err := tunnel.NewSecret()
		if err != nil {
			w.t.Fatal(err)
		}
		secrets[s] = secret
	}
	says := func(namespace, role string, of *side, view int) *v1alpha1.NetworkConfig {
		const pods = "10.42.0.0/16"
		return &v1alpha1.NetworkConfig{
			ObjectMeta: meta(namespace, role),
			Spec: v1alpha1.NetworkConfigSpec{
				Pods: []string{pods}, PublicKey: secrets[of].Public().String(), Port: int32(port + i),
				Endpoints: []string{fmt.Sprintf("%s:%d", of.outside(0), port+i)},
			},
			Status: v1alpha1.NetworkConfigStatus{Views: []v1alpha1.NetworkView{{Real: pods, View: netnstest.Range(view+i, true).String()}}},
		}
	}
	for s, namespace := range map[*side]string{
		w.rome: v1alpha1.PeeringNamespace(fmt.Sprintf("milan-%d", i)), w.milan: v1alpha1.TenantNamespace(fmt.Sprintf("rome-%d", i)),
	} {
		s.namespace(namespace)
		held := &corev1.Secret{ObjectMeta: meta(v1alpha1.NetworkNamespace, v1alpha1.NetworkKeysName)}
		change := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"data":{%q:%q}}`, v1alpha1.NetworkKey(namespace),
			base64.StdEncoding.EncodeToString(keys(namespace, secrets[s]).Data[v1alpha1.NetworkKey(namespace)])))
		if err := s.api.Client(w.t).Patch(w.t.Context(), held, change); err != nil {
			w.t.Fatal(err)
		}
		s.create(says(namespace, v1alpha1.NetworkConsumer, w.rome, 120), says(namespace, v1alpha1.NetworkProvider, w.milan, 100))
	}
}

// memory is what the two processes have in memory, each its part of what they share, in MB;
// and of that what is no file's.
func (p *process) memory() (all, own float64) {
	p.t.Helper()
	for _, pid := range []int{p.cmd.Process.Pid, p.second()} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			p.t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			var kib float64
			if n, _ := fmt.Sscanf(line, "Pss: %f kB", &kib); n == 1 {
				all += kib * 1024 / 1e6
			}
			if n, _ := fmt.Sscanf(line, "Pss_Anon: %f kB", &kib); n == 1 {
				own += kib * 1024 / 1e6
			}
		}
	}
	return all, own
}
