package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/pelago-dev/pelago/sandbox/cluster"
	"github.com/pelago-dev/pelago/sandbox/config"
)

func newStatus(e *env) *cobra.Command {
	var output string
	command := &cobra.Command{
		Use:     "status",
		Short:   "Show clusters, nodes, addresses, memory and links",
		Example: "  pelago-sandbox status\n  pelago-sandbox status -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			s, err := e.open()
			if err != nil {
				return err
			}
			status := s.Status(cmd.Context())
			if output == "json" {
				return printJSON(e.out, status)
			}
			printStatus(e.out, status)
			return nil
		},
	}
	outputFlag(command, &output)
	return command
}

func outputFlag(command *cobra.Command, output *string) {
	command.Flags().StringVarP(output, "output", "o", "", "json, or nothing for people")
}

func checkOutput(output string) error {
	if output != "" && output != "json" {
		return fmt.Errorf("--output %q: use json or leave it out", output)
	}
	return nil
}

func printJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

func printStatus(w io.Writer, status cluster.Status) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "CLUSTER\tNODE\tSTATE\tVERSION\tADDRESS\tPODS\tMEMORY")
	for _, c := range status.Clusters {
		note := ""
		if c.BehindNAT {
			note = " (behind NAT)"
		}
		fmt.Fprintf(table, "%s\t\t%s\t%s\t%s%s\t%s\t%s\n", c.Name, c.State, c.Version, c.API, note, join(c.PodRanges), mebibytes(c.MemoryPSS))
		if h := c.Hollow; h != nil {
			fmt.Fprintf(table, "\thollow\t%d of %d Ready\t\t\t\t\n", h.Ready, h.Nodes)
		}
		for _, n := range c.Nodes {
			fmt.Fprintf(table, "\t%s\t%s\t\t%s\t%s\t%s\n", n.Name, n.State, join(n.Addresses), strings.Join(n.PodRanges, ","), mebibytes(n.MemoryPSS))
		}
	}
	table.Flush()
	if status.Profile == config.ProfileControlPlane {
		return
	}
	if len(status.Links) == 0 {
		fmt.Fprintln(w, "\nAll links are plain wires.")
		return
	}
	fmt.Fprintln(w)
	printLinks(w, status.Links)
}

func mebibytes(bytes int64) string { return fmt.Sprintf("%d MiB", bytes>>20) }

func join[T fmt.Stringer](items []T) string {
	words := make([]string, len(items))
	for i, item := range items {
		words[i] = item.String()
	}
	return strings.Join(words, ",")
}
