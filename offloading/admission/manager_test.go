package admission

import (
	"context"
	"fmt"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/offloading/shadow"
)

// managerWithin: what is not Pelago's is out of the manager's reach.
func managerWithin(t *testing.T, g *guarded, plain, offloaded string) {
	rome := map[string]string{v1alpha1.LabelTenant: "rome", v1alpha1.LabelHomeNamespace: "shop"}
	on := func(name string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	mapped, tenant := g.must(t, g.manager, "shop-rome", rome), g.must(t, g.manager, "pelago-tenant-rome", nil)
	g.must(t, g.manager, "pelago-peering-milan", nil)
	cluster := g.must(t, g.c, "kube-system", nil)
	want(t, "opening one of the cluster", relabel(t, g.manager, on(cluster), v1alpha1.LabelOffloaded, "true", ""), "only namespaces of peerings")
	_, err := g.namespace(t, g.manager, "any", nil)
	want(t, "making any namespace", err, "only namespaces of peerings and tenants")
	_, err = g.namespace(t, g.manager, "kube-rome", rome)
	want(t, "making one of the cluster", err, "only namespaces of peerings and tenants")
	want(t, "removing any namespace", g.manager.Delete(t.Context(), on(plain), client.DryRunAll), "only namespaces of peerings and tenants")
	want(t, "another label of any namespace", relabel(t, g.manager, on(plain), "pod-security.kubernetes.io/warn", "privileged", ""), "only namespaces of peerings")
	// With the level that another policy asks for.
	taken := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"pelago.dev/tenant":"rome","pod-security.kubernetes.io/enforce":"baseline","pod-security.kubernetes.io/enforce-version":"latest"}}}`))
	want(t, "taking any namespace", g.manager.Patch(t.Context(), on(plain), taken), "only namespaces of peerings")
	orphan := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"nobody","uid":"u"}]}}`))
	want(t, "an owner of any namespace, with whom it would go", g.manager.Patch(t.Context(), on(plain), orphan), "only namespaces of peerings")
	for kind, parts := range map[corev1.SecretType][]string{corev1.SecretTypeOpaque: nil, corev1.SecretTypeServiceAccountToken: {"token of a service account"}} {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "s", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}}, Type: kind}
		want(t, "a Secret of type "+string(kind), g.manager.Create(t.Context(), s, client.DryRunAll), parts...)
	}
	want(t, "a label of a tenant's", relabel(t, g.manager, on(mapped), "pod-security.kubernetes.io/enforce", "baseline", ""))
	want(t, "removing a tenant's", g.manager.Delete(t.Context(), on(mapped), client.DryRunAll))

	for _, key := range []string{v1alpha1.LabelTenant, v1alpha1.LabelHomeNamespace} {
		want(t, "giving any namespace to a tenant", relabel(t, g.c, on(plain), key, "rome", ""), "given by Pelago only")
		want(t, "giving a tenant's to another", relabel(t, g.c, on(mapped), key, "oslo", ""), "given by Pelago only")
	}

	worker := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: g.node("real")}}
	want(t, "making a node", g.manager.Create(t.Context(), worker.DeepCopy()), "only virtual nodes")
	create(t, g.c, worker)
	want(t, "changing a node", relabel(t, g.manager, worker, "a", "b", ""), "only virtual nodes")
	want(t, "making it virtual", relabel(t, g.manager, worker, v1alpha1.LabelType, v1alpha1.TypeVirtualNode, ""), "only virtual nodes")
	want(t, "a node's status", relabel(t, g.manager, worker, "a", "b", "status"), "only virtual nodes")
	want(t, "removing a node", g.manager.Delete(t.Context(), worker, client.DryRunAll), "only virtual nodes")

	for _, c := range []struct {
		namespace, name, role string
		parts                 []string
	}{
		{plain, v1alpha1.ConsumerPodsRole, v1alpha1.ConsumerPodsRole, []string{"only to tenants"}}, {mapped, "admin", "view", []string{"only to tenants"}},
		{mapped, v1alpha1.ConsumerPodsRole, v1alpha1.ConsumerPodsRole, nil}, {tenant, v1alpha1.ConsumerRole, v1alpha1.ConsumerRole, nil},
		{mapped, "pelago-manager", "pelago-manager-mapped", nil}, {offloaded, "pelago-manager", "pelago-manager-home", nil},
		{plain, "pelago-manager", "pelago-manager-home", []string{"only to tenants"}},
		{plain, "pelago-manager", "pelago-manager-mapped", []string{"only to tenants"}}, {cluster, "pelago-manager", "pelago-manager-home", []string{"only to tenants"}},
		{offloaded, "pelago-manager-tokens", "pelago-manager-tokens", nil}, {plain, "pelago-manager-tokens", "pelago-manager-tokens", []string{"only to tenants"}},
		{mapped, "pelago-manager-tokens", "pelago-manager-tokens", []string{"only to tenants"}}, {offloaded, "pelago-manager-tokens", "admin", []string{"only to tenants"}},
	} {
		b := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: c.name},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: c.role}, Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "u"}}}
		if c.role == "pelago-manager-home" || c.role == "pelago-manager-tokens" {
			want(t, "somebody else's rights in "+c.namespace, g.manager.Create(t.Context(), b.DeepCopy(), client.DryRunAll), "only to tenants")
			b.Subjects = []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: v1alpha1.SystemNamespace, Name: "pelago-manager"}}
		}
		want(t, "rights "+c.name+" in "+c.namespace, g.manager.Create(t.Context(), b, client.DryRunAll), c.parts...)
	}
	left := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: plain, Name: v1alpha1.ConsumerPodsRole}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}}
	create(t, g.c, left)
	want(t, "taking rights where they are left", g.manager.Delete(t.Context(), left))
	for namespace, parts := range map[string][]string{plain: {"only"}, mapped: {"only"}, tenant: nil} {
		for _, obj := range []client.Object{&corev1.ServiceAccount{}, &corev1.ResourceQuota{}, &coordinationv1.Lease{}} {
			obj.SetNamespace(namespace)
			obj.SetName("consumer")
			want(t, fmt.Sprintf("%T in %s", obj, namespace), g.manager.Create(t.Context(), obj, client.DryRunAll), parts...)
		}
	}
	leasesOfNodes(t, g)
}

