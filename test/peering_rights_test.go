package test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// tenantMay is all that a tenant may do, in its own namespace: resource, and name if it is of that only, to verbs.
var tenantMay = map[string][]string{
	"identities.pelago.dev":       {"get", "list", "watch", "patch", "delete"},
	"leases.coordination.k8s.io":  {"patch"},
	"resourcerequests.pelago.dev": {"get", "list", "watch", "create", "patch", "delete"},
	"resourceoffers.pelago.dev":   {"list", "watch"},
	"namespacemaps.pelago.dev":    {"get", "list", "watch", "create", "patch", "delete"},
	"shadowpods.pelago.dev":       {"list", "watch", "create", "patch", "delete"},
	"podstats.stats.pelago.dev":   {"list"},
	"shadowobjects.pelago.dev":    {"list", "watch", "create", "patch", "delete"},
	"networkconfigs.pelago.dev":   {"list", "watch"},
	"networkrules.pelago.dev":     {"list", "watch", "create", "patch", "delete"},
	"networkpaths.pelago.dev":     {"list", "watch", "create", "patch", "delete"},
	// Of the side that it is, and the answer to the other one.
	"networkconfigs.pelago.dev:" + v1alpha1.NetworkConsumer:        {"patch"},
	"networkconfigs.pelago.dev/status:" + v1alpha1.NetworkProvider: {"patch"},
}

// everybodyMay is what every user that is known to the API server may, by its own
// defaults: asking who one is and what one may.
var everybodyMay = map[string][]string{
	"selfsubjectaccessreviews.authorization.k8s.io": {"create"},
	"selfsubjectrulesreviews.authorization.k8s.io":  {"create"},
	"selfsubjectreviews.authentication.k8s.io":      {"create"},
	"clustertrustbundles.certificates.k8s.io":       {"get", "list", "watch"},
}

var allVerbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "bind", "escalate", "impersonate", "approve", "sign", "attest", "use"}

// rightsOf peers rome with milan and holds what rome may there.
func rightsOf(t *testing.T, c *continuum, more map[string][]string) {
	c.peer(t, "rome", "milan")
	rightsHeld(t, c, more)
}

// rightsHeld takes the credential that rome holds and asks milan, for every resource and
// subresource there is and every verb, whether it may: in its namespace, in others,
// everywhere. Then it tries a few for real, ends the peering, and tries once more. More is what
// it may in its namespace besides.
func rightsHeld(t *testing.T, c *continuum, more map[string][]string) {
	config := c.consumerConfig(t, "rome", "milan")
	stranger, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ours := v1alpha1.TenantNamespace("rome")
	for _, namespace := range []string{ours, "default", "kube-system", v1alpha1.SystemNamespace, ""} {
		want := map[string][]string{}
		if namespace == ours {
			maps.Copy(want, tenantMay)
			maps.Copy(want, more)
		}
		got := allowed(t, c, stranger, namespace)
		for resource, verbs := range got {
			base, _, _ := strings.Cut(resource, ":")
			sort.Strings(verbs)
			may := slices.Concat(want[base], want[resource], everybodyMay[base])
			for _, verb := range verbs {
				if !slices.Contains(may, verb) {
					t.Errorf("in namespace %q the tenant may %s %s", namespace, verb, resource)
				}
			}
		}
		for resource, verbs := range want {
			for _, verb := range verbs {
				if !slices.Contains(got[resource], verb) && !slices.Contains(got[resource+":"+v1alpha1.IdentityName], verb) {
					t.Errorf("in its namespace the tenant may not %s %s", verb, resource)
				}
			}
		}
	}

	peer, err := client.New(config, client.Options{Scheme: kubetest.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "taken", Namespace: ours}}
	if err := peer.Create(t.Context(), secret); err == nil {
		t.Error("the tenant makes a Secret")
	}
	if err := peer.List(t.Context(), &corev1.NamespaceList{}); err == nil {
		t.Error("the tenant lists namespaces")
	}
	if err := peer.List(t.Context(), &v1alpha1.ResourceRequestList{}, client.InNamespace(ours)); err != nil {
		t.Errorf("the tenant cannot list its requests: %v", err)
	}
	// Bounds on what it may write.
	var refused error
	for i := 0; refused == nil && i < 200; i++ {
		refused = peer.Create(t.Context(), &v1alpha1.ResourceRequest{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("flood-%d", i), Namespace: ours}})
	}
	if refused == nil || !strings.Contains(refused.Error(), "quota") {
		t.Errorf("200 requests were not stopped by a quota: %v", refused)
	}

	c.Pelago(t, "milan", "unpeer", "rome")
	if err := peer.List(t.Context(), &v1alpha1.ResourceRequestList{}, client.InNamespace(ours)); err == nil {
		t.Error("after unpeer the old certificate still works")
	}
}

