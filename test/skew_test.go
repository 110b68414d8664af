package test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/reach"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// oldestBuild and previousBuild are the commits of builds with which this one has to work: the first whose pods
// were offloaded, which knows nothing of networks, and the first with a network, which knows neither
// reachability nor NetworkPolicies nor direct paths. They become those of the last release, once there is one.
const (
	oldestBuild   = "7cfd343535ddd1e44b75aab3fb9b6090723313f9"
	previousBuild = "18ae54216e284cb3feb45636c0f06fef7e83ade6"
)

// compileLimit bounds making the previous build.
const compileLimit = 15 * time.Minute

const skewFile = `clusters:
- name: rome
  nodes: 1
  addons: [coredns, load-balancer]
- name: milan
  nodes: 1
  addons: [coredns, load-balancer]
`

// TestSkew holds that the previous and the current build work with each other in both
// roles, and that what runs goes on when the older side is upgraded.
func TestSkew(t *testing.T) {
	kubetest.RequireClusters(t)
	oldest, previous, current := compiled(t, oldestBuild), compiled(t, previousBuild), built(t)
	s := kubetest.Sandbox(t, kubetest.Options{Name: "skew", File: sandboxFile(t, skewFile)})
	c := newContinuum(t, s, "rome", "milan")
	box(t, s, "rome", "milan")
	for _, b := range []build{oldest, previous, current} {
		b.open(t)
		s.Run(t, "image", "build", b.image, "--dir", b.dir)
		s.Run(t, "image", "load", b.image, "rome", "milan")
	}
	// In the same clusters: this build is installed where it was removed. An older one is
	// in each cluster only once, as the oldest one's policies would be blind the second time.
	t.Run("OldestConsumer", func(t *testing.T) { skewed{c, oldest, current, current}.run(t) })
	t.Run("OldestProvider", func(t *testing.T) { skewed{c, current, oldest, current}.run(t) })
	t.Run("PreviousConsumer", func(t *testing.T) { skewed{c, previous, current, current}.run(t) })
	t.Run("PreviousProvider", func(t *testing.T) { skewed{c, current, previous, current}.run(t) })
}

// build is one build's programs, in a folder that is also the root of its image.
type build struct {
	dir, image string
	network    bool // pods call each other across clusters
}

