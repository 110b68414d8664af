package admission

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// guarded is an API server with the chart's policies, in force for the namespaces and
// objects that carry testLabel with the value test.
type guarded struct {
	server  *kubetest.APIServer
	test    string
	c       client.Client // an administrator
	manager client.Client // the manager's service account
	params  *rbacv1.Role
}

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	server := kubetest.Server(t)
	g := &guarded{server: server, test: server.Name(t, "guard"), c: server.Client(t)}
	config := rest.CopyConfig(server.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:pelago-system:pelago-manager", Groups: []string{"system:masters"}}
	manager, err := client.New(config, client.Options{Scheme: g.c.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	g.manager = manager
	g.params = &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: server.Namespace(t), Name: v1alpha1.AdmissionName, Annotations: map[string]string{
		v1alpha1.AnnotationAdmissionCluster: "rome", v1alpha1.AnnotationAdmissionNodes: "milan-" + g.test + " oslo-" + g.test, v1alpha1.AnnotationAdmissionDaemons: "",
	}}}
	create(t, g.c, g.params)
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{testLabel: g.test}}
	for _, o := range chart(t, "ValidatingAdmissionPolicy") {
		policy := &admissionregistrationv1.ValidatingAdmissionPolicy{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, policy); err != nil {
			t.Fatal(err)
		}
		policy.Name += "-" + g.test
		if policy.Spec.FailurePolicy == nil || *policy.Spec.FailurePolicy != admissionregistrationv1.Fail {
			t.Errorf("%s fails open", policy.Name)
		}
		if strings.HasPrefix(policy.Name, "pelago-labels") { // nodes are in no namespace
			policy.Spec.MatchConstraints.ObjectSelector = selector
		} else {
			policy.Spec.MatchConstraints.NamespaceSelector = selector
		}
		create(t, g.c, policy)
	}
	for _, o := range chart(t, "ValidatingAdmissionPolicyBinding") {
		binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, binding); err != nil {
			t.Fatal(err)
		}
		binding.Name += "-" + g.test
		binding.Spec.PolicyName += "-" + g.test
		if binding.Spec.ParamRef != nil {
			binding.Spec.ParamRef.Namespace = g.params.Namespace
		}
		create(t, g.c, binding)
	}
	return g
}

// tell changes what the policies go by; with no value it takes it away.
func (g *guarded) tell(t *testing.T, key, value string) {
	t.Helper()
	before := g.params.DeepCopy()
	if g.params.Annotations[key] = value; value == "" {
		delete(g.params.Annotations, key)
	}
	if err := g.c.Patch(t.Context(), g.params, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

func (g *guarded) node(name string) string { return name + "-" + g.test }

// namespace makes one that the policies are in force for.
func (g *guarded) namespace(t *testing.T, c client.Client, prefix string, labels map[string]string) (string, error) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: g.server.Name(t, prefix), Labels: map[string]string{testLabel: g.test}}}
	for k, v := range labels {
		ns.Labels[k] = v
	}
	if _, of := labels[v1alpha1.LabelTenant]; of && labels[enforce] == "" { // as the manager makes them
		ns.Labels[enforce], ns.Labels[enforce+"-version"] = "baseline", "latest"
		if strings.HasPrefix(prefix, v1alpha1.TenantNamespacePrefix) {
			ns.Labels[enforce] = "restricted"
		}
	}
	if err := c.Create(t.Context(), ns); err != nil {
		return "", err
	}
	t.Cleanup(func() { _ = g.c.Delete(context.Background(), ns) })
	return ns.Name, nil
}

func (g *guarded) must(t *testing.T, c client.Client, prefix string, labels map[string]string) string {
	t.Helper()
	name, err := g.namespace(t, c, prefix, labels)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// bind is what the scheduler does; old is the way of old schedulers.
func (g *guarded) bind(t *testing.T, pod *corev1.Pod, node string, old bool) error {
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: node}}
	if old {
		return g.c.Create(t.Context(), binding)
	}
	return g.c.SubResource("binding").Create(t.Context(), pod, binding)
}

