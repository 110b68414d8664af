package verify

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/sandbox/config"
)

// nodeStop pulls the plug of the last node, sees its pod move, pushes the plug
// back and runs a pod there again. Load-balancer addresses must go on answering,
// whichever node announced them.
func nodeStop(ctx context.Context, e *env) (err error) {
	node := e.Nodes[len(e.Nodes)-1]
	balanced, err := e.balancedAddresses(ctx)
	if err != nil {
		return err
	}
	first, err := e.movingPod(ctx, node)
	if err != nil {
		return err
	}
	if err := e.StopNode(ctx, node); err != nil {
		return fmt.Errorf("stopping %s: %w", node, err)
	}
	stopped := true
	defer func() {
		if stopped { // a check that failed leaves the cluster whole, too
			err = errors.Join(err, e.startNode(context.WithoutCancel(ctx), node))
		}
	}()
	if err := e.stillAnswer(ctx, balanced); err != nil {
		return err
	}
	if err := e.nodeBecomes(ctx, node, false); err != nil {
		return err
	}
	if err := e.moved(ctx, first); err != nil {
		return err
	}
	if err := e.startNode(ctx, node); err != nil {
		return err
	}
	stopped = false
	if err := e.nodeBecomes(ctx, node, true); err != nil {
		return err
	}
	again := e.pod(e.slug+"-again", serve)
	onNode(&again.Spec, node)
	if err := e.createPod(ctx, again); err != nil {
		return err
	}
	_, err = e.ready(ctx, again.Name)
	return err
}

func (e *env) startNode(ctx context.Context, node string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := e.StartNode(ctx, node); err != nil {
		return fmt.Errorf("starting %s: %w", node, err)
	}
	return nil
}

// movingPod makes a Deployment of one pod that prefers a node.
func (e *env) movingPod(ctx context.Context, node string) (*corev1.Pod, error) {
	t := e.template(serve)
	term := isNode(node)
	t.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{
			{Weight: 100, Preference: corev1.NodeSelectorTerm{MatchFields: term.MatchFields}},
		}}}
	_, err := e.client.AppsV1().Deployments(e.namespace).Create(ctx, &appsv1.Deployment{ObjectMeta: e.meta(e.slug), Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: e.labels()}, Template: t,
	}}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("creating a deployment: %w", err)
	}
	if err := e.rolledOut(ctx); err != nil {
		return nil, err
	}
	pods, err := e.own(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	for i := range pods {
		if pods[i].Spec.NodeName == node {
			return &pods[i], nil
		}
	}
	return nil, fmt.Errorf("the pod that prefers %s was placed elsewhere", node)
}

// nodeBecomes waits until a node is ready, or is not.
func (e *env) nodeBecomes(ctx context.Context, name string, ready bool) error {
	what := map[bool]string{true: " to be ready", false: " to be found dead"}[ready]
	return until(ctx, "node "+name+what, func(ctx context.Context) error {
		n, err := e.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady {
				if (c.Status == corev1.ConditionTrue) == ready {
					return nil
				}
				return fmt.Errorf("its condition Ready is %s: %s", c.Status, shorten(c.Message, 200))
			}
		}
		return errors.New("it has no condition Ready")
	})
}

// moved waits for the successor of a pod on another node.
func (e *env) moved(ctx context.Context, old *corev1.Pod) error {
	return until(ctx, "a pod in place of "+old.Name, func(ctx context.Context) error {
		pods, err := e.own(ctx)
		if err != nil {
			return err
		}
		for i := range pods {
			if p := &pods[i]; p.UID != old.UID && p.Spec.NodeName != old.Spec.NodeName && notReady(p) == nil {
				return nil
			}
		}
		return errors.New("none is ready on another node")
	})
}

// balancedAddresses gets a few load-balancer addresses, so that the node to be
// stopped most likely announces one. Behind them is a pod of the first node only:
// what is lost is the announcement, never the server.
func (e *env) balancedAddresses(ctx context.Context) ([]netip.Addr, error) {
	if !e.Addons[config.AddonLoadBalancer] {
		return nil, nil
	}
	const several = 3
	var all []netip.Addr
	for i := range several {
		s := e.service(fmt.Sprintf("%s-%d", e.slug, i), map[string]string{checkLabel: webName, webLabel: "0"})
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
		if _, err := e.createService(ctx, s); err != nil {
			return nil, err
		}
		ips, err := e.balancerIPs(ctx, s.Name)
		if err != nil {
			return nil, err
		}
		all = append(all, ips...)
	}
	return all, e.stillAnswer(ctx, all)
}

// stillAnswer wants an answer from each address within 15 seconds.
func (e *env) stillAnswer(ctx context.Context, ips []netip.Addr) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	for _, ip := range ips {
		err := until(ctx, "load balancer "+ip.String(), func(ctx context.Context) error {
			_, err := e.fetchFromHost(ctx, hostPort(ip, 80))
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// apiPause stops the API server: requests must fail, pods must not notice, and
// soon after it continues all must be as before.
func apiPause(ctx context.Context, e *env) (err error) {
	s := e.webService(e.slug)
	s.Spec.Selector[webLabel] = "0"
	s.Spec.Type = corev1.ServiceTypeNodePort
	if s, err = e.createService(ctx, s); err != nil {
		return err
	}
	old, err := e.ready(ctx, web(0))
	if err != nil {
		return err
	}
	ips, err := e.nodeIPs(ctx, e.Nodes[0])
	if err != nil {
		return err
	}
	address := hostPort(ips[0], s.Spec.Ports[0].NodePort)
	serving := func(ctx context.Context) error {
		_, err := e.fetchFromHost(ctx, address)
		return err
	}
	if err := until(ctx, "an answer at "+address, serving); err != nil {
		return err
	}
	if err := e.PauseAPI(ctx); err != nil {
		return fmt.Errorf("pausing: %w", err)
	}
	err = e.silent(ctx)
	if servingErr := serving(ctx); servingErr != nil {
		err = errors.Join(err, fmt.Errorf("reaching a pod while the API server is paused: %w", servingErr))
	}
	resumed, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if resumeErr := e.ResumeAPI(resumed); resumeErr != nil {
		return errors.Join(err, fmt.Errorf("resuming: %w", resumeErr))
	}
	var p *corev1.Pod
	return errors.Join(err, until(resumed, "the API server to answer again", func(ctx context.Context) (err error) {
		p, err = e.client.CoreV1().Pods(e.namespace).Get(ctx, web(0), metav1.GetOptions{})
		return err
	}), disturbed(old, p))
}

// silent wants a request to the API server to time out.
func (e *env) silent(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	_, err := e.client.CoreV1().Nodes().Get(ctx, e.Nodes[0], metav1.GetOptions{})
	switch {
	case err == nil:
		return errors.New("the API server answers although it is paused")
	case !errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("the API server is not silent although it is paused: %w", err)
	}
	return nil
}

// disturbed says how a pod is not the one it was; nil if it is, or is not known.
func disturbed(old, now *corev1.Pod) error {
	switch {
	case now == nil || len(now.Status.ContainerStatuses) == 0 || len(old.Status.ContainerStatuses) == 0:
		return nil
	case now.UID != old.UID || now.Status.ContainerStatuses[0].RestartCount != old.Status.ContainerStatuses[0].RestartCount:
		return fmt.Errorf("pod %s was restarted or replaced meanwhile", old.Name)
	}
	return nil
}
