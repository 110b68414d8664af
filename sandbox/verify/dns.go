package verify

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// names asks for a Service by its short and its full name, for the pods behind a
// headless Service, and for a pod of a StatefulSet.
func names(ctx context.Context, e *env) error {
	pods, err := e.webPods(ctx)
	if err != nil {
		return err
	}
	domain, err := e.domain(ctx)
	if err != nil {
		return err
	}
	var all []netip.Addr
	for _, p := range pods {
		all = append(all, podIPs(p)...)
	}
	s, err := e.client.CoreV1().Services(e.namespace).Get(ctx, webName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading service %s: %w", webName, err)
	}
	clusterIPs, err := addresses(s.Spec.ClusterIPs...)
	if err != nil {
		return err
	}
	named, err := e.namedPod(ctx)
	if err != nil {
		return err
	}
	for _, client := range e.ends() {
		err := until(ctx, client+" to fetch from a Service by its name", func(ctx context.Context) error {
			_, err := e.fetchFrom(ctx, client, webName)
			return err
		})
		if err != nil {
			return err
		}
		for _, want := range []struct {
			name string
			ips  []netip.Addr
		}{
			{webName, clusterIPs}, {webName + "-headless", all}, {named.Name + "." + e.slug, podIPs(named)},
		} {
			if err := e.resolves(ctx, client, want.name+"."+domain, want.ips); err != nil {
				return err
			}
		}
	}
	return nil
}

// namedPod makes a StatefulSet of one pod with a name of its own.
func (e *env) namedPod(ctx context.Context) (*corev1.Pod, error) {
	headless := e.service(e.slug, nil)
	headless.Spec.ClusterIP = corev1.ClusterIPNone
	if _, err := e.createService(ctx, headless); err != nil {
		return nil, err
	}
	set := &appsv1.StatefulSet{ObjectMeta: e.meta(e.slug), Spec: appsv1.StatefulSetSpec{
		ServiceName: e.slug, Selector: &metav1.LabelSelector{MatchLabels: e.labels()}, Template: e.template(serve),
	}}
	if _, err := e.client.AppsV1().StatefulSets(e.namespace).Create(ctx, set, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("creating statefulset %s: %w", e.slug, err)
	}
	return e.ready(ctx, e.slug+"-0")
}

// domain returns the DNS domain of the namespace, which a pod is told.
func (e *env) domain(ctx context.Context) (string, error) {
	text, err := e.exec(ctx, web(0), nil, "cat", "/etc/resolv.conf")
	if err != nil {
		return "", err
	}
	return parseDomain(text, e.namespace)
}

// parseDomain finds the search domain of a namespace in a resolv.conf.
func parseDomain(text, namespace string) (string, error) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		for i, f := range fields {
			if i > 0 && fields[0] == "search" && strings.HasPrefix(f, namespace+".svc.") {
				return f, nil
			}
		}
	}
	return "", fmt.Errorf("the pod's resolv.conf does not search namespace %s: %q", namespace, shorten(text, 200))
}

// resolves waits until a name has exactly these addresses.
func (e *env) resolves(ctx context.Context, client, name string, want []netip.Addr) error {
	return until(ctx, fmt.Sprintf("%s to find %v for %s", client, want, name), func(ctx context.Context) error {
		text, err := e.exec(ctx, client, nil, "sh", "-c", "timeout 5 nslookup "+name+".")
		got := parseLookup(text)
		slices.SortFunc(got, netip.Addr.Compare)
		wanted := slices.SortedFunc(slices.Values(want), netip.Addr.Compare)
		if slices.Equal(got, wanted) {
			return nil // an empty answer for the other family is an error to busybox
		}
		return errors.Join(fmt.Errorf("it found %v", got), err)
	})
}

// parseLookup reads the addresses that nslookup of busybox prints after the
// server's own: "Address: 10.0.0.1", in older releases "Address 1: 10.0.0.1 name".
func parseLookup(text string) []netip.Addr {
	var ips []netip.Addr
	answers := false
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, ":")
		switch fields := strings.Fields(value); {
		case key == "Name":
			answers = true
		case answers && strings.HasPrefix(key, "Address") && len(fields) > 0:
			if ip, err := netip.ParseAddr(fields[0]); err == nil && !slices.Contains(ips, ip.Unmap()) {
				ips = append(ips, ip.Unmap())
			}
		}
	}
	return ips
}
