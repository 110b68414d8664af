package network

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

const waitLimit = time.Minute

// TestManager runs all of the room in a manager, that is consumer and provider of itself, over
// a real connection with no more rights than a consumer has.
func TestManager(t *testing.T) {
	w := newWorld(t)
	w.raw.Off() // a manager writes by itself
	w.rome.config.Network.Pods, w.rome.config.Network.Service = []string{"10.42.0.0/16"}, corev1.ServiceTypeNodePort
	server := kubetest.Server(t)
	// Others use the same server, and what nobody wants is removed.
	mine := cache.ByObject{Label: labels.SelectorFromSet(labels.Set{labelWorld: w.milan.peer})}
	here := cache.ByObject{Namespaces: map[string]cache.Config{w.rome.namespace: {}, w.rome.sees[0]: {}, w.milan.sees[0]: {}, w.rome.sees[0] + "-oslo": {}, w.milan.sees[0] + "-oslo": {}}}
	mgr, err := ctrl.NewManager(server.Config, ctrl.Options{
		Scheme: kubetest.Scheme(), Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)},
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			&v1alpha1.Peering{}: mine, &v1alpha1.Tenant{}: mine, &corev1.Node{}: mine,
			&v1alpha1.NetworkConfig{}: here, &v1alpha1.NetworkPath{}: here, &v1alpha1.NetworkRules{}: here, &v1alpha1.NamespaceMap{}: here,
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	f := fleet.New(fleet.Options{Scheme: kubetest.Scheme()})
	n := New(Options{Home: idle{w.rome}, Fleet: Connections(f), Namespace: w.rome.namespace, Metrics: prometheus.NewRegistry()})
	if err := errors.Join(n.Register(mgr), mgr.Add(f)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	if err := f.Set(ctx, w.connection(server, w.rome.peer, v1alpha1.TenantNamespace(w.milan.peer))); err != nil {
		t.Fatal(err)
	}
	consumer, provider := v1alpha1.NetworkConsumer, v1alpha1.NetworkProvider
	agree := func(name string) bool {
		here, there := w.rome.pair(name), w.milan.pair(name)
		if here == nil || there == nil || here.Spec.PublicKey == "" || !cmp.Equal(here.Spec, there.Spec) || !cmp.Equal(here.Status.Views, there.Status.Views) {
			return false
		}
		a, b := readyOf(here), readyOf(there)
		return a != nil && b != nil && a.Status == "True" && b.Status == "True" && len(here.Status.Views) == 2 && here.Status.ObservedGeneration == here.Generation
	}
	within(t, "both sides agree", func() bool { return agree(consumer) && agree(provider) })
	within(t, "addresses are translated", func() bool {
		there, ok := n.Translate(w.rome.peer, addr("10.42.0.7"))
		return ok && n.Allows(w.milan.peer, there)
	})
	w.managed(t)
	w.managedPaths(t, func(peering, space string) {
		if err := f.Set(ctx, w.connection(server, peering, space)); err != nil {
			t.Fatal(err)
		}
	})
	if alive, known := n.Alive(w.rome.peer); alive || known {
		t.Error("a tunnel lives or is dead that nobody has reported")
	}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
	defer queue.ShutDown()
	told := n.TunnelSource(ofPeer)
	if err := told.Start(ctx, queue); err != nil {
		t.Fatal(err)
	}
	w.clock.SetTime(time.Now())
	for _, alive := range []bool{true, false, true} {
		began := time.Now()
		w.rome.report(w.rome.nodes[0], map[string]v1alpha1.TunnelReport{w.rome.key(): {Alive: alive, Since: &metav1.Time{Time: noon}}})
		request, _ := queue.Get() // the test's own deadline ends it
		t.Logf("alive %t is told after %s", alive, time.Since(began))
		if is, known := n.Alive(w.rome.peer); request.Name != w.rome.peer || is != alive || !known {
			t.Errorf("of %s is told when the tunnel is %t, known %t, want %t", request.Name, is, known, alive)
		}
		queue.Done(request)
	}
	// What gateways know of pods is told as it is written.
	pods := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
	defer pods.ShutDown()
	if err := n.GatewaySource(ofPeer).Start(ctx, pods); err != nil {
		t.Fatal(err)
	}
	tunnel := fmt.Sprintf(`{%q:{"alive":true,"since":"2026-11-22T12:00:00Z"}}`, w.rome.key())
	for _, c := range []struct{ says, behind string }{
		{`{"away":{"milan":9},"peer":19}`, "home provider"}, {`{"away":{"milan":10},"peer":19}`, "provider"}, {`{"away":{"milan":10},"peer":20}`, ""},
	} {
		began := time.Now()
		w.rome.renew(w.rome.nodes[0], map[string]string{
			v1alpha1.AnnotationTunnels: tunnel, v1alpha1.AnnotationAppliedPods: fmt.Sprintf("{%q:%s}", w.rome.key(), c.says),
		})
		request, _ := pods.Get()
		t.Logf("%s is told after %s", c.says, time.Since(began))
		if got := who(n.Behind(w.rome.peer, "milan", 10, 20)); request.Name != w.rome.peer || got != c.behind {
			t.Errorf("%s is told of %s, and behind is %q, want %q", c.says, request.Name, got, c.behind)
		}
		pods.Done(request)
	}
	// Peers are led to whichever node has the tunnel, as soon as that is said.
	for i, node := range w.rome.nodes {
		w.clock.SetTime(time.Now())
		w.rome.report(w.rome.nodes[1-i], map[string]v1alpha1.TunnelReport{w.rome.key(): {Since: &metav1.Time{Time: noon}}})
		w.rome.report(node, map[string]v1alpha1.TunnelReport{w.rome.key(): {Alive: true}})
		began := time.Now()
		within(t, "the Service leads to "+node, func() bool { return w.rome.leads() == node })
		t.Logf("the Service leads there after %s", time.Since(began))
	}
	// Its Lease runs out, as the agent renews it no more, which says nothing of the tunnel.
	within(t, "the owner is told", func() bool { return w.rome.networkReady() != "" && w.milan.networkReady() != "" })
	within(t, "nobody lives", func() bool { return strings.HasPrefix(w.rome.networkReady(), "False/AgentsMissing") })
	if alive, known := n.Alive(w.rome.peer); !alive || !known {
		t.Errorf("without an agent the tunnel lives: %t, known %t", alive, known)
	}
}

// idle is a side as the manager's controllers want it.
type idle struct{ *side }

// Source tells of nothing.
func (idle) Source(to handler.EventHandler) source.Source {
	return source.Func(func(context.Context, workqueue.TypedRateLimitingInterface[ctrl.Request]) error { return nil })
}

// connection is that of a consumer with exactly its rights, as they are generated.
func (w *world) connection(server *kubetest.APIServer, peering, space string) fleet.Connection {
	w.t.Helper()
	account := w.create(&corev1.ServiceAccount{ObjectMeta: at(space, v1alpha1.IdentityName)})
	w.create(&rbacv1.Role{ObjectMeta: at(space, v1alpha1.ConsumerRole), Rules: rules(w.t, v1alpha1.ConsumerRole)})
	w.create(&rbacv1.RoleBinding{ObjectMeta: at(space, v1alpha1.ConsumerRole),
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: v1alpha1.ConsumerRole},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: space, Name: v1alpha1.IdentityName}}})
	token := &authenticationv1.TokenRequest{}
	if err := w.raw.SubResource("token").Create(ctx, account, token); err != nil {
		w.t.Fatal(err)
	}
	return fleet.Connection{Peering: peering, ServerURL: server.Config.Host, CA: server.Config.CAData, Token: token.Status.Token, TenantNamespace: space}
}

// rules are those of a ClusterRole as it is installed.
func rules(t *testing.T, role string) []rbacv1.PolicyRule {
	t.Helper()
	text, err := os.ReadFile("../deploy/generated/rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for reader := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		found := &rbacv1.ClusterRole{}
		if err := reader.Decode(found); err == io.EOF {
			t.Fatalf("there is no ClusterRole %s", role)
		} else if err != nil {
			t.Fatal(err)
		}
		if found.Kind == "ClusterRole" && found.Name == role {
			return found.Rules
		}
	}
}

func within(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(waitLimit); !is(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("waited %s for: %s", waitLimit, what)
		}
	}
}
