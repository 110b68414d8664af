package kubetest

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// Metrics reads what each replica of a component of a cluster measures, as Prometheus
// would: with a token that may. The component is the name of its Deployment or DaemonSet.
func (c *Continuum) Metrics(t testing.TB, cluster, component string) []string {
	t.Helper()
	namespace, port := v1alpha1.SystemNamespace, "8443"
	if component == v1alpha1.AgentName {
		namespace, port = v1alpha1.NetworkNamespace, "7078"
	}
	pods := &corev1.PodList{}
	labels := client.MatchingLabels{"app.kubernetes.io/name": component}
	err := c.Clients[cluster].List(t.Context(), pods, client.InNamespace(namespace), labels)
	pods.Items = slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil }) // they answer no more in a moment
	if err != nil || len(pods.Items) == 0 {
		t.Fatalf("%d pods of %s in %s, %v", len(pods.Items), component, cluster, err)
	}
	// The API server's proxy does not hand on who asks, so the answer is 401: asking
	// with a service account's token from a node is what works.
	token := strings.TrimSpace(c.Kubectl(t, cluster, "create", "token", "pelago-manager", "-n", v1alpha1.SystemNamespace, "--duration", "10m"))
	c.Kubectl(t, cluster, "create", "clusterrolebinding", "scenario-metrics", "--clusterrole", "cluster-admin", "--serviceaccount", v1alpha1.SystemNamespace+":pelago-manager")
	defer c.Kubectl(t, cluster, "delete", "clusterrolebinding", "scenario-metrics")
	var all []string
	for _, pod := range pods.Items {
		text, err := "", error(nil)
		for end := time.Now().Add(20 * time.Second); ; <-time.After(200 * time.Millisecond) {
			if text, err = c.scrape(cluster, net.JoinHostPort(pod.Status.PodIP, port), token); err == nil {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("reading the metrics of %s: %v", pod.Name, err)
			}
		}
		all = append(all, text)
	}
	return all
}

func (c *Continuum) scrape(cluster, address, token string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	// The certificate is self-made and proves nothing; the token is what counts.
	text, err := c.Try(ctx, "run", cluster, "--", "wget", "-q", "-T", "5", "-t", "1", "-O", "-", "--no-check-certificate",
		"--header", "Authorization: Bearer "+token, "https://"+address+"/metrics")
	if err == nil && !strings.Contains(text, "# HELP") {
		err = fmt.Errorf("it says %.100q", text)
	}
	return text, err
}
