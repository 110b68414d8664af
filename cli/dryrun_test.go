package cli

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestDryRunChangesNothing holds that a dry run changes nothing whatever it could not read, and says so.
func TestDryRunChangesNothing(t *testing.T) {
	s := newStage(t, 0)
	s.install("rome", id2)
	const name = "dry-shop"
	s.space(name, map[string]string{v1alpha1.LabelOffload: "true"})
	s.create(&v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: v1alpha1.OffloadingName}})
	down := errors.New("the server is busy")
	with := func(f interceptor.Funcs) func(*Env) {
		return func(e *Env) {
			e.Connect = func(Access) (*Cluster, error) {
				c, err := Connect(s.access)
				if err == nil {
					c.Client = interceptor.NewClient(c.Client, f)
				}
				return c, err
			}
		}
	}
	unread := with(interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
		if _, is := o.(*v1alpha1.NamespaceOffloading); is {
			return down
		}
		return c.Get(ctx, key, o, options...)
	}})
	unlisted := with(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
		if _, is := list.(*corev1.NodeList); is {
			return down
		}
		return c.List(ctx, list, options...)
	}})
	for reason, change := range map[string]func(*Env){"the offloading cannot be read": unread, "nodes cannot be listed": unlisted} {
		got := programWith(t.Context(), change, "unoffload", "namespace", name, "--dry-run")
		if got.code != 1 || !strings.Contains(got.err, down.Error()) || got.out != "" {
			t.Errorf("%s: %+v", reason, got)
		}
	}
	if got := s.run("unoffload", "namespace", name, "--dry-run"); got.code != 0 || !strings.Contains(got.err, "No pod of namespace dry-shop is at another cluster.") {
		t.Errorf("with no pod: %+v", got)
	}
	var n corev1.Namespace
	if err := s.c.Get(t.Context(), client.ObjectKey{Name: name}, &n); err != nil || n.Labels[v1alpha1.LabelOffload] != "true" || s.offloading(name) == nil {
		t.Errorf("it was changed: %v, %v", n.Labels, err)
	}

	tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "alone"}, Spec: v1alpha1.TenantSpec{ClusterID: id1, PeeringUID: id1}}
	s.create(tenant)
	tenant.Status.Used = v1alpha1.ResourceList{"pods": resource.MustParse("3")}
	if err := s.c.Status().Update(t.Context(), tenant); err != nil {
		t.Fatal(err)
	}
	if got := s.run("unpeer", "alone", "--dry-run"); got.code != 0 || !strings.Contains(got.err, "3 pods of alone run here and will end.") || got.out != "Tenant alone would be removed; nothing was changed.\n" {
		t.Errorf("of a tenant without a peering: %+v", got)
	}
	if got := s.run("unpeer", "nobody", "--dry-run"); got.code != 1 {
		t.Errorf("of nobody: %+v", got)
	}
	if err := s.c.Get(t.Context(), client.ObjectKeyFromObject(tenant), tenant); err != nil || tenant.DeletionTimestamp != nil {
		t.Errorf("the tenant was changed: %v", err)
	}
}

// TestExplainFull holds that explain says of a node which pods have filled that it is full, and what its
// provider says when that gives no more.
func TestExplainFull(t *testing.T) {
	s := newStage(t, 0)
	s.install("rome", id2)
	const name = "full-shop"
	s.space(name, nil)
	s.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "default"}})
	s.genoa()
	s.create(&v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: v1alpha1.OffloadingName}})
	for pod, at := range map[string]string{"large": "genoa", "more": ""} {
		p := podOn(name, pod, at)
		p.Spec.Tolerations = []corev1.Toleration{{Key: v1alpha1.TaintVirtualNode, Operator: corev1.TolerationOpExists}}
		p.Spec.Containers[0].Name, p.Spec.Containers[0].Image = "c", "c"
		if at != "" {
			p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("7800m")
		}
		s.create(&p)
	}
	told := func() string {
		return strings.Join(strings.Fields(s.run("explain", "pod", "more", "-n", name).out), " ")
	}
	if got := told(); !strings.Contains(got, "it is full: it asks for 500m cpu, free there is 200m") {
		t.Errorf("of a full node: %s", got)
	}
	if got, want := s.run("explain", "pod", name+"/more"), s.run("explain", "pod", "more", "-n", name); got != want || got.code != 0 {
		t.Errorf("by a word with its namespace the pod is explained as %+v, without as %+v", got, want)
	}
	s.space(v1alpha1.PeeringNamespace("genoa"), nil)
	r := &v1alpha1.ResourceRequest{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.PeeringNamespace("genoa"), Name: "default"}}
	s.create(r)
	conditions(&r.Status.Conditions, r.Generation, isNot(v1alpha1.ConditionOffered, v1alpha1.ReasonCordoned, "it accepts nothing new now"))
	if err := s.c.Status().Update(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if got := told(); !strings.Contains(got, "its provider says Cordoned: it accepts nothing new now") {
		t.Errorf("of a full node whose provider gives no more: %s", got)
	}
}

// TestWithheld holds that only what a provider itself says counts as withheld by it.
func TestWithheld(t *testing.T) {
	for reason, want := range map[string]bool{v1alpha1.ReasonCordoned: true, v1alpha1.ReasonNothingFree: true, v1alpha1.ReasonPeerUnreachable: false, v1alpha1.ReasonPending: false, v1alpha1.ReasonDeclined: false} {
		r := &v1alpha1.ResourceRequest{}
		conditions(&r.Status.Conditions, 0, isNot(v1alpha1.ConditionOffered, reason, "so"))
		if got := withheld(r) != nil; got != want {
			t.Errorf("%s: %t", reason, got)
		}
		r = &v1alpha1.ResourceRequest{}
		conditions(&r.Status.Conditions, 0, isNot(v1alpha1.ConditionSent, reason, "so"))
		if withheld(r) != nil {
			t.Errorf("%s, as home says it: withheld", reason)
		}
	}
}

// TestTeller holds that what goes wrong is said in the end, though nothing changes any more.
func TestTeller(t *testing.T) {
	var mu sync.Mutex
	var said []string
	tell := &teller{quiet: true, tell: func(step string) {
		mu.Lock()
		defer mu.Unlock()
		said = append(said, step)
	}}
	tell.loud() // nothing was said yet
	tell.quiet = true
	tell.say("proving the invitation (AuthUnreachable: no route)")
	tell.loud()
	tell.say("ready (so)")
	if want := "proving the invitation; proving the invitation (AuthUnreachable: no route); ready (so)"; strings.Join(said, "; ") != want {
		t.Errorf("said %q, want %q", said, want)
	}
}
