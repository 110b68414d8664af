package test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// networkLimit ends a wait for an address or a name to be reached.
const networkLimit = 90 * time.Second

// whoLine is a server that says who calls it and who it is.
var whoLine = fmt.Sprintf(`mkdir -p /www/cgi-bin; printf '#!/bin/sh\nprintf "Content-Type: text/plain\\n\\n%%%%s %%%%s\\n" "$REMOTE_ADDR" "$HOSTNAME"\n' > /www/cgi-bin/who
chmod +x /www/cgi-bin/who; trap 'exit 0' TERM; httpd -f -p %d -h /www & wait`, webPort)

// crossing is a namespace of rome's with pods on both sides.
type crossing struct {
	shop
	// rome and milan are how the one that the peering's NetworkConfig is called after is seen
	// by the other one.
	rome, milan []v1alpha1.NetworkView
	// front is a pod at rome, data are pods at milan, stranger one of milan's own and neighbour
	// one of rome's own that nothing at milan knows; caller is on the network of rome's node.
	front, neighbour, stranger, caller *corev1.Pod
	data                               []*corev1.Pod
	// image of what calls and is called all the time; if it is empty, that of rome's manager.
	image string
}

// pelagoImage is that of x, or of the manager at rome.
func pelagoImage(t *testing.T, x *crossing) (string, corev1.PullPolicy) {
	t.Helper()
	if x.image != "" {
		return x.image, corev1.PullNever
	}
	var pods corev1.PodList
	if err := x.Clients["rome"].List(t.Context(), &pods, client.InNamespace(v1alpha1.SystemNamespace), client.MatchingLabels{"app.kubernetes.io/name": "pelago-manager"}); err != nil || len(pods.Items) == 0 {
		t.Fatalf("finding the image: %v", err)
	}
	c := pods.Items[0].Spec.Containers[0]
	return c.Image, c.ImagePullPolicy
}

// who serves at a pod, so that readiness means that it can be asked.
func who(spec corev1.PodSpec) corev1.PodSpec {
	spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: webPort}}
	spec.Containers[0].ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
		TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(webPort)}}}
	return spec
}

func whoPod(namespace, name, node string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": name}}, Spec: who(boxSpec(whoLine))}
	return onto(p, node)
}

func whoService(name, app string, change func(*corev1.ServiceSpec)) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": app}, Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(webPort)}}}}
	if change != nil {
		change(&s.Spec)
	}
	return s
}

func newCrossing(t *testing.T, c *continuum) *crossing {
	t.Helper()
	x := &crossing{shop: c.offloaded(t, "rome")}
	x.create(t, whoService("front", "front", nil))
	x.create(t, whoService("data", "data", func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeLoadBalancer }))
	x.create(t, whoService("data-peers", "data", func(s *corev1.ServiceSpec) { s.ClusterIP = corev1.ClusterIPNone }))
	x.create(t, whoPod("", "front", "rome-1"))
	const replicas = 2
	spec := who(boxSpec(whoLine))
	spec.NodeSelector = map[string]string{corev1.LabelHostname: "milan"}
	labels := map[string]string{"app": "data"}
	spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
		Weight: 1, PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: labels}}}}}}
	x.create(t, &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: appsv1.StatefulSetSpec{
		Replicas: new(int32(replicas)), ServiceName: "data-peers", Selector: &metav1.LabelSelector{MatchLabels: labels}, PodManagementPolicy: appsv1.ParallelPodManagement,
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
	}})
	here, there := c.shop(t, "rome"), c.shop(t, "milan")
	here.create(t, whoPod("", "neighbour", "rome-1"))
	caller := whoPod("", "caller", "rome-1")
	caller.Spec.HostNetwork = true
	here.create(t, caller)
	there.create(t, whoPod("", "stranger", "milan-1"))
	x.front, x.neighbour, x.caller, x.stranger = x.running(t, "front"), here.running(t, "neighbour"), here.running(t, "caller"), there.running(t, "stranger")
	for i := range replicas {
		x.data = append(x.data, x.running(t, fmt.Sprintf("data-%d", i)))
	}
	x.eventually(t, networkLimit, "both sides have views, and the pods at milan have addresses here", func() error {
		for name, views := range map[string]*[]v1alpha1.NetworkView{v1alpha1.NetworkConsumer: &x.rome, v1alpha1.NetworkProvider: &x.milan} {
			n, err := get[v1alpha1.NetworkConfig](c, "rome", v1alpha1.PeeringNamespace("milan"), name)
			if err != nil {
				return err
			}
			if *views = n.Status.Views; len(*views) == 0 {
				return fmt.Errorf("the ranges of the %s have no view: %s", name, condition(n.Status.Conditions, v1alpha1.ConditionReady))
			}
		}
		for i := range x.data {
			now, err := get[corev1.Pod](c, "rome", x.name, x.data[i].Name)
			if err != nil {
				return err
			}
			if x.data[i] = now; now.Status.PodIP == "" {
				return fmt.Errorf("%s has no address", now.Name)
			}
		}
		return nil
	})
	return x
}

