package home

import (
	"context"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// versionEvery is how often the version of the API server is asked for: it changes
// when the cluster is upgraded under a running manager.
const versionEvery = time.Hour

// Register lets the settings follow their ConfigMap as long as mgr runs, and says or follows which build
// leads; a program that does not lead is ready once it knows. The manager's cache must hold the ConfigMaps of
// Pelago's namespace, and of a program that does not lead the Lease of those who do.
func (h *Home) Register(mgr ctrl.Manager) error {
	if err := mgr.Add(&follower{home: h, cache: mgr.GetCache()}); err != nil {
		return fmt.Errorf("following the settings: %w", err)
	}
	if h.options.Leads {
		if err := mgr.Add(&sayer{h}); err != nil {
			return fmt.Errorf("saying which build leads: %w", err)
		}
		return nil
	}
	if err := mgr.AddReadyzCheck("leader", h.led); err != nil {
		return fmt.Errorf("adding the check of who leads: %w", err)
	}
	return nil
}

// follower is the part of a Home that a manager runs, also without leadership.
type follower struct {
	home  *Home
	cache cache.Cache
}

// NeedLeaderElection reports that every replica follows the settings.
func (f *follower) NeedLeaderElection() bool { return false }

// Start follows the ConfigMaps, and who leads, until ctx ends.
func (f *follower) Start(ctx context.Context) error {
	if !f.home.options.Leads {
		end, err := f.heed(ctx)
		if err != nil {
			return err
		}
		defer end()
		if f.home.led(nil) != nil {
			log.FromContext(ctx).Info("waiting for the manager that leads to say which build it is")
		}
	}
	informer, err := f.cache.GetInformer(ctx, &corev1.ConfigMap{})
	if err != nil {
		return fmt.Errorf("following the settings: %w", err)
	}
	seen := func(obj any) {
		if m, ok := obj.(*corev1.ConfigMap); ok && m.Namespace == f.home.options.Namespace {
			f.home.take(ctx, m)
		}
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    seen,
		UpdateFunc: func(_, obj any) { seen(obj) },
		DeleteFunc: func(obj any) {
			if m, ok := obj.(*corev1.ConfigMap); ok && m.Name == v1alpha1.ConfigName && m.Namespace == f.home.options.Namespace {
				f.home.refuse(ctx, fmt.Errorf("it was deleted"))
			}
		},
	})
	if err != nil {
		return fmt.Errorf("following the settings: %w", err)
	}
	defer func() { _ = informer.RemoveEventHandler(registration) }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.home.options.Clock.After(versionEvery):
			f.home.refreshVersion(ctx)
		}
	}
}

// heed follows the Lease of those who lead until end is called.
func (f *follower) heed(ctx context.Context) (end func(), err error) {
	informer, err := f.cache.GetInformer(ctx, &coordinationv1.Lease{})
	if err != nil {
		return nil, fmt.Errorf("following who leads: %w", err)
	}
	seen := func(obj any) {
		if lease, ok := obj.(*coordinationv1.Lease); ok {
			f.home.heed(lease)
		}
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: seen, UpdateFunc: func(_, obj any) { seen(obj) }})
	if err != nil {
		return nil, fmt.Errorf("following who leads: %w", err)
	}
	return func() { _ = informer.RemoveEventHandler(registration) }, nil
}

func (h *Home) refreshVersion(ctx context.Context) {
	before := h.Info().KubernetesVersion
	if err := h.readVersion(ctx); err != nil {
		log.FromContext(ctx).V(1).Info("version of the API server not read", "error", err.Error())
		return
	}
	if h.Info().KubernetesVersion != before {
		h.listeners.tell()
	}
}

// take makes a ConfigMap of Pelago's namespace count, if it is one of ours and differs.
func (h *Home) take(ctx context.Context, m *corev1.ConfigMap) {
	switch m.Name {
	case v1alpha1.ConfigName:
		h.takeConfig(ctx, m.Data[ConfigKey])
	case rootCAName:
		if h.takeRoot(ctx, m.Data[rootCAKey]) {
			h.listeners.tell()
		}
	}
}

func (h *Home) takeConfig(ctx context.Context, text string) {
	next, err := Parse(text)
	if err != nil {
		h.refuse(ctx, err)
		return
	}
	h.valid.Set(1)
	h.mu.Lock()
	before := h.config
	h.config = next
	h.mu.Unlock()
	if equal(before, next) {
		return
	}
	logger := log.FromContext(ctx)
	if before.Cluster.Name != next.Cluster.Name {
		logger.Info("cluster renamed; peers keep the name they know until they peer again", "before", before.Cluster.Name, "cluster", next.Cluster.Name)
	}
	logger.Info("settings changed")
	h.listeners.tell()
}

// refuse keeps the settings in force and says why.
func (h *Home) refuse(ctx context.Context, why error) {
	h.valid.Set(0)
	log.FromContext(ctx).Error(why, "settings refused, the last good ones hold", "configMap", v1alpha1.ConfigName)
}

// listeners are told of every change.
type listeners struct {
	mu   sync.Mutex
	list []func()
}

func (l *listeners) add(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, f)
}

func (l *listeners) tell() {
	l.mu.Lock()
	list := l.list[:len(l.list):len(l.list)]
	l.mu.Unlock()
	for _, f := range list {
		f()
	}
}

// Subscribe calls f after every change of what Config, Info or APIServer return. It
// must not block.
func (h *Home) Subscribe(f func()) { h.listeners.add(f) }

// Source tells a controller of every change, with the settings' ConfigMap (its name
// only) as the object; several changes at once may be told as one.
func (h *Home) Source(to handler.EventHandler) source.Source {
	changes := make(chan event.GenericEvent, 1)
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: h.options.Namespace, Name: v1alpha1.ConfigName}}
	h.Subscribe(func() {
		select {
		case changes <- event.GenericEvent{Object: object}:
		default: // one is waiting already, and the controller will read the newest
		}
	})
	return source.Channel(changes, to)
}
