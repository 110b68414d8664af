package namespace

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kube"
)

// TestMapDenied holds that a provider whose quota takes no NamespaceMap has not taken rights away.
func TestMapDenied(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "milan")
	milan := w.peer("milan")
	tenant := v1alpha1.TenantNamespace(milan)
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "none"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/namespacemaps.pelago.dev": resource.MustParse("0")}}}
	w.create(q)
	q.Status = corev1.ResourceQuotaStatus{Hard: q.Spec.Hard, Used: q.Spec.Hard}
	if err := w.raw.Status().Update(ctx, q); err != nil {
		t.Fatal(err)
	}
	probe := &v1alpha1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: v1alpha1.NamespaceMapName}}
	for limit := time.Now().Add(time.Minute); !kube.DenialOf(w.raw.Create(ctx, probe.DeepCopy(), client.DryRunAll)).ByQuota(); {
		if time.Now().After(limit) {
			t.Fatal("the quota does not count")
		}
	}
	w.offload(v1alpha1.NamespaceOffloadingSpec{})
	for range 4 {
		_ = w.look() // what fails is said
	}
	m := get(w, homeMap(milan).Namespace, v1alpha1.NamespaceMapName, &v1alpha1.NamespaceMap{})
	if c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady); c == nil || c.Reason != v1alpha1.ReasonLimitExceeded {
		t.Errorf("Ready is %+v", c)
	}
}

// TestUnnamed holds that a privileged tenant that nobody names is found by the policy that holds it, and not by what
// others deny.
func TestUnnamed(t *testing.T) {
	f := &estate{tenant: &v1alpha1.Tenant{}}
	f.tenant.Spec.PodSecurity = v1alpha1.PodSecurityPrivileged
	for said, want := range map[string]bool{
		"ValidatingAdmissionPolicy 'pelago-manager-security' with binding 'pelago-manager-security' denied request: no": true,
		"ValidatingAdmissionPolicy 'strict' with binding 'strict' denied request: no":                                   false,
	} {
		err := apierrors.NewForbidden(corev1.Resource("namespaces"), "x", errors.New(said))
		if got := f.unnamed(err); got != want {
			t.Errorf("%v: %t", err, got)
		}
	}
}
