package test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// offloadingFile is a small consumer and a larger provider.
const offloadingFile = `clusters:
- name: rome
  nodes: 1
  addons: [coredns, load-balancer, metrics-server]
- name: milan
  nodes: 2
  addons: [coredns, load-balancer]
  labels: {topology.kubernetes.io/region: eu-north, hardware: fast}
`

// TestOffloading has what a consumer's pods must do that run at a provider. The parts
// share a peering.
func TestOffloading(t *testing.T) {
	s := kubetest.Sandbox(t, kubetest.Options{Name: "off", File: sandboxFile(t, offloadingFile), Pelago: true})
	c := newContinuum(t, s, "rome", "milan")
	box(t, s, "rome", "milan")
	c.peer(t, "rome", "milan")
	c.nodeReady(t, "rome", "milan")
	type part struct {
		name string
		run  func(*testing.T, *continuum)
	}
	each := func(t *testing.T, parts ...part) {
		for _, p := range parts {
			t.Run(p.name, func(t *testing.T) { p.run(t, c) })
		}
	}
	each(t, part{"MainJob", mainJob}, part{"VirtualNode", virtualNode}, part{"Allocatable", allocatable}, part{"Strangers", strangersStayAway})
	// These disturb nobody.
	t.Run("Together", func(t *testing.T) {
		for _, p := range []part{
			{"Policies", policies}, {"Namespaces", namespaces}, {"KubeletRights", kubeletRights}, {"Top", top}, {"Refused", refusedPods},
			{"Lost", lostByProvider}, {"Stateful", statefulByUID}, {"Changes", mutableFields}, {"DownwardAPI", downwardAPI}, {"PullSecrets", pullSecrets},
			{"Reflection", reflection}, {"Warnings", warnings}, {"Tokens", tokens},
		} {
			t.Run(p.name, func(t *testing.T) {
				t.Parallel()
				p.run(t, c)
			})
		}
	})
	each(t, part{"Hostile", hostileShadowPods}, part{"Jobs", jobsEndOnce}, part{"Limits", tenantLimits}, part{"Restart", managersRestart}, part{"Takeover", leaderDies},
		part{"Partition", podsInPartition}, part{"Unoffload", unoffload})
}

// nodeReady waits for a virtual node.
func (c *continuum) nodeReady(t *testing.T, cluster, node string) *corev1.Node {
	t.Helper()
	var n *corev1.Node
	eventually(t, 30*time.Second, "virtual node "+node+" is Ready in "+cluster, func() (err error) {
		if n, err = get[corev1.Node](c, cluster, "", node); err != nil {
			return err
		}
		if ready := nodeReadiness(n); !strings.HasPrefix(ready, "True") {
			return fmt.Errorf("Ready is %s", ready)
		}
		return nil
	})
	return n
}

func nodeReadiness(n *corev1.Node) string {
	for _, each := range n.Status.Conditions {
		if each.Type == corev1.NodeReady {
			return string(each.Status) + " " + each.Reason
		}
	}
	return "absent"
}

