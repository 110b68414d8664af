package reflection

import (
	"context"
	"errors"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// await polls until the condition holds.
func (w *world) await(what string, condition func() bool) {
	w.t.Helper()
	deadline := time.NewTimer(2 * time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-deadline.C:
			w.t.Fatalf("waiting until %s: not so after two minutes", what)
		case <-tick.C:
		}
	}
}

// manager makes one that sees only what is this world's, and a namespace more: others use the
// same server.
func (w *world) manager(config *rest.Config, space string) ctrl.Manager {
	w.t.Helper()
	in := func(names ...string) cache.ByObject {
		all := map[string]cache.Config{}
		for _, n := range names {
			all[n] = cache.Config{}
		}
		return cache.ByObject{Namespaces: all}
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: kubetest.Scheme(), Logger: logr.Discard(), Metrics: server.Options{BindAddress: "0"},
		Controller: ctrlconfig.Controller{SkipNameValidation: new(true)}, // tests run one after the other
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}: in(w.home, space), &corev1.Secret{}: in("no-such-namespace"), &corev1.ConfigMap{}: in("no-such-namespace"),
			&corev1.Service{}: in(w.home, w.remote, space), &discoveryv1.EndpointSlice{}: in(w.home, space), &networkingv1.Ingress{}: in(w.home, space), &policyv1.PodDisruptionBudget{}: in(w.home, space), &networkingv1.NetworkPolicy{}: in(w.home, w.remote, space),
			&v1alpha1.NamespaceMap{}: in(w.TenantNamespace(), mapKey(w.name).Namespace), &v1alpha1.NamespaceOffloading{}: in(w.home, space), &v1alpha1.ShadowObject{}: in(w.TenantNamespace()),
			&corev1.Node{}:      {Label: labels.SelectorFromSet(labels.Set{"world": w.name})},
			&v1alpha1.Tenant{}:  {Field: fields.OneTermEqualSelector("metadata.name", w.name)},
			&corev1.Namespace{}: {Label: labels.SelectorFromSet(labels.Set{"world": w.name})},
		}},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.label(w.home, map[string]string{v1alpha1.LabelOffloaded: "true", "world": w.name})
	w.label(space, map[string]string{v1alpha1.LabelOffloaded: "true", "world": w.name})
	w.label(w.remote, map[string]string{v1alpha1.LabelManagedBy: component, v1alpha1.LabelTenant: w.name, v1alpha1.LabelHomeNamespace: w.home, "world": w.name})
	return mgr
}

// start runs a manager until the test ends.
func (w *world) start(mgr ctrl.Manager) {
	ctx, stop := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	w.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			all := make([]byte, 1<<20)
			w.t.Errorf("%v\n%s", err, all[:runtime.Stack(all, true)])
		}
	})
}