func want(t *testing.T, what string, err error, parts ...string) {
	t.Helper()
	if len(parts) == 0 {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		return
	}
	if status := apierrors.APIStatus(nil); !errors.As(err, &status) || status.Status().Code < 400 || status.Status().Code >= 500 {
		t.Errorf("%s: got %v, want a refusal", what, err)
		return
	}
	for _, part := range append(parts, "ValidatingAdmissionPolicy") {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v says nothing of %q", what, err, part)
		}
	}
}

// inForce waits until the API server knows policy and parameter.
func (g *guarded) inForce(t *testing.T, namespace string) {
	t.Helper()
	eventually(t, "the policies are in force", func() bool {
		bound := simplePod(namespace, "probe")
		bound.Spec.NodeName = g.node("milan")
		wrong := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: g.server.Name(t, "n"), Labels: map[string]string{testLabel: g.test, v1alpha1.LabelOffloaded: "true"}}}
		reserved := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: g.server.Name(t, "kube-n"), Labels: map[string]string{testLabel: g.test, v1alpha1.LabelOffload: "true"}}}
		long := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: g.server.Name(t, strings.Repeat("n", 52)), Labels: map[string]string{testLabel: g.test, v1alpha1.LabelOffload: "true"}}}
		binding := simplePod(namespace, "probe")
		if err := g.c.Create(t.Context(), binding); client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
		for _, obj := range []client.Object{bound, wrong, reserved, long} {
			if g.c.Create(t.Context(), obj, client.DryRunAll) == nil {
				return false
			}
		}
		dry := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "probe"}, Target: corev1.ObjectReference{Kind: "Node", Name: g.node("milan")}}
		return g.c.SubResource("binding").Create(t.Context(), binding, dry, &client.SubResourceCreateOptions{CreateOptions: client.CreateOptions{DryRun: []string{metav1.DryRunAll}}}) != nil
	})
}

// TestPolicies: who is kept off virtual nodes, and what may be offloaded.
func TestPolicies(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	plain := g.must(t, g.c, "plain", nil)
	g.inForce(t, plain)
	offloaded := g.must(t, g.c, "offloaded", nil)
	want(t, "the manager's label", relabel(t, g.manager, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: offloaded}}, v1alpha1.LabelOffloaded, "true", ""))
	milan := g.node("milan")

	t.Run("bindings", func(t *testing.T) {
		for i, c := range []struct {
			namespace, node string
			refused         bool
		}{{plain, milan, true}, {plain, g.node("oslo"), true}, {plain, "worker", false}, {offloaded, milan, false}, {plain, g.node("mila"), false}} {
			for _, old := range []bool{false, true} {
				pod := simplePod(c.namespace, fmt.Sprintf("p%d-%t", i, old))
				create(t, g.c, pod)
				err := g.bind(t, pod, c.node, old)
				if c.refused {
					want(t, c.node, err, c.namespace+" is not offloaded", "pelago offload namespace "+c.namespace)
				} else {
					want(t, c.node+" in "+c.namespace, err)
				}
			}
		}
	})
	t.Run("daemons", func(t *testing.T) {
		pod, other := simplePod(plain, "agent-x1"), simplePod(plain, "agent-x")
		create(t, g.c, pod)
		create(t, g.c, other)
		want(t, "before it is let through", g.bind(t, pod, milan, false), "is not offloaded")
		g.tell(t, v1alpha1.AnnotationAdmissionDaemons, "kube-system/other "+plain+"/agent-x1")
		eventually(t, "it is let through", func() bool { return g.bind(t, pod, milan, false) == nil })
		want(t, "one whose name begins alike", g.bind(t, other, milan, false), "is not offloaded")
	})
	t.Run("pods with a node", func(t *testing.T) {
		for namespace, parts := range map[string][]string{plain: {"spec.nodeName", "is not offloaded"}, offloaded: nil} {
			pod := simplePod(namespace, "named")
			pod.Spec.NodeName = milan
			want(t, "in "+namespace, g.c.Create(t.Context(), pod), parts...)
		}
		pod := simplePod(plain, "worker")
		pod.Spec.NodeName = "worker"
		want(t, "on a worker", g.c.Create(t.Context(), pod))
	})
	t.Run("labels", func(t *testing.T) { labelsOfTheManager(t, g, plain, offloaded) })
	t.Run("labels of tenants", func(t *testing.T) { labelsOfTenants(t, g) })
	t.Run("namespaces made", func(t *testing.T) { namespacesMade(t, g) })
	t.Run("names", func(t *testing.T) { namesThatFit(t, g) })
	t.Run("tenants", func(t *testing.T) { tenantsObjects(t, g) })
	t.Run("manager", func(t *testing.T) { managerWithin(t, g, plain, offloaded) })
	t.Run("manager and pods", func(t *testing.T) { managersPods(t, g, plain, offloaded) })
	t.Run("manager and evictions", func(t *testing.T) { managersEvictions(t, g, plain, offloaded) })
	t.Run("manager and tokens", func(t *testing.T) { managersTokens(t, g, plain, offloaded) })
	t.Run("manager and webhooks", func(t *testing.T) { managersWebhooks(t, g) })
	t.Run("manager and services", func(t *testing.T) { managersServices(t, g, plain) })
	t.Run("tokens of consumers", func(t *testing.T) { tokensOfConsumers(t, g) })
	t.Run("manager and security", func(t *testing.T) { managersLevels(t, g, plain) })
	t.Run("sparing", func(t *testing.T) { sparing(t, g, plain, offloaded) })
}

