package status

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

func TestDerive(t *testing.T) {
	yes := metav1.Condition{Type: "A", Status: metav1.ConditionTrue, Reason: "Fine"}
	no := metav1.Condition{Type: "B", Status: metav1.ConditionFalse, Reason: "Broken", Message: "mend it"}
	cases := []struct {
		reason string
		given  []metav1.Condition
		of     []string
		want   metav1.ConditionStatus
		why    string
	}{
		{"all that count are true", []metav1.Condition{yes, no}, []string{"A"}, metav1.ConditionTrue, "Ready"},
		{"the first that is not true gives the reason", []metav1.Condition{yes, no}, []string{"A", "B"}, metav1.ConditionFalse, "Broken"},
		{"one that is missing is not known yet", []metav1.Condition{yes}, []string{"A", "C"}, metav1.ConditionFalse, "Pending"},
	}
	for _, c := range cases {
		conditions := append([]metav1.Condition(nil), c.given...)
		Derive(&conditions, 3, "Ready", "Pending", c.of...)
		got := conditions[len(conditions)-1]
		if got.Type != "Ready" || got.Status != c.want || got.Reason != c.why || got.ObservedGeneration != 3 {
			t.Errorf("%s: got %+v, want %s %s", c.reason, got, c.want, c.why)
		}
	}
}

// TestEmptyIsNone: an empty map and none look the same when they are written, so nothing is.
func TestEmptyIsNone(t *testing.T) {
	written := 0
	c := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
			written++
			return nil
		},
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			written++
			return nil
		},
	})
	m := &v1alpha1.NamespaceMap{}
	w := Begin(c, m)
	m.Status.Namespaces, m.Spec.Namespaces, m.Finalizers = map[string]v1alpha1.MappedNamespace{}, map[string]v1alpha1.NamespaceMapping{}, []string{}
	var res ctrl.Result
	var err error
	w.Commit(t.Context(), &res, &err)
	if err != nil || written != 0 {
		t.Errorf("%d writes, %v", written, err)
	}
}

// TestCommit writes through a real API server, for it decides what a conflict is.
func TestCommit(t *testing.T) {
	server := kubetest.Server(t)
	c := server.Client(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	namespace := server.Namespace(t)

	make := func(name string) *v1alpha1.ResourceRequest {
		t.Helper()
		request := &v1alpha1.ResourceRequest{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
		if err := c.Create(ctx, request); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			request.Finalizers = nil
			c.Update(context.Background(), request)
		})
		return request
	}
	read := func(name string) *v1alpha1.ResourceRequest {
		t.Helper()
		request := &v1alpha1.ResourceRequest{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, request); err != nil {
			t.Fatal(err)
		}
		return request
	}

	t.Run("finalizers and status are written together", func(t *testing.T) {
		request := make("both")
		w := Begin(c, request)
		request.Finalizers = []string{v1alpha1.FinalizerWithdraw}
		True(&request.Status.Conditions, request.Generation, v1alpha1.ConditionSent, v1alpha1.ReasonReady, "")
		var res ctrl.Result
		var err error
		w.Commit(ctx, &res, &err)
		stored := read("both")
		if err != nil || !IsTrue(stored.Status.Conditions, v1alpha1.ConditionSent) || cmp.Diff(stored.Finalizers, request.Finalizers) != "" {
			t.Errorf("error %v, stored %+v", err, stored)
		}
	})
	t.Run("nothing changed, nothing written", func(t *testing.T) {
		request := make("same")
		w := Begin(c, request)
		var res ctrl.Result
		var err error
		w.Commit(ctx, &res, &err)
		if got := read("same").ResourceVersion; err != nil || got != request.ResourceVersion {
			t.Errorf("error %v, version %s, want %s", err, got, request.ResourceVersion)
		}
	})
	t.Run("a conflict is a reason to come again, and loses nothing", func(t *testing.T) {
		make("contended")
		mine, theirs := read("contended"), read("contended")
		w := Begin(c, mine)
		theirs.Finalizers = []string{"example.org/theirs"}
		if err := c.Update(ctx, theirs); err != nil {
			t.Fatal(err)
		}
		mine.Finalizers = []string{v1alpha1.FinalizerWithdraw}
		var res ctrl.Result
		var err error
		w.Commit(ctx, &res, &err)
		if err != nil || res.RequeueAfter == 0 {
			t.Errorf("error %v, requeue after %v", err, res.RequeueAfter)
		}
		if got := read("contended").Finalizers; cmp.Diff(got, theirs.Finalizers) != "" {
			t.Errorf("finalizers %v, want the other writer's", got)
		}
	})
	t.Run("an object that is gone needs nothing", func(t *testing.T) {
		request := make("gone")
		w := Begin(c, request)
		if err := c.Delete(ctx, request.DeepCopy()); err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		False(&request.Status.Conditions, 1, v1alpha1.ConditionSent, v1alpha1.ReasonPending, "")
		var res ctrl.Result
		var err error
		w.Commit(ctx, &res, &err)
		if err != nil {
			t.Error(err)
		}
	})
}