func (w *world) connect(links *fleet.Fleet, config *rest.Config, peering, url string) {
	w.t.Helper()
	err := links.Set(w.t.Context(), fleet.Connection{
		Peering: peering, ClusterID: peering, ServerURL: url, CA: config.CAData,
		Certificate: config.CertData, Key: config.KeyData, TenantNamespace: v1alpha1.TenantNamespace(peering),
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// TestManager runs both sides as in the program, with a fleet and a cache that holds no
// Secret.
func TestManager(t *testing.T) {
	w := newWorld(t)
	config := rest.CopyConfig(kubetest.Server(t).Config)
	if err := rest.LoadTLSFiles(config); err != nil {
		t.Fatal(err)
	}
	space := kubetest.Server(t).Namespace(t) // without a pod
	w.showing()
	mgr := w.manager(config, space)
	cable := &cable{}
	links := fleet.New(fleet.Options{Scheme: kubetest.Scheme(), Dial: cable.dial})
	w.build(v1alpha1.FeatureOfKind(kindSecret), v1alpha1.FeatureOfKind(kindConfigMap), v1alpha1.FeatureOfKind(kindService), v1alpha1.FeatureOfKind(kindSlice), v1alpha1.FeatureOfKind(kindPolicy))
	node := get(w, "", w.name, &corev1.Node{})
	node.Labels["world"] = w.name
	w.update(node)
	w.changing = newChanging()
	if err := Register(mgr, Options{Fleet: Connections(links), Addresses: w.changing, Allowed: w.changing, Tunnels: w.tunnels}); err != nil {
		t.Fatal(err)
	}
	if err := mgr.Add(links); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"early", "late"} {
		w.create(pullSecret(w.home, name, name))
	}
	stray := pullSecret(w.remote, "stray", "x")
	stray.Labels = map[string]string{v1alpha1.LabelManagedBy: manager, v1alpha1.LabelTenant: w.name, v1alpha1.LabelHomeNamespace: w.home}
	w.create(stray)
	w.pod("early", "early")
	w.create(service(w.home, "web"))
	w.start(mgr)
	connect := func(peering, url string) { w.connect(links, config, peering, url) }
	connect(w.name, config.Host)
	w.await("the Secret of a pod that was there is made", func() bool { return w.password("early") == "early" })
	w.await("what was left behind is swept", func() bool { return w.made("stray") == nil })
	w.await("so is the Service of its namespace", func() bool { return get(w, w.remote, "web", &corev1.Service{}) != nil })
	w.create(service(w.home, "more"))
	w.await("and one that comes later", func() bool { return get(w, w.remote, "more", &corev1.Service{}) != nil })
	w.pod("late", "late")
	began := time.Now()
	w.await("the Secret of a new pod is made", func() bool { return w.password("late") == "late" })
	t.Logf("a Secret is there after %s", time.Since(began))
	w.await("it is accepted", func() bool { return w.answer("late") == "True/Ready" })
	w.create(configMap(w.home, "loose", map[string]string{"a": "1"}))
	w.rules(ruleOf(kindConfigMap, v1alpha1.ReflectAll))
	w.await("a rule sends a ConfigMap that no pod refers to", func() bool { return w.madeMap("loose") != nil })
	w.rules(ruleOf(kindConfigMap, v1alpha1.ReflectDeny), ruleOf(kindConfigMap, v1alpha1.ReflectAll))
	w.await("another one takes it back", func() bool { return w.madeMap("loose") == nil })
	if err := w.raw.Delete(ctx, w.shadow("late")); err != nil {
		t.Fatal(err)
	}
	w.await("a ShadowObject deleted at the provider is made again", func() bool { return w.shadow("late") != nil && w.answer("late") == "True/Ready" })
	w.slicesInManager(func(oslo string) { connect(oslo, strings.Replace(config.Host, "127.0.0.1", "localhost", 1)) }, cable)
	w.aloneInManager(space, mgr.GetCache())
	w.mapped(v1alpha1.MappedNamespace{Name: w.remote, Phase: v1alpha1.MappingTerminating})
	w.await("a namespace that ends loses them", func() bool { return w.made("late") == nil && w.made("early") == nil })
}

// slicesInManager: the slices of a Service follow what is done at home, at the provider and
// at another provider, as soon as it is done.
func (w *world) slicesInManager(connect func(oslo string), cable *cable) {
	oslo := w.name + "-oslo"
	w.namespace(v1alpha1.TenantNamespace(oslo), nil)
	node := &corev1.Node{ObjectMeta: objectMeta("", oslo)}
	node.Labels = map[string]string{v1alpha1.LabelType: v1alpha1.TypeVirtualNode, v1alpha1.LabelPeering: oslo, "world": w.name}
	w.create(node)
	connect(oslo)
	w.podWith("beyond", func(spec *corev1.PodSpec) { spec.NodeName = oslo })
	s := sliceOf(w.home, "web-1", "web", endpoint("10.1.0.1", oslo))
	w.create(s)
	until := func(what, want string) {
		w.t.Helper()
		w.await(what, func() bool { return shown(w.slice("web-1")) == want })
		since := time.Now() // what was written comes back, and is looked at at the next second
		w.await("all of that is over", func() bool { return time.Since(since) > 2*readEvery })
	}
	until("a slice of a Service that is there is made", "10.201.0.1 ready serving")
	cable.cut(true)
	until("the pod is at a provider that does not answer", "10.201.0.1")
	cable.cut(false)
	until("it answers again", "10.201.0.1 ready serving")
	s.Endpoints = append(s.Endpoints, endpoint("10.1.0.2", "node-1"))
	w.update(s)
	until("a pod more", "10.201.0.1 ready serving, 10.201.0.2 ready serving")
	w.tunnelsInManager(oslo, "10.201.0.1 ready serving, 10.201.0.2 ready serving", "10.201.0.1, 10.201.0.2 ready serving")
	w.viewsInManager(w.changing, "10.201.0.1 ready serving, 10.201.0.2 ready serving")
	if err := w.raw.Delete(ctx, get(w, w.remote, "web", &corev1.Service{})); err != nil {
		w.t.Fatal(err)
	}
	until("the Service is deleted at the provider by hand", "no slice")
	w.rules(ruleOf(kindService, v1alpha1.ReflectDeny))
	for _, home := range []v1alpha1.HomeObject{{Kind: kindService, Namespace: w.home, Name: "web"}, {Kind: kindSlice, Namespace: w.home, Name: "web-1"}} {
		w.await("a rule takes back the "+home.Kind, func() bool {
			return get(w, w.TenantNamespace(), v1alpha1.ShadowObjectName(home), &v1alpha1.ShadowObject{}) == nil
		})
	}
	w.rules()
	until("the Service is made again, and its slices", "10.201.0.1 ready serving, 10.201.0.2 ready serving")
}

// cable is what connects to providers. Those at localhost can be cut off.
type cable struct {
	mu    sync.Mutex
	is    bool // cut
	conns []net.Conn
}

var errCut = errors.New("the cable is cut")

func (c *cable) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil || !strings.HasPrefix(address, "localhost:") {
		return conn, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.is {
		return nil, errors.Join(errCut, conn.Close())
	}
	c.conns = append(c.conns, conn)
	return conn, nil
}

func (c *cable) cut(is bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.is = is
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.conns = nil
}