// relabel changes the labels of an object by a patch; subresource may be empty.
func relabel(t *testing.T, c client.Client, obj client.Object, key string, value any, subresource string) error {
	text := fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, key)
	if value != nil {
		text = fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, key, value)
	}
	patch := client.RawPatch("application/merge-patch+json", []byte(text))
	obj = obj.DeepCopyObject().(client.Object)
	if subresource != "" {
		return c.SubResource(subresource).Patch(t.Context(), obj, patch)
	}
	return c.Patch(t.Context(), obj, patch)
}

func labelsOfTheManager(t *testing.T, g *guarded, plain, offloaded string) {
	on := func(name string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	for _, sub := range []string{"", "status"} {
		want(t, "setting it "+sub, relabel(t, g.c, on(plain), v1alpha1.LabelOffloaded, "true", sub), "set by Pelago only", "pelago.dev/offload=true")
		want(t, "removing it "+sub, relabel(t, g.c, on(offloaded), v1alpha1.LabelOffloaded, nil, sub), "set by Pelago only")
	}
	want(t, "another label", relabel(t, g.c, on(offloaded), "team", "a", ""))
	want(t, "by the manager", relabel(t, g.manager, on(plain), v1alpha1.LabelOffloaded, "true", ""))
	want(t, "and off", relabel(t, g.manager, on(plain), v1alpha1.LabelOffloaded, nil, ""))

	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: g.node("worker"), Labels: map[string]string{testLabel: g.test}}}
	create(t, g.c, node)
	for _, sub := range []string{"", "status"} {
		want(t, "a node that calls itself virtual "+sub, relabel(t, g.c, node, v1alpha1.LabelType, v1alpha1.TypeVirtualNode, sub), "set by Pelago only")
	}
	want(t, "another label of a node", relabel(t, g.c, node, "disk", "ssd", ""))
	fake := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: g.node("fake"), Labels: map[string]string{testLabel: g.test, v1alpha1.LabelType: v1alpha1.TypeVirtualNode}}}
	want(t, "a node made as virtual", g.c.Create(t.Context(), fake.DeepCopy()), "set by Pelago only")
	fake.Labels[v1alpha1.LabelPeering], fake.Labels[v1alpha1.LabelRequest] = "milan", "default"
	create(t, g.manager, fake)
	for _, sub := range []string{"", "status"} {
		for _, key := range []string{v1alpha1.LabelPeering, v1alpha1.LabelRequest} {
			want(t, "a virtual node with another "+key+" "+sub, relabel(t, g.c, fake, key, "oslo", sub), "set by Pelago only")
			want(t, "a virtual node without "+key+" "+sub, relabel(t, g.c, fake, key, nil, sub), "set by Pelago only")
			want(t, "the same "+key+" "+sub, relabel(t, g.c, fake, key, fake.Labels[key], sub))
			want(t, "another "+key+" by the manager "+sub, relabel(t, g.manager, fake, key, "paris", sub))
			want(t, "and back "+sub, relabel(t, g.manager, fake, key, fake.Labels[key], sub))
		}
		want(t, "a virtual node that is none any more "+sub, relabel(t, g.c, fake, v1alpha1.LabelType, nil, sub), "set by Pelago only")
		want(t, "a virtual node of another type "+sub, relabel(t, g.c, fake, v1alpha1.LabelType, "real", sub), "set by Pelago only")
		want(t, "another label of a virtual node "+sub, relabel(t, g.c, fake, "disk", "ssd", sub))
		want(t, "by the manager "+sub, relabel(t, g.manager, fake, "zone", "z1", sub))
	}
	want(t, "taken off by the manager", relabel(t, g.manager, fake, v1alpha1.LabelType, nil, ""))
	want(t, "and given again", relabel(t, g.manager, fake, v1alpha1.LabelType, v1alpha1.TypeVirtualNode, ""), "only virtual nodes")
}

