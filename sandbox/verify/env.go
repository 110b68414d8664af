package verify

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// env is what a check works with: the target, a client, the namespace.
type env struct {
	Target
	client    kubernetes.Interface
	namespace string
	// slug is that of the check.
	slug string
}

// make makes one check in its own time.
func (e *env) make(ctx context.Context, c check) Result {
	if why := c.needs.missing(e.Target); why != "" {
		return Result{Name: c.name, Skipped: why}
	}
	own := *e
	own.slug = c.slug
	if c.stage == final {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	begin := time.Now()
	err := c.run(ctx, &own)
	r := Result{Name: c.name, Duration: time.Since(begin)}
	if err != nil {
		r.Err = own.explain(context.WithoutCancel(ctx), err)
	}
	return r
}

// prepare makes the namespace and the pods that several checks use.
func (e *env) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	ns, err := e.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "pelago-verify-"}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("making a namespace: %w", err)
	}
	e.namespace = ns.Name
	err = until(ctx, "the default service account", func(ctx context.Context) error {
		_, err := e.client.CoreV1().ServiceAccounts(e.namespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	if err != nil {
		return err
	}
	e.slug = webName
	for i, node := range e.Nodes {
		p := e.pod(web(i), serve)
		p.Labels[webLabel] = strconv.Itoa(i)
		onNode(&p.Spec, node)
		if err := e.createPod(ctx, p); err != nil {
			return err
		}
	}
	if _, err := e.createService(ctx, e.service(webName, nil)); err != nil {
		return err
	}
	headless := e.service(webName+"-headless", nil)
	headless.Spec.ClusterIP = corev1.ClusterIPNone
	_, err = e.createService(ctx, headless)
	return err
}

// clean removes the namespace and sees everything in it go, and the volumes.
func clean(ctx context.Context, e *env) error { return e.remove(ctx) }

func (e *env) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	err := e.client.CoreV1().Namespaces().Delete(ctx, e.namespace, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("removing namespace %s: %w", e.namespace, err)
	}
	err = until(ctx, "the end of namespace "+e.namespace, func(ctx context.Context) error {
		ns, err := e.client.CoreV1().Namespaces().Get(ctx, e.namespace, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		} else if err != nil {
			return err
		}
		return errors.New(remains(ns))
	})
	if err != nil {
		return err
	}
	return until(ctx, "the end of its volumes", func(ctx context.Context) error {
		volumes, err := e.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, v := range volumes.Items {
			if v.Spec.ClaimRef != nil && v.Spec.ClaimRef.Namespace == e.namespace {
				return fmt.Errorf("volume %s is %s: %s", v.Name, v.Status.Phase, v.Status.Message)
			}
		}
		return nil
	})
}

// remains says what keeps a namespace from going.
func remains(ns *corev1.Namespace) string {
	s := "it is " + string(ns.Status.Phase)
	for _, c := range ns.Status.Conditions {
		if c.Status == corev1.ConditionTrue {
			s += "; " + c.Message
		}
	}
	return s
}

// until calls try about thrice a second until it has nothing to object. The error
// at the end of ctx says what was waited for and the last objection.
func until(ctx context.Context, what string, try func(context.Context) error) error {
	const pause, patience = 300 * time.Millisecond, 10 * time.Second
	tick := time.NewTicker(pause)
	defer tick.Stop()
	var last error
	for {
		once, cancel := context.WithTimeout(ctx, patience)
		err := try(once)
		cancel()
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w; last: %w", what, ctx.Err(), last)
		case <-tick.C:
		}
	}
}

// hostPort joins an address of either family with a port.
func hostPort(ip netip.Addr, port int32) string {
	return net.JoinHostPort(ip.String(), strconv.Itoa(int(port)))
}

// addresses parses addresses that the API server has checked.
func addresses(texts ...string) ([]netip.Addr, error) {
	var ips []netip.Addr
	for _, t := range texts {
		ip, err := netip.ParseAddr(t)
		if err != nil {
			return nil, fmt.Errorf("reading an address: %w", err)
		}
		ips = append(ips, ip.Unmap())
	}
	return ips, nil
}