// managersTokens: the manager mints tokens only of offloaded namespaces and for pods.
func managersTokens(t *testing.T, g *guarded, plain, offloaded string) {
	const no = "mints tokens for pods of offloaded namespaces"
	for namespace, refusal := range map[string][]string{plain: {no}, offloaded: nil} {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "robot"}}
		create(t, g.c, account)
		pod := simplePod(namespace, "token")
		pod.Spec.ServiceAccountName = account.Name
		create(t, g.c, pod)
		mint := func(bound *authenticationv1.BoundObjectReference) error {
			return g.manager.SubResource("token").Create(t.Context(), account, &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: bound}})
		}
		want(t, "a token for a pod of "+namespace, mint(&authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}), refusal...)
		want(t, "a token for anything in "+namespace, mint(nil), no)
	}
}

// tokensOfConsumers live as long as settings can say at most, whoever asks; those by which the
// manager asks kubelets as long as it asks for.
func tokensOfConsumers(t *testing.T, g *guarded) {
	const long, short = "for 8760 hours at most", "for 10 minutes at most"
	tenant := g.must(t, g.manager, "pelago-tenant-token", map[string]string{v1alpha1.LabelTenant: "token"})
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.SystemNamespace}}
	if err := client.IgnoreAlreadyExists(g.c.Create(t.Context(), system)); err != nil {
		t.Fatal(err)
	}
	g.borrow(t, system)
	for _, c := range []struct {
		reason, namespace string
		as                client.Client
		seconds           int64
		parts             []string
	}{
		{"as long as settings can say", tenant, g.c, 8760 * 3600, nil},
		{"by clocks that differ", tenant, g.c, 8760*3600 + 60, nil},
		{"for ever", tenant, g.c, 1 << 32, []string{long}},
		{"two hours too long", tenant, g.c, 8762 * 3600, []string{long}},
		{"for ever, by the manager", tenant, g.manager, 1 << 32, []string{"8760 hours"}},
		{"for kubelets", system.Name, g.manager, 600, nil},
		{"for kubelets, too long", system.Name, g.manager, 601, []string{short}},
		{"somebody else's, beside", system.Name, g.c, 1 << 32, nil},
	} {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "consumer"}}
		if err := g.c.Create(t.Context(), account); client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = g.c.Delete(context.Background(), account) })
		mint := func() error {
			return c.as.SubResource("token").Create(t.Context(), account, &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &c.seconds}})
		}
		if c.parts != nil && c.namespace == system.Name {
			eventually(t, "the policies are in force there", func() bool { return mint() != nil })
		}
		want(t, "a token "+c.reason, mint(), c.parts...)
	}
}

