package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/pelago-dev/pelago/internal/kube"
	"github.com/pelago-dev/pelago/network/dns"
	"github.com/pelago-dev/pelago/network/holder"
)

// Names is what answers on a node for home's names of tenants' pods.
type Names struct {
	// Upstream are the addresses of the cluster's DNS, Domain is that of the cluster.
	Upstream []string
	Domain   string
}

// names are the server, and whom it knows.
type names struct {
	*dns.Server
	index *dns.Index
	// noted is what an earlier process has left of that, until all of it is read again; nil for nothing.
	noted  atomic.Pointer[dns.Index]
	keeper Keeper
	log    logr.Logger
}

// namesNote is the name of the note with what is known of who asks: no tunnel is called so. maxNamesNote bounds
// it, in bytes: some hundreds of pods, and thousands of namespaces of their tenants. notePace is the least time
// between two of it.
const (
	namesNote    = "names"
	maxNamesNote = 1 << 20
	notePace     = time.Second
)

// newNames makes the server, and an index that follows the pods and namespaces of tenants. The note is an earlier
// process', nil if there is none.
func newNames(o Options, c *cluster, left *os.File) (*names, error) {
	n := &names{index: dns.NewIndex(o.Node), keeper: o.Keeper, log: o.Log.WithName("names")}
	for kind, handler := range map[kube.Object]toolscache.ResourceEventHandler{
		&corev1.Pod{}:       tell(n.index.SetPod, n.index.DeletePod),
		&corev1.Namespace{}: tell(n.index.SetNamespace, func(_, name string) { n.index.DeleteNamespace(name) }),
	} {
		if err := c.main.Listen(kind, handler); err != nil {
			return nil, err
		}
	}
	metrics, err := dns.NewMetrics(o.Registry)
	if err != nil {
		return nil, err
	}
	n.Server, err = dns.New(dns.Options{
		Host: o.Host, Upstream: o.Names.Upstream, Domain: o.Names.Domain, Clients: n.client, Metrics: metrics, Log: n.log,
	})
	if err != nil {
		return nil, fmt.Errorf("making the server for names: %w", err)
	}
	if left != nil {
		n.read(o.Node, left)
	}
	return n, nil
}

// read takes what was left. What is no note is as if there were none.
func (n *names) read(node string, left *os.File) {
	defer func() { _ = left.Close() }()
	b, err := io.ReadAll(io.NewSectionReader(left, 0, maxNamesNote))
	if err == nil {
		var noted *dns.Index
		if noted, err = dns.ReadIndex(node, b); err == nil {
			n.noted.Store(noted)
		}
	}
	if err != nil {
		n.log.Error(err, "reading what an earlier process has noted")
	}
}

// client says who has an address. While not all is read it goes by what was noted alone: half of a tenant's
// namespaces would be told as all.
func (n *names) client(a netip.Addr) (dns.Client, bool) {
	if noted := n.noted.Load(); noted != nil {
		return noted.Client(a)
	}
	return n.index.Client(a)
}

// note has it kept what is known, whenever that changes, until ctx ends.
func (n *names) note(ctx context.Context) {
	var kept []byte
	for said := ""; ; {
		b, err := n.index.Note()
		switch {
		case err != nil:
		case len(b) > maxNamesNote: // and what was kept is not so any more
			kept, err = nil, errors.Join(fmt.Errorf("it is %d bytes, and %d at most are kept", len(b), maxNamesNote), n.keeper.Drop(holder.Note, namesNote))
		case !bytes.Equal(b, kept):
			if err = keepNote(n.keeper, namesNote, b); err == nil {
				kept = b
			}
		}
		text := ""
		if err != nil {
			text = err.Error()
		}
		if text != said && err != nil {
			n.log.Error(err, "what is known of who asks for names is not noted for the next process")
		}
		said = text
		pause(ctx, notePace)
		select {
		case <-ctx.Done():
			return
		case <-n.index.News():
		}
	}
}

// tell passes on what there is, and what is gone.
func tell[T kube.Object](set func(T), gone func(namespace, name string)) toolscache.ResourceEventHandler {
	is := func(o any) {
		if o, ok := o.(T); ok {
			set(o)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: is, UpdateFunc: func(_, after any) { is(after) },
		DeleteFunc: func(o any) {
			if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = last.Obj
			}
			if o, ok := o.(kube.Object); ok {
				gone(o.GetNamespace(), o.GetName())
			}
		},
	}
}

// answer answers for names until ctx ends: at once if an earlier process has left what it knew, else when all is known.
func (a *Agent) answer(ctx context.Context) error {
	if a.names == nil {
		return nil
	}
	known := a.names.noted.Load() == nil
	if known && !a.followed(ctx) {
		return nil
	}
	group, inner := errgroup.WithContext(ctx)
	group.Go(func() error {
		if !known && !a.followed(inner) {
			return nil
		}
		a.names.noted.Store(nil)
		a.names.note(inner)
		return nil
	})
	group.Go(func() error { return a.names.Run(inner) })
	return group.Wait()
}

// followed waits until all pods and namespaces of tenants are known, and reports whether they are.
func (a *Agent) followed(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-a.cluster.ready:
		return a.cluster.main.Wait(ctx)
	}
}
