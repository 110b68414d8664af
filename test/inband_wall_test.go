package test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// walled lets rome's nodes, and the pods on them, send milan's network nothing but UDP to the ports
// of tunnels, in each family that it has, until the test ends.
func (c *continuum) walled(t *testing.T) {
	t.Helper()
	nodes := c.nodes(t, "rome")
	t.Cleanup(func() { c.wall(t, nodes, false) })
	c.wall(t, nodes, true)
}

// wall raises the wall around rome's nodes, or takes it away.
func (c *continuum) wall(t *testing.T, nodes []string, up bool) {
	t.Helper()
	const table = "walled"
	networks := statusOf(t, c.SandboxHandle).networks(t, "milan")
	if len(networks) == 0 {
		t.Fatal("milan has no network")
	}
	for _, node := range nodes {
		on := func(args ...string) {
			c.Run(t, append([]string{"run", "rome", "--node", node, "--", "nft"}, args...)...)
		}
		on("add", "table", "inet", table)
		on("delete", "table", "inet", table)
		if !up {
			continue
		}
		on("add", "table", "inet", table)
		on("add chain inet " + table + " out { type filter hook postrouting priority -350; }")
		for _, n := range networks {
			family := "ip"
			if n.Addr().Is6() {
				family = "ip6"
			}
			on(fmt.Sprintf("add rule inet %s out %s daddr %s udp dport %d-%d accept", table, family, n, tunnelPorts, tunnelPorts+999))
			on(fmt.Sprintf("add rule inet %s out %s daddr %s drop", table, family, n))
		}
	}
}

// closed holds that rome reaches neither milan's API server nor its authentication endpoint, that
// milan reaches nothing of rome's, and that rome cannot peer but in band.
func (b *inBand) closed(t *testing.T) {
	b.shut(t)
	now := statusOf(t, b.SandboxHandle)
	for what, address := range map[string]string{"kubelet": join(now.address(t, "rome"), kubeletPort), "API server": now.api(t, "rome")} {
		if got := from(t, b.SandboxHandle, "milan", "dial", address).Dial; got == "open" {
			t.Errorf("milan dials rome's %s at %s and gets through", what, address)
		}
	}
	b.note(t)
	t.Cleanup(func() { b.part(t, "rome", "milan") })
	if r := b.TryPelago(t, "rome", "peer", "--remote-kubeconfig", b.Files["milan"], "--timeout", "15s"); r.Code == 0 || !strings.Contains(r.Errs, v1alpha1.ReasonAuthUnreachable) {
		t.Errorf("peering out of band: exit %d, %q; want a timeout that names %s", r.Code, r.Errs, v1alpha1.ReasonAuthUnreachable)
	}
	b.Pelago(t, "rome", "unpeer", "milan")
	// Its invitation was left to Pelago, which went on, and nobody can use it any more.
	var open v1alpha1.InvitationList
	if err := b.Clients["milan"].List(t.Context(), &open); err != nil || len(open.Items) != 1 || open.Items[0].Status.BoundTo != nil {
		t.Fatalf("%v: milan has the invitations %+v, want one that nobody has used", err, open.Items)
	}
	if err := b.Clients["milan"].Delete(t.Context(), &open.Items[0]); err != nil {
		t.Fatal(err)
	}
}

// devicesOf are Pelago's network devices on a node.
func (c *continuum) devicesOf(t *testing.T, cluster, node string) (names []string) {
	t.Helper()
	for line := range strings.Lines(c.Run(t, "run", cluster, "--node", node, "--", "ip", "-brief", "link")) {
		if name, _, _ := strings.Cut(strings.Fields(line)[0], "@"); strings.HasPrefix(name, "pelago-") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
