package test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// TestPeeringAll has what takes long: a credential renewed for real, the oldest
// supported Kubernetes on either side with pods that it runs there, and twenty consumers at once.
func TestPeeringAll(t *testing.T) {
	s := kubetest.Sandbox(t, kubetest.Options{Name: "peerall", Pelago: true, File: sandboxFile(t, `clusters:
- name: old
  version: v1.34.4
  nodes: 1
  addons: [coredns, load-balancer]
- name: milan
  nodes: 1
  addons: [coredns, load-balancer]
`)})
	c := newContinuum(t, s, "old", "milan")
	box(t, s, "old", "milan")
	t.Run("OldConsumer", func(t *testing.T) {
		c.peer(t, "old", "milan")
		c.nodeReady(t, "old", "milan")
		c.spread(t, "old", "milan")
	})
	t.Run("OldProvider", func(t *testing.T) {
		c.peer(t, "milan", "old")
		c.nodeReady(t, "milan", "old")
		c.spread(t, "milan", "old").refused(t, "old")
	})
	t.Run("Deleted", func(t *testing.T) { deletedAtEveryStep(t, c, "old", "milan", 1) })
	t.Run("Renewal", func(t *testing.T) { renewal(t, c) })
	t.Run("Twenty", func(t *testing.T) { twenty(t, c) })
}

