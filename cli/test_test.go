package cli

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/reach"
)

// execution is a player of what runs in pods.
type execution func(ctx context.Context, namespace, pod string, command []string) (string, error)

// played runs the program on a cluster of which something is played.
func (s *stage) played(change func(*Cluster), args ...string) result {
	return programWith(s.t.Context(), func(e *Env) {
		e.Connect = func(Access) (*Cluster, error) {
			c, err := Connect(s.access)
			if err == nil {
				change(c)
			}
			return c, err
		}
	}, args...)
}

// tests runs pelago test network with a player of its pods.
func (s *stage) tests(exec execution, args ...string) result {
	return s.played(func(c *Cluster) { c.Exec = exec }, append([]string{"test", "network"}, args...)...)
}

// pods plays pelago-manager and kubelets for namespaces of network tests: the pods run, the
// one at home at 10.42.0.5 and the others at 10.82.0.7.
func (s *stage) pods() func() {
	return s.play(func(ctx context.Context) {
		var spaces corev1.NamespaceList
		s.c.List(ctx, &spaces)
		for i := range spaces.Items {
			n := &spaces.Items[i]
			if !strings.HasPrefix(n.Name, "network-test-") {
				continue
			}
			if n.DeletionTimestamp.IsZero() && n.Labels[v1alpha1.LabelOffloaded] == "" {
				n.Labels[v1alpha1.LabelOffloaded] = "true"
				s.c.Update(ctx, n)
			}
			var pods corev1.PodList
			s.c.List(ctx, &pods, client.InNamespace(n.Name))
			for j := range pods.Items {
				p := &pods.Items[j]
				p.Status.Phase, p.Status.PodIP = corev1.PodRunning, "10.82.0.7"
				if p.Name == homePod {
					p.Status.PodIP = "10.42.0.5"
				}
				p.Status.PodIPs = []corev1.PodIP{{IP: p.Status.PodIP}}
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
				if !p.DeletionTimestamp.IsZero() || !n.DeletionTimestamp.IsZero() {
					s.c.Delete(ctx, p, client.GracePeriodSeconds(0))
					continue
				}
				s.c.Status().Update(ctx, p)
			}
		}
		s.namespaces(ctx)
	})
}

// withProvider has a ready virtual node of milan, whose network sees ours at 10.81.0.0/16.
func (s *stage) withProvider() {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "milan", Labels: map[string]string{
		v1alpha1.LabelType: v1alpha1.TypeVirtualNode, v1alpha1.LabelPeering: "milan"}}}
	n := newNamespace(v1alpha1.PeeringNamespace("milan"))
	if err := s.c.Create(s.t.Context(), n); err != nil && !apierrors.IsAlreadyExists(err) {
		s.t.Fatal(err)
	}
	config := &v1alpha1.NetworkConfig{ObjectMeta: metav1.ObjectMeta{Namespace: n.Name, Name: v1alpha1.NetworkConsumer}}
	labels := map[string]string{"app": "manager"}
	manager := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: v1alpha1.ManagerService}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "manager", Image: "pelago.dev/pelago:1"}}}}}}
	s.create(node, config, manager)
	config.Status.Views = []v1alpha1.NetworkView{{Real: "10.42.0.0/16", View: "10.81.0.0/16"}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if err := errors.Join(s.c.Status().Update(s.t.Context(), config), s.c.Status().Update(s.t.Context(), node)); err != nil {
		s.t.Fatal(err)
	}
}

