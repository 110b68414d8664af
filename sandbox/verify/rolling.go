package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const (
	before, after = "before", "after"
	failedRequest = "failed"
)

// rollingUpdate replaces the pods of a Deployment while a client fetches through
// the Service without a break. No request may fail.
func rollingUpdate(ctx context.Context, e *env) error {
	if err := e.createRolling(ctx); err != nil {
		return err
	}
	s, err := e.createService(ctx, e.service(e.slug, nil))
	if err != nil {
		return err
	}
	if err := e.rolledOut(ctx); err != nil {
		return err
	}
	const stopFile = workDir + "/rolling-stop"
	script := fmt.Sprintf("until [ -e %s ]; do %s || echo %s; usleep 20000; done",
		stopFile, fetchCommand(net.JoinHostPort(s.Spec.ClusterIP, "80")), failedRequest)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var heard record
	ended := make(chan error, 1)
	go func() { ended <- e.execTo(ctx, web(0), nil, &heard, "sh", "-c", script) }()

	if err := heard.wait(ctx, before); err != nil {
		return err
	}
	patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":%q,"env":[{"name":"ANSWER","value":%q}]}]}}}}`, mainContainer, after)
	if _, err := e.client.AppsV1().Deployments(e.namespace).Patch(ctx, e.slug, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("updating the deployment: %w", err)
	}
	if err := e.rolledOut(ctx); err != nil {
		return err
	}
	if err := heard.wait(ctx, after); err != nil {
		return err
	}
	if _, err := e.exec(ctx, web(0), nil, "touch", stopFile); err != nil {
		return err
	}
	if err := <-ended; err != nil {
		return err
	}
	return judge(heard.String())
}

// createRolling makes a Deployment that always has its two pods. A pod goes on
// serving for its grace period, as long as nodes take to forget it.
func (e *env) createRolling(ctx context.Context) error {
	t := e.template(serve)
	t.Spec.TerminationGracePeriodSeconds = new(int64(5))
	main := &t.Spec.Containers[0]
	main.Env[0].Value, main.Env[0].ValueFrom = before, nil
	main.Command[2] = "sleep 2\n" + serve // whoever sends requests before a pod is ready shall be noticed
	_, err := e.client.AppsV1().Deployments(e.namespace).Create(ctx, &appsv1.Deployment{ObjectMeta: e.meta(e.slug), Spec: appsv1.DeploymentSpec{
		Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: e.labels()}, Template: t,
		Strategy: appsv1.DeploymentStrategy{RollingUpdate: &appsv1.RollingUpdateDeployment{
			MaxSurge: new(intstr.FromInt32(1)), MaxUnavailable: new(intstr.FromInt32(0)),
		}},
	}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("creating a deployment: %w", err)
	}
	return nil
}

// rolledOut waits until the Deployment has what it was last asked for.
func (e *env) rolledOut(ctx context.Context) error {
	return until(ctx, "deployment "+e.slug, func(ctx context.Context) error {
		d, err := e.client.AppsV1().Deployments(e.namespace).Get(ctx, e.slug, metav1.GetOptions{})
		if err != nil {
			return err
		}
		s, want := d.Status, *d.Spec.Replicas
		if s.ObservedGeneration < d.Generation || s.UpdatedReplicas != want || s.Replicas != want || s.AvailableReplicas != want {
			return fmt.Errorf("%d pods, %d of them new, %d available, wanted %d", s.Replicas, s.UpdatedReplicas, s.AvailableReplicas, want)
		}
		return nil
	})
}

// judge looks for failed requests among the answers of a rolling update.
func judge(heard string) error {
	const few = 10
	lines := strings.Split(strings.TrimSpace(heard), "\n")
	var failed int
	for _, l := range lines {
		if a, err := parseAnswer(l); err != nil || a.name != before && a.name != after {
			failed++
		}
	}
	switch {
	case failed > 0:
		return fmt.Errorf("%d of %d requests failed", failed, len(lines))
	case len(lines) < few:
		return fmt.Errorf("only %d requests were made, too few to tell", len(lines))
	}
	return nil
}

// record is a buffer that is read while it is written.
type record struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// wait waits until the last answers are all this one.
func (r *record) wait(ctx context.Context, name string) error {
	const last = 5
	return until(ctx, fmt.Sprintf("the client to hear %q", name), func(context.Context) error {
		lines := strings.Split(strings.TrimSpace(r.String()), "\n")
		tail := lines[max(0, len(lines)-last):]
		for _, l := range tail {
			if !strings.HasPrefix(l, name+" ") {
				return fmt.Errorf("the last it heard: %q", shorten(strings.Join(tail, ", "), 200))
			}
		}
		if len(tail) < last {
			return errors.New("it has heard little yet")
		}
		return nil
	})
}
