package test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// policies holds the twelve outcomes of strategy, RuntimeClass and wish.
func policies(t *testing.T, c *continuum) {
	type wish struct {
		name    string
		class   bool
		node    string // pinned to
		allowed map[v1alpha1.PodOffloadingStrategy]bool
	}
	const local, remote, both = v1alpha1.PodsLocal, v1alpha1.PodsRemote, v1alpha1.PodsLocalAndRemote
	wishes := []wish{
		{"local", false, "rome-1", map[v1alpha1.PodOffloadingStrategy]bool{local: true, both: true}},
		{"remote", false, "milan", map[v1alpha1.PodOffloadingStrategy]bool{remote: true, both: true}},
		{"class-remote", true, "milan", map[v1alpha1.PodOffloadingStrategy]bool{local: true, remote: true, both: true}},
		{"class-local", true, "rome-1", nil},
	}
	shops := map[v1alpha1.PodOffloadingStrategy]shop{}
	for _, strategy := range []v1alpha1.PodOffloadingStrategy{local, remote, both} {
		s := c.offloaded(t, "rome", "--pod-offloading-strategy", string(strategy))
		shops[strategy] = s
		for _, w := range wishes {
			pod := onto(s.sleeper(w.name), w.node)
			if w.class {
				class := v1alpha1.RuntimeClass
				pod.Spec.RuntimeClassName = &class
			}
			s.create(t, pod)
		}
	}
	for strategy, s := range shops {
		for _, w := range wishes {
			if w.allowed[strategy] {
				if pod := s.running(t, w.name); pod.Spec.NodeName != w.node {
					t.Errorf("%s, %s: runs on %s", strategy, w.name, pod.Spec.NodeName)
				}
			}
		}
	}
	never(t, 10*time.Second, "a pod is bound against its strategy", func() (bool, error) {
		for strategy, s := range shops {
			for _, w := range wishes {
				pod, err := get[corev1.Pod](c, "rome", s.name, w.name)
				if err != nil {
					return false, err
				}
				if !w.allowed[strategy] && pod.Spec.NodeName != "" {
					t.Logf("%s, %s is on %s", strategy, w.name, pod.Spec.NodeName)
					return true, nil
				}
			}
		}
		return false, nil
	})
}

