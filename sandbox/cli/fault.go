package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newNode(e *env) *cobra.Command {
	group := &cobra.Command{
		Use:     "node",
		Short:   "Stop and start nodes",
		Example: "  pelago-sandbox node stop rome rome-2\n  pelago-sandbox node start rome rome-2",
	}
	group.AddCommand(&cobra.Command{
		Use:     "stop CLUSTER NODE",
		Short:   "Pull the plug of a node: memory is lost, the disk stays",
		Example: "  pelago-sandbox node stop rome rome-2",
		Args:    cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			s, c, err := e.findMachines(args[0], "nodes to stop and start")
			if err != nil {
				return err
			}
			if err := s.StopNode(c, args[1]); err != nil {
				return err
			}
			fmt.Fprintf(e.out, "Node %s is off. The cluster notices within a minute.\n", args[1])
			return nil
		},
	}, &cobra.Command{
		Use:     "start CLUSTER NODE",
		Short:   "Start a node that was stopped",
		Example: "  pelago-sandbox node start rome rome-2",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, c, err := e.findMachines(args[0], "nodes to stop and start")
			if err != nil {
				return err
			}
			if err := s.StartNode(cmd.Context(), c, args[1]); err != nil {
				return err
			}
			fmt.Fprintf(e.out, "Node %s is on.\n", args[1])
			return nil
		},
	})
	return group
}

func newAPI(e *env) *cobra.Command {
	group := &cobra.Command{
		Use:     "api",
		Short:   "Pause and resume an API server",
		Example: "  pelago-sandbox api pause rome\n  pelago-sandbox api resume rome",
	}
	add := func(word, short, done string, stop bool) {
		group.AddCommand(&cobra.Command{
			Use:     word + " CLUSTER",
			Short:   short,
			Example: "  pelago-sandbox api " + word + " rome",
			Args:    cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				_, c, err := e.find(args[0])
				if err != nil {
					return err
				}
				if stop {
					err = c.PauseAPI(cmd.Context())
				} else {
					err = c.ResumeAPI(cmd.Context())
				}
				if err == nil {
					fmt.Fprintf(e.out, "The API server of %s %s.\n", c.Name, done)
				}
				return err
			},
		})
	}
	add("pause", "Freeze the API server: connections hang", "is paused", true)
	add("resume", "Let a paused API server go on", "goes on", false)
	return group
}
