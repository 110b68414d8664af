package setup

import (
	"context"
	"errors"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

var (
	definitionKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
	deploymentKind = appsv1.SchemeGroupVersion.WithKind("Deployment")
	daemonSetKind  = appsv1.SchemeGroupVersion.WithKind("DaemonSet")
	namespaceKind  = schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}
)

// domain ends the names of our labels, finalizers and kinds.
const domain = "pelago.dev"

// Remove takes out what is labelled as ours and what the given objects name. Definitions
// of kinds, with all objects of these kinds, go only if purge is set. It waits until
// everything is gone.
func (s Site) Remove(ctx context.Context, rendered []*unstructured.Unstructured, purge bool) error {
	// What asks our programs, then the programs: they would make again what goes.
	for _, kind := range pruned {
		found, err := s.labelled(ctx, kind, client.HasLabels{v1alpha1.LabelManagedBy})
		if err != nil {
			return err
		}
		for i := range found {
			s.Say("Removing %s %s", kind.Kind, found[i].GetName())
			if err := s.delete(ctx, &found[i]); err != nil {
				return err
			}
		}
		if namespace, runs := programs[kind]; runs {
			if err := s.ended(ctx, namespace); err != nil {
				return err
			}
		}
	}
	for _, object := range rendered {
		if object.GetKind() == definitionKind.Kind {
			continue
		}
		if err := s.delete(ctx, object); err != nil {
			return err
		}
	}
	namespaces, err := s.namespaces(ctx)
	if err != nil {
		return err
	}
	var definitions []metav1.PartialObjectMetadata
	if all, err := s.definitions(ctx); err != nil {
		return err
	} else {
		if purge {
			definitions = all
		}
		within := map[string]bool{}
		for _, n := range namespaces {
			within[n.Name] = true
		}
		if err := s.release(ctx, all, func(namespace string) bool { return purge || within[namespace] }); err != nil {
			return err
		}
	}
	for _, gone := range [][]metav1.PartialObjectMetadata{namespaces, definitions} {
		if err := s.gone(ctx, gone); err != nil {
			return err
		}
	}
	return nil
}

// StillRunsError says which of our programs has not ended.
type StillRunsError struct {
	// What is there, and what to do if it stays.
	What, Remedy string
	// Cause is how the wait ended.
	Cause error
}

// Error is a sentence.
func (e *StillRunsError) Error() string { return e.What + " is still there" }

// Unwrap returns how the wait ended.
func (e *StillRunsError) Unwrap() error { return e.Cause }

// programs is the namespace of our programs, by what runs them.
var programs = map[schema.GroupVersionKind]string{deploymentKind: v1alpha1.SystemNamespace, daemonSetKind: v1alpha1.NetworkNamespace}

// ended waits until our programs in a namespace have ended, which nobody makes anew: they
// work until then, and what they make must not come after what is removed. Agents take
// what they made off their nodes, for which they need their rights.
func (s Site) ended(ctx context.Context, namespace string) error {
	ours := []client.ListOption{client.InNamespace(namespace), client.MatchingLabels{v1alpha1.LabelManagedBy: Installed}}
	left := StillRunsError{}
	err := s.until(ctx, func() (bool, error) {
		var sets appsv1.ReplicaSetList
		var pods corev1.PodList
		if err := errors.Join(s.Client.List(ctx, &sets, ours...), s.Client.List(ctx, &pods, ours...)); err != nil {
			return false, fmt.Errorf("listing the pods of our programs: %w", err)
		}
		switch {
		case len(pods.Items) > 0:
			pod := pods.Items[0]
			left.What = fmt.Sprintf("pod %s of node %s", pod.Name, pod.Spec.NodeName)
			left.Remedy = "if that node is gone for good: kubectl delete pod -n " + pod.Namespace + " --force " + pod.Name
		case len(sets.Items) > 0: // which may make more
			left.What = "ReplicaSet " + sets.Items[0].Name
			left.Remedy = "see whether the cluster's controller-manager runs"
		default:
			return true, nil
		}
		s.Say("Waiting until %s is gone", left.What)
		return false, nil
	})
	if ctx.Err() != nil && left.What != "" {
		left.Cause = err
		return &left
	}
	return err
}

