package test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// takeoverLimit is how long nobody leads after the leader died without a word. A busy machine has twice as long: the
// library looks at the Lease each 1 to 2.2 s, so that the one that follows may come to it late, and late again.
const takeoverLimit = 10 * time.Second

// leaderDies holds that another replica follows a manager that is killed, that nothing
// which happens meanwhile is lost, and that clusters do not notice.
func leaderDies(t *testing.T, c *continuum) {
	s := c.offloaded(t, "rome", "--pod-offloading-strategy", "Remote")
	s.create(t, s.deployment("web", 2))
	before := s.runningAll(t, "web", 2)
	leader := c.leader(t, "rome")
	killed := c.kill(t, "rome", leader.pod)
	begin := time.Now()

	// What happens meanwhile: a pod is made, one is deleted, a namespace comes and goes.
	// A call that was on its way to the dead one fails: what made it tries again.
	s.create(t, s.deployment("meanwhile", 1))
	if err := c.Clients["rome"].Delete(t.Context(), &before[0]); err != nil {
		t.Fatal(err)
	}
	passing := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "passing"}}
	if err := c.Clients["rome"].Create(t.Context(), passing); err != nil {
		t.Fatal(err)
	}
	if err := c.Clients["rome"].Delete(t.Context(), passing); err != nil {
		t.Fatal(err)
	}
	s.eventually(t, 2*takeoverLimit, "another replica leads", func() error {
		node, err := get[corev1.Node](c, "rome", "", "milan")
		if err != nil {
			return err
		}
		if !strings.HasPrefix(nodeReadiness(node), "True") {
			t.Errorf("the virtual node is %q while nobody leads", nodeReadiness(node))
		}
		if now, err := c.leading("rome"); err != nil {
			return err
		} else if now.holder == leader.holder {
			return fmt.Errorf("the Lease is still that of process %d, which is dead", killed)
		}
		return nil
	})
	t.Logf("another leads after %s", time.Since(begin).Round(100*time.Millisecond))
	made := s.runningAll(t, "meanwhile", 1)[0]
	t.Logf("a pod made meanwhile runs after %s", time.Since(begin).Round(100*time.Millisecond))
	s.gone(t, "milan", &before[0])
	s.runningAll(t, "web", 2)
	s.eventually(t, patience, "a namespace deleted meanwhile is gone", func() error {
		_, err := get[corev1.Namespace](c, "rome", "", "passing")
		if err == nil {
			return fmt.Errorf("it is still there")
		}
		return nil
	})
	s.eventually(t, offloadLimit, "logs are read through the one that leads now", func() error {
		out, err := s.kubectl(t, "logs", made.Name)
		if err == nil && !strings.Contains(out, "started") {
			err = fmt.Errorf("logs: %q", out)
		}
		return err
	})
	if now, err := get[corev1.Pod](c, "rome", s.name, before[1].Name); err != nil || now.UID != before[1].UID {
		t.Errorf("a pod that nothing happened to was replaced: %v", err)
	}
	c.settle(t, "rome")
}

// homePaused holds that a home API server that answers nobody for longer than a replica
// leads stops nothing at the provider, restarts nothing, and is followed at once when it
// is back.
func homePaused(t *testing.T, c *continuum) {
	s := c.offloaded(t, "rome", "--pod-offloading-strategy", "Remote", "--cluster-selector", "region=north")
	s.create(t, s.deployment("web", 1))
	web := s.runningAll(t, "web", 1)[0]
	before := c.managerRestarts(t, "rome")
	c.Run(t, "api", "pause", "rome")
	resumed := false
	resume := func() {
		if !resumed {
			resumed = true
			c.Run(t, "api", "resume", "rome")
		}
	}
	t.Cleanup(resume)
	never(t, 25*time.Second, "the pod at milan stops while rome's API server is paused", func() (bool, error) {
		twin, err := c.twin("milan", &web)
		return err == nil && (twin.DeletionTimestamp != nil || isReady(twin) != nil), err
	})
	resume()
	begin := time.Now()
	eventually(t, patience, "rome's API server answers", func() error {
		return c.Clients["rome"].Get(t.Context(), client.ObjectKey{Name: s.name}, &corev1.Namespace{})
	})
	eventually(t, patience, "a Deployment can be made", func() error {
		d := s.deployment("after", 1)
		return client.IgnoreAlreadyExists(c.Clients["rome"].Create(t.Context(), d))
	})
	s.runningAll(t, "after", 1)
	t.Logf("a pod made afterwards runs %s after the API server goes on", time.Since(begin).Round(100*time.Millisecond))
	if after := c.managerRestarts(t, "rome"); after != before {
		t.Errorf("containers of the manager were restarted %d times", after-before)
	}
	if now, err := get[corev1.Pod](c, "rome", s.name, web.Name); err != nil || now.UID != web.UID || isReady(now) != nil {
		t.Errorf("a pod that nothing happened to: %v", err)
	}
	c.settle(t, "rome")
}

// managerRestarts is how often containers of a cluster's manager were restarted.
func (c *continuum) managerRestarts(t *testing.T, cluster string) (count int32) {
	t.Helper()
	var pods corev1.PodList
	if err := c.Clients[cluster].List(t.Context(), &pods, client.InNamespace(v1alpha1.SystemNamespace)); err != nil {
		t.Fatal(err)
	}
	for i := range pods.Items {
		for _, s := range pods.Items[i].Status.ContainerStatuses {
			count += s.RestartCount
		}
	}
	return count
}

// leader is which replica of a cluster's manager leads.
type leader struct{ holder, pod string }

func (c *continuum) leader(t *testing.T, cluster string) (now leader) {
	t.Helper()
	eventually(t, patience, "somebody leads in "+cluster, func() (err error) {
		now, err = c.leading(cluster)
		return err
	})
	return now
}

func (c *continuum) leading(cluster string) (leader, error) {
	lease, err := get[coordinationv1.Lease](c, cluster, v1alpha1.SystemNamespace, "pelago-manager")
	if err != nil || lease.Spec.HolderIdentity == nil {
		return leader{}, fmt.Errorf("nobody leads in %s: %w", cluster, cmp.Or(err, errors.New("the Lease names nobody")))
	}
	pod, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
	return leader{*lease.Spec.HolderIdentity, pod}, nil
}

// kill kills the process of a manager, which gets no chance to give its Lease back, and
// returns its number. The process is told from all others by its pod's address and uid.
func (c *continuum) kill(t *testing.T, cluster, name string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	pod := &corev1.Pod{}
	if err := c.Clients[cluster].Get(ctx, client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: name}, pod); err != nil {
		t.Fatal(err)
	}
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range lines {
		folder := filepath.Dir(file)
		line, err := os.ReadFile(file)
		if err != nil || !bytes.HasPrefix(line, []byte("/pelago-manager\x00")) {
			continue
		}
		environment, _ := os.ReadFile(filepath.Join(folder, "environ"))
		group, _ := os.ReadFile(filepath.Join(folder, "cgroup"))
		uid := strings.ReplaceAll(string(pod.UID), "-", "_")
		if !bytes.Contains(environment, []byte("HOSTNAME="+name+"\x00")) || !bytes.Contains(group, []byte(pod.UID)) && !bytes.Contains(group, []byte(uid)) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(folder))
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		return pid
	}
	t.Fatalf("no process of pod %s was found", name)
	return 0
}
