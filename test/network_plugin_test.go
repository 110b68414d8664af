package test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/internal/kubetest"
)

// envPlugin is the path of kube-router, a network plugin that enforces NetworkPolicies.
const envPlugin = "PELAGO_KUBE_ROUTER"

// pluginFile has a provider with two nodes, so that its own pods meet on one and between two.
const pluginFile = `clusters:
- name: rome
  nodes: 1
  addons: [coredns, load-balancer]
- name: milan
  nodes: 2
  addons: [coredns, load-balancer]
`

// TestNetworkPlugin has a plugin that enforces NetworkPolicies on all nodes of both clusters: what is
// told about policies between the clusters holds beside it, and what it is given of home's holds among
// home's pods at the provider, and for the provider's own.
func TestNetworkPlugin(t *testing.T) {
	kubetest.RequireClusters(t)
	program := os.Getenv(envPlugin)
	if program == "" {
		t.Fatalf("$%s says where no kube-router is: build it with go install github.com/cloudnativelabs/kube-router/v2/cmd/kube-router", envPlugin)
	}
	program, err := filepath.Abs(program)
	if err != nil {
		t.Fatal(err)
	}
	s := kubetest.Sandbox(t, kubetest.Options{Name: "plugin", File: sandboxFile(t, pluginFile), Pelago: true})
	c := newContinuum(t, s, "rome", "milan")
	box(t, s, "rome", "milan")
	for _, cluster := range []string{"rome", "milan"} {
		for _, node := range c.nodes(t, cluster) {
			enforce(t, c, program, cluster, node)
		}
	}
	c.peer(t, "rome", "milan")
	c.nodeReady(t, "rome", "milan")
	x := newCrossing(t, c)
	t.Run("Enforces", func(t *testing.T) { x.enforces(t) })
	t.Run("Between", func(t *testing.T) { policiesHold(t, x, true) })
	t.Run("There", func(t *testing.T) { x.policiesThere(t) })
	t.Run("Ways", func(t *testing.T) {
		if r := c.TryPelago(t, "rome", "test", "network", "--settle", "90s"); r.Code != 0 {
			t.Errorf("not all ways are good: exit %d\n%s%s", r.Code, r.Out, r.Errs)
		}
	})
}

// enforce runs the plugin for a node until the test ends. The sandbox's own plugin makes its pods'
// links and routes, and kube-proxy serves Services; this one has policies alone.
func enforce(t *testing.T, c *continuum, program, cluster, node string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := c.Command(ctx, "run", cluster, "--node", node, "--", "sh", "-c", `exec "$0" --kubeconfig "$KUBECONFIG" "$@"`, program,
		"--hostname-override", node, "--run-firewall=true", "--run-router=false", "--run-service-proxy=false", "--run-loadbalancer=false", "--enable-cni=false", "--metrics-port=0")
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cancel(); t.Failed() {
			defer func() { t.Logf("kube-router on %s said at last:\n%s", node, tail(said.String(), 30)) }()
		}
		var ended *exec.ExitError
		if err := cmd.Wait(); err != nil && !errors.As(err, &ended) && !errors.Is(err, context.Canceled) {
			t.Errorf("kube-router on %s: %v", node, err)
		}
	})
}

// tail is the end of a text.
func tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// enforces holds that the plugin does what it is there for, with a policy of milan's own for a pod of
// its own: without that the rest would say little.
func (x *crossing) enforces(t *testing.T) {
	own := x.continuum.shop(t, "milan")
	own.create(t, whoPod("", "guarded", "milan-2"))
	guarded := own.running(t, "guarded")
	passes := func(want bool) {
		t.Helper()
		x.eventually(t, networkLimit, fmt.Sprintf("milan's own pod is called: %t", want), func() error {
			return reaches(want, "stranger", "guarded", x.askQuick("milan", x.stranger, guarded.Status.PodIP))
		})
	}
	passes(true)
	closed := policyOf("closed", networkingv1.NetworkPolicySpec{PodSelector: labelled("guarded"), PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}})
	own.create(t, closed)
	passes(false)
	if err := x.Clients["milan"].Delete(t.Context(), closed); err != nil {
		t.Fatal(err)
	}
	passes(true)
}

