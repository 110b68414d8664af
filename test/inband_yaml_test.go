package test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// inBandRounds is how often clusters peer in each way to tell how long it takes.
const inBandRounds = 3

// measured begins the lines that tell what was measured in band.
const measured = "in-band: "

// usedByOne is a namespace that may use milan alone, as one applies it.
const usedByOne = `apiVersion: v1
kind: Namespace
metadata: {name: by-objects}
---
apiVersion: pelago.dev/v1alpha1
kind: NamespaceOffloading
metadata: {name: offloading, namespace: by-objects}
spec: {podOffloadingStrategy: Remote}
`

// byLine peers rome with milan in band by one line, until the test ends.
func (b *inBand) byLine(t *testing.T) kubetest.Result {
	t.Helper()
	t.Cleanup(func() { b.part(t, "rome", "milan") })
	r := b.Shell(t, "rome", b.Invite(t, "milan", "--in-band"))
	if r.Code != 0 {
		t.Fatalf("exit %d\n%s%s\n%s", r.Code, r.Out, r.Errs, b.TryPelago(t, "rome", "explain", "peering", "milan").Out)
	}
	return r
}

// objectsAlone holds that objects make a peering in band: those that generate prints, and those of the
// manual for who has kubectl alone. A pod uses the second one. Deleting the object ends each.
func (b *inBand) objectsAlone(t *testing.T) {
	b.note(t)
	t.Cleanup(func() { b.part(t, "rome", "milan") })
	b.apply(t, "rome", b.Pelago(t, "milan", "generate", "peer-command", "--in-band", "-o", "yaml"))
	b.Kubectl(t, "rome", "wait", "peering/milan", "--for=condition=Ready", "--timeout=120s")
	b.introduced(t)
	b.deleted(t)

	scripts := kubetest.Scripts(t, filepath.Join("..", "docs", "peering.md"), "### In band, by objects alone")
	if len(scripts) != 2 {
		t.Fatalf("the manual has %d scripts, want the provider's and the consumer's", len(scripts))
	}
	dir := t.TempDir()
	for i, cluster := range []string{"milan", "rome"} {
		b.pasted(t, cluster, dir, scripts[i])
	}
	b.introduced(t)
	if text := b.Pelago(t, "rome", "status"); !strings.Contains(text, "now, in band") {
		t.Errorf("status does not say that milan is heard of in band:\n%s", text)
	}
	t.Run("Used", b.usedByObjects)
	b.deleted(t)
}

// apply applies objects with kubectl.
func (b *inBand) apply(t *testing.T, cluster, text string) {
	t.Helper()
	b.Kubectl(t, cluster, "apply", "-f", file(t, []byte(text)))
}

// pasted runs lines of the manual in a folder, as somebody does who has kubectl of one cluster.
func (b *inBand) pasted(t *testing.T, cluster, dir, lines string) {
	t.Helper()
	own := t.TempDir()
	kubectl := fmt.Sprintf("#!/bin/sh\nexec '%s' --name %s kubectl %s -- \"$@\"\n", kubetest.Program(t), b.Name, cluster)
	if err := os.WriteFile(filepath.Join(own, "kubectl"), []byte(kubectl), 0o755); err != nil {
		t.Fatal(err)
	}
	if r := b.Shell(t, cluster, fmt.Sprintf("set -eu\ncd '%s'\nPATH='%s':$PATH\n%s", dir, own, lines)); r.Code != 0 {
		t.Fatalf("exit %d\n%s%s\n%s", r.Code, r.Out, r.Errs, b.TryPelago(t, "rome", "explain", "peering", "milan").Out)
	}
}

