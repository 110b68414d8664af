package agent

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
	"github.com/pelago-dev/pelago/network/tunnel"
)

// TestLease holds, at a real API server, that a Lease is made for a node that there is, says what a
// thousand tunnels are like, and is renewed whatever it cannot say.
func TestLease(t *testing.T) {
	server := kubetest.Server(t)
	c := server.Client(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: server.Name(t, "node")}}
	if err := c.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Delete(context.Background(), node) })
	own, err := NewClient(server.Config)
	if err != nil {
		t.Fatal(err)
	}
	l := lease{client: own, namespace: server.Namespace(t), node: node.Name, log: logr.Discard()}
	at := time.Now().Truncate(time.Second)
	write := func(reason string, want outcome, tunnels, networks string) *coordinationv1.Lease {
		t.Helper()
		at = at.Add(time.Second)
		got, err := l.write(t.Context(), content{holder: node.Name, term: gatewayTerm, now: at, tunnels: &tunnels, networks: &networks})
		if err != nil || got != want {
			t.Fatalf("%s: %+v, %v", reason, got, err)
		}
		o := &coordinationv1.Lease{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: l.namespace, Name: node.Name}, o); err != nil {
			t.Fatal(err)
		}
		if !o.Spec.RenewTime.Time.Equal(at) || *o.Spec.HolderIdentity != node.Name {
			t.Errorf("%s: it was renewed at %v by %s, want %v", reason, o.Spec.RenewTime, *o.Spec.HolderIdentity, at)
		}
		return o
	}
	if o := write("the first", outcome{made: true}, "x", "10.0.0.0/8"); len(o.OwnerReferences) != 1 || o.OwnerReferences[0].UID != node.UID {
		t.Errorf("it belongs to %+v", o.OwnerReferences)
	}
	reports := map[string]v1alpha1.TunnelReport{}
	for i := range 1000 {
		key := tunnel.PublicKey{byte(i), byte(i >> 8)}.String()
		reports["tenant-"+key[:40]] = v1alpha1.TunnelReport{Peer: key, Knows: key, Since: stamp(at), Problem: strings.Repeat("x", maxProblem)}
	}
	all := reportsText(reports)
	if o := write("a thousand tunnels", outcome{}, all, "10.0.0.0/8"); o.Annotations[v1alpha1.AnnotationTunnels] != all || o.Annotations[v1alpha1.AnnotationNetworks] != "10.0.0.0/8" {
		t.Errorf("it says %d bytes", len(o.Annotations[v1alpha1.AnnotationTunnels]))
	}
	for reason, size := range map[string]int{"more than annotations hold": 300 << 10, "more than a request holds": 4 << 20} {
		o := write(reason, outcome{refused: true}, strings.Repeat("x", size), "172.16.0.0/12")
		if o.Annotations[v1alpha1.AnnotationTunnels] != all || o.Annotations[v1alpha1.AnnotationNetworks] != "10.0.0.0/8" {
			t.Errorf("%s: it says something else than before", reason)
		}
	}
	if o := write("it can be said again", outcome{}, "", "172.16.0.0/12"); o.Annotations[v1alpha1.AnnotationTunnels] != "" || o.Annotations[v1alpha1.AnnotationNetworks] != "172.16.0.0/12" {
		t.Errorf("it says %v", o.Annotations)
	}
}
