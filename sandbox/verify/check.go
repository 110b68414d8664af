package verify

import (
	"context"
	"fmt"
	"time"

	"github.com/pelago-dev/pelago/sandbox/config"
)

// stage says when a check runs. The stages follow each other, except that the
// background goes on beside the independent checks.
type stage int

const (
	ground      stage = iota // alone and first; without it nothing else is tried
	background               // begins early, mostly waits
	independent              // a few at a time
	disruptive               // alone, one after the other
	final                    // alone and last, whatever happened before
)

// check is one thing a cluster is to do.
type check struct {
	// name is for people; slug begins the names of the objects the check makes.
	name, slug string
	stage      stage
	// limit is the time it may take.
	limit time.Duration
	needs need
	run   func(context.Context, *env) error
}

// need is what a cluster must have been configured with for a check to make sense.
type need struct {
	addon string
	nodes int
	// stop and pause ask for the caller's hold on nodes and the API server.
	stop, pause bool
}

// missing says why a target cannot be asked for this; empty if it can.
func (n need) missing(t Target) string {
	switch {
	case n.addon != "" && !t.Addons[n.addon]:
		return "the cluster has no " + n.addon
	case n.nodes > len(t.Nodes):
		return fmt.Sprintf("the cluster has fewer than %d nodes", n.nodes)
	case n.stop && (t.StopNode == nil || t.StartNode == nil):
		return "its nodes cannot be stopped from here"
	case n.pause && (t.PauseAPI == nil || t.ResumeAPI == nil):
		return "its API server cannot be paused from here"
	}
	return ""
}

// checks returns all checks; within a stage the long ones first.
func checks() []check {
	const short, medium, long = time.Minute, 2 * time.Minute, 5 * time.Minute
	return []check{
		{"a pod on every node", "web", ground, medium, need{}, podOnEveryNode},

		{"CronJob makes a Job in its minute", "cron", background, medium, need{}, cronJob},
		{"HorizontalPodAutoscaler follows the load", "scale", background, long, need{addon: config.AddonMetrics}, autoscaler},

		{"rolling update without a failed request", "rolling", independent, medium, need{}, rollingUpdate},
		{"StatefulSet in order, with lasting names", "ordered", independent, medium, need{}, statefulSet},
		{"volume outlives its pod", "volume", independent, medium, need{addon: config.AddonStorage}, volume},
		{"metrics of nodes and pods", "top", independent, medium, need{addon: config.AddonMetrics}, metrics},
		{"pod to pod across nodes", "across", independent, short, need{nodes: 2}, podToPod},
		{"Service by its cluster address", "service", independent, short, need{}, clusterAddress},
		{"Service of a pod on the same node", "beside", independent, short, need{}, sameNode},
		{"Service on every node's port", "port", independent, short, need{}, nodePort},
		{"Service by a load balancer's address", "balancer", independent, short, need{addon: config.AddonLoadBalancer}, loadBalancer},
		{"names of Services and pods", "names", independent, medium, need{addon: config.AddonDNS}, names},
		{"exec with input and exit code", "exec", independent, short, need{}, execute},
		{"logs as they are written", "logs", independent, short, need{}, logs},
		{"attach to a running program", "attach", independent, short, need{}, attach},
		{"port-forward", "forward", independent, short, need{}, forward},
		{"cp to and from a pod", "cp", independent, short, need{}, copyBothWays},
		{"ConfigMap and Secret as variables and files", "settings", independent, short, need{}, settings},
		{"Job completes", "job", independent, short, need{}, job},
		{"DaemonSet on every node", "daemon", independent, short, need{}, daemonSet},

		{"node stops, its pod moves, node returns", "moving", disruptive, long, need{nodes: 2, stop: true}, nodeStop},
		{"API server pauses, pods go on", "pause", disruptive, short, need{pause: true}, apiPause},

		{"nothing is left behind", "clean", final, medium, need{}, clean},
	}
}
