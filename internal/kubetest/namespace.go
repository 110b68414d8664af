package kubetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// callLimit bounds each group of requests that prepares or clears a namespace, on the
// busiest machine.
const callLimit = 2 * time.Minute

// Namespace makes a namespace named after the test, different on every call, with its
// default service account, and removes it with all it holds when the test ends.
func (s *APIServer) Namespace(t testing.TB) string {
	t.Helper()
	client, err := kubernetes.NewForConfig(s.Config)
	if err != nil {
		t.Fatalf("making a client: %v", err)
	}
	name := namespaceName(t.Name(), randomName())
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		t.Fatalf("making namespace %s: %v", name, err)
	}
	t.Cleanup(func() {
		if err := s.clear(client, name); err != nil {
			t.Errorf("removing namespace %s: %v", name, err)
		}
	})
	// A controller would make this account; pods are refused without it.
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := client.CoreV1().ServiceAccounts(name).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		t.Fatalf("making the default service account of %s: %v", name, err)
	}
	return name
}

// namespaceName turns the name of a test into the name of a namespace: at most 63
// characters, ending in a part that makes it unique.
func namespaceName(test, unique string) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, test)
	clean = clean[:min(len(clean), 63-1-len(unique))]
	clean = strings.Trim(clean, "-")
	if clean == "" {
		return unique
	}
	return clean + "-" + unique
}

// clear does what the namespace controller would: no new objects, delete those that
// are there, let the namespace go. Objects held by finalizers of their own stay
// behind, unseen by tests that look into their own namespace.
func (s *APIServer) clear(client kubernetes.Interface, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	if err := client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		if apierrors.IsNotFound(err) {
			return nil // the test removed it
		}
		return err
	}
	resources, err := deletable(client.Discovery())
	if err != nil {
		return err
	}
	quiet := *s.Config
	quiet.WarningHandler = rest.NoWarnings{} // some kinds are deprecated; we only delete
	objects, err := metadata.NewForConfig(&quiet)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	for _, r := range resources {
		err := objects.Resource(r).Namespace(name).DeleteCollection(ctx, now, metav1.ListOptions{})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsMethodNotSupported(err) {
			return fmt.Errorf("deleting its %s: %w", r.Resource, err)
		}
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := client.CoreV1().Namespaces().Finalize(ctx, namespace, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

// deletable lists the kinds that live in namespaces and can be deleted all at once.
// Groups whose server is away are left out: their objects are out of reach too.
func deletable(client discovery.DiscoveryInterface) ([]schema.GroupVersionResource, error) {
	lists, err := discovery.ServerPreferredNamespacedResources(client)
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, fmt.Errorf("listing kinds: %w", err)
	}
	var found []schema.GroupVersionResource
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, fmt.Errorf("listing kinds: %w", err)
		}
		for _, r := range list.APIResources {
			if slices.Contains(r.Verbs, "deletecollection") {
				found = append(found, version.WithResource(r.Name))
			}
		}
	}
	return found, nil
}