// mainJob holds that a plain Deployment runs there, with logs, exec, cp, port-forward and
// true status, and that deleting it here deletes it there, with its grace.
func mainJob(t *testing.T, c *continuum) {
	s := c.offloaded(t, "rome", "--pod-offloading-strategy", "Remote")
	s.phase(t, v1alpha1.OffloadingPhaseReady)
	s.create(t, s.deployment("web", 2))
	pods := s.runningAll(t, "web", 2)
	for _, pod := range pods {
		twin, err := c.twin("milan", &pod)
		if err != nil {
			t.Fatal(err)
		}
		if pod.Spec.NodeName != "milan" || !strings.HasPrefix(twin.Spec.NodeName, "milan-") || twin.Name != pod.Name || twin.Namespace != s.name+"-rome" {
			t.Errorf("%s on %s is %s/%s on %s", pod.Name, pod.Spec.NodeName, twin.Namespace, twin.Name, twin.Spec.NodeName)
		}
		if pod.Status.PodIP != "" || len(pod.Status.PodIPs) > 0 {
			t.Errorf("%s has the address %s, which means something else at home", pod.Name, pod.Status.PodIP)
		}
		if len(pod.Status.ContainerStatuses) != 1 || pod.Status.ContainerStatuses[0].State.Running == nil {
			t.Errorf("status of containers: %+v", pod.Status.ContainerStatuses)
		}
	}
	name := pods[0].Name
	if out, err := s.kubectl(t, "logs", name); err != nil || !strings.Contains(out, "started") {
		t.Errorf("logs: %q, %v", out, err)
	}
	if out, err := s.kubectl(t, "exec", name, "--", "sh", "-c", "hostname; exit 3"); err == nil || !strings.Contains(out, name) || !strings.Contains(err.Error(), "3") {
		t.Errorf("exec: %q, %v; want the pod's name and exit code 3", out, err)
	}
	content := []byte(strings.Repeat("all of it\n", 20000))
	from, back := file(t, content), file(t, nil)
	if out, err := s.kubectl(t, "cp", from, s.name+"/"+name+":/tmp/copied"); err != nil {
		t.Errorf("cp there: %s, %v", out, err)
	}
	if out, err := s.kubectl(t, "cp", s.name+"/"+name+":/tmp/copied", back); err != nil {
		t.Errorf("cp back: %s, %v", out, err)
	}
	same(t, back, content)
	portForward(t, s)

	begin := time.Now()
	if err := c.Clients["rome"].Delete(t.Context(), &pods[1]); err != nil {
		t.Fatal(err)
	}
	s.gone(t, "milan", &pods[1])
	t.Logf("deleted on both sides after %s", time.Since(begin).Round(10*time.Millisecond))
	s.runningAll(t, "web", 2)
}

// portForward holds that a port of a pod there can be opened here.
func portForward(t *testing.T, s shop) {
	t.Helper()
	s.create(t, s.script("http", "mkdir -p /www && echo from-$(hostname) > /www/index.html && exec httpd -f -p 8080 -h /www"))
	s.running(t, "http")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	address := forwarded(t, s.Command(ctx, "kubectl", s.cluster, "--", "-n", s.name, "port-forward", "pod/http", ":8080"))
	if got := fetch(t, "http://"+address+"/"); !strings.Contains(got, "from-http") {
		t.Errorf("through port-forward comes %q", got)
	}
}

// virtualNode holds what a virtual node looks like, and that it comes back.
func virtualNode(t *testing.T, c *continuum) {
	node := c.nodeReady(t, "rome", "milan")
	tenant, err := get[v1alpha1.Peering](c, "rome", "", "milan")
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		v1alpha1.LabelType: v1alpha1.TypeVirtualNode, v1alpha1.LabelRemoteClusterID: tenant.Spec.ClusterID, "type": "virtual-kubelet",
		"hardware": "fast", "topology.kubernetes.io/region": "eu-north", corev1.LabelOSStable: "linux",
		"node.kubernetes.io/exclude-from-external-load-balancers": "true", corev1.LabelHostname: "milan",
	} {
		if node.Labels[key] != want {
			t.Errorf("label %s is %q, want %q", key, node.Labels[key], want)
		}
	}
	real, err := get[corev1.Node](c, "milan", "", "milan-1")
	if err != nil {
		t.Fatal(err)
	}
	if node.Status.NodeInfo.Architecture != real.Status.NodeInfo.Architecture || node.Labels[corev1.LabelArchStable] != real.Status.NodeInfo.Architecture {
		t.Errorf("architecture %s, want that of the provider's nodes, %s", node.Status.NodeInfo.Architecture, real.Status.NodeInfo.Architecture)
	}
	if !slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool {
		return taint.Key == v1alpha1.TaintVirtualNode && taint.Effect == corev1.TaintEffectNoExecute
	}) {
		t.Errorf("taints %v", node.Spec.Taints)
	}
	if err := c.Clients["rome"].Delete(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, "a deleted virtual node comes back", func() error {
		now, err := get[corev1.Node](c, "rome", "", "milan")
		if err != nil {
			return err
		}
		if now.UID == node.UID || !strings.HasPrefix(nodeReadiness(now), "True") {
			return fmt.Errorf("it has UID %s, Ready %s", now.UID, nodeReadiness(now))
		}
		return nil
	})
}

