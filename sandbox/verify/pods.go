package verify

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podOnEveryNode sees the shared pods run, each on its node, with an address of
// each family.
func podOnEveryNode(ctx context.Context, e *env) error {
	for i, node := range e.Nodes {
		p, err := e.ready(ctx, web(i))
		if err != nil {
			return err
		}
		if p.Spec.NodeName != node {
			return fmt.Errorf("pod %s runs on %s instead of %s", p.Name, p.Spec.NodeName, node)
		}
		if err := wantFamilies("pod "+p.Name, podIPs(p), e.Families); err != nil {
			return err
		}
	}
	return nil
}

// ready waits for a pod that runs and is ready.
func (e *env) ready(ctx context.Context, name string) (*corev1.Pod, error) {
	var p *corev1.Pod
	err := until(ctx, "pod "+name, func(ctx context.Context) (err error) {
		if p, err = e.client.CoreV1().Pods(e.namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		return notReady(p)
	})
	return p, err
}

// notReady says why a pod cannot serve; nil if it can.
func notReady(p *corev1.Pod) error {
	if p.DeletionTimestamp != nil {
		return errors.New("it is being deleted")
	}
	if !isTrue(p.Status.Conditions, corev1.PodReady) {
		return fmt.Errorf("it is %s and not ready", p.Status.Phase)
	}
	return nil
}

func isTrue(conditions []corev1.PodCondition, kind corev1.PodConditionType) bool {
	return slices.ContainsFunc(conditions, func(c corev1.PodCondition) bool {
		return c.Type == kind && c.Status == corev1.ConditionTrue
	})
}

// finished waits for a pod to succeed and returns its log.
func (e *env) finished(ctx context.Context, name string) (string, error) {
	err := until(ctx, "pod "+name+" to succeed", func(ctx context.Context) error {
		p, err := e.client.CoreV1().Pods(e.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if p.Status.Phase != corev1.PodSucceeded {
			return fmt.Errorf("it is %s", p.Status.Phase)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	text, err := e.client.CoreV1().Pods(e.namespace).GetLogs(name, &corev1.PodLogOptions{}).DoRaw(ctx)
	if err != nil {
		return "", fmt.Errorf("reading the log of %s: %w", name, err)
	}
	return string(text), nil
}

// deletePod deletes a pod and waits until it, the very same, is gone.
func (e *env) deletePod(ctx context.Context, p *corev1.Pod) error {
	pods := e.client.CoreV1().Pods(e.namespace)
	if err := pods.Delete(ctx, p.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(p.UID))}); err != nil {
		return fmt.Errorf("deleting pod %s: %w", p.Name, err)
	}
	return until(ctx, "the end of pod "+p.Name, func(ctx context.Context) error {
		now, err := pods.Get(ctx, p.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		case now.UID != p.UID:
			return nil
		}
		return fmt.Errorf("it is still there, %s", now.Status.Phase)
	})
}

// podIPs returns all addresses of a pod.
func podIPs(p *corev1.Pod) []netip.Addr {
	var ips []netip.Addr
	for _, i := range p.Status.PodIPs {
		if ip, err := netip.ParseAddr(i.IP); err == nil {
			ips = append(ips, ip.Unmap())
		}
	}
	return ips
}

// wantFamilies says which family something has no address of.
func wantFamilies(what string, ips []netip.Addr, families []corev1.IPFamily) error {
	for _, f := range families {
		if !slices.ContainsFunc(ips, func(ip netip.Addr) bool { return ip.Is4() == (f == corev1.IPv4Protocol) }) {
			return fmt.Errorf("%s has no %s address, only %v", what, f, ips)
		}
	}
	return nil
}

// changed returns the time at which a condition of a pod last changed.
func changed(p *corev1.Pod, kind corev1.PodConditionType) time.Time {
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}
