package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
	"github.com/pelago-dev/pelago/internal/home"
	"github.com/pelago-dev/pelago/internal/kubetest"
	"github.com/pelago-dev/pelago/internal/vitals"
	"github.com/pelago-dev/pelago/network"
	"github.com/pelago-dev/pelago/peering/reader"
	"github.com/pelago-dev/pelago/peering/tenant"
)

const waitLimit = 2 * time.Minute

func TestParse(t *testing.T) {
	cases := []struct {
		reason string
		args   []string
		want   string // of the error
	}{
		{"defaults suffice", nil, ""},
		{"the endpoint runs alone", []string{"--rooms=auth"}, ""},
		{"a typing mistake names what there is", []string{"--rooms=peerings"}, `--rooms: there is no room "peerings"; there is peering, offloading, network, auth`},
		{"what approves certificates shares no process with what has other rights", []string{"--rooms", "peering,auth"}, "peering and auth need different rights"},
		{"arguments without a flag are a mistake", []string{"peering"}, `unknown argument "peering"`},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			_, err := parse(c.args)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	if _, err := parse([]string{"--help"}); err != flag.ErrHelp {
		t.Errorf("help: %v", err)
	}
}

func TestLogger(t *testing.T) {
	for level, want := range map[string]int{"info": 1, "debug": 2} {
		var out bytes.Buffer
		logger, err := newLogger(&out, level)
		if err != nil {
			t.Fatal(err)
		}
		logger.Info("for everybody", "cluster", "rome")
		logger.V(1).Info("for developers")
		logger.V(4).Info("for nobody")
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != want {
			t.Errorf("level %s wrote %d lines, want %d: %s", level, len(lines), want, out.String())
		}
		var first map[string]any
		if err := json.Unmarshal([]byte(lines[0]), &first); err != nil || first["msg"] != "for everybody" || first["cluster"] != "rome" {
			t.Errorf("level %s: %v: %s", level, err, lines[0])
		}
	}
	if _, err := newLogger(io.Discard, "warn"); err == nil {
		t.Error("an unknown level was accepted")
	}
}

func TestTrim(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	container := corev1.Container{Name: "c", Image: "i", Env: []corev1.EnvVar{{Name: "PASSWORD", Value: "x"}}, RestartPolicy: &always,
		Ports: []corev1.ContainerPort{{ContainerPort: 1}, {Name: "http", ContainerPort: 8080, HostPort: 80, Protocol: corev1.ProtocolTCP}}}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d", v1alpha1.AnnotationApplied: "x"}},
		Spec:       corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{container}, InitContainers: []corev1.Container{container}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	got, err := trimPod(pod)
	small := corev1.Container{Name: "c", Image: "i", RestartPolicy: &always, Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}}}
	want := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{v1alpha1.AnnotationApplied: "x"}},
		Spec:       corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{small}, InitContainers: []corev1.Container{small}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	if diff := cmp.Diff(any(want), got); diff != "" || err != nil {
		t.Error(err, diff)
	}
	ready := pod.DeepCopy()
	ready.Annotations = map[string]string{"c": "d"}
	ready.Spec.Containers[0].Env = container.Env
	ready.Spec.Tolerations = []corev1.Toleration{{Key: v1alpha1.TaintVirtualNode, Operator: corev1.TolerationOpExists}}
	whole := ready.DeepCopy()
	if got, err := trimPod(ready); err != nil || !cmp.Equal(any(whole), got) {
		t.Errorf("a pod that may run elsewhere is not whole: %v, %+v", err, got)
	}
	if got, err := trimPod("gone"); got != "gone" || err != nil {
		t.Errorf("what is no pod became %v, %v", got, err)
	}
	for namespace, kept := range map[string]bool{v1alpha1.TenantNamespace("rome"): false, v1alpha1.PeeringNamespace("milan"): true} {
		rules, err := trim(&v1alpha1.NetworkRules{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "shop.0"}, Spec: v1alpha1.NetworkRulesSpec{Shards: 1}})
		if r, ok := rules.(*v1alpha1.NetworkRules); err != nil || !ok || (r.Spec.Shards == 1) != kept {
			t.Errorf("rules in %s became %+v, %v", namespace, rules, err)
		}
	}
	path, err := trim(&v1alpha1.NetworkPath{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace("rome"), Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}},
		Spec: v1alpha1.NetworkPathSpec{Prefixes: []string{"10.0.0.0/16"}}})
	if p, ok := path.(*v1alpha1.NetworkPath); err != nil || !ok || len(p.Labels)+len(p.Annotations) > 0 || len(p.Spec.Prefixes) != 1 {
		t.Errorf("a path became %+v, %v", path, err)
	}
	node, err := trimNode(&corev1.Node{Status: corev1.NodeStatus{Images: make([]corev1.ContainerImage, 3), NodeInfo: corev1.NodeSystemInfo{Architecture: "arm64"}}})
	if n := node.(*corev1.Node); err != nil || n.Status.Images != nil || n.Status.NodeInfo.Architecture != "arm64" {
		t.Errorf("node became %+v, %v", n.Status, err)
	}
}

