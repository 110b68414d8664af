package reflection

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
	"github.com/pelago-dev/pelago/internal/kubetest"
	"github.com/pelago-dev/pelago/offloading/content"
)

// listing counts the lists of a namespace's NetworkPolicies that are no watch's.
type listing struct {
	http.RoundTripper
	namespace string
	lists     *atomic.Int32
}

func (l listing) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/namespaces/"+l.namespace+"/networkpolicies") && r.URL.Query().Get("watch") == "" {
		l.lists.Add(1)
	}
	return l.RoundTripper.RoundTrip(r)
}

// TestPolicyRequests: a provider does not list all NetworkPolicies of a namespace for each one of the tenant's.
func TestPolicyRequests(t *testing.T) {
	registry := metrics.Registry
	metrics.Registry = prometheus.NewRegistry() // each program has one
	t.Cleanup(func() { metrics.Registry = registry })
	w, lists := newWorld(t), &atomic.Int32{}
	w.kind = kindPolicy
	w.showing()
	config := rest.CopyConfig(kubetest.Server(t).Config)
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return listing{rt, w.remote, lists} })
	mgr := w.manager(config, kubetest.Server(t).Namespace(t))
	links := fleet.New(fleet.Options{Scheme: kubetest.Scheme()})
	if err := Register(mgr, Options{Fleet: Connections(links)}); err != nil {
		t.Fatal(err)
	}
	if err := mgr.Add(links); err != nil {
		t.Fatal(err)
	}
	w.create(policyOf(t, w.remote, "owner", "{podSelector: {}, policyTypes: [Egress], egress: [{}]}"))
	w.start(mgr)
	plant := func(name string) {
		words, wrong := content.Kinds[kindPolicy].Encode(policyOf(t, w.home, name, "{podSelector: {}}"))
		if wrong != "" {
			t.Fatal(wrong)
		}
		w.create(&v1alpha1.ShadowObject{ObjectMeta: objectMeta(w.key(name).Namespace, w.key(name).Name), Spec: v1alpha1.ShadowObjectSpec{Home: w.of(name), Object: words}})
	}
	plant("first")
	w.await("the first one is made", func() bool { return w.answer("first") == "True/Ready" })
	began := lists.Load() // of the cache
	const many = 50
	for i := range many {
		plant(fmt.Sprint("p", i))
	}
	w.await("all are made", func() bool {
		all := &networkingv1.NetworkPolicyList{}
		return w.raw.List(ctx, all, client.InNamespace(w.remote)) == nil && len(all.Items) == many+2
	})
	// What looks after everything now and then may come by meanwhile.
	if n := lists.Load() - began; n > 5 {
		t.Errorf("%d lists for %d policies", n, many)
	}
}
