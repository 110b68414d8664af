package stats

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// fleet is kubelets of which some hang.
type fleet struct {
	*kubelets
	clock *testingclock.FakePassiveClock
	asked atomic.Int64

	mu      sync.Mutex
	answers map[string]string // by the node's address; the others hang
}

func newFleet(t *testing.T, within limits) *fleet {
	t.Helper()
	f := &fleet{clock: testingclock.NewFakePassiveClock(time.Now()), answers: map[string]string{}}
	k, err := newKubelets(Options{Clock: f.clock, Logger: logr.Discard(), Config: &rest.Config{}})
	if err != nil {
		t.Fatal(err)
	}
	f.kubelets, k.limits = k, within
	k.token, k.aged = "narrow", f.clock.Now().Add(time.Hour)
	cert, key := certificate(t, &x509.Certificate{Subject: pkix.Name{CommonName: "n"}}, nil, nil)
	address := kubelet(t, cert, key, func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		fmt.Fprint(w, f.answers[r.Host])
	})
	t.Cleanup(k.client.CloseIdleConnections)
	k.dial = func(ctx context.Context, network, at string) (net.Conn, error) {
		f.asked.Add(1)
		f.mu.Lock()
		_, answers := f.answers[at]
		f.mu.Unlock()
		if !answers {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	return f
}

// node makes one; it answers with a pod of that uid, or hangs if there is none.
func (f *fleet) node(number int, uid string) *corev1.Node {
	ip := fmt.Sprintf("192.0.2.%d", number)
	if uid != "" {
		f.mu.Lock()
		f.answers[ip+":10250"] = fmt.Sprintf(`{"pods":[{"podRef":{"uid":%q},"containers":[]}]}`, uid)
		f.mu.Unlock()
	}
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", number)}, Status: corev1.NodeStatus{
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}},
	}}
}

// Of a hundred dead nodes and a good one, the good one's figures come when the time is over
// at the latest, wherever it stands; the dead ones are waited for once, and asked again
// beside the lists until they answer.
func TestDeadNodes(t *testing.T) {
	const each, bound = 2 * time.Second, 3 * time.Second
	f := newFleet(t, limits{node: each, read: bound})
	var nodes []*corev1.Node
	for i := range 100 {
		nodes = append(nodes, f.node(i+1, ""))
	}
	nodes = append(nodes, f.node(101, "u"))
	read := func() (figures, time.Duration) {
		began := time.Now()
		return f.read(t.Context(), nodes), time.Since(began)
	}
	got, took := read()
	if _, good := got["n101"]["u"]; !good || len(got) != 1 || took > bound+each {
		t.Fatalf("got %v after %v", got, took)
	}
	asked := f.asked.Load()
	f.clock.SetTime(f.clock.Now().Add(failedFor - time.Second))
	if got, took := read(); len(got) != 1 || took >= each || f.asked.Load() != asked {
		t.Errorf("a second later got %v after %v, %d asked again", got, took, f.asked.Load()-asked)
	}
	f.clock.SetTime(f.clock.Now().Add(time.Second))
	f.node(1, "back")
	got, took = read()
	if _, good := got["n101"]["u"]; !good || took >= each {
		t.Errorf("got %v after %v: dead nodes are waited for again", got, took)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); ; <-tick.C {
		if got, _ := read(); len(got) == 2 {
			break
		}
		if time.Since(began) > 30*time.Second {
			t.Fatal("a node that is back is not read again")
		}
	}
	f.clock.SetTime(f.clock.Now().Add(failedFor + recallFor))
	if f.forget(); len(f.kept) != 0 {
		t.Errorf("%d nodes are remembered for ever", len(f.kept))
	}
}

// Where more nodes hang than are asked at once, a read ends in time nevertheless.
func TestReadEnds(t *testing.T) {
	const bound = 200 * time.Millisecond
	f := newFleet(t, limits{node: 20 * time.Second, read: bound})
	var nodes []*corev1.Node
	for i := range nodesAtOnce + 10 {
		nodes = append(nodes, f.node(i+1, ""))
	}
	began := time.Now()
	if got := f.read(t.Context(), append([]*corev1.Node{f.node(0, "u")}, nodes...)); len(got) != 1 || time.Since(began) > bound+5*time.Second {
		t.Errorf("got %v after %v", got, time.Since(began))
	}
}

// A node that names a pod of another one is not believed, whoever answers last.
func TestPodsOfOthers(t *testing.T) {
	f := newFleet(t, limits{nodeLimit, readLimit})
	honest, liar := f.node(1, "victim"), f.node(2, "victim")
	f.answers["192.0.2.2:10250"] = `{"pods":[{"podRef":{"uid":"victim"},"containers":[{"name":"lie"}]},{"podRef":{"uid":"own"},"containers":[]}]}`
	pod := func(uid, node string) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Name: uid}, Spec: corev1.PodSpec{NodeName: node}}
	}
	nodes := fake.NewClientBuilder().WithObjects(honest, liar).Build()
	h := &handler{kubelets: f, options: Options{Reader: nodes}}
	for range 20 {
		f.kept = map[string]seen{}
		got, err := h.usage(t.Context(), []corev1.Pod{pod("victim", "n1"), pod("own", "n2")})
		if err != nil || len(got) != 2 || got[0].Metadata.Name != "victim" || len(got[0].Containers) != 0 {
			t.Fatalf("got %+v, %v", got, err)
		}
	}
	if got, err := h.usage(t.Context(), []corev1.Pod{pod("victim", "n3"), pod("own", "n2")}); err != nil || len(got) != 1 {
		t.Errorf("of a pod of a node that says nothing: %+v, %v", got, err)
	}
}
