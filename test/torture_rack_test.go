package test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/kubernetes"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
	"github.com/pelago-dev/pelago/test/torture"
)

func init() { ctrl.SetLogger(logr.Discard()) }

// rack holds what happens in a storm: what was done, what is seen, what must not be.
type rack struct {
	*continuum
	t *testing.T
	// name is that of the storm, again the command that does it again, out the folder for
	// histories.
	name, again, out string
	begin            time.Time
	// broken ends the storm: a rule was violated, or a user waited in vain.
	broken context.CancelFunc
	over   context.Context
	// sandbox is held by the command that changes machines or links.
	sandbox sync.Mutex

	mu         sync.Mutex
	model      *torture.Model
	world      *torture.World
	memory     *torture.Memory
	history    torture.History
	violations []torture.Violation
	reported   bool
	// ears are the UIDs of the pods that are listened to.
	ears map[string]bool
	// leaving is when a namespace was last brought back, long how many long outages last.
	leaving time.Time
	long    int
}

// newRack is one on which nothing has happened.
func newRack(t *testing.T, c *continuum, name, again, out string) *rack {
	t.Helper()
	r := &rack{continuum: c, t: t, name: name, again: again, out: out, begin: time.Now(), model: torture.NewModel(), world: torture.NewWorld(), memory: torture.NewMemory(), ears: map[string]bool{}}
	r.over, r.broken = context.WithCancel(context.Background())
	t.Cleanup(r.broken)
	return r
}

// observe watches both clusters until the test ends.
func (r *rack) observe(t *testing.T) {
	t.Helper()
	r.watch(t, torture.Home, &r.world.Home, &corev1.Pod{}, &batchv1.Job{}, &corev1.Namespace{}, &discoveryv1.EndpointSlice{})
	r.watch(t, torture.Provider, &r.world.Remote, &corev1.Pod{}, &corev1.Secret{}, &corev1.Namespace{}, &v1alpha1.ShadowPod{}, &v1alpha1.ShadowObject{},
		&corev1.ConfigMap{}, &corev1.Service{}, &discoveryv1.EndpointSlice{})
}

// watch notes every change of some kinds of a cluster, and asks the rules each time.
func (r *rack) watch(t *testing.T, cluster string, side *torture.Cluster, kinds ...client.Object) {
	t.Helper()
	mirror, err := cache.New(r.Configs[cluster], cache.Options{Scheme: kubetest.Scheme()})
	if err != nil {
		t.Fatalf("watching %s: %v", cluster, err)
	}
	clients, err := kubernetes.NewForConfig(r.Configs[cluster])
	if err != nil {
		t.Fatalf("listening to pods of %s: %v", cluster, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mirror.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("watching %s: %v", cluster, err)
		}
	})
	see := func(object any, gone bool) {
		if last, unknown := object.(toolscache.DeletedFinalStateUnknown); unknown {
			object = last.Obj
		}
		r.see(side, object.(client.Object), gone)
		if pod, is := object.(*corev1.Pod); is && !gone {
			r.listen(ctx, clients, cluster, pod)
		}
	}
	synced, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	for _, kind := range kinds {
		informer, err := mirror.GetInformer(synced, kind)
		if err != nil {
			t.Fatalf("watching %T of %s: %v", kind, cluster, err)
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { see(o, false) },
			UpdateFunc: func(_, o any) { see(o, false) },
			DeleteFunc: func(o any) { see(o, true) },
		}); err != nil {
			t.Fatalf("watching %T of %s: %v", kind, cluster, err)
		}
	}
}

// see notes a change, and what it violates. Two copies are looked for afresh, as one
// watch may be behind the other.
func (r *rack) see(side *torture.Cluster, object client.Object, gone bool) {
	r.mu.Lock()
	side.Set(object, gone)
	r.world.Now = time.Now()
	found := r.memory.Never(r.world)
	r.mu.Unlock()
	for _, v := range found {
		if v.Doubtful {
			go r.verify(v)
			continue
		}
		r.violated(v)
	}
}