// namespaces are ours by name and label; Pelago's own is ours by name.
func (s Site) namespaces(ctx context.Context) ([]metav1.PartialObjectMetadata, error) {
	all, err := s.labelled(ctx, namespaceKind)
	if err != nil {
		return nil, err
	}
	var ours []metav1.PartialObjectMetadata
	for _, n := range all {
		_, labelled := n.Labels[v1alpha1.LabelManagedBy]
		if n.Name == v1alpha1.SystemNamespace || labelled && strings.HasPrefix(n.Name, "pelago-") {
			ours = append(ours, n)
		}
	}
	return ours, nil
}

// definitions are those of our group.
func (s Site) definitions(ctx context.Context) ([]metav1.PartialObjectMetadata, error) {
	all, err := s.labelled(ctx, definitionKind)
	if err != nil {
		return nil, err
	}
	var ours []metav1.PartialObjectMetadata
	for _, d := range all {
		if strings.HasSuffix(d.Name, "."+v1alpha1.GroupVersion.Group) {
			ours = append(ours, d)
		}
	}
	return ours, nil
}

// release takes our finalizers off objects of our kinds, since nobody is left to do what
// they stand for, in the namespaces that are chosen; "" stands for objects in none.
func (s Site) release(ctx context.Context, definitions []metav1.PartialObjectMetadata, chosen func(namespace string) bool) error {
	for _, d := range definitions {
		full := &unstructured.Unstructured{}
		full.SetGroupVersionKind(definitionKind)
		if err := s.Client.Get(ctx, client.ObjectKey{Name: d.Name}, full); err != nil {
			if client.IgnoreNotFound(err) == nil {
				continue
			}
			return fmt.Errorf("reading kind %s: %w", d.Name, err)
		}
		kind, _, _ := unstructured.NestedString(full.Object, "spec", "names", "kind")
		objects, err := s.labelled(ctx, v1alpha1.GroupVersion.WithKind(kind))
		if err != nil {
			return err
		}
		for i := range objects {
			if !chosen(objects[i].Namespace) {
				continue
			}
			if err := s.unfinalize(ctx, &objects[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// unfinalize keeps the finalizers of others.
func (s Site) unfinalize(ctx context.Context, object *metav1.PartialObjectMetadata) error {
	before := object.DeepCopy()
	var others []string
	for _, f := range object.Finalizers {
		if !strings.HasPrefix(f, domain+"/") {
			others = append(others, f)
		}
	}
	if len(others) == len(object.Finalizers) {
		return nil
	}
	object.Finalizers = others
	if err := s.Client.Patch(ctx, object, client.MergeFrom(before), Owner); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("releasing %s %s: %w", object.Kind, object.Name, err)
	}
	return nil
}

// gone deletes objects and waits until they are gone.
func (s Site) gone(ctx context.Context, objects []metav1.PartialObjectMetadata) error {
	for i := range objects {
		if err := s.delete(ctx, &objects[i]); err != nil {
			return err
		}
	}
	for i := range objects {
		object := &objects[i]
		s.Say("Waiting until %s %s is gone", object.Kind, object.Name)
		err := s.until(ctx, func() (bool, error) {
			current := &metav1.PartialObjectMetadata{}
			current.SetGroupVersionKind(object.GroupVersionKind())
			err := s.Client.Get(ctx, client.ObjectKeyFromObject(object), current)
			if err != nil {
				return client.IgnoreNotFound(err) == nil, client.IgnoreNotFound(err)
			}
			return current.UID != object.UID, nil
		})
		if err != nil {
			return fmt.Errorf("waiting until %s %s is gone: %w", object.Kind, object.Name, err)
		}
	}
	return nil
}