// seen is the address by which the other side sees a real one.
func seen(t *testing.T, views []v1alpha1.NetworkView, real string) string {
	t.Helper()
	a, err := netip.ParseAddr(real)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range views {
		from, to := netip.MustParsePrefix(v.Real), netip.MustParsePrefix(v.View)
		if !from.Contains(a) {
			continue
		}
		low, high := a.AsSlice(), to.Addr().AsSlice()
		for i := range low {
			if keep := max(0, min(8, to.Bits()-8*i)); keep < 8 {
				high[i] |= low[i] & (0xff >> keep)
			}
		}
		out, _ := netip.AddrFromSlice(high)
		return out.String()
	}
	t.Fatalf("%s is in none of %v", real, views)
	return ""
}

// ask has a pod of a cluster call a server by an address or name.
func (x *crossing) ask(cluster string, from *corev1.Pod, host string, port int32) (client, server string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	out, err := x.Exec(ctx, cluster, from.Namespace, from.Name,
		"timeout", "5", "wget", "-q", "-O", "-", "http://"+join(host, port)+"/cgi-bin/who")
	client, server, ok := strings.Cut(strings.TrimSpace(out), " ")
	if err == nil && !ok {
		err = fmt.Errorf("%q is no answer", out)
	}
	return strings.TrimPrefix(strings.Trim(client, "[]"), "::ffff:"), server, err
}

// reaches holds that a pod reaches one of some servers by a host, which sees it by an address.
func (x *crossing) reaches(t *testing.T, from *corev1.Pod, host string, port int32, as string, servers ...string) {
	t.Helper()
	x.eventually(t, networkLimit, fmt.Sprintf("%s reaches %v by %s", from.Name, servers, host), func() error {
		client, server, err := x.ask(x.cluster, from, host, port)
		if err == nil && !slices.Contains(servers, server) {
			err = fmt.Errorf("%s answered", server)
		}
		if err == nil && as != "" && client != as {
			err = fmt.Errorf("%s sees %s, want %s", server, client, as)
		}
		return err
	})
}

// misses holds that a pod does not reach an address.
func (x *crossing) misses(t *testing.T, cluster string, from *corev1.Pod, host string) {
	t.Helper()
	if client, server, err := x.ask(cluster, from, host, webPort); err == nil {
		t.Errorf("%s reaches %s by %s, as %s", from.Name, server, host, client)
	}
}

