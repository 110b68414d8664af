package stats

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
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
	const each, bound = 8 * time.Second, 10 * time.Second
	f := newFleet(t, limits{node: each, answer: each / 2, read: bound})
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
	if f.read(t.Context(), nil); len(f.kept) != 0 {
		t.Errorf("%d nodes are remembered for ever", len(f.kept))
	}
}

// Where more nodes hang than are asked at once, a read ends in time nevertheless, with what the
// others said lately.
func TestReadEnds(t *testing.T) {
	const bound = 200 * time.Millisecond
	f := newFleet(t, limits{node: 20 * time.Second, answer: 20 * time.Second, read: time.Minute})
	var nodes []*corev1.Node
	for i := range nodesAtOnce + 10 {
		nodes = append(nodes, f.node(i+1, ""))
	}
	good := f.node(0, "u")
	if got := f.read(t.Context(), []*corev1.Node{good}); len(got) != 1 {
		t.Fatalf("alone: got %v", got)
	}
	f.limits.read = bound // too short for an answer, where a machine is busy
	read := func(reason string, nodes ...*corev1.Node) {
		f.clock.SetTime(f.clock.Now().Add(freshHere))
		began := time.Now()
		if got := f.read(t.Context(), nodes); len(got) != 1 || time.Since(began) > bound+5*time.Second {
			t.Errorf("%s: got %v after %v", reason, got, time.Since(began))
		}
	}
	read("the good one first", append([]*corev1.Node{good}, nodes...)...)
	read("last, when the time is over", append(nodes, good)...)
}

// A node that names a pod of another one is not believed, whoever answers last.
func TestPodsOfOthers(t *testing.T) {
	f := newFleet(t, limits{nodeLimit, answerLimit, readLimit})
	honest, liar := f.node(1, "victim"), f.node(2, "victim")
	f.answers["192.0.2.2:10250"] = `{"pods":[{"podRef":{"uid":"victim"},"containers":[{"name":"lie"}]},{"podRef":{"uid":"own"},"containers":[]}]}`
	pod := func(uid, node string) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Name: uid}, Spec: corev1.PodSpec{NodeName: node}}
	}
	nodes := fake.NewClientBuilder().WithObjects(honest, liar).Build()
	h := &handler{kubelets: f, options: Options{Reader: nodes}}
	for range 20 {
		f.kept = map[string]seen[map[string]used]{}
		got, err := h.usage(t.Context(), []corev1.Pod{pod("victim", "n1"), pod("own", "n2")})
		if err != nil || len(got) != 2 || got[0].Metadata.Name != "victim" || len(got[0].Containers) != 0 {
			t.Fatalf("got %+v, %v", got, err)
		}
	}
	if got, err := h.usage(t.Context(), []corev1.Pod{pod("victim", "n3"), pod("own", "n2")}); err != nil || len(got) != 1 {
		t.Errorf("of a pod of a node that says nothing: %+v, %v", got, err)
	}
}

// pipes is a listener in memory.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// step is one read of a test, on the clock of a synctest bubble.
type step struct {
	reason string
	at     time.Duration // since the first
	takes  time.Duration // for an answer to what is asked from now on
	code   int           // of that answer
	want   string        // which answer is given, if any is
	took   time.Duration // for that
	asked  int64         // so far
}

// never is longer than anybody waits.
const never = time.Hour

