package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/pelago-dev/pelago/sandbox/internet"
)

func newLink(e *env) *cobra.Command {
	group := &cobra.Command{
		Use:   "link",
		Short: "Cut, heal, slow down and show the links between clusters",
		Example: `  pelago-sandbox link cut rome milan
  pelago-sandbox link heal rome milan
  pelago-sandbox link set rome milan --delay 50ms --loss 1% --rate 100mbit
  pelago-sandbox link show`,
	}
	group.AddCommand(
		linkChange(e, "cut", "Let nothing through between two clusters", func(l *internet.Link) { l.Cut = true }),
		linkChange(e, "heal", "Undo cut; delay, loss and rate stay", func(l *internet.Link) { l.Cut = false }),
		newLinkSet(e), newLinkShow(e),
	)
	return group
}

func linkChange(e *env, word, short string, change func(*internet.Link)) *cobra.Command {
	return &cobra.Command{
		Use:     word + " A B",
		Short:   short,
		Example: fmt.Sprintf("  pelago-sandbox link %s rome milan", word),
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := e.openMachines("links")
			if err != nil {
				return err
			}
			if err := s.SetLink(cmd.Context(), args[0], args[1], change); err != nil {
				return err
			}
			printLinks(e.out, s.Links)
			return nil
		},
	}
}

func newLinkSet(e *env) *cobra.Command {
	var delay time.Duration
	var loss, rate string
	command := &cobra.Command{
		Use:   "set A B",
		Short: "Make a link a WAN: delay, loss, rate",
		Long: `Set makes the link between two clusters slow, lossy or narrow. All figures hold
in each direction: --delay 50ms adds 100 ms to a round trip. What is not named
becomes perfect; without flags the link is a plain wire again. A cut stays.`,
		Example: "  pelago-sandbox link set rome milan --delay 50ms --loss 1% --rate 100mbit\n  pelago-sandbox link set rome milan",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			share, err := parseLoss(loss)
			if err != nil {
				return err
			}
			bits, err := parseRate(rate)
			if err != nil {
				return err
			}
			s, err := e.openMachines("links")
			if err != nil {
				return err
			}
			err = s.SetLink(cmd.Context(), args[0], args[1], func(l *internet.Link) { l.Delay, l.Loss, l.Rate = delay, share, bits })
			if err != nil {
				return err
			}
			printLinks(e.out, s.Links)
			return nil
		},
	}
	command.Flags().DurationVar(&delay, "delay", 0, "one way, such as 50ms")
	command.Flags().StringVar(&loss, "loss", "", "share of packets lost, such as 1%")
	command.Flags().StringVar(&rate, "rate", "", "such as 100mbit (kbit, mbit, gbit; per second)")
	return command
}

func newLinkShow(e *env) *cobra.Command {
	var output string
	command := &cobra.Command{
		Use:     "show",
		Short:   "Show the links and what went over them",
		Example: "  pelago-sandbox link show\n  pelago-sandbox link show -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			s, err := e.openMachines("links")
			if err != nil {
				return err
			}
			stats, err := s.Stats(cmd.Context())
			if err != nil {
				return err
			}
			if output == "json" {
				return printJSON(e.out, map[string]any{"links": append([]internet.Link{}, s.Links...), "flows": stats.Flows})
			}
			printLinks(e.out, s.Links)
			table := tabwriter.NewWriter(e.out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(table, "\nFROM\tTO\tPACKETS\tBYTES\tDROPPED")
			for _, f := range stats.Flows {
				fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\n", f.From, f.To, f.Packets, f.Bytes, f.Drops)
			}
			return table.Flush()
		},
	}
	outputFlag(command, &output)
	return command
}

func printLinks(w io.Writer, links []internet.Link) {
	if len(links) == 0 {
		fmt.Fprintln(w, "All links are plain wires.")
		return
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "LINK\tSTATE\tDELAY\tLOSS\tRATE")
	for _, l := range links {
		state := "up"
		if l.Cut {
			state = "CUT"
		}
		rate := "unlimited"
		if l.Rate > 0 {
			rate = strconv.FormatFloat(float64(l.Rate)/1e6, 'g', -1, 64) + "mbit"
		}
		fmt.Fprintf(table, "%s - %s\t%s\t%s\t%g%%\t%s\n", l.A, l.B, state, l.Delay, l.Loss*100, rate)
	}
	table.Flush()
}

// parseLoss reads 1% or 0.01 as a share.
func parseLoss(text string) (float64, error) {
	if text == "" {
		return 0, nil
	}
	number, percent := strings.CutSuffix(text, "%")
	value, err := strconv.ParseFloat(number, 64)
	if percent {
		value /= 100
	}
	if err == nil && !percent && value >= 1 {
		return 0, fmt.Errorf("--loss %q: write %s%% for percent, or a share below 1", text, number)
	}
	if err != nil || !(value >= 0 && value <= 1) { // not a number is neither
		return 0, fmt.Errorf("--loss %q: use a share such as 1%% or 0.01, at most 100%%", text)
	}
	return value, nil
}

// parseRate reads 100mbit as bits per second.
func parseRate(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	units := []struct {
		word   string
		factor float64
	}{{"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}, {"bit", 1}}
	for _, unit := range units {
		number, ok := strings.CutSuffix(strings.ToLower(text), unit.word)
		if !ok {
			continue
		}
		if value, err := strconv.ParseFloat(number, 64); err == nil && value*unit.factor >= internet.MinRate && value*unit.factor <= internet.MaxRate {
			return int64(value * unit.factor), nil
		}
		break
	}
	return 0, fmt.Errorf("--rate %q: use a number and a unit (kbit, mbit, gbit), such as 100mbit; at least 8kbit, at most 100gbit", text)
}
