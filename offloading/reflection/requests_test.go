package reflection

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// ledger counts requests about what pods refer to, by where they are sent, verb and resource.
type ledger struct {
	mu    sync.Mutex
	of    map[string]int
	since time.Time // of the last one
}

func (l *ledger) add(where, verb, resource string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of[where+": "+verb+" "+resource]++
	l.since = time.Now()
}

// take returns what was counted, and begins anew.
func (l *ledger) take() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.of
	l.of, l.since = map[string]int{}, time.Now()
	return all
}

// quiet says that there was no request for longer than anything waits that was caused by one, and for longer still
// while there were fewer than may come: a busy machine may be late with them.
func (l *ledger) quiet(most map[string]int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	wait := 3 * readEvery
	for key, times := range most {
		if l.of[key] < times {
			wait = 30 * readEvery
		}
	}
	return time.Since(l.since) > wait
}

func sum(of map[string]int, where string) (n int) {
	for key, times := range of {
		if strings.HasPrefix(key, where+": ") {
			n += times
		}
	}
	return n
}

// counting counts what a manager asks its own cluster for; what its cache and the lister do for all objects at once
// is not of one object.
type counting struct {
	http.RoundTripper
	world *world
	into  *ledger
}

func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	_, path, ok := strings.Cut(r.URL.Path, "/namespaces/")
	words := strings.Split(path, "/")
	where := map[string]string{c.world.home: "home", c.world.remote: "provider", c.world.TenantNamespace(): "provider"}[words[0]]
	verb := map[string]string{http.MethodGet: "get", http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete"}[r.Method]
	all := verb == "get" && len(words) == 2
	if ok && where != "" && !all && slices.Contains([]string{"secrets", "configmaps", "shadowobjects", "serviceaccounts"}, words[1]) {
		c.into.add(where, verb, words[1])
	}
	return c.RoundTripper.RoundTrip(r)
}

// countingFleet counts what is sent across links.
type countingFleet struct {
	Fleet
	into *ledger
}

func (c countingFleet) Peer(peering string) (Peer, bool) {
	p, ok := c.Fleet.Peer(peering)
	return countingPeer{p, c.into}, ok
}

type countingPeer struct {
	Peer
	into *ledger
}

func (c countingPeer) Client() client.Client { return countingClient{c.Peer.Client(), c.into} }

type countingClient struct {
	client.Client
	into *ledger
}

func (c countingClient) count(verb string) { c.into.add("link", verb, "shadowobjects") }

func (c countingClient) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	c.count("get")
	return c.Client.Get(ctx, key, obj, opts...)
}

func (c countingClient) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	c.count("create")
	return c.Client.Create(ctx, obj, opts...)
}

func (c countingClient) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	c.count("patch")
	return c.Client.Patch(ctx, obj, patch, opts...)
}

func (c countingClient) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	c.count("delete")
	return c.Client.Delete(ctx, obj, opts...)
}

// jumping is the time, but for jumps.
type jumping struct {
	mu    sync.Mutex
	ahead time.Duration
}

func (j *jumping) Now() time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	return time.Now().Add(j.ahead)
}

func (j *jumping) Since(t time.Time) time.Duration { return j.Now().Sub(t) }

func (j *jumping) jump(by time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ahead += by
}

