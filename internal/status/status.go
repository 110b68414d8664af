// Package status is the one write at the end of a reconcile: a reconciler begins
// with the object as it read it, changes it in memory, and commits on every way
// out. It also holds the small rules of conditions that all kinds share. It knows
// no kind, and never reads.
package status

import (
	"context"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// conflictDelay is how soon an object is looked at again that somebody else changed
// in the meantime.
const conflictDelay = 20 * time.Millisecond

// Writer holds an object as it was read.
type Writer struct {
	client  client.Client
	before  client.Object
	after   client.Object
	version string
}

// Begin remembers an object as it was read; obj itself may be changed from now on.
func Begin(c client.Client, obj client.Object) *Writer {
	return &Writer{client: c, before: obj.DeepCopyObject().(client.Object), after: obj, version: obj.GetResourceVersion()}
}

// Version is the resourceVersion of the object as it was read, or written by Commit; empty if that did not succeed.
func (w *Writer) Version() string { return w.version }

// Commit writes what has changed since Begin: metadata and spec with a lock on the
// version that was read, status without. A conflict is no error but a reason to come
// again soon; an object that is gone needs nothing written. It is meant to be deferred.
func (w *Writer) Commit(ctx context.Context, res *ctrl.Result, err *error) {
	writeErr := w.write(ctx)
	if writeErr != nil {
		w.version = ""
	}
	switch {
	case writeErr == nil, apierrors.IsNotFound(writeErr):
	case apierrors.IsConflict(writeErr):
		if *err == nil && (res.RequeueAfter == 0 || res.RequeueAfter > conflictDelay) {
			*res = ctrl.Result{RequeueAfter: conflictDelay}
		}
	case *err == nil:
		*err = writeErr
	}
}

// write patches status first: a finalizer that goes away may take the object with it.
// Both patches hold only if nobody else wrote since Begin, for lists such as
// conditions and finalizers are replaced whole. An empty list or map and none are the
// same when they are written, so that is no change.
func (w *Writer) write(ctx context.Context) error {
	if !equality.Semantic.DeepEqual(statusOf(w.before), statusOf(w.after)) {
		patched := w.after.DeepCopyObject().(client.Object)
		if err := w.client.Status().Patch(ctx, patched, lock(w.before)); err != nil {
			return err
		}
		w.version = patched.GetResourceVersion()
	}
	if sameMain(w.before, w.after) {
		return nil
	}
	before := w.before.DeepCopyObject().(client.Object)
	after := w.after.DeepCopyObject().(client.Object)
	before.SetResourceVersion(w.version)
	after.SetResourceVersion(w.version)
	err := w.client.Patch(ctx, after, lock(before))
	if err == nil {
		w.version = after.GetResourceVersion()
	}
	return err
}

func lock(before client.Object) client.Patch {
	return client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
}

// statusOf returns the field Status of a kind, nil if it has none.
func statusOf(obj client.Object) any {
	field := reflect.ValueOf(obj).Elem().FieldByName("Status")
	if !field.IsValid() {
		return nil
	}
	return field.Interface()
}

// sameMain compares what is not status: metadata that controllers write, and spec.
func sameMain(a, b client.Object) bool {
	spec := func(o client.Object) any {
		field := reflect.ValueOf(o).Elem().FieldByName("Spec")
		if !field.IsValid() {
			return nil
		}
		return field.Interface()
	}
	return equality.Semantic.DeepEqual(a.GetFinalizers(), b.GetFinalizers()) &&
		equality.Semantic.DeepEqual(a.GetLabels(), b.GetLabels()) &&
		equality.Semantic.DeepEqual(a.GetAnnotations(), b.GetAnnotations()) &&
		equality.Semantic.DeepEqual(spec(a), spec(b))
}

// True, False and Unknown set a condition of an object's generation.
func True(conditions *[]metav1.Condition, generation int64, kind, reason, message string) {
	set(conditions, generation, kind, metav1.ConditionTrue, reason, message)
}

// False sets a condition to False.
func False(conditions *[]metav1.Condition, generation int64, kind, reason, message string) {
	set(conditions, generation, kind, metav1.ConditionFalse, reason, message)
}

// Unknown sets a condition to Unknown.
func Unknown(conditions *[]metav1.Condition, generation int64, kind, reason, message string) {
	set(conditions, generation, kind, metav1.ConditionUnknown, reason, message)
}

func set(conditions *[]metav1.Condition, generation int64, kind string, s metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(conditions, metav1.Condition{
		Type: kind, Status: s, Reason: reason, Message: message, ObservedGeneration: generation,
	})
}

// Derive sets the condition ready from others: True if all are, else False with the
// reason and message of the first that is not, in the order given. One that is
// missing counts as not yet known.
func Derive(conditions *[]metav1.Condition, generation int64, ready, pending string, of ...string) {
	for _, kind := range of {
		c := meta.FindStatusCondition(*conditions, kind)
		switch {
		case c == nil:
			False(conditions, generation, ready, pending, "waiting for "+kind)
			return
		case c.Status != metav1.ConditionTrue:
			False(conditions, generation, ready, c.Reason, c.Message)
			return
		}
	}
	True(conditions, generation, ready, ready, "")
}

// IsTrue reports whether a condition is there and True.
func IsTrue(conditions []metav1.Condition, kind string) bool {
	return meta.IsStatusConditionTrue(conditions, kind)
}