// allocatable holds that pods running there do not count twice: what the scheduler has
// left changes by exactly their requests.
func allocatable(t *testing.T, c *continuum) {
	s := c.offloaded(t, "rome", "--pod-offloading-strategy", "Remote")
	left := func() (int64, error) {
		node, err := get[corev1.Node](c, "rome", "", "milan")
		if err != nil {
			return 0, err
		}
		var pods corev1.PodList
		if err := c.Clients["rome"].List(context.Background(), &pods, client.MatchingFields{"spec.nodeName": "milan"}); err != nil {
			return 0, err
		}
		sum := node.Status.Allocatable.Cpu().MilliValue()
		for _, pod := range pods.Items {
			if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
				sum -= pod.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()
			}
		}
		return sum, nil
	}
	before, err := left()
	if err != nil || before <= 0 {
		t.Fatalf("left before: %dm, %v", before, err)
	}
	const count, each = 4, 50
	for i := range count {
		pod := s.sleeper(fmt.Sprintf("load-%d", i))
		pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = *resource.NewMilliQuantity(each, resource.DecimalSI)
		s.create(t, pod)
	}
	for i := range count {
		s.running(t, fmt.Sprintf("load-%d", i))
	}
	s.eventually(t, 30*time.Second, "what is left has gone down by what the pods request", func() error {
		now, err := left()
		if err == nil && before-now != count*each {
			err = fmt.Errorf("from %dm to %dm", before, now)
		}
		return err
	})
}

// strangersStayAway holds that no pod of another namespace is bound to a virtual node,
// and that DaemonSets which tolerate everything still roll out.
func strangersStayAway(t *testing.T, c *continuum) {
	s := c.shop(t, "rome")
	everything := []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	pod := onto(s.sleeper("stranger"), "milan")
	pod.Spec.Tolerations = everything
	s.create(t, pod)
	set := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "agent", Namespace: s.name},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "agent"}}, Spec: s.sleeper("agent").Spec},
		},
	}
	set.Spec.Template.Spec.Tolerations = everything
	s.create(t, set)
	if out, err := s.kubectl(t, "rollout", "status", "daemonset/agent", "--timeout=60s"); err != nil {
		t.Errorf("rollout of a DaemonSet that tolerates everything: %s %v", out, err)
		s.dump(t)
	}
	never(t, 10*time.Second, "a pod of another namespace is bound to a virtual node", func() (bool, error) {
		now, err := get[corev1.Pod](c, "rome", s.name, "stranger")
		return err == nil && now.Spec.NodeName != "", err
	})
	direct := s.sleeper("direct")
	direct.Spec.NodeName, direct.Spec.Tolerations = "milan", everything
	if err := c.Clients["rome"].Create(t.Context(), direct); err == nil || !strings.Contains(err.Error(), "offload") {
		t.Errorf("a pod that names the virtual node itself: %v, want a refusal that says what to do", err)
	}
	var list corev1.PodList
	if err := c.Clients["milan"].List(t.Context(), &list, client.HasLabels{v1alpha1.LabelHomeUID}); err != nil || len(list.Items) > 0 {
		t.Errorf("milan runs %d pods, %v; want none of a namespace that is not offloaded", len(list.Items), err)
	}
	namespace, err := get[corev1.Namespace](c, "rome", "", s.name)
	if err != nil {
		t.Fatal(err)
	}
	before := namespace.DeepCopy()
	namespace.Labels[v1alpha1.LabelOffloaded] = "true"
	if err := c.Clients["rome"].Patch(t.Context(), namespace, client.MergeFrom(before)); err == nil {
		t.Errorf("somebody writes the label that admission goes by")
	}
}

