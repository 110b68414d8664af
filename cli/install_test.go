package cli

import (
	"context"
	"io"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/setup"
	"github.com/pelago-dev/pelago/internal/home"
)

// TestInstallAndUninstall goes through the life of an installation on one server.
func TestInstallAndUninstall(t *testing.T) {
	s := newStage(t, 1)
	t.Cleanup(func() { newStage(t, 1) }) // the kinds again, for the next test
	stop := s.kubernetes()
	if got := s.run("uninstall", "--purge"); got.code != 0 {
		t.Fatalf("removing what other tests have left: %+v", got)
	}
	stop()
	if got := s.run("status"); got.code != 1 || !strings.Contains(got.err, "run: pelago install") {
		t.Errorf("status without an installation: %+v", got)
	}
	if got := s.run("peer", "milan", "--cluster-id", id1, "--auth-url", "https://milan.example:30443", "--ca-sha256", hash, "--token", marked); got.code != 1 ||
		!strings.Contains(got.err, "run: pelago install") || strings.Contains(got.err, marked) {
		t.Errorf("peering without an installation: %+v", got)
	}
	install := []string{"install", "--cluster-name", "milan", "--api-server-url", "https://milan.example:6443"}
	if got := s.run(append(install, "--dry-run")...); got.code != 0 || !strings.Contains(got.out, "kind: CustomResourceDefinition") || !strings.Contains(got.out, "name: pelago-system") {
		t.Errorf("a dry run: %+v", got)
	}
	if got := s.run(append(install, "--timeout", "15s")...); got.code != 1 || !strings.Contains(got.err, "it has no pod yet") || !strings.Contains(got.err, "run pelago install again") {
		t.Errorf("an installation that does not start: %+v", got)
	}
	stop = s.kubernetes()
	if got := s.run(install...); got.code != 0 || !strings.Contains(got.out, "Pelago runs in milan") || !strings.Contains(got.err, "pelago generate peer-command") {
		t.Fatalf("installing: %+v", got)
	}
	if got := s.run("install"); got.code != 0 || got.out != "Pelago runs in milan; nothing had to be changed.\n" {
		t.Errorf("installing again: %+v", got)
	}
	s.testUpgrade(t)
	s.testWithoutNetwork(t)
	s.testRefuse(t)
	s.testStillRuns(t)
	if got := s.run("uninstall"); got.code != 0 || got.out != "Pelago is removed.\n" || strings.Contains(got.err, "restart") {
		t.Fatalf("uninstalling: %+v", got)
	}
	if left := s.leftovers(t); len(left) > 0 && !onlyKinds(left) {
		t.Errorf("uninstall leaves %v", left)
	}
	s.space(v1alpha1.SystemNamespace, nil)
	s.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: "stone", Labels: map[string]string{v1alpha1.LabelTombstone: "turin"}}})
	if got := s.run("uninstall", "--purge"); got.code != 0 || !strings.Contains(got.err, "turin may still hold a tenant of this cluster") {
		t.Fatalf("purging: %+v", got)
	}
	if left := s.leftovers(t); len(left) > 0 {
		t.Errorf("uninstall --purge leaves %v", left)
	}
	stop()
}

