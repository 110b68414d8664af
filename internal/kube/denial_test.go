package kube

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admission "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// denying is a webhook that denies every ConfigMap with a status that the ConfigMap's data chooses, and quotes others.
func denying(t *testing.T) (at string, authority []byte) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		var asked corev1.ConfigMap
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || json.Unmarshal(review.Request.Object.Raw, &asked) != nil {
			t.Errorf("the API server asks something else: %v", err)
			return
		}
		result := &metav1.Status{Message: "it is forbidden: exceeded quota: of-another, requested: a"}
		if asked.Data["as"] == "forbidden" {
			result.Code, result.Reason = http.StatusForbidden, metav1.StatusReasonForbidden
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Result: result}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(s.Close)
	return s.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

// TestDenialOf holds that what denies a request is known by what a real API server says, and that missing rights are
// nobody's denial.
func TestDenialOf(t *testing.T) {
	server := kubetest.Server(t)
	c := server.Client(t)
	namespace := server.Namespace(t)
	create := func(o client.Object) {
		t.Helper()
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Delete(t.Context(), o) })
	}
	pod := func(privileged bool) client.Object {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "c", Image: "i", SecurityContext: &corev1.SecurityContext{Privileged: &privileged},
		}}}}
	}
	config := func(as string) client.Object {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "c", Labels: map[string]string{"as": as}}, Data: map[string]string{"as": as}}
	}
	tried := func(c client.Client, o client.Object) error { return c.Create(t.Context(), o, client.DryRunAll) }
	says := func(by string, quota bool, o func() client.Object, remedy ...string) {
		t.Helper()
		var err error
		until(t, by+" denies", func() bool {
			err = fmt.Errorf("making it: %w", tried(c, o()))
			return DenialOf(err) != nil && DenialOf(err).By() == by
		})
		d, reason := DenialOf(err), v1alpha1.ReasonNotAdmitted
		if quota {
			reason = v1alpha1.ReasonLimitExceeded
		}
		if d.ByQuota() != quota || d.Reason() != reason || d.ByPolicy(d.name) != strings.HasPrefix(by, "admission policy") {
			t.Errorf("by a quota %t, by a policy %t, %s: %v", d.ByQuota(), d.ByPolicy(d.name), d.Reason(), err)
		}
		for _, want := range remedy {
			if !strings.Contains(d.Remedy(), want) {
				t.Errorf("the remedy is %q, and should say %q: %v", d.Remedy(), want, err)
			}
		}
		if again := DenialIn(err.Error()); again == nil || *again != *d {
			t.Errorf("in words it is %v: %v", again, err)
		}
	}
	quota := func(name string, of corev1.ResourceName) {
		q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{of: quantity.MustParse("0")}}}
		create(q)
		q.Status = corev1.ResourceQuotaStatus{Hard: q.Spec.Hard, Used: q.Spec.Hard}
		if err := c.Status().Update(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	labelled := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if err := c.Patch(t.Context(), labelled, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"baseline"}}}`))); err != nil {
		t.Fatal(err)
	}
	says("Pod Security level baseline", false, func() client.Object { return pod(true) }, "level baseline", "pod-security.kubernetes.io/enforce")
	quota("no-secrets", "count/secrets")
	says("ResourceQuota no-secrets", true, func() client.Object {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "s"}}
	}, "used up its ResourceQuota no-secrets", "metadata.name=no-secrets")
	quota("no-cpu", corev1.ResourceRequestsCPU)
	says("ResourceQuota no-cpu", true, func() client.Object { return pod(false) }, "wants amounts", "LimitRange")

	fail, all := admission.Fail, admission.NamespacedScope
	here := &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}}
	rule := admission.RuleWithOperations{Operations: []admission.OperationType{admission.Create}, Rule: admission.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}, Scope: &all}}
	for _, reason := range []metav1.StatusReason{metav1.StatusReasonForbidden, metav1.StatusReasonInvalid} {
		name := namespace + "-" + strings.ToLower(string(reason))
		create(&admission.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admission.ValidatingAdmissionPolicySpec{
			FailurePolicy:    &fail,
			MatchConstraints: &admission.MatchResources{NamespaceSelector: here, ResourceRules: []admission.NamedRuleWithOperations{{RuleWithOperations: rule}}},
			Validations:      []admission.Validation{{Expression: fmt.Sprintf("object.metadata.labels.as != %q", reason), Message: "not here", Reason: &reason}},
		}})
		create(&admission.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admission.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admission.ValidationAction{admission.Deny},
		}})
		says("admission policy "+name, false, func() client.Object { return config(string(reason)) }, "policy "+name)
	}
	at, authority := denying(t)
	none := admission.SideEffectClassNone
	create(&admission.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: namespace}, Webhooks: []admission.ValidatingWebhook{{
		Name: "no.example.org", ClientConfig: admission.WebhookClientConfig{URL: &at, CABundle: authority}, Rules: []admission.RuleWithOperations{rule},
		NamespaceSelector: here, SideEffects: &none, AdmissionReviewVersions: []string{"v1"}, FailurePolicy: &fail,
	}}})
	for _, as := range []string{"forbidden", "nothing"} {
		says("admission webhook no.example.org", false, func() client.Object { return config(as) }, "webhook no.example.org")
	}

	stranger := rest.CopyConfig(server.Config)
	stranger.Impersonate.UserName = namespace
	without, err := client.New(stranger, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := tried(without, config("x")); !apierrors.IsForbidden(err) || DenialOf(err) != nil || DenialOf(err).Reason() != v1alpha1.ReasonForbidden {
		t.Errorf("without rights: %v, %v", err, DenialOf(err))
	}
	if DenialOf(nil) != nil || DenialOf(fmt.Errorf("is forbidden: exceeded quota: x, ")) != nil || (*Denial)(nil).ByQuota() {
		t.Error("what no API server says is taken for a denial")
	}
}
