package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pelago-dev/pelago/sandbox/config"
	"github.com/pelago-dev/pelago/sandbox/debian"
	"github.com/pelago-dev/pelago/sandbox/machine"
)

// Parallel is how many clusters start at once; more only slows each down on
// small hosts. Control planes alone wait more than they work.
const (
	Parallel         = 2
	parallelLoopback = 4
)

// Up starts the sandbox or completes what is missing of it, and returns when
// every node and add-on is ready. It may be called again at any time.
func (s *Sandbox) Up(ctx context.Context) error {
	release, err := s.Lock()
	if err != nil {
		return err
	}
	defer release()
	if err := s.refresh(); err != nil {
		return err
	}
	if s.Profile == config.ProfileControlPlane {
		return s.upControlPlanes(ctx)
	}
	if err := debian.Install(ctx, func(doing string) { s.say("", "%s", doing) }); err != nil {
		return err
	}
	if err := s.build(ctx); err != nil {
		return err
	}
	if err := s.installProgram(); err != nil {
		return err
	}
	if err := errors.Join(raiseLimits(), s.save()); err != nil {
		return err
	}
	internet, err := s.startInternet(ctx)
	if err != nil {
		return err
	}
	return s.eachCluster(ctx, Parallel, func(ctx context.Context, c *Cluster) error { return s.upCluster(ctx, c, internet) })
}

// eachCluster starts the clusters, a few at a time.
func (s *Sandbox) eachCluster(ctx context.Context, parallel int, up func(context.Context, *Cluster) error) error {
	group, inner := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, c := range s.Clusters {
		group.Go(func() error {
			start := time.Now()
			if err := up(inner, c); err != nil {
				return fmt.Errorf("cluster %s: %w", c.Name, err)
			}
			s.say(c.Name, "ready in %s: %s, %d nodes, API https://%s", time.Since(start).Round(100*time.Millisecond), c.Version, c.Nodes+c.Hollow, c.API())
			return nil
		})
	}
	return group.Wait()
}

// installProgram puts a copy of this program into the sandbox, so that a newer
// build on the host changes nothing that runs.
func (s *Sandbox) installProgram() error {
	target := filepath.Join(s.Dir(), "bin", "pelago-sandbox")
	if _, err := os.Stat(target); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	in, err := os.Open("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("opening this program: %w", err)
	}
	defer in.Close()
	out, err := os.OpenFile(target+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return fmt.Errorf("copying this program: %w", err)
	}
	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Sync(), out.Close()); err != nil {
		return fmt.Errorf("copying this program: %w", err)
	}
	return os.Rename(target+".new", target)
}

// upCluster starts one cluster or completes it.
func (s *Sandbox) upCluster(ctx context.Context, c *Cluster, internet *machine.Machine) error {
	s.say(c.Name, "starting the control plane")
	if err := c.credentials(); err != nil {
		return err
	}
	router, bridge, err := c.startRouter(ctx, internet)
	if err != nil {
		return err
	}
	control, err := c.startControl(ctx, router, bridge)
	if err != nil {
		return err
	}
	client, err := c.Client()
	if err != nil {
		return err
	}
	s.say(c.Name, "starting %d nodes", c.Nodes)
	if err := c.makeNodes(ctx, client); err != nil {
		return err
	}
	group, inner := errgroup.WithContext(ctx)
	for i := 1; i <= c.Nodes; i++ {
		group.Go(func() error {
			return fail("node "+c.NodeName(i), c.startNode(inner, router, bridge, i, s.images()))
		})
	}
	group.Go(func() error { return c.applyAddons(inner) })
	if err := errors.Join(group.Wait(), c.routePods(ctx, control, 0)); err != nil {
		return err
	}
	s.say(c.Name, "waiting for nodes and add-ons")
	return c.awaitReady(ctx, client, func(waiting string) { s.say(c.Name, "waiting for %s", waiting) })
}

// startRouter returns the machine the cluster is plugged into and its bridge.
func (c *Cluster) startRouter(ctx context.Context, internet *machine.Machine) (*machine.Machine, string, error) {
	var nat *machine.Machine
	if c.BehindNAT {
		var err error
		if nat, err = c.startNAT(ctx, internet); err != nil {
			return nil, "", err
		}
	}
	router, bridge := c.router(internet, nat)
	return router, bridge, c.bridge(router, bridge)
}

func (c *Cluster) startControl(ctx context.Context, router *machine.Machine, bridge string) (*machine.Machine, error) {
	control, err := machine.Start(ctx, c.machineSpec(c.ControlName()))
	if err != nil {
		return nil, err
	}
	if err := c.attach(router, bridge, control, 0); err != nil {
		return nil, err
	}
	return control, c.startUnits(ctx, control)
}

// startUnits starts the programs of a control plane.
func (c *Cluster) startUnits(ctx context.Context, control *machine.Machine) error {
	for _, unit := range []machine.Unit{c.etcdUnit(), c.apiServerUnit()} {
		if err := control.Ensure(ctx, unit); err != nil {
			return err
		}
	}
	// One that was paused goes on; to one that does not run at the moment this is nothing.
	_ = control.Signal(ctx, c.apiServerUnit().Name, syscall.SIGCONT)
	if err := c.awaitAPI(ctx); err != nil {
		return fmt.Errorf("%w; see %s", err, filepath.Join(c.machineDir(c.ControlName()), "log"))
	}
	more, err := c.hollowUnits()
	if err != nil {
		return err
	}
	for _, unit := range append(c.controllerUnits(), more...) {
		if err := control.Ensure(ctx, unit); err != nil {
			return err
		}
	}
	return nil
}

// startNode starts one node and gives it its images.
func (c *Cluster) startNode(ctx context.Context, router *machine.Machine, bridge string, i int, images images) error {
	if err := writeFiles(c.nodeFiles(i)); err != nil {
		return err
	}
	node, err := machine.Start(ctx, c.nodeSpec(i))
	if err != nil {
		return err
	}
	if err := c.attach(router, bridge, node, i); err != nil {
		return err
	}
	if err := c.routePods(ctx, node, i); err != nil {
		return err
	}
	if err := node.Run(ctx, c.masqueradeUnit(i)); err != nil {
		return err
	}
	for at, unit := range c.nodeUnits(i) {
		if err := node.Ensure(ctx, unit); err != nil {
			return err
		}
		if at == 0 { // containerd: pods need their images before the kubelet asks for them
			if err := loadImages(ctx, node, images); err != nil {
				return err
			}
		}
	}
	if c.CNI == config.CNIFlannel {
		return flannelConflist(ctx, node)
	}
	return nil
}