func TestTestNetwork(t *testing.T) {
	s := newStage(t, 0)
	s.install("rome", "11111111-1111-4111-8111-111111111111")
	if r := s.tests(nil); r.code != 1 || !strings.Contains(r.err, "no virtual node") {
		t.Errorf("without a provider: %+v", r)
	}
	s.withProvider()
	s.pods()
	if r := s.tests(nil, "turin"); r.code != 1 || !strings.Contains(r.err, "no virtual node of a peering turin") {
		t.Errorf("with a provider that is none: %+v", r)
	}
	var called []string
	good := execution(func(_ context.Context, _, pod string, command []string) (string, error) {
		if want := []string{"/pelago", "probe", "call"}; !slices.Equal(command[:3], want) {
			t.Errorf("%s runs %v", pod, command)
		}
		if pod == "milan" { // one of the two, whose calls come one after the other
			called = append(called, command[3:]...)
		}
		answers := make([]reach.Answer, len(command)-3)
		for i := range answers {
			answers[i] = reach.Answer{Server: map[string]string{homePod: "milan", "milan": homePod}[pod], Client: "10.42.0.5", Micros: 1200}
			if strings.HasPrefix(command[3+i], "api/") {
				answers[i].Server = reach.API
			}
		}
		return mustWrite(t, answers), nil
	})
	r := s.tests(good)
	if r.code != 0 || strings.Contains(r.out, "fails") || !strings.Contains(r.out, "service name") {
		t.Errorf("where all is well: %+v", r)
	}
	if !slices.Contains(called, "10.81.0.5:8080") || !slices.ContainsFunc(called, func(c string) bool { return strings.HasSuffix(c, ".svc.cluster.local:8080") }) {
		t.Errorf("milan called %v", called)
	}
	if strings.Contains(strings.Join(called, " "), "api/") || !slices.Contains(called, "udp4/10.81.0.5:8080") {
		t.Errorf("milan called %v", called)
	}
	for _, said := range []string{"not tried", "--with load-balancer", "--with api", "Node ports of a provider"} {
		if strings.Count(strings.Join(strings.Fields(r.out), " "), said) < 1 {
			t.Errorf("it does not say %q: %s", said, r.out)
		}
	}
	if r := s.tests(good, "--with", "all"); r.code != 2 || !strings.Contains(r.err, "use load-balancer, api") {
		t.Errorf("with what there is not: %+v", r)
	}
	images := map[string]string{}
	seen := execution(func(ctx context.Context, namespace, pod string, command []string) (string, error) {
		var p corev1.Pod
		if err := s.c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: pod}, &p); err != nil {
			return "", err
		}
		images[pod] = p.Spec.Containers[0].Image
		return good(ctx, namespace, pod, command)
	})
	elsewhere := "registry.example/pelago:1"
	if r := s.tests(seen, "--image", elsewhere); r.code != 0 || len(images) != 2 || images[homePod] != elsewhere || images["milan"] != elsewhere {
		t.Errorf("with an image of its own the pods have %v: %+v", images, r)
	}
	s.withMore(good)
	s.byFamily(good)
	eventually(t, "the namespace is gone", func() bool {
		var spaces corev1.NamespaceList
		_ = s.c.List(t.Context(), &spaces)
		return !slices.ContainsFunc(spaces.Items, func(n corev1.Namespace) bool { return strings.HasPrefix(n.Name, "network-test-") })
	})
	broken := execution(func(ctx context.Context, namespace, pod string, command []string) (string, error) {
		if pod == homePod {
			return good(ctx, namespace, pod, command)
		}
		answers := make([]reach.Answer, len(command)-3)
		for i := range answers {
			answers[i] = reach.Answer{Err: "no answer in 8s", At: reach.AtConnect}
		}
		return mustWrite(t, answers), nil
	})
	if r := s.tests(broken, "-o", "json", "--settle", "1s"); r.code != 1 || !strings.Contains(r.out, `"ok": false`) || !strings.Contains(r.err, "pelago status milan") {
		t.Errorf("where one direction is broken: %+v", r)
	} else if !strings.Contains(r.out, "the peer may hold the way closed") {
		t.Errorf("what the peer may have chosen is not said: %+v", r)
	}
	var own v1alpha1.NetworkConfig
	if err := s.c.Get(t.Context(), client.ObjectKey{Namespace: v1alpha1.PeeringNamespace("milan"), Name: v1alpha1.NetworkConsumer}, &own); err != nil {
		t.Fatal(err)
	}
	own.Spec.Reachability = v1alpha1.ReachNone
	if err := s.c.Update(t.Context(), &own); err != nil {
		t.Fatal(err)
	}
	never := execution(func(_ context.Context, _, pod string, command []string) (string, error) {
		return "", errors.New("nothing is to be called")
	})
	if r := s.tests(never); r.code != 0 || strings.Contains(r.out, "fails") || !strings.Contains(r.out, "closed") || strings.Count(r.out, "own choice") != 1 {
		t.Errorf("where this cluster holds all closed: %+v", r)
	}
}