// testUpgrade holds that what was set stays, what was edited stays, and what an earlier
// version had goes.
func (s *stage) testUpgrade(t *testing.T) {
	ctx := t.Context()
	old := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "pelago-of-an-earlier-version", Labels: map[string]string{v1alpha1.LabelManagedBy: "install"}}}
	foreign := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "of-somebody-else"}}
	// What the policies were told by before there was a Role of that name.
	list := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: v1alpha1.AdmissionName, Labels: old.Labels}}
	s.create(old, foreign, list)
	if got := s.run("install", "--set", "config.offer.reserve=20%", "--labels", "topology.kubernetes.io/region=eu-south", "--auth-service-type", "ClusterIP"); got.code != 0 || !strings.Contains(got.out, "2 removed") {
		t.Errorf("changing the installation: %+v", got)
	}
	for _, object := range []client.Object{old, list} {
		if err := s.c.Get(ctx, client.ObjectKeyFromObject(object), object); !apierrors.IsNotFound(err) {
			t.Errorf("what an earlier version had is still there: %T, %v", object, err)
		}
	}
	if err := s.c.Get(ctx, client.ObjectKeyFromObject(foreign), foreign); err != nil {
		t.Errorf("what is not ours is gone: %v", err)
	}
	settings := func() home.Config {
		var stored corev1.ConfigMap
		if err := s.c.Get(ctx, inSystem(v1alpha1.ConfigName), &stored); err != nil {
			t.Fatal(err)
		}
		config, err := home.Parse(stored.Data[home.ConfigKey])
		if err != nil {
			t.Fatal(err)
		}
		return config
	}
	check := func(when string) {
		t.Helper()
		c := settings()
		if c.Cluster.Name != "milan" || c.Offer.Reserve != "20%" || c.Cluster.Labels["topology.kubernetes.io/region"] != "eu-south" || c.APIServer.URL != "https://milan.example:6443" {
			t.Errorf("%s: the settings are %+v", when, c)
		}
	}
	check("after a change")
	if got := s.run("install"); got.code != 0 || !strings.Contains(got.out, "nothing had to be changed") {
		t.Errorf("installing without a word: %+v", got)
	}
	check("after installing without a word")
	var stored corev1.ConfigMap
	if err := s.c.Get(ctx, inSystem(v1alpha1.ConfigName), &stored); err != nil {
		t.Fatal(err)
	}
	stored.Data[home.ConfigKey] = strings.Replace(stored.Data[home.ConfigKey], "20%", "30%", 1)
	if err := s.c.Update(ctx, &stored); err != nil {
		t.Fatal(err)
	}
	if got := s.run("install"); got.code != 0 || settings().Offer.Reserve != "30%" {
		t.Errorf("what was edited in the cluster is gone: %+v, %+v", got, settings())
	}
	var service corev1.Service
	if err := s.c.Get(ctx, inSystem(v1alpha1.AuthService), &service); err != nil || service.Spec.Type != corev1.ServiceTypeClusterIP {
		t.Errorf("the type of the Service is %s, %v; it was set to ClusterIP", service.Spec.Type, err)
	}
	image := func() string {
		var d appsv1.Deployment
		if err := s.c.Get(ctx, inSystem(managerDeployment), &d); err != nil {
			t.Fatal(err)
		}
		return d.Spec.Template.Spec.Containers[0].Image
	}
	for _, one := range []struct {
		args []string
		want string
	}{
		{[]string{"--image", "registry.example:5000/p/pelago:dev"}, "registry.example:5000/p/pelago:dev"},
		{nil, "registry.example:5000/p/pelago:v1.2.3"},
		{[]string{"--set", "image.ref="}, "pelago.dev/pelago:v1.2.3"},
	} {
		if got := s.run(append([]string{"install"}, one.args...)...); got.code != 0 || image() != one.want {
			t.Errorf("the image after install %v is %s, want %s: %+v", one.args, image(), one.want, got)
		}
	}
	if got := s.run("install", "--set", "config.offer.reserve=much"); got.code != 1 || !strings.Contains(got.err, "reserve") {
		t.Errorf("settings with a mistake: %+v", got)
	}
	if got := s.run("install", "--set", "manger.replicas=2"); got.code != 1 || !strings.Contains(got.err, "manger") {
		t.Errorf("a value there is not: %+v", got)
	}
}

// testWithoutNetwork holds that the network can be taken out and put in again, and that the
// agents have what they need until the last one has ended.
func (s *stage) testWithoutNetwork(t *testing.T) {
	in := func(name string) client.ObjectKey {
		return client.ObjectKey{Namespace: v1alpha1.NetworkNamespace, Name: name}
	}
	agent := s.agent()
	got := s.runUntil("Waiting until pod pelago-agent-x of node n1 is gone", "install", "--set", "network.enabled=false")
	if got.code != 1 || !strings.Contains(got.err, "pod pelago-agent-x of node n1 is still there; if that node is gone for good: kubectl delete pod -n pelago-network --force pelago-agent-x") {
		t.Errorf("taking the network out while an agent runs: %+v", got)
	}
	if err := s.c.Get(t.Context(), in(v1alpha1.AgentName), &appsv1.DaemonSet{}); !apierrors.IsNotFound(err) {
		t.Errorf("while an agent runs the DaemonSet is there: %v", err)
	}
	for _, object := range []client.Object{&corev1.ServiceAccount{}, &rbacv1.RoleBinding{}} {
		if err := s.c.Get(t.Context(), in(v1alpha1.AgentName), object); err != nil {
			t.Errorf("while an agent runs %T: %v", object, err)
		}
	}
	s.drop(agent)
	if got := s.run("install", "--set", "network.enabled=false"); got.code != 0 || !strings.Contains(got.out, " removed") {
		t.Errorf("taking the network out: %+v", got)
	}
	gone := func() bool {
		return apierrors.IsNotFound(s.c.Get(t.Context(), client.ObjectKey{Name: v1alpha1.NetworkNamespace}, &corev1.Namespace{}))
	}
	s.until(gone, "namespace pelago-network stays")
	if got := s.run("install"); got.code != 0 || !strings.Contains(got.out, "nothing had to be changed") || !gone() {
		t.Errorf("it stays out: %+v", got)
	}
	if got := s.run("install", "--set", "network.enabled=true"); got.code != 0 || gone() {
		t.Errorf("putting it in again: %+v", got)
	}
}

