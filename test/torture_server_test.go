package test

import (
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
10s deploy stay/alien 1`)
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
	if app := r.model.Places[torture.Keep].Apps["web"]; app == nil || app.Tier != 7 || len(r.model.Places[torture.Keep].Apps) != 3 {
		t.Errorf("the model has %+v", r.model.Places[torture.Keep])
	}

	// To the watches home is the provider as well, so that all is in the wrong place.
	r.observe(t)
	eventually(t, 20*time.Second, "what is in the wrong place is seen", func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		all := fmt.Sprint(r.violations)
		for _, want := range []string{"keep/web: its pod web is in keep of the provider", "keep/login: its value is in Secret keep/login", "stay/denied"} {
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