// policies holds the twelve outcomes of strategy, RuntimeClass and wish.
func policies(t *testing.T, c *continuum) {
	type wish struct {
		name    string
		class   bool
		node    string // pinned to
		allowed map[v1alpha1.PodOffloadingStrategy]bool
	}
	const local, remote, both = v1alpha1.PodsLocal, v1alpha1.PodsRemote, v1alpha1.PodsLocalAndRemote
	wishes := []wish{
		{"local", false, "rome-1", map[v1alpha1.PodOffloadingStrategy]bool{local: true, both: true}},
		{"remote", false, "milan", map[v1alpha1.PodOffloadingStrategy]bool{remote: true, both: true}},
		{"class-remote", true, "milan", map[v1alpha1.PodOffloadingStrategy]bool{local: true, remote: true, both: true}},
		{"class-local", true, "rome-1", nil},
	}
	shops := map[v1alpha1.PodOffloadingStrategy]shop{}
	for _, strategy := range []v1alpha1.PodOffloadingStrategy{local, remote, both} {
		s := c.offloaded(t, "rome", "--pod-offloading-strategy", string(strategy))
		shops[strategy] = s
		for _, w := range wishes {
			pod := onto(s.sleeper(w.name), w.node)
			if w.class {
				class := v1alpha1.RuntimeClass
				pod.Spec.RuntimeClassName = &class
			}
			s.create(t, pod)
		}
	}
	for strategy, s := range shops {
		for _, w := range wishes {
			if w.allowed[strategy] {
				if pod := s.running(t, w.name); pod.Spec.NodeName != w.node {
					t.Errorf("%s, %s: runs on %s", strategy, w.name, pod.Spec.NodeName)
				}
			}
		}
	}
	never(t, 10*time.Second, "a pod is bound against its strategy", func() (bool, error) {
		for strategy, s := range shops {
			for _, w := range wishes {
				pod, err := get[corev1.Pod](c, "rome", s.name, w.name)
				if err != nil {
					return false, err
				}
				if !w.allowed[strategy] && pod.Spec.NodeName != "" {
					t.Logf("%s, %s is on %s", strategy, w.name, pod.Spec.NodeName)
					return true, nil
				}
			}
		}
		return false, nil
	})
}

