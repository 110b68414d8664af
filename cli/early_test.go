package cli

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/setup"
	"github.com/pelago-dev/pelago/internal/home"
)

// TestInstallEndsEarly holds that an installation that ended before all was applied goes on with what
// it was given, when it is said to be run again: agents that were left out stay out.
func TestInstallEndsEarly(t *testing.T) {
	s := newStage(t, 1)
	t.Cleanup(func() { newStage(t, 1) }) // the kinds again, for the next test
	stop := s.kubernetes()
	defer func() {
		if got := s.run("uninstall"); got.code != 0 {
			t.Errorf("uninstalling: %+v", got)
		}
		stop()
	}()
	early := s.refused("ConfigMap "+v1alpha1.ConfigName, "install", "--cluster-name", "milan", "--api-server-url", "https://milan.example:6443", "--set", "network.enabled=false", "--downgrade")
	if early.code != 1 || !strings.Contains(early.err, errRefused.Error()) {
		t.Fatalf("an installation that is refused: %+v", early)
	}
	if err := s.c.Get(t.Context(), inSystem(v1alpha1.ConfigName), &corev1.ConfigMap{}); !apierrors.IsNotFound(err) {
		t.Fatalf("the settings are there already: %v; let the test refuse what is applied before them", err)
	}
	if got := s.run("install", "--downgrade"); got.code != 0 || !strings.Contains(got.out, "Pelago runs in milan") { // from the kinds of a stage
		t.Errorf("installing again: %+v", got)
	}
	var agents appsv1.DaemonSet
	if err := s.c.Get(t.Context(), client.ObjectKey{Namespace: v1alpha1.NetworkNamespace, Name: v1alpha1.AgentName}, &agents); !apierrors.IsNotFound(err) {
		t.Errorf("agents come to a cluster where they were left out: %v", err)
	}
	s.testChangeEndsEarly(t)
}

// errRefused is the answer to what a cluster of these tests does not take.
var errRefused = errors.New("this is not taken")

type named interface {
	GetKind() string
	GetName() string
}

// refused runs the program on a cluster that does not take one object, given by kind and name.
func (s *stage) refused(object string, args ...string) result {
	return programWith(s.t.Context(), func(e *Env) {
		e.Connect = func(Access) (*Cluster, error) {
			c, err := Connect(s.access)
			if err == nil {
				c.Client = interceptor.NewClient(c.Client, interceptor.Funcs{Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
					if u, is := o.(named); is && u.GetKind()+" "+u.GetName() == object {
						return errRefused
					}
					return c.Apply(ctx, o, options...)
				}})
			}
			return c, err
		}
	}, args...)
}

// testChangeEndsEarly holds that a setting that was given to an installation that is there is not forgotten when the
// change ends before all is applied, and that what is edited meanwhile stays.
func (s *stage) testChangeEndsEarly(t *testing.T) {
	if got := s.refused("ServiceAccount pelago-manager", "install", "--set", "config.tenant.reachability=none"); got.code != 1 || !strings.Contains(got.err, errRefused.Error()) {
		t.Fatalf("a change that is refused: %+v", got)
	}
	var config corev1.ConfigMap
	read := func() string {
		t.Helper()
		if err := s.c.Get(t.Context(), inSystem(v1alpha1.ConfigName), &config); err != nil {
			t.Fatal(err)
		}
		return config.Data[home.ConfigKey]
	}
	text := read()
	config.Data[home.ConfigKey] = strings.Replace(text, "name: milan", "name: oslo", 1)
	if err := s.c.Update(t.Context(), &config); err != nil {
		t.Fatal(err)
	}
	if got := s.run("install"); got.code != 0 || !strings.Contains(read(), "reachability: none") || !strings.Contains(read(), "name: oslo") {
		t.Errorf("installing again: %d, %s, with settings\n%s", got.code, got.out, config.Data[home.ConfigKey])
	}
}

