package cli

import (
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/pelago-dev/pelago/sandbox/cluster"
	"github.com/pelago-dev/pelago/sandbox/hollow"
)

// newHollow is what serves the hollow nodes of a cluster.
func newHollow(e *env) *cobra.Command {
	return &cobra.Command{
		Use:    cluster.HollowCommand + " FILE",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			options, err := hollow.ReadOptions(args[0])
			if err != nil {
				return err
			}
			return hollow.Run(cmd.Context(), options, slog.New(slog.NewTextHandler(e.err, nil)))
		},
	}
}