// usedByObjects holds that a pod runs at milan by objects that kubectl applied.
func (b *inBand) usedByObjects(t *testing.T) {
	b.nodeReady(t, "rome", "milan")
	s := shop{b.continuum, "rome", "by-objects"}
	t.Cleanup(func() {
		b.Kubectl(t, "rome", "delete", "namespace", s.name, "--ignore-not-found", "--timeout=120s")
	})
	b.apply(t, "rome", usedByOne)
	for _, object := range []string{"serviceaccount/default --for=create", "namespaceoffloading/offloading --for=condition=Ready"} {
		b.Kubectl(t, "rome", append([]string{"-n", s.name, "wait", "--timeout=3m"}, strings.Fields(object)...)...)
	}
	b.apply(t, "rome", fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: once, namespace: %s}
spec:
  terminationGracePeriodSeconds: 5
  containers:
  - {name: main, image: "%s", imagePullPolicy: Never, command: [sh, -c, "trap 'exit 0' TERM; echo started; while true; do sleep 0.2; done"]}
`, s.name, boxImage))
	if pod := s.running(t, "once"); pod.Spec.NodeName != "milan" {
		t.Errorf("it runs on %s", pod.Spec.NodeName)
	}
	s.eventually(t, offloadLimit, "the log of a pod at milan is read at rome", func() error {
		out, err := s.kubectl(t, "logs", "once")
		if err == nil && !strings.Contains(out, "started") {
			err = fmt.Errorf("it is %q", out)
		}
		return err
	})
}

// deleted deletes the Peering of rome, and holds that this is all it takes.
func (b *inBand) deleted(t *testing.T) {
	t.Helper()
	b.Kubectl(t, "rome", "delete", "peering", "milan", "--timeout=3m")
	b.left(t)
}

// rights holds that what rome gets in band may what it may that is got out of band, and no more, and that
// it names no address of milan's.
func (b *inBand) rights(t *testing.T) {
	b.byLine(t)
	secret, err := get[corev1.Secret](b.continuum, "rome", v1alpha1.SystemNamespace, v1alpha1.CredentialSecret("milan"))
	if err != nil || string(secret.Data["server"]) != v1alpha1.InBandServer {
		t.Fatalf("the credential is for %q, %v, want %s", secret.Data["server"], err, v1alpha1.InBandServer)
	}
	rightsHeld(t, b.continuum, nil)
}

// numbers tells how long a line takes to a peering in band, beside one out of band in turn with it.
func (b *inBand) numbers(t *testing.T) {
	nodes := b.nodes(t, "rome")
	t.Cleanup(func() {
		b.part(t, "rome", "milan")
		b.wall(t, nodes, true)
	})
	var peer, unpeer [2][]time.Duration
	for range inBandRounds {
		for way, args := range [][]string{{"--in-band"}, nil} {
			b.wall(t, nodes, way == 0)
			line := b.Invite(t, "milan", args...)
			r := b.Shell(t, "rome", line)
			if r.Code != 0 {
				t.Fatalf("%v: exit %d\n%s%s\n%s", args, r.Code, r.Out, r.Errs, b.TryPelago(t, "rome", "explain", "peering", "milan").Out)
			}
			peer[way] = append(peer[way], r.Took)
			if r = b.TryPelago(t, "rome", "unpeer", "milan"); r.Code != 0 {
				t.Fatalf("%v: unpeer: exit %d\n%s%s", args, r.Code, r.Out, r.Errs)
			}
			unpeer[way] = append(unpeer[way], r.Took)
			b.part(t, "rome", "milan")
			b.settle(t, "rome") // or the next round waits for namespaces of this one
			b.settle(t, "milan")
		}
	}
	for what, took := range map[string][2][]time.Duration{"one line to peered": peer, "unpeer": unpeer} {
		in, out := middle(took[0]), middle(took[1])
		t.Logf("%s%s: %s in band, %s out of band, ratio %.2f, in the middle of %d rounds", measured, what,
			in.Round(10*time.Millisecond), out.Round(10*time.Millisecond), in.Seconds()/out.Seconds(), inBandRounds)
	}
}

// middle is the one in the middle of an odd number of them.
func middle(all []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}

// reached says nil if rome says of milan that it can be reached, or cannot.
func (b *inBand) reached(want bool) error {
	p, err := get[v1alpha1.Peering](b.continuum, "rome", "", "milan")
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	said := condition(p.Status.Conditions, v1alpha1.ConditionReachable)
	if is := strings.HasPrefix(said, v1alpha1.ConditionReachable+"=True"); is != want {
		return fmt.Errorf("%s", said)
	}
	return nil
}