// open lets everybody run the programs, whatever this process's umask is: in the image they
// are run by a user of no rights.
func (b build) open(t *testing.T) {
	t.Helper()
	files, err := os.ReadDir(b.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if err := os.Chmod(filepath.Join(b.dir, file.Name()), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// programs are those of this build.
var programs = []string{"pelago", "pelago-manager", "pelago-agent"}

// built is this build, as make build has made it.
func built(t *testing.T) build {
	t.Helper()
	b := build{t.TempDir(), "pelago.test/pelago:current", true}
	for _, program := range programs {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(kubetest.Program(t)), program))
		if err != nil {
			t.Fatalf("%v; run: make build", err)
		}
		if err := os.WriteFile(filepath.Join(b.dir, program), text, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// compiled is an older build, compiled from the history of this repository.
func compiled(t *testing.T, commit string) build {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), compileLimit)
	defer cancel()
	b := build{t.TempDir(), "pelago.test/pelago:" + commit[:7], commit != oldestBuild}
	source := t.TempDir()
	run := func(remedy string, command ...string) {
		t.Helper()
		cmd := exec.CommandContext(ctx, command[0], command[1:]...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v%s\n%s", strings.Join(command, " "), err, remedy, out)
		}
	}
	// The folder may be another user's, as in a container of CI.
	git := []string{"git", "-c", "safe.directory=*"}
	run("; this clone does not have the older build: git fetch --unshallow, or git fetch origin "+commit,
		append(slices.Clone(git), "cat-file", "-e", commit+"^{commit}")...)
	archive := filepath.Join(source, "source.tar")
	run("", append(slices.Clone(git), "-C", "..", "archive", "--output", archive, commit)...)
	run("", "tar", "-x", "-f", archive, "-C", source)
	compile := []string{"go", "build", "-C", source, "-trimpath", "-buildvcs=false",
		"-ldflags", "-s -w -X main.version=v0.1.0-dev." + commit[:7], "-o", b.dir + "/", "./cmd/pelago", "./cmd/pelago-manager"}
	if b.network {
		compile = append(compile, "./cmd/pelago-agent")
	}
	run("", compile...)
	return b
}

// install installs a build into a cluster, or upgrades what is there to it.
func (b build) install(t *testing.T, c *continuum, cluster string) {
	t.Helper()
	b.of(c).Pelago(t, cluster, "install", "--cluster-name", cluster, "--api-server-url", c.Configs[cluster].Host,
		"--image", b.image, "--set", "image.pullPolicy=Never", "--timeout", "3m")
}

// of holds the clusters with this build's pelago.
func (b build) of(c *continuum) *continuum { return &continuum{Continuum: c.With(b.dir)} }

// skewed is a consumer, rome, and a provider, milan, of two builds.
type skewed struct {
	*continuum
	consumer, provider, current build
}

func (k skewed) run(t *testing.T) {
	t.Cleanup(func() {
		for _, cluster := range []string{"rome", "milan"} {
			k.current.of(k.continuum).Pelago(t, cluster, "uninstall", "--purge")
		}
	})
	k.consumer.install(t, k.continuum, "rome")
	k.provider.install(t, k.continuum, "milan")
	rome, milan := k.consumer.of(k.continuum), k.provider.of(k.continuum)
	line := milan.Invite(t, "milan")
	t.Cleanup(func() { k.part(t, "rome", "milan") })
	if r := rome.Shell(t, "rome", line); r.Code != 0 {
		t.Fatalf("they do not peer: exit %d\n%s%s", r.Code, r.Out, r.Errs)
	}
	k.nodeReady(t, "rome", "milan")
	s := rome.offloaded(t, "rome", "--pod-offloading-strategy", "Remote")
	s.create(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"color": "blue"}})
	s.create(t, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "first"}, Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": "first"}, Ports: []corev1.ServicePort{{Port: 80}}}})
	s.create(t, colored(s, "first"))
	home := s.running(t, "first")
	there, err := get[corev1.Pod](k.continuum, "milan", s.name+"-rome", "first")
	if err != nil {
		t.Fatal(err)
	}
	k.followed(t, s)
	var x *crossing
	var probes []*watched
	var stay []*corev1.Pod
	if k.consumer.network && k.provider.network {
		x = connected(t, rome)
		probes, stay = x.watchedBy(t, k.current)
	}
	begin := time.Now()
	k.current.install(t, k.continuum, "rome")
	if x != nil {
		x.calls(t)
	}
	k.current.install(t, k.continuum, "milan")
	k.agreed(t)
	if x != nil {
		x.unbroken(t, probes, stay, begin)
	}
	for cluster, before := range map[string]*corev1.Pod{"rome": home, "milan": there} {
		now, err := get[corev1.Pod](k.continuum, cluster, before.Namespace, before.Name)
		if err != nil || now.UID != before.UID || isReady(now) != nil || now.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("the upgrade has disturbed the pod in %s: %v, %v", cluster, err, isReady(now))
		}
	}
	k.followed(t, s)
	if x == nil {
		x = connected(t, k.current.of(k.continuum))
	}
	x.calls(t)
	s.create(t, colored(s, "second"))
	s.running(t, "second")
	s.delete(t, home)
	s.gone(t, "milan", home)
}

// connected has a pod at home and one at the provider call each other.
func connected(t *testing.T, rome *continuum) *crossing {
	t.Helper()
	x := &crossing{shop: rome.offloaded(t, "rome")}
	for name, node := range map[string]string{"front": "rome-1", "data": "milan"} {
		x.create(t, whoService(name, name, nil))
		x.create(t, whoPod("", name, node))
	}
	x.front = x.running(t, "front")
	x.data = []*corev1.Pod{x.running(t, "data")}
	x.calls(t)
	return x
}

// calls holds that pods of both clusters reach each other by their Services' names.
func (x *crossing) calls(t *testing.T) {
	t.Helper()
	x.reaches(t, x.front, "data", 80, "", "data")
	x.reaches(t, x.data[0], "front", 80, "", "front")
}

// namer is the one of those that call all the time which asks for a name each time. Where that is asked while
// the agent of the node is exchanged, its resolver asks again after resolverWait (docs/network.md).
const (
	namer        = "by-name"
	resolverWait = 5 * time.Second
)

// addressAt waits until a Service is in a cluster, and returns where it is called there.
func (x *crossing) addressAt(t *testing.T, cluster, namespace, name string) (address string) {
	t.Helper()
	x.eventually(t, offloadLimit, "Service "+name+" is in "+cluster, func() error {
		s, err := get[corev1.Service](x.continuum, cluster, namespace, name)
		if err == nil {
			address = net.JoinHostPort(s.Spec.ClusterIP, "80")
		}
		return err
	})
	return address
}