// namespaces holds how names are given, refused and given again.
func namespaces(t *testing.T, c *continuum) {
	s := c.offloaded(t, "rome")
	o := s.phase(t, v1alpha1.OffloadingPhaseReady)
	there := s.name + "-rome"
	if len(o.Status.Clusters) != 1 || o.Status.Clusters[0].RemoteNamespace != there {
		t.Errorf("clusters %+v, want milan with %s", o.Status.Clusters, there)
	}
	pod := s.sleeper("stays")
	s.create(t, onto(pod, "milan"))
	s.running(t, "stays")
	t.Run("deleted by hand", func(t *testing.T) {
		before, err := get[corev1.Namespace](c, "milan", "", there)
		if err != nil {
			t.Fatal(err)
		}
		if before.Labels["pod-security.kubernetes.io/enforce"] != "baseline" {
			t.Errorf("labels %v, want the Pod Security level of the tenant", before.Labels)
		}
		if err := c.Clients["milan"].Delete(t.Context(), before); err != nil {
			t.Fatal(err)
		}
		s.eventually(t, 2*time.Minute, "the namespace is made again and its pod runs in it", func() error {
			now, err := get[corev1.Namespace](c, "milan", "", there)
			if err != nil {
				return err
			}
			twin, err := c.twin("milan", pod)
			if err != nil || now.UID == before.UID || twin.Status.Phase != corev1.PodRunning {
				return fmt.Errorf("namespace %s (was %s), pod %v", now.UID, before.UID, err)
			}
			return nil
		})
		s.running(t, "stays")
	})
	t.Run("conflict", func(t *testing.T) {
		other := c.shop(t, "rome")
		taken := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other.name + "-rome"}}
		if err := c.Clients["milan"].Create(t.Context(), taken); err != nil {
			t.Fatal(err)
		}
		r := c.TryPelago(t, "rome", "offload", "namespace", other.name, "--timeout", "20s")
		if r.Code == 0 || !strings.Contains(r.Out+r.Errs, taken.Name) {
			t.Errorf("offloading onto a namespace that is taken: exit %d\n%s%s", r.Code, r.Out, r.Errs)
		}
		other.phase(t, v1alpha1.OffloadingPhaseAllFailed)
		now, err := get[corev1.Namespace](c, "milan", "", taken.Name)
		if err != nil || now.UID != taken.UID || now.Labels[v1alpha1.LabelTenant] != "" {
			t.Errorf("the namespace that was there: %v, labels %v", err, now.Labels)
		}
		if err := c.Clients["milan"].Delete(t.Context(), taken); err != nil {
			t.Fatal(err)
		}
		other.phase(t, v1alpha1.OffloadingPhaseReady)
	})
	t.Run("names need leave", func(t *testing.T) {
		other := c.shop(t, "rome")
		args := []string{"offload", "namespace", other.name, "--namespace-mapping-strategy", "SelectedName", "--remote-name", "chosen", "--timeout", "20s"}
		r := c.TryPelago(t, "rome", args...)
		if r.Code == 0 || !strings.Contains(r.Out+r.Errs, v1alpha1.ReasonNameForbidden) && !strings.Contains(r.Out+r.Errs, "namespaceNames") {
			t.Errorf("a chosen name without leave: exit %d\n%s%s", r.Code, r.Out, r.Errs)
		}
		c.patchTenant(t, "milan", "rome", func(tenant *v1alpha1.Tenant) { tenant.Spec.NamespaceNames = []string{"chosen"} })
		t.Cleanup(func() {
			c.patchTenant(t, "milan", "rome", func(tenant *v1alpha1.Tenant) { tenant.Spec.NamespaceNames = nil })
		})
		other.phase(t, v1alpha1.OffloadingPhaseReady)
		if n, err := get[corev1.Namespace](c, "milan", "", "chosen"); err != nil || n.Labels[v1alpha1.LabelTenant] != "rome" {
			t.Errorf("namespace chosen: %v", err)
		}
	})
	t.Run("label", func(t *testing.T) {
		other := c.shop(t, "rome")
		set := func(value any) {
			patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, v1alpha1.LabelOffload, value))
			if err := c.Clients["rome"].Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other.name}}, patch); err != nil {
				t.Fatal(err)
			}
		}
		set(`"true"`)
		other.phase(t, v1alpha1.OffloadingPhaseReady)
		set("null")
		eventually(t, offloadLimit, "the offloading is gone, here and there", func() error {
			if _, err := other.offloading(); !apierrors.IsNotFound(err) {
				return fmt.Errorf("offloading: %v", err)
			}
			if _, err := get[corev1.Namespace](c, "milan", "", other.name+"-rome"); !apierrors.IsNotFound(err) {
				return fmt.Errorf("namespace at milan: %v", err)
			}
			return nil
		})
	})
	t.Run("selector", func(t *testing.T) {
		other := c.shop(t, "rome")
		r := c.TryPelago(t, "rome", "offload", "namespace", other.name, "--cluster-selector", "hardware=slow", "--timeout", "20s")
		if r.Code == 0 || !strings.Contains(r.Out+r.Errs, "matches none") {
			t.Errorf("a selector that matches nothing: exit %d\n%s%s", r.Code, r.Out, r.Errs)
		}
		other.phase(t, v1alpha1.OffloadingPhaseNoClusterSelected)
		c.Pelago(t, "rome", "offload", "namespace", other.name, "--cluster-selector", "hardware in (fast,slow)")
		other.phase(t, v1alpha1.OffloadingPhaseReady)
	})
}