// configured makes a namespace with what the chart puts beside the program.
func configured(t *testing.T, server *kubetest.APIServer) (client.Client, string) {
	t.Helper()
	c, namespace := server.Client(t), server.Namespace(t)
	for name, data := range map[string]map[string]string{
		v1alpha1.ConfigName: {home.ConfigKey: "cluster: {name: rome}"}, v1alpha1.ClusterIDName: nil,
	} {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: data}
		if err := c.Create(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	return c, namespace
}

// The program with a room of the test's: it makes the id, becomes ready, leads, and
// lets go of the lead when it ends.
func TestRun(t *testing.T) {
	server := kubetest.Server(t)
	c, namespace := configured(t, server)
	worked := make(chan *home.Home, 1)
	test := room{name: "test", leads: true, register: func(mgr ctrl.Manager, d deps) error {
		if err := mgr.AddReadyzCheck("test", func(*http.Request) error { return nil }); err != nil {
			return err
		}
		return mgr.Add(work(func() { worked <- d.home }))
	}}
	ctx, cancel := context.WithCancel(logr.NewContext(t.Context(), logr.Discard()))
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, server.Config, settings{
			rooms: []room{test}, address: "127.0.0.1:0", namespace: namespace, registry: prometheus.NewRegistry(),
		})
	}()
	var h *home.Home
	select {
	case h = <-worked:
	case err := <-done:
		t.Fatalf("ended early: %v", err)
	case <-time.After(waitLimit):
		t.Fatal("the room did not get to work")
	}
	id, lease := &corev1.ConfigMap{}, &coordinationv1.Lease{}
	get := func(name string, into client.Object) {
		t.Helper()
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, into); err != nil {
			t.Fatal(err)
		}
	}
	if get(v1alpha1.ClusterIDName, id); id.Data[v1alpha1.ClusterIDKey] != h.ID() || h.ID() == "" {
		t.Errorf("id is %q, stored %v", h.ID(), id.Data)
	}
	if get(v1alpha1.ManagerLease, lease); lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		t.Errorf("nobody leads: %+v", lease.Spec)
	}
	said := func(context.Context) (bool, error) {
		get(v1alpha1.ManagerLease, lease)
		return strings.Contains(lease.Annotations[v1alpha1.AnnotationBuild], v1alpha1.FeaturePeering), nil
	}
	if err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, waitLimit, true, said); err != nil {
		t.Errorf("it does not say on the Lease which build leads: %v", lease.Annotations)
	}
	if got := leading(t); got != 1 { // the alert PelagoManagerAway goes by it
		t.Errorf("the metric of who leads is %v", got)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("ended with %v", err)
	}
	if get(v1alpha1.ManagerLease, lease); lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != "" {
		t.Errorf("%s still leads", *lease.Spec.HolderIdentity)
	}
}