// noticed has the kubelets look at what Pelago's pods mount, which they do at once when a pod
// changes, and within a minute or two otherwise.
func (c *continuum) noticed(t *testing.T, cluster, version string) {
	t.Helper()
	pods := &corev1.PodList{}
	if err := c.Clients[cluster].List(context.Background(), pods, client.InNamespace(v1alpha1.SystemNamespace)); err != nil {
		t.Fatal(err)
	}
	look := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"test.pelago.dev/settings":%q}}}`, version))
	for _, pod := range pods.Items {
		if err := c.Clients[cluster].Patch(context.Background(), &pod, look); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
	}
}

// settings changes the settings of a cluster while Pelago runs, and puts them back.
func (c *continuum) settings(t *testing.T, cluster string, change func(map[string]any)) {
	t.Helper()
	key := client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: v1alpha1.ConfigName}
	write := func(text string) {
		t.Helper()
		config := &corev1.ConfigMap{}
		if err := c.Clients[cluster].Get(context.Background(), key, config); err != nil {
			t.Fatal(err)
		}
		config.Data["config.yaml"] = text
		if err := c.Clients[cluster].Update(context.Background(), config); err != nil {
			t.Fatal(err)
		}
		c.noticed(t, cluster, config.ResourceVersion)
	}
	config := &corev1.ConfigMap{}
	if err := c.Clients[cluster].Get(t.Context(), key, config); err != nil {
		t.Fatal(err)
	}
	before := config.Data["config.yaml"]
	var values map[string]any
	if err := yaml.Unmarshal([]byte(before), &values); err != nil {
		t.Fatal(err)
	}
	change(values)
	after, err := yaml.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	write(string(after))
	t.Cleanup(func() { write(before) })
}

// renewal holds that a credential of the shortest life is replaced at two thirds of
// it, with calls going on that never fail, and a peering that stays Ready.
func renewal(t *testing.T, c *continuum) {
	c.shortLived(t, "milan")
	c.peer(t, "old", "milan")
	c.renewed(t, "old", "milan", c.firstCredential(t, "old", "milan"))
}

// shortLived has a provider give credentials of the shortest life until the test ends.
func (c *continuum) shortLived(t *testing.T, provider string) {
	t.Helper()
	c.settings(t, provider, func(values map[string]any) { values["identity"] = map[string]any{"lifetime": "10m"} })
}

// firstCredential is what a consumer says of the credential that it has got, of the shortest life.
func (c *continuum) firstCredential(t *testing.T, consumer, provider string) *v1alpha1.CredentialStatus {
	t.Helper()
	peering, err := get[v1alpha1.Peering](c, consumer, "", provider)
	if err != nil {
		t.Fatal(err)
	}
	first := peering.Status.Credential
	if first == nil || first.NotAfter.Sub(first.NotBefore.Time) > 16*time.Minute {
		t.Fatalf("the credential lives %+v, want 10 minutes", first)
	}
	return first
}

// renewed waits until a consumer has another credential than the first one, which calls with what
// it holds do not notice.
func (c *continuum) renewed(t *testing.T, consumer, provider string, first *v1alpha1.CredentialStatus) {
	t.Helper()
	calls := 0
	eventually(t, time.Until(first.NotAfter.Time), "the credential has been renewed", func() error {
		peer, err := client.New(c.consumerConfig(t, consumer, provider), client.Options{Scheme: kubetest.Scheme()})
		if err != nil {
			t.Fatal(err)
		}
		if err := peer.List(t.Context(), &v1alpha1.ResourceOfferList{}, client.InNamespace(v1alpha1.TenantNamespace(consumer))); err != nil {
			t.Errorf("call %d with what the consumer holds: %v", calls, err)
		}
		calls++
		peering, err := get[v1alpha1.Peering](c, consumer, "", provider)
		if err != nil {
			t.Fatal(err)
		}
		if got := condition(peering.Status.Conditions, v1alpha1.ConditionReady); !strings.HasPrefix(got, "Ready=True") {
			t.Errorf("call %d: %s", calls, got)
		}
		if !peering.Status.Credential.NotBefore.After(first.NotBefore.Time) {
			return fmt.Errorf("it is still the first one, to be renewed after %s", first.RenewAfter)
		}
		return nil
	})
	t.Logf("renewed %s after it began, %d calls", time.Since(first.NotBefore.Time).Round(time.Second), calls)
	if early := time.Until(first.RenewAfter.Time); early > time.Second {
		t.Errorf("renewed %s before two thirds of its life", early)
	}
}

// twenty lets twenty consumers peer with one provider at the same time: bare API
// servers with a manager each, which is all a consumer needs to peer.
func twenty(t *testing.T, c *continuum) {
	const consumers = 20
	names := make([]string, consumers)
	files := make([]string, consumers)
	broken := make([]atomic.Bool, consumers)
	var starting sync.WaitGroup
	slots := make(chan struct{}, 4)
	for i := range consumers {
		names[i] = fmt.Sprintf("edge-%02d", i)
		starting.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			files[i] = bareConsumer(t, c, names[i], fmt.Sprintf("127.0.2.%d", i+1), broken[i].Load)
		})
	}
	starting.Wait()
	if t.Failed() {
		t.FailNow()
	}
	// Starting so many may keep the provider from answering, and its node from saying that it is there.
	eventually(t, 2*patience, "the provider has a node that is ready", func() error {
		var nodes corev1.NodeList
		if err := c.Clients["milan"].List(t.Context(), &nodes); err != nil {
			return err
		}
		for i := range nodes.Items {
			if !strings.HasPrefix(nodeReadiness(&nodes.Items[i]), "True") {
				return fmt.Errorf("%s: Ready is %s", nodes.Items[i].Name, nodeReadiness(&nodes.Items[i]))
			}
		}
		return nil
	})
	lines := make([]string, consumers)
	for i := range consumers {
		lines[i] = c.Invite(t, "milan")
	}
	begin := time.Now()
	took := make([]time.Duration, consumers)
	var peering sync.WaitGroup
	for i := range consumers {
		peering.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, "/bin/sh", "-c", lines[i])
			cmd.Env = append(os.Environ(), "KUBECONFIG="+files[i], "PATH="+filepath.Dir(kubetest.Program(t))+":"+os.Getenv("PATH"))
			out, err := cmd.CombinedOutput()
			took[i] = time.Since(begin)
			if err != nil {
				broken[i].Store(true)
				why := exec.Command(filepath.Join(filepath.Dir(kubetest.Program(t)), "pelago"), "explain", "peering", "milan")
				why.Env = cmd.Env
				said, _ := why.CombinedOutput()
				t.Errorf("%s: %v\n%s\n%s", names[i], err, out, said)
			}
		})
	}
	peering.Wait()
	slices.Sort(took)
	t.Logf("20 at once: first after %s, half after %s, last after %s", took[0].Round(time.Millisecond), took[consumers/2].Round(time.Millisecond), took[consumers-1].Round(time.Millisecond))
	var tenants v1alpha1.TenantList
	if err := c.Clients["milan"].List(t.Context(), &tenants); err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for _, tenant := range tenants.Items {
		if !strings.HasPrefix(condition(tenant.Status.Conditions, v1alpha1.ConditionReady), "Ready=True") {
			t.Errorf("tenant %s: %s", tenant.Name, condition(tenant.Status.Conditions, v1alpha1.ConditionReady))
		}
		ids[tenant.Spec.ClusterID] = true
	}
	if len(tenants.Items) != consumers || len(ids) != consumers {
		t.Errorf("%d tenants of %d clusters, want %d", len(tenants.Items), len(ids), consumers)
	}
	for i, name := range names {
		if r := c.TryPelago(t, "milan", "unpeer", name); r.Code != 0 {
			broken[i].Store(true)
			t.Errorf("unpeer %s: exit %d\n%s%s", name, r.Code, r.Out, r.Errs)
		}
	}
}

// bareConsumer starts an API server on loopback with Pelago's objects in it, and a
// manager beside it as a process of this machine, at a loopback address of its own. It returns an administrator's
// kubeconfig. Both end with the test, which shows what the manager said if it is broken.
func bareConsumer(t *testing.T, c *continuum, name, address string, broken func() bool) string {
	dir := filepath.Join(t.TempDir(), name)
	server := exec.Command(kubetest.Program(t), "apiserver", "--dir", dir, "--watch-pid", fmt.Sprint(os.Getpid()))
	var ready struct{ Kubeconfig string }
	out, err := server.StdoutPipe()
	if err == nil {
		err = server.Start()
	}
	if err != nil {
		t.Errorf("starting the API server of %s: %v", name, err)
		return ""
	}
	t.Cleanup(func() { end(server) })
	if err := json.NewDecoder(out).Decode(&ready); err != nil {
		t.Errorf("the API server of %s does not get ready: %v", name, err)
		return ""
	}
	environment := append(os.Environ(), "KUBECONFIG="+ready.Kubeconfig)
	render := exec.Command(filepath.Join(filepath.Dir(kubetest.Program(t)), "pelago"),
		"install", "--dry-run", "--cluster-name", name, "--api-server-url", "https://"+name+".example.org:6443")
	render.Env = environment
	manifests, err := render.Output()
	if err != nil {
		t.Errorf("rendering what %s needs: %v", name, err)
		return ""
	}
	account := filepath.Join(t.TempDir(), name+".kubeconfig")
	if err := applyAll(t.Context(), ready.Kubeconfig, string(manifests), account); err != nil {
		t.Errorf("installing in %s: %v", name, err)
		return ""
	}
	log, err := os.Create(filepath.Join(t.TempDir(), name+".log"))
	if err != nil {
		t.Error(err)
		return ""
	}
	manager := exec.Command(filepath.Join(filepath.Dir(kubetest.Program(t)), "pelago-manager"), "--metrics-address", address+":0", "--api-address", address+":9443")
	manager.Env = append(os.Environ(), "KUBECONFIG="+account)
	manager.Stdout, manager.Stderr = log, log
	if err := manager.Start(); err != nil {
		t.Errorf("starting the manager of %s: %v", name, err)
		return ""
	}
	t.Cleanup(func() {
		end(manager)
		if text, err := os.ReadFile(log.Name()); err == nil && broken() {
			var wrong []string
			for line := range strings.Lines(string(text)) {
				if strings.Contains(line, `"level":"ERROR"`) {
					wrong = append(wrong, line)
				}
			}
			t.Logf("%d errors of the manager of %s, the last ones:\n%s", len(wrong), name, strings.Join(wrong[max(0, len(wrong)-5):], ""))
		}
		log.Close()
	})
	return ready.Kubeconfig
}

// end stops a process as one would by hand, and kills it when that does not help. Twenty
// API servers that stop at once take their time; what is killed leaves its children.
func end(cmd *exec.Cmd) {
	cmd.Process.Signal(syscall.SIGTERM)
	ended := make(chan struct{})
	go func() {
		cmd.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(2 * time.Minute):
		cmd.Process.Kill()
		<-ended
	}
}

// applyAll applies objects to a server; kinds that objects define are waited for. What the manager has to be to
// the server is written to a file.
func applyAll(ctx context.Context, kubeconfig, manifests, account string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	c, err := client.New(config, client.Options{Scheme: kubetest.Scheme()})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for document := range strings.SplitSeq(manifests, "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			return err
		}
		if len(object.Object) == 0 {
			continue
		}
		for {
			err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("scenario"), client.ForceOwnership)
			if err == nil {
				break
			}
			if !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) || ctx.Err() != nil {
				return fmt.Errorf("applying %s %s: %w", object.GetKind(), object.GetName(), err)
			}
			<-time.After(200 * time.Millisecond) // the kind was defined a moment ago
		}
	}
	if err := rest.LoadTLSFiles(config); err != nil {
		return err
	}
	return kubetest.WriteAccount(ctx, c, config, "pelago-manager", account)
}
