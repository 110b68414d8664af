package test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// refusedPods holds that what the provider refuses goes home with a reason: pods with a
// controller run elsewhere, bare ones say why.
func refusedPods(t *testing.T, c *continuum) {
	s := c.offloaded(t, "rome")
	bare := onto(s.sleeper("bare"), "milan")
	bare.Spec.HostNetwork = true
	s.create(t, bare)
	s.eventually(t, offloadLimit, "a bare pod says why it does not run", func() error {
		pod, err := get[corev1.Pod](c, "rome", s.name, "bare")
		if err != nil {
			return err
		}
		if text := fmt.Sprint(pod.Status.Conditions, pod.Status.Message); !strings.Contains(text, "hostNetwork") {
			return fmt.Errorf("status %s", text)
		}
		return nil
	})
	text := c.Pelago(t, "rome", "explain", "pod", "bare", "-n", s.name)
	if !strings.Contains(text, "hostNetwork") {
		t.Errorf("explain does not say why:\n%s", text)
	}

	// Prefers the virtual node, cannot run there, and ends up at home.
	d := s.deployment("chooses", 1)
	d.Spec.Template.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 31999}}
	d.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
		Weight: 100, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: v1alpha1.LabelType, Operator: corev1.NodeSelectorOpIn, Values: []string{v1alpha1.TypeVirtualNode}}}},
	}}}}
	s.create(t, d)
	pods := s.runningAll(t, "chooses", 1)
	if pods[0].Spec.NodeName != "rome-1" {
		t.Errorf("a pod that the provider refuses runs on %s", pods[0].Spec.NodeName)
	}
}

// lostByProvider holds that a pod the provider evicts or loses is made again there, and
// that its restarts are seen.
func lostByProvider(t *testing.T, c *continuum) {
	s := c.offloaded(t, "rome", "--pod-offloading-strategy", "Remote")
	pod := s.sleeper("kept")
	s.create(t, pod)
	home := s.running(t, "kept")
	for _, how := range []struct {
		name string
		lose func(twin *corev1.Pod) error
	}{
		{"evicted", func(twin *corev1.Pod) error {
			return c.Clients["milan"].SubResource("eviction").Create(t.Context(), twin, &policyv1.Eviction{})
		}},
		{"deleted", func(twin *corev1.Pod) error { return c.Clients["milan"].Delete(t.Context(), twin) }},
		{"deleted by force", func(twin *corev1.Pod) error {
			return c.Clients["milan"].Delete(t.Context(), twin, client.GracePeriodSeconds(0))
		}},
	} {
		t.Run(how.name, func(t *testing.T) {
			before, err := c.twin("milan", home)
			if err != nil {
				t.Fatal(err)
			}
			if err := how.lose(before); err != nil {
				t.Fatal(err)
			}
			s.eventually(t, offloadLimit, "another one runs there", func() error {
				now, err := c.twin("milan", home)
				if err != nil {
					return err
				}
				if now.UID == before.UID || now.Status.Phase != corev1.PodRunning {
					return fmt.Errorf("it is %s, %s", now.UID, now.Status.Phase)
				}
				return nil
			})
			if now := s.running(t, "kept"); now.UID != home.UID {
				t.Error("the home pod was replaced")
			}
		})
	}
	s.eventually(t, patience, "home counts what was lost as restarts", func() error {
		now, err := get[corev1.Pod](c, "rome", s.name, "kept")
		if err != nil {
			return err
		}
		if n := now.Status.ContainerStatuses[0].RestartCount; n < 3 {
			return fmt.Errorf("%d restarts", n)
		}
		return nil
	})
	killed := false
	s.eventually(t, offloadLimit, "a container's own restart is counted too", func() error {
		if !killed {
			out, err := s.kubectl(t, "exec", "kept", "--", "sh", "-c", "echo killing; kill 1")
			if killed = strings.Contains(out, "killing"); !killed {
				return fmt.Errorf("killing the container: %q, %v", out, err)
			}
		}
		now, err := get[corev1.Pod](c, "rome", s.name, "kept")
		if err != nil {
			return err
		}
		if n := now.Status.ContainerStatuses[0].RestartCount; n < 4 {
			return fmt.Errorf("%d restarts", n)
		}
		return nil
	})
}

