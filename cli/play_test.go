package cli

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// stage is one API server with somebody who plays the controllers it lacks.
type stage struct {
	t      *testing.T
	c      client.WithWatch
	access Access
}

// newStage returns server i, with Pelago's kinds.
func newStage(t *testing.T, i int) *stage {
	t.Helper()
	config := servers.server(t, i)
	return &stage{t: t, c: (&kubetest.APIServer{Config: config}).Client(t), access: Access{Kubeconfig: servers.file[i]}}
}

// run runs the program against this stage.
func (s *stage) run(args ...string) result {
	connect := func(a Access) (*Cluster, error) {
		if a.Kubeconfig == "" {
			a = s.access
		}
		return Connect(a)
	}
	return programWith(s.t.Context(), func(e *Env) { e.Connect = connect }, args...)
}

// play runs a controller until the test ends; it is called again and again.
func (s *stage) play(step func(ctx context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				step(ctx)
			}
		}
	}()
	stop = func() { cancel(); <-done }
	s.t.Cleanup(stop)
	return stop
}

// kubernetes plays the controllers of Kubernetes itself: Deployments become ready, and
// namespaces that are being deleted go.
func (s *stage) kubernetes() func() {
	return s.play(func(ctx context.Context) {
		var deployments appsv1.DeploymentList
		s.c.List(ctx, &deployments)
		for i := range deployments.Items {
			d := &deployments.Items[i]
			before := d.DeepCopy()
			d.Status.ObservedGeneration = d.Generation
			n := *d.Spec.Replicas
			d.Status.Replicas, d.Status.UpdatedReplicas, d.Status.ReadyReplicas, d.Status.AvailableReplicas = n, n, n, n
			if before.Status.ObservedGeneration != d.Generation {
				s.c.Status().Patch(ctx, d, client.MergeFrom(before))
			}
		}
		var sets appsv1.DaemonSetList
		s.c.List(ctx, &sets)
		for i := range sets.Items {
			d := &sets.Items[i]
			before := d.DeepCopy()
			if d.Status.ObservedGeneration = d.Generation; before.Status.ObservedGeneration != d.Generation {
				s.c.Status().Patch(ctx, d, client.MergeFrom(before))
			}
		}
		s.namespaces(ctx)
	})
}

// namespaces plays the controller that empties namespaces.
func (s *stage) namespaces(ctx context.Context) {
	var all corev1.NamespaceList
	s.c.List(ctx, &all)
	for i := range all.Items {
		n := &all.Items[i]
		if n.DeletionTimestamp.IsZero() {
			continue
		}
		in := client.InNamespace(n.Name)
		for _, object := range []client.Object{&corev1.ConfigMap{}, &corev1.Secret{}, &corev1.Service{}, &corev1.ServiceAccount{}, &appsv1.Deployment{}, &appsv1.DaemonSet{}, &v1alpha1.ResourceRequest{}, &v1alpha1.ResourceOffer{}, &v1alpha1.NamespaceOffloading{}, &corev1.Pod{}} {
			s.c.DeleteAllOf(ctx, object, in)
		}
		n.Spec.Finalizers = nil
		s.c.SubResource("finalize").Update(ctx, n)
	}
}

// create makes objects that go with the test.
func (s *stage) create(objects ...client.Object) {
	s.t.Helper()
	for _, object := range objects {
		if err := s.c.Create(s.t.Context(), object); err != nil {
			s.t.Fatalf("creating %T %s: %v", object, object.GetName(), err)
		}
		s.t.Cleanup(func() { s.drop(object) })
	}
}

// drop removes an object whatever finalizers it has.
func (s *stage) drop(object client.Object) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	s.c.Delete(ctx, object, client.GracePeriodSeconds(0))
	if s.c.Get(ctx, client.ObjectKeyFromObject(object), object) == nil && len(object.GetFinalizers()) > 0 {
		object.SetFinalizers(nil)
		s.c.Update(ctx, object)
	}
}

