package home

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

const waitLimit = 2 * time.Minute

// place is a namespace with what the chart puts there.
type place struct {
	client    client.Client
	namespace string
	options   Options
}

func newPlace(t *testing.T, config string) place {
	t.Helper()
	server := kubetest.Server(t)
	p := place{client: server.Client(t), namespace: server.Namespace(t)}
	p.options = Options{
		Config: server.Config, Client: p.client, Namespace: p.namespace, Version: "v0.0.1", Leads: true, Random: rand.Reader,
	}
	p.write(t, v1alpha1.ConfigName, map[string]string{ConfigKey: config})
	p.write(t, v1alpha1.ClusterIDName, nil)
	return p
}

// write makes or replaces a ConfigMap.
func (p place) write(t *testing.T, name string, data map[string]string) {
	t.Helper()
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: name}, Data: data}
	err := p.client.Create(t.Context(), m)
	if err != nil {
		err = p.client.Update(t.Context(), m)
	}
	if err != nil {
		t.Fatalf("writing ConfigMap %s: %v", name, err)
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

func TestNew(t *testing.T) {
	p := newPlace(t, full)
	h, err := New(t.Context(), p.options)
	if err != nil {
		t.Fatal(err)
	}
	info := h.Info()
	if !idPattern.MatchString(h.ID()) || h.ID()[14] != '4' {
		t.Errorf("id %q is not a UUID of version 4", h.ID())
	}
	if !strings.HasPrefix(info.KubernetesVersion, "v1.") {
		t.Errorf("version of Kubernetes: %q", info.KubernetesVersion)
	}
	info.KubernetesVersion = ""
	want := v1alpha1.ClusterInfo{ID: h.ID(), Name: "milan", Version: "v0.0.1", Features: []string{
		"domains/v1", "offers/v1", "onward/v1", "peering/v1", "reflection.configmap/v1", "reflection.endpointslice/v1", "reflection.ingress/v1", "reflection.networkpolicy/v1", "reflection.parts/v1", "reflection.poddisruptionbudget/v1", "reflection.secret/v1", "reflection.service.ipfamilies/v1", "reflection.service/v1",
	}}
	if diff := cmp.Diff(want, info); diff != "" {
		t.Error(diff)
	}
	p.options.Network = true
	again, err := New(t.Context(), p.options)
	if err == nil && !slices.Contains(again.Info().Features, v1alpha1.FeatureNetwork) || !slices.IsSorted(again.Info().Features) {
		t.Errorf("with its network on it says %v", again.Info().Features)
	}
	if err != nil || again.ID() != h.ID() {
		t.Errorf("a second start has id %v, %v, want %s", again, err, h.ID())
	}
}

func TestNewRefuses(t *testing.T) {
	cases := []struct {
		reason, config, id, want string
		change                   func(*Options)
	}{
		{"mistakes are told where they are", "cluster: {name: Rome}", "", "key config.yaml: cluster.name", nil},
		{"an id that is none must not be replaced silently: peers know the old one", full, "mine", `holds "mine", which is no id`, nil},
		{"who may not make the id says what to look at", full, "", "is pelago-manager running?", func(o *Options) { o.Leads, o.IDWait = false, time.Millisecond }},
		{"without randomness there is no id", full, "", "making an id", func(o *Options) { o.Random = iotest.ErrReader(errors.New("no entropy")) }},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			p := newPlace(t, c.config)
			if c.id != "" {
				p.write(t, v1alpha1.ClusterIDName, map[string]string{v1alpha1.ClusterIDKey: c.id})
			}
			if c.change != nil {
				c.change(&p.options)
			}
			if _, err := New(t.Context(), p.options); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// Several managers start at once: one id comes of it, and who may not make it waits.
func TestOneID(t *testing.T) {
	p := newPlace(t, full)
	ids := make([]string, 8)
	var group sync.WaitGroup
	for i := range ids {
		group.Go(func() {
			o := p.options
			o.Leads = i > 0
			h, err := New(t.Context(), o)
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = h.ID()
		})
	}
	group.Wait()
	for _, id := range ids {
		if id != ids[0] || id == "" {
			t.Fatalf("ids differ: %v", ids)
		}
	}
}

func TestAPIServer(t *testing.T) {
	p := newPlace(t, "cluster: {name: rome}")
	h, err := New(t.Context(), p.options)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := h.APIServer(); err == nil || !strings.Contains(err.Error(), "--api-server-url") {
		t.Errorf("without an address: %v, want the remedy", err)
	}
	h.takeConfig(t.Context(), "cluster: {name: rome}\napiServer: {url: 'https://a:6443', proxyURL: 'http://p:3128'}")
	url, ca, proxy, err := h.APIServer()
	if url != "https://a:6443" || ca != string(p.options.Config.CAData) || proxy != "http://p:3128" || err != nil {
		t.Errorf("got %s, %s, %v with %d bytes of ca, want the authority this program trusts", url, proxy, err, len(ca))
	}
	own := string(p.options.Config.CAData)
	other := certificates(t, 2)
	root := func(text string) {
		h.take(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: rootCAName}, Data: map[string]string{rootCAKey: text}})
	}
	for _, c := range []struct{ reason, text, want string }{
		{"that of the service accounts", other, other},
		{"without what is no certificate, and each once", "# a\n" + other + "# b\n" + own + other + "-----BEGIN X-----\nAAAA\n-----END X-----\nthe end", other + own},
		{"one without a certificate does not count", "authority", other + own},
		{"when it is gone, the one that this program trusts", "", own},
	} {
		root(c.text)
		_, ca, _, err := h.APIServer()
		if inside, err := h.RootCA(); ca != c.want || inside != ca || err != nil {
			t.Errorf("%s: told %s", c.reason, ca)
		}
		if err != nil {
			t.Errorf("%s: %v", c.reason, err)
		}
	}
	root(certificates(t, maxCALength/200))
	url, _, _, err = h.APIServer()
	if _, err2 := h.RootCA(); err == nil || err2 == nil || !strings.Contains(err.Error(), "set apiServer.ca") || url == "" {
		t.Errorf("more than peers take: %v, %v, want the remedy", err, err2)
	}
	h.takeConfig(t.Context(), "cluster: {name: rome}\napiServer: {url: 'https://a:6443', ca: "+strconv.Quote("# mine\n"+other+"the end")+"}")
	if _, ca, _, err := h.APIServer(); ca != other || err != nil {
		t.Errorf("told %s, %v, want what is set, as peers take it", ca, err)
	}
}

// certificates are so many in PEM.
func certificates(t *testing.T, n int) string {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	var all []byte
	for i := range n {
		template := &x509.Certificate{SerialNumber: big.NewInt(int64(i) + 1)}
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	return string(all)
}

// Settings follow their ConfigMap; a bad change does not count until it is mended.
func TestFollow(t *testing.T) {
	p := newPlace(t, "cluster: {name: rome}")
	registry := prometheus.NewPedanticRegistry()
	p.options.Metrics = registry
	h, err := New(t.Context(), p.options)
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan struct{}, 100)
	h.Subscribe(func() { told <- struct{}{} })
	mgr, err := ctrl.NewManager(p.options.Config, ctrl.Options{
		Scheme:  kubetest.Scheme(),
		Metrics: metricsserver.Options{BindAddress: "0"},
		Cache:   cache.Options{DefaultNamespaces: map[string]cache.Config{p.namespace: {}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Register(mgr); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()

	p.write(t, v1alpha1.ConfigName, map[string]string{ConfigKey: "cluster: {name: roma}"})
	within(t, "the new name", func() bool { return h.Info().Name == "roma" })
	select {
	case <-told:
	case <-time.After(waitLimit):
		t.Fatal("nobody was told")
	}
	p.write(t, v1alpha1.ConfigName, map[string]string{ConfigKey: "cluster: {name: ROMA}"})
	within(t, "the metric to say so", func() bool { return gauge(t, registry) == 0 })
	if h.Info().Name != "roma" {
		t.Errorf("a bad change made the name %q", h.Info().Name)
	}
	p.write(t, v1alpha1.ConfigName, map[string]string{ConfigKey: "cluster: {name: napoli}"})
	within(t, "the mended settings", func() bool { return h.Info().Name == "napoli" && gauge(t, registry) == 1 })
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: v1alpha1.ConfigName}}
	if err := p.client.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	within(t, "the metric after the settings were deleted", func() bool { return gauge(t, registry) == 0 })
	if h.Info().Name != "napoli" {
		t.Errorf("deleting the settings made the name %q", h.Info().Name)
	}
}

func gauge(t *testing.T, registry *prometheus.Registry) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil || len(families) != 1 {
		t.Fatalf("gathering: %v, %d families", err, len(families))
	}
	return families[0].GetMetric()[0].GetGauge().GetValue()
}