// jobsEndOnce holds that what ended by itself is never run again, and that what was lost
// goes home as a disruption.
func jobsEndOnce(t *testing.T, c *continuum) {
	s := c.offloaded(t, "rome", "--pod-offloading-strategy", "Remote")
	s.create(t, s.job("once", "echo done"))
	finished := func(name string, kind batchv1.JobConditionType) func() error {
		return func() error {
			job, err := get[batchv1.Job](c, "rome", s.name, name)
			if err != nil {
				return err
			}
			for _, each := range job.Status.Conditions {
				if each.Type == kind && each.Status == corev1.ConditionTrue {
					return nil
				}
			}
			return fmt.Errorf("conditions %+v", job.Status.Conditions)
		}
	}
	s.eventually(t, offloadLimit, "the job is complete", finished("once", batchv1.JobComplete))
	pods, err := s.pods("once")
	if err != nil || len(pods) != 1 {
		t.Fatalf("%d pods, %v", len(pods), err)
	}
	s.says(t, pods[0].Name, "done")
	twin, err := c.twin("milan", &pods[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Clients["milan"].Delete(t.Context(), twin); err != nil {
		t.Fatal(err)
	}
	c.strike(t, "milan")
	lost := s.job("lost", "sleep 1000")
	ignore := batchv1.PodFailurePolicyActionIgnore
	lost.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
		Action: ignore, OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}},
	}}}
	s.create(t, lost)
	first := s.runningAll(t, "lost", 1)[0]
	running, err := c.twin("milan", &first)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Clients["milan"].Delete(t.Context(), running); err != nil {
		t.Fatal(err)
	}
	never(t, 10*time.Second, "a pod that ended by itself is run again", func() (bool, error) {
		now, err := c.twin("milan", &pods[0])
		return err == nil && now.UID != twin.UID, nil
	})
	s.eventually(t, offloadLimit, "the lost pod is replaced by the job, and not counted as its failure", func() error {
		pods, err := s.pods("lost")
		if err != nil {
			return err
		}
		for i := range pods {
			if pods[i].UID != first.UID && isReady(&pods[i]) == nil {
				return nil
			}
		}
		return fmt.Errorf("%d pods, none new and ready", len(pods))
	})
	if finished("lost", batchv1.JobFailed)() == nil {
		t.Error("the job has failed because the provider lost its pod")
	}
}

// strikeGrace is what a pod of Pelago gets that is to go at once. With none only the object
// does, and the kubelet lets the program answer on for as long as it may.
const strikeGrace client.GracePeriodSeconds = 1

// strike deletes the manager's pods of a cluster and waits until they are gone and others
// are there.
func (c *continuum) strike(t *testing.T, cluster string) {
	t.Helper()
	c.Kubectl(t, cluster, "delete", "pods", "-n", v1alpha1.SystemNamespace, "-l", "app.kubernetes.io/name=pelago-manager", fmt.Sprintf("--grace-period=%d", strikeGrace), "--timeout=3m")
	c.Kubectl(t, cluster, "rollout", "status", "-n", v1alpha1.SystemNamespace, "deploy/pelago-manager", "--timeout=3m")
}

// statefulByUID holds that a pod of a StatefulSet starts there only when the one of its
// name before is gone.
func statefulByUID(t *testing.T, c *continuum) {
	s := c.offloaded(t, "rome", "--pod-offloading-strategy", "Remote")
	one, grace := int32(1), int64(8)
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db", Namespace: s.name},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "db"}},
				Spec: s.script("db", "trap 'sleep 3; exit 0' TERM; while true; do sleep 0.2; done").Spec},
		},
	}
	set.Spec.Template.Spec.TerminationGracePeriodSeconds = &grace
	s.create(t, set)
	first := s.runningAll(t, "db", 1)[0]
	if err := c.Clients["rome"].Delete(t.Context(), &first, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	s.eventually(t, offloadLimit, "a new db-0 runs", func() error {
		var list corev1.PodList
		if err := c.Clients["milan"].List(t.Context(), &list, client.InNamespace(s.name+"-rome")); err != nil {
			return err
		}
		if len(list.Items) > 1 {
			t.Fatalf("two pods db-0 at once")
		}
		now, err := get[corev1.Pod](c, "rome", s.name, "db-0")
		if err != nil {
			return err
		}
		if now.UID == first.UID {
			return fmt.Errorf("it is still the old one")
		}
		return isReady(now)
	})
}

