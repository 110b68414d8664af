package namespace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// may asks what the manager may do with Secrets in a namespace, and whether it may mint
// tokens there.
func (w *world) may(namespace string) string {
	w.t.Helper()
	var all []string
	ask := func(what string, on authorizationv1.ResourceAttributes) {
		on.Namespace = namespace
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:" + v1alpha1.SystemNamespace + ":pelago-manager", ResourceAttributes: &on}}
		if err := w.raw.Create(ctx, review); err != nil {
			w.t.Fatal(err)
		}
		if review.Status.Allowed {
			all = append(all, what)
		}
	}
	for _, verb := range []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"} {
		ask(verb, authorizationv1.ResourceAttributes{Resource: "secrets", Verb: verb})
	}
	ask("mint", authorizationv1.ResourceAttributes{Resource: "serviceaccounts", Subresource: "token", Verb: "create"})
	return strings.Join(all, " ")
}

// roles makes the roles that are generated for the manager's own rights in namespaces.
func (w *world) roles() {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "generated", "rbac.yaml"))
	if err != nil {
		w.t.Fatal(err)
	}
	found := 0
	for _, one := range strings.Split(string(text), "\n---\n") {
		role := &rbacv1.ClusterRole{}
		if err := yaml.Unmarshal([]byte(one), role); err != nil {
			w.t.Fatal(err)
		}
		if role.Kind != "ClusterRole" || role.Name != managerHomeRole && role.Name != managerMappedRole && role.Name != managerTokensRole {
			continue
		}
		found++
		if err := w.raw.Create(ctx, role); err != nil && !apierrors.IsAlreadyExists(err) {
			w.t.Fatal(err)
		}
	}
	if found != 3 {
		w.t.Fatalf("%d roles are generated", found)
	}
}

// TestOwnRights: the manager gives itself rights over Secrets where namespaces are
// offloaded or mapped, nowhere else and no longer.
func TestOwnRights(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "milan")
	w.roles()
	if got := w.may(w.home); got != "" {
		t.Fatalf("before: %s", got)
	}
	w.offload(v1alpha1.NamespaceOffloadingSpec{})
	w.settle()
	remote := w.remote(w.peer("milan")).Name
	check := func(when, home, mapped string) {
		t.Helper()
		for namespace, want := range map[string]string{w.home: home, remote: mapped, "default": "", v1alpha1.TenantNamespace(w.peer("milan")): ""} {
			got := ""
			for range 200 { // the API server learns of role bindings in a moment
				if got = w.may(namespace); got == want {
					break
				}
			}
			if got != want {
				t.Errorf("%s: in %s the manager may %q, want %q", when, namespace, got, want)
			}
		}
	}
	const make = "get list create patch delete"
	check("offloaded", "get list", make)
	for _, namespace := range []string{w.home, remote} {
		if err := w.raw.Delete(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: managerBinding}}); err != nil {
			t.Fatal(err)
		}
	}
	w.settle()
	check("deleted by hand", "get list", make)
	for namespace, by := range map[string]*rbacv1.RoleBinding{
		w.home: ownBinding(w.home, managerMappedRole, v1alpha1.SystemNamespace, homeBinding(w.home, "").Labels),
		remote: ownBinding(remote, managerHomeRole, v1alpha1.SystemNamespace, get(w, remote, managerBinding, &rbacv1.RoleBinding{}).Labels),
	} {
		if err := w.raw.Delete(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: managerBinding}}); err != nil {
			t.Fatal(err)
		}
		w.create(by)
	}
	w.settle()
	check("another role by hand", "get list", make)
	writes := w.writes
	w.settle()
	if w.writes != writes {
		t.Errorf("%d writes at rest", w.writes-writes)
	}
	for _, c := range []struct {
		policy v1alpha1.TokenPolicy
		home   string
	}{{v1alpha1.TokensAllow, "get list mint"}, {v1alpha1.TokensDeny, "get list"}, {v1alpha1.TokensAllow, "get list mint"}} {
		o := w.offloading()
		o.Spec.ServiceAccountTokens = c.policy
		if err := w.raw.Update(ctx, o); err != nil {
			t.Fatal(err)
		}
		w.settle()
		check("tokens: "+string(c.policy), c.home, make)
	}
	t.Run("not ours", func(t *testing.T) {
		b := get(w, w.home, managerBinding, &rbacv1.RoleBinding{})
		b.Labels, b.Subjects = nil, []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "somebody"}}
		if err := w.raw.Update(ctx, b); err != nil {
			t.Fatal(err)
		}
		w.settle()
		if now := get(w, w.home, managerBinding, &rbacv1.RoleBinding{}); now.ResourceVersion != b.ResourceVersion {
			t.Error("a foreign role binding was touched")
		}
		if err := w.raw.Delete(ctx, b); err != nil {
			t.Fatal(err)
		}
		w.settle()
	})
	t.Run("taken away", func(t *testing.T) {
		n := get(w, "", remote, &corev1.Namespace{})
		delete(n.Labels, v1alpha1.LabelTenant)
		if err := w.raw.Update(ctx, n); err != nil {
			t.Fatal(err)
		}
		w.settle()
		check("the namespace is not the tenant's any more", "get list mint", "")
	})
	o := get(w, w.home, v1alpha1.OffloadingName, &v1alpha1.NamespaceOffloading{})
	if err := w.raw.Delete(ctx, o); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	w.settle()
	for _, name := range []string{managerBinding, managerTokensRole} {
		if b := get(w, w.home, name, &rbacv1.RoleBinding{}); b != nil {
			t.Errorf("the rights %s stay at home though nothing is offloaded", name)
		}
	}
}
