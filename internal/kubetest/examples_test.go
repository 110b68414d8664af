package kubetest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestKindsHavePagesWithExamples applies every example of docs/kinds to a real API
// server, as a reader would, and holds that every kind has a page.
func TestKindsHavePagesWithExamples(t *testing.T) {
	c := Server(t).Client(t)
	for _, namespace := range []string{v1alpha1.SystemNamespace, v1alpha1.NetworkNamespace, "pelago-tenant-rome", "pelago-peering-milan", "shop"} {
		err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	pages := filepath.Join("..", "..", "docs", "kinds")
	for kind := range c.Scheme().KnownTypes(v1alpha1.GroupVersion) {
		if strings.HasSuffix(kind, "List") || strings.HasSuffix(kind, "Options") || kind == "WatchEvent" {
			continue
		}
		page := filepath.Join(pages, strings.ToLower(kind)+".md")
		text, err := os.ReadFile(page)
		if err != nil {
			t.Errorf("kind %s has no page: %v", kind, err)
			continue
		}
		found := false
		for _, object := range examples(t, string(text)) {
			found = found || object.GetKind() == kind
			ctx, cancel := context.WithTimeout(t.Context(), callLimit)
			applied := client.ApplyConfigurationFromUnstructured(object)
			if err := c.Apply(ctx, applied, client.FieldOwner("reader"), client.DryRunAll, client.ForceOwnership); err != nil {
				t.Errorf("%s: applying its %s: %v", page, object.GetKind(), err)
			}
			cancel()
		}
		if !found {
			t.Errorf("%s has no example of its kind", page)
		}
	}
}

// examples returns the objects in the yaml blocks of a page.
func examples(t *testing.T, page string) []*unstructured.Unstructured {
	t.Helper()
	var found []*unstructured.Unstructured
	for _, block := range strings.Split(page, "```yaml\n")[1:] {
		block, _, _ = strings.Cut(block, "\n```")
		for _, document := range strings.Split(block, "\n---\n") {
			object := &unstructured.Unstructured{}
			if err := yaml.UnmarshalStrict([]byte(document), &object.Object); err != nil {
				t.Fatalf("reading an example: %v\n%s", err, document)
			}
			found = append(found, object)
		}
	}
	return found
}