// TestOlderProgram holds that a program that does not know all that is installed changes nothing, unless that is meant. Of
// the kinds of a stage each has fields from later.
func TestOlderProgram(t *testing.T) {
	s := newStage(t, 1)
	t.Cleanup(func() { newStage(t, 1) }) // the kinds again, for the next test
	stop := s.kubernetes()
	kind := func(name string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		u.SetAPIVersion("apiextensions.k8s.io/v1")
		u.SetKind("CustomResourceDefinition")
		u.SetName(name)
		return u
	}
	tenants := kind("tenants.pelago.dev")
	if err := s.c.Get(t.Context(), client.ObjectKeyFromObject(tenants), tenants); err != nil {
		t.Fatal(err)
	}
	moons := kind("moons.pelago.dev")
	moons.SetLabels(map[string]string{v1alpha1.LabelManagedBy: setup.Installed})
	moons.Object["spec"] = map[string]any{"group": "pelago.dev", "scope": "Cluster", "names": map[string]any{"plural": "moons", "singular": "moon", "kind": "Moon", "listKind": "MoonList"},
		"versions": []any{map[string]any{"name": "v1alpha1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}}}}}
	s.create(moons)
	install := []string{"install", "--cluster-name", "milan", "--api-server-url", "https://milan.example:6443"}
	without := []string{"--set", "crds.install=false"} // whose definitions are there by other means
	before := tenants.GetResourceVersion()
	for _, args := range [][]string{install, append(install[:len(install):len(install)], without...)} {
		if got := s.run(args...); got.code != 1 || !strings.Contains(got.err, "is newer than this program, v1.2.3, which does not know ") ||
			!strings.Contains(got.err, ".pelago.dev v1alpha1 spec.fromLater, ") || !strings.Contains(got.err, "moons.pelago.dev and ") || !strings.Contains(got.err, " more; use the program of that version, or ") {
			t.Errorf("an older program, %v: %+v", args, got)
		}
	}
	if err := s.c.Get(t.Context(), client.ObjectKeyFromObject(tenants), tenants); err != nil || tenants.GetResourceVersion() != before {
		t.Errorf("the definition of tenants was changed, %v", err)
	}
	if err := s.c.Get(t.Context(), inSystem(valuesName), &corev1.ConfigMap{}); !apierrors.IsNotFound(err) {
		t.Errorf("something was applied: %v", err)
	}
	if got := s.run(append(install, "--dry-run")...); got.code != 0 {
		t.Errorf("a dry run: %+v", got)
	}
	if got := s.run(append(install, "--downgrade")...); got.code != 0 || !strings.Contains(got.err, "does not know what the cluster's definitions have: ") {
		t.Errorf("going back: %+v", got)
	}
	s.drop(moons)
	eventually(t, "the definition of moons is gone", func() bool {
		return apierrors.IsNotFound(s.c.Get(t.Context(), client.ObjectKeyFromObject(moons), moons))
	})
	if got := s.run("install"); got.code != 0 || !strings.Contains(got.out, "nothing had to be changed") {
		t.Errorf("installing again: %+v", got)
	}
	if got := s.run(append([]string{"install"}, without...)...); got.code != 0 || !strings.Contains(got.out, " 0 removed") {
		t.Errorf("installing without definitions: %+v", got)
	}
	if got := s.run("install"); got.code != 0 || !strings.Contains(got.out, "nothing had to be changed") {
		t.Errorf("installing without definitions again: %+v", got)
	}
	if got := s.run("uninstall"); got.code != 0 {
		t.Errorf("uninstalling: %+v", got)
	}
	stop()
}

// TestInstallUnserved holds that nothing is applied to a cluster that does not serve a kind that was asked for, and that it
// is said by what it was asked for.
func TestInstallUnserved(t *testing.T) {
	s := newStage(t, 1)
	install := []string{"install", "--cluster-name", "milan", "--api-server-url", "https://milan.example:6443", "--downgrade", // from the kinds of a stage
		"--set", "metrics.serviceMonitor=true", "--set", "metrics.rules=true"}
	got := s.run(install...)
	if got.code != 1 || strings.Contains(got.err, "run: pelago install") {
		t.Errorf("installing: %+v", got)
	}
	for _, want := range []string{"ServiceMonitor of monitoring.coreos.com/v1, which metrics.serviceMonitor asks for", "PrometheusRule of monitoring.coreos.com/v1, which", "install the Prometheus operator",
		"--set metrics.rules=false --set metrics.serviceMonitor=false"} {
		if !strings.Contains(got.err, want) || strings.Count(got.err, want) > 1 {
			t.Errorf("it does not say %q once: %s", want, got.err)
		}
	}
	if err := s.c.Get(t.Context(), inSystem(valuesName), &corev1.ConfigMap{}); !apierrors.IsNotFound(err) {
		t.Errorf("something was applied: %v", err)
	}
	if got := s.run(append(install, "--dry-run")...); got.code != 0 || !strings.Contains(got.out, "kind: ServiceMonitor") {
		t.Errorf("a dry run: %d, %s", got.code, got.err)
	}
}

// TestInstallBlames holds that the program is blamed that others wait for, also when it breaks after it was ready.
func TestInstallBlames(t *testing.T) {
	s := newStage(t, 1)
	t.Cleanup(func() { newStage(t, 1) }) // the kinds again, for the next test
	broken := atomic.Bool{}
	stop := s.play(func(ctx context.Context) {
		d := &appsv1.Deployment{}
		if s.c.Get(ctx, inSystem(managerDeployment), d) != nil {
			return
		}
		n := *d.Spec.Replicas
		d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n}
		if broken.Load() {
			d.Status.ReadyReplicas, d.Status.AvailableReplicas = 0, 0
			d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue,
				Message: `pods "x" is forbidden: exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1`}}
		}
		s.c.Status().Update(ctx, d)
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got := programWith(ctx, func(e *Env) {
		e.Connect = func(Access) (*Cluster, error) { return Connect(s.access) }
		e.Err = listener{listener{e.Err, "Waiting for pelago-auth: ", func() { broken.Store(true) }}, "used up its ResourceQuota few", cancel}
	}, "install", "--cluster-name", "milan", "--api-server-url", "https://milan.example:6443", "--downgrade", "--timeout", "20s")
	if got.code != 1 || !strings.Contains(got.err, "interrupted while installing Pelago was not done: pelago-manager is not ready: its pods are refused: ") || !broken.Load() {
		t.Errorf("installing: %+v", got)
	}
	stop()
	stop = s.kubernetes()
	if got := s.run("uninstall"); got.code != 0 {
		t.Errorf("uninstalling: %+v", got)
	}
	stop()
}
