package test

import (
	"context"
	"errors"
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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// continuum adds to the sandbox with Pelago what scenarios do again and again.
type continuum struct {
	*kubetest.Continuum
	// leaving are namespaces that go while other parts run, if not nil.
	leaving *leaving
}

func newContinuum(t *testing.T, s *kubetest.SandboxHandle, clusters ...string) *continuum {
	t.Helper()
	return &continuum{Continuum: kubetest.NewContinuum(t, s, clusters...)}
}

// peer makes consumer a consumer of provider by invitation, and unmakes it when the
// test ends.
func (c *continuum) peer(t *testing.T, consumer, provider string) kubetest.Result {
	t.Helper()
	line := c.Invite(t, provider)
	t.Cleanup(func() { c.part(t, consumer, provider) })
	r := c.Shell(t, consumer, line)
	if r.Code != 0 {
		t.Fatalf("%s does not become a consumer of %s: exit %d\n%s%s\n%s", consumer, provider, r.Code, r.Out, r.Errs,
			c.TryPelago(t, consumer, "explain", "peering", provider).Out)
	}
	return r
}

// part ends whatever peering there is between two clusters; none is fine.
func (c *continuum) part(t *testing.T, consumer, provider string) {
	t.Helper()
	for _, side := range [][2]string{{consumer, provider}, {provider, consumer}} {
		cluster, peer := side[0], side[1]
		peering := &v1alpha1.Peering{}
		if c.Clients[cluster].Get(context.Background(), client.ObjectKey{Name: peer}, peering) == nil {
			if r := c.TryPelago(t, cluster, "unpeer", peer); r.Code != 0 && !strings.Contains(r.Errs, "no peering") {
				t.Errorf("unpeer %s in %s: exit %d\n%s%s", peer, cluster, r.Code, r.Out, r.Errs)
			}
		}
	}
	eventually(t, patience, consumer+" and "+provider+" have parted", func() error {
		for _, cluster := range []string{consumer, provider} {
			var tenants v1alpha1.TenantList
			if err := c.Clients[cluster].List(context.Background(), &tenants); err != nil {
				return err
			}
			for _, tenant := range tenants.Items {
				if tenant.Name == consumer || tenant.Name == provider {
					return fmt.Errorf("%s still has tenant %s", cluster, tenant.Name)
				}
			}
		}
		return nil
	})
}

// nodes are a cluster's own, without those that are others' clusters.
func (c *continuum) nodes(t *testing.T, cluster string) (names []string) {
	t.Helper()
	var list corev1.NodeList
	if err := c.Clients[cluster].List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	for _, n := range list.Items {
		if n.Labels[v1alpha1.LabelType] != v1alpha1.TypeVirtualNode {
			names = append(names, n.Name)
		}
	}
	return names
}

// get reads an object of a cluster.
func get[T any, P interface {
	*T
	client.Object
}](c *continuum, cluster, namespace, name string) (P, error) {
	obj := P(new(T))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return obj, c.Clients[cluster].Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, obj)
}

// condition says what a condition is, for messages and comparison: Type=Status(Reason).
func condition(conditions []metav1.Condition, kind string) string {
	for _, each := range conditions {
		if each.Type == kind {
			return fmt.Sprintf("%s=%s(%s)", kind, each.Status, each.Reason)
		}
	}
	return kind + "=absent"
}

// settle waits until no namespace and no pod of Pelago's is on its way out: Kubernetes
// takes five seconds for an empty namespace, and a replica answers for as long.
func (c *continuum) settle(t *testing.T, cluster string) {
	t.Helper()
	eventually(t, patience, "nothing of Pelago in "+cluster+" is terminating", func() error {
		var namespaces corev1.NamespaceList
		var pods corev1.PodList
		if err := errors.Join(c.Clients[cluster].List(context.Background(), &namespaces),
			c.Clients[cluster].List(context.Background(), &pods, client.InNamespace(v1alpha1.SystemNamespace))); err != nil {
			return err
		}
		for _, n := range namespaces.Items {
			if n.DeletionTimestamp != nil && strings.HasPrefix(n.Name, "pelago") {
				return fmt.Errorf("%s is", n.Name)
			}
		}
		for _, p := range pods.Items {
			if p.DeletionTimestamp != nil {
				return fmt.Errorf("pod %s is", p.Name)
			}
		}
		return nil
	})
}

// objects lists every object of a cluster as resource/namespace/name, but for those
// that come and go by themselves.
func (c *continuum) objects(t *testing.T, cluster string) (found []string) {
	t.Helper()
	c.settle(t, cluster)
	eventually(t, patience, "all of "+cluster+" is listed", func() (err error) {
		found, err = c.listed(t.Context(), cluster)
		return err
	})
	return found
}

// listed tries once to list them.
func (c *continuum) listed(ctx context.Context, cluster string) ([]string, error) {
	quiet := rest.CopyConfig(c.Configs[cluster])
	quiet.WarningHandler = rest.NoWarnings{}
	typed, err := kubernetes.NewForConfig(quiet)
	if err != nil {
		return nil, err
	}
	lists, err := typed.Discovery().ServerPreferredResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, err
	}
	meta, err := metadata.NewForConfig(quiet)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "list") || passing(version.Group, r.Name) {
				continue
			}
			items, err := meta.Resource(version.WithResource(r.Name)).List(ctx, metav1.ListOptions{})
			if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
				continue // removed between discovery and now, or not for listing
			}
			if err != nil {
				return nil, fmt.Errorf("listing %s.%s: %w", r.Name, version.Group, err)
			}
			for _, item := range items.Items {
				found = append(found, fmt.Sprintf("%s.%s/%s/%s", r.Name, version.Group, item.Namespace, item.Name))
			}
		}
	}
	slices.Sort(found)
	return found, nil
}

// passing are resources whose objects come and go without anybody's doing.
func passing(group, resource string) bool {
	switch {
	case resource == "events", group == "metrics.k8s.io", resource == "ipaddresses":
		return true
	}
	return false
}

// asBefore waits until a cluster has exactly the objects it had.
func (c *continuum) asBefore(t *testing.T, cluster string, before []string) {
	t.Helper()
	eventually(t, patience, cluster+" is as before", func() error {
		now := c.objects(t, cluster)
		var changes []string
		for _, o := range now {
			if !slices.Contains(before, o) {
				changes = append(changes, "+ "+o)
			}
		}
		for _, o := range before {
			if !slices.Contains(now, o) {
				changes = append(changes, "- "+o)
			}
		}
		if len(changes) > 0 {
			return fmt.Errorf("changed:\n  %s", strings.Join(changes, "\n  "))
		}
		return nil
	})
}