// withMore has a test try what takes more than pods, where nothing gives load balancers and then
// where something does.
func (s *stage) withMore(good execution) {
	s.t.Helper()
	var offered v1alpha1.NamespaceOffloading
	called, token := "", false
	watched := execution(func(ctx context.Context, namespace, pod string, command []string) (string, error) {
		called += strings.Join(command, " ") + "\n"
		var p corev1.Pod
		if err := errors.Join(s.c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.OffloadingName}, &offered), s.c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: pod}, &p)); err != nil {
			return "", err
		}
		token = token || pod == "milan" && *p.Spec.AutomountServiceAccountToken
		if pod == homePod && *p.Spec.AutomountServiceAccountToken {
			s.t.Error("the pod at home has a token")
		}
		return good(ctx, namespace, pod, command)
	})
	one := make(chan struct{}, 1) // who calls does so alone
	oneByOne := execution(func(ctx context.Context, namespace, pod string, command []string) (string, error) {
		one <- struct{}{}
		defer func() { <-one }()
		return watched(ctx, namespace, pod, command)
	})
	if r := s.tests(oneByOne, "--with", "load-balancer,api", "--settle", "1s"); r.code != 0 || !strings.Contains(r.out, "no load balancer here") || strings.Contains(r.out, "Not tried by home's API") {
		s.t.Errorf("without a load balancer: %+v", r)
	}
	if !strings.Contains(called, "api/kubernetes.default.svc:443") || offered.Spec.ServiceAccountTokens != v1alpha1.TokensAllow || !token {
		s.t.Errorf("home's API is not called, or cannot be: %+v, %s", offered.Spec, called)
	}
	stop := s.play(func(ctx context.Context) {
		var services corev1.ServiceList
		s.c.List(ctx, &services)
		for i := range services.Items {
			if o := &services.Items[i]; strings.HasSuffix(o.Name, balancedSuffix) && len(o.Status.LoadBalancer.Ingress) == 0 {
				o.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.9"}}
				s.c.Status().Update(ctx, o)
			}
		}
	})
	defer stop()
	if r := s.tests(oneByOne, "--with", "load-balancer", "--settle", "20s"); r.code != 0 || strings.Contains(r.out, "no load balancer here") || !strings.Contains(called, "198.51.100.9:8080") {
		s.t.Errorf("with a load balancer: %+v, %s", r, called)
	}
}

// byFamily has both clusters have IPv6 of which nothing comes through: that is not good.
func (s *stage) byFamily(good execution) {
	s.t.Helper()
	both := []string{"10.42.0.0/16", "fd42::/64"}
	theirs := config(v1alpha1.PeeringNamespace("milan"), v1alpha1.NetworkProvider, "", nil)
	theirs.Spec.Pods = both
	var ours v1alpha1.NetworkConfig
	if err := s.c.Get(s.t.Context(), client.ObjectKey{Namespace: theirs.Namespace, Name: v1alpha1.NetworkConsumer}, &ours); err != nil {
		s.t.Fatal(err)
	}
	s.create(&theirs)
	ours.Spec.Pods, ours.Spec.Transit = both, both[1:]
	if err := s.c.Update(s.t.Context(), &ours); err != nil {
		s.t.Fatal(err)
	}
	if r := s.tests(good); r.code != 0 || strings.Contains(r.out, "IPv6") {
		s.t.Errorf("where home has no IPv6 of its own: %+v", r)
	}
	ours.Spec.Transit = nil
	if err := s.c.Update(s.t.Context(), &ours); err != nil {
		s.t.Fatal(err)
	}
	if r := s.tests(good, "--settle", "1s"); r.code != 1 || !strings.Contains(r.out, "pod address, IPv6") || !strings.Contains(r.out, "no such address") || !strings.Contains(r.out, "pod address, IPv4") {
		s.t.Errorf("where IPv6 is broken: %+v", r)
	}
	if err := s.c.Delete(s.t.Context(), &theirs); err != nil {
		s.t.Fatal(err)
	}
	ours.Spec.Pods = nil
	if err := s.c.Update(s.t.Context(), &ours); err != nil {
		s.t.Fatal(err)
	}
}

func mustWrite(t *testing.T, answers []reach.Answer) string {
	var out bytes.Buffer
	if err := reach.Write(&out, answers); err != nil {
		t.Error(err)
	}
	return out.String()
}

func TestExplainConnection(t *testing.T) {
	s := newStage(t, 0)
	s.install("rome", "11111111-1111-4111-8111-111111111111")
	s.withProvider()
	s.space("shop", nil)
	for name, node := range map[string]string{"web": "rome-node", "db": "milan"} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.PodSpec{NodeName: node,
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		s.create(p)
		p.Status.Phase, p.Status.PodIP = corev1.PodRunning, "10.42.0.5"
		p.Status.PodIPs = []corev1.PodIP{{IP: p.Status.PodIP}}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		if err := s.c.Status().Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"web", "db", "-n", "shop"}, {"shop/web", "shop/db"}} {
		r := s.run(append([]string{"explain", "connection"}, args...)...)
		if !strings.Contains(r.out, "From pod web to pod db") || !strings.Contains(r.out, "there is a network with milan") || !strings.Contains(r.out, "pelago status milan") {
			t.Errorf("explain connection %v: %+v", args, r)
		}
	}
	for _, c := range []struct {
		words []string
		code  int
		says  string
	}{{[]string{"shop/web", "shop/web"}, 2, "the same pod"}, {[]string{"shop/web", "shop/none"}, 1, "there is no pod none"}, {[]string{"shop/web"}, 2, "TO is missing"}} {
		if r := s.run(append([]string{"explain", "connection"}, c.words...)...); r.code != c.code || !strings.Contains(r.err, c.says) {
			t.Errorf("explain connection %v: %+v", c.words, r)
		}
	}
}
