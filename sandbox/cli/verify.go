package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/pelago-dev/pelago/sandbox/cluster"
	"github.com/pelago-dev/pelago/sandbox/verify"
)

func newVerify(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "verify [CLUSTER...]",
		Short: "Prove that clusters do what people expect of Kubernetes",
		Long: `Verify runs pods, Services, volumes and workloads in clusters (all of them unless
named), then takes a node and the API server away for a while and gives them back.
It works in a namespace of its own, removes it, and takes about three minutes a
cluster. It exits with 1 if a check fails.`,
		Example: "  pelago-sandbox verify\n  pelago-sandbox verify rome",
		RunE: func(cmd *cobra.Command, names []string) error {
			s, err := e.openMachines("nodes to verify")
			if err != nil {
				return err
			}
			clusters := s.Clusters
			if len(names) > 0 {
				clusters = nil
				for _, name := range names {
					c, err := s.Cluster(name)
					if err != nil {
						return err
					}
					clusters = append(clusters, c)
				}
			}
			return e.verify(cmd.Context(), s, clusters)
		},
	}
}

func (e *env) verify(ctx context.Context, s *cluster.Sandbox, clusters []*cluster.Cluster) error {
	var all []verify.Result
	for _, c := range clusters {
		fmt.Fprintf(e.out, "%s (%s)\n", c.Name, c.Version)
		target, err := verifyTarget(s, c)
		if err != nil {
			return err
		}
		results, err := verify.Run(ctx, target, func(r verify.Result) { verify.Print(e.out, r) })
		if err != nil {
			return err
		}
		all = append(all, results...)
	}
	verify.PrintTotal(e.out, all)
	if _, failed, _ := verify.Count(all); failed > 0 {
		return fmt.Errorf("%d checks failed", failed)
	}
	return nil
}

// verifyTarget hands a cluster to verify together with the faults it may make.
func verifyTarget(s *cluster.Sandbox, c *cluster.Cluster) (verify.Target, error) {
	config, err := c.Config()
	if err != nil {
		return verify.Target{}, err
	}
	target := verify.Target{
		Config: config, Cluster: c.Name, Nodes: c.NodeNames(), Busybox: cluster.BusyboxImage, Addons: map[string]bool{},
		StopNode:  func(_ context.Context, node string) error { return s.StopNode(c, node) },
		StartNode: func(ctx context.Context, node string) error { return s.StartNode(ctx, c, node) },
		PauseAPI:  c.PauseAPI, ResumeAPI: c.ResumeAPI,
	}
	for _, name := range c.Addons {
		target.Addons[name] = true
	}
	for _, r := range c.PodRanges {
		family := corev1.IPv4Protocol
		if r.Addr().Is6() {
			family = corev1.IPv6Protocol
		}
		target.Families = append(target.Families, family)
	}
	return target, nil
}
