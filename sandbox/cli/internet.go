package cli

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/pelago-dev/pelago/sandbox/cluster"
	"github.com/pelago-dev/pelago/sandbox/internet"
)

// newInternet is what the machine between the clusters runs.
func newInternet(e *env) *cobra.Command {
	return &cobra.Command{
		Use:    cluster.InternetCommand + " SOCKET FILE",
		Hidden: true,
		Args:   cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := os.ReadFile(args[1])
			if err != nil {
				return fmt.Errorf("reading configuration: %w", err)
			}
			var config internet.Config
			if err := json.Unmarshal(text, &config); err != nil {
				return fmt.Errorf("reading configuration: %w", err)
			}
			return internet.Serve(cmd.Context(), args[0], config, slog.New(slog.NewTextHandler(e.err, nil)))
		},
	}
}