// namespaces holds how names are given, refused and given again.
func namespaces(t *testing.T, c *continuum) {
	s := c.offloaded(t, "rome")
	o := s.phase(t, v1alpha1.OffloadingPhaseReady)
	there := s.name + "-rome"
	if len(o.Status.Clusters) != 1 || o.Status.Clusters[0].RemoteNamespace != there {
		t.Errorf("clusters %+v, want milan with %s", o.Status.Clusters, there)
	}
	pod := s.sleeper("stays")
	s.create(t, onto(pod, "milan"))
	s.running(t, "stays")
	t.Run("deleted by hand", func(t *testing.T) {
		before, err := get[corev1.Namespace](c, "milan", "", there)
		if err != nil {
			t.Fatal(err)
		}
		if before.Labels["pod-security.kubernetes.io/enforce"] != "baseline" {
			t.Errorf("labels %v, want the Pod Security level of the tenant", before.Labels)
		}
		if err := c.Clients["milan"].Delete(t.Context(), before); err != nil {
			t.Fatal(err)
		}
		s.eventually(t, goneLimit+offloadLimit, "the namespace is made again and its pod runs in it", func() error {
			now, err := get[corev1.Namespace](c, "milan", "", there)
			if err != nil {
				return err
			}
			twin, err := c.twin("milan", pod)
			if err != nil || now.UID == before.UID || twin.Status.Phase != corev1.PodRunning {
				return fmt.Errorf("namespace %s (was %s), pod %v", now.UID, before.UID, err)
			}
			return nil
		})
		s.running(t, "stays")
	})
	t.Run("conflict", func(t *testing.T) {
		other := c.shop(t, "rome")
		taken := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other.name + "-rome"}}
		if err := c.Clients["milan"].Create(t.Context(), taken); err != nil {
			t.Fatal(err)
		}
		r := c.TryPelago(t, "rome", "offload", "namespace", other.name, "--timeout", "90s")
		if r.Code == 0 || !strings.Contains(r.Out+r.Errs, taken.Name) {
			t.Errorf("offloading onto a namespace that is taken: exit %d\n%s%s", r.Code, r.Out, r.Errs)
		}
		other.phase(t, v1alpha1.OffloadingPhaseAllFailed)
		now, err := get[corev1.Namespace](c, "milan", "", taken.Name)
		if err != nil || now.UID != taken.UID || now.Labels[v1alpha1.LabelTenant] != "" {
			t.Errorf("the namespace that was there: %v, labels %v", err, now.Labels)
		}
		if err := c.Clients["milan"].Delete(t.Context(), taken); err != nil {
			t.Fatal(err)
		}
		other.phase(t, v1alpha1.OffloadingPhaseReady)
	})
	t.Run("names need leave", func(t *testing.T) {
		other := c.shop(t, "rome")
		args := []string{"offload", "namespace", other.name, "--namespace-mapping-strategy", "SelectedName", "--remote-name", "chosen", "--timeout", "90s"}
		r := c.TryPelago(t, "rome", args...)
		if r.Code == 0 || !strings.Contains(r.Out+r.Errs, v1alpha1.ReasonNameForbidden) && !strings.Contains(r.Out+r.Errs, "namespaceNames") {
			t.Errorf("a chosen name without leave: exit %d\n%s%s", r.Code, r.Out, r.Errs)
		}
		c.patchTenant(t, "milan", "rome", func(tenant *v1alpha1.Tenant) { tenant.Spec.NamespaceNames = []string{"chosen"} })
		t.Cleanup(func() {
			c.patchTenant(t, "milan", "rome", func(tenant *v1alpha1.Tenant) { tenant.Spec.NamespaceNames = nil })
		})
		other.phase(t, v1alpha1.OffloadingPhaseReady)
		if n, err := get[corev1.Namespace](c, "milan", "", "chosen"); err != nil || n.Labels[v1alpha1.LabelTenant] != "rome" {
			t.Errorf("namespace chosen: %v", err)
		}
	})
	t.Run("label", func(t *testing.T) {
		other := c.shop(t, "rome")
		set := func(value any) {
			patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, v1alpha1.LabelOffload, value))
			if err := c.Clients["rome"].Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other.name}}, patch); err != nil {
				t.Fatal(err)
			}
		}
		set(`"true"`)
		other.phase(t, v1alpha1.OffloadingPhaseReady)
		set("null")
		eventually(t, offloadLimit, "the offloading is gone, here and there", func() error {
			if _, err := other.offloading(); !apierrors.IsNotFound(err) {
				return fmt.Errorf("offloading: %v", err)
			}
			if _, err := get[corev1.Namespace](c, "milan", "", other.name+"-rome"); !apierrors.IsNotFound(err) {
				return fmt.Errorf("namespace at milan: %v", err)
			}
			return nil
		})
	})
	t.Run("selector", func(t *testing.T) {
		other := c.shop(t, "rome")
		r := c.TryPelago(t, "rome", "offload", "namespace", other.name, "--cluster-selector", "hardware=slow", "--timeout", "90s")
		if r.Code == 0 || !strings.Contains(r.Out+r.Errs, "matches none") {
			t.Errorf("a selector that matches nothing: exit %d\n%s%s", r.Code, r.Out, r.Errs)
		}
		other.phase(t, v1alpha1.OffloadingPhaseNoClusterSelected)
		c.Pelago(t, "rome", "offload", "namespace", other.name, "--cluster-selector", "hardware in (fast,slow)")
		other.phase(t, v1alpha1.OffloadingPhaseReady)
	})
}

func (c *continuum) patchTenant(t *testing.T, cluster, name string, change func(*v1alpha1.Tenant)) {
	t.Helper()
	tenant, err := get[v1alpha1.Tenant](c, cluster, "", name)
	if err != nil {
		t.Fatal(err)
	}
	before := tenant.DeepCopy()
	change(tenant)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := c.Clients[cluster].Patch(ctx, tenant, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}