// A kubelet that takes longer than it is waited for is read nevertheless, its last answer
// is given for half a minute, and it is waited for once until it answers.
func TestBusyKubelet(t *testing.T) {
	const s = time.Second
	for name, steps := range map[string][]step{
		"late, then silent, then well": {
			{"waited for, in vain", 0, 8 * s, 200, "", nodeLimit, 1},
			{"not waited for any more", 6 * s, 0, 200, "", 0, 1},
			{"its answer came", 9 * s, 0, 200, "1", 0, 1},
			{"the next is late: the old one in time", 15 * s, 8 * s, 200, "1", nodeLimit, 2},
			{"the next came", 24 * s, 0, 200, "2", 0, 2},
			{"silent: the old one", 30 * s, never, 200, "2", nodeLimit, 3},
			{"waited for once", 36 * s, never, 200, "2", 0, 3},
			{"the ask has ended", 51 * s, never, 200, "2", 0, 3},
			{"half a minute after its last answer", 53 * s, never, 200, "", 0, 3},
			{"asked again, beside", 56 * s, never, 200, "", 0, 4},
			{"asked again, beside", 82 * s, 0, 200, "", 0, 5},
			{"it has answered", 83 * s, 0, 200, "5", 0, 5},
			{"waited for again", 90 * s, 3 * s, 200, "6", 3 * s, 6},
		},
		"in trouble": {
			{"well", 0, 0, 200, "1", 0, 1},
			{"500", 10 * s, 0, 500, "1", 0, 2},
			{"not asked for a while", 12 * s, 0, 200, "1", 0, 2},
			{"401", 16 * s, 0, 401, "1", 0, 3},
			{"half a minute after its last answer", 30 * s, 0, 401, "", 0, 4},
		},
		"401, which is no failure of its own": {
			{"well", 0, 0, 200, "1", 0, 1},
			{"401", 10 * s, 0, 401, "1", 0, 2},
			{"waited for", 16 * s, 2 * s, 200, "3", 2 * s, 3},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { inSteps(t, steps) })
		})
	}
}

// Whoever comes while an ask goes on waits for no longer than the first one.
func TestTurn(t *testing.T) {
	now := time.Unix(2e9, 0)
	failed := errors.New("failed")
	for _, c := range []struct {
		reason string
		seen   seen[int]
		ask    bool
		wait   time.Duration
	}{
		{"unknown", seen[int]{}, true, nodeLimit},
		{"fresh", seen[int]{at: now, until: now.Add(1)}, false, 0},
		{"no longer fresh", seen[int]{at: now, until: now}, true, nodeLimit},
		{"being asked", seen[int]{asked: now.Add(-nodeLimit / 4)}, true, nodeLimit * 3 / 4},
		{"asked for too long", seen[int]{asked: now.Add(-2 * nodeLimit)}, true, 0},
		{"failed just now", seen[int]{err: failed, until: now.Add(1)}, false, 0},
		{"failed a while ago", seen[int]{err: failed, until: now}, true, 0},
	} {
		if ask, wait := c.seen.turn(now, nodeLimit); ask != c.ask || wait != c.wait {
			t.Errorf("%s: asks %t, waits %v", c.reason, ask, wait)
		}
	}
}

// inSteps reads one kubelet.
func inSteps(t *testing.T, steps []step) {
	k, err := newKubelets(Options{Clock: clock.RealClock{}, Logger: logr.Discard(), Config: &rest.Config{}})
	if err != nil {
		t.Fatal(err)
	}
	var now step
	var asked atomic.Int64
	cert, key := certificate(t, &x509.Certificate{Subject: pkix.Name{CommonName: "n"}}, nil, nil)
	listener := make(pipes)
	server := &http.Server{
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}}},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			number, code := asked.Add(1), now.code
			select {
			case <-time.After(now.takes):
				w.WriteHeader(code)
				fmt.Fprintf(w, `{"pods":[{"podRef":{"uid":"%d"}}]}`, number)
			case <-r.Context().Done():
			}
		}),
	}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	defer server.Close()
	defer k.client.CloseIdleConnections()
	k.dial = func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		listener <- there
		return here, nil
	}
	node := (&fleet{}).node(1, "")
	start := time.Now()
	for _, now = range steps {
		<-time.After(now.at - time.Since(start))
		k.token, k.aged = "narrow", time.Now().Add(time.Hour) // each 401 ends it
		began, got := time.Now(), ""
		for uid := range k.read(t.Context(), []*corev1.Node{node})["n1"] {
			got = uid
		}
		took := time.Since(began)
		synctest.Wait()
		if got != now.want || took != now.took || asked.Load() != now.asked {
			t.Errorf("at %v, %s: got %q after %v, asked %d times; want %q after %v, %d times",
				now.at, now.reason, got, took, asked.Load(), now.want, now.took, now.asked)
		}
		if last := k.kept["n1"]; last.said != nil && time.Since(last.at) > usableFor {
			t.Errorf("at %v an answer of %v ago is kept", now.at, time.Since(last.at))
		}
	}
	<-time.After(answerLimit + failedFor + recallFor)
	if k.read(t.Context(), nil); len(k.kept) != 0 {
		t.Error("it is remembered for ever")
	}
}
