package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/pelago-dev/pelago/sandbox/addon"
	"github.com/pelago-dev/pelago/sandbox/machine"
)

const startLimit = 4 * time.Minute

// addonValues is what manifests of add-ons are filled with.
func (c *Cluster) addonValues() (addon.Values, error) {
	values := addon.Values{
		DNSAddresses: c.serviceAddresses(10), Domain: c.DNSDomain(), PodRanges: c.PodRanges, ServiceRanges: c.ServiceRanges, Nodes: c.Nodes,
	}
	balancers := c.Net.LoadBalancers()
	for _, r := range c.PodRanges {
		ends := balancers[0]
		if r.Addr().Is6() {
			ends = balancers[1]
		}
		values.LoadBalancer = append(values.LoadBalancer, ends[0].String()+"-"+ends[1].String())
	}
	for path, target := range map[string]*[]byte{
		"ca.crt": &values.MetricsCA, "metrics-server.crt": &values.MetricsCert, "metrics-server.key": &values.MetricsKey,
		"memberlist.key": &values.MemberlistKey,
	} {
		text, err := os.ReadFile(c.pki(path))
		if err != nil {
			return values, fmt.Errorf("reading secrets of add-ons: %w", err)
		}
		*target = text
	}
	return values, nil
}

// applyAddons applies the manifests of all add-ons, stage by stage.
func (c *Cluster) applyAddons(ctx context.Context) error {
	addons, err := c.addons()
	if err != nil {
		return err
	}
	values, err := c.addonValues()
	if err != nil {
		return err
	}
	var stages []string
	for _, a := range addons {
		manifests, err := a.Manifests(values)
		if err != nil {
			return fmt.Errorf("add-on %s: %w", a.Name, err)
		}
		for at, stage := range manifests {
			if at == len(stages) {
				stages = append(stages, "")
			}
			for _, document := range stage {
				stages[at] += "\n---\n" + document
			}
		}
	}
	for _, stage := range stages {
		err := within(ctx, startLimit, "the API server to take the add-ons", func(ctx context.Context) error {
			return c.apply(ctx, stage)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// apply hands documents to kubectl.
func (c *Cluster) apply(ctx context.Context, documents string) error {
	command := exec.CommandContext(ctx, c.Kube, "kubectl", "apply", "--server-side", "--force-conflicts", "-f", "-")
	command.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig())
	command.Stdin = strings.NewReader(documents)
	var problems bytes.Buffer
	command.Stderr = &problems
	if err := command.Run(); err != nil {
		return fmt.Errorf("applying: %w: %s", err, strings.TrimSpace(problems.String()))
	}
	return nil
}

// unreadyAddons lists the add-ons that do not serve yet, given since when machines run.
func (c *Cluster) unreadyAddons(ctx context.Context, client kubernetes.Interface, since map[string]time.Time) ([]string, error) {
	addons, err := c.addons()
	if err != nil {
		return nil, err
	}
	var waiting []string
	for _, a := range addons {
		for _, wait := range a.Waits {
			ok, err := c.serves(ctx, client, wait, since)
			if err != nil {
				return nil, err
			}
			if !ok {
				waiting = append(waiting, a.Name)
				break
			}
		}
	}
	return waiting, nil
}

// serves tells whether one object of an add-on is as it should be.
func (c *Cluster) serves(ctx context.Context, client kubernetes.Interface, wait addon.Wait, since map[string]time.Time) (bool, error) {
	switch wait.Kind {
	case "Deployment":
		d, err := client.AppsV1().Deployments(wait.Namespace).Get(ctx, wait.Name, metav1.GetOptions{})
		if err != nil {
			return false, nil
		}
		if d.Status.ObservedGeneration < d.Generation || d.Status.ReadyReplicas < *d.Spec.Replicas {
			return false, nil
		}
		return runNow(ctx, client, wait.Namespace, d.Spec.Selector, since)
	case "DaemonSet":
		d, err := client.AppsV1().DaemonSets(wait.Namespace).Get(ctx, wait.Name, metav1.GetOptions{})
		if err != nil {
			return false, nil
		}
		if d.Status.ObservedGeneration < d.Generation || int(d.Status.NumberReady) < c.Nodes {
			return false, nil
		}
		return runNow(ctx, client, wait.Namespace, d.Spec.Selector, since)
	case "StorageClass":
		_, err := client.StorageV1().StorageClasses().Get(ctx, wait.Name, metav1.GetOptions{})
		return err == nil, nil
	case "APIService":
		version, group, _ := strings.Cut(wait.Name, ".")
		err := client.Discovery().RESTClient().Get().AbsPath("/apis", group, version).Do(ctx).Error()
		return err == nil, nil
	}
	return false, fmt.Errorf("add-ons cannot wait for a %s", wait.Kind)
}

// runNow tells whether the pods that are called ready run in this life of their nodes.
func runNow(ctx context.Context, client kubernetes.Interface, namespace string, of *metav1.LabelSelector, since map[string]time.Time) (bool, error) {
	pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(of)})
	if err != nil {
		return false, err
	}
	return !ofLastLife(pods.Items, since), nil
}

// flannelConflist waits until flannel has leased a range to the node, and tells
// the container runtime to take pod addresses from it. A node that was stopped
// has this on its disk, as the range is the node's for ever.
func flannelConflist(ctx context.Context, node *machine.Machine) error {
	target := filepath.Join(node.Dir, "disk", "etc-cni-net.d", "10-flannel.conflist")
	if _, err := os.Stat(target); err == nil {
		return nil
	}
	lease := filepath.Join("/proc", strconv.Itoa(node.PID), "root/run/flannel/subnet.env")
	return within(ctx, 2*time.Minute, "flannel on "+node.Name, func(context.Context) error {
		text, err := os.ReadFile(lease)
		if err != nil {
			return err
		}
		conflist, err := addon.FlannelConflist(text)
		if err != nil {
			return err
		}
		if err := os.WriteFile(target+".new", conflist, 0o644); err != nil {
			return err
		}
		return os.Rename(target+".new", target)
	})
}