// managersPods: the manager makes, changes and ends pods of tenants and of virtual nodes.
func managersPods(t *testing.T, g *guarded, plain, offloaded string) {
	mapped := g.must(t, g.manager, "pods-rome", map[string]string{v1alpha1.LabelTenant: "rome", v1alpha1.LabelHomeNamespace: "shop"})
	const no = "in namespaces of tenants only"
	for namespace, parts := range map[string][]string{plain: {no}, offloaded: {no}, mapped: nil} {
		want(t, "making one in "+namespace, g.manager.Create(t.Context(), simplePod(namespace, "made"), client.DryRunAll), parts...)
	}
	for _, c := range []struct {
		namespace, node string
		parts           []string
	}{{plain, "worker", []string{no}}, {offloaded, "worker", []string{no}}, {offloaded, g.node("milan"), nil}, {mapped, "worker", nil}} {
		pod := simplePod(c.namespace, strings.TrimSuffix("on-"+c.node, "-"+g.test)+"-m")
		pod.Spec.NodeName = c.node
		create(t, g.c, pod)
		what := "a pod in " + c.namespace + " on " + c.node
		want(t, what+": labels", relabel(t, g.manager, pod, "a", "b", ""), c.parts...)
		want(t, what+": what it tolerates", endless(t, g.manager, pod), c.parts...)
		want(t, what+": status", relabel(t, g.manager, pod, "a", "b", "status"), c.parts...)
		want(t, what+": the end", g.manager.Delete(t.Context(), pod, client.GracePeriodSeconds(0)), c.parts...)
	}
	for _, key := range []string{v1alpha1.LabelTenant, v1alpha1.LabelHomeNamespace} {
		half := g.must(t, g.manager, "half", map[string]string{v1alpha1.LabelTenant: "rome", v1alpha1.LabelHomeNamespace: "shop"})
		want(t, "making one in a tenant's", g.manager.Create(t.Context(), simplePod(half, "made"), client.DryRunAll))
		want(t, "taking it away from the tenant", relabel(t, g.c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: half}}, key, nil, ""))
		eventually(t, "making one without "+key+" is refused", func() bool {
			return g.manager.Create(t.Context(), simplePod(half, "made"), client.DryRunAll) != nil
		})
		want(t, "making one without "+key, g.manager.Create(t.Context(), simplePod(half, "made"), client.DryRunAll), no)
	}
	letsGo(t, g, plain, mapped, no)
	waiting := simplePod(offloaded, "waiting-m")
	create(t, g.c, waiting)
	want(t, "one that waits: labels", relabel(t, g.manager, waiting, "a", "b", ""), no)
	want(t, "one that waits: the end", g.manager.Delete(t.Context(), waiting))
}