// verify asks the rule again of what both clusters say now, at home first.
func (r *rack) verify(v torture.Violation) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	fresh := torture.NewWorld()
	for _, at := range []struct {
		cluster, namespace string
		side               *torture.Cluster
	}{{torture.Home, v.Place, &fresh.Home}, {torture.Provider, torture.Mapped(v.Place), &fresh.Remote}} {
		var pods corev1.PodList
		if err := r.Clients[at.cluster].List(ctx, &pods, client.InNamespace(at.namespace)); err != nil {
			return // an API server that is frozen; the next event asks again
		}
		for i := range pods.Items {
			at.side.Set(&pods.Items[i], false)
		}
	}
	for _, again := range torture.NewMemory().Never(fresh) {
		if again.Doubtful && again.Place == v.Place && again.App == v.App {
			r.violated(again)
		}
	}
}

// violated notes a violation and ends the storm.
func (r *rack) violated(v torture.Violation) {
	r.mu.Lock()
	if !slices.ContainsFunc(r.violations, func(old torture.Violation) bool { return old.String() == v.String() }) {
		r.violations = append(r.violations, v)
	}
	r.mu.Unlock()
	r.broken()
}

func (r *rack) unsettled() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.world.Now = time.Now()
	return r.model.Unsettled(r.world)
}

func (r *rack) left() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return torture.Left(r.world)
}

// now is the time of the storm.
func (r *rack) now() time.Duration { return time.Since(r.begin).Round(time.Millisecond) }

// did notes a step that was begun at a time of the storm.
func (r *rack) did(s torture.Step, begun time.Duration, note string) {
	r.note(torture.Done{Step: s, Note: note}, begun)
}

func (r *rack) note(d torture.Done, begun time.Duration) {
	d.Step.At, d.Took = begun, r.now()-begun
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history = append(r.history, d)
}

// failed reports what was violated, once, and says whether anything was.
func (r *rack) failed(t *testing.T) bool {
	t.Helper()
	r.mu.Lock()
	first := len(r.violations) > 0 && !r.reported
	r.reported = r.reported || first
	reported := r.reported
	r.mu.Unlock()
	if first {
		text, err := r.report()
		t.Errorf("%s", text)
		if err != nil {
			t.Errorf("writing the history: %v", err)
		}
		for _, place := range torture.Places[:2] {
			shop{r.continuum, torture.Home, place}.dump(t)
		}
	}
	return reported
}

// report says what was violated, what was done, what of that concerns the first
// violation, and how to do it again. Both histories are written to files as well.
func (r *rack) report() (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := r.violations[0]
	var told error
	if file := os.Getenv("TORTURE_RULE"); file != "" {
		told = os.WriteFile(file, []byte(v.Rule), 0o644) // who shrinks wants to know
	}
	part := r.history.Project(v.Place, v.App)
	whole, err := r.write("", r.history)
	partly, err2 := r.write("-part", part)
	var text strings.Builder
	fmt.Fprintf(&text, "%s, %s after the beginning:\n", r.name, r.now().Round(time.Second))
	for _, each := range r.violations {
		fmt.Fprintf(&text, "  %s\n", each)
	}
	fmt.Fprintf(&text, "all that was done (make torture HISTORY=%s):\n%s", whole, r.history)
	fmt.Fprintf(&text, "what of it concerns %s/%s, a projection and not proven minimal (make torture HISTORY=%s):\n%s", v.Place, v.App, partly, part)
	fmt.Fprintf(&text, "the same storm: %s\n", r.again)
	return text.String(), errors.Join(told, err, err2)
}

// write writes a history to the folder for them, and returns its path from the root of
// the repository.
func (r *rack) write(suffix string, h torture.History) (string, error) {
	path := filepath.Join(r.out, r.name+suffix+".txt")
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return path, err
	}
	text := fmt.Sprintf("# %s, %s\n%s", r.name, r.begin.UTC().Format(time.DateTime), h)
	return strings.TrimPrefix(path, "../"), os.WriteFile(path, []byte(text), 0o644)
}