// A program that does not lead is ready once it knows which build leads, which is what it tells peers.
func TestRunLed(t *testing.T) {
	server := kubetest.Server(t)
	c, namespace := configured(t, server)
	held := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.ManagerLease}}
	held.Spec.HolderIdentity = ptr.To("manager_1")
	id := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.ClusterIDName}, Data: map[string]string{v1alpha1.ClusterIDKey: string(uuid.NewUUID())}}
	if err := errors.Join(c.Create(t.Context(), held), c.Update(t.Context(), id)); err != nil {
		t.Fatal(err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	worked := make(chan *home.Home, 1)
	test := room{name: "test", register: func(_ ctrl.Manager, d deps) error { worked <- d.home; return nil }}
	ctx, cancel := context.WithCancel(logr.NewContext(t.Context(), logr.Discard()))
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, server.Config, settings{rooms: []room{test}, address: address, namespace: namespace, registry: prometheus.NewRegistry()})
	}()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	https := &http.Client{Timeout: waitLimit, Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // on loopback, each process makes its certificate in memory, signed by nobody
	}}
	says := func(want string) {
		t.Helper()
		var got string
		err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, waitLimit, true, func(context.Context) (bool, error) {
			answer, err := https.Get("https://" + address + "/readyz")
			if err != nil {
				return false, nil
			}
			defer answer.Body.Close()
			text, err := io.ReadAll(answer.Body)
			got = fmt.Sprintf("%d %s", answer.StatusCode, text)
			return strings.HasPrefix(got, want), err
		})
		if err != nil {
			t.Fatalf("it says %q, not %q: %v", got, want, err)
		}
	}
	says("503 leader: no manager of this build or a later one leads yet")
	held.Annotations = map[string]string{v1alpha1.AnnotationBuild: `{"holder":"manager_1","version":"v0.0.7","features":["peering/v1"]}`}
	if err := c.Update(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	says("200")
	if info := (<-worked).Info(); info.Version != "v0.0.7" || len(info.Features) != 1 {
		t.Errorf("it tells peers %+v", info)
	}
}

// leading is what the program's metrics say of its lead.
func leading(t *testing.T) float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "leader_election_master_status" && m.GetLabel()[0].GetValue() == "pelago-manager" {
				return m.GetGauge().GetValue()
			}
		}
	}
	return -1
}

// work is what a leader does.
type work func()

func (w work) Start(ctx context.Context) error { w(); <-ctx.Done(); return nil }

// Without settings the program says so and ends.
func TestRunRefuses(t *testing.T) {
	server := kubetest.Server(t)
	namespace := server.Namespace(t)
	err := run(logr.NewContext(t.Context(), logr.Discard()), server.Config, settings{
		rooms: []room{{name: "test", leads: true}}, address: "127.0.0.1:0", namespace: namespace, registry: prometheus.NewRegistry(),
	})
	if err == nil || !strings.Contains(err.Error(), "reading the settings") {
		t.Errorf("without settings: %v", err)
	}
	ready := &readiness{}
	if ready.check(nil) == nil {
		t.Error("ready before the caches are filled")
	}
	ready.is.Store(true)
	if err := ready.check(nil); err != nil {
		t.Error(err)
	}
}

// registered is whether the rooms were: names and metrics are the process's.
var registered bool

// Every room finds in the manager and in this program what it needs.
func TestRoomsRegister(t *testing.T) {
	if registered {
		return // the test runs again in this process (-count), and rooms are registered once
	}
	registered = true
	server := kubetest.Server(t)
	c, namespace := configured(t, server)
	h, err := home.New(t.Context(), home.Options{Config: server.Config, Client: c, Namespace: namespace, Leads: true, Random: rand.Reader})
	if err != nil {
		t.Fatal(err)
	}
	shown, err := vitals.Listen(vitals.Options{Address: "127.0.0.1:0", Logger: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	shared := deps{home: h, direct: c, namespace: namespace, listen: "127.0.0.1:0", address: "127.0.0.1", usage: tenant.NewUsage(),
		reader: reader.Options{Address: "unix:///nobody/listens"}}
	for _, chosen := range [][]string{{"peering", "offloading", "network"}, {"auth"}} {
		together, err := choose(chosen)
		if err != nil {
			t.Fatal(err)
		}
		s := settings{rooms: together, namespace: namespace}
		mgr, err := ctrl.NewManager(server.Config, managerOptions(logr.NewContext(t.Context(), logr.Discard()), kubetest.Scheme(), s))
		if err != nil {
			t.Fatal(err)
		}
		shared.fleet = fleet.New(fleet.Options{Scheme: mgr.GetScheme(), Logger: logr.Discard()})
		shared.network = network.New(network.Options{Home: h, Fleet: network.Connections(shared.fleet)})
		for _, r := range together {
			if err := r.register(probed{mgr, shown}, shared); err != nil {
				t.Errorf("%s: %v", r.name, err)
			}
		}
	}
}