// watchedBy has pods of both clusters call each other all the time, by the programs of a build. It returns all
// that are to stay.
func (x *crossing) watchedBy(t *testing.T, b build) (probes []*watched, stay []*corev1.Pod) {
	t.Helper()
	x.image = b.image
	x.create(t, whoService("data-watched", "watched-data", nil))
	x.create(t, whoService("front-watched", "watched-front", nil))
	probes = []*watched{x.watchAt(t, "to-data", "rome-1", x.addressAt(t, "rome", x.name, "data-watched")),
		x.watchAt(t, "to-front", "milan", x.addressAt(t, "milan", x.name+"-rome", "front-watched")),
		x.watchAt(t, namer, "milan", "front-watched:80")} // the name that is good on both sides, whatever the build
	x.serve(t, "watched-data", "milan")
	x.serve(t, "watched-front", "rome-1")
	stay = append(stay, x.front, x.data[0])
	for _, name := range []string{"to-data", "to-front", namer, "watched-data", "watched-front"} {
		stay = append(stay, x.running(t, name))
	}
	allWell(t, probes)
	return probes, stay
}

// unbroken holds that those who have called all the time since then were never long without an answer, and that
// all these pods are the same.
func (x *crossing) unbroken(t *testing.T, probes []*watched, stay []*corev1.Pod, since time.Time) {
	t.Helper()
	allWell(t, probes)
	defer x.tellAgents(t, since)
	for _, before := range stay {
		now, err := get[corev1.Pod](x.continuum, x.cluster, before.Namespace, before.Name)
		if err != nil || now.UID != before.UID || isReady(now) != nil || now.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("the upgrades have disturbed %s: %v, %v", before.Name, err, isReady(now))
		}
	}
	for _, w := range probes {
		outage, broken := w.outage(t, since, false)
		t.Logf("both upgrades: requests %s without an answer for %s (%s); the connection: %q", w.pod, outage.Round(time.Millisecond), w.silences(t, since), broken)
		limit := outageLimit
		if w.pod == namer {
			limit += resolverWait
		}
		if outage > limit {
			t.Errorf("while both sides are upgraded requests %s are without an answer for %s, at most %s", w.pod, outage, limit)
		}
	}
}

// silences are when requests were without an answer for a second and more.
func (w *watched) silences(t *testing.T, since time.Time) string {
	t.Helper()
	all, err := w.changes()
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, c := range all {
		if gap := time.Duration(c.Gap) * time.Millisecond; c.What != reach.Connection && c.At.After(since) && gap >= time.Second {
			said = append(said, fmt.Sprintf("%s until %s", c.At.Add(-gap).UTC().Format("15:04:05.0"), c.At.UTC().Format("15:04:05.0")))
		}
	}
	return strings.Join(said, ", ")
}

// delete deletes a pod at home.
func (s shop) delete(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if err := s.Clients[s.cluster].Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}

// colored is a pod that says what its ConfigMap says.
func colored(s shop, name string) *corev1.Pod {
	pod := s.script(name, `trap 'exit 0' TERM; echo "color $COLOR"; while true; do sleep 0.2; done`)
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "COLOR", ValueFrom: &corev1.EnvVarSource{
		ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}, Key: "color"}}}}
	return pod
}

// followed waits until what goes with the pod is at the provider, and logs come home.
func (k skewed) followed(t *testing.T, s shop) {
	t.Helper()
	s.eventually(t, offloadLimit, "its Service is there and its logs are read", func() error {
		if _, err := get[corev1.Service](k.continuum, "milan", s.name+"-rome", "first"); err != nil {
			return err
		}
		out, err := s.kubectl(t, "logs", "first")
		if err == nil && !strings.Contains(out, "color blue") {
			err = fmt.Errorf("logs: %q", out)
		}
		return err
	})
}

// agreed waits until both sides know that the other one is upgraded.
func (k skewed) agreed(t *testing.T) {
	t.Helper()
	eventually(t, 2*time.Minute, "the Peering is Ready and both know the words of this build", func() error {
		p, err := get[v1alpha1.Peering](k.continuum, "rome", "", "milan")
		if err != nil {
			return err
		}
		if ready := condition(p.Status.Conditions, v1alpha1.ConditionReady); !strings.HasPrefix(ready, "Ready=True") {
			return fmt.Errorf("%s", ready)
		}
		if !slices.Contains(p.Status.Features, v1alpha1.FeatureOfKind("Service")) {
			return fmt.Errorf("both know %v", p.Status.Features)
		}
		tenant, err := get[v1alpha1.Tenant](k.continuum, "milan", "", "rome")
		if err != nil {
			return err
		}
		if tenant.Status.Cluster == nil || !slices.Contains(tenant.Status.Cluster.Features, v1alpha1.FeatureOfKind("Service")) {
			return fmt.Errorf("milan knows of rome: %+v", tenant.Status.Cluster)
		}
		return nil
	})
}
