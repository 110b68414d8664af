package kubetest

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// rackRange is where the replicas of a rack have their addresses: of those set aside for
// testing networks (RFC 2544) a part that no sandbox uses, all of which a route makes this
// machine's own. Addresses of loopback would need no route, and are refused in
// EndpointSlices; those set aside for examples may be real ones of somebody's laboratory.
const rackRange = "198.19.254.0/24"

const (
	rackParallel = 4 // clusters that are prepared at once
	rackLimit    = 10 * time.Minute
	tokenLife    = 24 * time.Hour
	managerName  = "pelago-manager"
	authName     = "pelago-auth"
)

// RackOptions says what stands in a rack.
type RackOptions struct {
	// Consumer and Providers are clusters of the sandbox.
	Consumer  string
	Providers []string
	// Replicas of the consumer's manager; 1 if zero. Providers have one.
	Replicas int
	// Labels of clusters, as KEY=VALUE, that travel with their offers.
	Labels map[string][]string
}

// Rack is Pelago in clusters that are control planes on loopback. No container runs
// there, so its programs are processes of this machine. The rest is as everywhere: the
// command line installs it, the programs have the tokens of the accounts that the chart
// makes and no other rights, and API servers find them by the Service.
type Rack struct {
	*Continuum
	options RackOptions
	folder  string

	announcing sync.Mutex // held by who writes an EndpointSlice

	mu       sync.Mutex
	closing  bool
	replicas []*Replica
}

// NewRack installs Pelago in clusters of a sandbox that runs, starts its programs, and
// ends them with the test.
func NewRack(t testing.TB, s *SandboxHandle, o RackOptions) *Rack {
	t.Helper()
	o.Replicas = max(o.Replicas, 1)
	clusters := append([]string{o.Consumer}, o.Providers...)
	r := &Rack{Continuum: NewContinuum(t, s, clusters...), options: o, folder: t.TempDir()}
	takeRange(t)
	t.Cleanup(func() { r.end(t) })
	r.together(t, "installing", clusters, func(ctx context.Context, cluster string) error {
		auth := r.place(cluster, authName)
		if err := r.install(ctx, t, cluster, auth.Address); err != nil {
			return err
		}
		if cluster != r.options.Consumer {
			if err := r.start(ctx, r.place(cluster, managerName)); err != nil {
				return err
			}
			return r.start(ctx, auth) // after the manager, which makes the cluster's id
		}
		for range o.Replicas { // of strangers it knows none, so nobody needs its endpoint for them
			if err := r.start(ctx, r.place(cluster, managerName)); err != nil {
				return err
			}
		}
		return nil
	})
	return r
}

// Providers are the clusters that the consumer is peered with.
func (r *Rack) Providers() []string { return r.options.Providers }

// takeRange makes this machine answer to the addresses of the range, and no longer when
// the test ends or its process does.
func takeRange(t testing.TB) {
	t.Helper()
	if out, err := exec.Command("ip", "route", "add", "local", rackRange, "dev", "lo").CombinedOutput(); err != nil {
		t.Fatalf("taking the addresses %s, which another test may have: %v\n%s", rackRange, err, out)
	}
	cmd := exec.Command("/bin/sh", "-c", "read -r answer; exec ip route del local "+rackRange+" dev lo")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipe, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatalf("guarding the addresses %s: %v", rackRange, err)
	}
	t.Cleanup(func() { guard{pipe: pipe, wait: cmd.Wait}.release(true) })
}

// together does something in clusters, a few at a time.
func (r *Rack) together(t testing.TB, doing string, clusters []string, do func(ctx context.Context, cluster string) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), rackLimit)
	defer cancel()
	begin := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(rackParallel)
	for _, cluster := range clusters {
		group.Go(func() error {
			if err := do(ctx, cluster); err != nil {
				return fmt.Errorf("%s: %w", cluster, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatalf("%s: %v", doing, err)
	}
	t.Logf("%s took %s in %d clusters", doing, time.Since(begin).Round(100*time.Millisecond), len(clusters))
}

// install applies the chart. Its Deployments stay empty, and there are no agents: hollow
// nodes would run their pods in name.
func (r *Rack) install(ctx context.Context, t testing.TB, cluster, auth string) error {
	args := []string{
		"install", "--cluster-name", cluster, "--api-server-url", r.Configs[cluster].Host, "--auth-service-type", "ClusterIP",
		"--set", "manager.replicas=0", "--set", "auth.replicas=0", "--set", "network.enabled=false", "--set", "config.auth.url=https://" + auth + ":9443",
	}
	for _, label := range r.options.Labels[cluster] {
		args = append(args, "--labels", label)
	}
	if done := r.TryPelago(t, cluster, args...); done.Code != 0 {
		return fmt.Errorf("pelago install ended with %d\n%s%s", done.Code, done.Out, done.Errs)
	}
	for _, account := range []string{managerName, authName} {
		if err := r.account(ctx, cluster, account); err != nil {
			return err
		}
	}
	return nil
}

// kubeconfig is the file with the rights of a service account.
func (r *Rack) kubeconfig(cluster, account string) string {
	return filepath.Join(r.folder, cluster+"-"+account+".kubeconfig")
}

// account writes a kubeconfig with a token of a service account of Pelago's.
func (r *Rack) account(ctx context.Context, cluster, name string) error {
	return WriteAccount(ctx, r.Clients[cluster], r.Configs[cluster], name, r.kubeconfig(cluster, name))
}

// WriteAccount writes a kubeconfig with a token of a service account of Pelago's, for a program that runs as a
// process: what policies leave to it alone nobody else may do, an administrator neither.
func WriteAccount(ctx context.Context, c client.Client, server *rest.Config, name, file string) error {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: name}}
	life := int64(tokenLife.Seconds())
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &life}}
	if err := c.SubResource("token").Create(ctx, account, token); err != nil {
		return fmt.Errorf("asking for a token of %s: %w", name, err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["here"] = &clientcmdapi.Cluster{Server: server.Host, CertificateAuthorityData: server.CAData}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts["here"] = &clientcmdapi.Context{Cluster: "here", AuthInfo: name}
	config.CurrentContext = "here"
	return clientcmd.WriteToFile(*config, file)
}

// Start starts one more replica of a cluster's manager, as its Deployment would for one
// that is gone, and waits until it is ready.
func (r *Rack) Start(t testing.TB, cluster string) *Replica {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), replicaLimit)
	defer cancel()
	replica := r.place(cluster, managerName)
	if err := r.start(ctx, replica); err != nil {
		t.Fatal(err)
	}
	return replica
}