// reaches says what is wrong with the end of a call.
func reaches(want bool, from, to string, err error) error {
	switch {
	case err == nil && !want:
		return fmt.Errorf("%s reaches %s", from, to)
	case err != nil && want:
		return fmt.Errorf("%s does not reach %s: %w", from, to, err)
	}
	return nil
}

// askQuick has a pod of a cluster call an address, and waits two seconds for that.
func (x *crossing) askQuick(cluster string, from *corev1.Pod, host string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	_, err := x.Exec(ctx, cluster, from.Namespace, from.Name, "timeout", "2", "wget", "-q", "-O", "-", "http://"+join(host, webPort)+"/cgi-bin/who")
	return err
}

// policiesThere holds what home's policies mean for connections that no gateway sees: between two of
// home's pods at milan, on one node and between two, and from a pod of milan's own.
func (x *crossing) policiesThere(t *testing.T) {
	for _, node := range []string{"milan-1", "milan-2"} {
		name := "beside-" + node
		pod := whoPod("", name, "milan")
		pod.Spec.Affinity = nil
		x.create(t, pod)
		x.running(t, name)
	}
	beside := x.running(t, "beside-milan-1")
	data := x.data[0]
	twin := func(home *corev1.Pod) *corev1.Pod {
		t.Helper()
		there, err := x.twin("milan", home)
		if err != nil {
			t.Fatal(err)
		}
		return there
	}
	target := twin(data).Status.PodIP
	callers := map[string]func() error{
		"data-1":   func() error { return x.askQuick("milan", twin(x.data[1]), target) },
		"beside":   func() error { return x.askQuick("milan", twin(beside), target) },
		"beside-2": func() error { return x.askQuick("milan", twin(x.running(t, "beside-milan-2")), target) },
		"stranger": func() error { return x.askQuick("milan", x.stranger, target) },
		"front":    func() error { return x.askQuick("rome", x.front, data.Status.PodIP) },
	}
	ingress := func(rules ...networkingv1.NetworkPolicyIngressRule) *networkingv1.NetworkPolicySpec {
		return &networkingv1.NetworkPolicySpec{PodSelector: labelled("data"), PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}, Ingress: rules}
	}
	all := metav1.LabelSelector{}
	for _, step := range []struct {
		name string
		spec *networkingv1.NetworkPolicySpec
		pass string
	}{
		{"none", nil, "data-1 beside beside-2 stranger front"},
		{"nobody may call data", ingress(), ""},
		{"data may", ingress(networkingv1.NetworkPolicyIngressRule{From: peersOf("data")}), "data-1"},
		{"beside and front may", ingress(networkingv1.NetworkPolicyIngressRule{From: peersOf("beside-milan-1", "front")}), "beside front"},
		{"pods of the namespace may", ingress(networkingv1.NetworkPolicyIngressRule{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &all}}}), "data-1 beside beside-2 front"},
		{"beside may call nobody", &networkingv1.NetworkPolicySpec{PodSelector: labelled("beside-milan-1"), PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}}, "data-1 beside-2 stranger front"},
		{"everybody may call data", ingress(networkingv1.NetworkPolicyIngressRule{}), "data-1 beside beside-2 stranger front"},
		{"none again", nil, "data-1 beside beside-2 stranger front"},
	} {
		t.Run(strings.ReplaceAll(step.name, " ", "-"), func(t *testing.T) {
			const name = "rule-there"
			rome := x.Clients["rome"]
			old := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: x.name, Name: name}}
			if err := client.IgnoreNotFound(rome.Delete(t.Context(), old)); err != nil {
				t.Fatal(err)
			}
			if step.spec != nil {
				x.create(t, policyOf(name, *step.spec))
			}
			x.eventually(t, networkLimit, "who reaches data is as the policy says", func() error {
				var wrong []error
				for from, ask := range callers {
					wrong = append(wrong, reaches(strings.Contains(" "+step.pass+" ", " "+from+" "), from, "data-0", ask()))
				}
				return errors.Join(wrong...)
			})
		})
	}
}