func (c *continuum) patchTenant(t *testing.T, cluster, name string, change func(*v1alpha1.Tenant)) {
	t.Helper()
	tenant, err := get[v1alpha1.Tenant](c, cluster, "", name)
	if err != nil {
		t.Fatal(err)
	}
	before := tenant.DeepCopy()
	change(tenant)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := c.Clients[cluster].Patch(ctx, tenant, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// kubeletRights holds that the kubelet's API of a virtual node is for those who may.
func kubeletRights(t *testing.T, c *continuum) {
	s := c.offloaded(t, "rome", "--pod-offloading-strategy", "Remote")
	s.create(t, s.sleeper("target"))
	s.running(t, "target")
	node := c.nodeReady(t, "rome", "milan")
	address := fmt.Sprintf("https://%s:%d", node.Status.Addresses[0].Address, node.Status.DaemonEndpoints.KubeletEndpoint.Port)
	spy := c.shop(t, "rome")
	c.Run(t, "image", "build", callerImage, "--from-packages", "curl,dash,coreutils")
	c.Run(t, "image", "load", callerImage, "rome")
	pod := onto(spy.sleeper("spy"), "rome-1")
	pod.Spec.Containers[0].Image = callerImage
	spy.create(t, pod)
	spy.running(t, "spy")
	paths := []string{"/pods", "/containerLogs/" + s.name + "/target/main", "/exec/" + s.name + "/target/main?command=id&output=1", "/stats/summary", "/metrics/resource", "/healthz", "/"}
	for _, path := range paths {
		line := fmt.Sprintf(`T=$(cat /var/run/secrets/kubernetes.io/serviceaccount/token); for H in "X: y" "Authorization: Bearer $T"; do curl -sk -m 10 -o /dev/null -w '%%{http_code} ' -H "$H" '%s%s'; done`, address, path)
		out, err := spy.kubectl(t, "exec", "spy", "--", "sh", "-c", line)
		if got := strings.Fields(out); err != nil || !slices.Equal(got, []string{"401", "403"}) {
			t.Errorf("%s from a pod, without and with its token: %q, %v; want 401 and 403", path, out, err)
		}
	}
}

// top holds that what pods there use is seen here.
func top(t *testing.T, c *continuum) {
	s := c.offloaded(t, "rome", "--pod-offloading-strategy", "Remote")
	// A shell alone can have a working set of nothing, and is then not shown.
	s.create(t, s.script("busy", `x=$(head -c 4000000 /dev/zero | tr '\000' x); while true; do :; done`))
	s.running(t, "busy")
	s.eventually(t, 2*time.Minute, "top shows what the pod uses", func() error {
		out, err := s.kubectl(t, "top", "pod", "busy", "--no-headers")
		if err != nil {
			return err
		}
		if f := strings.Fields(out); len(f) != 3 || f[1] == "0m" || !strings.HasSuffix(f[2], "Mi") || f[2] == "0Mi" {
			return fmt.Errorf("top says %q", out)
		}
		return nil
	})
}

// mutableFields holds that image, ephemeral containers and resources follow.
func mutableFields(t *testing.T, c *continuum) {
	s := c.offloaded(t, "rome", "--pod-offloading-strategy", "Remote")
	s.create(t, s.sleeper("changes"))
	home := s.running(t, "changes")
	if out, err := s.kubectl(t, "debug", "changes", "--image="+boxImage, "--image-pull-policy=Never", "--profile=baseline", "--container=look", "--", "sh", "-c", "echo looking; sleep 300"); err != nil {
		t.Errorf("debug: %s %v", out, err)
	}
	s.eventually(t, offloadLimit, "the ephemeral container runs there", func() error {
		out, err := s.kubectl(t, "logs", "changes", "-c", "look")
		if err != nil || !strings.Contains(out, "looking") {
			return fmt.Errorf("%q %v", out, err)
		}
		return nil
	})
	if out, err := s.kubectl(t, "patch", "pod", "changes", "--subresource=resize", "-p",
		`{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"25m"}}}]}}`); err != nil {
		t.Errorf("resize: %s %v", out, err)
	}
	if out, err := s.kubectl(t, "label", "pod", "changes", "tier=gold"); err != nil {
		t.Errorf("label: %s %v", out, err)
	}
	s.eventually(t, offloadLimit, "resources and labels have followed", func() error {
		twin, err := c.twin("milan", home)
		if err != nil {
			return err
		}
		if cpu := twin.Spec.Containers[0].Resources.Requests.Cpu(); cpu.MilliValue() != 25 || twin.Labels["tier"] != "gold" {
			return fmt.Errorf("cpu %s, labels %v", cpu, twin.Labels)
		}
		return nil
	})
}

// downwardAPI holds that a pod there sees who it is here.
func downwardAPI(t *testing.T, c *continuum) {
	s := c.offloaded(t, "rome", "--pod-offloading-strategy", "Remote")
	pod := s.script("who", `echo "env=$NS/$NAME/$NODE/$UID_/$COLOR"; for f in /info/*; do echo "$(basename $f)=$(cat $f)"; done; sleep 1000`)
	pod.Labels["color"] = "blue"
	env := func(name, path string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
	}
	item := func(name, path string) corev1.DownwardAPIVolumeFile {
		return corev1.DownwardAPIVolumeFile{Path: name, FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	main := &pod.Spec.Containers[0]
	main.Env = []corev1.EnvVar{env("NS", "metadata.namespace"), env("NAME", "metadata.name"), env("NODE", "spec.nodeName"), env("UID_", "metadata.uid"), env("COLOR", "metadata.labels['color']")}
	main.VolumeMounts = []corev1.VolumeMount{{Name: "info", MountPath: "/info"}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "info", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
		Items: []corev1.DownwardAPIVolumeFile{item("namespace", "metadata.namespace"), item("labels", "metadata.labels")}}}}}
	s.create(t, pod)
	home := s.running(t, "who")
	out, err := s.kubectl(t, "logs", "who")
	for _, want := range []string{fmt.Sprintf("env=%s/who/milan/%s/blue", s.name, home.UID), "namespace=" + s.name, `labels=app="who"`, `color="blue"`} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("the pod says %q, %v; want %s", out, err, want)
		}
	}
	if strings.Contains(out, "pelago") {
		t.Errorf("the pod sees ours: %s", out)
	}
}