// allowed asks which verbs a user may on which resources, by SelfSubjectAccessReview,
// with and without the names the rights speak of.
func allowed(t *testing.T, c *continuum, user kubernetes.Interface, namespace string) map[string][]string {
	t.Helper()
	admin, err := kubernetes.NewForConfig(c.Configs["milan"])
	if err != nil {
		t.Fatal(err)
	}
	_, lists, err := admin.Discovery().ServerGroupsAndResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		t.Fatal(err)
	}
	type question struct{ group, resource, subresource, name, verb string }
	questions := make(chan question, 100)
	found := map[string][]string{}
	var lock sync.Mutex
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			for q := range questions {
				review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
					Namespace: namespace, Verb: q.verb, Group: q.group, Resource: q.resource, Subresource: q.subresource, Name: q.name,
				}}}
				answer, err := user.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
				if err != nil {
					t.Errorf("asking: %v", err)
					continue
				}
				if answer.Status.Allowed {
					key := strings.TrimSuffix(q.resource+"."+q.group, ".")
					if q.subresource != "" {
						key += "/" + q.subresource
					}
					if q.name != "" {
						key += ":" + q.name
					}
					lock.Lock()
					found[key] = append(found[key], q.verb)
					lock.Unlock()
				}
			}
		})
	}
	asked := 0
	for _, list := range lists {
		apiGroup, _, _ := strings.Cut(list.GroupVersion, "/")
		if apiGroup == list.GroupVersion {
			apiGroup = ""
		}
		for _, r := range list.APIResources {
			resource, subresource, _ := strings.Cut(r.Name, "/")
			for _, verb := range allVerbs {
				for _, name := range []string{"", v1alpha1.IdentityName, v1alpha1.NetworkProvider} {
					questions <- question{apiGroup, resource, subresource, name, verb}
					asked++
				}
			}
		}
	}
	close(questions)
	group.Wait()
	t.Logf("namespace %q: %d questions, %d resources allowed", namespace, asked, len(found))
	return found
}

// consumerConfig is access to the provider with what the consumer holds. What was got in band leads
// there from the consumer's manager alone, so it is used where administrators are.
func (c *continuum) consumerConfig(t *testing.T, consumer, provider string) *rest.Config {
	t.Helper()
	secret, err := get[corev1.Secret](c, consumer, v1alpha1.SystemNamespace, v1alpha1.CredentialSecret(provider))
	if err != nil {
		t.Fatal(err)
	}
	config := &rest.Config{
		Host: string(secret.Data["server"]), QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: secret.Data["ca.crt"], CertData: secret.Data["tls.crt"], KeyData: secret.Data["tls.key"]},
	}
	if token := secret.Data["token"]; len(token) > 0 {
		config.BearerToken, config.CertData, config.KeyData = string(token), nil, nil
	}
	if config.Host == v1alpha1.InBandServer {
		config.Host, config.CAData = c.Configs[provider].Host, c.Configs[provider].CAData
	}
	return config
}

// fairness holds that a consumer that floods the API server does not starve others:
// while it lists without pause over many connections, the owner's requests answer.
func fairness(t *testing.T, c *continuum) {
	c.peer(t, "rome", "milan")
	admin := c.Clients["milan"]
	ask := func() time.Duration {
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := admin.List(ctx, &corev1.ServiceList{}, client.InNamespace("default")); err != nil {
			t.Errorf("the owner's request fails: %v", err)
		}
		return time.Since(begin)
	}
	median := func(n int) time.Duration {
		var took []time.Duration
		for range n {
			took = append(took, ask())
		}
		slices.Sort(took)
		return took[len(took)/2]
	}
	quiet := median(20)
	ctx, cancel := context.WithCancel(t.Context())
	var flood sync.WaitGroup
	for range 20 {
		config := c.consumerConfig(t, "rome", "milan")
		config.Dial = nil
		flooder, err := client.New(config, client.Options{Scheme: kubetest.Scheme()})
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			flood.Go(func() {
				for ctx.Err() == nil {
					flooder.List(ctx, &v1alpha1.ResourceRequestList{}, client.InNamespace(v1alpha1.TenantNamespace("rome")))
				}
			})
		}
	}
	busy := median(20)
	cancel()
	flood.Wait()
	t.Logf("the owner's request: %s on a quiet server, %s under the flood", quiet.Round(time.Microsecond), busy.Round(time.Microsecond))
	if busy > time.Second {
		t.Errorf("under the flood the owner's request takes %s, at most 1 s", busy)
	}
	schemas := c.Kubectl(t, "milan", "get", "flowschema", v1alpha1.TenantNamespace("rome"), "-o", "jsonpath={.spec.priorityLevelConfiguration.name}")
	if schemas != v1alpha1.PriorityLevel {
		t.Errorf("the tenant's flow goes to priority level %q, want %q", schemas, v1alpha1.PriorityLevel)
	}
}