// tenantLimits holds that a tenant gets no more than its limits, however many pods come
// at once, and that a cordoned one gets nothing new.
func tenantLimits(t *testing.T, c *continuum) {
	s := c.offloaded(t, "rome", "--pod-offloading-strategy", "Remote")
	c.patchTenant(t, "milan", "rome", func(tenant *v1alpha1.Tenant) {
		tenant.Spec.Limits = &v1alpha1.TenantLimits{Enforcement: v1alpha1.EnforcementNone, Resources: v1alpha1.ResourceList{"pods": resource.MustParse("3")}}
	})
	t.Cleanup(func() { c.patchTenant(t, "milan", "rome", func(tenant *v1alpha1.Tenant) { tenant.Spec.Limits = nil }) })
	for i := range 6 {
		s.create(t, onto(s.sleeper(fmt.Sprintf("p%d", i)), "milan"))
	}
	running := func() (n int, err error) {
		pods, err := s.pods("")
		for i := range pods {
			if isReady(&pods[i]) == nil {
				n++
			}
		}
		return n, err
	}
	s.eventually(t, offloadLimit, "three run", func() error {
		n, err := running()
		if err == nil && n != 3 {
			err = fmt.Errorf("%d run", n)
		}
		return err
	})
	never(t, 10*time.Second, "more run than the limits allow", func() (bool, error) {
		n, err := running()
		return n > 3, err
	})
	c.patchTenant(t, "milan", "rome", func(tenant *v1alpha1.Tenant) { tenant.Spec.Limits = nil })
	s.eventually(t, 2*time.Minute, "all run when the limits are gone", func() error {
		n, err := running()
		if err == nil && n != 6 {
			err = fmt.Errorf("%d run", n)
		}
		return err
	})
	c.Pelago(t, "milan", "cordon", "tenant", "rome")
	t.Cleanup(func() { c.Pelago(t, "milan", "uncordon", "tenant", "rome") })
	s.create(t, onto(s.sleeper("late"), "milan"))
	never(t, 10*time.Second, "a cordoned tenant's new pod runs", func() (bool, error) {
		pod, err := get[corev1.Pod](c, "rome", s.name, "late")
		return err == nil && pod.Status.Phase == corev1.PodRunning, err
	})
	s.eventually(t, time.Minute, "the old pods run", func() error { // a tunnel may have been silent for a moment
		n, err := running()
		if err == nil && n != 6 {
			err = fmt.Errorf("%d run", n)
		}
		return err
	})
	c.Pelago(t, "milan", "uncordon", "tenant", "rome")
	s.running(t, "late")
}