// letsGo: of pods in namespaces that are no tenant's any more, or half, the manager takes its own
// finalizer off, and does nothing else; of others, not that.
func letsGo(t *testing.T, g *guarded, plain, mapped, no string) {
	half := g.must(t, g.manager, "half-taken", map[string]string{v1alpha1.LabelTenant: "rome", v1alpha1.LabelHomeNamespace: "shop"})
	want(t, "half taken away", relabel(t, g.c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: half}}, v1alpha1.LabelHomeNamespace, nil, ""))
	eventually(t, "making one in half of a tenant's is refused", func() bool {
		return g.manager.Create(t.Context(), simplePod(half, "made"), client.DryRunAll) != nil
	})
	held := func(namespace, name string, labels map[string]string) *corev1.Pod {
		pod := simplePod(namespace, name)
		pod.Labels, pod.Spec.NodeName = labels, "worker"
		pod.Finalizers = []string{"example.org/theirs", v1alpha1.FinalizerShadowPod}
		create(t, g.c, pod)
		t.Cleanup(func() {
			_ = g.c.Patch(context.Background(), pod, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
		})
		return pod
	}
	ours := map[string]string{v1alpha1.LabelManagedBy: shadow.ManagedBy, v1alpha1.LabelTenant: "rome", v1alpha1.LabelHomeUID: "u"}
	for namespace, parts := range map[string][]string{plain: {no}, half: {no}, mapped: nil} {
		pod := held(namespace, "held", ours)
		for what, change := range map[string]func(*corev1.Pod){
			"another's finalizer":       func(p *corev1.Pod) { p.Finalizers = p.Finalizers[1:] },
			"all finalizers":            func(p *corev1.Pod) { p.Finalizers = nil },
			"its own for another":       func(p *corev1.Pod) { p.Finalizers[1] = "example.org/other" },
			"its own, and a label":      func(p *corev1.Pod) { p.Finalizers, p.Labels = p.Finalizers[:1], map[string]string{"a": "b"} },
			"its own, and an owner":     func(p *corev1.Pod) { p.Finalizers, p.OwnerReferences = p.Finalizers[:1], nodeOwner() },
			"its own, and annotations":  func(p *corev1.Pod) { p.Finalizers, p.Annotations = p.Finalizers[:1], map[string]string{"a": "b"} },
			"its own, and the image":    func(p *corev1.Pod) { p.Finalizers, p.Spec.Containers[0].Image = p.Finalizers[:1], "other" },
			"its own, and its deadline": func(p *corev1.Pod) { p.Finalizers, p.Spec.ActiveDeadlineSeconds = p.Finalizers[:1], ptr.To(int64(1)) },
		} {
			next := pod.DeepCopy()
			change(next)
			want(t, "in "+namespace+" it takes "+what, g.manager.Patch(t.Context(), next, client.MergeFrom(pod), client.DryRunAll), parts...)
		}
		next := pod.DeepCopy()
		next.Finalizers = next.Finalizers[:1]
		want(t, "in "+namespace+" it takes its own finalizer", g.manager.Patch(t.Context(), next, client.MergeFrom(pod)))
	}
	other := held(plain, "another", map[string]string{v1alpha1.LabelTenant: "rome"})
	next := other.DeepCopy()
	next.Finalizers = next.Finalizers[:1]
	want(t, "of a pod that it did not make", g.manager.Patch(t.Context(), next, client.MergeFrom(other)), no)
}

// nodeOwner owns a pod, which then goes with it.
func nodeOwner() []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n", UID: "u"}}
}

// endless takes the end off what a pod tolerates, as is done to pods that are kept. The API
// server has given it both tolerations.
func endless(t *testing.T, c client.Client, pod *corev1.Pod) error {
	next := pod.DeepCopy()
	for i := range next.Spec.Tolerations {
		next.Spec.Tolerations[i].TolerationSeconds = nil
	}
	if len(next.Spec.Tolerations) != 2 {
		t.Fatalf("%s tolerates %v", pod.Name, next.Spec.Tolerations)
	}
	return c.Patch(t.Context(), next, client.MergeFrom(pod))
}

// managersEvictions: the manager evicts pods of tenants and of namespaces that are
// offloaded or were until now; of others, on whatever node, none.
func managersEvictions(t *testing.T, g *guarded, plain, offloaded string) {
	const no = "evicts pods of tenants and of offloaded namespaces only"
	mapped := g.must(t, g.manager, "evict-rome", map[string]string{v1alpha1.LabelTenant: "rome", v1alpha1.LabelHomeNamespace: "shop"})
	leaving := g.must(t, g.c, "leaving", nil)
	on := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: leaving}}
	want(t, "the label while pods leave", relabel(t, g.manager, on, v1alpha1.LabelOffloaded, v1alpha1.OffloadedLeaving, ""))
	for namespace, parts := range map[string][]string{plain: {no}, g.must(t, g.c, "kube-evict", nil): {no}, offloaded: nil, leaving: nil, mapped: nil} {
		pod := simplePod(namespace, "evicted")
		create(t, g.c, pod)
		evict := func(c client.Client) error {
			return c.SubResource("eviction").Create(t.Context(), pod, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pod.Name}})
		}
		if want(t, "by the manager in "+namespace, evict(g.manager), parts...); parts != nil {
			want(t, "by others in "+namespace, evict(g.c))
		}
	}
	bound := simplePod(leaving, "bound")
	bound.Spec.NodeName = g.node("milan")
	want(t, "a pod on a virtual node in one that leaves", g.c.Create(t.Context(), bound), "is not offloaded")
}
