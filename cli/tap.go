package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/pcapgo"
	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// errEnough ends a capture that has as many packets as were asked for.
var errEnough = errors.New("there are enough packets")

// read takes packets from all gateways until it is to end, and returns how many there were and
// how many were missed.
func (o *captures) read(ctx context.Context, e *Env, c *Cluster, s *subject, take func(string, []byte, gopacket.CaptureInfo) error) (seen int, missed uint64, err error) {
	ending, end := context.WithCancel(ctx)
	defer end()
	if o.limit > 0 {
		after := e.Clock.After(o.limit)
		go func() {
			select {
			case <-after:
				end()
			case <-ending.Done():
			}
		}()
	}
	// What has to end is told so, and given the time to say what it missed.
	calls, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	var mu sync.Mutex
	follow := func(g *gateway) error {
		lost, err := c.tap(calls, ending, g, s.addresses, o.whole, func(key string, frame []byte, info gopacket.CaptureInfo) error {
			mu.Lock()
			defer mu.Unlock()
			if o.count > 0 && seen >= o.count {
				return errEnough
			}
			seen++
			err := take(key, frame, info)
			if err == nil && seen == o.count {
				end()
			}
			return err
		})
		mu.Lock()
		missed += lost
		mu.Unlock()
		if ending.Err() != nil {
			return nil
		}
		return err
	}
	var group errgroup.Group
	for _, g := range s.gateways {
		group.Go(func() error {
			err := follow(g)
			if err != nil {
				end()
			}
			return err
		})
	}
	var paths sync.WaitGroup
	paths.Go(func() { c.followPaths(ending, e, s, &mu, &paths, follow) })
	done := make(chan error, 1)
	go func() {
		err := group.Wait()
		end()
		paths.Wait()
		done <- err
	}()
	<-ending.Done()
	select {
	case err = <-done:
	case <-e.Clock.After(endLimit):
		cut()
		err = <-done
	}
	return seen, missed, err
}

// pathPause is how long it may take until a direct path is noticed.
const pathPause = 2 * time.Second

// followPaths reads at direct paths of the gateways too, whose devices are others: at those that there
// are and those that come. What is wrong with one ends nothing but that. Names of paths are written
// under the lock.
func (c *Cluster) followPaths(ctx context.Context, e *Env, s *subject, mu *sync.Mutex, all *sync.WaitGroup, follow func(*gateway) error) {
	running := map[string]bool{} // no more, if false, and not again before the path has gone
	for ctx.Err() == nil {
		if now, err := c.pathsUp(ctx, e, s.gateways); err == nil {
			mu.Lock()
			maps.DeleteFunc(running, func(key string, still bool) bool { return !still && now[key] == nil })
			for key, g := range now {
				if _, known := running[key]; known {
					continue
				}
				running[key] = true
				peering, path, _ := strings.Cut(key, ".")
				s.peers[key] = s.peers[peering] + "'s path " + path
				e.note("Reading packets of %s by %s at node %s.", s.name, s.peers[key], g.node)
				all.Go(func() {
					err := follow(g)
					mu.Lock()
					defer mu.Unlock()
					if running[key] = false; err != nil {
						e.note("%s is not read any more: %v.", s.peers[key], err)
					}
				})
			}
			mu.Unlock()
		}
		select {
		case <-ctx.Done():
		case <-e.Clock.After(pathPause):
		}
	}
}

// pathsUp are the direct paths that the agents of gateways tell of, by their keys, each with where to
// read them.
func (c *Cluster) pathsUp(ctx context.Context, e *Env, gateways []*gateway) (map[string]*gateway, error) {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	var s snapshot
	var leases coordinationv1.LeaseList
	err := eachPage(ctx, c.Client, &leases, func() { s.fabric.leases = append(s.fabric.leases, leases.Items...); leases.Items = nil }, client.InNamespace(v1alpha1.NetworkNamespace))
	if err != nil {
		return nil, err
	}
	up := map[string]*gateway{}
	for key, report := range s.reports(e.Clock.Now()) {
		peering, _, path := strings.Cut(key, ".")
		for _, g := range gateways {
			if path && report.Alive && !report.silent && report.node == g.node && slices.Contains(g.keys, peering) {
				up[key] = &gateway{node: g.node, agent: g.agent, keys: []string{key}}
			}
		}
	}
	return up, nil
}

// tap reads at one gateway until ending is over.
func (c *Cluster) tap(ctx, ending context.Context, g *gateway, addresses []netip.Addr, whole bool, take func(string, []byte, gopacket.CaptureInfo) error) (missed uint64, err error) {
	command := []string{"/pelago-agent", "capture"}
	for _, k := range g.keys {
		command = append(command, "--peering", k)
	}
	for _, a := range addresses {
		command = append(command, "--address", a.String())
	}
	if whole {
		command = append(command, "--whole")
	}
	// The command reads nothing: that its input ends tells it to end.
	in, holds := io.Pipe()
	stop := context.AfterFunc(ending, func() { _ = holds.Close() })
	defer stop()
	written, out := io.Pipe()
	called := make(chan error, 1)
	go func() {
		err := c.Stream(ctx, v1alpha1.NetworkNamespace, g.agent, command, in, out)
		_ = out.CloseWithError(cmp.Or(err, io.EOF))
		called <- err
	}()
	missed, err = readPackets(written, take)
	_ = written.CloseWithError(cmp.Or(err, errEnough))
	_ = holds.Close()
	if failed := <-called; failed != nil && err == nil {
		err = failed
	}
	if err != nil {
		return missed, fmt.Errorf("reading at node %s: %w; run the command again; if it stays so, see: pelago status", g.node, err)
	}
	return missed, nil
}

// readPackets reads what an agent writes until that ends.
func readPackets(in io.Reader, take func(key string, frame []byte, info gopacket.CaptureInfo) error) (missed uint64, err error) {
	r, err := pcapgo.NewNgReader(in, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		return 0, fmt.Errorf("reading what the agent says: %w", err)
	}
	for {
		frame, info, err := r.ReadPacketData()
		if err != nil {
			for i := range r.NInterfaces() {
				if at, err := r.Interface(i); err == nil && at.Statistics.PacketsDropped != pcapgo.NgNoValue64 {
					missed += at.Statistics.PacketsDropped
				}
			}
			if errors.Is(err, io.EOF) {
				return missed, nil
			}
			return missed, fmt.Errorf("reading what the agent says: %w", err)
		}
		at, err := r.Interface(info.InterfaceIndex)
		if err != nil {
			return missed, fmt.Errorf("reading what the agent says: %w", err)
		}
		if err := take(at.Name, frame, info); err != nil {
			return missed, err
		}
	}
}
