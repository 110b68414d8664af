package cluster

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/pelago-dev/pelago/sandbox/hollow"
	"github.com/pelago-dev/pelago/sandbox/machine"
)

// HollowCommand is the hidden command that serves the hollow nodes of a cluster;
// its argument is the file of their options.
const HollowCommand = "hollow"

// hollowFile is where the options of the hollow nodes are stored.
func (c *Cluster) hollowFile() string { return c.pki("hollow.json") }

// hollowNames are the names of the hollow nodes, in order.
func (c *Cluster) hollowNames() []string {
	names := make([]string, c.Hollow)
	for i := range names {
		names[i] = fmt.Sprintf("%s-hollow-%d", c.Name, i+1)
	}
	return names
}

// hollowOptions say what the cluster's hollow nodes are like. Their address is
// the control plane's, where nothing answers for them.
func (c *Cluster) hollowOptions() hollow.Options {
	o := hollow.Options{
		Kubeconfig: c.kubeconfig("hollow"), Nodes: c.hollowNames(), Labels: c.nodeLabels(), Tainted: c.Nodes > 0,
		Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, PodRanges: c.PodRanges, Version: c.Version, Start: c.HollowStart,
	}
	if !c.loopback() {
		o.Addresses = c.families(c.Net.Control())
	}
	return o
}

// hollowUnits is the program that serves the hollow nodes, if there are any.
func (c *Cluster) hollowUnits() ([]machine.Unit, error) {
	if c.Hollow == 0 {
		return nil, nil
	}
	text, err := json.MarshalIndent(c.hollowOptions(), "", "  ")
	if err == nil {
		err = os.WriteFile(c.hollowFile(), text, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("writing the options of hollow nodes: %w", err)
	}
	return []machine.Unit{{Name: "hollow", Args: []string{c.Program, HollowCommand, c.hollowFile()}}}, nil
}

// HollowStatus counts the hollow nodes of a cluster.
type HollowStatus struct {
	Nodes int `json:"nodes"`
	Ready int `json:"ready"`
}

// hollowStatus counts, given when nodes said that they are ready and since when the
// control plane runs, which serves them; nothing if there are none.
func (c *Cluster) hollowStatus(said map[string]time.Time, since time.Time) *HollowStatus {
	if c.Hollow == 0 {
		return nil
	}
	out := &HollowStatus{Nodes: c.Hollow}
	for _, name := range c.hollowNames() {
		if ofThisLife(said[name], since) {
			out.Ready++
		}
	}
	return out
}

// nodeLabels are those that the cluster's labels put on every node.
func (c *Cluster) nodeLabels() map[string]string {
	labels := map[string]string{}
	for key, value := range c.Labels {
		labels[key] = value
	}
	if region := c.Labels["region"]; region != "" {
		labels[corev1.LabelTopologyRegion] = region
	}
	return labels
}
