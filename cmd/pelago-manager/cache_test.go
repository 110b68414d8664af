package main

import (
	"context"
	"testing"

	"github.com/go-logr/logr"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// The cache holds, of the Roles, the one that the policies go by, for a manager that may
// read no other.
func TestCacheOfRoles(t *testing.T) {
	server := kubetest.Server(t)
	c, namespace, user := server.Client(t), server.Namespace(t), server.Name(t, "manager")
	rights := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: user}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles"}, ResourceNames: []string{v1alpha1.AdmissionName}, Verbs: []string{"get", "list", "watch"},
	}}}
	for _, obj := range []client.Object{
		rights, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.AdmissionName}},
		&rbacv1.RoleBinding{ObjectMeta: rights.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}}},
	} {
		if err := c.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	config := rest.CopyConfig(server.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	options := managerOptions(logr.NewContext(t.Context(), logr.Discard()), kubetest.Scheme(), settings{rooms: rooms[:2], namespace: namespace}).Cache
	options.Scheme = kubetest.Scheme()
	cached, err := cache.New(config, options)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	if _, err := cached.GetInformer(ctx, &rbacv1.Role{}, cache.BlockUntilSynced(false)); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cached.Start(ctx) }()
	if !cached.WaitForCacheSync(ctx) {
		t.Fatal("the cache is not filled")
	}
	all := &rbacv1.RoleList{}
	if err := cached.List(ctx, all); err != nil || len(all.Items) != 1 || all.Items[0].Name != v1alpha1.AdmissionName {
		t.Errorf("the cache holds %v, %v", all.Items, err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
