package test

import (
	"testing"

	"github.com/pelago-dev/pelago/internal/kubetest"
)

// offloadingFile is a small consumer and a larger provider.
const offloadingFile = `clusters:
- name: rome
  nodes: 1
  addons: [coredns, load-balancer, metrics-server, local-path]
- name: milan
  nodes: 2
  addons: [coredns, load-balancer]
  labels: {topology.kubernetes.io/region: eu-north, hardware: fast}
`

// TestOffloading has what a consumer's pods must do that run at a provider. The parts
// share a peering.
func TestOffloading(t *testing.T) {
	s := kubetest.Sandbox(t, kubetest.Options{Name: "off", File: sandboxFile(t, offloadingFile), Pelago: true})
	c := newContinuum(t, s, "rome", "milan")
	box(t, s, "rome", "milan")
	c.peer(t, "rome", "milan")
	c.nodeReady(t, "rome", "milan")
	c.goneAtLast(t)
	type part struct {
		name string
		run  func(*testing.T, *continuum)
	}
	each := func(t *testing.T, parts ...part) {
		for _, p := range parts {
			t.Run(p.name, func(t *testing.T) { p.run(t, c) })
		}
	}
	each(t, part{"MainJob", mainJob}, part{"VirtualNode", virtualNode}, part{"Allocatable", allocatable}, part{"Heralds", heralds})
	// These disturb nobody.
	t.Run("Together", func(t *testing.T) {
		for _, p := range []part{
			{"Policies", policies}, {"Namespaces", namespaces}, {"KubeletRights", kubeletRights}, {"Top", top}, {"Refused", refusedPods},
			{"Lost", lostByProvider}, {"Stateful", statefulByUID}, {"Changes", mutableFields}, {"DownwardAPI", downwardAPI}, {"PullSecrets", pullSecrets},
			{"Reflection", reflection}, {"Warnings", warnings}, {"Tokens", tokens}, {"Network", network},
			{"Strangers", strangersStayAway}, {"Unoffload", unoffload}, {"Claims", claims},
		} {
			t.Run(p.name, func(t *testing.T) {
				t.Parallel()
				p.run(t, c)
			})
		}
	})
	each(t, part{"NetworkFaults", networkFaults}, part{"NetworkBreaks", func(t *testing.T, c *continuum) { networkBreaks(t, c, false) }}, part{"Hostile", hostileShadowPods}, part{"Jobs", jobsEndOnce}, part{"Limits", tenantLimits}, part{"Restart", managersRestart},
		part{"RollOut", rollOut}, part{"Takeover", leaderDies}, part{"Partition", podsInPartition})
}
