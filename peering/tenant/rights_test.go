package tenant

import (
	"context"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

var marker = regexp.MustCompile(`(?m)^// \+kubebuilder:rbac:(.*)$`)

// TestMarkersSayTheSame compares the markers that the roles are generated from with
// the table.
func TestMarkersSayTheSame(t *testing.T) {
	text, err := os.ReadFile("rights.go")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]rbacv1.PolicyRule{}
	for _, m := range marker.FindAllStringSubmatch(string(text), -1) {
		fields := map[string][]string{}
		for _, pair := range strings.Split(m[1], ",") {
			key, value, _ := strings.Cut(pair, "=")
			fields[key] = strings.Split(strings.Trim(value, `"`), ";")
		}
		if role := fields["roleName"]; role != nil {
			found[role[0]] = append(found[role[0]], rbacv1.PolicyRule{
				APIGroups: fields["groups"], Resources: fields["resources"], ResourceNames: fields["resourceNames"], Verbs: fields["verbs"]})
		}
	}
	if diff := cmp.Diff(Rights(), found); diff != "" {
		t.Error(diff)
	}
}

// access is one thing to try.
type access struct{ group, resource, subresource, verb, namespace, name string }

func (a access) String() string {
	resource := a.resource
	if a.subresource != "" {
		resource += "/" + a.subresource
	}
	return strings.Join([]string{a.verb, resource, a.group, "in", a.namespace, a.name}, " ")
}

// everything lists every verb on every resource that the server has, and on what
// RBAC knows beside them, in the given namespaces. The name "consumer" is allowed
// whatever another name is; the others are tried on what the table names.
func everything(t *testing.T, b *bench, namespaces ...string) []access {
	t.Helper()
	_, lists, err := kubernetes.NewForConfigOrDie(b.server.Config).Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	verbs := []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "bind", "escalate", "impersonate", "approve", "sign", "use", "*"}
	var all []access
	add := func(group, resource string) {
		resource, sub, _ := strings.Cut(resource, "/")
		for _, verb := range verbs {
			for _, namespace := range namespaces {
				all = append(all, access{group, resource, sub, verb, namespace, v1alpha1.IdentityName})
			}
			if group == v1alpha1.GroupVersion.Group || resource == "leases" || resource == "serviceaccounts" {
				all = append(all, access{group, resource, sub, verb, namespaces[0], "other"}, access{group, resource, sub, verb, namespaces[0], ""})
			}
		}
	}
	seen := map[string]bool{}
	for _, l := range lists {
		group, _, found := strings.Cut(l.GroupVersion, "/")
		if !found {
			group = ""
		}
		for _, r := range l.APIResources {
			if key := group + " " + r.Name; !seen[key] {
				seen[key] = true
				add(group, r.Name)
			}
		}
	}
	for _, r := range []string{"users", "groups", "userextras/scopes"} {
		add("", r)
		add("authentication.k8s.io", r)
	}
	add("certificates.k8s.io", "signers")
	return all
}

// walk asks the API server, as config's user, for everything, and returns what is
// allowed.
func walk(t *testing.T, config *rest.Config, all []access) map[access]bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	reviews := kubernetes.NewForConfigOrDie(config).AuthorizationV1().SelfSubjectAccessReviews()
	var mu sync.Mutex
	allowed := map[access]bool{}
	todo := make(chan access)
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for a := range todo {
				review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
					ResourceAttributes: &authorizationv1.ResourceAttributes{Group: a.group, Resource: a.resource, Subresource: a.subresource,
						Verb: a.verb, Namespace: a.namespace, Name: a.name, Version: "*"}}}
				got, err := reviews.Create(ctx, review, metav1.CreateOptions{})
				if err != nil {
					t.Errorf("%v: %v", a, err)
					continue
				}
				if got.Status.Allowed {
					mu.Lock()
					allowed[a] = true
					mu.Unlock()
				}
			}
		})
	}
	for _, a := range all {
		todo <- a
	}
	close(todo)
	workers.Wait()
	return allowed
}

// expected is what of everything the named roles allow in a namespace, by the table,
// and what every user may ask about itself.
func expected(all []access, namespace string, roles ...string) map[access]bool {
	want := map[access]bool{}
	for _, a := range all {
		self := a.verb == "create" && (a.group == "authorization.k8s.io" && strings.HasPrefix(a.resource, "selfsubject") ||
			a.group == "authentication.k8s.io" && a.resource == "selfsubjectreviews")
		if self && a.subresource == "" {
			want[a] = true
		}
		if a.namespace != namespace {
			continue
		}
		for _, role := range roles {
			for _, rule := range Rights()[role] {
				resource := a.resource
				if a.subresource != "" {
					resource += "/" + a.subresource
				}
				if rule.APIGroups[0] == a.group && slices.Contains(rule.Resources, resource) && slices.Contains(rule.Verbs, a.verb) &&
					(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, a.name)) {
					want[a] = true
				}
			}
		}
	}
	return want
}

// rightsStride is how far apart the things of a sample are that a consumer may not do.
const rightsStride = 4

// some is what it may do and a sample of what it may not, or all of all.
func some(all []access, may map[access]bool) []access {
	if kubetest.All() {
		return all
	}
	var chosen []access
	for i, a := range all {
		if may[a] || i%rightsStride == 0 {
			chosen = append(chosen, a)
		}
	}
	return chosen
}

