package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// managersWebhooks: of that by which the API server asks the manager, the manager writes the
// authority, as its bundler does, and nothing else.
func managersWebhooks(t *testing.T, g *guarded) {
	config := chartWebhook(t, g.node("asked"), g.test)
	create(t, g.c, config)
	bundle := []byte("-----BEGIN CERTIFICATE-----\n" + "MIIBAA==" + "\n-----END CERTIFICATE-----\n")
	hook := func(change func(c *admissionregistrationv1.MutatingWebhookConfiguration)) error {
		next := config.DeepCopy()
		change(next)
		return g.manager.Patch(t.Context(), next, client.StrategicMergeFrom(config), client.DryRunAll)
	}
	want(t, "the authority of all webhooks", hook(func(c *admissionregistrationv1.MutatingWebhookConfiguration) {
		forWebhooks(g.manager, nil).set(c, bundle)
		for i := range c.Webhooks {
			c.Webhooks[i].ClientConfig.CABundle = bundle // the Service of the test is another one
		}
	}))
	const no = "nothing but clientConfig.caBundle"
	for reason, change := range map[string]func(c *admissionregistrationv1.MutatingWebhookConfiguration){
		"another server": func(c *admissionregistrationv1.MutatingWebhookConfiguration) {
			c.Webhooks[0].ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://example.com/all")}
		},
		"another Service": func(c *admissionregistrationv1.MutatingWebhookConfiguration) {
			c.Webhooks[0].ClientConfig.Service.Name = "other"
		},
		"Secrets too": func(c *admissionregistrationv1.MutatingWebhookConfiguration) {
			c.Webhooks[1].Rules[0].Resources = []string{"pods", "secrets"}
		},
		"one rule more": func(c *admissionregistrationv1.MutatingWebhookConfiguration) {
			c.Webhooks[1].Rules = append(c.Webhooks[1].Rules, c.Webhooks[1].Rules[0])
		},
		"all namespaces": func(c *admissionregistrationv1.MutatingWebhookConfiguration) {
			c.Webhooks[0].NamespaceSelector = &metav1.LabelSelector{}
		},
		"no conditions": func(c *admissionregistrationv1.MutatingWebhookConfiguration) { c.Webhooks[2].MatchConditions = nil },
		"a selector of objects": func(c *admissionregistrationv1.MutatingWebhookConfiguration) {
			c.Webhooks[2].ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		},
		"one less": func(c *admissionregistrationv1.MutatingWebhookConfiguration) { c.Webhooks = c.Webhooks[1:] },
		"one more": func(c *admissionregistrationv1.MutatingWebhookConfiguration) {
			more := *c.Webhooks[0].DeepCopy()
			more.Name = "more.offloading.pelago.dev"
			c.Webhooks = append(c.Webhooks, more)
		},
		"a label": func(c *admissionregistrationv1.MutatingWebhookConfiguration) { c.Labels["a"] = "b" },
		"an owner, with whom it would go": func(c *admissionregistrationv1.MutatingWebhookConfiguration) {
			c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "nobody", UID: "u"}}
		},
	} {
		want(t, reason, hook(change), no)
	}
	want(t, "removing it", g.manager.Delete(t.Context(), config, client.DryRunAll), no)
	others := config.DeepCopy()
	others.Webhooks[0].Rules[0].Resources = []string{"pods", "secrets"}
	want(t, "by others", g.c.Patch(t.Context(), others, client.StrategicMergeFrom(config), client.DryRunAll))

	service := newAPIService().(*unstructured.Unstructured)
	service.SetName("v1alpha1." + g.test + ".example.com")
	service.Object["spec"] = map[string]any{"group": g.test + ".example.com", "version": "v1alpha1", "groupPriorityMinimum": int64(1000), "versionPriority": int64(10),
		"service": map[string]any{"name": v1alpha1.ManagerService, "namespace": v1alpha1.SystemNamespace, "port": int64(443)}}
	create(t, g.c, service)
	api := func(c client.Client, spec map[string]any) error {
		text, err := json.Marshal(map[string]any{"spec": spec})
		if err != nil {
			t.Fatal(err)
		}
		return c.Patch(t.Context(), service.DeepCopy(), client.RawPatch(types.MergePatchType, text), client.DryRunAll)
	}
	elsewhere := map[string]any{"service": map[string]any{"name": "other"}}
	want(t, "the authority of the APIService", api(g.manager, map[string]any{"caBundle": bundle}))
	want(t, "another Service of the APIService", api(g.manager, elsewhere), "nothing but spec.caBundle")
	want(t, "an APIService that trusts everybody", api(g.manager, map[string]any{"insecureSkipTLSVerify": true}), "nothing but spec.caBundle")
	want(t, "another Service, by others", api(g.c, elsewhere))
}

// leads is a Service, or a slice behind the Service of that name.
func leads(namespace, name, service string, change func(client.Object)) client.Object {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": "web"}}
	ports := []corev1.ServicePort{{Name: "web", Port: 80}}
	var o client.Object = &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: ports}}
	if service != "" {
		meta.Labels[discoveryv1.LabelServiceName] = service
		o = &discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}}}
	}
	change(o)
	return o
}

// ofTenant, ofTunnel and ofMapping mark an object as the manager does.
func ofTenant(tenant string) func(client.Object) {
	return func(o client.Object) {
		o.GetLabels()[v1alpha1.LabelManagedBy], o.GetLabels()[v1alpha1.LabelTenant] = "reflection", tenant
	}
}

func ofTunnel(o client.Object) { o.GetLabels()[v1alpha1.LabelManagedBy] = "pelago-network" }