func (r *Rack) start(ctx context.Context, replica *Replica) error {
	if err := r.run(ctx, replica); err != nil {
		return err
	}
	return r.announce(ctx, replica.Cluster)
}

// Replicas are the processes of a cluster's manager that run.
func (r *Rack) Replicas(cluster string) []*Replica {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []*Replica
	for _, each := range r.replicas {
		if each.Cluster == cluster && each.program == managerName && each.ready.Load() && !each.over() {
			found = append(found, each)
		}
	}
	return found
}

// announce says behind the manager's Service which replicas run, as long as the rack
// stands.
func (r *Rack) announce(ctx context.Context, cluster string) error {
	r.announcing.Lock()
	defer r.announcing.Unlock()
	r.mu.Lock()
	closing := r.closing
	r.mu.Unlock()
	if closing {
		return nil
	}
	port, name := int32(apiPort), "api"
	slice := &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: managerName + "-rack", Labels: map[string]string{
			discoveryv1.LabelServiceName: managerName, discoveryv1.LabelManagedBy: "rack",
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
	}
	for _, each := range r.Replicas(cluster) {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{each.Address}})
	}
	before := &discoveryv1.EndpointSlice{}
	err := r.Clients[cluster].Get(ctx, client.ObjectKeyFromObject(slice), before)
	switch {
	case client.IgnoreNotFound(err) != nil:
	case err != nil:
		err = r.Clients[cluster].Create(ctx, slice)
	default:
		err = r.Clients[cluster].Update(ctx, slice)
	}
	if err != nil {
		return fmt.Errorf("saying where %s of %s listens: %w", managerName, cluster, err)
	}
	return nil
}

// Peer makes the consumer a consumer of all providers by invitations, and waits until
// their virtual nodes are Ready.
func (r *Rack) Peer(t testing.TB) {
	t.Helper()
	r.together(t, "peering", r.options.Providers, func(ctx context.Context, provider string) error {
		invitation := r.TryPelago(t, provider, "generate", "peer-command")
		if invitation.Code != 0 {
			return fmt.Errorf("pelago generate peer-command ended with %d\n%s", invitation.Code, invitation.Errs)
		}
		if done := r.Shell(t, r.options.Consumer, invitation.Out); done.Code != 0 {
			return fmt.Errorf("pelago peer ended with %d\n%s%s", done.Code, done.Out, done.Errs)
		}
		return r.until(ctx, func() error { return errors.Join(r.notReady(ctx, provider)...) })
	})
}

// NotReady says which virtual nodes of the consumer are not Ready.
func (r *Rack) NotReady(t testing.TB) []error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	return r.notReady(ctx, r.options.Providers...)
}

func (r *Rack) notReady(ctx context.Context, names ...string) (problems []error) {
	for _, name := range names {
		node := &corev1.Node{}
		if err := r.Clients[r.options.Consumer].Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
			problems = append(problems, err)
			continue
		}
		ready := corev1.NodeCondition{Reason: "absent"}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady {
				ready = c
			}
		}
		if ready.Status != corev1.ConditionTrue {
			problems = append(problems, fmt.Errorf("node %s: Ready is %q since %s: %s, %s", name, ready.Status, ready.LastTransitionTime.UTC().Format(time.TimeOnly), ready.Reason, ready.Message))
		}
	}
	return problems
}

// until waits for a condition.
func (r *Rack) until(ctx context.Context, so func() error) error {
	for {
		err := so()
		if err == nil {
			return nil
		}
		if pause(ctx) != nil {
			return err
		}
	}
}

// end ends all processes, and shows what they wrote last if the test has failed.
func (r *Rack) end(t testing.TB) {
	r.mu.Lock()
	r.closing = true
	all := r.replicas
	r.mu.Unlock()
	for _, each := range all {
		if each.over() && !each.asked.Load() {
			t.Errorf("%s of %s ended by itself: %v\n%s", each.Name, each.Cluster, each.err, tail(each.log, 40))
		}
	}
	for _, each := range all {
		each.signal(syscall.SIGTERM)
	}
	for _, each := range all {
		if err := each.wait(); err != nil {
			t.Error(err)
			each.signal(syscall.SIGKILL)
		}
		if t.Failed() && each.cmd != nil && each.Cluster == r.options.Consumer {
			t.Logf("%s of %s:\n%s", each.Name, each.Cluster, tail(each.log, 60))
		}
	}
}