// pathName is how a consumer calls the path of two of its providers.
const pathName = "5f3a9c1185a5c5e9"

func newPath(namespace, name string, finalizers ...string) *v1alpha1.NetworkPath {
	return &v1alpha1.NetworkPath{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Finalizers: finalizers},
		Spec: v1alpha1.NetworkPathSpec{Prefixes: []string{"10.255.0.0/16"}, Until: metav1.NewTime(time.Now().Add(time.Hour))}}
}

// TestPathsOfAConsumer has a consumer do what it does with NetworkPaths, not only ask whether it
// may: in its tenant namespace all of it but the status, which is the provider's word, and
// elsewhere nothing.
func TestPathsOfAConsumer(t *testing.T) {
	b := peered(t)
	if err := apply(t.Context(), b.c, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ConsumerRole}, Rules: Rights()[v1alpha1.ConsumerRole]}); err != nil {
		t.Fatal(err)
	}
	config := rest.CopyConfig(b.server.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: v1alpha1.UserPrefix + b.tenant().Spec.PeeringUID}
	consumer, err := client.NewWithWatch(config, client.Options{Scheme: b.c.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	said := []byte(`{"spec":{"endpoints":["192.0.2.7:7100"]},"status":{"port":7100}}`)
	name := "00" + pathName[2:]
	try := func(namespace string) map[string]error {
		in, path := client.InNamespace(namespace), func() *v1alpha1.NetworkPath { return newPath(namespace, name) }
		did := map[string]error{}
		var w watch.Interface
		if w, did["watch"] = consumer.Watch(t.Context(), &v1alpha1.NetworkPathList{}, in); w != nil {
			w.Stop()
		}
		did["list"] = consumer.List(t.Context(), &v1alpha1.NetworkPathList{}, in)
		did["create"] = consumer.Create(t.Context(), path())
		did["patch"] = consumer.Patch(t.Context(), path(), client.RawPatch(types.MergePatchType, said))
		did["patch status"] = consumer.Status().Patch(t.Context(), path(), client.RawPatch(types.MergePatchType, said))
		did["update"] = consumer.Update(t.Context(), path())
		if p := get(b, namespace, name, &v1alpha1.NetworkPath{}); p != nil && (p.Status.Port != 0 || len(p.Spec.Endpoints) != 1) {
			t.Errorf("the consumer wrote endpoints %v and port %d", p.Spec.Endpoints, p.Status.Port)
		}
		did["delete all"] = consumer.DeleteAllOf(t.Context(), path(), in)
		did["delete"] = consumer.Delete(t.Context(), path())
		return did
	}
	may := []string{"watch", "list", "create", "patch", "delete"}
	for what, err := range try(b.space()) {
		if own := slices.Contains(may, what); own && err != nil || !own && !apierrors.IsForbidden(err) {
			t.Errorf("%s in its tenant namespace: %v", what, err)
		}
	}
	for _, namespace := range []string{"default", b.namespace} {
		for what, err := range try(namespace) {
			if !apierrors.IsForbidden(err) {
				t.Errorf("%s in namespace %s: %v", what, namespace, err)
			}
		}
	}
}

// TestRightsOfAConsumer tries verbs on resources as the consumer, every one where
// PELAGO_TEST_ALL is 1: before, and after its peering has been ended.
func TestRightsOfAConsumer(t *testing.T) {
	server := newBench(t)
	for name, rules := range Rights() {
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
		if err := apply(t.Context(), server.c, role); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		kind          v1alpha1.CredentialType
		living, ended []string
	}{
		{v1alpha1.CredentialCertificate, []string{v1alpha1.ConsumerRole}, []string{v1alpha1.FarewellRole}},
		{v1alpha1.CredentialToken, []string{v1alpha1.ConsumerRole, v1alpha1.ConsumerTokenRole}, []string{v1alpha1.FarewellRole}},
	} {
		t.Run(string(c.kind), func(t *testing.T) {
			b := peered(t, func(t *v1alpha1.Tenant) { t.Spec.CredentialType = c.kind })
			config := rest.CopyConfig(b.server.Config)
			config.Impersonate = rest.ImpersonationConfig{UserName: v1alpha1.UserPrefix + b.tenant().Spec.PeeringUID}
			if c.kind == v1alpha1.CredentialToken {
				config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + b.space() + ":consumer",
					Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + b.space()}}
			}
			check := func(when string, roles []string, elsewhere ...string) {
				t.Helper()
				all := everything(t, b, append([]string{b.space()}, elsewhere...)...)
				want := expected(all, b.space(), roles...)
				chosen := some(all, want)
				t.Logf("%s: %d of %d things to try", when, len(chosen), len(all))
				got := walk(t, config, chosen)
				for a := range maps.Keys(got) {
					if !want[a] {
						t.Errorf("%s: may %v", when, a)
					}
				}
				for a := range maps.Keys(want) {
					if !got[a] {
						t.Errorf("%s: may not %v", when, a)
					}
				}
			}
			check("living", c.living, "default", "")
			b.endTenant()
			b.reconcile()
			check("ended", c.ended)
			b.identityGoodbye()
			b.reconcile()
			b.wantNothingLeft()
			check("gone", nil)
		})
	}
}
