package cli

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kube"
)

// TestKinds holds that what is known of kinds without asking is what servers say.
func TestKinds(t *testing.T) {
	newStage(t, 0)
	config := servers.server(t, 0)
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	c, err := newCluster(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	for version := range kinds {
		list, err := d.ServerResourcesForGroupVersion(version.String())
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, resource := range list.APIResources {
			if strings.Contains(resource.Name, "/") || !knows(version, resource.Kind) {
				continue
			}
			found++
			mapping, err := c.Client.RESTMapper().RESTMapping(schema.GroupKind{Group: version.Group, Kind: resource.Kind}, version.Version)
			if err != nil || mapping.Resource.Resource != resource.Name || (mapping.Scope.Name() == "namespace") != resource.Namespaced {
				t.Errorf("%s %s: %+v, %v; the server says %s, namespaced %t", version, resource.Kind, mapping, err, resource.Name, resource.Namespaced)
			}
		}
		if want := len(kinds[version].clustered) + len(kinds[version].namespaced); found != want {
			t.Errorf("%s: the server has %d of the %d kinds", version, found, want)
		}
	}
	gk := schema.GroupKind{Group: "storage.k8s.io", Kind: "StorageClass"}
	if _, err := c.Client.RESTMapper().RESTMapping(gk, "v1"); err != nil {
		t.Errorf("a kind that has to be asked for: %v", err)
	}
}

func knows(version schema.GroupVersion, kind string) bool {
	for _, known := range append(append([]string{}, kinds[version].clustered...), kinds[version].namespaced...) {
		if known == kind {
			return true
		}
	}
	return false
}

// TestDescribe holds that what is said to do helps against what was wrong: nobody gives a right to write into a namespace
// that is being removed, and a server that has answered is no wrong address.
func TestDescribe(t *testing.T) {
	s := newStage(t, 0)
	const name = "terminating"
	s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{"pelago.dev/test"}}})
	if err := s.c.Delete(t.Context(), newNamespace(name)); err != nil {
		t.Fatal(err)
	}
	config := servers.server(t, 0)
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	const held = "held"
	s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: held, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}})
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: held, Name: "no-secrets"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/secrets": resource.MustParse("0")}}}
	s.create(quota)
	secret := func(c *Cluster) error {
		return c.Client.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: held, Name: "x"}}, client.DryRunAll)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: held, Name: "x"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	stranger := rest.CopyConfig(config)
	stranger.Impersonate.UserName = "stranger"
	into := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "x"}}
	for _, one := range []struct {
		reason     string
		before     func(*Cluster) error
		do         func(*Cluster) error
		says, lies string
	}{
		{"the namespace is going", nil, func(c *Cluster) error { return c.Client.Create(t.Context(), into.DeepCopy()) }, "wait until that namespace is gone", "ask the cluster's owner"},
		{"it has not answered", nil, func(c *Cluster) error { return c.Client.List(late, &corev1.NodeList{}) }, "right address", "is slow"},
		{"it has answered", func(c *Cluster) error { return c.Client.List(t.Context(), &corev1.NodeList{}) },
			func(c *Cluster) error { return c.Client.List(late, &corev1.NodeList{}) }, "answers, but not in time", "right address"},
		{"a quota is not counted yet", func(c *Cluster) error {
			quota.Status.Hard = quota.Spec.Hard
			err := c.Client.Status().Update(t.Context(), quota)
			eventually(t, "the quota is there", func() bool { return kube.Uncounted(secret(c)) })
			return err
		}, secret, "run the command again", "this right"},
		{"a quota is used up", func(c *Cluster) error {
			quota.Status.Used = quota.Spec.Hard
			err := c.Client.Status().Update(t.Context(), quota)
			eventually(t, "the quota counts", func() bool { return !kube.Uncounted(secret(c)) })
			return err
		}, secret, "used up its ResourceQuota no-secrets", "this right"},
		{"Pod Security", nil, func(c *Cluster) error { return c.Client.Create(t.Context(), pod.DeepCopy()) }, "the Pod Security level restricted: have the cluster's owner", "this right"},
		{"no right", func(c *Cluster) (err error) {
			c.Client, err = client.NewWithWatch(stranger, client.Options{})
			return err
		}, secret, "ask the cluster's owner for this right", "quota"},
		{"a kind of others is not there", nil, func(c *Cluster) error {
			monitors := &unstructured.UnstructuredList{}
			monitors.SetGroupVersionKind(schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "ServiceMonitorList"})
			return c.Client.List(t.Context(), monitors)
		}, "does not serve that kind", "pelago install"},
		{"a kind of ours is not there", nil, func(c *Cluster) error {
			moons := &unstructured.UnstructuredList{}
			moons.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("MoonList"))
			return c.Client.List(t.Context(), moons)
		}, "run: pelago install", "does not serve"},
	} {
		c, err := newCluster(config, nil)
		if err == nil && one.before != nil {
			err = one.before(c)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := describe(one.do(c), c); err == nil || !strings.Contains(err.Error(), one.says) || strings.Contains(err.Error(), one.lies) {
			t.Errorf("%s: it says %v", one.reason, err)
		}
	}
}
