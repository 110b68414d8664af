package test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/internal/kubetest"
	"github.com/pelago-dev/pelago/test/torture"
)

// tortureFile is one home node, and two nodes of the provider of which one may be off.
const tortureFile = `clusters:
- name: rome
  nodes: 1
  addons: [coredns, load-balancer]
- name: milan
  nodes: 2
  addons: [coredns, load-balancer]
`

const (
	// tortureSeed and tortureTime are used where nothing else is asked for.
	tortureSeed = 7
	tortureTime = 3 * time.Minute
	// convergeLimit is how long all may take to be as it must be after the last fault.
	convergeLimit = 12 * time.Minute
	// calm is for how long it has to be so.
	calm = 5 * time.Second
	// tortureOut is where histories of failures are written, from this directory.
	tortureOut = "../out/torture"
)

// TestTorture does random things to two peered clusters, and holds that what must never
// be true never is, that all is as users want it in the end, and that nothing is left.
// $SEED and $TIME say which storm and how long, or $HISTORY a file of steps,
// of which $SHRINK finds fewer that do the same.
func TestTorture(t *testing.T) {
	name, again, steps, length := storm(t)
	if text := os.Getenv("SHRINK"); text != "" {
		tries, err := strconv.Atoi(text)
		if err != nil || os.Getenv("HISTORY") == "" {
			t.Fatalf("SHRINK %q: write how often to try with fewer steps, and HISTORY=FILE of the steps (%v)", text, err)
		}
		shrink(t, again, steps, tries)
		return
	}
	s := kubetest.Sandbox(t, kubetest.Options{Name: "torture", File: sandboxFile(t, tortureFile), Pelago: true})
	c := newContinuum(t, s, torture.Home, torture.Provider)
	box(t, s, torture.Home, torture.Provider)
	before := map[string][]string{}
	for _, cluster := range []string{torture.Home, torture.Provider} {
		before[cluster] = lasting(c.objects(t, cluster))
	}
	c.peer(t, torture.Home, torture.Provider)
	c.nodeReady(t, torture.Home, torture.Provider)
	r := newRack(t, c, name, again, tortureOut)
	r.observe(t)
	r.furnish(t)
	r.storm(t, steps, length)
	r.converge(t, "all is as users want it after the storm", nil)
	r.called(t, steps)
	for _, place := range []string{torture.Keep, torture.Roam} {
		for _, s := range torture.Epilogue(place) {
			s.At = r.now()
			r.user(s)
		}
	}
	r.converge(t, "what is made after the storm runs where it is to run", nil)
	r.clear(t)
	if t.Failed() {
		return
	}
	c.part(t, torture.Home, torture.Provider)
	for cluster, were := range before {
		eventually(t, patience, cluster+" is as before", func() error {
			now := lasting(c.objects(t, cluster))
			if more := slices.DeleteFunc(now, func(o string) bool { return slices.Contains(were, o) }); len(more) > 0 {
				return fmt.Errorf("left behind:\n  %s", strings.Join(more, "\n  "))
			}
			return nil
		})
	}
}

// storm is what is asked for: a name for it and the command that does it again, its
// steps, and how long it lasts.
func storm(t *testing.T) (name, again string, steps []torture.Step, length time.Duration) {
	t.Helper()
	if file := os.Getenv("HISTORY"); file != "" {
		again = "make torture HISTORY=" + file
		if !filepath.IsAbs(file) {
			file = filepath.Join("..", file) // as seen from where make runs
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatalf("reading HISTORY: %v", err)
		}
		if steps, err = torture.ParseAll(string(text)); err != nil || len(steps) == 0 {
			t.Fatalf("HISTORY %s has %d steps: %v", file, len(steps), err)
		}
		for _, s := range steps {
			length = max(length, s.At+s.For+time.Second)
		}
		return "replay", again, steps, length
	}
	seed, length := uint64(tortureSeed), tortureTime
	if text := os.Getenv("SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("SEED %q is no number: %v", text, err)
		}
		seed = n
	}
	if text := os.Getenv("TIME"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d < 10*time.Second || d > 3*time.Hour {
			t.Fatalf("TIME %q: write a duration from 10s to 3h, such as 6m (%v)", text, err)
		}
		length = d
	}
	again = fmt.Sprintf("make torture SEED=%d TIME=%s", seed, length)
	t.Logf("this storm again: %s", again)
	return fmt.Sprintf("seed-%d", seed), again, torture.Plan(seed, length), length
}

// lasting are the objects that do not change their names when pods and nodes restart.
func lasting(objects []string) []string {
	return slices.DeleteFunc(objects, func(o string) bool {
		return strings.HasPrefix(o, "pods./") || strings.HasPrefix(o, "certificatesigningrequests.")
	})
}

// furnish makes the namespaces, their Secrets, and the fences of their vaults.
func (r *rack) furnish(t *testing.T) {
	t.Helper()
	for _, place := range torture.Places {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: place}}
		if err := r.Clients[torture.Home].Create(t.Context(), n); err != nil {
			t.Fatalf("making namespace %s: %v", place, err)
		}
		if slices.Contains(torture.Vaults, place) {
			if err := r.Clients[torture.Home].Create(t.Context(), fence(place)); err != nil {
				t.Fatalf("making the NetworkPolicy of %s: %v", place, err)
			}
		}
		for _, secret := range []string{torture.Login, torture.Denied, torture.Other} {
			if err := r.Clients[torture.Home].Create(t.Context(), secretOf(place, secret)); err != nil {
				t.Fatalf("making Secret %s/%s: %v", place, secret, err)
			}
		}
	}
}

// converge waits until the model is met, and for a while stays so. Violations count here
// as in the storm.
func (r *rack) converge(t *testing.T, what string, unsettled func() []string) {
	t.Helper()
	if t.Failed() {
		return
	}
	if unsettled == nil {
		unsettled = r.unsettled
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	begin := time.Now()
	good := begin
	for time.Since(good) < calm {
		<-tick.C
		if r.failed(t) {
			return
		}
		missing := unsettled()
		if len(missing) > 0 {
			good = time.Now()
		}
		if time.Since(begin) > convergeLimit && len(missing) > 0 {
			r.violated(torture.Violation{Rule: "in the end " + what, Place: r.placeOf(missing[0]), Text: strings.Join(missing, "\n  ")})
			r.failed(t)
			return
		}
	}
	t.Logf("%s: after %s", what, time.Since(begin).Round(100*time.Millisecond))
}

// placeOf finds the namespace that a line is about.
func (r *rack) placeOf(line string) string {
	for _, place := range torture.Places {
		if strings.Contains(line, place+"/") || strings.Contains(line, place+"-") {
			return place
		}
	}
	return ""
}

// clear deletes the namespaces, and holds that nothing is left of them on either side.
func (r *rack) clear(t *testing.T) {
	t.Helper()
	for _, place := range torture.Places {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		err := r.Clients[torture.Home].Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: place}}, client.PropagationPolicy(metav1.DeletePropagationBackground))
		if err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("deleting namespace %s: %v", place, err)
		}
	}
	r.converge(t, "nothing is left of the namespaces", r.left)
}