// TestRequests holds what a pod's own Secret, ConfigMap and token cost from their beginning to their end, beside
// another pod of the namespace that stays. Both sides run as in the program.
func TestRequests(t *testing.T) {
	registry := metrics.Registry
	metrics.Registry = prometheus.NewRegistry() // each program has one
	t.Cleanup(func() { metrics.Registry = registry })
	w, clock, counts := newWorld(t), &jumping{}, &ledger{of: map[string]int{}}
	config := rest.CopyConfig(kubetest.Server(t).Config)
	if err := rest.LoadTLSFiles(config); err != nil {
		t.Fatal(err)
	}
	w.showing()
	w.build(v1alpha1.FeatureOfKind(kindSecret), v1alpha1.FeatureOfKind(kindConfigMap))
	node := get(w, "", w.name, &corev1.Node{})
	node.Labels["world"] = w.name
	w.update(node)
	own := rest.CopyConfig(config)
	own.Wrap(func(rt http.RoundTripper) http.RoundTripper { return counting{rt, w, counts} })
	mgr := w.manager(own, kubetest.Server(t).Namespace(t))
	links := fleet.New(fleet.Options{Scheme: kubetest.Scheme()})
	if err := Register(mgr, Options{Fleet: countingFleet{Connections(links), counts}, Clock: clock}); err != nil {
		t.Fatal(err)
	}
	if err := mgr.Add(links); err != nil {
		t.Fatal(err)
	}
	w.robot(v1alpha1.TokensAllow) // these rules are known before anything is counted
	w.create(pullSecret(w.home, "stays", "s3cret"))
	w.pod("stays", "stays")
	w.start(mgr)
	w.connect(links, config, w.name, config.Host)
	w.await("another pod has what it needs", func() bool { return w.answer("stays") == "True/Ready" })
	w.await("all of that is over", func() bool { return counts.quiet(nil) })
	counts.take()

	w.create(pullSecret(w.home, "own", "s3cret"))
	w.create(configMap(w.home, "own", map[string]string{"a": "1"}))
	pod, tokens := w.robotPod(func(spec *corev1.PodSpec) {
		spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "own"}}
		spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: named("own")}}}
	})
	running := w.shadowPod(pod, true)
	of := func(kind, name string) types.NamespacedName {
		return types.NamespacedName{Namespace: w.TenantNamespace(), Name: v1alpha1.ShadowObjectName(v1alpha1.HomeObject{Kind: kind, Namespace: w.home, Name: name})}
	}
	there := func(key types.NamespacedName) bool {
		return get(w, key.Namespace, key.Name, &v1alpha1.ShadowObject{}) != nil
	}
	w.await("the pod has all", func() bool { return w.made("own") != nil && w.madeMap("own") != nil && w.made(tokens) != nil })
	w.counted("they are made", counts, map[string]int{
		"home: get secrets": 1, "home: get configmaps": 2, "home: create serviceaccounts": 2, // the authority of this cluster is one, and two tokens are asked for
		"link: create shadowobjects":  3,
		"provider: get shadowobjects": 3, "provider: create secrets": 2, "provider: create configmaps": 1, "provider: patch shadowobjects": 3,
	})

	w.remove(pod)
	w.remove(running)
	w.await("the tokens are gone", func() bool { return w.made(tokens) == nil && !there(of(kindSecret, tokens)) })
	w.counted("the pod ends", counts, map[string]int{"link: delete shadowobjects": 1, "provider: delete secrets": 1})

	clock.jump(2 * grace)
	for _, kind := range []string{kindSecret, kindConfigMap} { // what is looked at in a minute is looked at now
		s := get(w, w.TenantNamespace(), of(kind, "own").Name, &v1alpha1.ShadowObject{})
		s.Labels["test"] = "look"
		w.update(s)
	}
	w.await("all is gone", func() bool {
		return w.made("own") == nil && w.madeMap("own") == nil && !there(of(kindSecret, "own")) && !there(of(kindConfigMap, "own"))
	})
	w.counted("they go", counts, map[string]int{
		"home: get secrets": 1, "home: get configmaps": 1, // of metadata: they might have been annotated
		"link: delete shadowobjects": 2, "provider: delete secrets": 1, "provider: delete configmaps": 1,
	})
}

// counted compares requests with what they may be, once they are over.
func (w *world) counted(when string, counts *ledger, most map[string]int) {
	w.t.Helper()
	w.await("all of that is over", func() bool { return counts.quiet(most) })
	got := counts.take()
	var all []string
	for _, key := range slices.Sorted(maps.Keys(got)) {
		all = append(all, fmt.Sprintf("%s %d", key, got[key]))
		if got[key] > most[key] {
			w.t.Errorf("%s: %d of %q, want %d at most", when, got[key], key, most[key])
		}
	}
	w.t.Logf("%s: at home %d, at the provider %d, across the link %d: %s", when, sum(got, "home"), sum(got, "provider"), sum(got, "link"), strings.Join(all, ", "))
}