// network has an application that is spread over two clusters with the same ranges work as
// in one: pods reach pods and services both ways, by addresses and names, and are seen by
// their own addresses; and nobody else does.
func network(t *testing.T, c *continuum) {
	x := newCrossing(t, c)
	front := seen(t, x.rome, x.front.Status.PodIP)
	away := []string{"data-0", "data-1"}
	t.Run("PodToPod", func(t *testing.T) {
		for _, d := range x.data {
			twin, err := c.twin("milan", d)
			if err != nil {
				t.Fatal(err)
			}
			if view := seen(t, x.milan, twin.Status.PodIP); view != d.Status.PodIP {
				t.Errorf("%s is %s at milan, so %s here, and says %s", d.Name, twin.Status.PodIP, view, d.Status.PodIP)
			}
			x.reaches(t, x.front, d.Status.PodIP, webPort, front, d.Name)
			x.reaches(t, d, front, webPort, d.Status.PodIP, "front")
		}
	})
	t.Run("Services", func(t *testing.T) {
		service, err := get[corev1.Service](c, "rome", x.name, "data")
		if err != nil {
			t.Fatal(err)
		}
		x.reaches(t, x.front, service.Spec.ClusterIP, 80, front, away...)
		x.reaches(t, x.front, "data", 80, front, away...)
		for _, name := range away {
			x.reaches(t, x.front, name+".data-peers", webPort, front, name)
		}
		x.reaches(t, x.caller, x.caller.Status.HostIP, service.Spec.Ports[0].NodePort, "", away...)
		if len(service.Status.LoadBalancer.Ingress) != 1 {
			t.Fatalf("the load balancer has the addresses %v", service.Status.LoadBalancer.Ingress)
		}
		x.reaches(t, x.caller, service.Status.LoadBalancer.Ingress[0].IP, 80, "", away...)
	})
	t.Run("Names", func(t *testing.T) {
		x.create(t, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "alias"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "front." + x.name + ".svc.cluster.local"}})
		for _, d := range x.data {
			for _, name := range []string{"alias", "front", "front." + x.name, "front." + x.name + ".svc", "front." + x.name + ".svc.cluster.local"} {
				x.reaches(t, d, name, 80, d.Status.PodIP, "front")
			}
			x.reaches(t, d, "data", 80, "", away...)
		}
	})
	t.Run("Ready", func(t *testing.T) { readyIsReachable(t, x) })
	t.Run("Capture", func(t *testing.T) { captureShows(t, x) })
	t.Run("HomeAPI", func(t *testing.T) { homeAPI(t, x) })
	t.Run("Policies", func(t *testing.T) { policiesHold(t, x, false) })
	t.Run("Strangers", func(t *testing.T) {
		var all sync.WaitGroup // each takes as long as a call may
		defer all.Wait()
		all.Go(func() { x.misses(t, "milan", x.stranger, front) })
		all.Go(func() { x.misses(t, "rome", x.front, seen(t, x.milan, x.stranger.Status.PodIP)) })
		for _, d := range x.data {
			all.Go(func() { x.misses(t, "rome", d, seen(t, x.rome, x.neighbour.Status.PodIP)) })
		}
	})
}

// homeAPI has a pod at milan list rome's pods with the token that it has, by the address that
// every client uses, and not once the namespace forbids it.
func homeAPI(t *testing.T, x *crossing) {
	x.Run(t, "kubectl", "rome", "--", "create", "-n", x.name, "rolebinding", "view", "--clusterrole=view", "--serviceaccount="+x.name+":default")
	x.Run(t, "image", "build", callerImage, "--from-packages", "curl,dash,coreutils")
	x.Run(t, "image", "load", callerImage, "milan")
	const line = `cd /var/run/secrets/kubernetes.io/serviceaccount; while sleep 1; do
out=$(curl -sS --max-time 3 --cacert ca.crt -H "Authorization: Bearer $(cat token)" "https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT/api/v1/namespaces/$(cat namespace)/pods" 2>&1)
case "$out" in *'"name": "front"'*) echo lists;; *) echo "does not: $out";; esac; done`
	says := func(what string, is func(string) bool) {
		t.Helper()
		x.eventually(t, networkLimit, what, func() error {
			out, err := x.kubectl(t, "logs", "client", "--tail=2")
			if err == nil && !is(out) {
				err = fmt.Errorf("it says %q", out)
			}
			return err
		})
	}
	x.tokens(t, v1alpha1.TokensAllow)
	pod := x.script("client", line)
	pod.Spec.Containers[0].Image = callerImage
	x.create(t, onto(pod, "milan"))
	x.running(t, "client")
	says("it lists rome's pods", func(out string) bool { return strings.HasSuffix(strings.TrimSpace(out), "lists") })
	x.tokens(t, v1alpha1.TokensDeny)
	says("it cannot any more", func(out string) bool { return strings.Contains(out, "does not: curl:") })
}
