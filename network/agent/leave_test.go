package agent

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestUnwanted: when an agent that ends takes away all that it made, and when it must not.
func TestUnwanted(t *testing.T) {
	thing := schema.GroupResource{Resource: "daemonsets"}
	forbidden, unauthorized, missing := apierrors.NewForbidden(thing, "x", nil), apierrors.NewUnauthorized("x"), apierrors.NewNotFound(thing, "x")
	silent := errors.New("timeout")
	const now, before = time.Second, rightsLost
	set := func(change func(*appsv1.DaemonSet)) *appsv1.DaemonSet {
		d := &appsv1.DaemonSet{}
		d.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelOSStable: "linux"}
		change(d)
		return d
	}
	same := set(func(*appsv1.DaemonSet) {})
	selects := set(func(d *appsv1.DaemonSet) { d.Spec.Template.Spec.NodeSelector["pool"] = "a" })
	term := func(r corev1.NodeSelectorRequirement) *appsv1.DaemonSet {
		return set(func(d *appsv1.DaemonSet) {
			d.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{r}}}}}}
		})
	}
	node := func(pool string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{corev1.LabelOSStable: "linux", "pool": pool}}}
	}
	for _, c := range []struct {
		reason string
		of     end
		want   bool
	}{
		{"it is there: an update, or a restart", end{set: same, node: node("a")}, false},
		{"it is going", end{set: set(func(d *appsv1.DaemonSet) { d.DeletionTimestamp = &metav1.Time{} }), node: node("a")}, true},
		{"it is gone", end{setErr: missing, node: node("a")}, true},
		{"it is gone, and the Lease is not to be given up", end{setErr: missing, nodeErr: silent, given: silent}, true},
		{"the rights go with the pods", end{setErr: forbidden, nodeErr: forbidden, given: forbidden, idle: now}, true},
		{"the account goes with the pods", end{setErr: unauthorized, nodeErr: unauthorized, given: unauthorized, idle: now}, true},
		{"the rights have been gone for long: a mistake that a restart is to mend", end{setErr: forbidden, nodeErr: forbidden, given: forbidden, idle: before}, false},
		{"the account has been refused for long: other keys", end{setErr: unauthorized, nodeErr: unauthorized, given: unauthorized, idle: before}, false},
		{"only the right to read is gone", end{setErr: forbidden, node: node("a"), idle: now}, false},
		{"the rights are gone, and then nobody answers", end{setErr: silent, nodeErr: silent, given: forbidden, idle: now}, false},
		{"nobody answers", end{setErr: silent, nodeErr: silent, given: silent, idle: now}, false},
		{"the API server is starting", end{setErr: apierrors.NewServiceUnavailable("x"), nodeErr: silent, given: silent, idle: now}, false},
		{"this node is selected", end{set: selects, node: node("a")}, false},
		{"other nodes are selected", end{set: selects, node: node("b")}, true},
		{"other nodes are selected by affinity", end{set: term(corev1.NodeSelectorRequirement{Key: "pool", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"b"}}), node: node("b")}, true},
		{"an affinity that nobody understands", end{set: term(corev1.NodeSelectorRequirement{Key: "pool", Operator: "Like", Values: []string{"b"}}), node: node("a")}, false},
		{"nobody says what this node is", end{set: selects, node: &corev1.Node{}, nodeErr: silent}, false},
	} {
		t.Run(c.reason, func(t *testing.T) {
			if why := c.of.unwanted(); (why != "") != c.want {
				t.Errorf("unwanted: %q", why)
			}
		})
	}
}

// TestUntilDone: what fails at an end is tried again, and not longer than there is time.
func TestUntilDone(t *testing.T) {
	busy := errors.New("busy")
	for _, c := range []struct {
		reason string
		fails  int
		want   error
	}{
		{"at once", 0, nil}, {"after a while", 3, nil}, {"never", 1 << 20, busy},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithTimeout(t.Context(), leaveKernel)
			defer stop()
			began, tries := time.Now(), 0
			err := untilDone(ctx, func() error {
				if tries++; tries <= c.fails {
					return busy
				}
				return nil
			})
			if !errors.Is(err, c.want) || tries <= min(c.fails, 1) || time.Since(began) > leaveKernel {
				t.Errorf("%s: %d tries, %v after %s", c.reason, tries, err, time.Since(began))
			}
		})
	}
}