// install puts what the programs of an installation have made into the stage, without
// the programs.
func (s *stage) install(name, id string) {
	s.t.Helper()
	ctx := s.t.Context()
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.SystemNamespace}}
	if err := s.c.Create(ctx, n); err != nil && !apierrors.IsAlreadyExists(err) {
		s.t.Fatal(err)
	}
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: name}
	}
	config := "cluster: {name: " + name + "}\napiServer: {url: 'https://" + name + ".example:6443'}\n"
	s.create(
		&corev1.ConfigMap{ObjectMeta: meta(v1alpha1.ConfigName), Data: map[string]string{"config.yaml": config}},
		&corev1.ConfigMap{ObjectMeta: meta(v1alpha1.ClusterIDName), Data: map[string]string{"id": id}},
		&corev1.Secret{ObjectMeta: meta(v1alpha1.AuthTLSName), Data: map[string][]byte{"ca.crt": authority(s.t)}},
		&corev1.Service{ObjectMeta: meta(v1alpha1.AuthService), Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 8443}}, Selector: map[string]string{"a": "b"}}},
	)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name + "-node"}}
	s.create(node)
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.7"}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if err := s.c.Status().Update(ctx, node); err != nil {
		s.t.Fatal(err)
	}
}

// conditions sets conditions of an object's current generation.
func conditions(list *[]metav1.Condition, generation int64, all ...metav1.Condition) {
	*list = nil
	for _, c := range all {
		c.ObservedGeneration, c.LastTransitionTime = generation, metav1.Now()
		*list = append(*list, c)
	}
}

func is(kind string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "Ready"}
}

func isNot(kind, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message}
}

// well is all that a consumer's Peering says when it works.
func well() []metav1.Condition {
	return []metav1.Condition{is(v1alpha1.ConditionIdentityReady), is(v1alpha1.ConditionReachable), is(v1alpha1.ConditionCompatible),
		is(v1alpha1.ConditionResourcesAccepted), is(v1alpha1.ConditionReady)}
}

// manager plays pelago-manager: every Peering gets these conditions, and one that is being
// deleted goes.
func (s *stage) manager(answer func(p *v1alpha1.Peering) []metav1.Condition) func() {
	return s.play(func(ctx context.Context) {
		var list v1alpha1.PeeringList
		s.c.List(ctx, &list)
		for i := range list.Items {
			p := &list.Items[i]
			if !p.DeletionTimestamp.IsZero() {
				if len(p.Finalizers) > 0 && answer(p) != nil {
					p.Finalizers = nil
					s.c.Update(ctx, p)
				}
				continue
			}
			if len(p.Finalizers) == 0 {
				p.Finalizers = []string{v1alpha1.FinalizerConsume}
				s.c.Update(ctx, p)
				continue
			}
			if all := answer(p); all != nil && (len(p.Status.Conditions) == 0 || p.Status.ObservedGeneration != p.Generation) {
				conditions(&p.Status.Conditions, p.Generation, all...)
				p.Status.ObservedGeneration = p.Generation
				s.c.Status().Update(ctx, p)
			}
		}
	})
}

// authority makes a certificate authority in PEM.
func authority(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "pelago-auth"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// secrets lists Secrets in Pelago's namespace that hold a token.
func (s *stage) tokens() []string {
	s.t.Helper()
	var list corev1.SecretList
	if err := s.c.List(s.t.Context(), &list, client.InNamespace(v1alpha1.SystemNamespace)); err != nil {
		s.t.Fatal(err)
	}
	var names []string
	for _, secret := range list.Items {
		if bytes.Contains(secret.Data["token"], []byte("_TOKEN_")) || strings.HasPrefix(secret.Name, "invitation-") {
			names = append(names, secret.Name)
		}
	}
	return names
}

func (s *stage) peering(name string) *v1alpha1.Peering {
	s.t.Helper()
	var p v1alpha1.Peering
	err := s.c.Get(s.t.Context(), client.ObjectKey{Name: name}, &p)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		s.t.Fatal(err)
	}
	return &p
}

func newConfigMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: name}}
}

func newSecret(name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: name}}
}

func newNamespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// blackhole is a kubeconfig of a server that accepts connections and never answers.
func blackhole(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	text := "apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{name: x, context: {cluster: x}}]\nclusters: [{name: x, cluster: {server: 'https://" +
		listener.Addr().String() + "', insecure-skip-tls-verify: true}}]\n"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// until waits for something that others do.
func (s *stage) until(so func() bool, complaint string) {
	s.t.Helper()
	deadline := time.After(limit)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-deadline:
			s.t.Fatal(complaint)
		case <-tick.C:
		}
	}
}