// managersRestart holds that pods go on while managers restart, and that nothing that
// happens meanwhile is missed.
func managersRestart(t *testing.T, c *continuum) {
	s := c.offloaded(t, "rome", "--pod-offloading-strategy", "Remote")
	s.create(t, s.deployment("web", 3))
	pods := s.runningAll(t, "web", 3)
	for _, cluster := range []string{"rome", "milan"} {
		c.strike(t, cluster)
	}
	victim, err := c.twin("milan", &pods[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Clients["milan"].Delete(t.Context(), victim, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	if err := c.Clients["rome"].Delete(t.Context(), &pods[1]); err != nil {
		t.Fatal(err)
	}
	s.gone(t, "milan", &pods[1])
	now := s.runningAll(t, "web", 3)
	if !slices.ContainsFunc(now, func(pod corev1.Pod) bool { return pod.UID == pods[2].UID }) {
		t.Error("a pod that nothing happened to was replaced")
	}
}

// rollOut holds that pods can be made all the time while the managers of both clusters are
// replaced one by one, as in an upgrade, and while a leader loses its Lease.
func rollOut(t *testing.T, c *continuum) {
	s := c.offloaded(t, "rome", "--pod-offloading-strategy", "Remote")
	s.create(t, s.deployment("web", 1))
	web := s.runningAll(t, "web", 1)[0]
	ctx, stop := context.WithCancel(t.Context())
	made, ended := 0, make(chan error, 1)
	go func() {
		for tick := time.NewTicker(50 * time.Millisecond); ; made++ {
			select {
			case <-ctx.Done():
				ended <- nil
				return
			case <-tick.C:
			}
			pod := web.DeepCopy()
			pod.ObjectMeta = metav1.ObjectMeta{Namespace: s.name, Name: "another"}
			pod.Spec.NodeName = ""
			if err := c.Clients["rome"].Create(ctx, pod, client.DryRunAll); err != nil && ctx.Err() == nil {
				ended <- fmt.Errorf("pod %d: %w", made, err)
				return
			}
		}
	}()
	for _, cluster := range []string{"rome", "milan"} {
		c.Kubectl(t, cluster, "-n", v1alpha1.SystemNamespace, "rollout", "restart", "deployment/pelago-manager")
		c.Kubectl(t, cluster, "-n", v1alpha1.SystemNamespace, "rollout", "status", "deployment/pelago-manager", "--timeout=4m")
	}
	c.settle(t, "rome")
	lease, err := get[coordinationv1.Lease](c, "rome", v1alpha1.SystemNamespace, "pelago-manager")
	if err != nil {
		t.Fatal(err)
	}
	held, nobody := lease.DeepCopy(), "nobody"
	lease.Spec.HolderIdentity = &nobody
	if err := c.Clients["rome"].Patch(t.Context(), lease, client.MergeFrom(held)); err != nil {
		t.Fatal(err)
	}
	s.eventually(t, 2*takeoverLimit, "somebody leads again", func() error {
		now, err := c.leading("rome")
		if err == nil && (now.holder == nobody || now.holder == "") {
			err = fmt.Errorf("it is %q", now.holder)
		}
		return err
	})
	stop()
	if err := <-ended; err != nil || made < 10 {
		t.Errorf("pods while the managers are replaced or begin anew: %d were made, then %v", made, err)
	}
	if now, err := get[corev1.Pod](c, "rome", s.name, web.Name); err != nil || now.UID != web.UID || isReady(now) != nil {
		t.Errorf("a pod that nothing happened to: %v", err)
	}
	c.settle(t, "rome")
}

// podsInPartition holds what home shows of a peer it cannot reach, and how fast all is
// well again; the pods run on.
func podsInPartition(t *testing.T, c *continuum) {
	s := c.offloaded(t, "rome", "--pod-offloading-strategy", "Remote")
	s.create(t, s.deployment("web", 2))
	pods := s.runningAll(t, "web", 2)
	c.Run(t, "link", "cut", "rome", "milan")
	t.Cleanup(func() { c.Run(t, "link", "heal", "rome", "milan") })
	begin := time.Now()
	s.eventually(t, unreachableLimit, "the node and its pods are not ready", func() error {
		node, err := get[corev1.Node](c, "rome", "", "milan")
		if err != nil {
			return err
		}
		if got := nodeReadiness(node); got != "False "+v1alpha1.ReasonPeerUnreachable {
			return fmt.Errorf("node Ready is %s", got)
		}
		now, err := s.pods("web")
		for i := range now {
			if isReady(&now[i]) == nil {
				return fmt.Errorf("%s is shown ready", now[i].Name)
			}
		}
		return err
	})
	t.Logf("not ready after %s", time.Since(begin).Round(100*time.Millisecond))
	// What happens meanwhile: one dies there, one is deleted here.
	victim, err := c.twin("milan", &pods[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Clients["milan"].Delete(t.Context(), victim, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	s.eventually(t, offloadLimit, "the provider makes a lost pod again on its own", func() error {
		now, err := c.twin("milan", &pods[0])
		if err == nil && (now.UID == victim.UID || now.Status.Phase != corev1.PodRunning) {
			err = fmt.Errorf("it is %s", now.Status.Phase)
		}
		return err
	})
	if err := c.Clients["rome"].Delete(t.Context(), &pods[1]); err != nil {
		t.Fatal(err)
	}
	c.Run(t, "link", "heal", "rome", "milan")
	begin = time.Now()
	s.eventually(t, reachableLimit, "the node is ready again", func() error {
		node, err := get[corev1.Node](c, "rome", "", "milan")
		if err == nil && !strings.HasPrefix(nodeReadiness(node), "True") {
			err = fmt.Errorf("Ready is %s", nodeReadiness(node))
		}
		return err
	})
	t.Logf("ready after %s", time.Since(begin).Round(100*time.Millisecond))
	s.gone(t, "milan", &pods[1])
	if now := s.runningAll(t, "web", 2); !slices.ContainsFunc(now, func(pod corev1.Pod) bool { return pod.UID == pods[0].UID }) {
		t.Error("the pod that ran on was replaced")
	}
}

// unoffload holds that pods come home and nothing is left, and that a node that goes
// takes nothing with it but what ran there.
func unoffload(t *testing.T, c *continuum) {
	s := c.offloaded(t, "rome")
	d := s.deployment("web", 2)
	s.create(t, d)
	far := s.deployment("far", 1)
	far.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "milan"}
	s.create(t, far)
	s.runningAll(t, "web", 2)
	s.runningAll(t, "far", 1)
	volume := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data", Namespace: s.name + "-rome"},
		Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}}},
	}
	if err := c.Clients["milan"].Create(t.Context(), volume); err != nil {
		t.Fatal(err)
	}
	r := c.TryPelago(t, "rome", "unoffload", "namespace", s.name)
	if r.Code != 0 || !strings.Contains(r.Out+r.Errs, s.name+"-rome") {
		t.Errorf("unoffload with a volume there: exit %d\n%s%s", r.Code, r.Out, r.Errs)
	}
	if _, err := get[corev1.PersistentVolumeClaim](c, "milan", volume.Namespace, volume.Name); err != nil {
		t.Errorf("the volume claim is %v, want it kept", err)
	}
	if err := c.Clients["milan"].Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: volume.Namespace}}); err != nil {
		t.Error(err)
	}
	for _, pod := range s.runningAll(t, "web", 2) {
		if pod.Spec.NodeName != "rome-1" {
			t.Errorf("%s is on %s", pod.Name, pod.Spec.NodeName)
		}
	}
	var left v1alpha1.ShadowPodList
	if err := c.Clients["milan"].List(t.Context(), &left); err != nil {
		t.Error(err)
	}
	for _, each := range left.Items {
		if each.Spec.Home.Namespace == s.name {
			t.Errorf("shadow pod of %s is left", each.Spec.Home.Name)
		}
	}
}