func namesThatFit(t *testing.T, g *guarded) {
	label := map[string]string{v1alpha1.LabelOffload: "true"}
	offloading := func(by client.Client, namespace string, strategy v1alpha1.NamespaceMappingStrategy, opts ...client.CreateOption) error {
		o := &v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.OffloadingName},
			Spec: v1alpha1.NamespaceOffloadingSpec{NamespaceMappingStrategy: strategy}}
		if strategy == v1alpha1.MappingSelectedName {
			o.Spec.RemoteNamespaceName = "short"
		}
		return by.Create(t.Context(), o, opts...)
	}
	// With the cluster's name and nine characters of ours.
	for prefix, parts := range map[string][]string{
		"shop": nil, strings.Repeat("n", 49): nil, strings.Repeat("n", 50): {"more than 63 characters", "SelectedName"},
		"kube-shop": {"cannot be offloaded"}, "pelago-shop": {"cannot be offloaded"}, "openshift-shop": {"cannot be offloaded"}, "kubernetes": nil,
	} {
		_, err := g.namespace(t, g.c, prefix, label)
		want(t, "a namespace made with the label: "+prefix, err, parts...)
		name := g.must(t, g.c, prefix, nil)
		want(t, "an offloading that the manager makes, and says what is wrong: "+prefix, offloading(g.manager, name, v1alpha1.MappingDefaultName, client.DryRunAll))
		want(t, "an offloading: "+prefix, offloading(g.c, name, v1alpha1.MappingDefaultName), parts...)
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		want(t, "a namespace that gets the label: "+prefix, relabel(t, g.c, ns, v1alpha1.LabelOffload, "true", ""), parts...)
	}
	long := g.must(t, g.c, strings.Repeat("m", 50), nil)
	want(t, "a long name with another strategy", offloading(g.c, long, v1alpha1.MappingSelectedName))
	labelled := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: g.must(t, g.c, "kube-later", nil)}}
	want(t, "another value", relabel(t, g.c, labelled, v1alpha1.LabelOffload, "false", ""))
}

// managed has fields be managed by somebody.
func managed(r *v1alpha1.ResourceRequest, fields string) {
	r.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "x", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "pelago.dev/v1alpha1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields)}}
}