// agent makes a pod of the agents.
func (s *stage) agent() *corev1.Pod {
	no := false
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NetworkNamespace, Name: "pelago-agent-x", Labels: map[string]string{v1alpha1.LabelManagedBy: setup.Installed}},
		Spec: corev1.PodSpec{NodeName: "n1", ServiceAccountName: v1alpha1.AgentName, AutomountServiceAccountToken: &no, Containers: []corev1.Container{{Name: "agent", Image: "x"}}}}
	s.create(pod)
	return pod
}

// testRefuse holds that nothing goes while somebody relies on it.
func (s *stage) testRefuse(t *testing.T) {
	peering := &v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: "rome"}, Spec: v1alpha1.PeeringSpec{ClusterID: id2, Provide: &v1alpha1.Provide{Tenant: "rome"}}}
	tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "paris"}, Spec: v1alpha1.TenantSpec{ClusterID: id1, PeeringUID: id1}}
	s.create(peering, tenant)
	for _, args := range [][]string{{"uninstall"}, {"uninstall", "--purge"}} {
		if got := s.run(args...); got.code != 1 || !strings.Contains(got.err, "run: pelago unpeer rome; pelago unpeer paris") {
			t.Errorf("uninstalling while peered: %+v", got)
		}
	}
	s.drop(peering)
	s.drop(tenant)
	s.space("uninstalled-shop", nil)
	offloaded := &v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "uninstalled-shop", Name: v1alpha1.OffloadingName}}
	s.create(offloaded)
	for _, args := range [][]string{{"uninstall"}, {"uninstall", "--purge"}} {
		if got := s.run(args...); got.code != 1 || !strings.Contains(got.err, "run: pelago unoffload namespace uninstalled-shop") {
			t.Errorf("uninstalling while a namespace is offloaded: %+v", got)
		}
	}
	s.drop(offloaded)
	s.asks()
	stone := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: "stone", Labels: map[string]string{v1alpha1.LabelTombstone: "turin"}}}
	s.create(stone)
	if got := s.run("uninstall"); got.code != 1 || !strings.Contains(got.err, "pelago unpeer turin --forget") {
		t.Errorf("uninstalling with a tombstone: %+v", got)
	}
	if got := s.run("unpeer", "turin", "--forget"); got.code != 0 || got.out != "Forgot turin.\n" ||
		!strings.Contains(got.err, "turin may still hold a tenant of this cluster; its owner removes that with: pelago unpeer milan") {
		t.Errorf("forgetting: %+v", got)
	}
	stuck := &v1alpha1.Invitation{ObjectMeta: metav1.ObjectMeta{Name: "stuck", Finalizers: []string{"pelago.dev/nobody-is-left"}},
		Spec: v1alpha1.InvitationSpec{TokenSHA256: hash, Expires: metav1.Now()}}
	s.create(stuck)
}

// testStillRuns holds that what programs have stays as long as one of them has not ended,
// or may still begin.
func (s *stage) testStillRuns(t *testing.T) {
	about := metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: "pelago-manager-x", Labels: map[string]string{v1alpha1.LabelManagedBy: setup.Installed, "app": "x"}}
	yes, no, user := true, false, int64(65532)
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: about.Labels}, Spec: corev1.PodSpec{
		NodeName: "n1", AutomountServiceAccountToken: &no,
		SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: &yes, RunAsUser: &user, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Containers: []corev1.Container{{Name: "manager", Image: "x", SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}}},
	}}
	pod := &corev1.Pod{ObjectMeta: about, Spec: template.Spec}
	set := &appsv1.ReplicaSet{ObjectMeta: about, Spec: appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}, Template: template}}
	s.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: about.Namespace, Name: "default"}}, set, pod)
	for _, left := range []struct {
		object       client.Object
		what, remedy string
	}{
		{pod, "pod pelago-manager-x of node n1", "if that node is gone for good: kubectl delete pod -n pelago-system --force pelago-manager-x"},
		{set, "ReplicaSet pelago-manager-x", "see whether the cluster's controller-manager runs"},
	} {
		got := s.runUntil("Waiting until "+left.what, "uninstall")
		if got.code != 1 || !strings.Contains(got.err, left.what+" is still there; "+left.remedy+"; then run pelago uninstall again") {
			t.Errorf("uninstalling while there is %T: %+v", left.object, got)
		}
		if err := s.c.Get(t.Context(), inSystem("pelago-manager"), &corev1.ServiceAccount{}); err != nil {
			t.Errorf("while there is %T the ServiceAccount: %v", left.object, err)
		}
		s.drop(left.object)
	}
	agent := s.agent()
	if got := s.runUntil("Waiting until pod pelago-agent-x of node n1", "uninstall"); got.code != 1 || !strings.Contains(got.err, "pod pelago-agent-x of node n1 is still there") {
		t.Errorf("uninstalling while an agent runs: %+v", got)
	}
	for name, object := range map[string]client.Object{"pelago-agent": &rbacv1.ClusterRoleBinding{}, "pelago-network": &corev1.Namespace{}} {
		if err := s.c.Get(t.Context(), client.ObjectKey{Name: name}, object); err != nil || object.GetDeletionTimestamp() != nil {
			t.Errorf("while an agent runs %T: %v", object, err)
		}
	}
	s.drop(agent)
	var deployments appsv1.DeploymentList
	if err := s.c.List(t.Context(), &deployments, client.InNamespace(about.Namespace)); err != nil || len(deployments.Items) > 0 {
		t.Errorf("%d Deployments are left, %v", len(deployments.Items), err)
	}
}

