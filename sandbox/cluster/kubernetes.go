package cluster

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Config is the administrator's configuration for client-go.
func (c *Cluster) Config() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig of %s: %w", c.Name, err)
	}
	config.QPS, config.Burst = 200, 400
	return config, nil
}

// Client is the administrator's client.
func (c *Cluster) Client() (kubernetes.Interface, error) {
	config, err := c.Config()
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// makeNodes makes the Node objects, so that each node has the part of the pod
// range that its place gives it, whichever kubelet is first.
func (c *Cluster) makeNodes(ctx context.Context, client kubernetes.Interface) error {
	for i := 1; i <= c.Nodes; i++ {
		node := c.node(i)
		_, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("making node %s: %w", node.Name, err)
		}
	}
	return nil
}

func (c *Cluster) node(i int) *corev1.Node {
	name := c.NodeName(i)
	labels := c.nodeLabels()
	labels[corev1.LabelHostname], labels[corev1.LabelOSStable] = name, "linux"
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	for _, prefix := range c.PodPrefixes(i) {
		node.Spec.PodCIDRs = append(node.Spec.PodCIDRs, prefix.String())
	}
	node.Spec.PodCIDR = node.Spec.PodCIDRs[0]
	return node
}

// awaitReady waits until every node is ready and every add-on serves.
func (c *Cluster) awaitReady(ctx context.Context, client kubernetes.Interface, say func(string)) error {
	since, err := c.since()
	if err != nil {
		return err
	}
	said := ""
	return within(ctx, 4*time.Minute, "nodes and add-ons", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		waiting, err := c.unready(ctx, client, since)
		if err != nil {
			return err
		}
		if len(waiting) == 0 {
			return nil
		}
		text := strings.Join(waiting, ", ")
		if text != said {
			said = text
			say(text)
		}
		return fmt.Errorf("not ready: %s", text)
	})
}

// unready lists what of the cluster is not ready yet, given since when its machines
// run. Add-ons are nothing before their nodes.
func (c *Cluster) unready(ctx context.Context, client kubernetes.Interface, since map[string]time.Time) ([]string, error) {
	var waiting []string
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	said := heard(nodes.Items)
	for _, name := range c.NodeNames() {
		if !ofThisLife(said[name], since[name]) {
			waiting = append(waiting, "node "+name)
		}
	}
	if h := c.hollowStatus(said, since[c.ControlName()]); h != nil && h.Ready < h.Nodes {
		waiting = append(waiting, fmt.Sprintf("%d of %d hollow nodes", h.Nodes-h.Ready, h.Nodes))
	}
	_, err = client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
	if err != nil {
		waiting = append(waiting, "service account default")
	}
	if len(waiting) > 0 {
		return waiting, nil
	}
	return c.unreadyAddons(ctx, client, since)
}
