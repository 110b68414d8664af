package cluster

import (
	"context"
	"fmt"
	"slices"
	"syscall"

	"github.com/pelago-dev/pelago/sandbox/machine"
)

// number returns which node of the cluster is called name, counted from 1.
func (c *Cluster) number(name string) (int, error) {
	at := slices.Index(c.NodeNames(), name)
	if at < 0 {
		return 0, fmt.Errorf("cluster %s has no node %q; it has %v", c.Name, name, c.NodeNames())
	}
	return at + 1, nil
}

// Machine returns the running machine called name (a node's name, or
// ControlName).
func (c *Cluster) Machine(name string) (*machine.Machine, error) {
	m, up, err := machine.Load(c.machineDir(name))
	if err != nil || !up {
		return nil, fmt.Errorf("machine %s does not run; run: pelago-sandbox up --name %s", name, c.Sandbox)
	}
	return m, nil
}

// StopNode pulls the plug of a node: no shutdown, its link down, memory lost,
// disk kept.
func (s *Sandbox) StopNode(c *Cluster, name string) error {
	release, err := s.Lock()
	if err != nil {
		return err
	}
	defer release()
	if _, err := c.number(name); err != nil {
		return err
	}
	m, _, err := machine.Load(c.machineDir(name))
	if err != nil {
		return err
	}
	return m.Kill()
}

// StartNode starts a node that was stopped; it returns when its kubelet runs. The
// node runs what it ran before, also if this program would build something else by
// now: what is stored is built anew only where it is gone.
func (s *Sandbox) StartNode(ctx context.Context, c *Cluster, name string) error {
	release, err := s.Lock()
	if err != nil {
		return err
	}
	defer release()
	if err := s.refresh(); err != nil {
		return err
	}
	if c, err = s.Cluster(c.Name); err != nil {
		return err
	}
	number, err := c.number(name)
	if err != nil {
		return err
	}
	kube := c.Kube
	if !exists(kube) {
		if kube, err = s.Cache.Kube(ctx, c.Version); err != nil {
			return err
		}
	}
	c.use(kube)
	internet, up, err := machine.Load(s.internetDir())
	if err != nil || !up {
		return fmt.Errorf("the internet of sandbox %s does not run; run: pelago-sandbox up --name %s", s.Name, s.Name)
	}
	router, bridge, err := c.startRouter(ctx, internet)
	if err != nil {
		return err
	}
	return c.startNode(ctx, router, bridge, number, s.images())
}

// PauseAPI freezes the API server: connections hang, nothing answers.
func (c *Cluster) PauseAPI(ctx context.Context) error { return c.signalAPI(ctx, syscall.SIGSTOP) }

// ResumeAPI lets a paused API server go on.
func (c *Cluster) ResumeAPI(ctx context.Context) error { return c.signalAPI(ctx, syscall.SIGCONT) }

func (c *Cluster) signalAPI(ctx context.Context, signal syscall.Signal) error {
	control, err := c.Machine(c.ControlName())
	if err != nil {
		return err
	}
	return control.Signal(ctx, "kube-apiserver", signal)
}