func tenantsObjects(t *testing.T, g *guarded) {
	tenant := g.must(t, g.c, "pelago-tenant-rome", nil)
	request := func(change func(*v1alpha1.ResourceRequest)) *v1alpha1.ResourceRequest {
		r := &v1alpha1.ResourceRequest{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "r"}}
		change(r)
		return r
	}
	many := func(n, size int) map[string]string {
		all := map[string]string{}
		for i := range n {
			all[fmt.Sprintf("k%d", i)] = strings.Repeat("v", size)
		}
		return all
	}
	large := request(func(r *v1alpha1.ResourceRequest) { r.Annotations = many(9, 1) })
	eventually(t, "the policy is in force", func() bool { return g.c.Create(t.Context(), large.DeepCopy(), client.DryRunAll) != nil })
	for reason, c := range map[string]struct {
		change func(*v1alpha1.ResourceRequest)
		parts  []string
	}{
		"nothing":           {func(*v1alpha1.ResourceRequest) {}, nil},
		"as much as may be": {func(r *v1alpha1.ResourceRequest) { r.Annotations, r.Labels = many(8, 256), many(16, 63) }, nil},
		"many annotations":  {func(r *v1alpha1.ResourceRequest) { r.Annotations = many(9, 1) }, []string{"metadata.annotations"}},
		"a long annotation": {func(r *v1alpha1.ResourceRequest) { r.Annotations = many(1, 257) }, []string{"metadata.annotations"}},
		"many labels":       {func(r *v1alpha1.ResourceRequest) { r.Labels = many(17, 1) }, []string{"metadata.labels"}},
		"many finalizers":   {func(r *v1alpha1.ResourceRequest) { r.Finalizers = []string{"a/1", "a/2", "a/3", "a/4", "a/5"} }, []string{"metadata.finalizers"}},
		"owners without bound": {func(r *v1alpha1.ResourceRequest) {
			r.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "K", Name: strings.Repeat("n", 300), UID: "u"}}
		}, []string{"metadata.ownerReferences"}},
		"fields without bound": {func(r *v1alpha1.ResourceRequest) {
			managed(r, `{"f:metadata":{"f:annotations":{"f:`+strings.Repeat("n", 1<<20)+`":{}}}}`)
		}, []string{"metadata.managedFields"}},
		"fields in fields": {func(r *v1alpha1.ResourceRequest) {
			managed(r, strings.Repeat(`{"f:a":`, 1000)+"{}"+strings.Repeat("}", 1000))
		}, []string{"metadata.managedFields"}},
		"as many fields as may be": {func(r *v1alpha1.ResourceRequest) {
			managed(r, `{"f:metadata":{"f:annotations":{"f:`+strings.Repeat("n", 16000)+`":{}}}}`)
		}, nil},
		"fields that are very many": {func(r *v1alpha1.ResourceRequest) {
			var b strings.Builder
			for i := range 50000 {
				fmt.Fprintf(&b, `,"f:%d":{}`, i)
			}
			managed(r, `{"f:metadata":{"f:annotations":{`+b.String()[1:]+`}}}`)
		}, []string{"pelago-tenant-objects"}},
	} {
		want(t, reason, g.c.Create(t.Context(), request(c.change), client.DryRunAll), c.parts...)
	}
	want(t, "by Pelago itself", g.manager.Create(t.Context(), large.DeepCopy(), client.DryRunAll))
	elsewhere := large.DeepCopy()
	elsewhere.Namespace = g.must(t, g.c, "elsewhere", nil)
	want(t, "in other namespaces", g.c.Create(t.Context(), elsewhere, client.DryRunAll))

	applied := request(func(*v1alpha1.ResourceRequest) {})
	create(t, g.c, applied)
	var err error
	for i := 0; i < 20 && err == nil; i++ {
		text := fmt.Sprintf(`{"apiVersion":"pelago.dev/v1alpha1","kind":"ResourceRequest","metadata":{"name":"r","namespace":%q,"labels":{"l":"v"}}}`, tenant)
		err = g.c.Patch(t.Context(), applied.DeepCopy(), client.RawPatch("application/apply-patch+yaml", []byte(text)), client.FieldOwner(fmt.Sprint("manager", i)))
	}
	want(t, "managers of fields without end", err, "metadata.managedFields")
}
