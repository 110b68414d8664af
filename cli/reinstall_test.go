package cli

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// asManager is a client with the rights that an installation gives to pelago-manager.
func (s *stage) asManager() client.Client {
	s.t.Helper()
	config := rest.CopyConfig(servers.server(s.t, 1))
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + v1alpha1.SystemNamespace + ":pelago-manager",
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + v1alpha1.SystemNamespace, "system:authenticated"}}
	c, err := client.New(config, client.Options{Scheme: kubetest.Scheme()})
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// merged changes an object as the text says; subresource may be empty.
func (s *stage) merged(c client.Client, obj client.Object, text, subresource string) error {
	patch, obj := client.RawPatch("application/merge-patch+json", []byte(text)), obj.DeepCopyObject().(client.Object)
	if subresource != "" {
		return c.SubResource(subresource).Patch(s.t.Context(), obj, patch)
	}
	return c.Patch(s.t.Context(), obj, patch)
}

// tell tells the policies of a virtual node, as pelago-manager does.
func (s *stage) tell(manager client.Client, node string) error {
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: v1alpha1.AdmissionName}}
	return s.merged(manager, role, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationAdmissionNodes, node), "")
}

// bind is what the scheduler does.
func (s *stage) bind(namespace, name string) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	return s.c.SubResource("binding").Create(s.t.Context(), pod, &corev1.Binding{ObjectMeta: pod.ObjectMeta, Target: corev1.ObjectReference{Kind: "Node", Name: name}})
}

// TestInstallAgain holds that what an installation is told of virtual nodes counts when an
// earlier one was removed from the same API servers.
func TestInstallAgain(t *testing.T) {
	s := newStage(t, 1)
	s.kubernetes()
	manager, plain, offloaded, nodes := s.asManager(), "again-plain", "again-offloaded", []string{"milan", "oslo"}
	for _, namespace := range []string{plain, offloaded} {
		s.space(namespace, nil)
		for _, node := range nodes { // each pod is for the node of its name
			s.create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: node},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c"}}}})
		}
	}
	for round, node := range nodes {
		// The kinds of a stage are from later.
		if got := s.run("install", "--cluster-name", "rome", "--api-server-url", "https://rome.example:6443", "--downgrade"); got.code != 0 {
			t.Fatalf("installing, round %d: %+v", round, got)
		}
		eventually(t, "the manager may tell of node "+node, func() bool { return s.tell(manager, node) == nil })
		s.rightsOfTheManager(manager)
		eventually(t, "the manager's label is let through", func() bool {
			return s.merged(manager, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: offloaded}}, `{"metadata":{"labels":{"pelago.dev/offloaded":"true"}}}`, "") == nil
		})
		named := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: plain, Name: "named"}, Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "c"}}}}
		eventually(t, "the policies know node "+node, func() bool {
			err := s.c.Create(t.Context(), named.DeepCopy(), client.DryRunAll)
			return err != nil && strings.Contains(err.Error(), "is not offloaded")
		})
		if err := s.bind(plain, node); err == nil || !strings.Contains(err.Error(), "is not offloaded") {
			t.Errorf("binding to %s where pods are not offloaded: %v", node, err)
		}
		if err := s.bind(offloaded, node); err != nil {
			t.Errorf("binding to %s: %v", node, err)
		}
		bound := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: offloaded, Name: node}}
		if err := s.merged(manager, bound, `{"status":{"phase":"Running"}}`, "status"); err != nil {
			t.Errorf("the manager writes the status of a pod on %s: %v", node, err)
		}
		if got := s.run("uninstall"); got.code != 0 {
			t.Fatalf("uninstalling, round %d: %+v", round, got)
		}
		// By a policy that is told nothing, and goes after those that are.
		reserved := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-again", Labels: map[string]string{v1alpha1.LabelOffload: "true"}}}
		eventually(t, "the API server has forgotten the policies", func() bool {
			return s.c.Create(t.Context(), reserved.DeepCopy(), client.DryRunAll) == nil
		})
	}
}

// rightsOfTheManager holds that it may keep its Role as the policies see it, and no other.
func (s *stage) rightsOfTheManager(manager client.Client) {
	s.t.Helper()
	ctx, only := s.t.Context(), client.MatchingFields{metav1.ObjectNameField: v1alpha1.AdmissionName}
	roles := &rbacv1.RoleList{}
	if err := manager.List(ctx, roles, client.InNamespace(v1alpha1.SystemNamespace), only); err != nil || len(roles.Items) != 1 || len(roles.Items[0].Rules) > 0 {
		s.t.Errorf("listing the Role: %v, %v", roles.Items, err)
	}
	if err := manager.List(ctx, roles, client.InNamespace(v1alpha1.SystemNamespace)); err == nil {
		s.t.Error("the manager lists all Roles")
	}
	theirs := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "again-rome", Labels: map[string]string{v1alpha1.LabelTenant: "rome"}}}
	eventually(s.t, "a tenant's namespace made by an administrator is refused", func() bool {
		err := s.c.Create(ctx, theirs.DeepCopy(), client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "given by Pelago only")
	})
	theirs.Labels["pod-security.kubernetes.io/enforce"], theirs.Labels["pod-security.kubernetes.io/enforce-version"] = string(v1alpha1.PodSecurityBaseline), "latest"
	if err := manager.Create(ctx, theirs, client.DryRunAll); err != nil {
		s.t.Errorf("the manager makes a tenant's namespace: %v", err)
	}
	missing := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: v1alpha1.AdmissionName}}
	if err := s.c.Delete(ctx, missing.DeepCopy()); err != nil {
		s.t.Fatal(err)
	}
	missing.Annotations = roles.Items[0].Annotations
	if err := manager.Create(ctx, missing.DeepCopy()); err != nil {
		s.t.Errorf("the manager makes the Role again: %v", err)
	}
	another := missing.DeepCopy()
	another.Name = "another"
	for what, do := range map[string]func() error{
		"another Role": func() error { return manager.Create(ctx, another.DeepCopy(), client.DryRunAll) },
		"a Role with rights": func() error {
			return s.merged(manager, missing, `{"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}]}`, "")
		},
	} {
		eventually(s.t, what+" is refused", func() bool {
			err := do()
			return err != nil && strings.Contains(err.Error(), "gives no rights")
		})
	}
}
