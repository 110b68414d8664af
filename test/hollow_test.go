package test

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/pelago-dev/pelago/internal/kubetest"
)

// hollowFile is a sandbox without machines: rome's pods take two seconds to start.
const hollowFile = `profile: control-plane
clusters:
- name: rome
  hollow: 20
  hollowStart: 2s
- name: milan
  hollow: 1
`

// hollowObjects are 200 pods that stay and a Job whose pods end by themselves.
const hollowObjects = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 200
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: none}], terminationGracePeriodSeconds: 600}
---
apiVersion: batch/v1
kind: Job
metadata: {name: report}
spec:
  completions: 3
  parallelism: 3
  template:
    metadata: {labels: {app: report}, annotations: {sandbox.pelago.dev/ends-after: 1s}}
    spec: {restartPolicy: Never, containers: [{name: report, image: none}]}
`

// TestControlPlane has clusters that are control planes and hollow nodes alone: real
// schedulers and controllers take them for whole.
func TestControlPlane(t *testing.T) {
	s := kubetest.Sandbox(t, kubetest.Options{Name: "hollow", File: sandboxFile(t, hollowFile)})
	t.Run("NoPortIsOpen", func(t *testing.T) { noPortIsOpen(t, s) })
	objects := filepath.Join(t.TempDir(), "objects.yaml")
	if err := os.WriteFile(objects, []byte(hollowObjects), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Kubectl(t, "rome", "apply", "-f", objects)
	s.Kubectl(t, "rome", "rollout", "status", "deployment/web", "--timeout=120s")
	s.Kubectl(t, "rome", "wait", "--for=condition=complete", "job/report", "--timeout=120s")
	before := hollowPods(t, s, 200)
	if got := hollowRequests(t, s); got["patch pods/status"] != 200+2*3 || got["delete pods"] != 0 {
		t.Errorf("one request a pod, and two for one that ends, are 206; there were %v", got)
	}
	t.Run("Restart", func(t *testing.T) { hollowRestart(t, s, before) })
	t.Run("Deletion", func(t *testing.T) { hollowDeletion(t, s) })
}

// hollowPods are the pods of the Deployment by name; each must run as stated.
func hollowPods(t *testing.T, s *kubetest.SandboxHandle, count int) map[string]string {
	t.Helper()
	var list corev1.PodList
	s.JSON(t, &list, "kubectl", "rome", "--", "get", "pods", "-l", "app=web", "-o", "json")
	addresses, whose := map[string]string{}, map[string]string{}
	half := netip.MustParsePrefix("10.42.128.0/17")
	for _, p := range list.Items {
		address, err := netip.ParseAddr(p.Status.PodIP)
		if err != nil || !half.Contains(address) || whose[p.Status.PodIP] != "" {
			t.Errorf("pod %s has the address %q (also of %q): want one of its own in %s", p.Name, p.Status.PodIP, whose[p.Status.PodIP], half)
		}
		addresses[p.Name], whose[p.Status.PodIP] = p.Status.PodIP, p.Name
		// API times are whole seconds, so two seconds may read as one.
		if p.Status.StartTime == nil || p.Status.StartTime.Sub(p.CreationTimestamp.Time) < time.Second {
			t.Errorf("pod %s was made at %s and started at %v, want two seconds later", p.Name, p.CreationTimestamp, p.Status.StartTime)
		}
		if err := isReady(&p); err != nil || !strings.HasPrefix(p.Spec.NodeName, "rome-hollow-") || !p.Status.ContainerStatuses[0].Ready {
			t.Errorf("pod %s on %s: %v", p.Name, p.Spec.NodeName, err)
		}
	}
	if len(addresses) != count {
		t.Errorf("%d pods run, want %d", len(addresses), count)
	}
	return addresses
}

// hollowRequests counts what the hollow nodes of rome have asked of its API server
// about pods, and what was done.
func hollowRequests(t *testing.T, s *kubetest.SandboxHandle) map[string]int {
	t.Helper()
	log, err := os.Open(filepath.Join("/var/lib/pelago-sandbox", s.Name, "rome-control/log/audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	counts := map[string]int{}
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct {
			Verb           string
			User           struct{ Username string }
			ObjectRef      struct{ Resource, Subresource string }
			ResponseStatus struct{ Code int }
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil || e.User.Username != "pelago-hollow" || e.ResponseStatus.Code >= 300 {
			continue // also a line that is being written
		}
		counts[strings.TrimSuffix(e.Verb+" "+e.ObjectRef.Resource+"/"+e.ObjectRef.Subresource, "/")]++
	}
	return counts
}

// hollowRestart kills the program that serves rome's nodes. What runs keeps its
// addresses, and new pods get others.
func hollowRestart(t *testing.T, s *kubetest.SandboxHandle, before map[string]string) {
	pid := hollowProcess(t, s, 0)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	hollowProcess(t, s, pid)
	s.Kubectl(t, "rome", "scale", "deployment/web", "--replicas=220")
	s.Kubectl(t, "rome", "rollout", "status", "deployment/web", "--timeout=120s")
	now := hollowPods(t, s, 220)
	for name, address := range before {
		if now[name] != address {
			t.Errorf("pod %s had the address %s and has %q", name, address, now[name])
		}
	}
}

// hollowProcess waits for the process that serves rome's nodes, other than old.
func hollowProcess(t *testing.T, s *kubetest.SandboxHandle, old int) (pid int) {
	t.Helper()
	file := filepath.Join("/var/lib/pelago-sandbox", s.Name, "clusters/rome")
	eventually(t, patience, "the process of hollow nodes", func() error {
		all, err := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, path := range all {
			line, _ := os.ReadFile(path)
			words := strings.Split(string(line), "\x00")
			if len(words) > 2 && words[1] == "hollow" && strings.HasPrefix(words[2], file) {
				if pid, err = strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && pid != old {
					return nil
				}
			}
		}
		return errors.Join(err, errors.New("there is none"))
	})
	return pid
}

// hollowDeletion deletes pods that have ten minutes of grace; they are gone at once.
func hollowDeletion(t *testing.T, s *kubetest.SandboxHandle) {
	s.Kubectl(t, "rome", "delete", "deployment/web")
	eventually(t, patience, "the end of all pods", func() error {
		if left := strings.Fields(s.Kubectl(t, "rome", "get", "pods", "-l", "app=web", "-o", "name")); len(left) > 0 {
			return fmt.Errorf("%d are left", len(left))
		}
		return nil
	})
	if got := hollowRequests(t, s)["delete pods"]; got != 220 {
		t.Errorf("%d requests deleted 220 pods", got)
	}
}

// noPortIsOpen asks every port that the clusters listen on without a credential.
func noPortIsOpen(t *testing.T, s *kubetest.SandboxHandle) {
	for _, cluster := range []string{"rome", "milan"} {
		api, err := netip.ParseAddrPort(strings.TrimPrefix(statusOf(t, s).api(t, cluster), "https://"))
		if err != nil {
			t.Fatal(err)
		}
		// A stranger, who does not care to whom he talks: it is the answer that must be a refusal.
		client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
		for port := api.Port(); port < api.Port()+4; port++ {
			answer, err := client.Get(fmt.Sprintf("https://%s/metrics", netip.AddrPortFrom(api.Addr(), port)))
			if err == nil {
				answer.Body.Close()
				if answer.StatusCode != http.StatusForbidden && answer.StatusCode != http.StatusUnauthorized {
					t.Errorf("%s answers whoever asks on port %d: %s", cluster, port, answer.Status)
				}
			} else if errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("nobody listens on port %d of %s", port, cluster)
			}
		}
		peer := filepath.Join("/var/lib/pelago-sandbox", s.Name, cluster+"-control", "peer:0")
		if info, err := os.Stat(peer); err != nil || info.Mode()&fs.ModeSocket == 0 {
			t.Errorf("etcd of %s has no socket for its peers, which it would need a port for: %v", cluster, err)
		}
	}
}