// runUntil runs the program and interrupts it when it says something.
func (s *stage) runUntil(said string, args ...string) result {
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*limit)
	defer cancel()
	return programWith(ctx, func(e *Env) {
		e.Connect = func(Access) (*Cluster, error) { return Connect(s.access) }
		e.Err = listener{e.Err, said, cancel}
	}, args...)
}

// listener calls heard when it is written what it waits for.
type listener struct {
	io.Writer
	waits string
	heard func()
}

func (l listener) Write(text []byte) (int, error) {
	if strings.Contains(string(text), l.waits) {
		l.heard()
	}
	return l.Writer.Write(text)
}

// asks makes objects by which the API server asks programs, or refuses, as an installation has them.
func (s *stage) asks() {
	s.t.Helper()
	policy := map[string]any{"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{
		"apiGroups": []any{"example.com"}, "apiVersions": []any{"v1"}, "operations": []any{"CREATE"}, "resources": []any{"things"}}}},
		"validations": []any{map[string]any{"expression": "true"}}}
	for _, one := range []struct {
		version, kind, name string
		fields              map[string]any
	}{
		{"admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", "pelago-of-a-test", nil},
		{"admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", "pelago-of-a-test", map[string]any{"spec": policy}},
		{"admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding", "pelago-of-a-test", map[string]any{"spec": map[string]any{"policyName": "pelago-of-a-test", "validationActions": []any{"Deny"}}}},
		{"node.k8s.io/v1", "RuntimeClass", "pelago-of-a-test", map[string]any{"handler": "pelago"}},
		{"scheduling.k8s.io/v1", "PriorityClass", "pelago-of-a-test", map[string]any{"value": int64(1)}},
		{"apiregistration.k8s.io/v1", "APIService", "v1alpha1.test.pelago.dev", map[string]any{"spec": map[string]any{"group": "test.pelago.dev", "version": "v1alpha1",
			"groupPriorityMinimum": int64(100), "versionPriority": int64(100), "service": map[string]any{"name": "nobody", "namespace": v1alpha1.SystemNamespace}}}},
	} {
		o := &unstructured.Unstructured{Object: one.fields}
		if one.fields == nil {
			o.Object = map[string]any{}
		}
		o.SetAPIVersion(one.version)
		o.SetKind(one.kind)
		o.SetName(one.name)
		o.SetLabels(map[string]string{v1alpha1.LabelManagedBy: "install"})
		s.create(o)
	}
}

// leftovers lists all that has our name or label.
func (s *stage) leftovers(t *testing.T) []string {
	t.Helper()
	var left []string
	for _, kind := range []schema.GroupVersionKind{
		{Version: "v1", Kind: "Namespace"},
		{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRoleBinding"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"},
		{Group: "flowcontrol.apiserver.k8s.io", Version: "v1", Kind: "FlowSchema"},
		{Group: "flowcontrol.apiserver.k8s.io", Version: "v1", Kind: "PriorityLevelConfiguration"},
		{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"},
		{Version: "v1", Kind: "ConfigMap"},
		{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "MutatingWebhookConfiguration"},
		{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicy"},
		{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicyBinding"},
		{Group: "node.k8s.io", Version: "v1", Kind: "RuntimeClass"},
		{Group: "scheduling.k8s.io", Version: "v1", Kind: "PriorityClass"},
		{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"},
	} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		if err := s.c.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		for _, object := range list.Items {
			_, ours := object.GetLabels()[v1alpha1.LabelManagedBy]
			if kind.Kind == "APIService" && object.GetName() == v1alpha1.GroupVersion.Version+"."+v1alpha1.GroupVersion.Group {
				continue // the API server's own, for definitions of kinds
			}
			if ours || strings.Contains(object.GetName(), "pelago") || strings.HasPrefix(object.GetNamespace(), "pelago") {
				left = append(left, kind.Kind+" "+object.GetName())
			}
		}
	}
	return left
}

func onlyKinds(left []string) bool {
	for _, one := range left {
		if !strings.HasPrefix(one, "CustomResourceDefinition ") {
			return false
		}
	}
	return true
}
