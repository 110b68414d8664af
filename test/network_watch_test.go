package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/pelago-dev/pelago/cli/reach"
)

// watched is a pod that calls a Service all the time.
type watched struct {
	x   *crossing
	pod string
	// logs reads what it tells, many times: a kubectl for each would take longer than the faults.
	logs *kubernetes.Clientset
}

func (x *crossing) program(t *testing.T, name, node string, ready bool, args ...string) {
	t.Helper()
	image, policy := pelagoImage(t, x)
	spec := boxSpec("")
	c := &spec.Containers[0]
	c.Image, c.ImagePullPolicy, c.Command = image, policy, append([]string{"/pelago", "probe"}, args...)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}}, Spec: spec}
	if ready {
		who(p.Spec)
	}
	x.create(t, onto(p, node))
}

func (x *crossing) serve(t *testing.T, name, node string) {
	t.Helper()
	x.program(t, name, node, true, "serve")
	x.running(t, name)
}

func (x *crossing) watch(t *testing.T, name, node, service string) *watched {
	t.Helper()
	return x.watchAt(t, name, node, fmt.Sprintf("%s.%s.svc.cluster.local:80", service, x.name))
}

func (x *crossing) watchAt(t *testing.T, name, node, target string) *watched {
	t.Helper()
	x.program(t, name, node, false, "watch", target)
	config := rest.CopyConfig(x.Configs["rome"])
	config.QPS = -1
	logs, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return &watched{x, name, logs}
}

// changes are what it has told.
func (w *watched) changes() ([]reach.Change, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	out, err := w.logs.CoreV1().Pods(w.x.name).GetLogs(w.pod, &corev1.PodLogOptions{}).DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	var all []reach.Change
	for line := range strings.Lines(string(out)) {
		var c reach.Change
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			return nil, fmt.Errorf("%s says %q: %w", w.pod, line, err)
		}
		all = append(all, c)
	}
	return all, nil
}

// well waits until requests go well after a time, and the connection speaks again, if it has not
// broken: after an outage it is silent for longer than they are, and what befalls it then would be
// the work of two faults.
func (w *watched) well(t *testing.T, after time.Time, limit time.Duration) {
	t.Helper()
	w.x.eventually(t, limit, "requests "+w.pod+" go well", func() error {
		all, err := w.changes()
		if err != nil {
			return err
		}
		requests, connection := reach.Change{Err: "nothing told yet"}, reach.Change{Err: "nothing told yet"}
		for _, c := range all {
			if c.What == reach.Requests {
				requests = c
			} else {
				connection = c
			}
		}
		if !requests.OK || !requests.At.After(after) {
			return fmt.Errorf("at %s: %t %s", requests.At.Format(time.TimeOnly), requests.OK, requests.Err)
		}
		if connection.Count == 0 || connection.OK && !connection.At.After(after) {
			return fmt.Errorf("the connection has been silent since %s %s", connection.At.Format(time.TimeOnly), connection.Err)
		}
		return nil
	})
}

// wrong says nil if requests went wrong after a time.
func (w *watched) wrong(t *testing.T, after time.Time) error {
	t.Helper()
	if w.failed(t, after) == "" {
		return errors.New("they go well")
	}
	return nil
}

// told is what the calls have come to so far. They say when, so it is no matter when it is read.
func (w *watched) told(t *testing.T) (all []reach.Change) {
	t.Helper()
	eventually(t, healLimit, "what became of the calls can be read", func() (err error) {
		all, err = w.changes()
		return err
	})
	return all
}

// failed is what a request said that went wrong after a time, "" if none did.
func (w *watched) failed(t *testing.T, after time.Time) string {
	t.Helper()
	for _, c := range w.told(t) {
		if c.What == reach.Requests && c.Err != "" && c.At.After(after) {
			return c.Err
		}
	}
	return ""
}

// outage is the longest time without an answer after a time, or if healed how long it took
// until the first one, and what became of the connection.
func (w *watched) outage(t *testing.T, after time.Time, healed bool) (longest time.Duration, broken string) {
	t.Helper()
	for _, c := range w.told(t) {
		switch {
		case c.What == reach.Connection && !c.OK:
			broken = c.Err
		case c.What == reach.Connection || c.At.Before(after):
		case healed && c.OK:
			return c.At.Sub(after), broken
		case !healed:
			longest = max(longest, time.Duration(c.Gap)*time.Millisecond)
		}
	}
	return longest, broken
}
