package admission

import (
	"encoding/json"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
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