func ofMapping(o client.Object) {
	ofTunnel(o)
	o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "IPMapping", Name: o.GetName(), UID: "u", Controller: ptr.To(true)}})
}

// managersServices: connections of others go where they went, whatever the manager does.
func managersServices(t *testing.T, g *guarded, plain string) {
	const no = "only Services and EndpointSlices of tenants"
	mapped := g.must(t, g.manager, "lead-rome", map[string]string{v1alpha1.LabelTenant: "rome", v1alpha1.LabelHomeNamespace: "shop"})
	cluster := g.must(t, g.c, "kube-lead", nil)
	nobody := func(client.Object) {}
	for reason, c := range map[string]struct {
		o     client.Object
		parts []string
	}{
		"a tenant's Service":                       {leads(mapped, "web", "", ofTenant("rome")), nil},
		"a tenant's slice, behind any of its own":  {leads(mapped, "web-1", "web", ofTenant("rome")), nil},
		"another tenant's there":                   {leads(mapped, "web", "", ofTenant("oslo")), []string{no}},
		"nobody's there":                           {leads(mapped, "web", "", nobody), []string{no}},
		"a tenant's Service elsewhere":             {leads(plain, "web", "", ofTenant("rome")), []string{no}},
		"a tenant's slice elsewhere":               {leads(plain, "web-1", "web", ofTenant("rome")), []string{no}},
		"nobody's elsewhere":                       {leads(plain, "web-1", "web", nobody), []string{no}},
		"a mapping's Service":                      {leads(plain, "db", "", ofMapping), nil},
		"a mapping's slice":                        {leads(plain, "db", "db", ofMapping), nil},
		"a mapping's slice behind another's":       {leads(plain, "db", "web", ofMapping), []string{no}},
		"a mapping's Service of the cluster":       {leads(cluster, "kube-dns", "", ofMapping), []string{no}},
		"a mapping's slice behind the cluster's":   {leads(cluster, "kube-dns", "kube-dns", ofMapping), []string{no}},
		"a tunnel's slice where there are none":    {leads(plain, "tunnel-milan", "tunnel-milan", ofTunnel), []string{no}},
		"one of the network that is no mapping's":  {leads(plain, "db", "", ofTunnel), []string{no}},
		"a mapping's slice that is behind nothing": {leads(plain, "db", " ", func(o client.Object) { ofMapping(o); delete(o.GetLabels(), discoveryv1.LabelServiceName) }), []string{no}},
		"one of another mapping": {leads(plain, "db", "", func(o client.Object) {
			ofMapping(o)
			owners := o.GetOwnerReferences()
			owners[0].Name = "other"
			o.SetOwnerReferences(owners)
		}), []string{no}},
	} {
		want(t, reason, g.manager.Create(t.Context(), c.o, client.DryRunAll), c.parts...)
	}
	network := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.NetworkNamespace}}
	if err := client.IgnoreAlreadyExists(g.c.Create(t.Context(), network)); err != nil {
		t.Fatal(err)
	}
	g.borrow(t, network)
	eventually(t, "the policies are in force there", func() bool {
		return g.manager.Create(t.Context(), leads(network.Name, "x", "", nobody), client.DryRunAll) != nil
	})
	want(t, "a tunnel's Service", g.manager.Create(t.Context(), leads(network.Name, "tunnel-milan", "", ofTunnel), client.DryRunAll))
	want(t, "a tunnel's slice", g.manager.Create(t.Context(), leads(network.Name, "tunnel-milan", "tunnel-milan", ofTunnel), client.DryRunAll))
	want(t, "a tunnel's slice behind another's", g.manager.Create(t.Context(), leads(network.Name, "tunnel-milan", "metrics", ofTunnel), client.DryRunAll), no)
	want(t, "one of another name", g.manager.Create(t.Context(), leads(network.Name, "metrics", "", ofTunnel), client.DryRunAll), no)

	for _, c := range []struct {
		namespace, name string
		mark            func(client.Object)
		change          []string
		lead, remove    []string
	}{
		{plain, "others", nobody, []string{no}, []string{no}, []string{no}}, {cluster, "others", nobody, []string{no}, []string{no}, []string{no}}, {mapped, "others", nobody, []string{no}, []string{no}, []string{no}},
		{plain, "left", ofTenant("rome"), []string{no}, []string{no}, nil}, {mapped, "own", ofTenant("rome"), nil, nil, nil},
		{plain, "own", ofMapping, nil, []string{no}, nil}, {network.Name, "tunnel-oslo", ofTunnel, nil, []string{no}, nil},
	} {
		for _, service := range []string{"", c.name} {
			o := leads(c.namespace, c.name, service, c.mark)
			create(t, g.c, o)
			t.Cleanup(func() { _ = g.c.Delete(context.Background(), o) })
			what := fmt.Sprintf("%T %s in %s", o, c.name, c.namespace)
			want(t, "changing "+what, relabel(t, g.manager, o, "a", "b", ""), c.change...)
			want(t, "changing by others "+what, relabel(t, g.c, o, "a", "b", ""))
			if c.change != nil {
				want(t, "making it ours "+what, g.manager.Patch(t.Context(), ours(o), client.MergeFrom(o), client.DryRunAll), c.change...)
			}
			if service != "" {
				want(t, "leading from another Service by "+what, relabel(t, g.manager, o, discoveryv1.LabelServiceName, "web", ""), c.lead...)
			}
			want(t, "removing "+what, g.manager.Delete(t.Context(), o, client.DryRunAll), c.remove...)
		}
	}
}

// ours is an object with all marks of the manager's.
func ours(o client.Object) client.Object {
	o = o.DeepCopyObject().(client.Object)
	ofMapping(o)
	ofTenant("rome")(o)
	return o
}