// pullSecrets holds that the Secrets by which a pod's images are pulled travel with it,
// follow their changes and go with it, and that no other Secret does.
func pullSecrets(t *testing.T, c *continuum) {
	s := c.offloaded(t, "rome", "--pod-offloading-strategy", "Remote")
	login := func(password string) map[string][]byte {
		return map[string][]byte{corev1.DockerConfigJsonKey: fmt.Appendf(nil, `{"auths":{"registry.example":{"username":"rome","password":%q}}}`, password)}
	}
	registry := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "registry"}, Type: corev1.SecretTypeDockerConfigJson, Data: login("first")}
	other := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Data: map[string][]byte{"key": []byte("private")}}
	s.create(t, registry)
	s.create(t, other)
	pod := s.sleeper("pulls")
	pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
	s.create(t, pod)
	s.running(t, "pulls")
	there := s.name + "-rome"
	has := func(password string) func() error {
		return func() error {
			got, err := get[corev1.Secret](c, "milan", there, "registry")
			if err == nil && !strings.Contains(string(got.Data[corev1.DockerConfigJsonKey]), password) {
				err = fmt.Errorf("it is another one")
			}
			return err
		}
	}
	s.eventually(t, offloadLimit, "the Secret is there", has("first"))
	registry.Data = login("second")
	if err := c.Clients["rome"].Update(t.Context(), registry); err != nil {
		t.Fatal(err)
	}
	s.eventually(t, 2*offloadLimit, "the Secret has followed", has("second"))
	if _, err := get[corev1.Secret](c, "milan", there, "other"); !apierrors.IsNotFound(err) {
		t.Errorf("a Secret at milan that no pod refers to: %v, want none", err)
	}
}
