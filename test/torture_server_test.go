package test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/internal/kubetest"
	"github.com/pelago-dev/pelago/test/torture"
)

// TestTortureSteps holds, with a bare API server for both clusters, that steps do what
// they say, that the model follows, and that what must never be true is seen when it is.
func TestTortureSteps(t *testing.T) {
	server := kubetest.Server(t)
	admin := server.Client(t)
	c := &continuum{Continuum: &kubetest.Continuum{
		Clients: map[string]client.WithWatch{torture.Home: admin, torture.Provider: admin},
		Configs: map[string]*rest.Config{torture.Home: server.Config, torture.Provider: server.Config},
	}}
	r := newRack(t, c, "server", "make torture SEED=7 TIME=3m", t.TempDir())
	r.furnish(t)
	in := shop{c, torture.Home, torture.Keep}
	pod := in.sleeper("web") // as its Deployment's controller would make it
	pod.Labels[torture.LabelPlace] = torture.Keep
	in.create(t, pod)
	steps, err := torture.ParseAll(`
0s deploy keep/web 2
0s deploy keep/web 2
1s stateful keep/db 1
2s job keep/job-1 5
3s job keep/job-2 5
4s scale keep/db 2
5s roll keep/web 7
6s mark keep/web 8
7s rotate keep 9
8s delete keep/job-2
9s delete keep/job-2
10s deploy stay/alien 1
11s configure keep/settings 3
12s configure keep/settings 4
13s expose keep/to-web 8001
14s expose keep/to-web 8002
15s expose keep/to-db 8003
16s delete keep/to-db
17s configure stay/settings 1
18s delete stay/settings`)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range steps {
		r.user(s)
	}
	for _, d := range r.history {
		if strings.Contains(d.Note, "given up") {
			t.Errorf("%s", d)
		}
	}
	d, err := get[appsv1.Deployment](c, torture.Home, torture.Keep, "web")
	if err != nil || *d.Spec.Replicas != 2 || d.Spec.Template.Labels[torture.LabelTier] != "7" || d.Spec.Template.Labels[torture.LabelPlace] != torture.Keep {
		t.Errorf("the Deployment: %v, %+v", err, d.Spec)
	}
	if set, err := get[appsv1.StatefulSet](c, torture.Home, torture.Keep, "db"); err != nil || *set.Spec.Replicas != 2 {
		t.Errorf("the StatefulSet: %v, %+v", err, set.Spec)
	}
	if job, err := get[batchv1.Job](c, torture.Home, torture.Keep, "job-1"); err != nil || *job.Spec.PodReplacementPolicy != batchv1.Failed {
		t.Errorf("the Job: %v, %+v", err, job.Spec)
	}
	if _, err := get[batchv1.Job](c, torture.Home, torture.Keep, "job-2"); !apierrors.IsNotFound(err) {
		t.Errorf("the deleted Job: %v", err)
	}
	if now, err := get[corev1.Pod](c, torture.Home, torture.Keep, "web"); err != nil || now.Labels[torture.LabelMark] != "8" {
		t.Errorf("the pod that was marked: %v, %v", err, now.Labels)
	}
	if s, err := get[corev1.Secret](c, torture.Home, torture.Keep, torture.Login); err != nil || string(s.Data["value"]) != "canary.keep.login.9" {
		t.Errorf("the Secret: %v, %s", err, s.Data)
	}
	if m, err := get[corev1.ConfigMap](c, torture.Home, torture.Keep, torture.Settings); err != nil || m.Data["value"] != "canary.keep.settings.4" {
		t.Errorf("the ConfigMap: %v, %s", err, m.Data)
	}
	if s, err := get[corev1.Service](c, torture.Home, torture.Keep, "to-web"); err != nil || len(s.Spec.Ports) != 1 || s.Spec.Ports[0].Port != 8002 || s.Spec.Selector["app"] != "web" || s.Labels[torture.LabelPlace] != torture.Keep {
		t.Errorf("the Service: %v, %v, %+v", err, s.Labels, s.Spec)
	}
	if _, err := get[corev1.Service](c, torture.Home, torture.Keep, "to-db"); !apierrors.IsNotFound(err) {
		t.Errorf("the deleted Service: %v", err)
	}
	if _, err := get[corev1.ConfigMap](c, torture.Home, torture.Stay, torture.Settings); !apierrors.IsNotFound(err) {
		t.Errorf("the deleted ConfigMap: %v", err)
	}
	if app := r.model.Places[torture.Keep].Apps["web"]; app == nil || app.Tier != 7 || len(r.model.Places[torture.Keep].Apps) != 3 {
		t.Errorf("the model has %+v", r.model.Places[torture.Keep])
	}

	r.strikes(t)
	if r.unsettled(); time.Since(r.world.Now) > time.Minute {
		t.Errorf("how long ago something was is counted from %s, when an event was seen last", r.world.Now)
	}

	// To the watches home is the provider as well, so that all is in the wrong place.
	r.observe(t)
	eventually(t, patience, "what is in the wrong place is seen", func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		all := fmt.Sprint(r.violations)
		for _, want := range []string{"keep/web: its pod web is in keep of the provider", "keep/login: its value is in Secret keep/login", "stay/denied", "keep/settings: its value is in ConfigMap keep/settings", "to-web: a Service of it is in keep"} {
			if !strings.Contains(all, want) {
				return fmt.Errorf("%q is not among %s", want, all)
			}
		}
		return nil
	})
	if r.over.Err() == nil {
		t.Error("a violation does not end the storm")
	}
	text, err := r.report()
	for _, want := range []string{"its pod web is in keep of the provider", "scale keep/db 2", "HISTORY=" + r.out, "the same storm: make torture SEED=7 TIME=3m"} {
		if err != nil || !strings.Contains(text, want) {
			t.Errorf("the report does not say %q, %v:\n%s", want, err, text)
		}
	}
	written, err := os.ReadFile(filepath.Join(r.out, "server.txt"))
	if again, failed := torture.ParseAll(string(written)); err != nil || failed != nil || len(again) != len(steps) {
		t.Errorf("what is written has %d steps, %v, %v; want %d", len(again), err, failed, len(steps))
	}
}

// strikes holds that a strike hits the pods of its component where they are, and that one
// that finds nobody is not done.
func (r *rack) strikes(t *testing.T) {
	t.Helper()
	for _, component := range torture.Components {
		namespace, step := torture.NamespaceOf(component), torture.Step{Verb: torture.Strike, Target: torture.Home + "/" + component}
		if note, err := r.strike(t.Context(), step); err == nil {
			t.Errorf("nobody is there, and %s says %q", step, note)
		}
		idle := newRack(t, r.continuum, "idle", "", r.out)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		idle.fault(ctx, step)
		cancel()
		idle.worked([]torture.Step{step}, time.Minute)
		if len(idle.violations) != 1 || !strings.Contains(idle.violations[0].Text, "has no pod of "+component) {
			t.Errorf("the storm of one strike that hits nobody violates %v", idle.violations)
		}
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		if err := r.Clients[torture.Home].Create(t.Context(), n); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
		in := shop{r.continuum, torture.Home, namespace}
		pod := in.sleeper(component)
		pod.Labels["app.kubernetes.io/name"] = component
		in.create(t, pod)
		if note, err := r.strike(t.Context(), step); err != nil || note != "1 struck" {
			t.Errorf("one is there, and %s says %q, %v", step, note, err)
		}
		if _, err := get[corev1.Pod](r.continuum, torture.Home, namespace, component); !apierrors.IsNotFound(err) {
			t.Errorf("%s: it is there still: %v", step, err)
		}
	}
}
